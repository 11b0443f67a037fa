package spool

import (
	"testing"

	"weir/model"
)

// trimmed is a log of which only Trim is asked.
type trimmed struct {
	Log
	to []model.Offset
}

func (l *trimmed) Trim(to model.Offset) error {
	l.to = append(l.to, to)
	return nil
}

// TestTrims: what one reader still needs stays, and a reader does not close the log of its owner.
func TestTrims(t *testing.T) {
	t.Parallel()
	log := &trimmed{}
	trims := NewTrims(log, 2)
	one, two := trims.Share(0), trims.Share(1)
	for _, step := range []struct {
		by *Share
		to model.Offset
	}{{one, 10}, {two, 4}, {one, 12}, {two, 20}, {one, 3}} {
		if err := step.by.Trim(step.to); err != nil {
			t.Fatal(err)
		}
	}
	want := []model.Offset{4, 4, 12, 12}
	if len(log.to) != len(want) {
		t.Fatalf("trimmed to %v, want %v", log.to, want)
	}
	for i := range want {
		if log.to[i] != want[i] {
			t.Errorf("trimmed to %v, want %v", log.to, want)
		}
	}
	if trims.Done(0) != 12 || trims.Done(1) != 20 {
		t.Errorf("done are %d and %d", trims.Done(0), trims.Done(1))
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
}
