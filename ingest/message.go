package ingest

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"weir/internal/faults"
	"weir/model"
	"weir/rules"
	"weir/series"
	"weir/store"
)

// message decides the fate of a message: exactly one heading, whatever it is.
func (a *Applier) message(ctx context.Context, at rules.Position, r *model.Record) error {
	if a.seen.isRepeat(r) {
		a.fate(at, r, store.OutcomeDuplicate, ReasonNone, "")
		return nil
	}
	a.seen.addRepeat(r)
	what, reason, why := a.check(r)
	var kept *model.Record // of a message of which a series limit sets a part aside
	if reason == ReasonNone {
		fits, err := a.admit(ctx, what, r.Message)
		if err == nil && !fits && r.Partial {
			kept, err = a.part(ctx, r, what)
			fits = kept != nil
		}
		if err != nil {
			return err
		}
		if !fits {
			reason, why = ReasonSeriesLimit, "the device or the tenant has as many series as it may have (limits.series_per_device, limits.series_per_tenant)"
		}
	}
	if reason != ReasonNone {
		a.deadLetter(at, r, reason, why)
		return nil
	}
	if r.Message.AltID != "" {
		a.seen.key = appendAltIDKey(a.seen.key[:0], what.tenant.ID, what.device.ID, r.Message)
		if !a.seen.addAltID(a.seen.key, r.Received.Wall) {
			a.fate(at, r, store.OutcomeDuplicate, ReasonNone, "")
			return nil
		}
	}
	if kept != nil {
		a.setAside(at, r, kept)
		r = kept
	}
	if err := a.keep(ctx, at, r, what); err != nil {
		return err
	}
	a.fate(at, r, store.OutcomeStored, ReasonNone, "")
	return nil
}

// fate counts a message under its heading. Who watches sees it once that is committed.
func (a *Applier) fate(at rules.Position, r *model.Record, h store.Outcome, reason Reason, why string) {
	a.fates.add(lineOf(r).key(h, reason), store.LedgerCount{Messages: 1, Readings: int64(r.Readings())})
	if h != store.OutcomeStored {
		a.metrics.fates.WithLabelValues(string(h), string(reason)).Inc()
	} else {
		a.metrics.stored.Inc()
		a.kept.Add(int64(r.Readings()))
	}
	if a.Tap.Busy() {
		a.batch.endings = append(a.batch.endings, ending{rec: r, heading: h, reason: reason, why: why, offset: at.Offset})
	}
}

// check finds out whether a message can be kept, in the order in which a stranger would learn least.
func (a *Applier) check(r *model.Record) (resolved, Reason, string) {
	what, reason := a.view.resolve(r.Tenant, r.Device)
	switch {
	case reason == ReasonUnknownTenant:
		return what, reason, fmt.Sprintf("the tenant %s does not exist or is disabled", r.Tenant)
	case r.Verdict != model.VerdictOK:
		return what, ReasonBadCredential, verdictText(r.Verdict)
	case r.Kind == model.KindRaw:
		return what, ReasonUndecodable, r.Why
	case reason == ReasonUnknownDevice:
		return what, reason, "the device does not exist"
	case r.DeviceID != 0 && r.DeviceID != what.device.ID:
		return what, ReasonBadCredential, "the credential belongs to a device of that name that is gone"
	case r.Message.Type == model.NewRelationship:
		return what, ReasonNoRelationship, "relationships are not kept yet"
	}
	if why := a.fixTimes(r); why != "" {
		a.metrics.late.Inc()
		return what, ReasonBadTime, why
	}
	if why := unfit(what.profile, r.Message); why != "" {
		return what, ReasonInvalidValue, why
	}
	return what, ReasonNone, ""
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

// occurred is the time that an entry is kept under: its own, the event's or the receive time; never later than the
// skew allows. ok is false when it lies too far back. Where the clock could not be believed at the receipt, a time that was
// sent may be better than ours: it is not cut, and what lies too far back is judged by the earlier of the two clocks.
func (a *Applier) occurred(r *model.Record, own model.EntryTime) (_ model.Micros, ok bool) {
	s := &r.Received
	t, earliest := s.Wall, s.Wall
	if s.Shown != 0 {
		t, earliest = s.Shown, min(s.Shown, s.Wall)
	}
	switch {
	case own.Has:
		t = own.At
	case r.Message.HasOccurred:
		t = r.Message.Occurred
	}
	switch {
	case s.Clock == model.ClockGuessed:
		return t.Micros(), true
	case t < earliest-model.Nanos(a.cfg.MaxAge):
		return 0, false
	case s.Clock == model.ClockBehind:
		return t.Micros(), true
	}
	return min(t, s.Wall+model.Nanos(a.cfg.MaxFutureSkew)).Micros(), true
}

// fixTimes says what is wrong with the times of a message.
func (a *Applier) fixTimes(r *model.Record) string {
	check := func(own model.EntryTime) bool {
		_, ok := a.occurred(r, own)
		return ok
	}
	ok := check(model.EntryTime{})
	for i := range r.Message.Measurements {
		ok = ok && check(r.Message.Measurements[i].Time)
	}
	for i := range r.Message.Locations {
		ok = ok && check(r.Message.Locations[i].Time)
	}
	for i := range r.Message.Alerts {
		ok = ok && check(r.Message.Alerts[i].Time)
	}
	if !ok {
		return fmt.Sprintf("an event time lies more than %d days before the receipt", int(a.cfg.MaxAge.Hours()/24))
	}
	return ""
}

// unfit checks the values of declared metrics against the active profile version; one that is refused refuses the event.
func unfit(p *profileView, m *model.Message) string {
	if p == nil {
		return ""
	}
	for i := range m.Measurements {
		v := &m.Measurements[i]
		d := p.metrics[v.Metric]
		if d == nil {
			continue
		}
		switch {
		case d.DataType == "STRING":
			return fmt.Sprintf("metric %s is declared as text and cannot hold a measurement", v.Metric)
		case d.DataType == "INT" && v.Value != math.Trunc(v.Value):
			return fmt.Sprintf("metric %s must be a whole number", v.Metric)
		case d.DataType == "BOOLEAN" && v.Value != 0 && v.Value != 1:
			return fmt.Sprintf("metric %s must be 0 or 1", v.Metric)
		case d.Min != nil && v.Value < *d.Min, d.Max != nil && v.Value > *d.Max:
			return fmt.Sprintf("metric %s is outside its declared range", v.Metric)
		case len(d.Enum) > 0 && !inEnum(d.Enum, v.Value):
			return fmt.Sprintf("metric %s is none of its declared values", v.Metric)
		}
	}
	return ""
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

// admit asks for all series of a message before the first is opened: all or nothing.
func (a *Applier) admit(ctx context.Context, what resolved, m *model.Message) (fits bool, err error) {
	if len(m.Measurements) == 0 {
		return true, nil
	}
	if fits, err = a.Series.Admit(ctx, what.tenant.ID, what.device.ID, m.Measurements); err == nil {
		return fits, nil
	}
	err = a.insist(ctx, "the series of a device cannot be read", func() (err error) {
		fits, err = a.Series.Admit(ctx, what.tenant.ID, what.device.ID, m.Measurements)
		return err
	})
	return fits, err
}

// keep stores the readings and lets the rules judge them.
func (a *Applier) keep(ctx context.Context, at rules.Position, r *model.Record, what resolved) error {
	m := r.Message
	a.activity.touch(what.tenant.ID, what.device.ID, r.Source, r.Received.Wall.Micros(), int64(at.Listening))
	in := rules.Input{Position: at, Device: rules.Device{ID: what.device.ID, Type: what.device.Type, Token: r.Device},
		Profile: rules.ProfileKey{Tenant: what.tenant.ID, Profile: what.profileID}}
	switch m.Type {
	case model.MeasurementEvent:
		return a.keepMeasurements(ctx, &in, r, what)
	case model.LocationEvent:
		for i := range m.Locations {
			in.Kind, in.Index = rules.Location, uint32(i)
			in.Occurred, _ = a.occurred(r, m.Locations[i].Time)
			a.keepLocation(&in, r, what, &m.Locations[i])
			a.judge(&in)
		}
	case model.AlertEvent:
		for i := range m.Alerts {
			row := a.row(r, what, model.AlertEvent, at, uint32(i), m.Alerts[i].Time)
			row.Alert = m.Alerts[i]
			a.batch.step(func(tx store.Tx) error { return store.InsertAlert(tx, row) })
		}
		in.Kind = rules.Bare
		in.Occurred, _ = a.occurred(r, m.Alerts[0].Time)
		a.judge(&in)
	}
	return nil
}

// keepMeasurements puts each value into its series; the values of one entry are one sample to the rules.
func (a *Applier) keepMeasurements(ctx context.Context, in *rules.Input, r *model.Record, what resolved) error {
	ms := r.Message.Measurements
	a.points = a.points[:0]
	for i := range ms {
		a.points = append(a.points, a.point(in.Offset, r, what, i))
	}
	kept := a.points
	if a.tamper != nil {
		kept = a.tamper(kept)
	}
	if err := a.Series.Put(ctx, kept); err != nil {
		return err // the device was read by admit; nothing is left that could fail
	}
	if a.Readings != nil && (a.Watched == nil || a.Watched()) {
		a.batch.points = append(a.batch.points, a.points...)
	}
	for from := 0; from < len(ms); {
		to := from + 1
		for to < len(ms) && ms[to].Entry == ms[from].Entry {
			to++
		}
		in.Kind, in.Index, in.Readings, in.Occurred = rules.Measurement, uint32(from), ms[from:to], a.points[from].Occurred
		a.judge(in)
		faults.Point("apply.entry")
		from = to
	}
	return nil
}

func (a *Applier) point(at model.Offset, r *model.Record, what resolved, i int) series.Point {
	v := &r.Message.Measurements[i]
	occurred, _ := a.occurred(r, v.Time)
	p := series.Point{TenantID: what.tenant.ID, Device: what.device.ID, DeviceToken: r.Device, Metric: v.Metric, Source: r.Source,
		Occurred: occurred, Received: r.Received.Wall.Micros(), Offset: at, Index: uint32(i), Value: v.Value, AltID: r.Message.AltID}
	if what.profile != nil {
		if d := what.profile.metrics[v.Metric]; d != nil {
			p.Unit, p.DataType = d.Unit, d.DataType
		}
	}
	return p
}

func (a *Applier) keepLocation(in *rules.Input, r *model.Record, what resolved, l *model.Location) {
	row := a.row(r, what, model.LocationEvent, in.Position, in.Index, l.Time)
	row.Location = *l
	a.batch.step(func(tx store.Tx) error { return store.InsertLocation(tx, row) })
	a.Series.PutLocation(&store.LatestLocation{Device: row.Device, TenantID: row.TenantID, DeviceToken: row.DeviceToken, Location: *l,
		Occurred: row.Occurred, Updated: row.Received}, in.Offset)
}

func (a *Applier) row(r *model.Record, what resolved, t model.EventType, at rules.Position, index uint32, own model.EntryTime) *store.EventRow {
	occurred, _ := a.occurred(r, own)
	return &store.EventRow{TenantID: what.tenant.ID, Device: what.device.ID, DeviceToken: r.Device, Type: t, Offset: at.Offset, Index: index,
		Source: r.Source, AltID: r.Message.AltID, Occurred: occurred, Received: r.Received.Wall.Micros()}
}

func (a *Applier) judge(in *rules.Input) {
	if in.Profile.Profile != 0 {
		a.Rules.Apply(in, a.emit)
	}
}

func (a *Applier) emit(e model.Edge) { a.batch.edges = append(a.batch.edges, e) }

// detailBytes is how much of a dead letter is shown.
const detailBytes = 2 << 10

// deadLetter keeps a message that was accepted and proved unfit.
func (a *Applier) deadLetter(at rules.Position, r *model.Record, reason Reason, why string) {
	a.fate(at, r, store.OutcomeDeadLetter, reason, why)
	d := &store.DeadLetter{Tenant: r.Account, Occurred: r.Received.Wall.Micros(), Kind: store.DeadLetterIngest, Reason: string(reason),
		Source: r.Source, Summary: why, Attempts: 1, Subject: r.Device, Epoch: at.Epoch, Offset: at.Offset,
		Stranger: ofStrangers(r.Account, reason),
		Record:   model.AppendRecord(nil, r)}
	if r.Message != nil {
		d.Detail = describe(r.Message)
	}
	a.keepDeadLetter(d)
}

// keepDeadLetter stores a dead letter within its bounds.
func (a *Applier) keepDeadLetter(d *store.DeadLetter) {
	d.Bytes = int64(len(d.Record)+len(d.Detail)+len(d.Summary)) + 128
	trim := !d.Stranger && a.crowded(d)
	a.batch.step(func(tx store.Tx) error {
		if err := store.AddDeadLetter(tx, d); err != nil {
			return err
		}
		var gone int64
		var err error
		switch {
		case d.Stranger:
			gone, err = store.TrimRejected(tx, a.cfg.StrangersBytes)
		case trim:
			gone, err = store.TrimDeadLetters(tx, d.Tenant, a.cfg.DeadLetters)
		}
		tx.OnCommit(func() { a.metrics.deadLettersTrimmed.Add(float64(gone)) })
		return err
	})
}

// crowded reports whether it is time to look at how many dead letters a tenant has: when the first comes since the start, and
// after each hundredth of what there may be, so that counting costs little and the bound is passed by little.
func (a *Applier) crowded(d *store.DeadLetter) bool {
	most := a.cfg.DeadLetters
	if most.Rows <= 0 || most.Bytes <= 0 {
		return false
	}
	have, known := a.deadSince[d.Tenant]
	have.Rows, have.Bytes = have.Rows+1, have.Bytes+d.Bytes
	if known && have.Rows < max(most.Rows/100, 1) && have.Bytes < max(most.Bytes/16, 1) {
		a.deadSince[d.Tenant] = have
		return false
	}
	a.deadSince[d.Tenant] = store.DeadLetterBound{}
	return true
}

// ofStrangers reports whether a dead letter stands in the strangers' ring, which forgets the oldest.
func ofStrangers(account string, reason Reason) bool {
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

func shorten(detail string) string {
	if len(detail) > detailBytes {
		return strings.ToValidUTF8(detail[:detailBytes], "") + "…"
	}
	return detail
}
