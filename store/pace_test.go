package store_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/model"
	"weir/store"
)

// The callers of a tenant write some bytes a second, and a change no more than a part of that besides its largest row; the operator
// of the machine and other tenants are not delayed by it.
func TestACallersChangesArePaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &store.Bounded{Writer: direct{}}
		change := func(by *model.Principal, rows ...int64) (time.Duration, error) {
			began := time.Now()
			err := b.Mutate(t.Context(), by, func(c *store.Change) error {
				for _, n := range rows {
					if err := c.Wrote(n << 10); err != nil {
						return err
					}
				}
				return nil
			})
			return time.Since(began), err
		}
		acme, globex := model.Service("t", "acme", 1), model.Service("t", "globex", 2)
		operator := &model.Principal{Kind: model.LocalOperator, Subject: "o", Tenant: "acme", TenantID: 1}
		wants := func(what string, took time.Duration, err error, wait time.Duration, code model.Code) {
			t.Helper()
			if took != wait || model.CodeOf(err) != code && (err != nil || code != "") {
				t.Errorf("%s: took %v, %v, want %v and %q", what, took, err, wait, code)
			}
		}
		took, err := change(acme, 300, 300)
		wants("two rows", took, err, 0, "")
		took, err = change(acme, 300, 300, 300)
		wants("three rows, more than a change may write", took, err, 0, model.CodeLimitExceeded)
		took, err = change(acme, 1000, 100, 100) // on credit: 424 KiB were left
		wants("a large row and small ones", took, err, 0, "")
		took, err = change(globex, 1)
		wants("another tenant", took, err, 0, "")
		took, err = change(operator, 5000, 5000)
		wants("the operator", took, err, 0, "")
		took, err = change(acme, 1)
		if err != nil || took < 1400*time.Millisecond || took > 1600*time.Millisecond { // of 776 KiB that are owed
			t.Errorf("the next change took %v, %v", took, err)
		}
		time.Sleep(time.Second)
		took, err = change(acme, 1500)
		wants("a document", took, err, 0, "")
		if took, err = change(acme, 1024); took < 1900*time.Millisecond || err != nil {
			t.Errorf("a second one took %v, %v", took, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.Mutate(ctx, acme, func(*store.Change) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that is gone waits: %v", err)
		}
		// What is not committed is not counted.
		time.Sleep(10 * time.Second)
		for range 10 {
			if err := b.Mutate(t.Context(), acme, func(c *store.Change) error { return errors.Join(c.Wrote(500<<10), context.Canceled) }); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		took, err = change(acme, 500)
		wants("after changes that failed", took, err, 0, "")

		// Changes at the same time take what is left, and little more.
		time.Sleep(10 * time.Second)
		var made, refused atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				err := b.Mutate(t.Context(), acme, func(c *store.Change) error {
					time.Sleep(time.Second)
					return c.Wrote(500 << 10)
				})
				switch {
				case err == nil:
					made.Add(1)
				case model.CodeOf(err) == model.CodeThrottled:
					refused.Add(1)
				}
			})
		}
		all.Wait()
		if made.Load() != 4 || refused.Load() != 4 {
			t.Errorf("%d of eight changes were made, %d refused, want 4 and 4", made.Load(), refused.Load())
		}
	})
}

// direct runs a change without a database.
type direct struct{}

func (direct) Mutate(_ context.Context, by *model.Principal, fn func(*store.Change) error) error {
	return fn(&store.Change{By: by})
}
