package window

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"weir/model"
)

// A long window is stored in two parts: a head that is written whenever the line has changed, and runs, each of which has what came
// to the window since the run before. The window is the end of the runs, one after the other, where a run replaces what is not before
// it: samples leave a window at its begin only, so the head says how many there are and nothing else. A sample knows whether it lies
// in a run (the flag written), and one that is put before others makes the next run begin there.

// headVersion is the first byte of a head.
const headVersion = 2

// inHead is how many samples of the window the line itself holds when it is stored, at most.
const inHead = 4

// Apart reports whether the window is stored in runs. Where it is not, Append has all of the line.
func (l *Line) Apart() bool { return int(l.done) > inHead }

// Whole says that no run has any of the window.
func (l *Line) Whole() {
	for i := range l.Kept() {
		l.buffer[i].tag &^= int64(written)
	}
}

// AppendHead appends the line without its window.
func (l *Line) AppendHead(b []byte) []byte {
	b = l.appendClock(b, headVersion)
	b = binary.AppendUvarint(b, uint64(l.done))
	waiting := l.Waiting()
	b = binary.AppendUvarint(b, uint64(len(waiting)))
	return appendSamples(b, waiting)
}

// unwritten is the index of the first sample of the window that the next run has. Samples of one time are in one run, so that the
// time alone says what a run replaces.
func (l *Line) unwritten() int {
	kept := l.Kept()
	at := slices.IndexFunc(kept, func(s Sample) bool { return s.tag&int64(written) == 0 })
	if at < 0 {
		return len(kept)
	}
	for at > 0 && kept[at-1].At() == kept[at].At() {
		at--
	}
	return at
}

// AppendRun appends a run of what came to the window since the last one, and returns how many samples that are; none appends
// nothing. From here on they are written.
func (l *Line) AppendRun(b []byte) ([]byte, int) {
	samples := l.Kept()[l.unwritten():]
	if len(samples) == 0 {
		return b, 0
	}
	b = binary.AppendUvarint(b, uint64(len(samples)))
	last := samples[0].At()
	b = binary.AppendVarint(b, int64(last))
	for i := range samples {
		s := &samples[i]
		b = binary.AppendUvarint(b, uint64(s.At()-last)<<(flagBits-1)|uint64(s.tag&int64(flagsMask)))
		last = s.At()
		if s.Is(Valued) {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s.Value))
		}
		s.tag |= int64(written)
	}
	return b, len(samples)
}

// Runs puts runs together again, oldest first.
type Runs struct{ samples []Sample }

// Add reads the run that is next and returns its samples' number and newest time.
func (s *Runs) Add(b []byte) (n int, newest model.Micros, err error) {
	r := Reader{B: b}
	n = r.Count(len(b))
	at := model.Micros(r.Signed())
	s.samples = s.samples[:s.before(at)]
	for i := range n {
		v, size := binary.Uvarint(r.B)
		if r.Must(size > 0); r.Bad {
			break
		}
		r.B = r.B[size:]
		at += model.Micros(v >> (flagBits - 1))
		flags, value := Flags(v)&flagsMask, 0.0
		if flags&Valued != 0 {
			value = r.Float()
		}
		smp := NewSample(at, flags, value)
		r.Must(smp.At() == at && (i > 0 || v>>(flagBits-1) == 0))
		smp.tag |= int64(written)
		s.samples = append(s.samples, smp)
	}
	if r.Must(n > 0 && len(r.B) == 0); r.Bad {
		return 0, 0, ErrDamaged
	}
	return n, at, nil
}

// before is the number of samples before an event time.
func (s *Runs) before(at model.Micros) int {
	n, _ := slices.BinarySearchFunc(s.samples, at, func(x Sample, at model.Micros) int {
		if x.At() < at {
			return -1
		}
		return 1
	})
	return n
}

// DecodeHead reads what AppendHead wrote, with the window from the runs; a nil one has none.
func DecodeHead(b []byte, runs *Runs) (*Line, error) {
	r := Reader{B: b}
	l := r.clock(headVersion)
	kept := r.Count(math.MaxInt32)
	waiting := r.samples(r.Count(len(r.B)/2), 0)
	if r.Bad || len(r.B) > 0 || runs == nil || kept <= inHead || kept > len(runs.samples) {
		return nil, ErrDamaged
	}
	l.done = int32(kept)
	l.buffer = append(slices.Clone(runs.samples[len(runs.samples)-kept:]), waiting...)
	if !bytes.Equal(l.AppendHead(nil), b) {
		return nil, ErrDamaged
	}
	return l, nil
}

// Begins is the event time of the first sample of the window, which has one.
func (l *Line) Begins() model.Micros { return l.buffer[0].At() }

// Ends is that of the last one.
func (l *Line) Ends() model.Micros { return l.buffer[l.done-1].At() }
