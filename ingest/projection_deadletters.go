package ingest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
	"weir/rules"
	"weir/store"
)

// namesSetAside is how many readings that were set aside are named.
const namesSetAside = 20

// detailBytes is how much of a dead letter is shown.
const detailBytes = 2 << 10

// deadLetterProjection keeps messages that were accepted and proved unfit, unique by offset, the newest up to a bound.
type deadLetterProjection struct {
	ProjectionBase
	bound          store.DeadLetterBound // of each tenant; zero: there is none
	rejectedBytes  int64                 // of the rejected-payload buffer
	trimmed, aside prometheus.Counter

	mu    sync.Mutex
	since map[string]store.DeadLetterBound // of each tenant since its last trim
}

func newDeadLetterProjection(cfg *ApplyConfig, m *applyMetrics) *deadLetterProjection {
	return &deadLetterProjection{
		bound:         cfg.bound(),
		rejectedBytes: cfg.RejectedBytes,
		trimmed:       m.deadLettersTrimmed,
		aside:         m.setAside,
		since:         map[string]store.DeadLetterBound{},
	}
}

// Record implements Projection.
func (p *deadLetterProjection) Record(_ context.Context, e *Event, out *Effects) error {
	if e.Stored() && len(e.SetAside) > 0 {
		p.setAside(e, out)
	}
	if e.Outcome != store.OutcomeDeadLetter {
		return nil
	}
	r := e.Record
	d := &store.DeadLetter{
		Tenant:          r.Account,
		Occurred:        r.Received.Wall.Micros(),
		Kind:            store.DeadLetterIngest,
		Reason:          string(e.Reason),
		Source:          r.Source,
		Summary:         e.Why,
		Attempts:        1,
		Subject:         r.Device,
		Epoch:           e.At.Epoch,
		Offset:          e.At.Offset,
		Unauthenticated: isRejectedPayload(r.Account, e.Reason),
		Record:          model.AppendRecord(nil, r),
	}
	switch {
	case r.Message != nil:
		d.Detail = describe(r.Message)
	case r.Report != nil:
		d.Detail = describeReport(r.Report)
	case r.Response != nil:
		d.Detail = describeResponse(r.Response)
	}
	p.keep(d, out)
	return nil
}

func (p *deadLetterProjection) keep(d *store.DeadLetter, out *Effects) {
	d.Bytes = int64(len(d.Record)+len(d.Detail)+len(d.Summary)) + 128
	// Decide outside of the transaction, which may run twice.
	trim := !d.Unauthenticated && p.isTrimDue(d)
	out.Step(func(tx store.Tx) error { return p.add(tx, d, trim) })
}

func (p *deadLetterProjection) add(tx store.Tx, d *store.DeadLetter, trim bool) error {
	if err := store.AddDeadLetter(tx, d); err != nil {
		return err
	}
	var gone int64
	var err error
	// The bound is held in the same transaction.
	switch {
	case d.Unauthenticated:
		gone, err = store.TrimRejected(tx, p.rejectedBytes)
	case trim:
		gone, err = store.TrimDeadLetters(tx, d.Tenant, p.bound)
	}
	// Count only what was really removed.
	tx.OnCommit(func() { p.trimmed.Add(float64(gone)) })
	return err
}

// unanswered keeps, in the transaction of its event, a dead letter of an answer that moved no command. In the ledger the message is stored.
func (p *deadLetterProjection) unanswered(tx store.Tx, r *model.Record, at rules.Position, reason Reason, why string) error {
	return p.addUnanswered(tx, &store.DeadLetter{
		Tenant:   r.Account,
		Occurred: r.Received.Wall.Micros(),
		Reason:   string(reason),
		Source:   r.Source,
		Summary:  why,
		Attempts: 1,
		Subject:  r.Device,
		Epoch:    at.Epoch,
		Offset:   at.Offset,
	}, r.Response)
}

// Unanswered keeps a dead letter of an answer that was tried again and has moved no command. It sets the fields of d that follow from the answer.
func (a *Applier) Unanswered(tx store.Tx, d *store.DeadLetter, r *model.Response) error {
	return a.results.dead.addUnanswered(tx, d, r)
}

func (p *deadLetterProjection) addUnanswered(tx store.Tx, d *store.DeadLetter, r *model.Response) error {
	d.Kind, d.Detail = store.DeadLetterResponse, describeResponse(r)
	d.Bytes = int64(len(d.Detail)+len(d.Summary)) + 128
	return p.add(tx, d, p.isTrimDue(d))
}

// isTrimDue reports whether it is time to look at how many dead letters a tenant has: at the first one since the start, and
// after each hundredth of the bound, so that counting costs little and the bound is exceeded by little.
func (p *deadLetterProjection) isTrimDue(d *store.DeadLetter) bool {
	bound := p.bound
	if bound.Rows <= 0 || bound.Bytes <= 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	have, known := p.since[d.Tenant]
	have.Rows, have.Bytes = have.Rows+1, have.Bytes+d.Bytes
	if known && have.Rows < max(bound.Rows/100, 1) && have.Bytes < max(bound.Bytes/16, 1) {
		p.since[d.Tenant] = have
		return false
	}
	p.since[d.Tenant] = store.DeadLetterBound{}
	return true
}

// isRejectedPayload reports whether a dead letter lies in the rejected-payload buffer, which drops the oldest.
func isRejectedPayload(account string, reason Reason) bool {
	return account == "" || reason == ReasonBadCredential || reason == ReasonUnknownDevice
}

// describe shows a message in one line, bounded.
func describe(m *model.Message) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", m.Type)
	if m.AltID != "" {
		fmt.Fprintf(&b, " altId=%q", m.AltID)
	}
	for i := range m.Measurements {
		fmt.Fprintf(&b, " %s=%v", m.Measurements[i].Metric, m.Measurements[i].Value)
	}
	for i := range m.Locations {
		fmt.Fprintf(&b, " (%v, %v)", m.Locations[i].Latitude, m.Locations[i].Longitude)
	}
	for i := range m.Alerts {
		fmt.Fprintf(&b, " %q level %d", m.Alerts[i].Type, m.Alerts[i].Level)
	}
	if m.Relationship != nil {
		fmt.Fprintf(&b, " %s %s %q", m.Relationship.Type, m.Relationship.TargetType, m.Relationship.Target)
	}
	return shorten(b.String())
}

// describeReport shows a device report in one line, bounded.
func describeReport(r *model.Report) string {
	var b strings.Builder
	b.WriteString("device report")
	for i := range r.Attributes {
		if b.Len() > detailBytes {
			break
		}
		b.WriteString(" " + describeReported(&r.Attributes[i]))
	}
	return shorten(b.String())
}

// describeResponse shows an answer to a command, bounded.
func describeResponse(r *model.Response) string {
	outcome := "success"
	if !r.Success {
		outcome = "failure"
	}
	return shorten(fmt.Sprintf("answer to command %s: %s %s%s", r.Command, outcome, r.Payload, r.Error))
}

// describeReported shows a reported attribute.
func describeReported(a *model.Reported) string {
	const most = 80
	value := a.Value
	switch {
	case a.Type == model.ReportedNull:
		value = "null"
	case len(value) > most:
		value = strings.ToValidUTF8(value[:most], "") + "…"
	}
	return a.Key + "=" + value
}

func shorten(detail string) string {
	if len(detail) > detailBytes {
		return strings.ToValidUTF8(detail[:detailBytes], "") + "…"
	}
	return detail
}

// setAside counts the readings that were set aside, and names the first of them in a dead letter. Its kind is one of its own: in
// the ledger the message is stored.
func (p *deadLetterProjection) setAside(e *Event, out *Effects) {
	p.aside.Add(float64(len(e.SetAside)))
	// Name the metrics, not the values.
	var names []string
	for _, r := range e.SetAside {
		if len(names) < namesSetAside && !slices.Contains(names, r.Metric) {
			names = append(names, r.Metric)
		}
	}
	r := e.Record
	p.keep(&store.DeadLetter{
		Tenant:   r.Account,
		Occurred: r.Received.Wall.Micros(),
		Kind:     store.DeadLetterReadings,
		Reason:   string(ReasonSeriesLimit),
		Source:   r.Source,
		Attempts: 1,
		Subject:  r.Device,
		Epoch:    e.At.Epoch,
		Offset:   e.At.Offset,
		Detail:   shorten(strings.Join(names, " ")),
		Summary: fmt.Sprintf("%d of %d readings would open more series than the device or the tenant may have (limits.series_per_device, "+
			"limits.series_per_tenant); the others are stored", len(e.SetAside), len(e.SetAside)+r.Readings()),
	}, out)
}
