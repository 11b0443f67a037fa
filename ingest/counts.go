package ingest

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"weir/ingest/links"
	"weir/model"
	"weir/spool"
	"weir/store"
)

// line is where the ledger counts a message before its outcome is known.
type line struct {
	tenant    string
	transport string
	source    string
	hour      int64
}

func (l line) key(o store.Outcome, r Reason) store.LedgerKey {
	return store.LedgerKey{
		Tenant:    l.tenant,
		Transport: l.transport,
		Source:    l.source,
		Hour:      l.hour,
		Outcome:   o,
		Reason:    string(r),
	}
}

func lineOf(r *model.Record) line {
	return line{tenant: r.Account, transport: r.Transport, source: r.Source, hour: r.Received.Hour()}
}

// TransportCounts counts what reaches the transports and what the intake turns away. A message is counted as received where
// its packet is parsed and stays in parsed until its outcome at the intake is known: then received and refused go together
// into the next batch, or received goes into the very batch that holds the record. So whatever a crash leaves on disk is
// balanced, and the applier, which counts the outcomes of records, can still be caught losing one.
type TransportCounts struct {
	links *links.Links

	mu      sync.Mutex
	lines   tallies
	pending map[store.LedgerKey]store.LedgerCount
	forming map[store.LedgerKey]store.LedgerCount // of the batch that is being synced
	taken   map[line]int64                        // received that rides in it for its own records
	riding  map[store.LedgerKey]store.LedgerCount // synced, in batches that Apply has not read yet
}

// tally is what moves through a line at this instant.
type tally struct {
	parsed  int64             // received, neither in a batch nor turned away yet
	waiting store.LedgerCount // received and without an outcome: at the intake, or in the log before Apply. Readings are those in the log
}

// tallies has a tally per line on which something moves. The messages of one line come in a row more often than not, so
// the last one is found without the map.
type tallies struct {
	all   map[line]*tally
	last  line
	found *tally // of last
	swept int    // how many were left by the last sweep
}

func (t *tallies) of(l line) *tally {
	if t.found != nil && t.last == l {
		return t.found
	}
	n := t.all[l]
	if n == nil {
		n = &tally{}
		t.all[l] = n
	}
	t.last, t.found = l, n
	return n
}

// sweep removes the lines on which nothing moves, once there may be as many of them as of others.
func (t *tallies) sweep() {
	if len(t.all) <= 2*t.swept+16 {
		return
	}
	maps.DeleteFunc(t.all, func(_ line, n *tally) bool { return *n == tally{} })
	t.swept = len(t.all)
	t.found = nil
}

// NewTransportCounts returns the transports' side of the ledger. It is the log's spool.MetaSource.
func NewTransportCounts(l *links.Links) *TransportCounts {
	return &TransportCounts{
		links:   l,
		lines:   tallies{all: map[line]*tally{}},
		pending: map[store.LedgerKey]store.LedgerCount{},
		riding:  map[store.LedgerKey]store.LedgerCount{},
	}
}

var _ spool.MetaSource = (*TransportCounts)(nil)

func (d *TransportCounts) received(l line) {
	d.mu.Lock()
	n := d.lines.of(l)
	n.parsed++
	n.waiting.Messages++
	d.mu.Unlock()
}

// turnedAway counts a received message under its outcome at the intake.
func (d *TransportCounts) turnedAway(l line, o store.Outcome, r Reason, readings int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// Received and its outcome go into the same batch, so that the ledger balances after a crash.
	n := d.lines.of(l)
	n.parsed--
	n.waiting.Messages--
	d.count(l.key(store.OutcomeReceived, ReasonNone), store.LedgerCount{Messages: 1})
	d.count(l.key(o, r), store.LedgerCount{Messages: 1, Readings: int64(readings)})
}

func (d *TransportCounts) count(k store.LedgerKey, c store.LedgerCount) {
	have := d.pending[k]
	have.Add(c)
	d.pending[k] = have
}

// handed notes that the record of a received message is on its way to the log; returned, that the log refused it; passed, that
// Apply has decided on it.
func (d *TransportCounts) handed(l line, readings int) {
	d.move(l, store.LedgerCount{Readings: int64(readings)})
}

func (d *TransportCounts) returned(l line, readings int) { d.handed(l, -readings) }

func (d *TransportCounts) passed(l line, readings int) {
	d.move(l, store.LedgerCount{Messages: -1, Readings: -int64(readings)})
}

func (d *TransportCounts) move(l line, c store.LedgerCount) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines.of(l).waiting.Add(c)
}

// Take implements spool.MetaSource.
func (d *TransportCounts) Take(entries []spool.Entry) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken = map[line]int64{}
	// The received counts of messages in this batch ride in it.
	for i := 0; i < len(entries); {
		l, next := run(entries, i)
		if n := int64(next - i); l.transport != "" {
			d.taken[l] += n
		}
		i = next
	}
	// What comes in from now on goes into the next batch.
	d.forming, d.pending = d.pending, map[store.LedgerKey]store.LedgerCount{}
	m := batchMeta{Span: d.links.Span(), Moves: d.links.Take(), Counts: make(map[store.LedgerKey]store.LedgerCount, len(d.forming)+len(d.taken))}
	maps.Copy(m.Counts, d.forming)
	for l, n := range d.taken {
		k := l.key(store.OutcomeReceived, ReasonNone)
		c := m.Counts[k]
		c.Messages += n
		m.Counts[k] = c
		d.lines.of(l).parsed -= n
	}
	// Here, since it is called once for each batch rather than for each message.
	d.lines.sweep()
	return appendMeta(nil, m)
}

// run returns the line that the entry at i counts in, the zero one for none, and where the next one begins.
func run(entries []spool.Entry, i int) (l line, next int) {
	for next = i; next < len(entries); next++ {
		var of line
		if r, ok := entries[next].Value.(*model.Record); ok && Counted(r.Kind) {
			of = lineOf(r)
		}
		if next == i {
			l = of
		}
		if of != l {
			break
		}
	}
	return l, next
}

// Settle implements spool.MetaSource: the counts of a batch that failed wait for the next one.
func (d *TransportCounts) Settle(ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.links.Settle(ok)
	if ok {
		for k, c := range d.forming {
			d.ride(k, c)
		}
		for l, n := range d.taken {
			d.ride(l.key(store.OutcomeReceived, ReasonNone), store.LedgerCount{Messages: n})
		}
	} else {
		for k, c := range d.forming {
			d.count(k, c)
		}
		for l, n := range d.taken {
			d.lines.of(l).parsed += n
		}
	}
	d.forming, d.taken = nil, nil
}

func (d *TransportCounts) ride(k store.LedgerKey, c store.LedgerCount) {
	have := d.riding[k]
	have.Add(c)
	if have.Messages <= 0 {
		delete(d.riding, k)
		return
	}
	d.riding[k] = have
}

// read notes that Apply counts what rode in a batch.
func (d *TransportCounts) read(counts map[store.LedgerKey]store.LedgerCount) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, c := range counts {
		d.ride(k, store.LedgerCount{Messages: -c.Messages, Readings: -c.Readings})
	}
}

// Pending reports whether counts or holds wait for a batch to ride in.
func (d *TransportCounts) Pending() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.pending) > 0 || d.links.Pending()
}

// Counted reports whether records of the kind are messages of the ledger.
func Counted(k model.RecordKind) bool {
	return k == model.KindMessage || k == model.KindRaw || k == model.KindDeviceReport || k == model.KindCommandResponse
}

// live adds to the stored ledger what is not yet on disk: parsed and pending counts, and what waits at the intake or for Apply.
func (d *TransportCounts) live(add func(store.LedgerKey, store.LedgerCount)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// Each count is in one of these at a time.
	for _, m := range []map[store.LedgerKey]store.LedgerCount{d.pending, d.forming, d.riding} {
		for k, c := range m {
			add(k, c)
		}
	}
	for l, n := range d.lines.all {
		if n.parsed != 0 {
			add(l.key(store.OutcomeReceived, ReasonNone), store.LedgerCount{Messages: n.parsed})
		}
		if n.waiting != (store.LedgerCount{}) {
			add(l.key(store.OutcomeWaiting, ReasonNone), n.waiting)
		}
	}
}

// RunCounts makes a batch for the transports' counts when none came along for an interval: a clock record, which has no
// other effect. An instance that nothing reaches writes none.
func (in *Intake) RunCounts(ctx context.Context, interval time.Duration) error {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		// The next tick tries again.
		if err := in.keepCounts(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, spool.ErrClosed) {
			in.deps.Logger.Warn("the transports' counts wait for the log", "error", err)
		}
	}
}

func (in *Intake) keepCounts(ctx context.Context) error {
	if !in.deps.Counts.Pending() {
		return nil
	}
	return appendClock(ctx, in.deps.Log, in.deps.Stamp(), func(model.Offset, error) {})
}

// appendClock appends a record that says nothing but its time.
func appendClock(ctx context.Context, log spool.Log, at model.Stamp, done func(model.Offset, error)) error {
	r := &model.Record{Kind: model.KindClock, Received: at}
	return log.Append(ctx, spool.Entry{Data: model.AppendRecord(nil, r), Value: r, Exempt: true, Done: done})
}
