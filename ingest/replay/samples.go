package replay

import (
	"weir/ingest"
	"weir/model"
	"weir/rules"
	"weir/series"
	"weir/store"
)

// record is what is stored of a record of the log: readings, or events that are rows.
type record struct {
	offset   model.Offset
	received model.Micros
	readings []series.Stored
	events   []store.EventRow
}

// samples reads the records of a stretch of the log that devices of the profile sent.
type samples struct {
	r        *run
	reel     *series.Reel
	readings []series.Stored // that were read and are still to come
	events   []store.EventRow
	at       store.EventRow // the last event that was read
	upto     model.Offset
	ended    bool // no more events
	rec      record
}

// eventBatch is how many events one statement reads.
const eventBatch = 512

func newSamples(r *run, after, upto model.Offset) (*samples, error) {
	reel, err := r.past.Reel(after, upto, func(device int64) bool { return r.registry.devices[device] })
	if err != nil {
		return nil, err
	}
	return &samples{r: r, reel: reel, at: store.EventRow{Offset: after, Index: 1<<32 - 1}, upto: upto}, nil
}

// next returns the next record, nil when there is none. It is valid until the next call.
func (s *samples) next() (*record, error) {
	if len(s.readings) == 0 {
		part, err := s.reel.Next()
		if err != nil {
			return nil, err
		}
		s.readings = part
		s.r.scanned += int64(len(part))
	}
	if err := s.fill(); err != nil {
		return nil, err
	}
	switch {
	case len(s.readings) > 0 && (len(s.events) == 0 || s.readings[0].Offset < s.events[0].Offset):
		n := 1
		for n < len(s.readings) && s.readings[n].Offset == s.readings[0].Offset {
			n++
		}
		s.rec = record{offset: s.readings[0].Offset, received: s.readings[0].Received, readings: s.readings[:n]}
		s.readings = s.readings[n:]
	case len(s.events) > 0:
		n := 1
		for n < len(s.events) && s.events[n].Offset == s.events[0].Offset {
			n++
		}
		s.rec = record{offset: s.events[0].Offset, received: s.events[0].Received, events: s.events[:n]}
		s.events = s.events[n:]
	default:
		return nil, nil
	}
	return &s.rec, nil
}

// fill reads events until a whole record of them is there.
func (s *samples) fill() error {
	for !s.ended && (len(s.events) == 0 || s.events[0].Offset == s.events[len(s.events)-1].Offset) {
		more, err := store.EventsInOrder(s.r.past.Tx(), s.r.q.TenantID, s.at.Offset, int64(s.at.Index), s.upto, eventBatch)
		if err != nil {
			return err
		}
		if len(more) == 0 {
			s.ended = true
			return nil
		}
		s.at = more[len(more)-1]
		s.r.scanned += int64(len(more))
		for _, e := range more {
			if s.r.registry.devices[e.Device] {
				s.events = append(s.events, e)
			}
		}
		if err := s.r.ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// sender is a device as records of it are resolved.
type sender struct {
	moves   uint64 // of the registry, when it was resolved
	device  rules.Device
	anchors []model.Anchor
	judged  bool // it has the profile
}

// resolve returns what a device is as of now.
func (r *run) resolve(id int64, token string) *sender {
	s := r.senders[id]
	if s == nil {
		s = &sender{}
		r.senders[id] = s
	} else if s.moves == r.registry.moves {
		return s
	}
	if now, known := r.registry.tokens[id]; known {
		token = now
	}
	what := r.registry.view.Resolve(r.q.Tenant, token)
	*s = sender{moves: r.registry.moves, device: rules.Device{ID: id, Type: what.Device.Type, Token: token}, judged: what.Device.ID == id && what.ProfileID == r.q.Profile}
	if !s.judged {
		return s
	}
	if stamp := r.registry.view.Stamp(what.Tenant.ID, id); stamp != nil {
		s.anchors = stamp.Anchors
	}
	return s
}

// judge lets the rule judge a record, as the applier does.
func (r *run) judge(at rules.Position, rec *record) {
	if len(rec.readings) > 0 {
		o := &r.reel.Origins[rec.readings[0].Origin]
		if r.prepare(at, o.Device, o.Token, o.Source, rules.Measurement) {
			r.measurements(rec.readings)
		}
		return
	}
	for i := range rec.events {
		e := &rec.events[i]
		switch {
		case e.Type == model.LocationEvent && r.prepare(at, e.Device, e.DeviceToken, e.Source, rules.Location):
			r.input.Where = &e.Location
		case e.Type == model.AlertEvent && e.Index == 0 && r.prepare(at, e.Device, e.DeviceToken, e.Source, rules.Bare):
		case e.Type == model.StateChange && r.prepare(at, e.Device, e.DeviceToken, e.Source, rules.Transition):
			r.input.Presence, r.input.Reason = e.State.State, e.State.Reason
		default:
			continue
		}
		r.apply(e.Index, e.Occurred)
	}
}

// prepare prepares the input for a record, and reports whether its device has the profile.
func (r *run) prepare(at rules.Position, device int64, token, source string, kind rules.InputKind) bool {
	s := r.resolve(device, token)
	if !s.judged {
		return false
	}
	r.input = rules.Input{Position: at, Kind: kind, Device: s.device, Link: source, Profile: r.key, Facts: r.registry.view, Anchors: s.anchors}
	return true
}

// measurements judges the samples of a record.
func (r *run) measurements(stored []series.Stored) {
	r.readings, r.occurred = r.readings[:0], r.occurred[:0]
	for i := range stored {
		r.readings = append(r.readings, model.Reading{Metric: r.reel.Origins[stored[i].Origin].Metric, Value: stored[i].Value})
		r.occurred = append(r.occurred, stored[i].Occurred)
	}
	for from := 0; from < len(stored); {
		to := ingest.SampleEnd(r.readings, r.occurred, from)
		r.input.Readings = r.readings[from:to]
		r.apply(stored[from].Index, stored[from].Occurred)
		from = to
	}
}

func (r *run) apply(index uint32, occurred model.Micros) {
	r.input.Index, r.input.Occurred = index, occurred
	if r.deps.Watch != nil {
		r.deps.Watch(&r.input)
	}
	r.engine.Apply(&r.input, r.out.Emit)
}
