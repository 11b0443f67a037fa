package hub

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestASubscriberSeesWhatItsFilterTakesInOrder(t *testing.T) {
	h := New[int]("t", nil)
	even := h.Subscribe(func(v int) bool { return v%2 == 0 }, 8)
	all := h.Subscribe(nil, 8)
	for v := range 5 {
		h.Publish(v)
	}
	for _, c := range []struct {
		s    *Subscription[int]
		want []int
	}{{even, []int{0, 2, 4}}, {all, []int{0, 1, 2, 3, 4}}} {
		for _, want := range c.want {
			if got, err := c.s.Next(t.Context()); err != nil || got != want {
				t.Fatalf("got %d, %v; want %d", got, err, want)
			}
		}
	}
}

func TestASlowSubscriberGetsItsBufferThenAnError(t *testing.T) {
	h := New[int]("t", prometheus.NewRegistry())
	slow, quick := h.Subscribe(nil, 3), h.Subscribe(nil, 100)
	for v := range 10 {
		h.Publish(v)
	}
	for want := range 3 {
		if got, err := slow.Next(t.Context()); err != nil || got != want {
			t.Fatalf("got %d, %v; want %d", got, err, want)
		}
	}
	for range 2 { // and it stays told
		if _, err := slow.Next(t.Context()); !errors.Is(err, ErrSlow) {
			t.Fatalf("got %v, want ErrSlow", err)
		}
	}
	h.Publish(10)
	for want := range 11 {
		if got, err := quick.Next(t.Context()); err != nil || got != want {
			t.Fatalf("the quick one got %d, %v; want %d", got, err, want)
		}
	}
	if n := testutil.ToFloat64(h.metrics.slow); n != 1 {
		t.Errorf("slow counted %v times", n)
	}
}

func TestNextWaitsAndHeedsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New[string]("t", nil)
		s := h.Subscribe(nil, 1)
		ctx, cancel := context.WithCancel(t.Context())
		var got string
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			got, _ = s.Next(ctx)
			_, err = s.Next(ctx)
		}()
		synctest.Wait()
		h.Publish("a")
		synctest.Wait()
		cancel()
		<-done
		if got != "a" || !errors.Is(err, context.Canceled) {
			t.Errorf("got %q, then %v", got, err)
		}
	})
}

func TestClosedSubscriptionsCostThePublisherNothing(t *testing.T) {
	h := New[int]("t", nil)
	s := h.Subscribe(nil, 1)
	h.Publish(1)
	s.Close()
	s.Close()
	if h.Busy() {
		t.Error("a closed subscription still counts")
	}
	if _, err := s.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

func TestClosingTheHubEndsPresentAndLaterSubscriptions(t *testing.T) {
	h := New[int]("t", nil)
	s := h.Subscribe(nil, 1)
	h.Publish(7)
	h.Close()
	if v, err := s.Next(t.Context()); v != 7 || err != nil {
		t.Errorf("what was queued is lost: %d, %v", v, err)
	}
	for _, s := range []*Subscription[int]{s, h.Subscribe(nil, 1)} {
		if _, err := s.Next(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	}
}

func TestPublishersAndSubscribersMayRace(t *testing.T) {
	h := New[int]("t", nil)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for v := range 200 {
				h.Publish(v)
			}
		})
		wg.Go(func() {
			for range 20 {
				s := h.Subscribe(nil, 4)
				_, _ = s.Next(canceled())
				s.Close()
			}
		})
	}
	wg.Wait()
	if h.Busy() {
		t.Error("subscriptions are left over")
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func BenchmarkPublishToTen(b *testing.B) {
	h := New[int]("b", nil)
	for range 10 {
		h.Subscribe(func(v int) bool { return v < 0 }, 1)
	}
	for b.Loop() {
		h.Publish(1)
	}
}

func TestABatchIsTakenWholeAndOnlyWhoWasBehindBeforeItIsCutOff(t *testing.T) {
	t.Parallel()
	h := New[int]("test", nil)
	s := h.Subscribe(nil, 4)
	defer s.Close()
	batch := make([]int, 100)
	for i := range batch {
		batch[i] = i
	}
	h.Publish(batch...)
	for i := range batch {
		if v, err := s.Next(t.Context()); err != nil || v != i {
			t.Fatalf("value %d: %d, %v", i, v, err)
		}
	}
	h.Publish(batch...)
	h.Publish(1)
	for range batch {
		if _, err := s.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Next(t.Context()); !errors.Is(err, ErrSlow) {
		t.Errorf("who was behind got %v", err)
	}
}
