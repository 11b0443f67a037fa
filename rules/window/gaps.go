package window

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
)

// Gaps are the last gaps between the arrivals of a device, the newest first, in milliseconds rounded up; 0 where there is none. A nil one
// belongs to a device that did not arrive.
type Gaps [8]uint32

// Arrive adds the gap before an arrival, the first of which has none, and returns the gaps. No time between two samples is
// no gap: they came together.
func (g *Gaps) Arrive(gap Listening) *Gaps {
	switch {
	case g == nil:
		return new(Gaps)
	case gap > 0:
		g.add(uint32(min((gap+999_999)/1_000_000, math.MaxInt32)))
	}
	return g
}

func (g *Gaps) add(ms uint32) {
	copy(g[1:], g[:])
	g[0] = ms
}

// unknown is the gap of a device that was heard once: as long as a device counts as active by default.
const unknown = Listening(600e9)

// Longest is the longest gap, 0 of a device that did not arrive.
func (g *Gaps) Longest() (gap Listening) {
	switch {
	case g == nil:
		return 0
	case g[0] == 0:
		return unknown
	}
	return Listening(slices.Max(g[:])) * 1_000_000
}

// Append appends the gaps, the oldest first, and nothing for a nil one.
func (g *Gaps) Append(b []byte) []byte {
	if g == nil {
		return b
	}
	b = append(b, version)
	for _, ms := range slices.Backward(g[:]) {
		if ms != 0 {
			b = binary.AppendUvarint(b, uint64(ms))
		}
	}
	return b
}

// DecodeGaps reads what Append wrote.
func DecodeGaps(b []byte) (*Gaps, error) {
	r := Reader{B: b}
	r.Must(r.Byte() == version)
	g := new(Gaps)
	for len(r.B) > 0 && g[len(g)-1] == 0 {
		g.add(uint32(r.Count(math.MaxInt32)))
	}
	if r.Bad || !bytes.Equal(g.Append(nil), b) {
		return nil, ErrDamaged
	}
	return g, nil
}
