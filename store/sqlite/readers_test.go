package sqlite

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/store"
)

// hold takes n readers of a class until the returned function is called.
func hold(t *testing.T, db *DB, class store.Readers, n int) (release func()) {
	t.Helper()
	free := make(chan struct{})
	var held, ended sync.WaitGroup
	for range n {
		held.Add(1)
		ended.Go(func() {
			if err := db.For(class).Read(context.Background(), func(store.Tx) error {
				held.Done()
				<-free
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	held.Wait()
	release = sync.OnceFunc(func() { close(free); ended.Wait() })
	t.Cleanup(release)
	return release
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
