package trickle

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

const perSecond, burst = 20, 100

func TestAFloodIsTakenInAtItsRate(t *testing.T) {
	q := NewQueue[int](perSecond, burst, nil, nil)
	taken := 0
	for i := range 100_000 { // of ten seconds
		if q.Take(time.Duration(i) * 100 * time.Microsecond) {
			taken++
		}
	}
	if want := burst + 10*perSecond; taken < want-1 || taken > want {
		t.Errorf("%d items were taken, want %d", taken, want)
	}
}

func TestItemsAreHandedOverTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes []int
		lost := 0
		fail := error(nil)
		q := NewQueue(perSecond, burst, func(_ context.Context, ds []int) error { writes = append(writes, len(ds)); return fail },
			func(n int, err error) { lost += n })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- q.Run(ctx) }()
		q.Put(1)
		synctest.Wait()
		if len(writes) != 1 {
			t.Errorf("the first waits: %v", writes)
		}
		for range burst + 3 {
			q.Put(1)
		}
		synctest.Wait()
		if len(writes) != 1 {
			t.Errorf("those that follow do not wait: %v", writes)
		}
		time.Sleep(gather + time.Millisecond)
		synctest.Wait()
		if len(writes) != 2 || writes[1] != burst || lost != 3 {
			t.Errorf("writes of %v items, %d lost", writes, lost)
		}
		fail = errors.New("disk on fire")
		q.Put(1)
		time.Sleep(gather + time.Millisecond)
		synctest.Wait()
		if lost != 4 {
			t.Errorf("%d lost, want 4", lost)
		}
		fail = nil
		q.Put(1)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(writes) != 4 || writes[3] != 1 {
			t.Errorf("the end wrote %v", writes)
		}
	})
}
