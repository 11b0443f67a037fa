package eventfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"weir/ingest"
	"weir/model"
	"weir/rules"
	"weir/rules/preview"
)

// Outcome is what a draft would have fired over a file.
type Outcome struct {
	preview.Result
	First, Last model.Micros // receive times
	Devices     int
}

// Bounds are those of a run.
var Bounds = preview.Bounds{Events: MaxEvents, Firings: preview.MaxFirings}

// Fits refuses a draft that asks for what a file of events does not have.
func Fits(c *rules.Compiler, d *preview.Draft) error {
	x := c.Explain(d.Program)
	var lacks []string
	add := func(what string, names []string) {
		if len(names) > 0 {
			lacks = append(lacks, what+" "+strings.Join(names, ", "))
		}
	}
	add("the attributes", x.Attributes)
	add("the anchors", x.Anchors)
	add("all of", x.Entire)
	add("the geofences", x.Fences)
	if d.Scoped {
		lacks = append(lacks, "the members of a group")
	}
	switch x.Kind {
	case rules.Correlation:
		lacks = append(lacks, "the anchors of the devices")
	case rules.Connectivity:
		lacks = append(lacks, "the presence of the devices")
	}
	if len(lacks) > 0 {
		return model.Errorf(model.CodeInvalidInput, "the rule reads %s, which a file of events does not have: preview it on a running instance, or write a rule test", strings.Join(lacks, ", and "))
	}
	return nil
}

// Run runs a draft over the events of a file, as an instance that has no other rule and listens all the time would have. Time goes on to the
// end of the window where that is after the last event; a window without an end ends with it. The error is an *Error for what is wrong with
// the file, that of ctx, or that of reading. Watch, if it is not nil, sees each sample before it is judged.
func Run(ctx context.Context, file io.Reader, c *rules.Compiler, d *preview.Draft, w preview.Window, watch func(*rules.Input)) (*Outcome, error) {
	r := &run{watch: watch, engine: rules.NewEngine(c, nil), devices: map[string]int64{}}
	r.out = preview.Collector{Window: w, Max: Bounds.Firings}
	if w.To == 0 {
		r.out.Window.To = math.MaxInt64
	}
	err := r.read(ctx, NewReader(file), d)
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	if err == nil && r.first != 0 {
		r.settle(c, d, w.To)
	}
	return r.outcome(), nil
}

// settle lets time go on to the end of the window, and until what waits for its lateness is judged: edges after the window do not count.
func (r *run) settle(c *rules.Compiler, d *preview.Draft, to model.Micros) {
	last, lateness := max(r.last, to), c.Limits().Lateness
	if own := d.Program.Definition().Lateness; own != nil {
		lateness = *own
	}
	if to == 0 {
		r.out.Window.To = last
	}
	r.engine.Advance(r.place(last+model.Micros((lateness+time.Second)/time.Microsecond)), r.out.Emit)
	r.last = last
}

// errEnough ends a run at its bounds.
var errEnough = errors.New("enough")

// profile is that of every device of a file.
var profile = rules.ProfileKey{Tenant: 1, Profile: 1}

// begin is the listening time at the first event: none is 0, which says that a key waits for nothing.
const begin = rules.Listening(time.Hour)

type run struct {
	watch       func(*rules.Input)
	engine      *rules.Engine
	out         preview.Collector
	devices     map[string]int64
	offset      model.Offset
	first, last model.Micros
	occurred    []model.Micros
}

func (r *run) read(ctx context.Context, events *Reader, d *preview.Draft) error {
	for n := 1; ; n++ {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if r.first == 0 {
			r.first = e.Received
			r.engine.Install(r.place(e.Received), rules.ProfileRef{ProfileKey: profile, TenantToken: "file", Token: "file", Version: 1},
				[]model.RuleView{{Token: "preview", Definition: d.Definition}}, r.out.Emit)
		}
		if err := r.judge(e); err != nil {
			return err
		}
		switch {
		case r.out.Full:
			r.out.Result.Degrade("firings cap: the draft fires more than %d times, up to line %d", Bounds.Firings, e.Line)
			return errEnough
		case r.engine.Worked().InScope >= Bounds.Events:
			r.out.Result.Degrade("read cap: %d events in scope were judged, up to line %d", Bounds.Events, e.Line)
			return errEnough
		}
	}
}

// place is the position of what is received at a time.
func (r *run) place(received model.Micros) rules.Position {
	r.offset++
	r.last = received
	return rules.Position{Epoch: 1, Offset: r.offset, Received: received.Nanos(), Listening: begin + rules.Listening(received-r.first)*1000}
}

// judge lets the rule judge an event, as the applier does.
func (r *run) judge(e *Event) error {
	at := r.place(e.Received)
	r.engine.Advance(at, r.out.Emit)
	id := r.devices[e.Device]
	if id == 0 {
		if len(r.devices) == MaxDevices {
			return &Error{e.Line, fmt.Sprintf("there are more than %d devices", MaxDevices)}
		}
		id = int64(len(r.devices) + 1)
		r.devices[e.Device] = id
		r.engine.Enroll(at, profile, rules.Device{ID: id, Type: 1, Token: e.Device}, r.out.Emit)
	}
	in := rules.Input{Position: at, Profile: profile, Device: rules.Device{ID: id, Type: 1, Token: e.Device}}
	apply := func(kind rules.InputKind, index int, occurred model.Micros) {
		in.Kind, in.Index, in.Occurred = kind, uint32(index), occurred
		r.out.Result.Scanned++
		if r.watch != nil {
			r.watch(&in)
		}
		r.engine.Apply(&in, r.out.Emit)
	}
	m := &e.Message
	r.occurred = r.occurred[:0]
	for i := range m.Measurements {
		t, err := e.occurred(m.Measurements[i].Time)
		if err != nil {
			return err
		}
		r.occurred = append(r.occurred, t)
	}
	for from := 0; from < len(m.Measurements); {
		to := ingest.SampleEnd(m.Measurements, r.occurred, from)
		in.Readings = m.Measurements[from:to]
		apply(rules.Measurement, from, r.occurred[from])
		from = to
	}
	in.Readings = nil
	for i := range m.Locations {
		t, err := e.occurred(m.Locations[i].Time)
		if err != nil {
			return err
		}
		in.Where = &m.Locations[i]
		apply(rules.Location, i, t)
	}
	in.Where = nil
	for i := range m.Alerts {
		t, err := e.occurred(m.Alerts[i].Time)
		if err != nil {
			return err
		}
		if i == 0 { // a message with alerts is one sign of life
			apply(rules.Bare, 0, t)
		}
	}
	return nil
}

func (r *run) outcome() *Outcome {
	r.out.Sort()
	out := &Outcome{Result: r.out.Result, First: r.first, Last: r.last, Devices: len(r.devices)}
	out.Events = r.engine.Worked().InScope
	for _, h := range r.engine.Health(profile) {
		out.EvalErrors, out.Late = h.EvalErrors, h.LateSamples
		if h.RefusedKeys > 0 {
			out.Degrade("key budget: %d samples were not judged", h.RefusedKeys)
		}
	}
	if out.EvalErrors > 0 {
		out.Degrade("evaluation errors: %d samples could not be judged", out.EvalErrors)
	}
	if out.Late > 0 {
		out.Degrade("late readings set aside: %d", out.Late)
	}
	return out
}
