package spool

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"weir/internal/faults"
	"weir/internal/setting"
	"weir/model"
)

// Auto as an interval gathers for the next batch only as long as it is worthwhile: until most of the senders that can
// append have, for at most half a flush where a flush takes over 5 ms, else 3 ms. A single sender never waits.
const Auto = time.Duration(setting.Auto)

const (
	// BatchBytes is the size at which a batch takes no further group.
	BatchBytes = 1 << 20
	// MinUnsynced is the minimum of the unsynced bound: one largest group.
	MinUnsynced = MaxGroup + MaxGroupEntries*entryOverhead

	entryOverhead  = 64 // the cost of an entry without data in the unsynced bound
	recordOverhead = 8  // the assumed overhead of a record on disk until its batch is weighed
	slowFlush      = 5 * time.Millisecond
	maxLinger      = 100 * time.Millisecond
	fastLinger     = 3 * time.Millisecond // where a flush is fast
	fastGoal       = 256                  // the maximum number of entries that it gathers
)

// Committer is the part of a log driver that writes batches. A Gatherer calls it: Admit under its lock, the others from
// the goroutine of Run.
type Committer interface {
	// Admit returns the reason why the log does not accept a group now, nil when it does. ahead is what was accepted and
	// is not stored yet.
	Admit(g, ahead Group) error
	// Commit makes one durable batch of entries or fails it. It returns the offset of the first one and the duration of one
	// flush.
	Commit(entries []Entry) (first model.Offset, flush time.Duration, err error)
	// Publish is called under the Gatherer's lock after a Commit that succeeded: from here on the batch counts in the
	// log's budget, and readers may see it.
	Publish()
	// Retry returns when to call Repair, 0 when the log can write.
	Retry() time.Duration
	Repair()
}

// Gatherer gathers the entries of concurrent appends into batches, so that many senders share one sync (group commit). It
// bounds what is not synced yet, and answers the senders. A log driver holds one and provides the Committer.
type Gatherer struct {
	committer Committer
	opt       GatherOptions
	wake      chan struct{} // the queue is no longer empty, or the log is closing
	flushNow  chan struct{} // stop gathering and commit

	mu       sync.Mutex
	queue    queue
	waiting  []*waiter
	syncs    []syncWaiter
	closing  bool
	unsynced int64  // the cost of queued and committing entries
	pending  int64  // their approximate share of the budget
	senders  int    // of the last batch: those that it answered and those that were queued then
	goal     int    // the number of queued entries that ends the gathering
	enqueued uint64 // entries accepted since the start
	answered uint64 // entries answered since the start

	flush time.Duration // moving mean of one flush; belongs to Run
}

// GatherOptions configure a Gatherer.
type GatherOptions struct {
	UnsyncedBytes int64 // bound of the bytes not yet synced, at least MinUnsynced
	// Interval is the time to gather before a commit; negative: Auto.
	Interval time.Duration
	// Stretch, with the automatic interval, says how long a batch gathers at least, to spare the disk: nothing but a full batch ends
	// it earlier. 0: as long as is worthwhile. nil: always so.
	Stretch func() time.Duration
	// Blocked is called when an append begins to wait for the unsynced bound; nil: not called.
	Blocked func()
}

// NewGatherer returns a Gatherer for a log. Its entries are committed while Run runs.
func NewGatherer(c Committer, opt GatherOptions) *Gatherer {
	if opt.Blocked == nil {
		opt.Blocked = func() {}
	}
	if opt.Stretch == nil {
		opt.Stretch = func() time.Duration { return 0 }
	}
	return &Gatherer{committer: c, opt: opt, wake: make(chan struct{}, 1), flushNow: make(chan struct{}, 1)}
}

// Append is Log.Append.
func (g *Gatherer) Append(ctx context.Context, entries []Entry) error {
	add, err := groupOf(entries)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.reserve(ctx, add.cost); err != nil {
		return err
	}
	if err := g.admit(add); err != nil {
		g.unsynced -= add.cost
		g.grant()
		return err
	}
	g.pending += add.Weight
	g.enqueued += uint64(len(entries))
	if g.queue.push(entries) {
		signal(g.wake)
	}
	if g.enough() {
		signal(g.flushNow)
	}
	return nil
}

// Group describes the entries of one Append.
type Group struct {
	Records int64
	Weight  int64 // approximate share of the budget, until their batch is weighed
	Exempt  bool  // all of them

	cost int64 // in the unsynced bound
}

func groupOf(entries []Entry) (Group, error) {
	g, total := Group{Exempt: true, Records: int64(len(entries))}, 0
	for i := range entries {
		e := &entries[i]
		if len(e.Data) > MaxRecord {
			return g, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(e.Data))
		}
		total += len(e.Data)
		g.Exempt = g.Exempt && e.Exempt
	}
	if total > MaxGroup || len(entries) > MaxGroupEntries {
		return g, fmt.Errorf("%w: %d entries with %d bytes together", ErrTooLarge, len(entries), total)
	}
	g.cost = int64(total) + entryOverhead*g.Records
	g.Weight = int64(total) + recordOverhead*g.Records
	return g, nil
}

// admit returns the reason why a group cannot be accepted now. The caller holds mu.
func (g *Gatherer) admit(add Group) error {
	if g.closing {
		return ErrClosed
	}
	return g.committer.Admit(add, Group{Records: int64(g.enqueued - g.answered), Weight: g.pending})
}

// waiter is an Append that waits for the unsynced bound. Waiters are served in order, so that small records do not delay
// a large one forever.
type waiter struct {
	cost    int64
	ready   chan struct{} // closed when granted, or when the log closes
	granted bool
}

// reserve takes cost from the unsynced bound, waiting for it. It is called and returns with mu held.
func (g *Gatherer) reserve(ctx context.Context, cost int64) error {
	if g.closing {
		return ErrClosed
	}
	if len(g.waiting) == 0 && g.unsynced+cost <= g.opt.UnsyncedBytes {
		g.unsynced += cost
		return nil
	}
	w := &waiter{cost: cost, ready: make(chan struct{})}
	g.waiting = append(g.waiting, w)
	g.opt.Blocked()
	g.mu.Unlock()
	select {
	case <-w.ready:
	case <-ctx.Done():
	}
	g.mu.Lock()
	switch {
	case w.granted:
		return nil
	case g.closing:
		return ErrClosed
	}
	g.waiting = slices.DeleteFunc(g.waiting, func(other *waiter) bool { return other == w })
	g.grant() // a smaller one after it may fit
	return ctx.Err()
}

// grant admits the waiters that fit now. The caller holds mu.
func (g *Gatherer) grant() {
	n := 0
	for _, w := range g.waiting {
		if g.unsynced+w.cost > g.opt.UnsyncedBytes {
			break
		}
		g.unsynced += w.cost
		w.granted = true
		close(w.ready)
		n++
	}
	if n > 0 {
		g.waiting = slices.Delete(g.waiting, 0, n)
	}
}

// Unsynced returns the bytes appended and not yet synced.
func (g *Gatherer) Unsynced() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.unsynced
}

// Sync is Log.Sync.
func (g *Gatherer) Sync(ctx context.Context) error {
	g.mu.Lock()
	if g.answered == g.enqueued {
		g.mu.Unlock()
		return nil
	}
	w := syncWaiter{upTo: g.enqueued, done: make(chan struct{})}
	g.syncs = append(g.syncs, w)
	g.mu.Unlock()
	signal(g.flushNow)
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// syncWaiter is a Sync that waits for the entries accepted before it.
type syncWaiter struct {
	upTo uint64
	done chan struct{}
}

// Close refuses further appends and makes Run end after the accepted entries were answered. It does not wait. It returns
// false when it was called before.
func (g *Gatherer) Close() (first bool) {
	g.mu.Lock()
	first = !g.closing
	g.closing = true
	for _, w := range g.waiting {
		close(w.ready)
	}
	g.waiting = nil
	g.mu.Unlock()
	signal(g.wake)
	signal(g.flushNow)
	return first
}

// Closing reports whether Close was called.
func (g *Gatherer) Closing() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closing
}

// signal sets a flag channel.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run commits batches and answers senders, until Close was called and all are answered. One goroutine calls it, once.
func (g *Gatherer) Run() {
	var entries []Entry
	for g.awaitWork() {
		g.mu.Lock()
		entries = g.queue.take(entries[:0], BatchBytes)
		g.mu.Unlock()
		g.commit(entries)
		clear(entries)
		// The senders just answered can append again at once: wait for them, or they would arrive in halves, one half always
		// waiting for the other's flush (64 writers on a fast disk: 94,000/s without this, 141,000/s with it).
		runtime.Gosched()
	}
}

// awaitWork returns true when entries are queued, false when the log closes and none are. While appends are refused it
// has the log recover.
func (g *Gatherer) awaitWork() bool {
	for {
		g.mu.Lock()
		queued, closing := g.queue.len() > 0, g.closing
		g.mu.Unlock()
		switch {
		case queued:
			g.linger(closing)
			return true
		case closing:
			return false
		}
		var retry <-chan time.Time
		if after := g.committer.Retry(); after > 0 {
			retry = time.After(after)
		}
		select {
		case <-g.wake:
		case <-retry:
			g.committer.Repair()
		}
	}
}

// linger gathers more entries for the next batch: a commit costs the same for one as for many. With the automatic
// interval it ends when most of the senders that can append have done so.
func (g *Gatherer) linger(closing bool) {
	wait, stretched := g.pause()
	if wait <= 0 || closing {
		return
	}
	select {
	case <-g.flushNow: // sent for an earlier batch, or handled below
	default:
	}
	g.mu.Lock()
	g.goal = g.gathers(stretched)
	enough := g.enough()
	g.mu.Unlock()
	if enough {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-g.flushNow:
	}
}

// pause returns the longest time to gather, and whether the senders that have appended do not end it.
func (g *Gatherer) pause() (_ time.Duration, stretched bool) {
	if g.opt.Interval >= 0 {
		return g.opt.Interval, true
	}
	auto := fastLinger
	if g.flush > slowFlush {
		auto = min(g.flush/2, maxLinger)
	}
	if stretch := g.opt.Stretch(); stretch > 0 {
		return max(stretch, auto), true
	}
	return auto, false
}

// gathers returns the number of entries that ends the gathering early. The senders answered by the last batch and those
// queued then can append again at once. A slow disk waits for all of them, otherwise a part of them would always wait for
// the other's flush. A fast disk leaves a fifth to arrive during its flush, and of many senders waits only for enough to
// make a commit cheap, so that the processors have work meanwhile; when the senders do not wait for acknowledgements, a
// batch gathers for the time of a few flushes. The caller holds mu.
func (g *Gatherer) gathers(stretched bool) int {
	switch {
	case stretched:
		return math.MaxInt
	case g.flush > slowFlush:
		return g.senders
	}
	return min(g.senders-g.senders/5, fastGoal)
}

// enough reports whether the queue is worth a commit. The caller holds mu.
func (g *Gatherer) enough() bool {
	return g.queue.bytes >= BatchBytes || g.queue.len() >= g.goal || len(g.syncs) > 0
}

// commit makes one batch of entries durable, or fails it, and answers all of them.
func (g *Gatherer) commit(entries []Entry) {
	first, flush, err := g.committer.Commit(entries)
	if err == nil {
		if g.flush == 0 {
			g.flush = flush
		}
		g.flush += (flush - g.flush) / 4
	}
	g.complete(entries, err)
	for i, e := range entries {
		switch {
		case e.Done == nil:
		case err != nil:
			e.Done(0, err)
		default:
			e.Done(first+model.Offset(i), nil)
		}
	}
	faults.Point("spool.answered")
	g.acknowledged(len(entries))
}

// complete releases what a batch held that is stored (err nil) or has failed, and publishes a stored one.
func (g *Gatherer) complete(entries []Entry, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.senders = len(entries) + g.queue.len()
	for i := range entries {
		g.unsynced -= int64(len(entries[i].Data)) + entryOverhead
		g.pending -= int64(len(entries[i].Data)) + recordOverhead
	}
	g.grant()
	if err == nil {
		g.committer.Publish()
	}
}

// acknowledged counts answered entries, for Sync.
func (g *Gatherer) acknowledged(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answered += uint64(n)
	kept := g.syncs[:0]
	for _, w := range g.syncs {
		if w.upTo <= g.answered {
			close(w.done)
		} else {
			kept = append(kept, w)
		}
	}
	clear(g.syncs[len(kept):])
	g.syncs = kept
}
