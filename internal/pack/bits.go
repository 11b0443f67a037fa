package pack

import (
	"encoding/binary"
	"math/bits"
)

// A number is written in Rice code: its high part in unary, then k low bits. One whose high part would take riceEscape
// zeros is written whole behind so many of them, so that an outlier costs 11 bytes and not a thousand.
const riceEscape = 24

// bitWriter appends bits, least significant first.
type bitWriter struct {
	dst []byte
	acc uint64
	n   uint // bits in acc, under 32 between calls
}

// write appends the low b bits of v; b is at most 32 and v has no others.
func (w *bitWriter) write(v uint64, b uint) {
	w.acc |= v << w.n
	w.n += b
	if w.n >= 32 {
		w.dst = binary.LittleEndian.AppendUint32(w.dst, uint32(w.acc))
		w.acc >>= 32
		w.n -= 32
	}
}

func (w *bitWriter) write64(v uint64, b uint) {
	if b > 32 {
		w.write(v&(1<<32-1), 32)
		v, b = v>>32, b-32
	}
	w.write(v, b)
}

func (w *bitWriter) rice(u uint64, k uint) {
	q := u >> k
	if q >= riceEscape {
		w.write(0, riceEscape)
		w.write64(u, 64)
		return
	}
	w.write(1<<q, uint(q)+1)
	w.write64(u&(1<<k-1), k)
}

// finish fills the last byte with zeros and returns what was written.
func (w *bitWriter) finish() []byte {
	for w.n > 0 {
		w.dst = append(w.dst, byte(w.acc))
		w.acc >>= 8
		w.n -= min(w.n, 8)
	}
	return w.dst
}

// bitReader reads what a bitWriter wrote. Reading past the end gives zeros and sets over.
type bitReader struct {
	src  []byte
	acc  uint64
	n    uint // bits in acc that count
	over bool
}

// fill brings n to at least 56 while there are bytes.
func (r *bitReader) fill() {
	if len(r.src) >= 8 {
		// Bits above n are read again by the next fill, with the same values.
		r.acc |= binary.LittleEndian.Uint64(r.src) << r.n
		whole := (63 - r.n) >> 3
		r.src = r.src[whole:]
		r.n += whole * 8
		return
	}
	for r.n <= 56 && len(r.src) > 0 {
		r.acc |= uint64(r.src[0]) << r.n
		r.src = r.src[1:]
		r.n += 8
	}
}

func (r *bitReader) drop(b uint) {
	r.acc >>= b
	r.n -= b
}

// read returns the next b bits, at most 32.
func (r *bitReader) read(b uint) uint64 {
	if r.n < b {
		r.fill()
		if r.n < b {
			r.over = true
			return 0
		}
	}
	v := r.acc & (1<<b - 1)
	r.drop(b)
	return v
}

func (r *bitReader) read64(b uint) uint64 {
	if b <= 32 {
		return r.read(b)
	}
	low := r.read(32)
	return low | r.read(b-32)<<32
}

func (r *bitReader) rice(k uint) uint64 {
	if r.n <= riceEscape {
		r.fill()
	}
	q := uint(bits.TrailingZeros64(r.acc))
	if q >= riceEscape {
		if r.n < riceEscape {
			r.over = true
			return 0
		}
		r.drop(riceEscape)
		return r.read64(64)
	}
	if q >= r.n {
		r.over = true
		return 0
	}
	r.drop(q + 1)
	return uint64(q)<<k | r.read64(k)
}

// rest returns the whole bytes that were not touched.
func (r *bitReader) rest(whole []byte) []byte {
	return whole[len(whole)-len(r.src)-int(r.n/8):]
}

// Zigzag folds the sign into the lowest bit, so that small numbers of both signs stay small.
func Zigzag(v int64) uint64 { return uint64(v)<<1 ^ uint64(v>>63) }

// Unzigzag undoes Zigzag.
func Unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }
