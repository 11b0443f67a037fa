package actions

import (
	"context"
	"errors"
	"time"

	"weir/internal/faults"
	"weir/model"
	"weir/store"
	"weir/store/outbox"
)

// attempt is one attempt at one order: the order, and what it came to.
type attempt struct {
	end
	failure *Failure
	reason  Reason // of the end; "" when the row stays
}

// performInside performs orders, those of one device in their order, in transactions that end their rows: what was done, and that it was, is one
// commit. Orders of one device are in one of them, so that none is performed when one before it could not be stored.
func (d *Drain) performInside(ctx context.Context, q *queue, heads []outbox.Head) result {
	r := result{q: q, of: insideWork}
	parts := [][]outbox.Head{heads}
	if len(heads) > batch {
		parts = make([][]outbox.Head, abreast)
		for _, h := range heads {
			n := h.DeviceID % abreast
			if len(parts[n]) == batch {
				r.ends = append(r.ends, end{Head: h}) // it is ready again
				continue
			}
			parts[n] = append(parts[n], h)
		}
	}
	came, fns := make([][]attempt, len(parts)), make([]func(store.Tx) error, len(parts))
	for n, part := range parts {
		fns[n] = func(tx store.Tx) (err error) {
			came[n], err = d.performSome(tx, q.do, part)
			return err
		}
	}
	faults.Point("actions.begin")
	errs := d.deps.Store.WriteAll(ctx, store.Durable, fns...)
	faults.Point("actions.committed")
	for n, err := range errs {
		if err != nil {
			r.broken = err
			for _, h := range parts[n] {
				r.ends = append(r.ends, end{Head: h})
			}
			continue
		}
		for i := range came[n] {
			d.came(q, &r, &came[n][i])
		}
	}
	return r
}

// performSome performs orders in a transaction.
func (d *Drain) performSome(tx store.Tx, k *Kind, heads []outbox.Head) (all []attempt, err error) {
	waiting := map[int64]model.Micros{} // devices whose further orders wait for one
	full := false
	for _, h := range heads {
		a := attempt{end: end{Head: h}}
		if due, waits := waiting[h.DeviceID]; full || waits {
			a.again, a.Due = waits, due
			all = append(all, a)
			continue
		}
		if err := d.inside(tx, k, &a); err != nil {
			return nil, err
		}
		if full = full || a.failure != nil && a.failure.Reason == Full; a.again && k.ordered() {
			waiting[h.DeviceID] = a.Due
		}
		all = append(all, a)
	}
	faults.Point("actions.performed")
	return all, nil
}

// inside performs one order, or ends it otherwise, in the transaction.
func (d *Drain) inside(tx store.Tx, k *Kind, a *attempt) error {
	o, err := d.read(tx, a)
	if o == nil || err != nil || a.reason != "" {
		return err
	}
	if k.late(o, d.deps.Now()) {
		return d.giveUp(tx, k, o, a, Fail(Expired, errLate))
	}
	failed, err := outbox.Attempt(tx, func() error { return k.Inside(tx, o) })
	if err != nil {
		return err
	}
	return d.conclude(tx, k, o, a, failureOf(failed))
}

var errLate = errors.New("it was not performed before it expired")

// read reads the order of an attempt. One that is gone, or whose tenant is, ends there.
func (d *Drain) read(tx store.Tx, a *attempt) (*Order, error) {
	row, err := outbox.Read(tx, a.ID)
	switch {
	case row == nil && err == nil: // counted by who removed it, or with its tenant
		if a.gone = true; d.deps.Tenants.TokenOf(a.TenantID) == "" {
			a.reason = Gone
		}
		return nil, nil
	case row == nil:
		return nil, err
	}
	o := &Order{Row: row, Tenant: d.deps.Tenants.TokenOf(row.TenantID)}
	if o.Tenant == "" {
		_, err := outbox.Remove(tx, row.ID)
		a.gone, a.reason = true, Gone
		return nil, err
	}
	if err != nil { // its body
		return o, d.giveUp(tx, d.kindOf(row.Kind), o, a, Fail(Unprocessable, err))
	}
	return o, nil
}

// conclude writes what an attempt came to, in the transaction of the attempt or after it.
func (d *Drain) conclude(tx store.Tx, k *Kind, o *Order, a *attempt, f *Failure) error {
	a.failure = f
	switch {
	case f == nil || f.Reason == Gone:
		a.gone, a.reason = true, Performed
		if f != nil {
			a.reason = Gone
		}
		_, err := outbox.Remove(tx, o.ID)
		return err
	case f.Reason.ends():
		return d.giveUp(tx, k, o, a, f)
	case f.Reason != Again:
		return nil
	}
	attempts := o.Attempts + 1
	if attempts >= d.cfg.Attempts || f.Tries > 0 && attempts >= f.Tries {
		o.Attempts = attempts
		return d.giveUp(tx, k, o, a, &Failure{Reason: Exhausted, Err: f.Err})
	}
	wait := d.backOff(attempts)
	if f.After > 0 {
		wait = min(f.After, time.Hour)
	}
	a.again, a.Attempts, a.Due = true, attempts, d.micros()+model.Micros(wait/time.Microsecond)
	return outbox.Retry(tx, o.ID, a.Due, f.Err.Error())
}

// minLater is the shortest wait for a turn that comes later: a target is not asked without an end.
const minLater = 10 * time.Millisecond

// came counts what an attempt came to, and puts it into the result of a queue.
func (d *Drain) came(q *queue, r *result, a *attempt) {
	if a.reason != "" {
		d.m.ends.WithLabelValues(d.m.label(q.kind), string(a.reason)).Inc()
		r.success = r.success || a.reason == Performed
	}
	if f := a.failure; f != nil {
		switch f.Reason {
		case Again:
			d.m.again.Inc()
			if q.do.Outside != nil {
				r.cause = f.Err.Error()
			}
		case Later:
			r.wait = max(f.After, minLater)
		case Full, Unreachable:
			r.cause, r.pause = f.Err.Error(), f.Reason == Full
		}
	}
	r.ends = append(r.ends, a.end)
}
