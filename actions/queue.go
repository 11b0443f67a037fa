package actions

import (
	"cmp"
	"context"
	"slices"
	"time"

	"weir/model"
	"weir/store"
	"weir/store/outbox"
)

// How much of a queue is in memory. The rest stays in the outbox, and is read when its turn comes.
const (
	window   = 256  // rows that are next
	maxLater = 1024 // rows that are tried again; while there are as many, nothing behind them begins
	batch    = 32   // orders that a function of the store's writer performs
	abreast  = 4    // of these that are asked for at once: the writer commits them together
)

// downAfter is after how many failures in a row a target stands still: then one attempt at a time finds out whether it is back.
const downAfter = 5

// queueKey names a target.
type queueKey struct {
	tenant       int64
	kind, target string
}

// queue is what waits for one target. Only the loop of the drain touches it.
type queue struct {
	queueKey
	do     *Kind
	tenant *tenant

	rows, bytes int64
	newest      int64          // id of the newest row that is counted
	cursor      int64          // id up to which rows were read
	ready       []outbox.Head  // next, in order
	later       []outbox.Head  // tried again when they are due, in the order of that; of Inside also what must not overtake them
	flying      map[int64]bool // begun, and their ends are not stored
	sending     int            // of these that are attempts outside
	held        bool           // its newest rows are being shed: none is read meanwhile

	failures int // in a row
	since    time.Time
	cause    string
	paused   time.Time // nothing begins before
	begun    int64     // id of the row that began last
}

func (q *queue) down() bool { return q.failures >= downAfter }

// fail notes a failure of the target.
func (q *queue) fail(now time.Time, cause string) {
	if q.failures++; q.failures == 1 {
		q.since = now
	}
	q.cause = cause
}

// atOnce is how many attempts may be under way at a time, of those that a target has: of one that fails no more than it may still fail before it stands
// still.
func (q *queue) atOnce(places int) int {
	if q.failures == 0 {
		return places
	}
	return min(places, max(downAfter-q.failures, 1))
}

func (q *queue) succeed() { q.failures, q.cause, q.paused = 0, "", time.Time{} }

// fill reads rows when none is ready, up to those that are counted.
func (q *queue) fill(ctx context.Context, st store.Store, now time.Time) error {
	q.ripen(now)
	for len(q.ready) == 0 && q.unread() {
		var found []outbox.Head
		if err := st.Read(ctx, func(tx store.Tx) (err error) {
			found, err = outbox.Next(tx, q.queueKey.tenant, q.kind, q.target, q.cursor, q.newest, window)
			return err
		}); err != nil {
			return err
		}
		if len(found) < window {
			q.cursor = q.newest
		} else {
			q.cursor = found[len(found)-1].ID
		}
		q.put(found, now)
	}
	return nil
}

// put adds rows behind those that are ready, or to those that are due later.
func (q *queue) put(found []outbox.Head, now time.Time) {
	blocked := q.blocked()
	for _, h := range found {
		if due, ok := blocked[h.DeviceID]; ok && h.Due < due {
			h.Due = due
		}
		if h.Due.Time().After(now) {
			q.postpone(h)
			if blocked != nil {
				blocked[h.DeviceID] = h.Due
			}
			continue
		}
		q.ready = append(q.ready, h)
	}
}

// blocked are the devices whose orders must wait for one that is tried again, and until when; nil where orders may overtake.
func (q *queue) blocked() map[int64]model.Micros {
	if !q.do.ordered() {
		return nil
	}
	out := map[int64]model.Micros{}
	for i := range q.later {
		out[q.later[i].DeviceID] = max(out[q.later[i].DeviceID], q.later[i].Due)
	}
	return out
}

// postpone keeps a row until it is due. Of Inside the rows of its device that are ready wait with it.
func (q *queue) postpone(h outbox.Head) {
	insert(&q.later, h, byDue)
	if !q.do.ordered() {
		return
	}
	q.ready = slices.DeleteFunc(q.ready, func(r outbox.Head) bool {
		if r.DeviceID != h.DeviceID || r.ID < h.ID {
			return false
		}
		r.Due = h.Due
		insert(&q.later, r, byDue)
		return true
	})
}

// ripen makes what is due ready.
func (q *queue) ripen(now time.Time) {
	at := model.MicrosOf(now)
	for len(q.later) > 0 && q.later[0].Due <= at {
		insert(&q.ready, q.later[0], byID)
		q.later = slices.Delete(q.later, 0, 1)
	}
}

func byID(a, b outbox.Head) int { return cmp.Compare(a.ID, b.ID) }

func byDue(a, b outbox.Head) int { return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.ID, b.ID)) }

func insert(in *[]outbox.Head, h outbox.Head, order func(a, b outbox.Head) int) {
	at, _ := slices.BinarySearchFunc(*in, h, order)
	*in = slices.Insert(*in, at, h)
}

// take removes the rows that begin now.
func (q *queue) take(n int) []outbox.Head {
	n = min(n, len(q.ready))
	taken := slices.Clone(q.ready[:n])
	q.ready = slices.Delete(q.ready, 0, n)
	for _, h := range taken {
		q.flying[h.ID] = true
	}
	return taken
}

// takeNext removes the row that begins now: the oldest one, or of a target that stands still the one behind that which began last. A row that the target
// never answers would be every probe otherwise, and keep the target standing still for all that waits behind it.
func (q *queue) takeNext() outbox.Head {
	at := 0
	if q.down() {
		at, _ = slices.BinarySearchFunc(q.ready, outbox.Head{ID: q.begun + 1}, byID)
		at %= len(q.ready)
	}
	h := q.ready[at]
	q.ready = slices.Delete(q.ready, at, at+1)
	q.flying[h.ID], q.begun = true, h.ID
	return h
}

// withdraw takes a row that was performed together with another out of those that wait. It reports whether more is to be done: a row that was not read
// yet, and is tried again, is read when its turn comes.
func (q *queue) withdraw(e end) bool {
	of := func(h outbox.Head) bool { return h.ID == e.ID }
	known := slices.ContainsFunc(q.ready, of) || slices.ContainsFunc(q.later, of)
	q.ready, q.later = slices.DeleteFunc(q.ready, of), slices.DeleteFunc(q.later, of)
	return e.gone || known
}

// unread reports whether rows may be read now.
func (q *queue) unread() bool { return q.cursor < q.newest && len(q.later) < maxLater && !q.held }

// drop takes the newest rows that do not begin now out of those in memory, n of them, or as many as take some bytes.
func (q *queue) drop(n int, bytes int64) (dropped []outbox.Head) {
	all := slices.Concat(q.ready, q.later)
	slices.SortFunc(all, func(a, b outbox.Head) int { return byID(b, a) })
	dropped = upToBytes(all[:min(n, len(all))], bytes)
	gone := map[int64]bool{}
	for _, h := range dropped {
		gone[h.ID] = true
	}
	of := func(h outbox.Head) bool { return gone[h.ID] }
	q.ready, q.later = slices.DeleteFunc(q.ready, of), slices.DeleteFunc(q.later, of)
	return dropped
}

// empty reports whether nothing waits, whatever was counted: rows go with their device and their tenant, too.
func (q *queue) empty() bool {
	return len(q.ready)+len(q.later)+len(q.flying) == 0 && q.cursor >= q.newest && !q.held
}

// next is when time alone keeps nothing back any more; it may be past. The zero time: nothing waits.
func (q *queue) next() (at time.Time) {
	if len(q.ready) == 0 && !q.unread() {
		if len(q.later) == 0 {
			return at
		}
		at = q.later[0].Due.Time()
	}
	if q.paused.After(at) {
		at = q.paused
	}
	if q.do.Outside != nil && q.tenant.paused.After(at) {
		at = q.tenant.paused
	}
	return at
}

// remove takes rows that are gone out of what is counted.
func (q *queue) remove(h outbox.Head) {
	q.rows, q.bytes = q.rows-1, q.bytes-h.Bytes
	q.tenant.rows, q.tenant.bytes = q.tenant.rows-1, q.tenant.bytes-h.Bytes
}

// tenant is what waits of one tenant.
type tenant struct {
	id          int64
	queues      []*queue // in turn
	rows, bytes int64
	running     int       // attempts outside Weir
	paused      time.Time // of what goes out: the ceiling
	shedding    bool
	recounted   time.Time // when its rows were counted in the outbox
}

// largest is the queue with the most rows, or bytes.
func (t *tenant) largest(bytes bool) *queue {
	return slices.MaxFunc(t.queues, func(a, b *queue) int {
		if bytes {
			return cmp.Compare(a.bytes, b.bytes)
		}
		return cmp.Compare(a.rows, b.rows)
	})
}

// recount sets what waits to what was counted in the outbox. Rows of the same target are about as large as one another.
func (t *tenant) recount(rows map[outbox.Key]int64) {
	t.rows, t.bytes = 0, 0
	for _, q := range t.queues {
		n := min(rows[outbox.Key{Kind: q.kind, Target: q.target}], max(q.rows, 0))
		if q.rows > 0 {
			q.bytes = int64(float64(q.bytes) / float64(q.rows) * float64(n))
		}
		q.rows = n
		t.rows, t.bytes = t.rows+q.rows, t.bytes+q.bytes
	}
}
