package upkeep

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/govern"
	"weir/ingest"
	"weir/internal/faults"
	"weir/model"
	"weir/store"
	"weir/store/erase"
)

const (
	// eraseEvery is how often it is looked what is left of deleted tenants.
	eraseEvery = time.Minute
	// eraseWait is how long a pass waits for the applier, for a checkpoint, and for the files of the database; the next pass goes on.
	eraseWait = 30 * time.Second
	erasePoll = 20 * time.Millisecond
	// endRows is how many rows of the metadata one change ends: for a device the applier removes all that is alive of it.
	endRows  = 100
	endPause = 10 * time.Millisecond
)

// Records is the log, as far as an erase needs it.
type Records interface {
	Bounds() (first, last model.Offset)
	Purge(to model.Offset) (kept model.Offset, err error)
}

// Eraser erases deleted tenants, see DESIGN.md.
type Eraser struct {
	Maintained
	Writer  store.Writer
	Records Records
	// Elsewhere removes what is kept of a tenant beside the database and the log, once nothing of it is in the log; nil: nothing is.
	Elsewhere func(token string) error
	// Asked is signalled when a tenant was deleted.
	Asked <-chan struct{}
	// Every is the time between two passes, Settle how long nothing may turn up until the erase is over, Hold how long the token is
	// reserved.
	Every, Settle, Hold time.Duration

	rows     int             // of a step
	scrubbed map[int64]int64 // by deletion: how many rows it had erased when the files of the database were scrubbed last
	open     atomic.Int64    // deletions that are not complete, as of the last pass
	erased   *prometheus.CounterVec
}

// NewEraser returns the eraser of an instance.
func NewEraser(k Maintained, w store.Writer, records Records, asked <-chan struct{}) *Eraser {
	e := &Eraser{Maintained: k, Writer: w, Records: records, Asked: asked, rows: sweepRows, scrubbed: map[int64]int64{},
		Every: faults.Wait("erase.every", eraseEvery), Settle: faults.Wait("erase.settle", govern.SettleTime), Hold: faults.Wait("erase.hold", govern.TokenHold),
		erased: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_tenant_erased_rows_total",
			Help: "Rows of deleted tenants that were erased, by store."}, []string{"store"})}
	for _, p := range erase.Parts {
		e.erased.WithLabelValues(string(p))
	}
	k.Metrics.MustRegister(e.erased, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_tenant_erases_open",
		Help: "Deleted tenants of which something may be left."}, func() float64 { return float64(e.open.Load()) }))
	return e
}

// Run erases, now and whenever a tenant was deleted, until ctx ends.
func (e *Eraser) Run(ctx context.Context) error {
	t := time.NewTicker(e.Every)
	defer t.Stop()
	for {
		if err := e.Pass(ctx); err != nil && ctx.Err() == nil {
			e.Log.Warn("a deleted tenant could not be erased completely; it is tried again", "error", err, "again", e.Every.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.Asked:
		case <-t.C:
		}
	}
}

// Pass goes over all deletions that are not complete.
func (e *Eraser) Pass(ctx context.Context) error {
	var open []erase.Deletion
	if err := e.Store.Read(ctx, func(tx store.Tx) (err error) {
		open, err = erase.Open(tx)
		return err
	}); err != nil {
		return err
	}
	e.count(open)
	defer e.count(open)
	var errs []error
	for i := range open {
		if err := e.pass(ctx, &open[i]); err != nil {
			errs = append(errs, fmt.Errorf("tenant %s: %w", open[i].Token, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// count notes of how many deleted tenants something may be left.
func (e *Eraser) count(all []erase.Deletion) {
	n := int64(0)
	for i := range all {
		if all[i].Erased == 0 {
			n++
		}
	}
	e.open.Store(n)
}

// pass does for one deletion what can be done now. Every step of it can be done again, so a process may end at any point.
func (e *Eraser) pass(ctx context.Context, d *erase.Deletion) error {
	if d.Erased == 0 {
		if err := e.empty(ctx, d); err != nil {
			return err
		}
		if err := e.finish(ctx, d); err != nil {
			return err
		}
	}
	if d.Erased == 0 || e.now() < d.Epoch+storeMicros(e.Hold) {
		return nil
	}
	if err := e.Store.Write(ctx, store.Durable, func(tx store.Tx) error { return erase.Complete(tx, d, e.now()) }); err != nil {
		return err
	}
	e.Log.Info("the deletion of a tenant is complete, its token is free again", "tenant", d.Token)
	return nil
}

func (e *Eraser) now() model.Micros {
	wall, _ := e.Look()
	return model.MicrosOf(wall)
}

// empty removes what is there of the tenant: from memory, then the rows, then the log, then the files of the database.
func (e *Eraser) empty(ctx context.Context, d *erase.Deletion) error {
	head, err := e.end(ctx, d)
	if err != nil {
		return e.note(ctx, d, erase.Registry, err)
	}
	faults.Point("erase.ended")
	if part, err := e.remove(ctx, d); err != nil {
		return e.note(ctx, d, part, err)
	}
	for _, p := range []erase.Part{erase.Registry, erase.Events, erase.State, erase.Detection} {
		if err := e.note(ctx, d, p, nil); err != nil {
			return err
		}
	}
	faults.Point("erase.rows")
	purged := e.purge(ctx, head)
	if purged == nil && e.Elsewhere != nil {
		purged = e.Elsewhere(d.Token)
	}
	if err := e.note(ctx, d, erase.Log, purged); err != nil {
		return err
	}
	faults.Point("erase.purged")
	if err := e.note(ctx, d, erase.Blobs, e.scrub(ctx, d)); err != nil {
		return err
	}
	faults.Point("erase.scrubbed")
	return nil
}

// retained is why something cannot go yet; it is no failure.
type retained string

func (r retained) Error() string { return string(r) }

const (
	waitsForApplier = retained("the applier has not come to the end of the log")
	waitsForLog     = retained("records of the tenant share a file with newer ones that are not applied, or a backup holds the log")
	waitsForFiles   = retained("a reader holds an older state of the database")
)

// note writes down what has come of a part, and returns what is an error of the pass.
func (e *Eraser) note(ctx context.Context, d *erase.Deletion, part erase.Part, result error) error {
	p := erase.Progress{Part: part, Complete: result == nil, Attempted: e.now()}
	if r, ok := errors.AsType[retained](result); ok {
		p.Retaining = string(r)
	} else if result != nil {
		p.LastError = result.Error()
	}
	err := e.Store.Write(ctx, store.Durable, func(tx store.Tx) error { return erase.Note(tx, d.ID, p) })
	return errors.Join(result, err)
}

// end ends the tenant for the applier: the rows of the metadata that belong to it, slice by slice, with which all that is in memory of
// its devices and rules goes, and its own row at last. It returns a checkpoint after which no result of the tenant is in memory
// or comes of the log.
func (e *Eraser) end(ctx context.Context, d *erase.Deletion) (head model.Offset, err error) {
	for after := (erase.ViewKey{}); ; {
		var rows []erase.ViewKey
		if err := e.Store.Read(ctx, func(tx store.Tx) (err error) {
			rows, err = erase.Effective(tx, d.Tenant, after, endRows)
			return err
		}); err != nil {
			return 0, err
		}
		if len(rows) == 0 {
			break
		}
		if err := e.Writer.Mutate(ctx, nil, func(c *store.Change) error {
			for _, r := range rows {
				c.View(model.ViewChange{Kind: r.Kind, Key: r.Key})
			}
			return nil
		}); err != nil {
			return 0, err
		}
		after = rows[len(rows)-1]
		if err := e.pause(ctx, endPause); err != nil {
			return 0, err
		}
	}
	if head, err = e.checkpoint(ctx, model.ViewChange{Kind: model.ViewTenant, Key: d.Token}); err != nil {
		return 0, err
	}
	passed := false
	err = e.Store.Read(ctx, func(tx store.Tx) (err error) {
		passed, err = erase.Passed(tx, d.Tenant)
		return err
	})
	if err == nil && !passed {
		err = waitsForApplier
	}
	return head, err
}

// checkpoint makes changes of the metadata, waits for a checkpoint after all that is in the log now, and returns it. On a quiet
// instance there would be none.
func (e *Eraser) checkpoint(ctx context.Context, changes ...model.ViewChange) (head model.Offset, err error) {
	_, last := e.Records.Bounds()
	if err := e.Writer.Mutate(ctx, nil, func(c *store.Change) error {
		c.View(append(changes, model.ViewChange{Kind: model.ViewCheckpoint})...)
		return nil
	}); err != nil {
		return 0, err
	}
	return head, e.until(ctx, waitsForApplier, func() (bool, error) {
		err := e.Store.Read(ctx, func(tx store.Tx) (err error) {
			head, _, err = store.CheckpointState(tx)
			return err
		})
		return head > last, err
	})
}

// until asks until the answer is yes, for a while.
func (e *Eraser) until(ctx context.Context, otherwise retained, yes func() (bool, error)) error {
	for left := eraseWait; ; left -= erasePoll {
		ok, err := yes()
		switch {
		case err != nil || ok:
			return err
		case left <= 0:
			return otherwise
		}
		if err := e.pause(ctx, erasePoll); err != nil {
			return err
		}
	}
}

func (e *Eraser) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// remove removes the rows, in steps like those of retention. It returns the part in which it failed.
func (e *Eraser) remove(ctx context.Context, d *erase.Deletion) (part erase.Part, err error) {
	finder := erase.Finder{Tenant: d.Tenant}
	for {
		var found *erase.Found
		if err := e.Store.Read(ctx, func(tx store.Tx) (err error) {
			found, err = finder.Next(tx, sweepPlan)
			return err
		}); err != nil {
			return erase.Registry, err
		}
		if found == nil {
			return erase.Events, e.altIDs(ctx, d)
		}
		var n int64
		if err := e.inSteps(ctx, &e.rows, found.Rows, func(tx store.Tx, limit int) (err error) {
			if n, err = found.Remove(tx, limit); err != nil {
				return fmt.Errorf("%s: %w", found.Table, err)
			}
			return erase.Erased(tx, d.ID, found.Part, n)
		}, func() {
			faults.Point("erase.step")
			e.erased.WithLabelValues(string(found.Part)).Add(float64(n))
		}); err != nil {
			return found.Part, err
		}
	}
}

// pagesAtOnce is how many pages of altIds are rewritten between two reads.
const pagesAtOnce = 8

// altIDs removes the altIds of the tenant from the pages that it shares with others.
func (e *Eraser) altIDs(ctx context.Context, d *erase.Deletion) error {
	for after := int64(0); ; {
		var pages []store.SeenPage
		var erased []int
		if err := e.Store.Read(ctx, func(tx store.Tx) error {
			return store.SeenPages(tx, math.MaxInt64, func(p store.SeenPage) error {
				if p.ID <= after || len(pages) == pagesAtOnce {
					return nil
				}
				body, n, err := ingest.EraseAltIDs(p, d.Tenant.ID)
				if n > 0 {
					p.Body = body
					pages, erased = append(pages, p), append(erased, n)
				}
				return err
			})
		}); err != nil || len(pages) == 0 {
			return err
		}
		for i, p := range pages {
			if err := e.step(ctx, 1, func(tx store.Tx, _ int) error {
				return errors.Join(store.SetSeenPage(tx, p), erase.Erased(tx, d.ID, erase.Events, int64(erased[i])))
			}); err != nil {
				return err
			}
			faults.Point("erase.page")
			e.erased.WithLabelValues(string(erase.Events)).Add(float64(erased[i]))
			if err := e.pause(ctx, sweepPause); err != nil {
				return err
			}
			after = p.ID
		}
	}
}

// purge removes the log up to a checkpoint from the disk. The file that holds its end takes no further record; it goes once a
// checkpoint lies behind all that it holds.
func (e *Eraser) purge(ctx context.Context, to model.Offset) error {
	for range 3 { // a record may have slipped into the file before it was closed
		kept, err := e.Records.Purge(to)
		if err != nil || kept > to {
			return err
		}
		if _, err := e.checkpoint(ctx); err != nil {
			return err
		}
		if err := e.until(ctx, waitsForLog, func() (bool, error) {
			kept, err = e.Records.Purge(to)
			return kept > to, err
		}); err == nil || !errors.Is(err, waitsForLog) {
			return err
		}
	}
	return waitsForLog
}

// scrub leaves nothing of removed rows in the files of the database. It reads all of it, so it is done again only when further rows
// have turned up, or after a restart.
func (e *Eraser) scrub(ctx context.Context, d *erase.Deletion) error {
	if err := e.reread(ctx, d); err != nil {
		return err
	}
	if rows, ok := e.scrubbed[d.ID]; ok && rows == d.Rows() {
		return nil
	}
	step, before := e.Store.Scrub(spaceStep), int64(math.MaxInt64)
	for idle := eraseWait; idle > 0; {
		left, err := step(ctx)
		if err != nil {
			return err
		}
		if left == 0 {
			e.scrubbed[d.ID] = d.Rows()
			return nil
		}
		if left < before {
			idle = eraseWait
		} else {
			idle -= spacePause
		}
		before = left
		if err := e.pause(ctx, spacePause); err != nil {
			return err
		}
	}
	return waitsForFiles
}

// reread brings a deletion up to what its journal says now.
func (e *Eraser) reread(ctx context.Context, d *erase.Deletion) error {
	return e.Store.Read(ctx, func(tx store.Tx) error {
		all, err := erase.Open(tx)
		for i := range all {
			if all[i].ID == d.ID {
				*d = all[i]
			}
		}
		return err
	})
}

// finish ends the erase once nothing has turned up for long enough.
func (e *Eraser) finish(ctx context.Context, d *erase.Deletion) error {
	if err := e.reread(ctx, d); err != nil {
		return err
	}
	since, now := d.CleanSince(), e.now()
	if since == 0 || now < since+storeMicros(e.Settle) {
		return nil
	}
	if err := e.Writer.Mutate(ctx, nil, func(c *store.Change) error { return erase.Finish(c, d) }); err != nil {
		return err
	}
	faults.Point("erase.finished")
	d.Erased = now
	delete(e.scrubbed, d.ID)
	e.Log.Info("a deleted tenant is erased", "tenant", d.Token, "rows", d.Rows())
	return nil
}
