package app

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"weir/ingest"
	"weir/model"
	"weir/series"
	"weir/spool"
	"weir/store"
)

// TraceQuery asks what happened to the messages of a device that were received in a span.
type TraceQuery struct {
	Tenant string    `json:"tenant"`
	Device string    `json:"device"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
}

// TraceReport is what can be told, oldest message first.
type TraceReport struct {
	Messages []Traced `json:"messages"`
	// LogSince is the receive time of the oldest record that the log still holds, nil when it holds none. What was a
	// duplicate before it has left no trace.
	LogSince *time.Time `json:"logSince,omitempty"`
	// TurnedAway is what the doors turned away of the whole tenant in these hours: refusals are counted, not kept by device.
	TurnedAway []ReasonCount `json:"turnedAway,omitempty"`
}

// Traced is a message and where it ended.
type Traced struct {
	Received  time.Time    `json:"received"`
	Offset    model.Offset `json:"offset"`
	Transport string       `json:"transport"`
	Heading   string       `json:"heading"` // as in the ledger; unknown where nothing can be told
	Reason    string       `json:"reason,omitempty"`
	Text      string       `json:"text,omitempty"`
	Readings  int          `json:"readings"` // that are kept
	AltID     string       `json:"altId,omitempty"`
	InLog     bool         `json:"inLog"` // the log still holds the record
}

// HeadingUnknown is that of a message which was applied and of which neither readings nor a dead letter are there.
const HeadingUnknown = "unknown"

// maxTraced is the most messages of one trace.
const maxTraced = 100_000

// tracing is a trace under way.
type tracing struct {
	in       *Instance
	q        TraceQuery
	tenantID int64
	device   int64
	found    map[model.Offset]*Traced
	altIDs   map[string]model.Offset // of what is stored
	repeats  map[string]model.Offset // of the records seen, by what the transport repeats
	applied  model.Offset
	report   *TraceReport
}

func (in *Instance) trace(ctx context.Context, q TraceQuery) (*TraceReport, error) {
	by, err := in.within(q.Tenant)
	if err != nil {
		return nil, err
	}
	if q.Until.Before(q.Since) {
		return nil, model.Invalid("until", "must not lie before since")
	}
	d, err := in.device(ctx, by, q.Device)
	if err != nil {
		return nil, err
	}
	release := in.spool.HoldTrim()
	defer release()
	t := &tracing{in: in, q: q, tenantID: d.TenantID, device: d.ID, found: map[model.Offset]*Traced{}, altIDs: map[string]model.Offset{},
		repeats: map[string]model.Offset{}, applied: in.applier.Applied(), report: &TraceReport{Messages: []Traced{}}}
	for _, part := range []func(context.Context) error{t.measurements, t.rows, t.deadLetters, t.log, t.turnedAway} {
		if err := part(ctx); err != nil {
			return nil, err
		}
	}
	for _, m := range t.found {
		t.report.Messages = append(t.report.Messages, *m)
	}
	slices.SortFunc(t.report.Messages, func(a, b Traced) int { return cmp.Compare(a.Offset, b.Offset) })
	return t.report, nil
}

func (t *tracing) span() (since, until model.Micros) {
	return model.MicrosOf(t.q.Since), model.MicrosOf(t.q.Until)
}

// add notes a message, unless there are too many.
func (t *tracing) add(at model.Offset, m Traced) error {
	if t.found[at] == nil && len(t.found) >= maxTraced {
		return model.Errorf(model.CodeLimitExceeded, "more than %d messages lie in that span; narrow the time", maxTraced)
	}
	m.Offset = at
	t.found[at] = &m
	return nil
}

func (t *tracing) measurements(ctx context.Context) error {
	since, until := t.span()
	limits := t.in.obeyed().Ingest
	// An event is at most max_age older than its receipt, and at most max_future_skew later.
	traces, err := t.in.series.Traces(ctx, t.tenantID, t.device, since-storeMicros(limits.MaxAge), until+storeMicros(limits.MaxFutureSkew), since, until, maxTraced)
	if err != nil {
		return err
	}
	for at, s := range traces {
		if err := t.stored(at, s); err != nil {
			return err
		}
	}
	return nil
}

func (t *tracing) stored(at model.Offset, s *series.Trace) error {
	if s.AltID != "" {
		t.altIDs[s.AltID] = at
	}
	if m := t.found[at]; m != nil {
		m.Readings += s.Readings
		return nil
	}
	return t.add(at, Traced{Received: s.Received.Time(), Transport: cmp.Or(doorOf(s.Source), s.Source), Heading: string(store.OutcomeStored), Readings: s.Readings, AltID: s.AltID})
}

// rows finds locations and alerts, which are rows of their own.
func (t *tracing) rows(ctx context.Context) error {
	since, until := t.span()
	limits := t.in.obeyed().Ingest
	return t.in.store.Read(ctx, func(tx store.Tx) error {
		for _, typ := range []model.EventType{model.LocationEvent, model.AlertEvent} {
			scope := store.EventScope{TenantID: t.tenantID, Device: t.device, Type: typ, From: since - storeMicros(limits.MaxAge), To: until + storeMicros(limits.MaxFutureSkew)}
			var after *store.EventPosition
			for {
				events, err := store.RowEvents(tx, scope, after, 0, store.MaxPageSize)
				if err != nil {
					return err
				}
				for i := range events {
					e := &events[i]
					after = &store.EventPosition{Occurred: e.Occurred, Offset: e.Offset, Index: e.Index}
					if e.Received < since || e.Received > until {
						continue
					}
					if err := t.stored(e.Offset, &series.Trace{Received: e.Received, Source: e.Source, AltID: e.AltID, Readings: 1}); err != nil {
						return err
					}
				}
				if len(events) < store.MaxPageSize {
					break
				}
			}
		}
		return nil
	})
}

func (t *tracing) deadLetters(ctx context.Context) error {
	since, until := t.span()
	f := store.DeadLetterFilter{Tenant: &t.q.Tenant, Subject: &t.q.Device, Kind: store.DeadLetterIngest, Limit: maxDeadLetters}
	return t.in.store.Read(ctx, func(tx store.Tx) error {
		for {
			ds, err := store.DeadLetters(tx, f)
			if err != nil {
				return err
			}
			for i := range ds {
				d := &ds[i]
				f.Before = d.ID
				if d.Offset == 0 || d.Occurred < since || d.Occurred > until {
					continue
				}
				if err := t.add(d.Offset, Traced{Received: d.Occurred.Time(), Transport: cmp.Or(doorOf(d.Source), d.Source),
					Heading: string(store.OutcomeDeadLetter), Reason: d.Reason, Text: d.Summary}); err != nil {
					return err
				}
			}
			if len(ds) < f.Limit {
				return nil
			}
		}
	})
}

// log looks at the records that the log still holds.
func (t *tracing) log(ctx context.Context) error {
	first, _ := t.in.spool.Bounds()
	since, until := t.span()
	return ingest.LogBatches(ctx, t.in.spool, first, func(b *spool.Batch) error {
		for i := range b.Records {
			r, err := model.DecodeRecord(b.Records[i].Data)
			if err != nil {
				return err
			}
			if t.report.LogSince == nil {
				t.report.LogSince = new(r.Received.Wall.Time())
			}
			at := b.First + model.Offset(i)
			if at < first || r.Kind != model.KindMessage && r.Kind != model.KindRaw || r.Account != t.q.Tenant || r.Device != t.q.Device {
				continue
			}
			again := t.repeat(r, at)
			if when := r.Received.Wall.Micros(); when < since || when > until {
				continue
			}
			if m := t.found[at]; m != nil {
				m.InLog = true
				continue
			}
			m := t.fate(r, at, again)
			m.Received, m.Transport, m.InLog = r.Received.Wall.Time(), r.Transport, true
			if err := t.add(at, m); err != nil {
				return err
			}
		}
		return nil
	})
}

// repeat returns the record that r repeats as transports do, 0 for none.
func (t *tracing) repeat(r *model.Record, at model.Offset) model.Offset {
	if r.PacketID == 0 {
		return 0
	}
	k := fmt.Sprintf("%s %d %x", r.ClientID, r.PacketID, r.Hash)
	before := t.repeats[k]
	if len(t.repeats) >= maxTraced {
		clear(t.repeats) // only a repeat of something long ago is told less well
	}
	t.repeats[k] = at
	if !r.Dup {
		return 0
	}
	return before
}

// fate says what can be told of a record of which nothing is kept.
func (t *tracing) fate(r *model.Record, at, again model.Offset) Traced {
	m := Traced{Heading: HeadingUnknown}
	if r.Message != nil {
		m.AltID = r.Message.AltID
	}
	same := t.altIDs[m.AltID]
	switch {
	case at > t.applied:
		m.Heading, m.Text = string(store.OutcomeWaiting), "not yet applied"
	case again != 0:
		m.Heading, m.Text = string(store.OutcomeDuplicate), fmt.Sprintf("the same publish as record %d", again)
	case m.AltID != "" && same != 0:
		m.Heading, m.Text = string(store.OutcomeDuplicate), fmt.Sprintf("the altId of record %d", same)
	default:
		m.Text = "applied, and nothing of it is there: a duplicate of something older, or a dead letter that has left; weir ledger verify tells whether anything is missing"
	}
	return m
}

// turnedAway gathers what the doors turned away of the tenant.
func (t *tracing) turnedAway(ctx context.Context) error {
	lines, err := t.in.applier.Ledger().Lines(ctx, store.LedgerFilter{Tenant: &t.q.Tenant, From: new(model.NanosOf(t.q.Since).Hour()), To: new(model.NanosOf(t.q.Until).Hour())})
	if err != nil {
		return err
	}
	for i := range lines {
		for _, r := range lines[i].Reasons {
			if r.Heading != store.OutcomeRefused && r.Heading != store.OutcomeDropped {
				continue
			}
			n := slices.IndexFunc(t.report.TurnedAway, func(c ReasonCount) bool { return c.Heading == string(r.Heading) && c.Reason == r.Reason })
			if n < 0 {
				n = len(t.report.TurnedAway)
				t.report.TurnedAway = append(t.report.TurnedAway, ReasonCount{string(r.Heading), r.Reason, 0})
			}
			t.report.TurnedAway[n].Count += r.Count.Messages
		}
	}
	return nil
}

// TraceDevice tells what happened to the messages of a device.
func (c *Client) TraceDevice(ctx context.Context, q TraceQuery) (*TraceReport, error) {
	return call[TraceReport](ctx, c, "ledger-trace", q)
}

// tracePatience is how long a trace may take: it may read all that a device has sent.
const tracePatience = 5 * time.Minute

func (in *Instance) traceVerbs() map[string]http.Handler {
	return map[string]http.Handler{
		"ledger-trace": boundedVerb(in, bounds{maxCommandBytes, tracePatience}, in.trace),
	}
}
