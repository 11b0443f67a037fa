package bolt

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"weir/spool"
)

// copier is a log that can be copied.
type copier interface {
	Copy(ctx context.Context, each func(spool.File) error) error
}

// copied writes the files of a log into a folder; between is called between two of them.
func copied(t *testing.T, l copier, between func()) string {
	t.Helper()
	dir := t.TempDir()
	if err := l.Copy(t.Context(), func(f spool.File) error {
		between()
		out, err := os.Create(filepath.Join(dir, f.Name))
		if err != nil {
			return err
		}
		if err := errors.Join(f.Write(out), out.Close()); err != nil {
			return err
		}
		if info, err := os.Stat(out.Name()); err != nil || info.Size() != f.Bytes {
			t.Errorf("%s has not the %d bytes that were said: %v, %v", f.Name, f.Bytes, info, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestACopyHoldsWhatWasStoredWhenItBeganAndHasNoGap(t *testing.T) {
	t.Parallel()
	l := open(t, t.TempDir(), small)
	n := 0
	more := func() {
		for range 5 {
			n++
			mustStore(t, l, record(n))
		}
	}
	for range 8 {
		more()
	}
	release := l.HoldTrim()
	defer release()
	began := n
	dir := copied(t, l, more)
	inv, err := Inspect(t.Context(), dir)
	if err != nil || !inv.Complete || int(inv.Last) < began || inv.First != 1 || inv.PairID != l.PairID() || inv.Batches != int(inv.Last) {
		t.Fatalf("%+v, %v; %d were stored before", inv, err, began)
	}
	again := open(t, dir, small)
	if _, last := again.Bounds(); last != inv.Last {
		t.Errorf("it ends at %d, not at %d", last, inv.Last)
	}
}

func TestALogAtRestIsCopied(t *testing.T) {
	t.Parallel()
	r, err := AtRest(filled(t, 40))
	if err != nil {
		t.Fatal(err)
	}
	inv, err := Inspect(t.Context(), copied(t, r, func() {}))
	if err != nil || inv.Last != 40 || inv.Batches != 40 || inv.PairID != r.PairID() {
		t.Errorf("%+v, %v", inv, err)
	}
	if _, err := AtRest(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("where there is none: %v", err)
	}
}

// TestACopyGoesOnInANewEpoch: the records stay, the next one bears the next offset, and the epoch says that it is another
// one than the original's.
func TestACopyGoesOnInANewEpoch(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 3, 40} {
		opt := small
		dir := filled(t, n)
		opt.NewEpoch = true
		l := open(t, dir, opt)
		first, last := l.Bounds()
		if l.Epoch() != 2 || first != 1 || int(last) != n {
			t.Fatalf("after %d: epoch %d, %d to %d", n, l.Epoch(), first, last)
		}
		if at := mustStore(t, l, record(n+1)); int(at) != n+1 {
			t.Errorf("after %d comes %d", n, at)
		}
		shut(t, l)
		inv, err := Inspect(t.Context(), dir)
		if err != nil || inv.Epoch != 2 || inv.First != 1 || int(inv.Last) != n+1 || inv.Batches != n+1 {
			t.Errorf("%+v, %v", inv, err)
		}
		opt.MinOffset = 100 // results that know more
		l = open(t, dir, opt)
		if _, last := l.Bounds(); l.Epoch() != 3 || last != 100 {
			t.Errorf("epoch %d, ends at %d", l.Epoch(), last)
		}
	}
}
