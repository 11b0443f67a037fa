package ingest

import (
	"context"
	"errors"
	"math"
	"time"

	"weir/model"
	"weir/spool"
)

// admit takes the readings, slows the sender and looks at the log. The ceiling comes before the backpressure, always.
func (in *Intake) admit(ctx context.Context, m *arrival) {
	if !in.takeCeiling(ctx, m) {
		return
	}
	// Slow the sender before its message takes space in the log.
	if !m.unauthenticated {
		in.slowSender(ctx, m, m.readings)
	}
	if !in.hasRoom(ctx, m) {
		in.metrics.backpressured.Inc()
		in.end(m, m.turnedAway(ctx), ReasonBackpressure, noRoom)
	}
}

const noRoom = "the instance has no room for new events"

func (in *Intake) takeCeiling(ctx context.Context, m *arrival) bool {
	if m.unauthenticated {
		if in.deps.Ceiling.TakeUnauthenticated(1, len(m.Body)) {
			awaitGathering(ctx, m.stamp)
			return true
		}
		in.rejectOverCeiling(m, ReasonUnauthenticated)
		return false
	}
	if in.takeReadings(ctx, m, m.readings) {
		return true
	}
	in.rejectOverCeiling(m, ReasonCeiling)
	return false
}

// gatherEvery is the pace at which messages of unauthenticated senders reach the log.
const gatherEvery = 100 * time.Millisecond

// awaitGathering waits until the next tenth of a second, so that the messages of unauthenticated senders share the commits of the log: one
// commit for each of them would let anyone wear out the flash.
func awaitGathering(ctx context.Context, now model.Stamp) {
	t := time.NewTimer(gatherEvery - time.Duration(now.Mono)%gatherEvery)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// takeReadings takes n readings from the ceiling of the message's tenant.
func (in *Intake) takeReadings(ctx context.Context, m *arrival, n int) bool {
	return in.deps.Ceiling.Take(m.Tenant, n) || m.CeilingWait > 0 && in.deps.Ceiling.Wait(ctx, m.Tenant, n, m.CeilingWait)
}

// slowSender delays a message of so many readings while the applier is far behind, for no longer than its sender can wait.
func (in *Intake) slowSender(ctx context.Context, m *arrival, readings int) {
	if in.deps.Throttle == nil {
		return
	}
	// Half of the wait that the sender allows, so that the rest of the way has time, too.
	most := time.Duration(math.MaxInt64)
	if m.HoldFor > 0 {
		most = m.HoldFor / 2
	}
	if m.CeilingWait > 0 {
		most = min(most, m.CeilingWait/2)
	}
	if in.deps.Throttle.Wait(ctx, m.line.tenant, readings, most) {
		in.noteUnheard(m)
	}
}

func (in *Intake) rejectOverCeiling(m *arrival, r Reason) {
	in.metrics.limited.Inc()
	if m.CannotRefuse {
		in.end(m, Dropped, r, "")
		return
	}
	in.end(m, Refused, r, "over the ingest ceiling")
}

// hasRoom reports whether the log takes the message. A message with HoldFor waits here, which slows its sender: while no message
// is taken, and with fail-closed as soon as others are refused. A sender at QoS 0 waits for no answer, so fail-closed does not
// apply to it.
func (in *Intake) hasRoom(ctx context.Context, m *arrival) bool {
	for in.deps.Pressure.Refusing() {
		cfg := in.cfg.Load()
		switch {
		case m.HoldFor == 0:
			return false
		case !in.deps.Pressure.Full() && (m.PacketID == 0 || !cfg.FailClosed):
			return true
		case !in.awaitRoom(ctx, m, cfg):
			return false
		}
	}
	return true
}

// awaitRoom waits until the log may have space, or another configuration applies. It reports false when the message may be held
// no longer, or ctx has ended.
func (in *Intake) awaitRoom(ctx context.Context, m *arrival, cfg *effectiveConfig) bool {
	// Three things end the wait: space, the time that the message may be held, another configuration.
	wait, cancel := context.WithCancel(m.hold(ctx))
	defer cancel()
	defer context.AfterFunc(cfg.over, cancel)()
	defer in.noteWaiting(m)()
	err := in.deps.Pressure.Wait(wait)
	return err == nil || cfg.over.Err() != nil && ctx.Err() == nil && !m.heldOut()
}

// hold returns the context that ends with the time for which the message may be held. The first call starts it, stopHold ends it.
func (m *arrival) hold(ctx context.Context) context.Context {
	if m.HoldFor < 0 {
		return ctx
	}
	if m.held == nil {
		m.held, m.release = context.WithTimeout(ctx, m.HoldFor)
	}
	return m.held
}

// stopHold stops the time that hold started.
func (m *arrival) stopHold() {
	if m.release != nil {
		m.release()
	}
}

// heldOut reports whether the message was held as long as it may be.
func (m *arrival) heldOut() bool {
	return m.HoldFor == 0 || m.held != nil && errors.Is(m.held.Err(), context.DeadlineExceeded)
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
func (in *Intake) admitAll(ctx context.Context, ms []*arrival) (bad int) {
	// Take for all messages at once: nothing has to be given back for a later one.
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
	if byTenant > 0 && !in.takeReadings(ctx, first, byTenant) {
		in.rejectOverCeiling(first, ReasonCeiling)
		return 0
	}
	if unauthenticated > 0 && !in.deps.Ceiling.TakeUnauthenticated(unauthenticated, bytes) {
		in.rejectOverCeiling(first, ReasonUnauthenticated)
		return 0
	}
	if unauthenticated > 0 {
		awaitGathering(ctx, first.stamp)
	}
	if byTenant > 0 {
		in.slowSender(ctx, first, byTenant)
	}
	if !in.hasRoom(ctx, first) {
		in.metrics.backpressured.Inc()
		in.end(first, first.turnedAway(ctx), ReasonBackpressure, noRoom)
		return 0
	}
	return -1
}

// append hands the record to the log. A full log is waited for as long as the message may be held.
func (in *Intake) append(ctx context.Context, m *arrival, done func(Answer)) {
	for {
		err := in.handOver(ctx, m, func(off model.Offset, err error) {
			if err != nil {
				in.endUnstored(ctx, m, err)
				done(m.answer)
				return
			}
			done(Answer{Outcome: Stored, Offset: off})
		})
		if err == nil {
			return
		}
		// The log has refused it: its readings no longer count as on their way.
		in.deps.Counts.returned(m.line, m.rec.Readings())
		if in.awaitSpace(ctx, m, err) {
			continue
		}
		in.endFailed(ctx, m, err)
		done(m.answer)
		return
	}
}

// awaitSpace waits for space after the log was full, and reports whether the message may be handed over again.
func (in *Intake) awaitSpace(ctx context.Context, m *arrival, err error) bool {
	if m.HoldFor == 0 || !errors.Is(err, spool.ErrFull) {
		return false
	}
	defer in.noteWaiting(m)()
	return in.deps.Pressure.Wait(m.hold(ctx)) == nil
}

// noteUnheard notes that a message of a tenant was turned away or delayed: what its devices could not say is not their silence. A sender
// that did not prove who it is stops no time.
func (in *Intake) noteUnheard(m *arrival) {
	if m.line.tenant != "" && !m.unauthenticated {
		in.deps.Counts.links.Refused(m.line.tenant)
	}
}

// noteWaiting is noteUnheard for as long as the message waits.
func (in *Intake) noteWaiting(m *arrival) (done func()) {
	if m.line.tenant == "" || m.unauthenticated {
		return func() {}
	}
	return in.deps.Counts.links.Waits(m.line.tenant)
}

func (in *Intake) handOver(ctx context.Context, m *arrival, done func(model.Offset, error)) error {
	in.deps.Counts.handed(m.line, m.rec.Readings())
	return in.deps.Log.Append(ctx, entryOf(m, done))
}

func entryOf(m *arrival, done func(model.Offset, error)) spool.Entry {
	return spool.Entry{Data: model.AppendRecord(nil, m.rec), Value: m.rec, Done: done}
}

// endFailed ends a message that the log did not take.
func (in *Intake) endFailed(ctx context.Context, m *arrival, err error) {
	switch outcome := m.turnedAway(ctx); {
	case errors.Is(err, spool.ErrFull):
		in.deps.Pressure.Sample() // smaller messages must not slip in before the next tick
		in.end(m, outcome, ReasonBackpressure, noRoom)
	case outcome == Withheld:
		in.end(m, outcome, ReasonUnavailable, "")
	default:
		in.end(m, outcome, ReasonUnavailable, "the event could not be stored")
	}
	// A client that has gone is no failure of the log.
	if !errors.Is(err, context.Canceled) {
		in.metrics.failedAppends.Inc()
	}
}

// appendAll hands the records of an array to the log in one piece: it stores all of them or none.
func (in *Intake) appendAll(ctx context.Context, ms []*arrival, done func(Answer, int)) {
	entries := make([]spool.Entry, len(ms))
	left := len(ms)
	for i, m := range ms {
		// The committer answers the entries of a group one after the other.
		entries[i] = entryOf(m, func(_ model.Offset, err error) {
			if err != nil {
				in.endUnstored(ctx, m, err)
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
	// The log takes the group as a whole, so a full one is tried again with all of it.
	for {
		for _, m := range ms {
			in.deps.Counts.handed(m.line, m.rec.Readings())
		}
		err := in.deps.Log.Append(ctx, entries...)
		if err == nil {
			return
		}
		for _, m := range ms {
			in.deps.Counts.returned(m.line, m.rec.Readings())
		}
		if in.awaitSpace(ctx, ms[0], err) {
			continue
		}
		for _, m := range ms {
			in.endFailed(ctx, m, err)
		}
		done(ms[0].answer, 0)
		return
	}
}

// endUnstored ends a message whose hand-over to the log failed.
func (in *Intake) endUnstored(ctx context.Context, m *arrival, err error) {
	in.deps.Counts.returned(m.line, m.rec.Readings())
	in.endFailed(ctx, m, err)
}
