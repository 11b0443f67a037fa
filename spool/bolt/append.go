package bolt

import (
	"context"
	"fmt"
	"slices"

	"weir/spool"
)

// Append implements spool.Log.
func (l *Log) Append(ctx context.Context, entries ...spool.Entry) error {
	g, err := groupOf(entries)
	if err != nil {
		l.metrics.refused.tooLarge.Inc()
		return err
	}
	if err := ctx.Err(); err != nil {
		l.metrics.refused.canceled.Inc()
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.admit(ctx, g.cost); err != nil {
		return err
	}
	if err := l.refusal(g); err != nil {
		l.unsynced -= g.cost
		l.grant()
		return err
	}
	l.pending += g.weight
	l.enqueued += uint64(len(entries))
	if l.queue.push(entries) {
		signal(l.wake)
	}
	if l.enough() {
		signal(l.flushNow)
	}
	return nil
}

// group describes the entries of one Append.
type group struct {
	cost, weight int64
	records      int64
	exempt       bool // all of them
}

func groupOf(entries []spool.Entry) (group, error) {
	g, total := group{exempt: true, records: int64(len(entries))}, 0
	for i := range entries {
		e := &entries[i]
		if len(e.Data) > spool.MaxRecord {
			return g, fmt.Errorf("%w: %d bytes", spool.ErrTooLarge, len(e.Data))
		}
		total += len(e.Data)
		g.cost += entryCost(*e)
		g.weight += recordWeight(*e)
		g.exempt = g.exempt && e.Exempt
	}
	if total > spool.MaxGroup || len(entries) > spool.MaxGroupEntries {
		return g, fmt.Errorf("%w: %d entries with %d bytes together", spool.ErrTooLarge, len(entries), total)
	}
	return g, nil
}

// entryCost is the cost of an entry in the unsynced bound.
func entryCost(e spool.Entry) int64 { return int64(len(e.Data)) + entryOverhead }

// recordWeight is the assumed budget of an entry until its batch is weighed.
func recordWeight(e spool.Entry) int64 { return int64(len(e.Data)) + recordOverhead }

// refusal returns the reason why a group cannot be accepted now. The caller holds mu.
func (l *Log) refusal(g group) error {
	switch {
	case l.closing:
		return spool.ErrClosed
	case l.failure != nil:
		l.metrics.refused.unavailable.Inc()
		return l.failure
	}
	budget := int64(l.opt.MaxBytes)
	if g.exempt {
		budget += ReserveBytes
	}
	kept := int64(l.last+1-l.first) + int64(l.enqueued-l.answered)
	if l.through-l.trimmed+l.pending+g.weight > budget || !g.exempt && kept+g.records > l.opt.MaxRecords {
		l.metrics.refused.full.Inc()
		return spool.ErrFull
	}
	return nil
}

// waiter is an Append that waits for the unsynced bound. Waiters are served in order, so that small records do not delay
// a large one forever.
type waiter struct {
	cost    int64
	ready   chan struct{} // closed when granted, or when the log closes
	granted bool
}

// admit reserves cost in the unsynced bound, waiting for it. It is called and returns with mu held.
func (l *Log) admit(ctx context.Context, cost int64) error {
	if l.closing {
		return spool.ErrClosed
	}
	if len(l.waiting) == 0 && l.unsynced+cost <= l.opt.UnsyncedBytes {
		l.unsynced += cost
		return nil
	}
	w := &waiter{cost: cost, ready: make(chan struct{})}
	l.waiting = append(l.waiting, w)
	l.metrics.blocked.Inc()
	l.mu.Unlock()
	select {
	case <-w.ready:
	case <-ctx.Done():
	}
	l.mu.Lock()
	switch {
	case w.granted:
		return nil
	case l.closing:
		return spool.ErrClosed
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(other *waiter) bool { return other == w })
	l.grant() // a smaller one after it may fit
	l.metrics.refused.canceled.Inc()
	return ctx.Err()
}

// grant admits the waiters that fit now. The caller holds mu.
func (l *Log) grant() {
	n := 0
	for _, w := range l.waiting {
		if l.unsynced+w.cost > l.opt.UnsyncedBytes {
			break
		}
		l.unsynced += w.cost
		w.granted = true
		close(w.ready)
		n++
	}
	if n > 0 {
		l.waiting = slices.Delete(l.waiting, 0, n)
	}
}

// queue contains the entries for the committer, in order, bounded by the unsynced bound. Log.mu guards it.
type queue struct {
	entries []queued
	head    int
	bytes   int64 // data of the queued entries
}

// queued is a queued entry. An entry with follows belongs to the batch of the entry before it.
type queued struct {
	spool.Entry
	follows bool
}

// keptEntries is the capacity that the queue keeps for the next burst.
const keptEntries = 16 << 10

func (q *queue) len() int { return len(q.entries) - q.head }

// push adds a group and reports whether the queue was empty before.
func (q *queue) push(entries []spool.Entry) bool {
	first := q.len() == 0
	for i, e := range entries {
		q.entries = append(q.entries, queued{e, i > 0})
		q.bytes += int64(len(e.Data))
	}
	return first
}

// take moves whole groups of up to limit bytes, at least one, into into.
func (q *queue) take(into []spool.Entry, limit int64) []spool.Entry {
	end, bytes := q.head, int64(0)
	for end < len(q.entries) {
		size, next := q.group(end)
		if end > q.head && bytes+size > limit {
			break
		}
		bytes += size
		end = next
	}
	for i := q.head; i < end; i++ {
		into = append(into, q.entries[i].Entry)
	}
	clear(q.entries[q.head:end])
	q.head, q.bytes = end, q.bytes-bytes
	if q.head == len(q.entries) {
		q.entries, q.head = q.entries[:0], 0
		if cap(q.entries) > keptEntries {
			q.entries = nil // a burst of small records is over
		}
	}
	return into
}

// group returns the bytes of the group that begins at i, and where the next one begins.
func (q *queue) group(i int) (size int64, next int) {
	for next = i; next < len(q.entries) && (next == i || q.entries[next].follows); next++ {
		size += int64(len(q.entries[next].Data))
	}
	return size, next
}
