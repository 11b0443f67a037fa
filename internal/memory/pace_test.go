package memory

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestMoreGarbageMayGatherWhileMuchIsMade(t *testing.T) {
	t.Parallel()
	var cycles uint64
	var live int64
	var told []int
	p := NewPacer(256 << 20) // 32 MiB to spare
	p.cycles, p.set, p.look = 0, func(n int) { told = append(told, n) }, func() (uint64, int64) { return cycles, live }
	for _, s := range []struct {
		what   string
		cycles uint64 // in a second
		live   int64
		want   []int
	}{
		{"idle", 1, 10 << 20, nil},
		{"busy", 8, 10 << 20, []int{300}},
		{"as busy, with fewer collections", 3, 10 << 20, nil},
		{"busy with a larger heap", 4, 20 << 20, []int{150}},
		{"busy with a heap as large as what there is to spare", 6, 40 << 20, []int{100}},
		{"busy with a tiny heap", 40, 1 << 20, []int{400}},
		{"less busy", 1, 1 << 20, nil},
		{"idle again", 0, 1 << 20, []int{100}},
		{"nothing was collected yet", 9, 0, []int{400}},
	} {
		told, live = nil, s.live
		cycles += s.cycles
		if p.step(); !slices.Equal(told, s.want) {
			t.Errorf("%s: told %v, want %v", s.what, told, s.want)
		}
	}
}

func TestWhatAStartNeededIsGivenBackOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		released := 0
		p := &Pacer{percent: usualPercent, set: func(int) {}, look: func() (uint64, int64) { return 0, 0 }, release: func() { released++ }}
		go p.Run(ctx)
		time.Sleep(settled*time.Second - time.Millisecond)
		if released != 0 {
			t.Error("it is given back while the process starts")
		}
		time.Sleep(time.Hour)
		cancel()
		synctest.Wait()
		if released != 1 {
			t.Errorf("given back %d times", released)
		}
	})
}

func TestTheRuntimeReportsWhatThePacerAsks(t *testing.T) {
	t.Parallel()
	if spare := NewPacer(8 << 30).spare; spare != maxSpare {
		t.Errorf("%d to spare", spare)
	}
	sink := make([]byte, 8<<20) // brings a collection about
	before, _ := lookAtHeap()
	for range 20 {
		sink = make([]byte, 8<<20)
	}
	_ = sink
	if after, live := lookAtHeap(); after <= before || live <= 0 {
		t.Errorf("%d collections after %d, %d bytes live", after, before, live)
	}
}
