package storetest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"weir/store"
)

// HoldReaders takes n readers of each store, on behalf of ctx, until the test ends or release is called. It returns once all are taken.
func HoldReaders(ctx context.Context, t testing.TB, n int, stores ...store.Store) (release func()) {
	t.Helper()
	free := make(chan struct{})
	var held, ended sync.WaitGroup
	for _, st := range slices.Repeat(stores, n) {
		held.Add(1)
		ended.Go(func() {
			if err := st.Read(context.WithoutCancel(ctx), func(store.Tx) error {
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
