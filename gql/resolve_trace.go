package gql

import (
	"context"
	"slices"
	"strconv"
	"time"

	"weir/gql/engine"
	"weir/ingest/trace"
	"weir/model"
	"weir/store"
)

// Tracer finds out what became of the messages of a device: what weir ledger trace shows. The tenant of the query is that of the caller.
type Tracer func(ctx context.Context, q trace.Query) (*trace.Report, error)

// What a trace may cost: it reads the log and the history of a device.
const (
	traceSpan     = time.Hour
	maxTraceSpan  = 7 * 24 * time.Hour
	traces        = 2 // at a time
	traceRetrySec = 5
)

type tracedView struct {
	Offset    string       `gql:"offset"`
	Received  model.Micros `gql:"receivedTime"`
	Transport string       `gql:"transport"`
	Outcome   string       `gql:"outcome"`
	Reason    *string      `gql:"reason"`
	Detail    *string      `gql:"detail"`
	Readings  int          `gql:"readings"`
	AltID     *string      `gql:"altId"`
	InLog     bool         `gql:"inLog"`
}

type turnedAwayView struct {
	Outcome string `gql:"outcome"`
	Reason  string `gql:"reason"`
	Count   int64  `gql:"count"`
}

type tracePage struct {
	Results    []tracedView     `gql:"results"`
	Pagination searchPage       `gql:"pagination"`
	LogSince   *model.Micros    `gql:"logSince"`
	TurnedAway []turnedAwayView `gql:"turnedAway"`
}

// registerTrace registers messageTrace, which waits for no place of running. find is nil where no instance runs.
func registerTrace(a *Area, find Tracer, running chan struct{}) {
	a.Types(map[string]any{"TracedMessage": tracedView{}, "TurnedAway": turnedAwayView{}, "MessageTraceResults": tracePage{}})
	a.Query("messageTrace", Requires(model.EventRead), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		c := args.Object("criteria")
		start, err := instant(c, "startTime", false)
		if err != nil {
			return nil, err
		}
		end, err := instant(c, "endTime", true)
		if err != nil {
			return nil, err
		}
		q, err := traceQuery(PrincipalFrom(ctx).Tenant, c.String("deviceToken"), start, end, time.Now())
		if err != nil {
			return nil, err
		}
		leave, err := enterTrace(running)
		if err != nil {
			return nil, err
		}
		defer leave()
		if find == nil {
			return nil, model.Errorf(model.CodeUnavailable, "unavailable: no instance runs")
		}
		report, err := find(ctx, q)
		if err != nil {
			return nil, err
		}
		return showTrace(report, store.Page{Number: c.Int("pageNumber"), Size: c.Int("pageSize")}.Norm()), nil
	})
}

// enterTrace takes one of the places of traces, and refuses where all are taken.
func enterTrace(running chan struct{}) (leave func(), err error) {
	select {
	case running <- struct{}{}:
		return func() { <-running }, nil
	default:
		return nil, &model.Error{Code: model.CodeThrottled, Message: "throttled: as many traces run as may at a time; try again",
			Ext: map[string]any{"retryAfterSeconds": traceRetrySec}}
	}
}

func traceQuery(tenant, device string, start, end *model.Micros, now time.Time) (trace.Query, error) {
	q := trace.Query{Tenant: tenant, Device: device, Until: now}
	if end != nil {
		q.Until = end.Time()
	}
	q.Since = q.Until.Add(-traceSpan)
	if start != nil {
		q.Since = start.Time()
	}
	switch span := q.Until.Sub(q.Since); {
	case span < 0:
		return q, model.Invalid("endTime", "must not lie before startTime")
	case span > maxTraceSpan:
		return q, model.OverLimit("startTime", "a span of more than 7 days; weir ledger trace looks further back")
	}
	return q, nil
}

// showTrace is a page of a report, newest first.
func showTrace(report *trace.Report, page store.Page) tracePage {
	out := tracePage{Results: []tracedView{}, TurnedAway: []turnedAwayView{}}
	all := slices.Clone(report.Messages)
	slices.Reverse(all)
	from := page.First(len(all))
	for _, m := range all[from:min(from+page.Size, len(all))] {
		out.Results = append(out.Results, tracedView{Offset: strconv.FormatUint(uint64(m.Offset), 10), Received: model.MicrosOf(m.Received), Transport: m.Transport, Outcome: m.Outcome,
			Reason: textOrNil(m.Reason), Detail: textOrNil(m.Text), Readings: m.Readings, AltID: textOrNil(m.AltID), InLog: m.InLog})
	}
	out.Pagination.Total = int64(len(all))
	out.Pagination.Start, out.Pagination.End = page.Span(len(out.Results))
	if report.LogSince != nil {
		out.LogSince = new(model.MicrosOf(*report.LogSince))
	}
	for _, r := range report.TurnedAway {
		out.TurnedAway = append(out.TurnedAway, turnedAwayView{r.Outcome, r.Reason, clampInt(r.Count)})
	}
	return out
}
