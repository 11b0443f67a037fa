package ingest

import (
	"context"
	"errors"

	"weir/model"
	"weir/spool"
)

// admit takes the readings and looks at the log. The ceiling comes before the backpressure, always.
func (g *Intake) admit(ctx context.Context, m *arrival) {
	if !g.take(ctx, m) {
		return
	}
	if !g.roomy(ctx, m) {
		g.metrics.backpressured.Inc()
		fate := Refused
		if m.Conn != nil {
			fate = Withheld
		}
		g.end(m, fate, ReasonBackpressure, "the instance has no room for new events")
	}
}

func (g *Intake) take(ctx context.Context, m *arrival) bool {
	if m.stranger {
		if g.Ceiling.TakeUnauthenticated(1, len(m.Body)) {
			return true
		}
		g.over(m, ReasonUnauthenticated)
		return false
	}
	if g.Ceiling.Take(m.Tenant, m.readings) || m.CeilingWait > 0 && g.Ceiling.Wait(ctx, m.Tenant, m.readings, m.CeilingWait) {
		return true
	}
	g.over(m, ReasonCeiling)
	return false
}

func (g *Intake) over(m *arrival, r Reason) {
	g.metrics.limited.Inc()
	if m.CannotRefuse {
		g.end(m, Dropped, r, "")
		return
	}
	g.end(m, Refused, r, "over the ingest ceiling")
}

// roomy reports whether the log takes new messages. A door that cannot say "later" waits here, so that its peer feels it:
// while nobody is taken, and with fail-closed as soon as others are refused. Who sends at QoS 0 waits for no answer, and
// fail-closed is nothing to him.
func (g *Intake) roomy(ctx context.Context, m *arrival) bool {
	for g.Pressure.Refusing() {
		cfg := g.cfg.Load()
		switch {
		case m.Conn == nil:
			return false
		case !g.Pressure.Full() && (m.PacketID == 0 || !cfg.FailClosed):
			return true
		case !g.awaitRoom(ctx, cfg):
			return false
		}
	}
	return true
}

// awaitRoom waits until there may be room, or the configuration is another one. It reports false when ctx has ended.
func (g *Intake) awaitRoom(ctx context.Context, cfg *inForce) bool {
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(cfg.over, cancel)()
	err := g.Pressure.Room(wait)
	return err == nil || cfg.over.Err() != nil && ctx.Err() == nil
}

func (g *Intake) admitAll(ctx context.Context, ms []*arrival) (bad int) {
	byTenant, strangers, bytes := 0, 0, 0
	for _, m := range ms {
		if m.stranger {
			strangers++
			bytes += len(m.Body)
		} else {
			byTenant += m.readings
		}
	}
	if byTenant > 0 && !g.Ceiling.Take(ms[0].Tenant, byTenant) {
		g.over(ms[0], ReasonCeiling)
		return 0
	}
	if strangers > 0 && !g.Ceiling.TakeUnauthenticated(strangers, bytes) {
		g.over(ms[0], ReasonUnauthenticated)
		return 0
	}
	if !g.roomy(ctx, ms[0]) {
		g.metrics.backpressured.Inc()
		g.end(ms[0], Refused, ReasonBackpressure, "the instance has no room for new events")
		return 0
	}
	return -1
}

// append hands the record to the log. A full log is waited for where the transport cannot say so.
func (g *Intake) append(ctx context.Context, m *arrival, done func(Answer)) {
	for {
		err := g.hand(ctx, m, func(off model.Offset, err error) {
			if err != nil {
				g.lost(m, err)
				done(m.answer)
				return
			}
			done(Answer{Outcome: Stored, Offset: off})
		})
		if err == nil {
			return
		}
		g.Doors.passed(m.line, m.rec.Readings())
		if errors.Is(err, spool.ErrFull) && m.Conn != nil && g.Pressure.Room(ctx) == nil {
			continue
		}
		g.failed(m, err)
		done(m.answer)
		return
	}
}

func (g *Intake) hand(ctx context.Context, m *arrival, done func(model.Offset, error)) error {
	g.Doors.handed(m.line, m.rec.Readings())
	return g.Log.Append(ctx, entryOf(m, done))
}

func entryOf(m *arrival, done func(model.Offset, error)) spool.Entry {
	return spool.Entry{Data: model.AppendRecord(nil, m.rec), Value: m.rec, Done: done}
}

// failed ends a message that the log did not take.
func (g *Intake) failed(m *arrival, err error) {
	switch {
	case errors.Is(err, spool.ErrFull):
		g.Pressure.Sample() // smaller messages must not slip in before the next tick
		g.end(m, Refused, ReasonBackpressure, "the instance has no room for new events")
	case m.Conn != nil:
		g.end(m, Withheld, ReasonUnavailable, "")
	default:
		g.end(m, Refused, ReasonUnavailable, "the event could not be stored")
	}
	if m.Conn != nil {
		m.answer.Outcome = Withheld
	}
	if !errors.Is(err, context.Canceled) {
		g.metrics.failedAppends.Inc()
	}
}

// appendAll hands the records of an array to the log in one piece: it keeps all of them or none.
func (g *Intake) appendAll(ctx context.Context, ms []*arrival, done func(Answer, int)) {
	entries, left := make([]spool.Entry, len(ms)), len(ms)
	for i, m := range ms {
		g.Doors.handed(m.line, m.rec.Readings())
		// The committer answers the entries of a group one after the other.
		entries[i] = entryOf(m, func(_ model.Offset, err error) {
			if err != nil {
				g.lost(m, err)
			}
			if left--; left > 0 {
				return
			}
			if m.ended {
				done(m.answer, 0)
				return
			}
			done(Answer{Outcome: Stored}, -1)
		})
	}
	if err := g.Log.Append(ctx, entries...); err != nil {
		for _, m := range ms {
			g.lost(m, err)
		}
		done(ms[0].answer, 0)
	}
}

// lost ends a message that was handed over in vain.
func (g *Intake) lost(m *arrival, err error) {
	g.Doors.passed(m.line, m.rec.Readings())
	g.failed(m, err)
}
