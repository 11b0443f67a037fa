package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/govern"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
	"weir/store/erase"
)

// erasing is an eraser over a store, with an applier that is always at the end of the log and a log of one file, unless a test says
// otherwise. It runs in a bubble: its clock is that of the bubble.
type erasing struct {
	*testing.T
	store.Store
	asked chan struct{}

	mu      sync.Mutex
	last    model.Offset
	stalled bool // the applier
	held    bool // the log
	scrub   func() (left int64, err error)
	beside  error // of what is kept beside the log
}

// inBubble runs a test with a tenant that was deleted just now, and an eraser that runs and holds tokens for so long.
func inBubble(t *testing.T, hold time.Duration, test func(e *erasing)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := fixture.Store(t)
		e := &erasing{T: t, Store: db, asked: make(chan struct{}, 1), scrub: func() (int64, error) { return 0, nil }}
		began := time.Now()
		eraser := NewEraser(Maintained{Store: scrubbed{db, e}, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
			Look: func() (time.Time, time.Duration) { return time.Now(), time.Since(began) }}, e, e, e.asked)
		e.change(func(c *store.Change) error {
			tier, err := c.Insert(`INSERT INTO tenant_tiers (created_at, updated_at, token, display_order, color) VALUES (1, 1, 'tier', 1, '')`)
			if err != nil {
				return err
			}
			id, err := c.Insert(`INSERT INTO tenants (created_at, updated_at, token, enabled, not_before, tier_id) VALUES (1, 1, 'victim', 1, 0, ?)`, tier)
			if err != nil {
				return err
			}
			return erase.Begin(c, erase.Tenant{ID: id, Token: "victim"}, c.At+1)
		})
		eraser.Hold = hold
		eraser.Elsewhere = func(token string) error {
			e.mu.Lock()
			defer e.mu.Unlock()
			if token != "victim" {
				t.Errorf("what is kept of %q is erased", token)
			}
			return e.beside
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := eraser.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		test(e)
		cancel()
		wg.Wait()
	})
}

// scrubbed is a store whose files the test scrubs.
type scrubbed struct {
	Store
	e *erasing
}

func (s scrubbed) Scrub(int64) func(context.Context) (int64, error) {
	return func(context.Context) (int64, error) {
		s.e.mu.Lock()
		defer s.e.mu.Unlock()
		return s.e.scrub()
	}
}

// Mutate implements store.Writer: the applier writes a checkpoint after each change.
func (e *erasing) Mutate(ctx context.Context, by *model.Principal, fn func(*store.Change) error) error {
	if err := (store.Direct{Store: e.Store}).Mutate(ctx, by, fn); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last++
	if e.stalled {
		return nil
	}
	return e.Store.Write(ctx, store.Durable, func(tx store.Tx) error { return store.SetCheckpointState(tx, e.last, uint64(e.last)) })
}

// Bounds and Purge implement Records.
func (e *erasing) Bounds() (first, last model.Offset) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return 1, e.last
}

func (e *erasing) Purge(to model.Offset) (model.Offset, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held {
		return 1, nil
	}
	return to + 1, nil
}

func (e *erasing) set(fn func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	fn()
}

func (e *erasing) change(fn func(*store.Change) error) {
	e.Helper()
	if err := (store.Direct{Store: e.Store}).Mutate(e.T.Context(), fixture.Operator(), fn); err != nil {
		e.Fatal(err)
	}
}

// deletion is how the deletion stands; after a while, so that a pass is over.
func (e *erasing) deletion(after time.Duration) govern.Deletion {
	e.Helper()
	time.Sleep(after)
	synctest.Wait()
	var d govern.Deletion
	if err := e.Store.Read(e.T.Context(), func(tx store.Tx) error {
		all, n, err := erase.List(tx, store.Page{}, erase.Filter{Token: "victim"})
		if err == nil && n == 1 {
			d.Deletion = all[0]
		}
		return err
	}); err != nil || d.ID == 0 {
		e.Fatal(d, err)
	}
	return d
}

// waits checks what the deletion waits for.
func (e *erasing) waits(after time.Duration, want govern.DeletionWait) {
	e.Helper()
	if d := e.deletion(after); waitOf(&d) != want {
		e.Errorf("%v after its deletion it waits for %s, want %s: %+v", time.Since(d.Epoch.Time()), waitOf(&d), want, d.Parts)
	}
}

func waitOf(d *govern.Deletion) govern.DeletionWait {
	wait, _ := d.Awaiting()
	return wait
}

func (e *erasing) reserved() (reserved bool) {
	e.Helper()
	if err := e.Store.Read(e.T.Context(), func(tx store.Tx) (err error) {
		reserved, err = erase.Reserved(tx, "victim")
		return err
	}); err != nil {
		e.Fatal(err)
	}
	return reserved
}

// letter is something that was on its way when the tenant was deleted.
func (e *erasing) letter() {
	e.Helper()
	e.change(func(c *store.Change) error {
		_, err := c.Exec(`INSERT INTO tenant_looks (created_at, updated_at, tenant_id, branding, basemap) SELECT 1, 1, id, '{}', '{}' FROM tenants WHERE token = 'victim'`)
		return err
	})
}

// An erase is over when nothing has turned up for 300 s, not a second earlier, and what turns up begins that time anew. The token is
// free 12 hours after the deletion, not when the erase is over.
func TestAnEraseWaitsUntilNothingTurnsUpAndHoldsTheToken(t *testing.T) {
	inBubble(t, govern.TokenHold, func(e *erasing) {
		e.waits(time.Second, govern.WaitSettle)
		e.waits(govern.SettleTime-10*time.Second, govern.WaitSettle)
		e.letter()
		e.waits(govern.SettleTime-time.Second, govern.WaitSettle) // the pass that finds it is up to a minute later
		if d := e.deletion(0); d.Rows() != 1 || d.Erased != 0 {
			e.Errorf("of what turned up %d rows were erased, over since %v", d.Rows(), d.Erased)
		}
		e.waits(2*time.Minute+2*time.Second, govern.WaitTokenHold)
		d := e.deletion(0)
		if since := d.CleanSince(); d.Erased < since+storeMicros(govern.SettleTime) {
			e.Errorf("erased at %v, clean since %v", d.Erased, since)
		}
		if rows := fixture.Rows(e.T, e.Store, `SELECT token FROM tenants`); len(rows) > 0 {
			e.Errorf("the rows of tenants: %v", rows)
		}
		time.Sleep(govern.TokenHold - time.Since(d.Epoch.Time()) - time.Second)
		if e.waits(0, govern.WaitTokenHold); !e.reserved() {
			e.Error("the token is free before 12 hours have passed")
		}
		if e.waits(time.Minute+time.Second, govern.WaitNone); e.reserved() {
			e.Error("the token is reserved after 12 hours")
		}
		if d := e.deletion(0); d.Completed < d.Epoch+storeMicros(govern.TokenHold) {
			e.Errorf("complete at %v, deleted at %v", d.Completed, d.Epoch)
		}
	})
}

// What keeps a part is reported as that, and is no error; an error is reported as an error. Neither lets the erase end.
func TestWhatKeepsAnEraseIsReported(t *testing.T) {
	inBubble(t, 15*time.Minute, func(e *erasing) {
		blocked := func(after time.Duration, want ...string) {
			e.Helper()
			if d := e.deletion(after); !slices.Equal(d.BlockedBy(), want) || d.Erased != 0 || len(want) > 0 && d.CleanSince() != 0 {
				e.Errorf("%q, want %q; erased %v, clean since %v", d.BlockedBy(), want, d.Erased, d.CleanSince())
			}
		}
		e.set(func() { e.stalled = true })
		blocked(2*time.Minute, "registry: the applier has not come to the end of the log")
		e.set(func() { e.stalled, e.held = false, true })
		blocked(4*time.Minute, "log: records of the tenant share a file with newer ones that are not applied, or a backup holds the log")
		e.set(func() { e.held, e.beside = false, errors.New("a file is gone") })
		blocked(2*time.Minute, "log: a file is gone")
		e.set(func() { e.beside, e.scrub = nil, func() (int64, error) { return 1, nil } })
		blocked(2*time.Minute, "blobs: a reader holds an older state of the database")
		e.set(func() { e.scrub = func() (int64, error) { return 0, errors.New("the disk is gone") } })
		blocked(2*time.Minute, "blobs: the disk is gone")
		e.waits(10*time.Minute, govern.WaitStores) // what is not empty is not over, however long it takes
		if !e.reserved() {
			e.Error("the token is free although something is left")
		}
		e.set(func() { e.scrub = func() (int64, error) { return 0, nil } })
		blocked(time.Minute)
		e.waits(0, govern.WaitSettle)
		e.waits(govern.SettleTime-2*time.Minute, govern.WaitSettle)
		e.waits(3*time.Minute, govern.WaitNone) // the token has been held for long enough meanwhile
	})
}

// A deletion is looked at when it is made, not a minute later.
func TestADeletionBeginsAtOnce(t *testing.T) {
	inBubble(t, govern.TokenHold, func(e *erasing) {
		e.waits(time.Second, govern.WaitSettle)
		e.letter()
		if d := e.deletion(time.Second); d.Rows() != 0 {
			e.Errorf("%d rows were erased without a pass", d.Rows())
		}
		e.asked <- struct{}{}
		if d := e.deletion(time.Second); d.Rows() != 1 || !strings.Contains(string(waitOf(&d)), "SETTLE") {
			e.Errorf("%d rows were erased, it waits for %s", d.Rows(), waitOf(&d))
		}
	})
}
