// Package trace finds out what became of the messages of one device: a query of the ledger over readings, dead letters and the
// records that the log still holds.
package trace

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"weir/ingest"
	"weir/model"
	"weir/series"
	"weir/spool"
	"weir/store"
)

// Query asks what happened to the messages of a device that were received in a span.
type Query struct {
	Tenant string    `json:"tenant"`
	Device string    `json:"device"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
}

// Report is what is known, oldest message first.
type Report struct {
	Messages []Traced `json:"messages"`
	// LogSince is the receive time of the oldest record that the log still holds, nil when it holds none. What was a
	// duplicate before it has left no trace.
	LogSince *time.Time `json:"logSince,omitempty"`
	// TurnedAway is what the transports refused of the whole tenant in these hours: refusals are counted, not kept by device.
	TurnedAway []ReasonCount `json:"turnedAway,omitempty"`
}

// ReasonCount is the share of an outcome that one reason has.
type ReasonCount struct {
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
	Count   int64  `json:"count"`
}

// Traced is a message and where it ended.
type Traced struct {
	Received  time.Time    `json:"receivedTime"`
	Offset    model.Offset `json:"offset"`
	Transport string       `json:"transport"`
	Outcome   string       `json:"outcome"` // as in the ledger; unknown where nothing is known
	Reason    string       `json:"reason,omitempty"`
	Text      string       `json:"text,omitempty"`
	Readings  int          `json:"readings"` // that are kept
	AltID     string       `json:"altId,omitempty"`
	InLog     bool         `json:"inLog"` // the log still holds the record
}

// OutcomeUnknown is the outcome of a message that was applied and of which neither readings nor a dead letter exist.
const OutcomeUnknown = "unknown"

// maxTraced is the maximum of messages in one trace.
const maxTraced = 100_000

// deadLetterPage is how many dead letters are read at once.
const deadLetterPage = 1000

// tracing is a trace under way.
type tracing struct {
	Tracer
	q        Query
	tenantID int64
	device   int64
	found    map[model.Offset]*Traced
	altIDs   map[string]model.Offset // of what is stored
	repeats  map[string]model.Offset // of the records seen, by what the transport repeats
	applied  model.Offset
	report   *Report
}

// Readings finds the messages whose readings are stored.
type Readings interface {
	Traces(ctx context.Context, tenantID, device int64, from, to, since, until model.Micros, most int) (map[model.Offset]*series.Trace, error)
}

// Ledger counts what the transports refused.
type Ledger interface {
	Lines(ctx context.Context, f store.LedgerFilter) ([]ingest.LedgerLine, error)
}

// Tracer answers queries.
type Tracer struct {
	Store    store.Store
	Log      spool.Log
	Readings Readings
	Ledger   Ledger
	// Applied is the newest record that is applied.
	Applied func() model.Offset
	// An event is at most MaxAge older than its receipt, and at most MaxFutureSkew later.
	MaxAge, MaxFutureSkew time.Duration
	// TransportOf is the transport that an event source belongs to, "" for an unknown one.
	TransportOf func(source string) string
}

// Trace finds the messages of a device.
func (tr Tracer) Trace(ctx context.Context, q Query, tenantID, device int64) (*Report, error) {
	if q.Until.Before(q.Since) {
		return nil, model.Invalid("until", "must not lie before since")
	}
	release := tr.Log.HoldTrim()
	defer release()
	t := &tracing{Tracer: tr, q: q, tenantID: tenantID, device: device, found: map[model.Offset]*Traced{}, altIDs: map[string]model.Offset{},
		repeats: map[string]model.Offset{}, applied: tr.Applied(), report: &Report{Messages: []Traced{}}}
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
	traces, err := t.Readings.Traces(ctx, t.tenantID, t.device, since-micros(t.MaxAge), until+micros(t.MaxFutureSkew), since, until, maxTraced)
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
	return t.add(at, Traced{Received: s.Received.Time(), Transport: cmp.Or(t.TransportOf(s.Source), s.Source), Outcome: string(store.OutcomeStored), Readings: s.Readings, AltID: s.AltID})
}

// rows finds locations and alerts, which are rows by themselves.
func (t *tracing) rows(ctx context.Context) error {
	since, until := t.span()
	return t.Store.Read(ctx, func(tx store.Tx) error {
		for _, typ := range []model.EventType{model.LocationEvent, model.AlertEvent} {
			scope := store.EventScope{TenantID: t.tenantID, Device: t.device, Type: typ, From: since - micros(t.MaxAge), To: until + micros(t.MaxFutureSkew)}
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
	f := store.DeadLetterFilter{Tenant: &t.q.Tenant, Subject: &t.q.Device, Kind: store.DeadLetterIngest, Limit: deadLetterPage}
	return t.Store.Read(ctx, func(tx store.Tx) error {
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
				if err := t.add(d.Offset, Traced{Received: d.Occurred.Time(), Transport: cmp.Or(t.TransportOf(d.Source), d.Source),
					Outcome: string(store.OutcomeDeadLetter), Reason: d.Reason, Text: d.Summary}); err != nil {
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
	first, _ := t.Log.Bounds()
	since, until := t.span()
	return ingest.LogBatches(ctx, t.Log, first, func(b *spool.Batch) error {
		for i := range b.Records {
			r, err := model.DecodeRecord(b.Records[i].Data)
			if err != nil {
				return err
			}
			if t.report.LogSince == nil {
				t.report.LogSince = new(r.Received.Wall.Time())
			}
			at := b.First + model.Offset(i)
			if at < first || !ingest.Counted(r.Kind) || r.Account != t.q.Tenant || r.Device != t.q.Device {
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
			m := t.outcome(r, at, again)
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
		clear(t.repeats) // only a repeat of something long ago is described less well
	}
	t.repeats[k] = at
	if !r.Dup {
		return 0
	}
	return before
}

// outcome says what is known of a record of which nothing is kept.
func (t *tracing) outcome(r *model.Record, at, again model.Offset) Traced {
	m := Traced{Outcome: OutcomeUnknown}
	if r.Message != nil {
		m.AltID = r.Message.AltID
	}
	same := t.altIDs[m.AltID]
	switch {
	case at > t.applied:
		m.Outcome, m.Text = string(store.OutcomeWaiting), "not yet applied"
	case again != 0:
		m.Outcome, m.Text = string(store.OutcomeDuplicate), fmt.Sprintf("the same publish as record %d", again)
	case m.AltID != "" && same != 0:
		m.Outcome, m.Text = string(store.OutcomeDuplicate), fmt.Sprintf("the altId of record %d", same)
	default:
		m.Text = "applied, and nothing of it is there: a duplicate of something older, or a dead letter that has left; weir ledger verify shows whether anything is missing"
	}
	return m
}

// turnedAway gathers what the transports refused of the tenant.
func (t *tracing) turnedAway(ctx context.Context) error {
	lines, err := t.Ledger.Lines(ctx, store.LedgerFilter{Tenant: &t.q.Tenant, From: new(model.NanosOf(t.q.Since).Hour()), To: new(model.NanosOf(t.q.Until).Hour())})
	if err != nil {
		return err
	}
	for i := range lines {
		for _, r := range lines[i].Reasons {
			if r.Outcome != store.OutcomeRefused && r.Outcome != store.OutcomeDropped {
				continue
			}
			n := slices.IndexFunc(t.report.TurnedAway, func(c ReasonCount) bool { return c.Outcome == string(r.Outcome) && c.Reason == r.Reason })
			if n < 0 {
				n = len(t.report.TurnedAway)
				t.report.TurnedAway = append(t.report.TurnedAway, ReasonCount{string(r.Outcome), r.Reason, 0})
			}
			t.report.TurnedAway[n].Count += r.Count.Messages
		}
	}
	return nil
}

// micros is d in the unit of stored times.
func micros(d time.Duration) model.Micros { return model.Micros(d.Microseconds()) }
