package window

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"

	"weir/model"
)

// version is the first byte of an encoded line. A change of the form adds one; the old ones stay readable.
const version = 1

// ErrDamaged is returned when bytes are not an encoded line.
var ErrDamaged = errors.New("window: damaged line")

// What an encoded line has besides its clock.
const (
	hasJudged = 1 << iota
	hasMark
	hasValue
	hasRun
	partsKnown = 1<<iota - 1
)

// Append appends the encoded line. Equal lines have equal forms.
func (l *Line) Append(b []byte) []byte {
	b = l.appendClock(b, version)
	b = binary.AppendUvarint(b, uint64(len(l.buffer)))
	b = binary.AppendUvarint(b, uint64(l.done))
	return appendSamples(appendSamples(b, l.Kept()), l.Waiting()) // what waits begins again: a sample in the window may be newer than one that waits
}

// appendClock appends all but the samples.
func (l *Line) appendClock(b []byte, version byte) []byte {
	parts := l.parts()
	b = append(b, version, parts)
	b = binary.AppendVarint(b, int64(l.Newest))
	b = binary.AppendVarint(b, int64(l.Heard))
	if parts&hasJudged != 0 {
		b = binary.AppendVarint(b, int64(l.Judged))
	}
	if parts&hasMark != 0 {
		b = binary.AppendVarint(b, int64(l.Mark))
	}
	if parts&hasValue != 0 {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(l.Value))
		b = binary.AppendUvarint(b, uint64(l.N))
	}
	if parts&hasRun != 0 {
		b = l.run.append(b)
	}
	return b
}

func appendSamples(b []byte, samples []Sample) []byte {
	last := model.Micros(0)
	for _, s := range samples {
		b = binary.AppendVarint(b, int64(s.At()-last))
		last = s.At()
		b = append(b, byte(s.tag&int64(flagsMask)))
		if s.Is(Valued) {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s.Value))
		}
	}
	return b
}

func (l *Line) parts() (parts byte) {
	if l.Judged != Never {
		parts |= hasJudged
	}
	if l.Mark != Never {
		parts |= hasMark
	}
	if l.Value != 0 || l.N != 0 {
		parts |= hasValue
	}
	if l.run != nil {
		parts |= hasRun
	}
	return parts
}

func (r *run) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(r.count))
	for _, v := range [...]int64{int64(r.first), int64(r.last), int64(r.since), int64(r.until)} {
		b = binary.AppendVarint(b, v)
	}
	return b
}

// Decode reads what Append wrote, and nothing else.
func Decode(b []byte) (*Line, error) {
	r := Reader{B: b}
	l := r.Line()
	if r.Bad || len(r.B) > 0 || !bytes.Equal(l.Append(nil), b) {
		return nil, ErrDamaged
	}
	return l, nil
}

// Reader reads an encoded memory. After the first violation it returns zeros and Bad is set.
type Reader struct {
	B   []byte
	Bad bool
}

// Must notes a violation.
func (r *Reader) Must(ok bool) {
	if !ok {
		r.Bad, r.B = true, nil
	}
}

// Byte reads a byte.
func (r *Reader) Byte() byte {
	if r.Must(len(r.B) > 0); r.Bad {
		return 0
	}
	v := r.B[0]
	r.B = r.B[1:]
	return v
}

// Signed reads a number.
func (r *Reader) Signed() int64 {
	v, n := binary.Varint(r.B)
	if r.Must(n > 0); r.Bad {
		return 0
	}
	r.B = r.B[n:]
	return v
}

// Count reads a number from 0 on that is not above limit.
func (r *Reader) Count(limit int) int {
	v, n := binary.Uvarint(r.B)
	if r.Must(n > 0 && v <= uint64(max(0, limit))); r.Bad {
		return 0
	}
	r.B = r.B[n:]
	return int(v)
}

// Float reads a finite value.
func (r *Reader) Float() float64 {
	if r.Must(len(r.B) >= 8); r.Bad {
		return 0
	}
	v := math.Float64frombits(binary.LittleEndian.Uint64(r.B))
	r.Must(!math.IsNaN(v) && !math.IsInf(v, 0))
	r.B = r.B[min(8, len(r.B)):]
	return v
}

// Line reads a line. The caller compares the whole with its encoded form, which finds the rest of what Append never writes.
func (r *Reader) Line() *Line {
	l := r.clock(version)
	n := r.Count(len(r.B) / 2)
	l.done = int32(r.Count(n))
	l.buffer = r.samples(n, int(l.done))
	return l
}

// clock reads what appendClock wrote.
func (r *Reader) clock(version byte) *Line {
	l := New()
	r.Must(r.Byte() == version)
	parts := r.Byte()
	r.Must(parts <= partsKnown)
	l.Newest, l.Heard = model.Micros(r.Signed()), Listening(r.Signed())
	if parts&hasJudged != 0 {
		l.Judged = model.Micros(r.Signed())
	}
	if parts&hasMark != 0 {
		l.Mark = model.Micros(r.Signed())
	}
	if parts&hasValue != 0 {
		l.Value, l.N = r.Float(), int32(r.Count(math.MaxInt32))
	}
	if parts&hasRun != 0 {
		l.run = &run{count: int32(r.Count(math.MaxInt32)), first: model.Micros(r.Signed()), last: model.Micros(r.Signed()),
			since: Listening(r.Signed()), until: Listening(r.Signed())}
	}
	return l
}

func (r *Reader) samples(n, done int) []Sample {
	if n == 0 {
		return nil
	}
	buffer := make([]Sample, 0, n)
	last := model.Micros(0)
	for i := range n {
		if i == done {
			last = 0
		}
		step := model.Micros(r.Signed())
		r.Must(step >= 0 || i == 0 || i == done)
		last += step
		flags, value := Flags(r.Byte()), 0.0
		r.Must(flags <= flagsMask)
		if flags&Valued != 0 {
			value = r.Float()
		}
		if r.Bad {
			return nil
		}
		buffer = append(buffer, NewSample(last, flags, value))
	}
	return buffer
}
