package sqlite

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/store"
	"weir/store/storetest"
)

// hold takes n readers of a class until the returned function is called.
func hold(t *testing.T, db *DB, class store.Readers, n int) (release func()) {
	t.Helper()
	return storetest.HoldReaders(t.Context(), t, n, db.For(class))
}

func reads(db *DB, class store.Readers) error {
	return db.For(class).Read(context.Background(), func(tx store.Tx) error {
		var one, readOnly int
		if err := tx.QueryRow(`SELECT 1`).Scan(&one); err != nil {
			return err
		}
		if err := tx.QueryRow(`PRAGMA query_only`).Scan(&readOnly); err != nil || readOnly == 1 {
			return err
		}
		return errors.New("a reader may write")
	})
}

func TestNoClassOfReadersWaitsForAnother(t *testing.T) {
	t.Parallel()
	db := newDB(t, three[0])
	for class, n := range map[store.Readers]int{store.Queries: defaultReaders, store.Applier: 1, store.Devices: deviceReaders, store.Bulk: bulkReaders} {
		release := hold(t, db, class, n)
		if got := db.Stats().ReadersInUse; got != n {
			t.Errorf("%s: %d readers in use, want %d", class, got, n)
		}
		for _, other := range store.AllReaders {
			if other == class || class == store.Queries && other == store.Scans {
				continue
			}
			if err := reads(db, other); err != nil {
				t.Errorf("%s while all of %s are in use: %v", other, class, err)
			}
		}
		release()
	}
}

func TestScansTakeAShareOfTheReadersForQueries(t *testing.T) {
	t.Parallel()
	db := newDB(t, three[0])
	release := hold(t, db, store.Scans, scanSlots(defaultReaders))
	ctx, cancel := context.WithCancel(t.Context())
	refused := make(chan error, 1)
	go func() {
		refused <- db.For(store.Scans).Read(ctx, func(store.Tx) error { return errors.New("one too many") })
	}()
	waits := &db.readers[store.Scans].waiting
	for waits.Load() == 0 {
		select {
		case err := <-refused:
			t.Fatal("it did not wait:", err)
		default:
		}
	}
	for range 2 * defaultReaders {
		if err := reads(db, store.Queries); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-refused; !errors.Is(err, store.ErrBusy) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if n := testutil.ToFloat64(db.metrics.gaveUp.WithLabelValues("scans")); n != 1 || waits.Load() != 0 {
		t.Errorf("%v refused, %d wait", n, waits.Load())
	}
	release()
	if err := reads(db, store.Scans); err != nil {
		t.Error(err)
	}
}

func TestAScanThatWaitsBeginsWhenOneEnds(t *testing.T) {
	t.Parallel()
	db := newDB(t, three[0])
	release := hold(t, db, store.Scans, scanSlots(defaultReaders))
	done := make(chan error, 1)
	go func() { done <- reads(db, store.Scans) }()
	for db.readers[store.Scans].waiting.Load() == 0 {
		select {
		case err := <-done:
			t.Fatal("it did not wait:", err)
		default:
		}
	}
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// One tenant that asks without end has half of the readers, its scans included: another tenant and callers without one have the rest.
func TestOneTenantHasHalfOfTheReadersForQueries(t *testing.T) {
	t.Parallel()
	db := newDB(t, three[0])
	flood, other := store.ForTenant(t.Context(), 1), store.ForTenant(t.Context(), 2)
	var stores []store.Store
	for i := range tenantSlots(defaultReaders) {
		stores = append(stores, db.For([]store.Readers{store.Queries, store.Scans}[i%2]))
	}
	release := storetest.HoldReaders(flood, t, 1, stores...)
	ctx, cancel := context.WithCancel(flood)
	const more = 50
	refused := make(chan error, more)
	for i := range more {
		class := []store.Readers{store.Queries, store.Scans}[i%2]
		go func() { refused <- db.For(class).Read(ctx, func(store.Tx) error { return errors.New("one too many") }) }()
	}
	for db.shares.waiting.Load() < more {
		select {
		case err := <-refused:
			t.Fatal("it did not wait:", err)
		default:
		}
	}
	for range 2 * defaultReaders {
		for _, ctx := range []context.Context{other, t.Context()} {
			for _, class := range []store.Readers{store.Queries, store.Scans} {
				if err := db.For(class).Read(ctx, func(store.Tx) error { return nil }); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := db.For(store.Bulk).Read(flood, func(store.Tx) error { return nil }); err != nil { // other classes have readers of their own
		t.Error(err)
	}
	cancel()
	for range more {
		if err := <-refused; !errors.Is(err, store.ErrBusy) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	if n := testutil.ToFloat64(db.metrics.gaveUp.WithLabelValues("scans")) + testutil.ToFloat64(db.metrics.gaveUp.WithLabelValues("queries")); n != more || db.shares.waiting.Load() != 0 {
		t.Errorf("%v refused, %d wait", n, db.shares.waiting.Load())
	}
	release()
	if err := db.For(store.Queries).Read(flood, func(store.Tx) error { return nil }); err != nil {
		t.Error(err)
	}
	db.shares.mu.Lock()
	defer db.shares.mu.Unlock()
	if len(db.shares.all) != 0 {
		t.Errorf("%d tenants are remembered that read nothing", len(db.shares.all))
	}
}
