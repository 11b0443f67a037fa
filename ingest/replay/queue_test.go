package replay

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
)

// TestPreviewsWaitInTurnByTenant: a tenant has two at a time, and more are turned away; of those that wait the tenants take turns, and one that
// gives up leaves its place to the next.
func TestPreviewsWaitInTurnByTenant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(func() int { return 2 })
		var leave []func()
		for i := range runtime.GOMAXPROCS(0) {
			l, err := q.Enter(t.Context(), int64(100+i))
			if l == nil || err != nil {
				t.Fatal(err)
			}
			leave = append(leave, l)
		}
		var came []int64
		held := map[int64][]func(){}
		gone, giveUp := context.WithCancel(t.Context())
		enter := func(ctx context.Context, tenant int64) {
			go func() {
				l, err := q.Enter(ctx, tenant)
				if err == nil {
					came = append(came, tenant)
					held[tenant] = append(held[tenant], l)
				}
			}()
			synctest.Wait()
		}
		enter(t.Context(), 1)
		enter(t.Context(), 1)
		enter(gone, 2)
		enter(t.Context(), 3)
		if l, err := q.Enter(t.Context(), 1); l != nil || err != nil {
			t.Fatalf("a third one of a tenant came in: %v", err)
		}
		if n := q.Waiting(); n != 4 {
			t.Errorf("%d wait", n)
		}
		giveUp()
		synctest.Wait()
		leave[0]()
		synctest.Wait()
		held[1][0]()
		synctest.Wait()
		held[3][0]()
		synctest.Wait()
		if len(came) != 3 || came[0] != 1 || came[1] != 3 || came[2] != 1 {
			t.Errorf("came %v", came)
		}
		held[1][1]()
		for _, l := range leave[1:] {
			l()
		}
		if q.Running() != 0 || q.Waiting() != 0 {
			t.Errorf("%d run, %d wait", q.Running(), q.Waiting())
		}
	})
}
