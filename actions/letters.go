package actions

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/store"
	"weir/store/outbox"
)

// letters bound the dead letters of what goes out.
type letters struct {
	bound   store.DeadLetterBound
	trimmed prometheus.Counter

	mu    sync.Mutex
	since map[string]store.DeadLetterBound // of each tenant since its last trim
}

// crowded reports whether it is time to look at how many a tenant has: at the first one since the start, and after each hundredth of the
// bound, so that counting costs little and the bound is exceeded by little.
func (l *letters) crowded(d *store.DeadLetter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	have, known := l.since[d.Tenant]
	have.Rows, have.Bytes = have.Rows+1, have.Bytes+d.Bytes
	if known && have.Rows < max(l.bound.Rows/100, 1) && have.Bytes < max(l.bound.Bytes/16, 1) {
		l.since[d.Tenant] = have
		return false
	}
	l.since[d.Tenant] = store.DeadLetterBound{}
	return true
}

// giveUp makes a dead letter of an order, in the transaction that removes its row.
func (d *Drain) giveUp(tx store.Tx, k *Kind, o *Order, a *attempt, f *Failure) error {
	a.failure, a.gone, a.again, a.reason = nil, true, false, f.Reason
	if k.Letter != nil && o.Dispatch.Answer != nil {
		there, err := outbox.Remove(tx, o.ID)
		if err != nil || !there {
			return err
		}
		return k.Letter(tx, o, f.Reason, f.Err.Error())
	}
	letter, err := outbox.GiveUp(tx, o.Row, k.Letters, o.Tenant, string(f.Reason), f.Err.Error(), d.micros())
	if err != nil || letter == nil || !d.letters.crowded(letter) {
		return err
	}
	n, err := store.TrimOutgoing(tx, o.Tenant, d.letters.bound)
	tx.OnCommit(func() { d.letters.trimmed.Add(float64(n)) })
	return err
}

// shedAtOnce is how many rows one transaction sheds.
const shedAtOnce = 64

var errShed = errors.New("more orders of the tenant wait than may (connectors.outbox_max_rows, connectors.outbox_max_bytes)")

// recountAfter is how long what was counted is believed while a tenant is over its bound: rows also go with their devices.
const recountAfter = time.Minute

// sheds begins to shed what a tenant has over its bound. The newest rows go, of the target with the most: what a dead target gathers costs none
// of another its place. What is next in turn goes on meanwhile.
func (d *Drain) sheds(ctx context.Context, t *tenant, now time.Time) {
	rows, bytes := t.rows-d.cfg.OutboxRows, t.bytes-int64(d.cfg.OutboxBytes)
	if t.shedding || rows <= 0 && bytes <= 0 {
		return
	}
	s := shedding{q: t.largest(rows <= 0), n: shedAtOnce, bytes: max(bytes, 0)}
	if now.Sub(t.recounted) >= recountAfter {
		s.recount, t.recounted = true, now
	} else if bytes <= 0 {
		s.n = int(min(rows, shedAtOnce))
	}
	switch q := s.q; {
	case s.recount:
	case q.cursor < q.newest:
		s.after, s.upto = q.cursor, q.newest
	default:
		if s.heads = q.drop(s.n, s.bytes); len(s.heads) == 0 {
			return // all of them are being performed
		}
	}
	s.q.held, t.shedding = true, true
	d.running.Go(func() { d.results <- d.shed(ctx, &s) })
}

// shedding is what is shed of a queue: the heads, or the newest rows behind an id, n of them, or as many as take some bytes.
type shedding struct {
	q           *queue
	heads       []outbox.Head
	after, upto int64
	n           int
	bytes       int64
	recount     bool // nothing: rows are counted
}

func (d *Drain) shed(ctx context.Context, s *shedding) result {
	r := result{q: s.q, of: shedWork}
	if s.recount {
		r.broken = d.deps.Store.Read(ctx, func(tx store.Tx) (err error) {
			r.rows, err = outbox.Count(tx, s.q.queueKey.tenant)
			return err
		})
		return r
	}
	var all []attempt
	err := d.deps.Store.Write(ctx, store.Results, func(tx store.Tx) error {
		all = all[:0]
		heads, err := s.heads, error(nil)
		if heads == nil {
			if heads, err = outbox.Newest(tx, s.q.queueKey.tenant, s.q.kind, s.q.target, s.after, s.upto, s.n); err != nil {
				return err
			}
			heads = upToBytes(heads, s.bytes)
		}
		for _, h := range heads {
			a := attempt{end: end{Head: h}}
			o, err := d.read(tx, &a)
			if err == nil && o != nil && a.reason == "" {
				err = d.giveUp(tx, s.q.do, o, &a, Fail(Shed, errShed))
			}
			if err != nil {
				return err
			}
			all = append(all, a)
		}
		return nil
	})
	if err != nil {
		r.broken = err
		for _, h := range s.heads {
			r.ends = append(r.ends, end{Head: h})
		}
		return r
	}
	for i := range all {
		d.came(s.q, &r, &all[i])
	}
	return r
}

// upToBytes is the first rows that take some bytes together; all of them for 0.
func upToBytes(heads []outbox.Head, bytes int64) []outbox.Head {
	if bytes <= 0 {
		return heads
	}
	for i := range heads {
		if bytes -= heads[i].Bytes; bytes <= 0 {
			return heads[:i+1]
		}
	}
	return heads
}
