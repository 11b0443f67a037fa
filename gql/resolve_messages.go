package gql

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"weir/gql/engine"
	"weir/ingest"
	"weir/internal/hub"
	"weir/model"
	"weir/store"
)

// MessageWatcher opens a look at messages as their outcomes become known; *ingest.Tap implements it.
type MessageWatcher interface {
	Watch(w ingest.Watch) (*ingest.Watcher, error)
}

// MessageDeps are the collaborators of messageStream.
type MessageDeps struct {
	Tap MessageWatcher
	// MaxSkew is how far ahead of its receipt an event is stored at most.
	MaxSkew func() time.Duration
}

// messagePace is how often a subscriber is sent what has gathered: with the queue of a watcher it bounds what one costs.
const messagePace = 50 * time.Millisecond

// messageOutcomes are the outcomes by their names in the API.
var messageOutcomes = map[string]store.Outcome{"stored": store.OutcomeStored, "duplicate": store.OutcomeDuplicate, "dead-letter": store.OutcomeDeadLetter,
	"refused": store.OutcomeRefused, "dropped": store.OutcomeDropped}

func registerMessages(a *Area, d MessageDeps) {
	a.Types(map[string]any{"MessageBatch": messageBatch{}, "SeenMessage": seenMessage{}, "SeenFiring": seenFiring{}})
	a.Subscription("messageStream", Requires(model.EventRead), d.stream)
}

type messageBatch struct {
	Messages []seenMessage `gql:"messages"`
	LeftOut  int64         `gql:"leftOut"`
}

type seenMessage struct {
	Received   model.Micros  `gql:"receivedTime"`
	Transport  string        `gql:"transport"`
	Source     *string       `gql:"source"`
	Device     *string       `gql:"deviceToken"`
	Connection bool          `gql:"connection"`
	Outcome    string        `gql:"outcome"`
	Reason     *string       `gql:"reason"`
	Detail     *string       `gql:"detail"`
	EventType  *string       `gql:"eventType"`
	Values     []string      `gql:"values"`
	Readings   int           `gql:"readings"`
	Occurred   *model.Micros `gql:"occurredTime"`
	Stored     *model.Micros `gql:"storedTime"`
	AltID      *string       `gql:"altId"`
	Firings    []seenFiring  `gql:"firings"`
	OutOfRange int           `gql:"outOfRange"`
	Bytes      int           `gql:"bytes"`
	Offset     *string       `gql:"offset"`
	DelayMS    float64       `gql:"delayMs"`
}

type seenFiring struct {
	Rule     string  `gql:"ruleToken"`
	Edge     string  `gql:"edge"`
	Severity *string `gql:"severity"`
}

func (d MessageDeps) stream(ctx context.Context, args engine.Args) (engine.Stream, error) {
	by := PrincipalFrom(ctx)
	outcome, known := messageOutcomes[args.String("outcome")]
	if name := args.String("outcome"); name != "" && !known {
		return nil, model.Invalid("outcome", "%.40q is none of stored, duplicate, dead-letter, refused, dropped", name)
	}
	w, err := d.Tap.Watch(ingest.Watch{Tenant: new(by.Tenant), Device: args.String("deviceToken"), Unnamed: args.Bool("unnamed"),
		Transport: args.String("transport"), Outcome: outcome})
	if err != nil {
		return nil, err
	}
	return &messageStream{watcher: w, maxSkew: d.MaxSkew(), locations: by.Has(model.LocationRead)}, nil
}

// messageStream paces a watcher.
type messageStream struct {
	watcher   *ingest.Watcher
	maxSkew   time.Duration
	locations bool // the subscriber may see where devices are
	began     bool
}

// Close implements engine.Stream.
func (s *messageStream) Close() { s.watcher.Close() }

// Next implements engine.Stream: what has gathered, at most every messagePace.
func (s *messageStream) Next(ctx context.Context) (any, error) {
	if s.began {
		select {
		case <-time.After(messagePace):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.began = true
	seen, left, err := s.watcher.Next(ctx)
	if errors.Is(err, ingest.ErrWatchEnded) {
		return nil, hub.ErrClosed
	}
	if err != nil {
		return nil, err
	}
	batch := messageBatch{Messages: make([]seenMessage, len(seen)), LeftOut: left}
	for i := range seen {
		batch.Messages[i] = s.show(&seen[i])
	}
	return batch, nil
}

// show is what a subscriber sees of a message.
func (s *messageStream) show(m *ingest.Sighting) seenMessage {
	v := seenMessage{Received: m.Received.Micros(), Transport: m.Transport, Source: textOrNil(m.Source), Device: textOrNil(m.Device), Connection: m.Connection,
		Outcome: strings.ReplaceAll(string(m.Outcome), " ", "-"), Reason: textOrNil(string(m.Reason)), Detail: textOrNil(m.Why), EventType: textOrNil(m.Type),
		Values: m.Values, Readings: m.Readings, AltID: textOrNil(m.AltID), OutOfRange: m.OutOfRange, Bytes: int(m.Bytes),
		DelayMS: float64((m.Ended-m.Received)/1000) / 1000}
	if m.Type == model.LocationEvent.String() && !s.locations {
		v.Values = nil
	}
	for _, f := range m.Fired {
		v.Firings = append(v.Firings, seenFiring{f.Rule, f.Signal.String(), textOrNil(f.Severity)})
	}
	if m.Offset != 0 {
		v.Offset = new(strconv.FormatUint(uint64(m.Offset), 10))
	}
	if m.Occurred != 0 {
		v.Occurred = new(m.Occurred.Micros())
	}
	if last := m.Received + model.Nanos(s.maxSkew); m.Outcome == store.OutcomeStored && m.Occurred > last {
		v.Stored = new(last.Micros())
	}
	return v
}
