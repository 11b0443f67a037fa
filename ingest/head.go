package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"weir/internal/faults"
	"weir/model"
	"weir/rules"
	"weir/series"
	"weir/store"
)

// metaListening is the key under which the listening time as of the head is kept.
const metaListening = "listening"

// slice is how many small rows one transaction of a head write holds, so that the writer is never held for long.
const slice = 200

// head is where the results that wait in memory stand: what offset the stored ones contain, and what is on its way.
type head struct {
	offset  model.Offset // of the head that is written
	started model.Offset // the offset at which this process found it; batches from there on have not been counted
	gen     uint64

	since  int64       // bytes of records behind the newest cut
	weight int64       // what their batches take of the log's budget
	count  int64       // of them
	oldest model.Nanos // receive time of the first record behind it

	cut     *frozenHead   // cut in this batch, to be written when the batch is committed
	writing chan struct{} // closed when the head that is being written is
	err     error         // of that write

	// life is what a head write lives by: it outlasts the applier's own context, so that a stop finishes it.
	life context.Context
	end  context.CancelFunc
}

// frozenHead is everything that waits to be written as of one record.
type frozenHead struct {
	at        model.Offset
	gen       uint64
	listening rules.Listening
	received  model.Nanos
	timeMap   *model.TimeMap
	series    *series.Frozen
	rulePages []rules.Page
	seen      frozenSeen
}

// load reads the results as of the head.
func (a *Applier) load(tx store.Tx) error {
	var err error
	if a.head.offset, a.head.gen, err = store.CheckpointState(tx); err != nil {
		return err
	}
	a.head.started = a.head.offset
	listening, _, err := store.MetaInt(tx, metaListening)
	if err != nil {
		return err
	}
	a.listening = rules.Listening(listening)
	if err := a.loadTimes(tx); err != nil {
		return err
	}
	err = store.ViewAsOf(tx, a.head.offset, func(r store.ViewRow) error {
		if r.Kind == viewControlSequence {
			a.sequence, err = strconv.ParseUint(string(r.Body), 10, 64)
			return err
		}
		return a.view.Set(r.Kind, r.Key, r.Body)
	})
	if err != nil {
		return err
	}
	if err := a.loadRules(tx); err != nil {
		return err
	}
	return store.SeenPages(tx, a.head.gen, a.seen.load)
}

// cutWhenDue cuts the head behind the record at off when it is time. Everything it looks at is in the log, so the same
// log is cut at the same places.
func (a *Applier) cutWhenDue(ctx context.Context, off model.Offset, bytes int, received model.Nanos) error {
	h := &a.head
	h.since += int64(bytes)
	h.count++
	if h.oldest == 0 {
		h.oldest = received
		a.headSince.Store(int64(received))
	}
	due := h.since >= a.cfg.ReplayBytes || received-h.oldest >= model.Nanos(a.cfg.HeadAge) || a.Series.Bytes()+a.seen.openBytes() >= a.cfg.HeadBytes
	crowded := a.cfg.LogBytes > 0 && h.weight >= a.cfg.LogBytes || a.cfg.LogRecords > 0 && h.count >= a.cfg.LogRecords
	if !due && !crowded || a.parts.open() {
		return nil
	}
	// Nobody who looks at the rules waits for the disk meanwhile.
	a.rulesMu.Unlock()
	defer a.rulesMu.Lock()
	return a.cutHead(ctx, off, received)
}

// cutHead sets everything that waits aside as of off. A head that is still being written is waited for: two at most
// are in memory.
func (a *Applier) cutHead(ctx context.Context, off model.Offset, now model.Nanos) error {
	if err := a.commit(ctx, off); err != nil { // a cut in this batch may follow another one
		return err
	}
	a.batch = &effects{epoch: a.batch.epoch}
	a.startHead()
	if err := a.awaitHead(); err != nil {
		return err
	}
	a.rulesMu.Lock()
	pages := a.Rules.Freeze()
	a.rulesMu.Unlock()
	f := &frozenHead{at: off, gen: a.head.gen + 1, listening: a.listening, received: a.lastReceived, timeMap: a.timeMap, series: a.Series.Freeze(off), rulePages: pages}
	faults.Point("head.cut")
	f.seen = a.seen.freeze(now)
	a.seen.tell(a.metrics, now)
	a.seenHeld.Store(a.seen.altIDBytes())
	a.repeatsHeld.Store(a.seen.clientBytes)
	a.fates.freeze(off)
	a.activity.freeze()
	clear(a.transitions)
	a.head.cut, a.head.since, a.head.weight, a.head.count, a.head.oldest = f, 0, 0, 0, 0
	a.headSince.Store(0)
	return nil
}

// startHead begins to write the head that was cut, now that the batch it lies in is committed.
func (a *Applier) startHead() {
	f := a.head.cut
	if f == nil {
		return
	}
	a.head.cut = nil
	done := make(chan struct{})
	a.head.writing = done
	go func() {
		defer close(done)
		a.head.err = a.writeHead(a.head.life, f)
	}()
}

// awaitHead waits for the head that is being written, if there is one, and takes its place over.
func (a *Applier) awaitHead() error {
	if a.head.writing == nil {
		return nil
	}
	<-a.head.writing
	a.head.writing = nil
	return a.head.err
}

// writeHead writes a head in slices under a new generation that nobody sees, then flips generation and offset in one
// small durable transaction, and lets go of the log behind it. A store that refuses is asked again.
func (a *Applier) writeHead(ctx context.Context, f *frozenHead) error {
	if err := a.insist(ctx, "the head cannot be written", func() error { return a.tryHead(ctx, f) }); err != nil {
		return err
	}
	faults.Point("head.flipped")
	f.series.Release()
	a.fates.release()
	a.activity.release()
	a.head.offset, a.head.gen = f.at, f.gen
	a.metrics.heads.Inc()
	if err := a.Store.Write(ctx, store.Results, func(tx store.Tx) error { return store.SweepRulePages(tx, f.gen) }); err != nil && ctx.Err() == nil {
		a.Logger.Warn("replaced pages of rule state could not be removed; the next head does it", "error", err)
	}
	if err := a.Log.Trim(f.at); err != nil {
		return fmt.Errorf("trimming the log: %w", err)
	}
	faults.Point("head.trimmed")
	return nil
}

func (a *Applier) tryHead(ctx context.Context, f *frozenHead) error {
	write := func(fn func(store.Tx) error) error { return a.Store.Write(ctx, store.Results, fn) }
	// What an earlier try left under this generation goes first: a page may have been cut differently.
	if err := write(func(tx store.Tx) error { return store.SweepUnpublished(tx, f.gen-1) }); err != nil {
		return err
	}
	if err := f.series.Write(ctx, f.gen, write); err != nil {
		return err
	}
	faults.Point("head.series")
	if err := inSlices(write, f.rulePages, func(tx store.Tx, p rules.Page) error {
		return store.PutRulePage(tx, f.gen, store.RulePage{Page: p.ID, TenantID: p.Tenant, Body: p.Data})
	}); err != nil {
		return err
	}
	faults.Point("head.rules")
	if err := inSlices(write, a.activity.rows(), store.PutActivity); err != nil {
		return err
	}
	if err := inSlices(write, f.seen.pages(), func(tx store.Tx, p store.SeenPage) error { return store.AddSeenPage(tx, f.gen, p) }); err != nil {
		return err
	}
	faults.Point("head.flip")
	return a.Store.Write(ctx, store.Durable, func(tx store.Tx) error { return a.flip(tx, f) })
}

// loadRules fills the engine with its state as of the head and makes the versions active that were so there.
func (a *Applier) loadRules(tx store.Tx) error {
	var pages []rules.Page
	err := store.RulePages(tx, a.head.gen, func(p store.RulePage) error {
		pages = append(pages, rules.Page{Tenant: p.TenantID, ID: p.Page, Data: p.Body})
		return nil
	})
	if err != nil {
		return err
	}
	if err := a.Rules.Load(pages); err != nil {
		return err
	}
	at := rules.Position{Offset: a.head.offset, Listening: a.listening}
	for _, id := range slices.Sorted(maps.Keys(a.view.profiles)) {
		p := a.view.profiles[id]
		t := a.view.tenants[p.Tenant]
		if t == nil {
			continue
		}
		a.Rules.Install(at, rules.ProfileRef{ProfileKey: rules.ProfileKey{Tenant: t.ID, Profile: id}, TenantToken: p.Tenant, Token: p.Token,
			Version: p.Version}, p.Rules, func(e model.Edge) {
			err = errors.Join(err, fmt.Errorf("rule %s fired while its state was loaded", e.ID.Rule))
		})
	}
	return err
}

// inSlices writes rows a slice at a time.
func inSlices[T any](write func(func(store.Tx) error) error, rows []T, put func(store.Tx, T) error) error {
	for from := 0; from < len(rows); from += slice {
		part := rows[from:min(from+slice, len(rows))]
		if err := write(func(tx store.Tx) error {
			for _, r := range part {
				if err := put(tx, r); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func (a *Applier) flip(tx store.Tx, f *frozenHead) error {
	if err := f.series.Publish(tx); err != nil {
		return err
	}
	if err := a.fates.write(tx); err != nil {
		return err
	}
	if err := store.DropSeenPages(tx, seenAltIDs, f.seen.dropBefore); err != nil {
		return err
	}
	if f.seen.renew {
		if err := store.ReplaceSeenPages(tx, f.gen, seenRepeats); err != nil {
			return err
		}
	}
	if err := store.SetMetaInt(tx, metaListening, int64(f.listening)); err != nil {
		return err
	}
	if err := f.writeTimes(tx); err != nil {
		return err
	}
	return store.SetCheckpointState(tx, f.at, f.gen)
}

// stopPatience is how long the last head may take at a stop.
const stopPatience = 30 * time.Second

// stop writes a last head, so that the next start has nothing to replay. What does not get written in time is replayed.
func (a *Applier) stop() error {
	defer time.AfterFunc(stopPatience, a.head.end).Stop()
	defer a.head.end()
	if err := a.awaitHead(); err != nil {
		return err
	}
	if a.head.since == 0 || a.parts.open() || a.batch == nil || a.Stalled() != "" {
		return nil
	}
	if err := a.cutHead(a.head.life, a.Applied(), a.lastReceived); err != nil {
		return err
	}
	a.startHead()
	return a.awaitHead()
}
