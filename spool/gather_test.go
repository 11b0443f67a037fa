package spool

import (
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/model"
)

// memory is a Committer that keeps what it commits. The zero value works.
type memory struct {
	hold    <-chan struct{} // a commit waits for it; nil: it does not wait
	broken  atomic.Bool     // commits fail until Repair
	batches [][]string
	last    model.Offset
	next    []string

	published int
}

func (m *memory) Admit(Group, Group) error { return nil }

func (m *memory) Commit(entries []Entry) (model.Offset, time.Duration, error) {
	if m.hold != nil {
		<-m.hold
	}
	if m.broken.Load() {
		return 0, 0, errors.New("no disk")
	}
	m.next = nil
	for _, e := range entries {
		m.next = append(m.next, string(e.Data))
	}
	return m.last + 1, time.Millisecond, nil
}

func (m *memory) Publish() {
	m.batches = append(m.batches, m.next)
	m.last += model.Offset(len(m.next))
	m.published++
}

func (m *memory) Retry() time.Duration {
	if m.broken.Load() {
		return time.Second
	}
	return 0
}

func (m *memory) Repair() { m.broken.Store(false) }

// gather runs a Gatherer over a committer until the test ends.
func gather(t *testing.T, c Committer, opt GatherOptions) *Gatherer {
	opt.UnsyncedBytes = max(opt.UnsyncedBytes, MinUnsynced)
	g, done := NewGatherer(c, opt), make(chan struct{})
	go func() {
		defer close(done)
		g.Run()
	}()
	t.Cleanup(func() {
		g.Close()
		<-done
	})
	return g
}

func TestAGathererServesAnyCommitter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, hold := &memory{}, make(chan struct{})
		m.hold = hold
		g := gather(t, m, GatherOptions{Interval: Auto})
		var offsets []model.Offset
		var failures []error
		add := func(texts ...string) {
			t.Helper()
			var entries []Entry
			for _, text := range texts {
				entries = append(entries, Entry{Data: []byte(text), Done: func(at model.Offset, err error) {
					if err != nil {
						failures = append(failures, err)
						return
					}
					if m.published != len(m.batches) || int(at) > int(m.last) {
						t.Error("answered before it was published")
					}
					offsets = append(offsets, at)
				}})
			}
			if err := g.Append(t.Context(), entries); err != nil {
				t.Fatal(err)
			}
		}
		add("a")
		synctest.Wait()
		add("b", "c")
		add("d")
		synctest.Wait()
		if len(offsets) != 0 || g.Unsynced() == 0 {
			t.Error(offsets, g.Unsynced())
		}
		close(hold)
		if err := g.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(offsets, []model.Offset{1, 2, 3, 4}) || len(m.batches) != 2 || !slices.Equal(m.batches[1], []string{"b", "c", "d"}) || g.Unsynced() != 0 {
			t.Error(offsets, m.batches, g.Unsynced())
		}
		m.broken.Store(true)
		add("e")
		if err := g.Sync(t.Context()); err != nil || len(failures) != 1 || m.published != 2 {
			t.Error(err, failures, m.published)
		}
		time.Sleep(time.Minute) // it is repaired without another append
		if m.broken.Load() {
			t.Error("not repaired")
		}
		add("f")
		g.Close()
		if err := g.Append(t.Context(), []Entry{{}}); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		synctest.Wait()
		if m.published != 3 || offsets[len(offsets)-1] != 5 {
			t.Error(m.batches, offsets)
		}
	})
}

// A stretched batch is not ended by the senders that have appended, and the automatic interval comes back without a restart.
func TestABatchIsStretched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var stretch atomic.Int64
		m := &memory{}
		g := gather(t, m, GatherOptions{Interval: Auto, Stretch: func() time.Duration { return time.Duration(stretch.Load()) }})
		answered := func() (after time.Duration) {
			t.Helper()
			begun, done := time.Now(), make(chan time.Duration, 1)
			if err := g.Append(t.Context(), []Entry{{Done: func(model.Offset, error) { done <- time.Since(begun) }}}); err != nil {
				t.Fatal(err)
			}
			return <-done
		}
		answered() // the first batch knows no senders
		for _, want := range []time.Duration{0, 70 * time.Millisecond, 250 * time.Millisecond, 0} {
			stretch.Store(int64(want))
			if got := answered(); got != want {
				t.Errorf("stretched to %v: answered after %v", want, got)
			}
		}
	})
}

func TestHowManyAreGathered(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flush         time.Duration
		interval      time.Duration
		senders, goal int
	}{
		{time.Millisecond, Auto, 1, 1}, {time.Millisecond, Auto, 64, 52}, {time.Millisecond, Auto, 1000, 256},
		{20 * time.Millisecond, Auto, 1, 1}, {20 * time.Millisecond, Auto, 1000, 1000},
		{time.Millisecond, time.Second, 1000, math.MaxInt},
	} {
		g := &Gatherer{flush: c.flush, senders: c.senders, opt: GatherOptions{Interval: c.interval}}
		if got := g.gathers(c.interval >= 0); got != c.goal {
			t.Errorf("%d senders, a flush of %v, interval %v: %d, want %d", c.senders, c.flush, c.interval, got, c.goal)
		}
	}
}

// TestSyncIsHeardDuringACommit: what it waits for lies in the batch after the one being synced.
func TestSyncIsHeardDuringACommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		g := gather(t, &memory{hold: hold}, GatherOptions{Interval: time.Hour})
		synced := make(chan struct{})
		for range 2 {
			if err := g.Append(t.Context(), []Entry{{Data: []byte("x")}}); err != nil {
				t.Fatal(err)
			}
			go func() {
				if err := g.Sync(t.Context()); err != nil {
					t.Error(err)
				}
				synced <- struct{}{}
			}()
			synctest.Wait()
		}
		<-g.flushNow // signaled by the second Sync before it could matter
		started := time.Now()
		close(hold)
		<-synced
		<-synced
		if time.Since(started) > 0 {
			t.Fatalf("waited %v", time.Since(started))
		}
	})
}

// TestAnAppendThatWaitsGoesOnAfterTheCommit: the next append waits for the unsynced bound until a batch is stored.
func TestAnAppendThatWaitsGoesOnAfterTheCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hold, blocked, appended := make(chan struct{}), 0, 0
		g := gather(t, &memory{hold: hold}, GatherOptions{Blocked: func() { blocked++ }})
		go func() {
			for range 4 {
				if err := g.Append(t.Context(), []Entry{{Data: make([]byte, MaxRecord)}}); err != nil {
					t.Error(err)
				}
				appended++
			}
		}()
		synctest.Wait()
		if blocked != 1 || appended != 2 {
			t.Errorf("%d waits after %d appends", blocked, appended)
		}
		close(hold)
		synctest.Wait()
		if appended != 4 {
			t.Errorf("%d appends", appended)
		}
	})
}
