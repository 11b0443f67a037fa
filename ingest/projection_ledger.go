package ingest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/model"
	"weir/store"
	"weir/store/erase"
)

// ledgerProjection keeps the counts of the ledger that follow from the log: what batches carry from the transports, and the
// outcome of each message. What the store does not hold yet waits in memory.
type ledgerProjection struct {
	ProjectionBase
	metrics *applyMetrics
	stored  atomic.Int64 // readings stored by this process

	mu     sync.Mutex // queries are rare
	open   map[store.LedgerKey]*store.LedgerCount
	last   store.LedgerKey // of open, most often the next one, too
	found  *store.LedgerCount
	frozen map[store.LedgerKey]*store.LedgerCount
	at     model.Offset // of the frozen ones
	gone   model.Offset // of those that were frozen last and are in the store only
}

func newLedgerProjection(m *applyMetrics) *ledgerProjection {
	return &ledgerProjection{metrics: m, open: map[store.LedgerKey]*store.LedgerCount{}}
}

func (l *ledgerProjection) add(k store.LedgerKey, c store.LedgerCount) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// The same key comes in a row most often.
	if l.found == nil || l.last != k {
		n := l.open[k]
		if n == nil {
			n = &store.LedgerCount{}
			l.open[k] = n
		}
		l.last, l.found = k, n
	}
	l.found.Add(c)
}

// addAll adds the counts that a batch carries.
func (l *ledgerProjection) addAll(m map[store.LedgerKey]store.LedgerCount) {
	for k, c := range m {
		l.add(k, c)
	}
}

// Record implements Projection: it counts a message under its outcome.
func (l *ledgerProjection) Record(_ context.Context, e *Event, _ *Effects) error {
	if e.Change.EndsTenant() {
		l.metrics.dropTenant(e.Change.Key)
	}
	if e.Outcome == "" {
		return nil
	}
	readings := int64(e.Record.Readings())
	outside := int64(e.OutOfRange)
	// Reports are kept apart: what they leave is no row that a recount could find.
	reason := e.Reason
	if e.Stored() && e.Record.Report != nil {
		reason = ReasonReport
	}
	l.add(lineOf(e.Record).key(e.Outcome, reason), store.LedgerCount{Messages: 1, Readings: readings - outside})
	if outside > 0 {
		l.add(lineOf(e.Record).key(e.Outcome, ReasonOutOfRange), store.LedgerCount{Readings: outside})
		l.metrics.marked.count(e)
	}
	if e.Stored() {
		l.metrics.stored.Inc()
		l.stored.Add(readings)
	} else {
		l.metrics.outcomes.WithLabelValues(string(e.Outcome), string(e.Reason)).Inc()
	}
	return nil
}

// Freeze implements Projection.
func (l *ledgerProjection) Freeze(at Checkpoint) {
	l.mu.Lock()
	l.frozen, l.at, l.open, l.found = l.open, at.Offset, map[store.LedgerKey]*store.LedgerCount{}, nil
	l.mu.Unlock()
}

// Publish implements Projection: the frozen counts are added to the stored ones, in one order.
func (l *ledgerProjection) Publish(tx store.Tx) error {
	keys := make([]store.LedgerKey, 0, len(l.frozen))
	for k := range l.frozen {
		keys = append(keys, k)
	}
	// One order, so that a replay writes the same bytes.
	slices.SortFunc(keys, compareLedgerKeys)
	for _, k := range keys {
		if err := store.AddLedger(tx, k, *l.frozen[k]); err != nil {
			return err
		}
	}
	return nil
}

// Release implements Projection.
func (l *ledgerProjection) Release(context.Context, WriteFunc) error {
	l.mu.Lock()
	l.frozen, l.gone = nil, l.at
	l.mu.Unlock()
	return nil
}

func compareLedgerKeys(a, b store.LedgerKey) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Hour, b.Hour), cmp.Compare(a.Source, b.Source),
		cmp.Compare(a.Transport, b.Transport), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Reason, b.Reason))
}

// LedgerLine is one tenant's hour at one source: what came in, and its outcomes.
type LedgerLine struct {
	Tenant    string
	Transport string // transport of the source
	Source    string
	Hour      int64 // since the epoch
	Received  store.LedgerCount
	Outcomes  map[store.Outcome]store.LedgerCount
	Reasons   []LedgerReason
	// OutOfRange is how many of the stored readings were outside their range and have a mark.
	OutOfRange int64
}

// LedgerReason is the share of an outcome that one reason has.
type LedgerReason struct {
	Outcome store.Outcome
	Reason  string
	Count   store.LedgerCount
}

// Missing is by how many messages the line does not balance: positive when messages came in and ended nowhere.
func (l *LedgerLine) Missing() int64 {
	n := l.Received.Messages
	for _, c := range l.Outcomes {
		n -= c.Messages
	}
	return n
}

// Readings is how many readings were stored.
func (l *LedgerLine) Readings() int64 { return l.Outcomes[store.OutcomeStored].Readings }

// Ledger reads the ledger of a running instance: what is on disk, what waits in memory for a checkpoint, and what the
// transports hold. It is consistent up to the messages that are moving at this instant.
type Ledger struct {
	store  store.Store
	memory *ledgerProjection // nil: nothing runs
	counts *TransportCounts
}

// NewStoredLedger reads what is on disk only: the ledger of an instance that does not run.
func NewStoredLedger(st store.Store) *Ledger { return &Ledger{store: st} }

// Lines returns the ledger, newest hour first, then by tenant and transport.
func (l *Ledger) Lines(ctx context.Context, flt store.LedgerFilter) ([]LedgerLine, error) {
	lines := map[line]*LedgerLine{}
	add := func(k store.LedgerKey, c store.LedgerCount) {
		if matches(flt, k) {
			addToLine(lines, k, c)
		}
	}
	if err := l.read(ctx, flt, add); err != nil {
		return nil, err
	}
	out := make([]LedgerLine, 0, len(lines))
	for _, ln := range lines {
		slices.SortFunc(ln.Reasons, func(a, b LedgerReason) int {
			return cmp.Or(cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Reason, b.Reason))
		})
		out = append(out, *ln)
	}
	slices.SortFunc(out, func(a, b LedgerLine) int {
		return cmp.Or(cmp.Compare(b.Hour, a.Hour), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Transport, b.Transport), cmp.Compare(a.Source, b.Source))
	})
	return out, nil
}

// How often, and how far apart, the ledger of a running instance is read before an imbalance of it counts: messages that are
// moving at that instant are none.
const (
	balanceReads = 4
	balancePause = 100 * time.Millisecond
)

// Imbalances returns the lines that do not balance, and how many lines there are. Of a running instance these are the lines
// that miss the same number of messages each time they are read. Tenants that are being erased are left out.
func (l *Ledger) Imbalances(ctx context.Context) (wrong []LedgerLine, all int, err error) {
	for n := range balanceReads {
		lines, err := l.Lines(ctx, store.LedgerFilter{})
		if err != nil {
			return nil, 0, err
		}
		if lines, err = l.withoutErased(ctx, lines); err != nil {
			return nil, 0, err
		}
		// Messages in flight differ from read to read: only what stays the same is missing.
		before := wrong
		all, wrong = len(lines), slices.DeleteFunc(lines, func(now LedgerLine) bool {
			return now.Missing() == 0 || n > 0 && !slices.ContainsFunc(before, now.missesAs)
		})
		if len(wrong) == 0 || l.memory == nil || n == balanceReads-1 {
			break
		}
		select {
		case <-time.After(balancePause):
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
	return wrong, all, nil
}

func (l *Ledger) withoutErased(ctx context.Context, lines []LedgerLine) ([]LedgerLine, error) {
	var erasing map[string]int64
	err := l.store.Read(ctx, func(tx store.Tx) (err error) {
		erasing, err = erase.Incomplete(tx)
		return err
	})
	return slices.DeleteFunc(lines, func(ln LedgerLine) bool {
		_, out := erasing[ln.Tenant]
		return out
	}), err
}

// missesAs reports whether the other is the same line and misses as many messages.
func (l *LedgerLine) missesAs(o LedgerLine) bool {
	return l.Tenant == o.Tenant && l.Source == o.Source && l.Hour == o.Hour && l.Missing() == o.Missing()
}

func (l *Ledger) read(ctx context.Context, flt store.LedgerFilter, add func(store.LedgerKey, store.LedgerCount)) error {
	if l.memory == nil {
		return l.store.Read(ctx, func(tx store.Tx) error { return l.stored(tx, flt, add) })
	}
	for {
		missed := false
		err := l.store.Read(ctx, func(tx store.Tx) error {
			// The snapshot says which counts it holds already. Another read follows when they have moved meanwhile.
			head, _, err := store.CheckpointState(tx)
			if err != nil {
				return err
			}
			if missed = !l.memory.report(head, l.counts, add); missed {
				return nil
			}
			return l.stored(tx, flt, add)
		})
		if err != nil || !missed {
			return err
		}
	}
}

// report adds the counts that a snapshot of the store with that checkpoint lacks; false, and nothing, when some of these left
// memory since the snapshot. The lock is never held while the store is read: the applier needs it.
func (l *ledgerProjection) report(checkpoint model.Offset, live *TransportCounts, add func(store.LedgerKey, store.LedgerCount)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone > checkpoint {
		return false
	}
	live.live(add)
	for k, c := range l.open {
		add(k, *c)
	}
	if l.frozen != nil && l.at > checkpoint {
		for k, c := range l.frozen {
			add(k, *c)
		}
	}
	return true
}

func (l *Ledger) stored(tx store.Tx, flt store.LedgerFilter, add func(store.LedgerKey, store.LedgerCount)) error {
	return store.Ledger(tx, flt, func(k store.LedgerKey, c store.LedgerCount) error {
		add(k, c)
		return nil
	})
}

func matches(flt store.LedgerFilter, k store.LedgerKey) bool {
	return (flt.Tenant == nil || k.Tenant == *flt.Tenant) && (flt.Transport == "" || k.Transport == flt.Transport) &&
		(flt.From == nil || k.Hour >= *flt.From) && (flt.To == nil || k.Hour <= *flt.To)
}

func addToLine(lines map[line]*LedgerLine, k store.LedgerKey, c store.LedgerCount) {
	at := line{tenant: k.Tenant, source: k.Source, hour: k.Hour}
	ln := lines[at]
	if ln == nil {
		ln = &LedgerLine{
			Tenant:    k.Tenant,
			Transport: k.Transport,
			Source:    k.Source,
			Hour:      k.Hour,
			Outcomes:  map[store.Outcome]store.LedgerCount{},
		}
		lines[at] = ln
	}
	// Received is the side against which all outcomes are balanced.
	if k.Outcome == store.OutcomeReceived {
		ln.Received.Add(c)
		return
	}
	have := ln.Outcomes[k.Outcome]
	have.Add(c)
	ln.Outcomes[k.Outcome] = have
	switch {
	case k.Reason == "":
		return
	case k.Outcome == store.OutcomeStored && k.Reason == string(ReasonOutOfRange):
		ln.OutOfRange += c.Readings
		return
	}
	i := slices.IndexFunc(ln.Reasons, func(r LedgerReason) bool { return r.Outcome == k.Outcome && r.Reason == k.Reason })
	if i < 0 {
		ln.Reasons = append(ln.Reasons, LedgerReason{Outcome: k.Outcome, Reason: k.Reason, Count: c})
		return
	}
	ln.Reasons[i].Count.Add(c)
}
