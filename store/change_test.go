package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"weir/internal/test/fixture"
	"weir/store"
)

// A client that has gone, a time limit that has passed and an instance that stops end a change, so that the writer is free for others.
func TestAChangeEndsWithTheContextOfTheOneWhoAskedForIt(t *testing.T) {
	t.Parallel()
	db := fixture.Store(t)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	statements := 0
	_, err := store.Mutate(ctx, db, nil, time.Now, func(c *store.Change) error {
		for n := range int64(1000) {
			if n == 3 {
				leave()
			}
			if err := store.SetMetaInt(c, "test/abandoned", n); err != nil {
				return err
			}
			statements++
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || statements != 3 {
		t.Errorf("%d statements ran, and the change ended with %v", statements, err)
	}
	_, err = store.Mutate(t.Context(), db, nil, time.Now, func(c *store.Change) error {
		if _, kept, err := store.MetaInt(c, "test/abandoned"); err != nil || kept {
			t.Errorf("what it wrote is kept: %v, %v", kept, err)
		}
		return store.SetMetaInt(c, "test/other", 1)
	})
	if err != nil {
		t.Errorf("the next change: %v", err)
	}
}
