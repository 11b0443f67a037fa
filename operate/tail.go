package operate

import (
	"context"
	"time"

	"weir/ingest"
	"weir/model"
	"weir/store"
)

// TailQuery narrows what a tail shows. Empty restricts nothing.
type TailQuery struct {
	Tenant *string `json:"tenant,omitempty"` // "" is unauthenticated senders and unknown tenants
	Device string  `json:"device,omitempty"`
	// Unnamed asks, besides for Device, for what names no device: it may be its.
	Unnamed   bool   `json:"unnamed,omitempty"`
	Transport string `json:"transport,omitempty"`
	Outcome   string `json:"outcome,omitempty"`
}

// Sightings are what a tail shows at once.
type Sightings struct {
	Messages []Seen `json:"messages,omitempty"`
	// LeftOut is how many came after Messages that were too fast to show.
	LeftOut int64 `json:"leftOut,omitempty"`
}

// Seen is a message that has ended. Of one whose sender is unauthenticated it shows neither values nor ids.
type Seen struct {
	Time       time.Time `json:"receivedTime"`
	Tenant     string    `json:"tenant"` // "" for unauthenticated senders and unknown tenants
	Named      string    `json:"namedTenant,omitempty"`
	Transport  string    `json:"transport"`
	Source     string    `json:"source,omitempty"`
	Device     string    `json:"device,omitempty"` // as named
	Connection bool      `json:"connection,omitempty"`
	Outcome    string    `json:"outcome"`
	Reason     string    `json:"reason,omitempty"`
	Why        string    `json:"why,omitempty"`
	EventType  string    `json:"eventType,omitempty"`
	Values     []string  `json:"values,omitempty"` // the first few
	Readings   int       `json:"readings"`
	// Occurred is the time that the event gives itself.
	Occurred *time.Time `json:"occurredTime,omitempty"`
	// Stored is the time under which it is kept, where that is another one: an event time may not lie far ahead.
	Stored *time.Time `json:"storedTime,omitempty"`
	AltID  string     `json:"altId,omitempty"`
	// Firings are the first few rules that it made fire.
	Firings []SeenFiring `json:"firings,omitempty"`
	// OutOfRange is how many of its stored readings were outside their range, Marked the first few of them.
	OutOfRange int          `json:"outOfRange,omitempty"`
	Marked     []SeenMarked `json:"marked,omitempty"`
	Bytes      int          `json:"bytes"`
	Offset     uint64       `json:"offset,omitempty"` // in the log; 0: it did not enter it
	DelayMS    float64      `json:"delayMs"`          // from the receipt to the end
}

// SeenFiring is a rule that a message made fire.
type SeenFiring struct {
	Rule     string `json:"rule"`
	Edge     string `json:"edge"` // raised or resolved
	Severity string `json:"severity,omitempty"`
}

// SeenMarked is a stored reading that was outside its range.
type SeenMarked struct {
	Metric string  `json:"name"`
	Mark   string  `json:"mark"`   // FLAGGED or CLAMPED
	Stored float64 `json:"stored"` // the bound, for CLAMPED
}

// tailPace is how often a tail shows what has gathered: with the buffer of a watcher it bounds what a tail may cost.
const tailPace = 50 * time.Millisecond

var outcomes = map[string]store.Outcome{"stored": store.OutcomeStored, "duplicate": store.OutcomeDuplicate, "dead letter": store.OutcomeDeadLetter,
	"dead-letter": store.OutcomeDeadLetter, "refused": store.OutcomeRefused, "dropped": store.OutcomeDropped}

// tail opens a look at messages as they end.
func (o *Operator) tail(_ context.Context, q TailQuery) (source[*Sightings], error) {
	outcome, known := outcomes[q.Outcome]
	if q.Outcome != "" && !known {
		return nil, model.Invalid("outcome", "%q is none of stored, duplicate, dead-letter, refused, dropped", q.Outcome)
	}
	if q.Tenant != nil && *q.Tenant != "" && !o.deps.Govern.Known(*q.Tenant) {
		return nil, o.deps.noTenant(*q.Tenant)
	}
	w, err := o.deps.Tap.Watch(ingest.Watch{Tenant: q.Tenant, Device: q.Device, Unnamed: q.Unnamed, Transport: q.Transport, Outcome: outcome})
	if err != nil {
		return nil, err
	}
	return &tailSource{w: w, maxSkew: o.deps.Effective().Ingest.MaxFutureSkew}, nil
}

// tailSource paces a watcher.
type tailSource struct {
	w       *ingest.Watcher
	maxSkew time.Duration
	began   bool
}

// Close implements source.
func (s *tailSource) Close() { s.w.Close() }

// Next implements source: what has gathered, at most every tailPace.
func (s *tailSource) Next(ctx context.Context) (*Sightings, error) {
	if s.began {
		select {
		case <-time.After(tailPace):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.began = true
	seen, left, err := s.w.Next(ctx)
	if err != nil {
		return nil, err
	}
	t := &Sightings{Messages: make([]Seen, len(seen)), LeftOut: left}
	for i := range seen {
		t.Messages[i] = seenOf(&seen[i], s.maxSkew)
	}
	return t, nil
}

func seenOf(s *ingest.Sighting, maxSkew time.Duration) Seen {
	m := Seen{Time: s.Received.Time(), Tenant: s.Tenant, Transport: s.Transport, Source: s.Source, Device: s.Device, Connection: s.Connection,
		Outcome: outcomeName(s.Outcome), Reason: string(s.Reason), Why: s.Why, EventType: s.Type, Values: s.Values, Readings: s.Readings, AltID: s.AltID,
		Bytes: int(s.Bytes), Offset: uint64(s.Offset), DelayMS: float64((s.Ended-s.Received)/1000) / 1000}
	if s.Named != s.Tenant {
		m.Named = s.Named
	}
	for _, f := range s.Fired {
		m.Firings = append(m.Firings, SeenFiring{f.Rule, f.Signal.String(), f.Severity})
	}
	m.OutOfRange = s.OutOfRange
	for _, r := range s.Marked {
		m.Marked = append(m.Marked, SeenMarked{r.Metric, r.Mark.String(), r.Stored})
	}
	if s.Occurred != 0 {
		m.Occurred = new(s.Occurred.Time())
	}
	if last := s.Received + model.Nanos(maxSkew); s.Outcome == store.OutcomeStored && s.Occurred > last {
		m.Stored = new(last.Time())
	}
	return m
}
