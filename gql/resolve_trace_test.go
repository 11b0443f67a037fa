package gql

import (
	"math"
	"testing"
	"time"

	"weir/ingest/trace"
	"weir/model"
	"weir/store"
)

func TestATraceIsNewestFirstAndInPages(t *testing.T) {
	t.Parallel()
	since := time.Unix(50, 0)
	report := &trace.Report{LogSince: &since, TurnedAway: []trace.ReasonCount{{Outcome: "refused", Reason: "ceiling", Count: 3}}}
	for i := range 5 {
		report.Messages = append(report.Messages, trace.Traced{Received: time.Unix(int64(100+i), 0), Offset: 7, Outcome: "stored", AltID: "a", InLog: i > 2})
	}
	page := showTrace(report, store.Page{Number: 2, Size: 2})
	if len(page.Results) != 2 || page.Results[0].Received.Time().Unix() != 102 || page.Results[1].Received.Time().Unix() != 101 || page.Results[0].Offset != "7" {
		t.Errorf("%+v", page.Results)
	}
	if page.Pagination != (searchPage{Start: 3, End: 4, Total: 5}) {
		t.Errorf("%+v", page.Pagination)
	}
	if page.LogSince == nil || page.LogSince.Time().Unix() != 50 || page.TurnedAway[0].Count != 3 {
		t.Errorf("%+v", page)
	}
	if past := showTrace(report, store.Page{Number: math.MaxInt32, Size: store.MaxPageSize}); len(past.Results) != 0 || past.Pagination.Total != 5 {
		t.Errorf("past the end: %+v", past)
	}
	if report.Messages[0].Received.Unix() != 100 {
		t.Error("the report was turned around")
	}
}

func TestATraceIsOfTheCallersTenantAndOfABoundedSpan(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	at := func(d time.Duration) *model.Micros { return new(model.MicrosOf(now.Add(d))) }
	for _, tt := range []struct {
		name       string
		start, end *model.Micros
		since      time.Duration // before the end
		refused    model.Code
	}{
		{name: "the last hour", since: time.Hour},
		{name: "an hour before an end", end: at(-time.Hour), since: time.Hour},
		{name: "a span", start: at(-2 * time.Hour), end: at(-time.Hour), since: time.Hour},
		{name: "a week", start: at(-7 * 24 * time.Hour), since: 7 * 24 * time.Hour},
		{name: "more", start: at(-7*24*time.Hour - time.Second), refused: model.CodeLimitExceeded},
		{name: "backwards", start: at(time.Hour), refused: model.CodeInvalidInput},
	} {
		q, err := traceQuery("acme", "d", tt.start, tt.end, now)
		if tt.refused != "" {
			if model.CodeOf(err) != tt.refused {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err != nil || q.Tenant != "acme" || q.Device != "d" || q.Until.Sub(q.Since).Round(time.Second) != tt.since {
			t.Errorf("%s: %+v, %v", tt.name, q, err)
		}
	}
}
