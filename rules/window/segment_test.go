package window

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weir/model"
)

// TestALineComesBackFromItsHeadAndItsRuns lets everything happen to a line that can happen to one, and stores it now and then.
func TestALineComesBackFromItsHeadAndItsRuns(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, stored := New(), [][]byte{}
		wrote, came := 0, 0
		for i := range rapid.IntRange(0, 300).Draw(t, "steps") {
			at := model.Micros(i/4 + rapid.IntRange(-3, 3).Draw(t, "at"))
			switch what := rapid.SampledFrom([]string{"keep", "keep", "keep", "keep", "hold", "judge", "evict", "drop", "reset", "store"}).Draw(t, "what"); what {
			case "keep":
				came++
				l.Keep(NewSample(at, Flags(rapid.IntRange(0, int(flagsMask)).Draw(t, "flags")), float64(i)))
			case "hold":
				l.Hold(NewSample(at, Holds|Valued, float64(i)))
			case "judge":
				if s, ok := l.Pop(at); ok {
					came++
					l.Keep(s)
				}
			case "evict":
				l.Evict(at - 30)
			case "drop":
				l.Drop(min(1, len(l.Kept())))
			case "reset":
				if rapid.IntRange(0, 5).Draw(t, "set back") == 0 {
					l.Reset(at, Listening(i))
				}
			default:
				if rapid.IntRange(0, 9).Draw(t, "whole") == 0 {
					stored = nil
					l.Whole()
				}
				n := storeLine(t, l, &stored)
				if wrote += n; n > 0 && l.unwritten() != len(l.Kept()) {
					t.Fatalf("of %d samples only %d are written", len(l.Kept()), l.unwritten())
				}
			}
		}
	})
}

// storeLine stores a line as a snapshot does, and reads it again.
func storeLine(t *rapid.T, l *Line, stored *[][]byte) (n int) {
	before := l.Append(nil)
	if !l.Apart() {
		l.Whole()
		return 0
	}
	var run []byte
	if run, n = l.AppendRun(nil); n > 0 {
		*stored = append(*stored, run)
	}
	if again, more := l.AppendRun(nil); more > 0 || len(again) > 0 {
		t.Fatalf("%d samples are written twice", more)
	}
	var runs Runs
	for _, r := range *stored {
		if _, _, err := runs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	again, err := DecodeHead(l.AppendHead(nil), &runs)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Append(nil), before) || !bytes.Equal(l.Append(nil), before) {
		t.Fatalf("%+v came back as %+v", l, again)
	}
	if again.unwritten() != len(again.Kept()) {
		t.Fatal("what was read is not known to be stored")
	}
	return n
}

// TestAWindowThatSlidesIsWrittenOnce: what comes at its end is all that is written, whatever leaves it at its begin.
func TestAWindowThatSlidesIsWrittenOnce(t *testing.T) {
	t.Parallel()
	l, wrote := New(), 0
	for i := range 1000 {
		l.Keep(NewSample(model.Micros(i)*1e7, Holds|Valued, 1))
		if l.Evict(model.Micros(i-60) * 1e7); i%10 == 9 && l.Apart() {
			_, n := l.AppendRun(nil)
			wrote += n
		}
	}
	if wrote != 1000 {
		t.Errorf("%d samples are written, of 1000", wrote)
	}
	l.Keep(NewSample(998*1e7-1, Holds, 0))
	if _, n := l.AppendRun(nil); n != 3 {
		t.Errorf("a late sample before two others makes a run of %d", n)
	}
	other := New()
	other.Keep(l.Kept()[0])
	other.Keep(l.Kept()[1].Bare())
	if n := other.unwritten(); n != 0 {
		t.Errorf("in another line %d samples are taken as written", n)
	}
}

// TestFormatOfSegmentsIsFrozen compares a head and a run byte by byte.
func TestFormatOfSegmentsIsFrozen(t *testing.T) {
	t.Parallel()
	l := New()
	l.Arrive(100, 1e9, 5)
	for i := range 4 {
		l.Keep(NewSample(model.Micros(90+i), Holds, 0))
	}
	l.Keep(NewSample(99, Holds|Valued, 3.5))
	l.Hold(NewSample(100, Holds, 0))
	l.Judged = 99
	if got := fmt.Sprintf("%x", l.AppendHead(nil)); got != "0201c801"+"80a8d6b907"+"c601"+"05"+"01"+"c80101" {
		t.Errorf("a head is %s: add a version and read this one too", got)
	}
	run, n := l.AppendRun(nil)
	if got := fmt.Sprintf("%x", run); got != "05"+"b401"+"01"+"09"+"09"+"09"+"35"+"0000000000000c40" || n != 5 {
		t.Errorf("a run is %s", got)
	}
}

// FuzzSegments: what is no run or no head is refused, never a panic; what is one is that of a line which is stored as it was read.
func FuzzSegments(f *testing.F) {
	l := New()
	l.Arrive(100, 1e9, 5)
	for i := range 6 {
		l.Keep(NewSample(model.Micros(90+i), Holds|Valued, 1.5))
	}
	first, _ := l.AppendRun(nil)
	l.Keep(NewSample(92, Stays, 0))
	second, _ := l.AppendRun(nil)
	f.Add(first, second, l.AppendHead(nil))
	f.Add(second, first, l.AppendHead(nil))
	f.Fuzz(func(t *testing.T, first, second, head []byte) {
		var runs Runs
		for _, b := range [][]byte{first, second} {
			if _, _, err := runs.Add(b); err != nil {
				if !errors.Is(err, ErrDamaged) {
					t.Fatal(err)
				}
				return
			}
		}
		l, err := DecodeHead(head, &runs)
		if err != nil {
			return
		}
		if !slices.IsSortedFunc(l.Kept(), func(a, b Sample) int { return int(min(1, max(-1, a.At()-b.At()))) }) {
			t.Fatal("the window is not in order")
		}
		if _, n := l.AppendRun(nil); n > 0 || !bytes.Equal(l.AppendHead(nil), head) {
			t.Fatalf("%x is written as %x", head, l.AppendHead(nil))
		}
		l.Whole()
		var whole Runs
		run, _ := l.AppendRun(nil)
		if _, _, err := whole.Add(run); err != nil {
			t.Fatal(err)
		}
		if again, err := DecodeHead(head, &whole); err != nil || !bytes.Equal(again.Append(nil), l.Append(nil)) {
			t.Fatalf("it comes back as %+v, %v", again, err)
		}
	})
}
