package spooltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/model"
	"weir/spool"
)

func testOrder(t *testing.T, open Opener) {
	l := opened(t, open, Options{})
	a := newAnswers()
	for i := range 500 {
		must(t, l.Append(deadline(t), spool.Entry{Data: fmt.Appendf(nil, "r%d", i), Done: a.done}))
	}
	got := a.wait(t, 500)
	for i, g := range got {
		if g.err != nil || g.offset != model.Offset(i+1) {
			t.Fatalf("answer %d is %+v", i, g)
		}
	}
	records := readAll(t, l, 1)
	for i := range 500 {
		if records[model.Offset(i+1)] != fmt.Sprintf("r%d", i) {
			t.Fatalf("offset %d holds %q", i+1, records[model.Offset(i+1)])
		}
	}
	must(t, l.Close())
	if a.count() != 500 {
		t.Fatalf("%d answers to 500 entries", a.count())
	}
}

func testHeldSync(t *testing.T, open Opener) {
	g := newGate()
	l := opened(t, open, Options{Sync: g.sync})
	put(t, l, "before")
	r, err := l.Reader(2)
	must(t, err)
	defer r.Close()
	release := g.hold()
	defer release()
	a := newAnswers()
	must(t, l.Append(deadline(t), spool.Entry{Data: []byte("held"), Done: a.done}))
	<-g.inside
	if b, err := r.TryNext(); b != nil || err != nil {
		t.Fatalf("readable before its sync: %v, %v", b, err)
	}
	if _, last := l.Bounds(); last != 1 || a.count() != 0 {
		t.Fatalf("last %d, %d answers before the sync", last, a.count())
	}
	if l.Stats().UnsyncedBytes < int64(len("held")) {
		t.Fatalf("unsynced bytes %d", l.Stats().UnsyncedBytes)
	}
	release()
	if got := a.wait(t, 1)[0]; got.err != nil || got.offset != 2 {
		t.Fatalf("answered %+v", got)
	}
	b, err := r.Next(deadline(t))
	must(t, err)
	if string(b.Records[0].Data) != "held" {
		t.Fatalf("read %q", b.Records[0].Data)
	}
}

func testFailedSync(t *testing.T, open Opener) {
	broken := errors.New("the disk said no")
	for name, fail := range map[string]func(*gate){
		"before anything is written": func(g *gate) { g.fail(broken, nil) },
		"after all was written":      func(g *gate) { g.fail(nil, broken) },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			opt := Options{Place: t.TempDir(), Sync: g.sync}
			l := opened(t, open, opt)
			want := map[model.Offset]string{}
			want[put(t, l, "good")] = "good"
			fail(g)
			a := newAnswers()
			for range 3 {
				must(t, l.Append(deadline(t), spool.Entry{Data: []byte("lost"), Done: a.done}))
				must(t, l.Sync(deadline(t)))
			}
			for _, got := range a.wait(t, 3) {
				wantError(t, got.err, broken)
				wantError(t, got.err, spool.ErrUnavailable)
				if got.offset != 0 {
					t.Fatalf("a failed entry got offset %d", got.offset)
				}
			}
			g.fail(nil, nil)
			want[put(t, l, "after")] = "after"
			same(t, readAll(t, l, 1), want)
			must(t, l.Close())
			l = opened(t, open, opt)
			same(t, readAll(t, l, 1), want)
			want[put(t, l, "again")] = "again"
			same(t, readAll(t, l, 1), want)
		})
	}
}

func testFull(t *testing.T, open Opener) {
	const budget = 512 << 10
	l := opened(t, open, Options{MaxBytes: budget, SpanBytes: 64 << 10})
	data := bytes.Repeat([]byte("x"), 8<<10)
	fill := func(exempt bool) (stored int64, err error) {
		for {
			if err := l.Append(deadline(t), spool.Entry{Data: data, Exempt: exempt}); err != nil {
				must(t, l.Sync(deadline(t)))
				return stored, err
			}
			stored += int64(len(data))
			if stored%(256<<10) == 0 {
				must(t, l.Sync(deadline(t)))
			}
			if stored > budget+2*Reserve {
				return stored, nil
			}
		}
	}
	stored, err := fill(false)
	wantError(t, err, spool.ErrFull)
	if stored > budget || stored < budget/2 {
		t.Fatalf("a budget of %d took %d", budget, stored)
	}
	if s := l.Stats(); s.MaxBytes != budget || s.Bytes < budget*8/10 || s.UnsyncedBytes != 0 {
		t.Fatalf("full at %d of %d, %d unsynced", s.Bytes, s.MaxBytes, s.UnsyncedBytes)
	}
	reserve, err := fill(true)
	wantError(t, err, spool.ErrFull)
	if reserve < Reserve/2 || reserve > Reserve+budget {
		t.Fatalf("a reserve of %d took %d", Reserve, reserve)
	}
	_, last := l.Bounds()
	must(t, l.Trim(last))
	if l.Stats().Bytes != 0 {
		t.Fatalf("%d bytes kept after all is trimmed", l.Stats().Bytes)
	}
	put(t, l, "space again")
}

func testTooLarge(t *testing.T, open Opener) {
	l := opened(t, open, Options{})
	done := func(model.Offset, error) { t.Error("answered an entry that was refused") }
	err := l.Append(deadline(t), spool.Entry{Data: make([]byte, spool.MaxRecord+1), Done: done})
	wantError(t, err, spool.ErrTooLarge)
	largest := string(make([]byte, spool.MaxRecord))
	at := put(t, l, "", largest)
	if got := readAll(t, l, 1); got[at] != largest || got[at-1] != "" || len(got) != 2 {
		t.Fatal("the largest and the empty record did not come back")
	}
}

func testGroup(t *testing.T, open Opener) {
	g := newGate()
	l := opened(t, open, Options{Sync: g.sync})
	a := newAnswers()
	group := func(fill byte) []spool.Entry {
		var es []spool.Entry
		for range 3 { // more than a batch would hold of entries that came one by one
			es = append(es, spool.Entry{Data: bytes.Repeat([]byte{fill}, 600<<10), Done: a.done})
		}
		return es
	}
	must(t, l.Append(deadline(t), group(1)...))
	must(t, l.Append(deadline(t), spool.Entry{Data: []byte("alone"), Done: a.done}))
	must(t, l.Append(deadline(t), group(2)...))
	must(t, l.Sync(deadline(t)))
	r, err := l.Reader(1)
	must(t, err)
	defer r.Close()
	counts := map[byte]int{}
	for range 3 {
		b, err := r.TryNext()
		must(t, err)
		if b == nil {
			break
		}
		here := map[byte]int{}
		for _, rec := range b.Records {
			here[rec.Data[0]]++
		}
		for fill, n := range here {
			if fill != 'a' && n != 3 {
				t.Errorf("a batch holds %d of a group of 3", n)
			}
			counts[fill] += n
		}
	}
	if counts[1] != 3 || counts[2] != 3 || counts['a'] != 1 {
		t.Errorf("read %v", counts)
	}
	es := make([]spool.Entry, spool.MaxGroupEntries+1)
	wantError(t, l.Append(deadline(t), es...), spool.ErrTooLarge)
	wantError(t, l.Append(deadline(t), append(group(3), group(4)...)...), spool.ErrTooLarge)
}

func testUnsyncedBound(t *testing.T, open Opener) {
	g := newGate()
	l := opened(t, open, Options{UnsyncedBytes: 1, Sync: g.sync})
	release := g.hold()
	defer release()
	a := newAnswers()
	n := 0
	for size := int64(0); size <= MaxUnsynced; n++ {
		data := make([]byte, 64<<10)
		size += int64(len(data))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err := l.Append(ctx, spool.Entry{Data: data, Done: a.done})
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		must(t, err)
	}
	if unsynced := l.Stats().UnsyncedBytes; unsynced > MaxUnsynced {
		t.Fatalf("%d unsynced bytes were taken", unsynced)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	wantError(t, l.Append(ended, spool.Entry{Data: make([]byte, 64<<10), Done: a.done}), context.Canceled)
	// One that waits gets in once the batch is synced.
	waited := make(chan error, 1)
	go func() {
		waited <- l.Append(t.Context(), spool.Entry{Data: make([]byte, 64<<10), Done: a.done})
	}()
	release()
	must(t, <-waited)
	a.wait(t, n+1)
	must(t, l.Close())
	if a.count() != n+1 {
		t.Fatalf("%d answers to %d entries", a.count(), n+1)
	}
}

// counter is a MetaSource that gives how many entries it has seen in batches that were not reported as stored.
type counter struct {
	mu             sync.Mutex
	unsaved, taken int
	turns          []string
}

func (c *counter) Take(entries []spool.Entry) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turns = append(c.turns, "take")
	c.unsaved += len(entries)
	c.taken = c.unsaved
	return fmt.Appendf(nil, "%d", c.taken)
}

func (c *counter) Settle(ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turns = append(c.turns, "settle")
	if ok {
		c.unsaved -= c.taken
	}
}

func testMeta(t *testing.T, open Opener) {
	g, c := newGate(), &counter{}
	opt := Options{Place: t.TempDir(), Sync: g.sync, Meta: c}
	l := opened(t, open, opt)
	put(t, l, "one")
	g.fail(errors.New("no"), nil)
	a := newAnswers()
	must(t, l.Append(deadline(t), spool.Entry{Data: []byte("lost"), Done: a.done}))
	a.wait(t, 1)
	g.fail(nil, nil)
	put(t, l, "two")
	check := func(l spool.Log) {
		r, err := l.Reader(1)
		must(t, err)
		defer r.Close()
		for _, want := range []string{"1", "2"} {
			b, err := r.Next(deadline(t))
			must(t, err)
			if string(b.Meta) != want {
				t.Fatalf("batch of %d carries meta %q, want %q", b.First, b.Meta, want)
			}
		}
	}
	check(l)
	must(t, l.Close())
	for i, turn := range c.turns {
		if want := []string{"take", "settle"}[i%2]; turn != want {
			t.Fatalf("meta was called out of turn: %v", c.turns)
		}
	}
	opt.Meta = nil
	check(opened(t, open, opt))
}

func testClose(t *testing.T, open Opener) {
	g := newGate()
	l := opened(t, open, Options{Sync: g.sync})
	r, err := l.Reader(1)
	must(t, err)
	defer r.Close()
	release := g.hold()
	a := newAnswers()
	const n = 200
	for i := range n {
		must(t, l.Append(deadline(t), spool.Entry{Data: fmt.Appendf(nil, "r%d", i), Done: a.done}))
	}
	<-g.inside
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	release()
	must(t, <-closed)
	if a.count() != n {
		t.Fatalf("%d answers at Close, want %d", a.count(), n)
	}
	for _, got := range a.wait(t, n) {
		must(t, got.err)
	}
	wantError(t, l.Append(t.Context(), spool.Entry{Data: []byte("late")}), spool.ErrClosed)
	wantError(t, l.Trim(1), spool.ErrClosed)
	_, err = l.Reader(1)
	wantError(t, err, spool.ErrClosed)
	seen := 0
	for {
		b, err := r.Next(deadline(t))
		if errors.Is(err, spool.ErrClosed) {
			break
		}
		must(t, err)
		seen += len(b.Records)
	}
	if seen != n {
		t.Fatalf("a reader drained %d records of a closed log, want %d", seen, n)
	}
	must(t, l.Close())
}

func testSync(t *testing.T, open Opener) {
	g := newGate()
	l := opened(t, open, Options{Sync: g.sync})
	must(t, l.Sync(deadline(t)))
	release := g.hold()
	defer release()
	a := newAnswers()
	must(t, l.Append(deadline(t), spool.Entry{Data: []byte("x"), Done: a.done}))
	<-g.inside
	ended, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	wantError(t, l.Sync(ended), context.DeadlineExceeded)
	release()
	must(t, l.Sync(deadline(t)))
	if a.count() != 1 {
		t.Fatal("Sync returned before the answer")
	}
}

// testConcurrent has appenders, two readers, one of them slow to begin, and trims at once.
func testConcurrent(t *testing.T, open Opener) {
	const writers, each = 8, 250
	opt := Options{Place: t.TempDir(), SpanBytes: 32 << 10, TailBytes: 16 << 10}
	l := opened(t, open, opt)
	r, err := l.Reader(1)
	must(t, err)
	ctx := deadline(t)
	var mu sync.Mutex
	acked := map[model.Offset]string{}
	var appenders, others sync.WaitGroup
	for w := range writers {
		appenders.Go(func() {
			for i := range each {
				data := fmt.Sprintf("%d/%d/%s", w, i, bytes.Repeat([]byte("."), i))
				err := l.Append(ctx, spool.Entry{Data: []byte(data), Value: data, Done: func(o model.Offset, err error) {
					mu.Lock()
					defer mu.Unlock()
					if err != nil || acked[o] != "" {
						t.Errorf("offset %d: error %v, held %q", o, err, acked[o])
					}
					acked[o] = data
				}})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	got := map[model.Offset]string{}
	others.Go(func() {
		defer r.Close()
		for len(got) < writers*each {
			b, err := r.Next(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			for i, rec := range b.Records {
				got[b.First+model.Offset(i)] = string(rec.Data)
			}
			if err := l.Trim(b.First - 1); err != nil {
				t.Error(err)
			}
		}
	})
	others.Go(func() { chase(ctx, t, l, writers*each) })
	appenders.Wait()
	must(t, l.Sync(ctx))
	others.Wait()
	same(t, got, acked)
	inOrderPerWriter(t, got, writers, each)
	must(t, l.Close())
	for o, data := range readAll(t, opened(t, open, opt), first(l)) {
		if acked[o] != data {
			t.Fatalf("after opening again offset %d holds %.20q, want %.20q", o, data, acked[o])
		}
	}
}

func first(l spool.Log) model.Offset {
	first, _ := l.Bounds()
	return first
}

// chase reads while a trim runs: it may only fail with ErrTrimmed, and then begins again at the first record.
func chase(ctx context.Context, t *testing.T, l spool.Log, upTo model.Offset) {
	for {
		r, err := l.Reader(first(l))
		if errors.Is(err, spool.ErrTrimmed) {
			continue
		}
		for err == nil {
			var b *spool.Batch
			if b, err = r.Next(ctx); err == nil && b.Last() >= upTo {
				r.Close()
				return
			}
		}
		r.Close()
		if !errors.Is(err, spool.ErrTrimmed) {
			t.Errorf("a reader during the trim: %v", err)
			return
		}
	}
}

func inOrderPerWriter(t *testing.T, got map[model.Offset]string, writers, each int) {
	t.Helper()
	next := make([]int, writers)
	offsets := make([]model.Offset, 0, len(got))
	for o := range got {
		offsets = append(offsets, o)
	}
	slices.Sort(offsets)
	for _, o := range offsets {
		var w, i int
		if _, err := fmt.Sscanf(got[o], "%d/%d/", &w, &i); err != nil || i != next[w] {
			t.Fatalf("offset %d holds entry %d of writer %d, want %d (%v)", o, i, w, next[w], err)
		}
		next[w]++
	}
	for w, n := range next {
		if n != each {
			t.Fatalf("writer %d: %d of %d entries", w, n, each)
		}
	}
}

func same(t *testing.T, got, want map[model.Offset]string) {
	t.Helper()
	for o, w := range want {
		if g, ok := got[o]; !ok || g != w {
			t.Fatalf("offset %d holds %.30q (there: %v), want %.30q", o, g, ok, w)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
}
