package ingest

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"weir/model"
	"weir/store"
)

// fates is the part of the ledger that follows from the log and is not yet written: what the doors' batches carried and
// how the applier decided. It is written with the head.
type fates struct {
	mu     sync.Mutex // whoever looks is rare
	open   map[store.LedgerKey]*store.LedgerCount
	last   store.LedgerKey // of open, most often the next one, too
	found  *store.LedgerCount
	frozen map[store.LedgerKey]*store.LedgerCount
	at     model.Offset // of the frozen ones
}

func newFates() *fates { return &fates{open: map[store.LedgerKey]*store.LedgerCount{}} }

func (f *fates) add(k store.LedgerKey, c store.LedgerCount) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.found == nil || f.last != k {
		n := f.open[k]
		if n == nil {
			n = &store.LedgerCount{}
			f.open[k] = n
		}
		f.last, f.found = k, n
	}
	f.found.Add(c)
}

func (f *fates) addAll(m map[store.LedgerKey]store.LedgerCount) {
	for k, c := range m {
		f.add(k, c)
	}
}

// freeze sets the counts up to at aside for the head.
func (f *fates) freeze(at model.Offset) {
	f.mu.Lock()
	f.frozen, f.at, f.open, f.found = f.open, at, map[store.LedgerKey]*store.LedgerCount{}, nil
	f.mu.Unlock()
}

// write adds the frozen counts to the stored ones, in one order.
func (f *fates) write(tx store.Tx) error {
	keys := make([]store.LedgerKey, 0, len(f.frozen))
	for k := range f.frozen {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compareLedgerKeys)
	for _, k := range keys {
		if err := store.AddLedger(tx, k, *f.frozen[k]); err != nil {
			return err
		}
	}
	return nil
}

func (f *fates) release() {
	f.mu.Lock()
	f.frozen = nil
	f.mu.Unlock()
}

func compareLedgerKeys(a, b store.LedgerKey) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Hour, b.Hour), cmp.Compare(a.Source, b.Source),
		cmp.Compare(a.Transport, b.Transport), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Reason, b.Reason))
}

// LedgerLine is one tenant's hour at one source: what came in, and where it ended.
type LedgerLine struct {
	Tenant   string
	Door     string // transport of the source
	Source   string
	Hour     int64 // since the epoch
	Received store.LedgerCount
	Headings map[store.Outcome]store.LedgerCount
	Reasons  []LedgerReason
}

// LedgerReason is the share of a heading that one reason has.
type LedgerReason struct {
	Heading store.Outcome
	Reason  string
	Count   store.LedgerCount
}

// Missing is by how many messages the line does not balance: positive when messages came in and ended nowhere.
func (l *LedgerLine) Missing() int64 {
	n := l.Received.Messages
	for _, c := range l.Headings {
		n -= c.Messages
	}
	return n
}

// Readings is how many readings were stored.
func (l *LedgerLine) Readings() int64 { return l.Headings[store.OutcomeStored].Readings }

// Ledger reads the ledger of a running instance: what is on disk, what waits in memory to be written with the head, and
// what the doors hold. It is consistent up to the messages that are moving at this instant.
type Ledger struct {
	store store.Store
	fates *fates
	doors *TransportCounts
}

// NewStoredLedger reads what is on disk only: the ledger of an instance that does not run.
func NewStoredLedger(st store.Store) *Ledger { return &Ledger{store: st} }

// Lines returns the ledger, newest hour first, then by tenant and door.
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
			return cmp.Or(cmp.Compare(a.Heading, b.Heading), cmp.Compare(a.Reason, b.Reason))
		})
		out = append(out, *ln)
	}
	slices.SortFunc(out, func(a, b LedgerLine) int {
		return cmp.Or(cmp.Compare(b.Hour, a.Hour), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Door, b.Door), cmp.Compare(a.Source, b.Source))
	})
	return out, nil
}

func (l *Ledger) read(ctx context.Context, flt store.LedgerFilter, add func(store.LedgerKey, store.LedgerCount)) error {
	if l.fates == nil {
		return l.store.Read(ctx, func(tx store.Tx) error { return l.stored(tx, flt, add) })
	}
	// The lock is held over the snapshot, so that frozen counts are seen once: in memory, or on disk with the head.
	l.fates.mu.Lock()
	defer l.fates.mu.Unlock()
	l.doors.live(add)
	for k, c := range l.fates.open {
		add(k, *c)
	}
	return l.store.Read(ctx, func(tx store.Tx) error {
		head, _, err := store.CheckpointState(tx)
		if err != nil {
			return err
		}
		if l.fates.frozen != nil && l.fates.at > head {
			for k, c := range l.fates.frozen {
				add(k, *c)
			}
		}
		return l.stored(tx, flt, add)
	})
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
		ln = &LedgerLine{Tenant: k.Tenant, Door: k.Transport, Source: k.Source, Hour: k.Hour, Headings: map[store.Outcome]store.LedgerCount{}}
		lines[at] = ln
	}
	if k.Outcome == store.OutcomeReceived {
		ln.Received.Add(c)
		return
	}
	have := ln.Headings[k.Outcome]
	have.Add(c)
	ln.Headings[k.Outcome] = have
	if k.Reason == "" {
		return
	}
	i := slices.IndexFunc(ln.Reasons, func(r LedgerReason) bool { return r.Heading == k.Outcome && r.Reason == k.Reason })
	if i < 0 {
		ln.Reasons = append(ln.Reasons, LedgerReason{Heading: k.Outcome, Reason: k.Reason, Count: c})
		return
	}
	ln.Reasons[i].Count.Add(c)
}
