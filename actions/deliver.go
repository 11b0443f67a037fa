package actions

import (
	"context"
	"errors"
	"slices"
	"time"

	"weir/internal/faults"
	"weir/model"
	"weir/store"
	"weir/store/outbox"
)

const (
	maxStarting   = 128  // orders that are read together before they are sent
	endsAtOnce    = 256  // attempts whose ends are stored together
	endsAbreast   = 32   // of these in one function of the store's writer
	maxUnrecorded = 1024 // attempts that were made and whose ends are not stored; with as many, none begins
)

// delivery is an attempt at an order of which others than Weir take part.
type delivery struct {
	attempt
	q       *queue
	failing bool // the target has failed lately, and cause is why
	cause   string
	synced  int64 // up to this row id orders survive a power cut
	probe   bool  // the target was down when it began

	order   *Order    // nil: there is none any more, or it cannot be read
	why     *Failure  // it is given up without an attempt
	verdict *Failure  // of the target
	with    []attempt // at the orders that were performed together with it
	alone   bool      // its end could not be stored with those of others
	broken  error     // of the store: nothing was sent, or its end is not stored
}

// beginOutside begins an attempt at the next order of a queue. launch does so for all that have begun.
func (d *Drain) beginOutside(q *queue) {
	d.starting = append(d.starting, &delivery{attempt: attempt{end: end{Head: q.takeNext()}}, q: q, failing: q.failures > 0, cause: q.cause, synced: d.synced, probe: q.down()})
	d.attempts++
	q.sending++
	q.tenant.running++
}

// launch makes the attempts that have begun. Their rows survive a power cut: see durable.
func (d *Drain) launch(ctx context.Context) {
	for part := range slices.Chunk(d.starting, maxStarting) {
		all := slices.Clone(part)
		d.running.Go(func() { d.sendAll(ctx, all) })
	}
	clear(d.starting)
	d.starting = d.starting[:0]
}

// sendAll reads orders and sends each that may be sent. Each reports what it came to as soon as it is known.
func (d *Drain) sendAll(ctx context.Context, all []*delivery) {
	err := d.prepare(ctx, all)
	for _, s := range all {
		if s.broken = err; err != nil || s.why != nil || s.order == nil {
			d.results <- result{q: s.q, of: outsideWork, delivery: s}
			continue
		}
		d.running.Go(func() {
			s.verdict = d.send(ctx, s.q.do, s.order)
			faults.Point("actions.sent")
			d.results <- result{q: s.q, of: outsideWork, delivery: s}
		})
	}
}

// prepare reads orders: those that may be sent, and why others may not.
func (d *Drain) prepare(ctx context.Context, all []*delivery) error {
	if err := d.deps.Store.Read(ctx, func(tx store.Tx) error {
		for _, s := range all {
			row, err := outbox.Read(tx, s.ID)
			if row == nil && err != nil {
				return err
			}
			if row != nil && err == nil && d.deps.Tenants.TokenOf(row.TenantID) != "" { // damage of its body ends the row
				s.order = &Order{Row: row, Tenant: d.deps.Tenants.TokenOf(row.TenantID), Synced: s.synced}
			}
		}
		return nil
	}); err != nil {
		return err
	}
	now := d.deps.Now()
	for _, s := range all {
		switch {
		case s.order == nil:
		case s.q.do.late(s.order, now):
			s.why = Fail(Expired, errLate)
		case s.failing && now.Sub(s.order.Head.Received.Time()) > d.cfg.MaxAge:
			s.why = Fail(Exhausted, errors.New("its target fails for too long: "+s.cause))
		}
	}
	return nil
}

// send makes the attempt.
func (d *Drain) send(ctx context.Context, k *Kind, o *Order) *Failure {
	ctx, cancel := context.WithTimeout(ctx, d.timeoutOf(k, o))
	defer cancel()
	faults.Point("actions.send")
	f := failureOf(k.Outside(ctx, o))
	if f != nil && f.Reason == Again && errors.Is(f.Err, context.DeadlineExceeded) {
		f = Fail(Unreachable, errSlow)
	}
	return f
}

var errSlow = errors.New("the target did not answer in time")

// attempted takes in what an attempt came to. Its place is free for the next one; its row stays in flight until the end is stored. over says that
// Weir stops: nothing can be said of a target that has not taken the order.
func (d *Drain) attempted(s *delivery, now time.Time, over bool) {
	d.attempts--
	s.q.sending--
	s.q.tenant.running--
	r := result{q: s.q, broken: s.broken}
	switch f := s.verdict; {
	case s.broken != nil || f != nil && over:
		r.ends = []end{s.end}
	case f != nil && (f.Reason == Full || f.Reason == Later):
		s.failure = f
		d.came(s.q, &r, &s.attempt)
	case f != nil && f.Reason == Unreachable: // it waits in memory alone: nothing is written for a target that is away
		s.failure, s.again, s.Due = f, true, model.MicrosOf(now)+model.Micros(d.jitter(time.Second)/time.Microsecond)
		d.came(s.q, &r, &s.attempt)
	default:
		d.unrecorded = append(d.unrecorded, s)
		return
	}
	d.settle(r)
}

// durable reports whether the next row of a queue survives a power cut. What leaves Weir must: results are committed without a sync.
func (d *Drain) durable(q *queue) bool {
	if q.ready[0].ID <= d.synced {
		return true
	}
	d.unsynced = true
	return false
}

// records begins a transaction that stores the ends of attempts, of all that have come since the one before it, and makes the rows durable that wait
// for that. Until it is committed the rows of the attempts are as they were: what was sent is sent again after a crash, under the same key.
func (d *Drain) records(ctx context.Context, now time.Time) {
	if len(d.unrecorded) == 0 && !d.unsynced || d.storing || now.Before(d.recordAt) {
		return
	}
	n := min(len(d.unrecorded), endsAtOnce)
	all := slices.Clone(d.unrecorded[:n])
	d.unrecorded = slices.Delete(d.unrecorded, 0, n)
	d.storing, d.recording, d.unsynced = true, n, false
	d.running.Go(func() {
		r := result{of: recordWork, recorded: all}
		r.synced, r.broken = d.record(ctx, all)
		d.results <- r
	})
}

// record stores the ends of attempts, and returns the id up to which rows are durable. Ends that could not be stored say why.
func (d *Drain) record(ctx context.Context, all []*delivery) (synced int64, err error) {
	parts, fns := [][]*delivery{nil}, []func(store.Tx) error{func(tx store.Tx) (err error) {
		synced, err = outbox.Barrier(tx)
		return err
	}}
	for len(all) > 0 {
		n := 1
		for !all[0].alone && n < min(len(all), endsAbreast) && !all[n].alone {
			n++
		}
		part := all[:n]
		parts, all = append(parts, part), all[n:]
		fns = append(fns, func(tx store.Tx) error {
			for _, s := range part {
				if err := d.endOf(tx, s); err != nil {
					return err
				}
			}
			return nil
		})
	}
	errs := d.deps.Store.WriteAll(context.WithoutCancel(ctx), store.Durable, fns...)
	for i, err := range errs {
		for _, s := range parts[i] {
			s.broken = err
		}
	}
	if errs[0] != nil {
		return 0, errs[0]
	}
	return synced, nil
}

// endOf writes what an attempt came to.
func (d *Drain) endOf(tx store.Tx, s *delivery) error {
	s.attempt, s.with = attempt{end: end{Head: s.Head}}, nil // again, when the store has failed before
	if s.order != nil && s.why == nil {
		err := d.concludeOne(tx, s, new(*s.order.Row), &s.attempt)
		if err == nil {
			err = d.concludeWith(tx, s)
		}
		return err
	}
	o, err := d.read(tx, &s.attempt)
	if o == nil || err != nil || s.reason != "" || s.why == nil {
		return err
	}
	return d.giveUp(tx, s.q.do, o, &s.attempt, s.why)
}

// concludeOne writes what came of a row, and what a further attempt performs: the next one, or that of its dead letter.
func (d *Drain) concludeOne(tx store.Tx, s *delivery, row *outbox.Row, a *attempt) error {
	if s.order.Rewrite != nil && s.verdict != nil {
		s.order.Rewrite(&row.Dispatch)
		if err := outbox.Rewrite(tx, row); err != nil {
			return err
		}
	}
	return d.conclude(tx, s.q.do, &Order{Row: row, Tenant: s.order.Tenant}, a, s.verdict)
}

// concludeWith writes what came of the orders that were performed together with another.
func (d *Drain) concludeWith(tx store.Tx, s *delivery) error {
	for _, id := range s.order.With {
		row, err := outbox.Read(tx, id)
		if row == nil && err == nil {
			continue // it went with its device
		}
		if err != nil {
			return err
		}
		a := attempt{end: end{Head: row.Head, with: true}}
		if err := d.concludeOne(tx, s, row, &a); err != nil {
			return err
		}
		s.with = append(s.with, a)
	}
	return nil
}

// recorded takes in which ends are stored. Of those that are not it is tried until they are, or Weir stops: what was done cannot be undone.
func (d *Drain) recorded(r result, now time.Time) {
	d.storing, d.recording, d.synced = false, 0, max(d.synced, r.synced)
	broken := r.broken
	for _, s := range r.recorded {
		if s.broken != nil {
			broken, s.alone = s.broken, true
			d.m.unrecorded.Inc()
			d.unrecorded = append(d.unrecorded, s)
			continue
		}
		r := result{q: s.q}
		d.came(s.q, &r, &s.attempt)
		for i := range s.with {
			d.came(s.q, &r, &s.with[i])
		}
		d.settle(r)
	}
	if broken != nil {
		d.recordAt = now.Add(storeRetry)
		d.deps.Logger.Warn("what came of orders cannot be stored; they are tried again", "error", broken)
	}
}

// stop waits for what is under way and stores what it came to.
func (d *Drain) stop(ctx context.Context) {
	over := make(chan struct{})
	go func() {
		d.running.Wait()
		close(over)
	}()
	for done := false; !done; {
		select {
		case r := <-d.results:
			d.take(ctx, r)
		case <-over:
			done = true
		}
	}
	d.settleMore(ctx)
	if all := d.unrecorded; len(all) > 0 {
		r := result{recorded: all}
		d.unrecorded = nil
		r.synced, r.broken = d.record(ctx, all)
		d.recorded(r, d.deps.Now())
	}
}
