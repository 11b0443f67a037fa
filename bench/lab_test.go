package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/test/need"
)

func TestASlowDiskTakesItsTimeAndTellsItsErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("no room")
		for _, c := range []struct {
			takes, want time.Duration
			err         error
		}{{0, 40 * time.Millisecond, nil}, {10 * time.Millisecond, 40 * time.Millisecond, bad}, {time.Second, time.Second, nil}} {
			began := time.Now()
			err := slow(flushes * slowFlush)(func() error { time.Sleep(c.takes); return c.err })
			if took := time.Since(began); took != c.want || !errors.Is(err, c.err) {
				t.Errorf("%v: took %v, %v", c.takes, took, err)
			}
		}
	})
}

func TestWhatAStepWritesIsCountedForTheLog(t *testing.T) {
	t.Parallel()
	first, err := writtenHere()
	need.That(t, err == nil, "the kernel does not count what a thread writes: %v", err)
	dir, at := t.TempDir(), time.Unix(1_800_000_000, 0)
	b, err := makeBoard(filepath.Join(dir, "board"), at, at)
	if err != nil {
		t.Fatal(err)
	}
	bad, own := errors.New("no luck"), int64(0)
	err = counted(b)(func() error {
		before, err := writtenHere()
		failed := os.WriteFile(filepath.Join(dir, "x"), make([]byte, 1<<20), 0o600)
		after, e := writtenHere()
		own = after - before // 0 on a file system in memory
		return errors.Join(err, failed, e, bad)
	})
	if n := b.writtenByLog(); !errors.Is(err, bad) || n != own || first < 0 {
		t.Errorf("%d bytes told, %d were written, %v", n, own, err)
	}
}

func TestGrowthIsThatOfTheSecondHalf(t *testing.T) {
	t.Parallel()
	w := watchMemory{sizes: []float64{99, 10, 12, 11, 10, 10, 13, 10, 10, 10}}
	if early, late := w.halves(); early != 12 || late != 13 || w.most() != 99 {
		t.Errorf("%v, %v, %v", early, late, w.most())
	}
}

func TestFewErrorsAreShownAndAllAreCounted(t *testing.T) {
	t.Parallel()
	errs := make(chan error, 10)
	for range 7 {
		errs <- errors.New("gone")
	}
	close(errs)
	if err := firstOf(errs); err == nil || err.Error() != "gone\ngone\ngone\nand 4 more senders" {
		t.Errorf("got %v", err)
	}
	none := make(chan error)
	close(none)
	if err := firstOf(none); err != nil {
		t.Errorf("got %v", err)
	}
}
