package spooltest

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"weir/model"
	"weir/spool"
)

func testReopen(t *testing.T, open Opener) {
	opt := Options{Place: t.TempDir(), SpanBytes: 32 << 10, PairID: [16]byte{1, 2, 3}}
	want := map[model.Offset]string{}
	var epoch uint32
	for round := range 4 {
		l := opened(t, open, opt)
		if round == 0 {
			epoch = l.Epoch()
		}
		if l.Epoch() != epoch || l.PairID() != opt.PairID {
			t.Fatalf("round %d: epoch %d, pair id %x", round, l.Epoch(), l.PairID())
		}
		if f, last := l.Bounds(); f != 1 || last != model.Offset(len(want)) {
			t.Fatalf("round %d: bounds %d, %d, want 1, %d", round, f, last, len(want))
		}
		for i := range 60 {
			data := fmt.Sprintf("%d-%d-%s", round, i, bytes.Repeat([]byte("."), 40*i))
			want[put(t, l, data)] = data
		}
		before := l.Stats()
		must(t, l.Close())
		l = opened(t, open, opt)
		if after := l.Stats(); after.Bytes != before.Bytes || after.First != before.First || after.Last != before.Last {
			t.Fatalf("opened again: %+v, before: %+v", after, before)
		}
		same(t, readAll(t, l, 1), want)
		must(t, l.Close())
	}
}

func testMinOffset(t *testing.T, open Opener) {
	opt := Options{Place: t.TempDir(), MinOffset: 1000}
	l := opened(t, open, opt)
	if f, last := l.Bounds(); f != 1001 || last != 1000 {
		t.Fatalf("bounds of a new log above 1000: %d, %d", f, last)
	}
	want := map[model.Offset]string{put(t, l, "a"): "a"}
	epoch := l.Epoch()
	must(t, l.Close())
	opt.MinOffset = 1001 // known already: no jump
	l = opened(t, open, opt)
	if l.Epoch() != epoch {
		t.Fatalf("epoch %d without a jump, was %d", l.Epoch(), epoch)
	}
	want[put(t, l, "b")] = "b"
	must(t, l.Close())
	opt.MinOffset = 5000
	l = opened(t, open, opt)
	if l.Epoch() <= epoch {
		t.Fatalf("epoch %d after a jump, was %d", l.Epoch(), epoch)
	}
	if f, last := l.Bounds(); f != 1001 || last != 5000 {
		t.Fatalf("bounds after a jump: %d, %d", f, last)
	}
	same(t, readAll(t, l, 1001), want)
	r, err := l.Reader(1002)
	must(t, err)
	defer r.Close()
	at := put(t, l, "c")
	if at != 5001 {
		t.Fatalf("the first offset after the jump is %d", at)
	}
	for _, wanted := range []uint32{epoch, l.Epoch()} { // across the jump without complaint
		b, err := r.Next(deadline(t))
		must(t, err)
		if b.Epoch != wanted {
			t.Fatalf("batch of %d has epoch %d, want %d", b.First, b.Epoch, wanted)
		}
	}
	r.Close() // releases the file it reads
	want[at] = "c"
	must(t, l.Close())
	same(t, readAll(t, opened(t, open, opt), 1001), want)
}

func testPairID(t *testing.T, open Opener) {
	place := t.TempDir()
	l := opened(t, open, Options{Place: place})
	id := l.PairID()
	if id == [16]byte{} {
		t.Fatal("a new log has no pair id")
	}
	must(t, l.Close())
	l = opened(t, open, Options{Place: place, PairID: id})
	if l.PairID() != id {
		t.Fatalf("pair id %x, was %x", l.PairID(), id)
	}
}

func testTrim(t *testing.T, open Opener) {
	opt := Options{Place: t.TempDir(), SpanBytes: 32 << 10}
	l := opened(t, open, opt)
	want := map[model.Offset]string{}
	var last model.Offset
	for i := range 300 {
		data := fmt.Sprintf("%d%s", i, bytes.Repeat([]byte("."), 1000))
		last = put(t, l, data)
		want[last] = data
	}
	full := l.Stats()
	must(t, l.Trim(150))
	if f, got := l.Bounds(); f != 151 || got != last {
		t.Fatalf("bounds after trimming to 150: %d, %d", f, got)
	}
	half := l.Stats()
	if half.Bytes > full.Bytes*6/10 || half.Bytes < full.Bytes*4/10 || half.DiskBytes > full.DiskBytes*7/10 {
		t.Fatalf("half is trimmed: %d of %d bytes, %d of %d on disk", half.Bytes, full.Bytes, half.DiskBytes, full.DiskBytes)
	}
	_, err := l.Reader(150)
	wantError(t, err, spool.ErrTrimmed)
	for o := model.Offset(1); o <= 150; o++ {
		delete(want, o)
	}
	same(t, readAll(t, l, 151), want)
	must(t, l.Trim(100)) // backwards: nothing
	must(t, l.Close())
	l = opened(t, open, opt)
	f, _ := l.Bounds()
	if f > 151 || f < 2 {
		t.Fatalf("first after opening again: %d", f)
	}
	must(t, l.Trim(last+1000)) // at most to the newest
	if f, got := l.Bounds(); f != last+1 || got != last || l.Stats().Bytes != 0 {
		t.Fatalf("all trimmed: bounds %d, %d, %d bytes", f, got, l.Stats().Bytes)
	}
	must(t, l.Close())
	l = opened(t, open, opt)
	if at := put(t, l, "next"); at != last+1 {
		t.Fatalf("offset %d after all was trimmed, want %d", at, last+1)
	}
}

func testHoldTrim(t *testing.T, open Opener) {
	l := opened(t, open, Options{})
	put(t, l, numbered("r", 20)...)
	one, two := l.HoldTrim(), l.HoldTrim()
	must(t, l.Trim(5))
	must(t, l.Trim(3))
	one()
	one() // twice is once
	if f := first(l); f != 1 {
		t.Fatalf("trimmed to %d while held", f)
	}
	two()
	if f := first(l); f != 6 {
		t.Fatalf("first %d after the hold, want 6", f)
	}
}

func testReaders(t *testing.T, open Opener) {
	g := newGate()
	opt := Options{Place: t.TempDir(), SpanBytes: 32 << 10, TailBytes: 1, Sync: g.sync}
	l := opened(t, open, opt)
	want := map[model.Offset]string{}
	ahead, err := l.Reader(1)
	must(t, err)
	defer ahead.Close()
	for i := range 100 {
		data := fmt.Sprintf("%d-%s", i, bytes.Repeat([]byte("."), 700))
		want[put(t, l, data)] = data
		b, err := ahead.Next(deadline(t))
		must(t, err)
		if len(b.Records) != 1 || b.Records[0].Value != data {
			t.Fatalf("a reader that keeps up was handed %v", b.Records)
		}
	}
	same(t, readAll(t, l, 1), want)
	for _, from := range []model.Offset{2, 50, 100} {
		r, err := l.Reader(from)
		must(t, err)
		b, err := r.TryNext()
		must(t, err)
		if b.First > from || b.Last() < from {
			t.Fatalf("reader from %d begins with %d..%d", from, b.First, b.Last())
		}
		r.Close()
		r.Close()
		_, err = r.TryNext()
		wantError(t, err, spool.ErrClosed)
	}
	release := g.hold() // so that what follows makes two batches at most, wherever the first of them ends
	a := newAnswers()
	for _, data := range numbered("batch", 30) {
		must(t, l.Append(deadline(t), spool.Entry{Data: []byte(data), Done: a.done}))
	}
	release()
	a.wait(t, 30)
	put(t, l, "after it")
	whole, err := l.Reader(101)
	must(t, err)
	defer whole.Close()
	batch, err := whole.TryNext()
	must(t, err)
	if batch.Last() == batch.First {
		batch, err = whole.TryNext()
		must(t, err)
	}
	middle := batch.Last()
	r, err := l.Reader(middle)
	must(t, err)
	defer r.Close()
	b, err := r.TryNext()
	must(t, err)
	if b.First >= middle || b.Last() < middle || string(b.Records[middle-b.First].Data) != fmt.Sprint("batch-", middle-101) {
		t.Fatalf("reader from the middle of a batch, %d of %d..%d, begins with %d..%d", middle, batch.First, batch.Last(), b.First, b.Last())
	}
}

func testReaderWaits(t *testing.T, open Opener) {
	l := opened(t, open, Options{})
	r, err := l.Reader(4)
	must(t, err)
	defer r.Close()
	put(t, l, "1", "2", "3")
	if b, err := r.TryNext(); b != nil || err != nil {
		t.Fatalf("beyond the end: %v, %v", b, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.Next(ctx)
	wantError(t, err, context.Canceled)
	got := make(chan string, 1)
	go func() {
		b, err := r.Next(t.Context())
		if err != nil {
			got <- err.Error()
			return
		}
		got <- string(b.Records[0].Data)
	}()
	put(t, l, "4")
	if g := <-got; g != "4" {
		t.Fatalf("woken with %q", g)
	}
	go func() {
		_, err := r.Next(t.Context())
		got <- fmt.Sprint(err == spool.ErrClosed)
	}()
	must(t, l.Close())
	if g := <-got; g != "true" {
		t.Fatal("a waiting reader was not notified that the log is closed")
	}
}
