package actions

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/model"
	"weir/store"
	"weir/store/outbox"
)

const (
	insideAtOnce = 4                // batches inside Weir at a time, of different tenants
	chunk        = 1024             // rows that are counted in one read
	lookAnyway   = 30 * time.Second // the outbox is looked at without a reason this often
	storeRetry   = time.Second      // after the store failed
)

// Drain performs the orders of one instance. It is safe for concurrent use.
type Drain struct {
	cfg     Config
	deps    Deps
	kinds   map[string]*Kind
	m       *metrics
	letters letters

	woken   chan struct{}
	results chan result
	running sync.WaitGroup

	// What follows is the loop's alone.
	counted  int64 // id up to which rows are counted
	tenants  map[int64]*tenant
	ring     []*tenant // in turn
	byTarget map[queueKey]*queue
	batches  int // inside
	attempts int // outside

	// Of what is outside, in the order of its life; see deliver.go.
	starting   []*delivery // begun in this turn
	unrecorded []*delivery // attempts whose ends are to be stored
	recording  int         // more of these, which are being stored
	storing    bool        // a transaction that stores ends is under way
	recordAt   time.Time   // none begins before: the store has failed
	synced     int64       // id up to which rows survive a power cut
	unsynced   bool        // rows wait until they do

	standings atomic.Pointer[[]Standing]
}

// New returns a drain that does nothing until Run.
func New(cfg Config, d Deps) *Drain {
	cfg, d = cfg.withDefaults(), d.withDefaults()
	dr := &Drain{cfg: cfg, deps: d, kinds: map[string]*Kind{}, woken: make(chan struct{}, 1), results: make(chan result, cfg.Workers+insideAtOnce+1),
		tenants: map[int64]*tenant{}, byTarget: map[queueKey]*queue{}, letters: letters{since: map[string]store.DeadLetterBound{}}}
	for i := range d.Kinds {
		dr.kinds[d.Kinds[i].Name] = &d.Kinds[i]
	}
	dr.m = newMetrics(d.Registerer, d.Kinds)
	dr.letters.bound, dr.letters.trimmed = store.DeadLetterBound{Rows: cfg.Letters, Bytes: int64(cfg.LetterBytes)}, dr.m.trimmed
	return dr
}

// Wake says that there may be new orders. It does not block.
func (d *Drain) Wake() {
	select {
	case d.woken <- struct{}{}:
	default: // it was said already
	}
}

// Run performs what is in the outbox, and what comes, until ctx ends. Attempts that are under way end with ctx; what they came to, as far as it is
// known, is stored.
func (d *Drain) Run(ctx context.Context) error {
	defer d.stop(ctx)
	for {
		wait := lookAnyway
		now := d.deps.Now()
		if err := d.turn(ctx, now); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			d.deps.Logger.Warn("the outbox cannot be read; it is tried again", "error", err, "retry", storeRetry.String())
			wait = storeRetry
		} else if at := d.next(now); !at.IsZero() {
			wait = min(wait, max(at.Sub(d.deps.Now()), time.Millisecond))
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-d.woken:
		case <-t.C:
		case r := <-d.results:
			d.take(ctx, r)
			d.settleMore(ctx)
		}
		t.Stop()
	}
}

// settleMore takes what else has come.
func (d *Drain) settleMore(ctx context.Context) {
	for {
		select {
		case r := <-d.results:
			d.take(ctx, r)
		default:
			return
		}
	}
}

// take takes in what came of something.
func (d *Drain) take(ctx context.Context, r result) {
	switch r.of {
	case outsideWork:
		now, over := d.deps.Now(), ctx.Err() != nil
		d.heard(r.delivery, now, over)
		d.attempted(r.delivery, now, over)
	case recordWork:
		d.recorded(r, d.deps.Now())
	default:
		d.settle(r)
	}
}

// turn counts what is new and begins what may begin at now.
func (d *Drain) turn(ctx context.Context, now time.Time) error {
	if err := d.count(ctx); err != nil {
		return err
	}
	for more := true; more; {
		more = false
		for _, t := range d.ring {
			begun, err := d.begin(ctx, t, now)
			if err != nil {
				d.launch(ctx)
				return err
			}
			more = more || begun
		}
		if len(d.ring) > 1 {
			d.ring = append(d.ring[1:], d.ring[0])
		}
	}
	d.launch(ctx)
	d.records(ctx, now)
	d.forget()
	d.show()
	return nil
}

// count adds rows that have come since, whoever wrote them.
func (d *Drain) count(ctx context.Context) error {
	for {
		var found []outbox.Head
		if err := d.deps.Store.Read(ctx, func(tx store.Tx) (err error) {
			found, err = outbox.After(tx, d.counted, chunk)
			return err
		}); err != nil {
			return err
		}
		for i := range found {
			d.add(&found[i])
		}
		if len(found) < chunk {
			return nil
		}
	}
}

func (d *Drain) add(h *outbox.Head) {
	t := d.tenants[h.TenantID]
	if t == nil {
		t = &tenant{id: h.TenantID}
		d.tenants[t.id] = t
		d.ring = append(d.ring, t)
	}
	key := queueKey{h.TenantID, h.Kind, h.Target}
	q := d.byTarget[key]
	if q == nil {
		q = &queue{queueKey: key, do: d.kindOf(h.Kind), tenant: t, cursor: h.ID - 1, flying: map[int64]bool{}}
		d.byTarget[key] = q
		t.queues = append(t.queues, q)
	}
	q.rows, q.bytes, q.newest = q.rows+1, q.bytes+h.Bytes, h.ID
	t.rows, t.bytes = t.rows+1, t.bytes+h.Bytes
	d.counted = h.ID
}

// kindOf is how orders of a kind are performed. Those of a kind that nothing performs become dead letters: they neither wait for ever nor vanish.
func (d *Drain) kindOf(name string) *Kind {
	if k := d.kinds[name]; k != nil {
		return k
	}
	return &Kind{Name: name, Letters: store.DeadLetterAction, Inside: func(store.Tx, *Order) error { return Fail(Unsupported, errUnsupported) }}
}

var errUnsupported = errors.New("nothing performs orders of this kind")

// begin begins one thing of a tenant, if there is one that may begin.
func (d *Drain) begin(ctx context.Context, t *tenant, now time.Time) (bool, error) {
	d.sheds(ctx, t, now)
	for i, q := range t.queues {
		if !d.may(q, now) {
			continue
		}
		if err := q.fill(ctx, d.deps.Store, now); err != nil {
			return false, err
		}
		if len(q.ready) == 0 {
			continue
		}
		if q.do.Outside != nil {
			if !d.durable(q) {
				continue
			}
			if wait := d.deps.Tenants.TakeOutbound(d.deps.Tenants.TokenOf(t.id)); wait > 0 {
				t.paused = now.Add(wait)
				continue
			}
		}
		t.queues = append(slices.Delete(t.queues, i, i+1), q) // the others of the tenant are next
		if q.do.Inside != nil {
			d.beginInside(ctx, q)
		} else {
			d.beginOutside(q)
		}
		return true, nil
	}
	return false, nil
}

// may reports whether something of a queue may begin. A tenant begins attempts outside as long as more places are free than it has: one that is
// slow leaves half of them to the others, two a quarter, and so on.
func (d *Drain) may(q *queue, now time.Time) bool {
	if now.Before(q.paused) {
		return false
	}
	if q.do.Inside != nil {
		return len(q.flying) == 0 && d.batches < insideAtOnce
	}
	if (q.down() || q.do.Alone) && len(q.flying) > 0 || len(d.unrecorded)+d.recording >= maxUnrecorded {
		return false
	}
	return q.sending < q.atOnce(d.cfg.PerDestination) && d.cfg.Workers-d.attempts > q.tenant.running && !now.Before(q.tenant.paused)
}

func (d *Drain) beginInside(ctx context.Context, q *queue) {
	heads := q.take(abreast * batch)
	d.batches++
	d.running.Go(func() { d.results <- d.performInside(ctx, q, heads) })
}

// result is what came of something that the loop has begun.
type result struct {
	q       *queue
	of      work
	ends    []end
	pause   bool                 // the queue waits as a whole
	cause   string               // why
	broken  error                // of the store: nothing is known of the rows that have no end
	success bool                 // the target has taken an order
	wait    time.Duration        // nothing begins before, though nothing has failed
	rows    map[outbox.Key]int64 // of all queues of the tenant, as they were counted

	delivery *delivery   // of outsideWork
	recorded []*delivery // of recordWork
	synced   int64       // of recordWork
}

// work is what the loop has begun.
type work uint8

const (
	nothing work = iota // an attempt outside, which is not under way any more
	insideWork
	shedWork
	outsideWork
	recordWork
)

// end is what came of a row.
type end struct {
	outbox.Head
	gone  bool // the row is
	again bool // it is tried again when it is due
	with  bool // it was performed together with another, and has not begun itself
}

// settle takes in what came of rows. A row that is neither gone nor due later is ready again.
func (d *Drain) settle(r result) {
	now, q := d.deps.Now(), r.q
	switch r.of {
	case insideWork:
		d.batches--
	case shedWork:
		q.held, q.tenant.shedding = false, false
		if r.rows != nil {
			q.tenant.recount(r.rows)
		}
	}
	if r.success && q.do.Inside != nil {
		q.succeed()
	}
	for _, e := range r.ends {
		if e.with && !q.withdraw(e) {
			continue
		}
		delete(q.flying, e.ID)
		switch {
		case e.gone:
			q.remove(e.Head)
		case e.again:
			q.postpone(e.Head)
		default:
			insert(&q.ready, e.Head, byID)
		}
	}
	switch {
	case r.broken != nil:
		q.paused = now.Add(storeRetry)
		d.deps.Logger.Warn("what came of orders cannot be stored; they are tried again", "kind", q.kind, "error", r.broken)
	case r.wait > 0:
		q.paused = now.Add(r.wait)
	case r.cause != "" && q.do.Inside != nil: // of a target outside heard has noted it
		d.failed(q, now, r.cause, r.pause)
	}
}

// heard notes what an attempt outside says of its target, before the next one begins: its end is stored later, and a target that refuses at once
// would be asked by all that waits until then. over says that Weir stops.
func (d *Drain) heard(s *delivery, now time.Time, over bool) {
	q, f := s.q, s.verdict
	switch {
	case s.broken != nil || s.order == nil || s.why != nil || f != nil && over: // it was not asked, or could not say it
	case f == nil:
		q.succeed()
	case f.Reason != Again && f.Reason != Unreachable && f.Reason != Full: // of the order, not of the target
	case !s.probe && q.down(): // many were under way when it went down, which is one failure
		q.cause = f.Err.Error()
	default:
		d.failed(q, now, f.Err.Error(), f.Reason == Full)
	}
}

// failed notes a failure of a target. pause: it has no room for any order.
func (d *Drain) failed(q *queue, now time.Time, cause string, pause bool) {
	q.fail(now, cause)
	if pause || q.down() {
		q.paused = now.Add(d.pauseOf(q))
	}
}

// pauseOf is how long a queue waits that fails: a second, twice as long each time, up to a minute for what Weir itself has no room for and five
// for a target outside.
func (d *Drain) pauseOf(q *queue) time.Duration {
	longest, n := time.Minute, q.failures-1
	if q.do.Outside != nil {
		longest, n = 5*time.Minute, q.failures-downAfter
	}
	return d.jitter(min(time.Second<<min(max(n, 0), 10), longest))
}

// backOff is how long an order waits after a number of attempts.
func (d *Drain) backOff(attempts int) time.Duration {
	return d.jitter(min(10*time.Second<<min(max(attempts-1, 0), 10), time.Hour))
}

// jitter spreads a wait by a quarter to both sides.
func (d *Drain) jitter(wait time.Duration) time.Duration {
	return time.Duration(float64(wait) * (0.75 + d.deps.Rand()/2))
}

// next is when something may begin that nothing but time kept from it in the turn of now, the zero time for never. It may have come since.
func (d *Drain) next(now time.Time) (at time.Time) {
	if (len(d.unrecorded) > 0 || d.unsynced) && d.recordAt.After(now) {
		at = d.recordAt
	}
	for _, t := range d.ring {
		for _, q := range t.queues {
			if due := q.next(); due.After(now) && (at.IsZero() || due.Before(at)) {
				at = due
			}
		}
	}
	return at
}

// forget forgets targets and tenants of which nothing waits.
func (d *Drain) forget() {
	kept := d.ring[:0]
	for _, t := range d.ring {
		queues := t.queues[:0]
		for _, q := range t.queues {
			if q.empty() {
				delete(d.byTarget, q.queueKey)
				t.rows, t.bytes = t.rows-q.rows, t.bytes-q.bytes
				continue
			}
			queues = append(queues, q)
		}
		clear(t.queues[len(queues):])
		if t.queues = queues; len(queues) == 0 && t.running == 0 && !t.shedding {
			delete(d.tenants, t.id)
			continue
		}
		kept = append(kept, t)
	}
	clear(d.ring[len(kept):])
	d.ring = kept
}

// micros is now as rows have it.
func (d *Drain) micros() model.Micros { return model.MicrosOf(d.deps.Now()) }
