package app_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/app"
	"weir/ingest"
	"weir/model"
	"weir/operate"
	"weir/store"
)

// storedReadings counts what the applier applies.
type storedReadings struct {
	ingest.ProjectionBase
	n atomic.Int64
}

func (p *storedReadings) Record(_ context.Context, e *ingest.Event, _ *ingest.Effects) error {
	if e.Stored() {
		p.n.Add(1)
	}
	return nil
}

// holdReaders takes every reader of the class and of those that wait for one, until the test ends or release is called.
func holdReaders(t *testing.T, db store.Store, n int) (release func()) {
	t.Helper()
	free := make(chan struct{})
	var held, ended sync.WaitGroup
	for range n {
		held.Add(1)
		ended.Go(func() {
			if err := db.Read(context.WithoutCancel(t.Context()), func(store.Tx) error {
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

// waitFor polls a condition.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within 20 s:", what)
		}
	}
}

// TestQueriesHoldUpNeitherTheApplierNorADevice: while every reader for queries and scans is taken, and a query of the ledger
// waits for one, a device connects for the first time, its presence is noted, and its reading is applied.
func TestQueriesHoldUpNeitherTheApplierNorADevice(t *testing.T) {
	t.Parallel()
	var applied storedReadings
	in := runInstanceWith(t, app.Options{Projections: []ingest.Projection{&applied}})
	db := in.Store()
	release := holdReaders(t, db, 4)
	client, err := operate.Dial(t.Context(), in.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	asked := make(chan error, 1)
	go func() {
		_, err := operate.ShowLedger.Ask(t.Context(), client, operate.LedgerQuery{})
		asked <- err
	}()
	waitFor(t, "the query of the ledger waits", func() bool { return waitingReads(t, in.Instance, store.Queries) > 0 })
	m := in.publish(t)
	waitFor(t, "the reading is applied", func() bool { return applied.n.Load() == 1 })
	waitFor(t, "the presence is noted", func() bool {
		connected := false
		if err := db.For(store.Devices).Read(t.Context(), func(tx store.Tx) error {
			d, err := store.GetDeviceState(tx, 1)
			connected = d != nil && d.State == model.Connected
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return connected
	})
	select {
	case err := <-asked:
		t.Error("the query did not wait:", err)
	default:
	}
	release()
	if err := <-asked; err != nil {
		t.Error(err)
	}
	m.Close()
}

// waitingReads is how many reads of a class wait.
func waitingReads(t *testing.T, in *app.Instance, class store.Readers) (n float64) {
	t.Helper()
	families, err := in.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "weir_store_waiting_reads" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == class.String() {
				n = m.GetGauge().GetValue()
			}
		}
	}
	return n
}
