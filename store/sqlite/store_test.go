package sqlite

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/store"
	"weir/store/storetest"
)

// still is a clock that does not move, so that no batch ends early by its time.
func still() time.Time { return time.Unix(1_800_000_000, 0) }

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Driver{
		Schema: storetest.SQLite,
		Open: func(path string, committed func(bool, int)) (store.Store, error) {
			return open(t.Context(), path, Options{Clock: still, committed: committed}, embedded())
		},
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
