package ingest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"weir/ingest/view"
	"weir/model"
	"weir/store"
)

// resolver finds out what a record means at its offset, before any projection takes it in: it only asks them. Whatever a
// message is, it gets exactly one outcome.
type resolver struct {
	maxAge, maxFutureSkew time.Duration
	results               *results
	metrics               *applyMetrics
	occurred              []model.Micros // memory for those of one message
}

// message decides the outcome of a message.
func (s *resolver) message(ctx context.Context, e *Event) error {
	// Repeats first: they must have no effect whatever else holds.
	if s.results.seen.isRepeat(e.Record) || s.results.seen.isRelayed(e.Record) {
		e.Outcome, e.repeat = store.OutcomeDuplicate, true
		return nil
	}
	// Everything below may only improve on this.
	e.Outcome = store.OutcomeDeadLetter
	if e.Reason, e.Why = s.check(e); e.Reason != ReasonNone {
		return nil
	}
	if e.Record.Kind == model.KindCommandResponse {
		e.Outcome, e.stored = store.OutcomeStored, true
		return s.results.metadata.number(ctx, e)
	}
	if e.causes() {
		if e.Record.Message != nil && e.Record.Message.AltID != "" && s.results.seen.knows(e) {
			e.Outcome = store.OutcomeDuplicate
			return nil
		}
		e.causing = true
		return nil
	}
	// Keep what was sent: a dead letter bears the names that the device sent.
	sent := e.Record
	e.rename()
	// Ask for the series of all readings at once: none is opened for a message that is refused.
	fits, err := s.results.readings.admits(ctx, e.TenantID, e.DeviceID, e.Record.Message)
	if err == nil && !fits && e.Record.Partial {
		fits, err = s.part(ctx, e, sent.Message.Measurements)
	}
	switch {
	case err != nil:
		return err
	case !fits:
		e.Record = sent // a dead letter has the names that were sent
		e.Reason = ReasonSeriesLimit
		e.Why = "the device or the tenant has as many series as it may have (limits.series_per_device, limits.series_per_tenant)"
	case e.Record.Message.AltID != "" && s.results.seen.knows(e):
		e.Record, e.Outcome = sent, store.OutcomeDuplicate
	default:
		e.Outcome, e.stored = store.OutcomeStored, true
		if e.outside {
			e.markOutOfRange()
		}
		return s.results.metadata.number(ctx, e)
	}
	return nil
}

// presence determines what a presence record changes. A removed device has no state.
func (s *resolver) presence(ctx context.Context, e *Event) (err error) {
	what := s.results.metadata.view.Resolve(e.Record.Tenant, e.Record.Device)
	if what.Device.ID == 0 || e.Record.DeviceID != 0 && e.Record.DeviceID != what.Device.ID {
		return nil
	}
	s.referTo(e, what)
	e.Transition, err = s.results.presence.transition(ctx, e)
	return err
}

// firing resolves an edge of a rule that a site has judged. It reports false where it is known, or the device does not exist any more.
func (s *resolver) firing(e *Event) bool {
	if s.results.seen.isRelayed(e.Record) {
		s.metrics.firings.WithLabelValues("duplicate").Inc()
		return false
	}
	what := s.results.metadata.view.Resolve(e.Record.Tenant, e.Record.Device)
	if what.Device.ID == 0 || e.Record.DeviceID != what.Device.ID {
		s.metrics.firings.WithLabelValues("unknown-device").Inc()
		return false
	}
	s.referTo(e, what)
	s.metrics.firings.WithLabelValues("taken").Inc()
	return true
}

// referTo notes what the record's names mean.
func (s *resolver) referTo(e *Event, what view.Resolved) {
	e.TenantID = what.Tenant.ID
	e.DeviceID = what.Device.ID
	e.DeviceType = what.Device.Type
	e.ProfileID, e.profile, e.anchors = what.ProfileID, what.Profile, s.results.metadata.stamp(what)
}

// check determines whether a message can be kept, in the order that reveals least to an unauthenticated sender.
func (s *resolver) check(e *Event) (Reason, string) {
	r := e.Record
	// Nothing about devices is revealed before the credential has counted.
	what := s.results.metadata.view.Resolve(r.Tenant, r.Device)
	switch {
	case what.Tenant == nil:
		return ReasonUnknownTenant, fmt.Sprintf("the tenant %s does not exist or is disabled", r.Tenant)
	case r.Verdict != model.VerdictOK:
		return ReasonBadCredential, verdictText(r.Verdict)
	case r.Kind == model.KindRaw:
		return reasonOfRaw(r.Why)
	case what.Device.ID == 0:
		return ReasonUnknownDevice, "the device does not exist"
	case r.DeviceID != 0 && r.DeviceID != what.Device.ID:
		return ReasonBadCredential, "the credential belongs to a removed device of that name"
	}
	s.referTo(e, what)
	if r.Kind == model.KindDeviceReport {
		return ReasonNone, ""
	}
	if !s.times(e) {
		s.metrics.late.Inc()
		return ReasonBadTime, fmt.Sprintf("an event time lies more than %d days before the receipt", int(s.maxAge.Hours()/24))
	}
	if r.Message == nil {
		return ReasonNone, ""
	}
	if why := e.checkValues(); why != "" {
		return ReasonInvalidValue, why
	}
	return ReasonNone, ""
}

// causes reports whether the message changes the registry: its outcome is that of the change (Applier.cause).
func (e *Event) causes() bool {
	return e.Record.Kind == model.KindDeviceReport || e.Record.Message != nil && e.Record.Message.Type == model.NewRelationship
}

func verdictText(v model.Verdict) string {
	switch v {
	case model.VerdictMissing:
		return "no credential was presented"
	case model.VerdictOtherDevice:
		return "the event names another device than its credential or topic"
	case model.VerdictNotSupported:
		return "the credential cannot be proven in a body"
	}
	return "the credential is wrong, disabled or expired"
}

// times finds the event times of a message and of its entries, once (a new relationship and an answer to a command count as one); ok is false when one lies too far back.
func (s *resolver) times(e *Event) bool {
	r, m := e.Record, e.Record.Message
	s.occurred = s.occurred[:0]
	if m == nil { // of an answer to a command
		ok := s.time(r, model.EntryTime{})
		e.Occurred = s.occurred
		return ok
	}
	// The time of the message itself must be good even where every entry has its own.
	_, ok := s.at(r, model.EntryTime{})
	for i := range m.Measurements {
		ok = s.time(r, m.Measurements[i].Time) && ok
	}
	for i := range m.Locations {
		ok = s.time(r, m.Locations[i].Time) && ok
	}
	for i := range m.Alerts {
		ok = s.time(r, m.Alerts[i].Time) && ok
	}
	if m.Relationship != nil {
		s.time(r, model.EntryTime{})
	}
	e.Occurred = s.occurred
	return ok
}

// time adds the event time of an entry.
func (s *resolver) time(r *model.Record, own model.EntryTime) bool {
	at, ok := s.at(r, own)
	s.occurred = append(s.occurred, at)
	return ok
}

// at is the time that an entry is kept under: its own, the event's or the receive time; never later than the skew allows.
// ok is false when it lies too far back. Where the clock was implausible at the receipt, a time that was sent may be better
// than ours: it is not limited, and what lies too far back is judged by the earlier of the two clocks.
func (s *resolver) at(r *model.Record, own model.EntryTime) (_ model.Micros, ok bool) {
	stamp := &r.Received
	// The time of receipt, unless the sender gives a better one.
	t, earliest := stamp.Wall, stamp.Wall
	if stamp.Shown != 0 {
		t = stamp.Shown
		earliest = min(stamp.Shown, stamp.Wall)
	}
	switch {
	case own.Has:
		t = own.At
	case r.Message != nil && r.Message.HasOccurred:
		t = r.Message.Occurred
	}
	switch {
	case stamp.Clock == model.ClockGuessed:
		return t.Micros(), true
	case t < earliest-model.Nanos(s.maxAge):
		return 0, false
	case stamp.Clock == model.ClockBehind:
		return t.Micros(), true
	}
	return min(t, stamp.Wall+model.Nanos(s.maxFutureSkew)).Micros(), true
}

// maxWhole is where whole numbers as 64-bit floats begin to stand for their neighbours, too.
const maxWhole = 1 << 53

// checkValues checks the values of declared metrics against the active profile version; one that is refused refuses the event. It
// notes whether one is outside its range that is not refused.
func (e *Event) checkValues() string {
	if e.profile == nil {
		return ""
	}
	m := e.Record.Message
	for i := range m.Measurements {
		v := &m.Measurements[i]
		d := e.profile.Metrics[v.Metric]
		if d == nil {
			continue
		}
		// Note values outside the range that the profile keeps, for the mark.
		_, outside := d.Outside(v.Value)
		e.outside = e.outside || outside
		switch {
		case d.DataType == "STRING":
			return fmt.Sprintf("metric %s is declared as text and cannot hold a measurement", v.Metric)
		case d.DataType == "INT" && v.Value != math.Trunc(v.Value):
			return fmt.Sprintf("metric %s must be a whole number", v.Metric)
		case d.DataType == "INT" && math.Abs(v.Value) >= maxWhole:
			return fmt.Sprintf("metric %s is beyond ±9007199254740991: a reading is a 64-bit float, which cannot tell such a number from its neighbours", v.Metric)
		case d.DataType == "BOOLEAN" && v.Value != 0 && v.Value != 1:
			return fmt.Sprintf("metric %s must be 0 or 1", v.Metric)
		case outside && d.OutOfRange == "":
			return fmt.Sprintf("metric %s is outside its declared range", v.Metric)
		case len(d.Enum) > 0 && !inEnum(d.Enum, v.Value):
			return fmt.Sprintf("metric %s is none of its declared values", v.Metric)
		}
	}
	return ""
}

// rename gives the readings that bear a source name the key of their metric, in a copy: the record of the log is shared, and what was sent
// may be judged again by another version.
func (e *Event) rename() {
	if e.profile == nil || !e.profile.Renames {
		return
	}
	copied := false
	for i := range e.Record.Message.Measurements {
		name := e.Record.Message.Measurements[i].Metric
		d := e.profile.Metrics[name]
		if d == nil || d.Key == name {
			continue
		}
		if !copied {
			rec, m := *e.Record, *e.Record.Message
			m.Measurements, rec.Message = slices.Clone(m.Measurements), &m
			e.Record, copied = &rec, true
		}
		e.Record.Message.Measurements[i].Metric = d.Key
	}
}

// markOutOfRange marks the readings of a stored message that are outside their range, in a copy: the record of the log is shared, and a
// dead letter keeps what was sent.
func (e *Event) markOutOfRange() {
	rec, m := *e.Record, *e.Record.Message
	m.Measurements, rec.Message = slices.Clone(m.Measurements), &m
	for i := range m.Measurements {
		v := &m.Measurements[i]
		d := e.profile.Metrics[v.Metric]
		if d == nil {
			continue
		}
		bound, outside := d.Outside(v.Value)
		if !outside {
			continue
		}
		e.OutOfRange++
		if v.Mark = model.Flagged; d.OutOfRange == model.OutOfRangeClamp {
			v.Mark, v.Value = model.Clamped, bound
		}
	}
	e.Record = &rec
}

// inEnum compares as numbers: an enum is written as text, a measurement holds a number.
func inEnum(enum []string, v float64) bool {
	for _, s := range enum {
		if f, err := strconv.ParseFloat(s, 64); err == nil && f == v {
			return true
		}
	}
	return false
}

// part reduces a partial message to the readings that the series limits admit, and notes the others in e. It reports false
// when they admit none. The others keep the names that were sent. The record of the log is shared and stays as it is.
func (s *resolver) part(ctx context.Context, e *Event, sent []model.Reading) (bool, error) {
	all := e.Record.Message.Measurements
	fit, err := s.results.readings.admitted(ctx, e.TenantID, e.DeviceID, all)
	if err != nil || len(fit) == 0 {
		return false, err
	}
	// What does not fit is what fit lacks.
	rest := fit
	for i, r := range all { // fit is in the order of all
		if len(rest) > 0 && rest[0] == r {
			rest = rest[1:]
		} else {
			e.SetAside = append(e.SetAside, sent[i])
		}
	}
	rec, m := *e.Record, *e.Record.Message
	m.Measurements, rec.Message = fit, &m
	e.Record = &rec
	// The entries are fewer now: find their times again.
	s.times(e)
	return true, nil
}
