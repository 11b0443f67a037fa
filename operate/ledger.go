package operate

import (
	"context"
	"slices"
	"strings"
	"time"

	"weir/actions"
	"weir/ingest"
	"weir/ingest/trace"
	"weir/model"
	"weir/store"
)

// LedgerQuery narrows a look at the ledger.
type LedgerQuery struct {
	Tenant    *string    `json:"tenant,omitempty"`
	Transport string     `json:"transport,omitempty"`
	Since     *time.Time `json:"since,omitempty"`
	// Uplink asks for the ledger of the uplink of a platform: what became of each message on its way up. Its own ledger does not count that.
	Uplink bool `json:"uplink,omitempty"`
}

// LedgerReport is the ledger as the command line shows it.
type LedgerReport struct {
	Lines []LedgerEntry `json:"hours"`
	Gaps  []Gap         `json:"gaps,omitempty"`
}

// LedgerEntry is one hour of one tenant at one transport.
type LedgerEntry struct {
	Hour      time.Time        `json:"hour"`
	Tenant    string           `json:"tenant"`
	Transport string           `json:"transport"`
	Received  int64            `json:"received"`
	Outcomes  map[string]int64 `json:"outcomes"`
	Reasons   []ReasonCount    `json:"reasons,omitempty"`
	Readings  int64            `json:"readings"`
	// OutOfRange is how many of the readings were outside the range of their metric and have a mark.
	OutOfRange int64 `json:"outOfRange,omitempty"`
	// Missing is by how many messages the hour does not balance, 0 when it does.
	Missing int64 `json:"missing"`
}

// ReasonCount is the share of an outcome that one reason has.
type ReasonCount = trace.ReasonCount

// Gap is a span for which refusals may not have been counted.
type Gap struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// shownGaps is how many gaps a report lists.
const shownGaps = 100

func (o *Operator) ledger(ctx context.Context, q LedgerQuery) (*LedgerReport, error) {
	if r := o.deps.Applier.Replay(); r != nil { // the batch that is being applied is counted in part
		return nil, model.Errorf(model.CodeUnavailable, "the ledger waits: %s", r)
	}
	if q.Uplink {
		e, err := o.uplink()
		if err != nil {
			return nil, err
		}
		return e.ledger(ctx, q)
	}
	f := store.LedgerFilter{Tenant: q.Tenant, Transport: q.Transport}
	if q.Since != nil {
		f.From = new(model.NanosOf(*q.Since).Hour())
	}
	lines, err := o.deps.Applier.Ledger().Lines(ctx, f)
	if err == nil && len(lines) == 0 {
		err = o.deps.knownTenant(q.Tenant)
	}
	if err != nil {
		return nil, err
	}
	r := &LedgerReport{Lines: make([]LedgerEntry, len(lines))}
	for i := range lines {
		r.Lines[i] = ledgerEntry(&lines[i])
	}
	r.Gaps, err = gapsOf(ctx, o.deps.Store)
	return r, err
}

// knownTenant refuses a filter that names a tenant which does not exist: nothing could match it.
func (e *Entities) knownTenant(tenant *string) error {
	if tenant != nil && *tenant != "" && !e.Govern.Known(*tenant) {
		return e.noTenant(*tenant)
	}
	return nil
}

func ledgerEntry(l *ingest.LedgerLine) LedgerEntry {
	e := LedgerEntry{Hour: time.Unix(l.Hour*3600, 0).UTC(), Tenant: l.Tenant, Transport: l.Transport, Received: l.Received.Messages,
		Outcomes: map[string]int64{}, Readings: l.Readings(), OutOfRange: l.OutOfRange, Missing: l.Missing()}
	for h, c := range l.Outcomes {
		e.Outcomes[outcomeName(h)] = c.Messages
	}
	for _, r := range l.Reasons {
		e.Reasons = append(e.Reasons, ReasonCount{Outcome: outcomeName(r.Outcome), Reason: r.Reason, Count: r.Count.Messages})
	}
	return e
}

// outcomeName is the name of an outcome in answers, as it is in options: with a hyphen, not with a blank.
func outcomeName(o store.Outcome) string { return strings.ReplaceAll(string(o), " ", "-") }

// DeadLetterQuery narrows a list of dead letters.
type DeadLetterQuery struct {
	Tenant *string `json:"tenant,omitempty"`
	Device *string `json:"device,omitempty"`
	Kind   string  `json:"kind,omitempty"`
	Reason string  `json:"reason,omitempty"`
	Before int64   `json:"before,omitempty"`
	Limit  int     `json:"limit"`
}

// DeadLetter is one as the command line shows it.
type DeadLetter struct {
	ID       int64     `json:"id"`
	Occurred time.Time `json:"occurredTime"`
	Tenant   string    `json:"tenant"`
	Kind     string    `json:"kind"`
	Reason   string    `json:"reason"`
	Source   string    `json:"source"`
	Device   string    `json:"device,omitempty"`
	Summary  string    `json:"summary"`
	Detail   string    `json:"detail,omitempty"`
	Offset   uint64    `json:"offset,omitempty"`
	// Key is the idempotency key of what was to go out, Rule the runtime id of the rule that ordered it.
	Key      string `json:"idempotencyKey,omitempty"`
	Rule     string `json:"ruleId,omitempty"`
	Attempts int    `json:"attempts"`
	// Refused says that the sender was refused: a copy of a body that did not enter the log.
	Refused bool `json:"refused,omitempty"`
}

// MaxDeadLetters is the maximum of dead letters in one list.
const MaxDeadLetters = 1000

func (e *Entities) deadLetters(ctx context.Context, q DeadLetterQuery) ([]DeadLetter, error) {
	if q.Limit < 1 || q.Limit > MaxDeadLetters {
		return nil, model.Invalid("limit", "must lie in 1..%d", MaxDeadLetters)
	}
	out := []DeadLetter{}
	err := e.Store.Read(ctx, func(tx store.Tx) error {
		ds, err := store.DeadLetters(tx, store.DeadLetterFilter{Open: true, Tenant: q.Tenant, Subject: q.Device, Kind: q.Kind, Reason: q.Reason, Before: q.Before, Limit: q.Limit})
		for i := range ds {
			out = append(out, deadLetter(&ds[i]))
		}
		return err
	})
	if err == nil && len(out) == 0 {
		err = e.knownTenant(q.Tenant)
		if reasons := DeadLetterReasons(); err == nil && q.Reason != "" && !slices.Contains(reasons, q.Reason) {
			err = model.Invalid("reason", "%q is none of %s", q.Reason, strings.Join(reasons, ", "))
		}
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// DeadLetterReasons are why Weir's own parts make dead letters. A transport may have further ones.
func DeadLetterReasons() []string {
	reasons := []ingest.Reason{ingest.ReasonBadCredential, ingest.ReasonBadTime, ingest.ReasonInvalidValue, ingest.ReasonNoConsumer, ingest.ReasonOverLimit,
		ingest.ReasonNoBirth, ingest.ReasonRelationship, ingest.ReasonSeriesLimit, ingest.ReasonTooManyReadings, ingest.ReasonUndecodable, ingest.ReasonUnknownDevice, ingest.ReasonUnknownTenant}
	out := actions.LetterReasons()
	for _, r := range reasons {
		out = append(out, string(r))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func deadLetter(d *store.DeadLetter) DeadLetter {
	return DeadLetter{ID: d.ID, Occurred: d.Occurred.Time(), Tenant: d.Tenant, Kind: d.Kind, Reason: d.Reason, Source: d.Source,
		Device: d.Subject, Summary: d.Summary, Detail: d.Detail, Offset: uint64(d.Offset), Key: d.Correlation, Rule: d.Reference, Attempts: d.Attempts, Refused: d.Offset == 0 && d.Incoming()}
}

// traceTimeout is how long a trace may take: it may read all that a device has sent.
const traceTimeout = 5 * time.Minute

// Trace finds out what became of the messages of a device, for the API.
func (o *Operator) Trace(ctx context.Context, q trace.Query) (*trace.Report, error) {
	return o.trace(ctx, q)
}

// tracer finds out what became of messages.
func (o *Operator) tracer() trace.Tracer {
	limits := o.deps.Effective().Ingest
	return trace.Tracer{Store: o.deps.Store, Log: o.deps.Spool, Readings: o.deps.Series, Ledger: o.deps.Applier.Ledger(), Applied: o.deps.Applier.Applied,
		MaxAge: limits.MaxAge, MaxFutureSkew: limits.MaxFutureSkew, TransportOf: o.deps.Wiring.TransportOf}
}

// FoundMessage is a message that the log still holds, what became of it, and the edges of its device that it caused.
type FoundMessage struct {
	Traced
	Record *model.Record
	Edges  []model.Edge
}

// Message returns what the log holds of a tenant at an offset; nil where it holds nothing, or no longer.
func (o *Operator) Message(ctx context.Context, tenant string, at model.Offset) (*FoundMessage, error) {
	by, err := o.deps.within(tenant)
	if err != nil {
		return nil, err
	}
	t := o.tracer()
	rec, err := t.Message(ctx, tenant, at)
	if err != nil || rec == nil {
		return nil, err
	}
	device := int64(0) // a device that does not exist has no readings
	switch d, err := o.deps.deviceNamed(ctx, by, rec.Device); {
	case err == nil:
		device = d.ID
	case model.CodeOf(err) != model.CodeNotFound:
		return nil, err
	}
	traced, err := t.Outcome(ctx, rec, at, by.TenantID, device)
	if err != nil {
		return nil, err
	}
	traced.Outcome = outcomeName(store.Outcome(traced.Outcome))
	edges, err := t.Edges(ctx, rec, at, by.TenantID, device)
	if err != nil {
		return nil, err
	}
	return &FoundMessage{traced, rec, edges}, nil
}

// trace finds out what became of the messages of a device.
func (o *Operator) trace(ctx context.Context, q trace.Query) (*trace.Report, error) {
	by, err := o.deps.within(q.Tenant)
	if err != nil {
		return nil, err
	}
	d, err := o.deps.deviceNamed(ctx, by, q.Device)
	if err != nil {
		return nil, err
	}
	r, err := o.tracer().Trace(ctx, q, d.TenantID, d.ID)
	if err != nil {
		return nil, err
	}
	for i := range r.Messages {
		r.Messages[i].Outcome = outcomeName(store.Outcome(r.Messages[i].Outcome))
	}
	return r, nil
}
