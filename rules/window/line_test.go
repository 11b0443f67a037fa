package window

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"weir/model"
)

func TestSizes(t *testing.T) {
	t.Parallel()
	if s := unsafe.Sizeof(Line{}); s > 80 {
		t.Errorf("a line is %d bytes", s)
	}
	if s := unsafe.Sizeof(Sample{}); s != 16 {
		t.Errorf("a sample is %d bytes", s)
	}
}

// TestRetainedSampleTakesAtMost24Bytes moves a long window for a while: the buffer and what is left of it before the window.
func TestRetainedSampleTakesAtMost24Bytes(t *testing.T) {
	t.Parallel()
	l := New()
	const length = 10_000
	var made int
	for i := range 5 * length {
		before := cap(l.buffer)
		l.Keep(NewSample(model.Micros(i), Holds, 0))
		if cap(l.buffer) > before {
			made = cap(l.buffer)
		}
		l.Evict(model.Micros(i - length))
	}
	if got := float64(made) * 16 / float64(l.Retained()); got > 24 {
		t.Errorf("%.1f bytes each", got)
	}
}

func TestSampleKeepsWhatItIsGiven(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := model.Micros(rapid.Int64Range(-1<<59, 1<<59-1).Draw(t, "at"))
		flags := Flags(rapid.IntRange(0, int(flagsMask)).Draw(t, "flags"))
		s := NewSample(at, flags, 7)
		for _, f := range []Flags{Holds, Stays, Valued} {
			if s.Is(f) != (flags&f != 0) || s.Bare().Is(f) != (f != Valued && flags&f != 0) {
				t.Fatalf("flag %d of %+v", f, s)
			}
		}
		if s.At() != at || s.Bare().At() != at || (s.Value == 7) != s.Is(Valued) || s.Bare().Value != 0 {
			t.Fatalf("%+v at %d", s, at)
		}
	})
}

// drawLine draws a line by what can happen to one, beside a plain list of what it holds.
func drawLine(t *rapid.T) (l *Line, kept, waiting []Sample) {
	l = New()
	byTime := func(a, b Sample) int { return int(a.At() - b.At()) }
	for i := range rapid.IntRange(0, 200).Draw(t, "steps") {
		s := NewSample(model.Micros(rapid.IntRange(0, 50).Draw(t, "at")), Flags(rapid.IntRange(0, int(flagsMask)).Draw(t, "flags")), float64(i))
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0, 1:
			l.Hold(s)
			waiting = append(waiting, s)
			slices.SortStableFunc(waiting, byTime)
		case 2:
			l.Keep(s)
			kept = append(kept, s)
			slices.SortStableFunc(kept, byTime)
		case 3:
			popped, ok := l.Pop(s.At())
			if want := len(waiting) > 0 && waiting[0].At() <= s.At(); ok != want || ok && popped != waiting[0] {
				t.Fatalf("popped %+v, %t of %+v", popped, ok, waiting)
			}
			if ok {
				waiting = waiting[1:]
			}
		case 4:
			l.Evict(s.At() - 40)
			kept = slices.DeleteFunc(kept, func(k Sample) bool { return k.At() <= s.At()-40 })
		default:
			l.Arrive(s.At(), Listening(i)*10e9, 3)
		}
	}
	l.Judged, l.Mark, l.Value, l.N = Never, model.Micros(rapid.Int64().Draw(t, "mark")), rapid.Float64Range(-9, 9).Draw(t, "value"), 3
	return l, kept, waiting
}

func TestLineIsAListOfSamples(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, kept, waiting := drawLine(t)
		if !slices.Equal(l.Kept(), kept) || !slices.Equal(l.Waiting(), waiting) || l.Retained() != len(kept)+len(waiting) {
			t.Fatalf("holds %v and %v, not %v and %v", l.Kept(), l.Waiting(), kept, waiting)
		}
		b := l.Append(nil)
		again, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.Append(nil), b) || !slices.Equal(again.Waiting(), waiting) || again.Newest != l.Newest || again.Mark != l.Mark {
			t.Fatalf("decodes to %+v, not %+v", again, l)
		}
	})
}

// FuzzDecode: bytes are refused, or are the encoded form of what they decode to.
func FuzzDecode(f *testing.F) {
	l := New()
	l.Arrive(100, 1e9, 5)
	f.Add(l.Append(nil))
	l.Hold(NewSample(100, Holds|Valued, 3.5))
	l.Keep(NewSample(90, Holds, 0))
	l.Arrive(1, 2e9, 5)
	f.Add(l.Append(nil))
	var g *Gaps
	f.Add(g.Arrive(0).Arrive(7e9).Arrive(1).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := Decode(b); err == nil && !bytes.Equal(l.Append(nil), b) {
			t.Errorf("%x decodes to %x", b, l.Append(nil))
		}
		if g, err := DecodeGaps(b); err == nil && !bytes.Equal(g.Append(nil), b) {
			t.Errorf("%x decodes to %x", b, g.Append(nil))
		}
	})
}

func TestGapsAreTheLastEight(t *testing.T) {
	t.Parallel()
	var g *Gaps
	if g.Longest() != 0 || len(g.Append(nil)) != 0 {
		t.Error("a device that did not arrive has gaps")
	}
	if g = g.Arrive(500e9); g.Longest() != unknown { // no gap before the first
		t.Errorf("longest %d after one arrival", g.Longest())
	}
	for _, gap := range []Listening{90e9, 1, 0, 3e9, 4e9, 5e9, 6e9, 7e9, 8e9} {
		g = g.Arrive(gap)
	}
	if g.Longest() != 90e9 {
		t.Errorf("longest %d", g.Longest())
	}
	again, err := DecodeGaps(g.Append(nil))
	if err != nil || again.Arrive(2e9).Longest() != 8e9 || g.Arrive(2e9).Longest() != 8e9 {
		t.Errorf("%v: the ninth gap is still there", err)
	}
}

// TestFormatIsFrozen compares encoded forms byte by byte.
func TestFormatIsFrozen(t *testing.T) {
	t.Parallel()
	l := New()
	l.Arrive(100, 1e9, 5)
	l.Keep(NewSample(90, Holds, 0))
	l.Hold(NewSample(100, Holds|Valued, 3.5))
	l.Arrive(1, 2e9, 5)
	l.Judged, l.Mark, l.Value, l.N = 90, 80, 1.5, 2
	if got := fmt.Sprintf("%x", l.Append(nil)); got != "010fc80180d0acf30eb401a001000000000000f83f0201020280d0acf30e80d0acf30e0201b40101c801050000000000000c40" {
		t.Errorf("a line is %s: add a version and read this one too", got)
	}
	var g *Gaps
	if got := fmt.Sprintf("%x", g.Arrive(0).Arrive(7e9).Arrive(1).Append(nil)); got != "01d83601" {
		t.Errorf("gaps are %s", got)
	}
}
