package trickle

import (
	"context"
	"errors"
	"slices"
	"sync"
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

// kept is where items go.
type kept struct {
	mu     sync.Mutex
	fail   error
	writes []int
	lost   int
}

func (k *kept) keep(_ context.Context, items []int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writes = append(k.writes, len(items))
	return k.fail
}

func (k *kept) lose(n int, _ error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lost += n
}

func (k *kept) expect(t *testing.T, what string, lost int, writes ...int) {
	t.Helper()
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost != lost || !slices.Equal(k.writes, writes) {
		t.Errorf("%s: writes of %v items, %d lost; want %v, %d", what, k.writes, k.lost, writes, lost)
	}
}

func (k *kept) fails(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fail = err
}

func TestItemsAreHandedOverTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kept{}
		q := NewQueue(perSecond, burst, k.keep, k.lose)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- q.Run(ctx) }()
		q.Put(1)
		k.expect(t, "the first", 0, 1)
		for range burst + 3 {
			q.Put(1)
		}
		k.expect(t, "those that follow", 3, 1)
		time.Sleep(gather + time.Millisecond)
		k.expect(t, "a second later", 3, 1, burst)
		k.fails(errors.New("disk on fire"))
		q.Put(1)
		time.Sleep(gather + time.Millisecond)
		k.expect(t, "a write that fails", 4, 1, burst, 1)
		k.fails(nil)
		q.Put(1)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		k.expect(t, "the end", 4, 1, burst, 1, 1)
	})
}
