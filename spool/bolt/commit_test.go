package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/setting"
	"weir/model"
	"weir/spool"
)

// block makes the next span impossible to make; the returned function makes it possible again.
func block(t *testing.T, dir string) (unblock func()) {
	t.Helper()
	inTheWay := filepath.Join(dir, aheadName)
	if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.RemoveAll(inTheWay); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDiskThatTakesNothingIsRefusedUntilItDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, failing := t.TempDir(), errors.New("fsync: input/output error")
		var fail error
		l := open(t, dir, Options{Sync: func(sync func() error) error { return errors.Join(sync(), fail) }})
		mustStore(t, l, "one")
		unblock := block(t, dir)
		fail = failing
		if _, err := store(t, l, "lost"); !errors.Is(err, failing) || !errors.Is(err, spool.ErrUnavailable) {
			t.Fatalf("answered %v", err)
		}
		fail = nil
		time.Sleep(time.Minute) // it tries again and again
		if err := l.Append(t.Context(), spool.Entry{}); !errors.Is(err, spool.ErrUnavailable) {
			t.Fatalf("took an entry: %v", err)
		}
		if !errors.Is(l.Stats().Err, spool.ErrUnavailable) {
			t.Fatalf("state is %v", l.Stats().Err)
		}
		unblock()
		time.Sleep(2 * lastRetry)
		if err := l.Stats().Err; err != nil {
			t.Fatalf("still refuses: %v", err)
		}
		if o := mustStore(t, l, "two"); o != 2 {
			t.Fatalf("offset %d", o)
		}
		shut(t, l)
		l = open(t, dir, Options{})
		if read, err := drain(t, l, 1); read != 2 || err != nil {
			t.Fatalf("%d records, %v", read, err)
		}
	})
}

func TestEntriesQueuedAfterAFailureAreAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, hold := t.TempDir(), make(chan struct{})
		l := open(t, dir, Options{Sync: func(sync func() error) error {
			<-hold
			return errors.Join(sync(), errors.New("no"))
		}})
		block(t, dir)
		var answers []error
		done := func(_ model.Offset, err error) { answers = append(answers, err) }
		for range 3 {
			if err := l.Append(t.Context(), spool.Entry{Data: []byte("x"), Done: done}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // the first is being synced, the others queue
		}
		close(hold)
		shut(t, l)
		if len(answers) != 3 {
			t.Fatalf("%d answers", len(answers))
		}
		for _, err := range answers {
			if !errors.Is(err, spool.ErrUnavailable) {
				t.Fatalf("answered %v", err)
			}
		}
	})
}

func TestCommitThatFailsInsideTheFileMovesToANewOne(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(l *Log){
		"no page can be had": func(l *Log) { l.current.db.MaxSize = 1 },
		"the file is closed": func(l *Log) { _ = l.current.db.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l := open(t, dir, Options{})
			mustStore(t, l, "one")
			harm(l)
			if _, err := store(t, l, string(make([]byte, 100<<10))); !errors.Is(err, spool.ErrUnavailable) {
				t.Fatalf("answered %v", err)
			}
			if o := mustStore(t, l, "two"); o != 2 {
				t.Fatalf("offset %d", o)
			}
			shut(t, l)
			if n := len(spanFiles(t, dir)); n != 2 {
				t.Fatalf("%d files", n)
			}
			if read, err := drain(t, open(t, dir, Options{}), 1); read != 2 || err != nil {
				t.Fatalf("%d records, %v", read, err)
			}
		})
	}
}

func TestHookThatLeavesTheSyncOutStoresNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, Options{Sync: func(func() error) error { return nil }})
	if _, err := store(t, l, "x"); !errors.Is(err, errNotSynced) {
		t.Fatalf("answered %v", err)
	}
	shut(t, l)
	if read, err := drain(t, open(t, dir, Options{}), 1); read != 0 || err != nil {
		t.Fatalf("%d records, %v", read, err)
	}
}

func TestFailuresInARowLeaveNoFilesBehind(t *testing.T) {
	t.Parallel()
	dir, fail := t.TempDir(), errors.New("no")
	l := open(t, dir, Options{Sync: func(sync func() error) error { return errors.Join(sync(), fail) }})
	for range 5 {
		if _, err := store(t, l, "x"); !errors.Is(err, fail) {
			t.Fatalf("answered %v", err)
		}
	}
	if n := len(spanFiles(t, dir)); n != 1 {
		t.Fatalf("%d files", n)
	}
}

// TestGathering runs on a made-up clock: each commit takes what the test says. Several entries are answered with one batch;
// then as many of them as there are in again come, 2 ms apart.
func TestGathering(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		commit       time.Duration
		interval     time.Duration
		first, again int
		batches      uint64
		waited       time.Duration // from the first that comes again until all are answered
	}{
		"a slow disk waits for all that it answered":          {20 * time.Millisecond, Auto, 3, 3, 1, 24 * time.Millisecond},
		"a slow disk waits half a flush for one of two":       {20 * time.Millisecond, Auto, 2, 1, 1, 25 * time.Millisecond},
		"a slow disk does not wait for a single sender":       {20 * time.Millisecond, Auto, 1, 1, 1, 20 * time.Millisecond},
		"a fast disk waits for four of five":                  {time.Millisecond, Auto, 2, 2, 1, 3 * time.Millisecond},
		"a fast disk waits 3 ms for senders that do not come": {time.Millisecond, Auto, 5, 1, 1, 4 * time.Millisecond},
		"a fast disk does not wait for a single sender":       {time.Millisecond, Auto, 1, 2, 2, 3 * time.Millisecond},
		"configured not to wait":                              {20 * time.Millisecond, 0, 2, 2, 2, 40 * time.Millisecond},
		"configured to wait longer than it would":             {time.Millisecond, 50 * time.Millisecond, 2, 2, 1, 51 * time.Millisecond},
		"configured to wait less than the two need":           {time.Millisecond, time.Millisecond, 2, 2, 2, 4 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := open(t, t.TempDir(), Options{CommitSettings: spool.CommitSettings{CommitInterval: setting.Interval(c.interval)}, unsafe: true, Sync: func(sync func() error) error {
					time.Sleep(c.commit)
					return sync()
				}})
				appendThem(t, l, c.first, 0)
				synctest.Wait()
				time.Sleep(time.Second)
				before, began := l.Stats().Batches, time.Now()
				answered := appendThem(t, l, c.again, 2*time.Millisecond)
				if took := answered().Sub(began); took != c.waited {
					t.Errorf("waited %v, want %v", took, c.waited)
				}
				if got := l.Stats().Batches - before; got != c.batches {
					t.Errorf("%d batches, want %d", got, c.batches)
				}
			})
		})
	}
}

// appendThem appends n entries, with a pause between two; what it returns says when the last was answered.
func appendThem(t *testing.T, l *Log, n int, pause time.Duration) (answered func() time.Time) {
	t.Helper()
	if pause == 0 { // in one group, so in one batch
		if err := l.Append(t.Context(), make([]spool.Entry, n)...); err != nil {
			t.Fatal(err)
		}
		return nil
	}
	at := make(chan time.Time, n)
	for i := range n {
		if i > 0 {
			time.Sleep(pause)
		}
		if err := l.Append(t.Context(), spool.Entry{Data: []byte("x"), Done: func(model.Offset, error) { at <- time.Now() }}); err != nil {
			t.Fatal(err)
		}
	}
	return func() (last time.Time) {
		for range n {
			last = <-at
		}
		return last
	}
}

func TestSyncAndCloseDoNotWaitForMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, t.TempDir(), Options{CommitSettings: spool.CommitSettings{CommitInterval: setting.Interval(time.Hour)}})
		started := time.Now()
		for _, end := range []func(){
			func() {
				if err := l.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
			func() { shut(t, l) },
		} {
			if err := l.Append(t.Context(), spool.Entry{Data: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			end()
		}
		if time.Since(started) > 0 {
			t.Fatalf("waited %v", time.Since(started))
		}
		if l.Stats().Records != 2 {
			t.Fatalf("%d records stored", l.Stats().Records)
		}
	})
}

// TestCloseDoesNotWaitBetweenItsBatches: the second batch is not a full one.
func TestCloseDoesNotWaitBetweenItsBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		hold := make(chan struct{})
		l := open(t, t.TempDir(), Options{CommitSettings: spool.CommitSettings{CommitInterval: setting.Interval(time.Hour)}, Sync: func(sync func() error) error { <-hold; return sync() }})
		for range 3 {
			if err := l.Append(t.Context(), spool.Entry{Data: make([]byte, spool.BatchBytes/2)}); err != nil {
				t.Fatal(err)
			}
		}
		go shut(t, l)
		synctest.Wait()
		close(hold)
		shut(t, l)
		if time.Since(started) > 0 || l.Stats().Batches != 2 {
			t.Fatalf("%d batches in %v", l.Stats().Batches, time.Since(started))
		}
	})
}

func TestAppendsThatWaitAreServedInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		l := open(t, t.TempDir(), Options{UnsyncedBytes: 1, Sync: func(sync func() error) error { <-hold; return sync() }})
		whole, half := make([]byte, spool.MaxRecord), make([]byte, spool.MaxRecord/2+1)
		if err := l.Append(t.Context(), spool.Entry{Data: whole}, spool.Entry{Data: half}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		results := make(chan string, 2)
		appendLater := func(ctx context.Context, name string, size int) {
			go func() { results <- fmt.Sprint(name, l.Append(ctx, spool.Entry{Data: make([]byte, size)})) }()
			synctest.Wait()
		}
		appendLater(ctx, "large ", spool.MaxRecord)
		appendLater(t.Context(), "small ", 10)
		if len(results) != 0 {
			t.Fatalf("the small one passed the large one: %v", <-results)
		}
		cancel()
		synctest.Wait()
		got := []string{<-results, <-results}
		slices.Sort(got)
		if got[0] != "large context canceled" || got[1] != "small <nil>" {
			t.Fatalf("got %q", got)
		}
		appendLater(t.Context(), "last ", spool.MaxRecord)
		go shut(t, l)
		if got := <-results; got != "last "+spool.ErrClosed.Error() {
			t.Fatalf("got %q", got)
		}
		close(hold)
		shut(t, l)
	})
}

func TestFullBatchDoesNotWaitForMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, t.TempDir(), Options{CommitSettings: spool.CommitSettings{CommitInterval: setting.Interval(time.Hour)}})
		for range 2 {
			if err := l.Append(t.Context(), spool.Entry{Data: make([]byte, spool.BatchBytes/2)}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if s := l.Stats(); s.Batches != 1 || s.Records != 2 {
			t.Fatalf("%d records in %d batches", s.Records, s.Batches)
		}
	})
}

func TestBatchIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	l := open(t, t.TempDir(), Options{Sync: func(sync func() error) error { <-hold; return sync() }})
	for range 40 {
		if err := l.Append(t.Context(), spool.Entry{Data: make([]byte, 100<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	close(hold)
	if err := l.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := l.Reader(1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		b, err := r.TryNext()
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			return
		}
		if len(b.Records)*(100<<10) > spool.BatchBytes {
			t.Fatalf("a batch of %d records of 100 KiB", len(b.Records))
		}
	}
}

func TestMemoryForReadersIsBoundedAndGivenBack(t *testing.T) {
	t.Parallel()
	const bound = 64 << 10
	l := open(t, t.TempDir(), Options{TailBytes: bound})
	for range 100 {
		mustStore(t, l, record(0))
	}
	if held := l.tailBytes(); held > bound || held < bound/2 {
		t.Fatalf("%v bytes held for readers, bound %d", held, bound)
	}
	if read, err := drain(t, l, 1); read != 100 || err != nil {
		t.Fatalf("read %d, %v", read, err)
	}
	if held := l.tailBytes(); held != 0 {
		t.Fatalf("%v bytes held after all were read", held)
	}
	last := mustStore(t, l, record(0))
	if err := l.Trim(last); err != nil {
		t.Fatal(err)
	}
	if held := l.tailBytes(); held != 0 {
		t.Fatalf("%v bytes held after all were trimmed", held)
	}
}

func TestMetricsFollowTheLogAndLeaveWithIt(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	dir := t.TempDir()
	for range 2 { // the second opening finds no name taken
		l := open(t, dir, Options{Registerer: reg})
		mustStore(t, l, "x")
		if got := testutil.ToFloat64(l.metrics.records); got != 1 {
			t.Fatalf("%v records counted", got)
		}
		if n, err := testutil.GatherAndCount(reg, "weir_spool_bytes", "weir_spool_sync_seconds"); n != 2 || err != nil {
			t.Fatalf("%d families, %v", n, err)
		}
		if _, err := Open(t.TempDir(), Options{Registerer: reg}); err == nil {
			t.Fatal("a second log took the same names")
		}
		shut(t, l)
	}
	if all, err := reg.Gather(); len(all) != 0 || err != nil {
		t.Fatalf("%d families after closing, %v", len(all), err)
	}
}

// TestBudgetCountsWhatTheDiskTakes holds the weight of batches against the pages that bbolt really uses.
func TestBudgetCountsWhatTheDiskTakes(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"tiny": 20, "a reading": 120, "just inline": 900, "a page": 1100, "pages": 20000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t, t.TempDir(), Options{unsafe: true})
			for range 400 {
				mustStore(t, l, string(make([]byte, size)))
			}
			s := l.Stats()
			if ratio := float64(s.DiskBytes) / float64(s.Bytes); ratio < 0.6 || ratio > 1.3 {
				t.Fatalf("counted %d, the file takes %d", s.Bytes, s.DiskBytes)
			}
		})
	}
}

func TestTheLogTakesNoMoreRecordsThanItsBudgetAndMetadataChangesAlways(t *testing.T) {
	t.Parallel()
	l, err := Open(t.TempDir(), Options{Capacity: spool.Capacity{MaxRecords: 3}, unsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	put := func(n int, exempt bool) error {
		es := make([]spool.Entry, n)
		for i := range es {
			es[i] = spool.Entry{Data: []byte("x"), Exempt: exempt}
		}
		err := l.Append(t.Context(), es...)
		return errors.Join(err, l.Sync(t.Context()))
	}
	if err := errors.Join(put(2, false), put(1, false)); err != nil {
		t.Fatal(err)
	}
	if err := put(1, false); !errors.Is(err, spool.ErrFull) {
		t.Errorf("the fourth: %v", err)
	}
	if err := put(1, true); err != nil {
		t.Errorf("control: %v", err)
	}
	if err := l.Trim(2); err != nil {
		t.Fatal(err)
	}
	if err := put(2, false); !errors.Is(err, spool.ErrFull) {
		t.Errorf("two with space for one: %v", err)
	}
	if err := put(1, false); err != nil {
		t.Errorf("one with space for one: %v", err)
	}
	if s := l.Stats(); s.MaxRecords != 3 || s.Last+1-s.First != 3 {
		t.Errorf("%+v", s)
	}
}
