package bolt

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/spool"
)

// state names the files of a folder with their sizes and times.
func state(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		s.WriteString(e.Name() + info.ModTime().String() + "\n")
	}
	return s.String()
}

func TestALogAtRestIsReadAndLeftAsItIs(t *testing.T) {
	t.Parallel()
	dir := filled(t, 40)
	if err := os.WriteFile(filepath.Join(dir, aheadName), []byte("begun"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := state(t, dir)
	inv, err := Inspect(t.Context(), dir)
	if err != nil || inv.First != 1 || inv.Last != 40 || inv.Batches != 40 || !inv.Complete || inv.Epoch != 1 || inv.PairID == [16]byte{} || inv.DiskBytes == 0 {
		t.Fatalf("%+v, %v", inv, err)
	}
	if after := state(t, dir); after != before {
		t.Errorf("it was changed:\n%s\n%s", before, after)
	}
	l := open(t, dir, small)
	if l.PairID() != inv.PairID {
		t.Error("another pair id")
	}
}

func TestALookAtALogEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	end()
	inv, err := Inspect(ctx, filled(t, 40))
	if err != nil || inv.Complete || inv.Batches != 0 || inv.Last != 40 {
		t.Errorf("%+v, %v", inv, err)
	}
}

func TestALookFindsDamageWhereverItIs(t *testing.T) {
	t.Parallel()
	for _, offset := range []string{"3", "10", "40"} {
		dir := filled(t, 40)
		spoil(t, dir, "<"+offset+">", "<x")
		if _, err := Inspect(t.Context(), dir); !errors.Is(err, spool.ErrDamaged) {
			t.Errorf("record %s: %v", offset, err)
		}
	}
	for _, dir := range []string{filepath.Join(t.TempDir(), "none"), t.TempDir()} {
		if _, err := Inspect(t.Context(), dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
