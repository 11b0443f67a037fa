package gql

import (
	"context"
	"math"
	"strconv"

	"weir/gql/engine"
	"weir/ingest"
	"weir/ingest/trace"
	"weir/model"
	"weir/store"
)

// FoundMessage is a message that the log still holds, and what became of it.
type FoundMessage struct {
	trace.Traced
	Record *model.Record
	Edges  []model.Edge // of its device, that it caused
}

// MessageFinder finds the message of a tenant at an offset of the log, nil where the log does not hold one.
type MessageFinder func(ctx context.Context, tenant string, at model.Offset) (*FoundMessage, error)

type messageDetail struct {
	Offset     string           `gql:"offset"`
	Received   model.Micros     `gql:"receivedTime"`
	Transport  string           `gql:"transport"`
	Source     string           `gql:"source"`
	Device     *string          `gql:"deviceToken"`
	Outcome    string           `gql:"outcome"`
	Reason     *string          `gql:"reason"`
	Detail     *string          `gql:"detail"`
	EventType  *string          `gql:"eventType"`
	Occurred   *model.Micros    `gql:"occurredTime"`
	AltID      *string          `gql:"altId"`
	Bytes      int64            `gql:"bytes"`
	Client     *string          `gql:"clientId"`
	Relayed    *string          `gql:"relayedBy"`
	Kept       int              `gql:"readings"`
	Values     []messageReading `gql:"values"`
	Withheld   bool             `gql:"withheld"`
	Event      *string          `gql:"event"`
	Unverified bool             `gql:"unauthenticated"`
	Steps      []messageStep    `gql:"steps"`
	Version    *int             `gql:"profileVersion"`
	Edges      []messageEdge    `gql:"edges"`
	InLog      bool             `gql:"inLog"`
}

// messageStep is where a message was, and when.
type messageStep struct {
	Name string       `gql:"name"`
	At   model.Micros `gql:"time"`
}

// messageEdge is an edge that a message caused.
type messageEdge struct {
	Rule     string       `gql:"ruleToken"`
	Profile  string       `gql:"profileToken"`
	Version  int          `gql:"profileVersion"`
	Edge     string       `gql:"edge"`
	Occurred model.Micros `gql:"occurredTime"`
	Severity *string      `gql:"severity"`
	Value    *float64     `gql:"value"`
}

type messageReading struct {
	Name     string        `gql:"name"`
	Value    string        `gql:"value"`
	Occurred *model.Micros `gql:"occurredTime"`
}

// registerMessage registers message. It shares the places of traces, since it reads the log as they do.
func registerMessage(a *Area, find MessageFinder, running chan struct{}) {
	a.Types(map[string]any{"MessageDetail": messageDetail{}, "MessageReading": messageReading{}, "MessageStep": messageStep{}, "MessageEdge": messageEdge{}})
	a.Query("message", Requires(model.EventRead), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		at, err := strconv.ParseUint(args.String("offset"), 10, 64)
		if err != nil || at == 0 {
			return nil, model.Invalid("offset", "%.40q is no offset of the log", args.String("offset"))
		}
		leave, err := enterTrace(running)
		if err != nil {
			return nil, err
		}
		defer leave()
		if find == nil {
			return nil, model.Errorf(model.CodeUnavailable, "unavailable: no instance runs")
		}
		by := PrincipalFrom(ctx)
		found, err := find(ctx, by.Tenant, model.Offset(at))
		if err != nil || found == nil {
			return nil, err
		}
		return showMessage(found, by.Has(model.LocationRead)), nil
	})
}

// showMessage is what a caller sees of a message. Of one whose sender is not authenticated there are neither values nor ids.
func showMessage(f *FoundMessage, locations bool) messageDetail {
	r := f.Record
	v := messageDetail{Offset: strconv.FormatUint(uint64(f.Offset), 10), Received: r.Received.Wall.Micros(), Transport: r.Transport, Source: r.Source, Device: textOrNil(r.Device),
		Outcome: f.Outcome, Reason: textOrNil(f.Reason), Detail: textOrNil(f.Text), Bytes: int64(r.Bytes), Kept: f.Readings, Values: []messageReading{}, Unverified: r.Verdict != model.VerdictOK, Steps: []messageStep{{"received", r.Received.Wall.Micros()}}, Edges: []messageEdge{}, InLog: f.InLog}
	if f.Outcome == string(store.OutcomeStored) {
		v.Reason, v.Detail = nil, nil
	}
	m := r.Message
	if v.Unverified {
		return v
	}
	v.judged(f.Edges)
	v.Client = textOrNil(r.ClientID)
	if r.Relay != nil {
		v.Relayed = &r.Relay.Link
	}
	if m == nil {
		return v
	}
	v.EventType, v.AltID = textOrNil(m.Type.String()), textOrNil(m.AltID)
	if m.HasOccurred {
		v.Occurred = new(m.Occurred.Micros())
		v.Steps = append([]messageStep{{"taken", *v.Occurred}}, v.Steps...)
	}
	if m.Type == model.LocationEvent && !locations {
		v.Withheld = true
		return v
	}
	v.Event, v.Values = textOrNil(trace.Event(m)), valuesOf(m)
	return v
}

// judged enters the edges that a message caused, and the version of the profile by whose rules it was judged: that of the edges.
func (v *messageDetail) judged(edges []model.Edge) {
	for i := range edges {
		e := &edges[i]
		shown := messageEdge{Rule: e.Rule, Profile: e.Profile, Version: e.Version, Edge: e.Signal.String(), Occurred: e.Occurred, Severity: textOrNil(e.Severity)}
		if e.HasValue && e.Signal == model.Raised {
			shown.Value = &e.Value
		}
		v.Edges, v.Version = append(v.Edges, shown), &e.Version
	}
}

// valuesOf are the readings of a message as text.
func valuesOf(m *model.Message) []messageReading {
	out := []messageReading{}
	add := func(name, value string, at model.EntryTime) {
		r := messageReading{Name: name, Value: value}
		if at.Has {
			r.Occurred = new(at.At.Micros())
		}
		out = append(out, r)
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	for _, v := range m.Measurements {
		add(v.Metric, number(v.Value), v.Time)
	}
	for _, l := range m.Locations {
		at := number(l.Latitude) + ", " + number(l.Longitude)
		if !math.IsNaN(l.Elevation) {
			at += ", " + number(l.Elevation) + " m"
		}
		add("location", at, l.Time)
	}
	for _, a := range m.Alerts {
		add(a.Type, "level "+strconv.Itoa(int(a.Level))+" "+a.Message, a.Time)
	}
	if r := m.Relationship; r != nil {
		add(r.Type, r.TargetType+" "+r.Target, model.EntryTime{})
	}
	return out
}

// TestSender sends an event of a device through the intake and waits for its outcome.
type TestSender func(ctx context.Context, by *model.Principal, device string, event []byte) (*ingest.Sighting, error)

// maxTestEvent bounds an event that a user sends.
const maxTestEvent = 64 << 10

// RegisterTestEvents registers sendTestEvent in the device-management area. send is nil where no instance runs.
func RegisterTestEvents(a *Area, d MessageDeps, send TestSender) {
	a.Types(map[string]any{"SeenMessage": seenMessage{}, "SeenFiring": seenFiring{}})
	a.Mutation("sendTestEvent", Requires(model.DeviceWrite), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		event := args.String("event")
		if len(event) > maxTestEvent {
			return nil, model.OverLimit("event", "more than 64 KiB")
		}
		if send == nil {
			return nil, model.Errorf(model.CodeUnavailable, "unavailable: no instance runs")
		}
		by := PrincipalFrom(ctx)
		seen, err := send(ctx, by, args.String("deviceToken"), []byte(event))
		if err != nil {
			return nil, err
		}
		return (&messageStream{maxSkew: d.MaxSkew(), locations: true}).show(seen), nil
	})
}

type ratePoint struct {
	At         model.Micros `gql:"time"`
	Transport  string       `gql:"transport"`
	Received   int64        `gql:"received"`
	Stored     int64        `gql:"stored"`
	Duplicate  int64        `gql:"duplicate"`
	DeadLetter int64        `gql:"deadLetter"`
	Refused    int64        `gql:"refused"`
	Dropped    int64        `gql:"dropped"`
}

// RateReader reads what came in during the last hour; *ingest.Rates implements it.
type RateReader interface {
	Of(tenant string, since model.Nanos) []ingest.RatePoint
}

// The minutes that ingestRates looks back.
const (
	rateMinutes    = 15
	maxRateMinutes = 60
)

func (e *eventResolvers) rates(ctx context.Context, _ any, args engine.Args) (any, error) {
	minutes := rateMinutes
	if args.Has("minutes") && !args.IsNull("minutes") {
		minutes = args.Int("minutes")
	}
	if minutes < 1 || minutes > maxRateMinutes {
		return nil, model.Invalid("minutes", "must lie in 1..%d", maxRateMinutes)
	}
	out := []ratePoint{}
	if e.Rates == nil {
		return out, nil
	}
	n := func(p *ingest.RatePoint, o store.Outcome) int64 { return clampInt(p.Outcomes[o]) }
	since := e.Clock() - model.Nanos(minutes)*60_000_000_000
	for _, p := range e.Rates.Of(PrincipalFrom(ctx).Tenant, since) {
		out = append(out, ratePoint{model.MicrosOf(p.At), p.Transport, clampInt(p.Received), n(&p, store.OutcomeStored), n(&p, store.OutcomeDuplicate), n(&p, store.OutcomeDeadLetter),
			n(&p, store.OutcomeRefused), n(&p, store.OutcomeDropped)})
	}
	return out, nil
}
