package ingest

import (
	"context"
	"errors"
	"time"

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
		g.end(m, m.turnedAway(ctx), ReasonBackpressure, noRoom)
	}
}

const noRoom = "the instance has no room for new events"

func (g *Intake) take(ctx context.Context, m *arrival) bool {
	if m.unauthenticated {
		if g.Ceiling.TakeUnauthenticated(1, len(m.Body)) {
			return true
		}
		g.over(m, ReasonUnauthenticated)
		return false
	}
	if g.takeReadings(ctx, m, m.readings) {
		return true
	}
	g.over(m, ReasonCeiling)
	return false
}

// takeReadings takes n readings from the ceiling of the message's tenant.
func (g *Intake) takeReadings(ctx context.Context, m *arrival, n int) bool {
	return g.Ceiling.Take(m.Tenant, n) || m.CeilingWait > 0 && g.Ceiling.Wait(ctx, m.Tenant, n, m.CeilingWait)
}

func (g *Intake) over(m *arrival, r Reason) {
	g.metrics.limited.Inc()
	if m.CannotRefuse {
		g.end(m, Dropped, r, "")
		return
	}
	g.end(m, Refused, r, "over the ingest ceiling")
}

// roomy reports whether the log takes the message. One with HoldFor waits here, so that its sender feels it: while no
// message is taken, and with fail-closed as soon as others are refused. The sender of QoS 0 waits for no answer, so
// fail-closed does not apply to it.
func (g *Intake) roomy(ctx context.Context, m *arrival) bool {
	for g.Pressure.Refusing() {
		cfg := g.cfg.Load()
		switch {
		case m.HoldFor == 0:
			return false
		case !g.Pressure.Full() && (m.PacketID == 0 || !cfg.FailClosed):
			return true
		case !g.awaitRoom(ctx, m, cfg):
			return false
		}
	}
	return true
}

// awaitRoom waits until there may be room, or another configuration applies. It reports false when the message may be held
// no longer, or ctx has ended.
func (g *Intake) awaitRoom(ctx context.Context, m *arrival, cfg *effectiveConfig) bool {
	wait, cancel := m.hold(ctx)
	defer cancel()
	defer context.AfterFunc(cfg.over, cancel)()
	err := g.Pressure.Room(wait)
	return err == nil || cfg.over.Err() != nil && ctx.Err() == nil && !m.heldOut()
}

// hold returns the context that ends with the time for which the message may be held. The first call starts it.
func (m *arrival) hold(ctx context.Context) (context.Context, context.CancelFunc) {
	if m.HoldFor < 0 {
		return context.WithCancel(ctx)
	}
	if m.holdUntil.IsZero() {
		m.holdUntil = time.Now().Add(m.HoldFor)
	}
	return context.WithDeadline(ctx, m.holdUntil)
}

// heldOut reports whether the message was held as long as it may be.
func (m *arrival) heldOut() bool {
	return m.HoldFor == 0 || !m.holdUntil.IsZero() && !time.Now().Before(m.holdUntil)
}

// turnedAway is the outcome of a message that the log does not take. One that may be held, and was not to the end, is left
// unanswered: its sender resends it.
func (m *arrival) turnedAway(ctx context.Context) Outcome {
	switch {
	case !m.heldOut() || m.HoldFor > 0 && ctx.Err() != nil:
		return Withheld
	case m.CannotRefuse:
		return Dropped
	}
	return Refused
}

// admitAll is admit for an array: for all of them or none.
func (g *Intake) admitAll(ctx context.Context, ms []*arrival) (bad int) {
	byTenant, unauthenticated, bytes := 0, 0, 0
	for _, m := range ms {
		if m.unauthenticated {
			unauthenticated++
			bytes += len(m.Body)
		} else {
			byTenant += m.readings
		}
	}
	first := ms[0]
	if byTenant > 0 && !g.takeReadings(ctx, first, byTenant) {
		g.over(first, ReasonCeiling)
		return 0
	}
	if unauthenticated > 0 && !g.Ceiling.TakeUnauthenticated(unauthenticated, bytes) {
		g.over(first, ReasonUnauthenticated)
		return 0
	}
	if !g.roomy(ctx, first) {
		g.metrics.backpressured.Inc()
		g.end(first, first.turnedAway(ctx), ReasonBackpressure, noRoom)
		return 0
	}
	return -1
}

// append hands the record to the log. A full log is waited for as long as the message may be held.
func (g *Intake) append(ctx context.Context, m *arrival, done func(Answer)) {
	for {
		err := g.hand(ctx, m, func(off model.Offset, err error) {
			if err != nil {
				g.lost(ctx, m, err)
				done(m.answer)
				return
			}
			done(Answer{Outcome: Stored, Offset: off})
		})
		if err == nil {
			return
		}
		g.Counts.passed(m.line, m.rec.Readings())
		if g.again(ctx, m, err) {
			continue
		}
		g.failed(ctx, m, err)
		done(m.answer)
		return
	}
}

// again waits for room after the log was full, and reports whether the message may be handed over once more.
func (g *Intake) again(ctx context.Context, m *arrival, err error) bool {
	if m.HoldFor == 0 || !errors.Is(err, spool.ErrFull) {
		return false
	}
	wait, cancel := m.hold(ctx)
	defer cancel()
	return g.Pressure.Room(wait) == nil
}

func (g *Intake) hand(ctx context.Context, m *arrival, done func(model.Offset, error)) error {
	g.Counts.handed(m.line, m.rec.Readings())
	return g.Log.Append(ctx, entryOf(m, done))
}

func entryOf(m *arrival, done func(model.Offset, error)) spool.Entry {
	return spool.Entry{Data: model.AppendRecord(nil, m.rec), Value: m.rec, Done: done}
}

// failed ends a message that the log did not take.
func (g *Intake) failed(ctx context.Context, m *arrival, err error) {
	switch outcome := m.turnedAway(ctx); {
	case errors.Is(err, spool.ErrFull):
		g.Pressure.Sample() // smaller messages must not slip in before the next tick
		g.end(m, outcome, ReasonBackpressure, noRoom)
	case outcome == Withheld:
		g.end(m, outcome, ReasonUnavailable, "")
	default:
		g.end(m, outcome, ReasonUnavailable, "the event could not be stored")
	}
	if !errors.Is(err, context.Canceled) {
		g.metrics.failedAppends.Inc()
	}
}

// appendAll hands the records of an array to the log in one piece: it stores all of them or none.
func (g *Intake) appendAll(ctx context.Context, ms []*arrival, done func(Answer, int)) {
	entries, left := make([]spool.Entry, len(ms)), len(ms)
	for i, m := range ms {
		// The committer answers the entries of a group one after the other.
		entries[i] = entryOf(m, func(_ model.Offset, err error) {
			if err != nil {
				g.lost(ctx, m, err)
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
	for {
		for _, m := range ms {
			g.Counts.handed(m.line, m.rec.Readings())
		}
		err := g.Log.Append(ctx, entries...)
		if err == nil {
			return
		}
		for _, m := range ms {
			g.Counts.passed(m.line, m.rec.Readings())
		}
		if g.again(ctx, ms[0], err) {
			continue
		}
		for _, m := range ms {
			g.failed(ctx, m, err)
		}
		done(ms[0].answer, 0)
		return
	}
}

// lost ends a message that was handed over in vain.
func (g *Intake) lost(ctx context.Context, m *arrival, err error) {
	g.Counts.passed(m.line, m.rec.Readings())
	g.failed(ctx, m, err)
}
