package pack

import (
	"encoding/binary"
	"math/bits"
)

// A number is written in Rice code: its high part in unary, then k low bits. One whose high part would take riceEscape zeros is
// written whole after so many of them, so that an outlier costs 11 bytes and not a thousand.
const riceEscape = 24

// BitWriter appends bits, least significant first, so that several columns share their bytes.
type BitWriter struct {
	dst []byte
	acc uint64
	n   uint // bits in acc, under 32 between calls
}

// write appends the low b bits of v; b is at most 32 and v has no others.
func (w *BitWriter) write(v uint64, b uint) {
	w.acc |= v << w.n
	w.n += b
	if w.n >= 32 {
		w.dst = binary.LittleEndian.AppendUint32(w.dst, uint32(w.acc))
		w.acc >>= 32
		w.n -= 32
	}
}

func (w *BitWriter) write64(v uint64, b uint) {
	if b > 32 {
		w.write(v&(1<<32-1), 32)
		v, b = v>>32, b-32
	}
	w.write(v, b)
}

func (w *BitWriter) rice(u uint64, k uint) {
	q := u >> k
	if q >= riceEscape {
		w.write(0, riceEscape)
		w.write64(u, 64)
		return
	}
	w.write(1<<q, uint(q)+1)
	w.write64(u&(1<<k-1), k)
}

// Finish fills the last byte with zeros and returns what was written.
func (w *BitWriter) Finish() []byte {
	for w.n > 0 {
		w.dst = append(w.dst, byte(w.acc))
		w.acc >>= 8
		w.n -= min(w.n, 8)
	}
	return w.dst
}

// BitReader reads what a BitWriter wrote. Reading past the end gives zeros and sets over.
type BitReader struct {
	src  []byte
	acc  uint64
	n    uint // bits in acc that count
	over bool
}

// NewBitWriter returns one that appends to dst.
func NewBitWriter(dst []byte) *BitWriter { return &BitWriter{dst: dst} }

// NewBitReader returns one that reads src.
func NewBitReader(src []byte) *BitReader { return &BitReader{src: src} }

// fill brings n to at least 56 while there are bytes.
func (r *BitReader) fill() {
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

func (r *BitReader) drop(b uint) {
	r.acc >>= b
	r.n -= b
}

// read returns the next b bits, at most 32.
func (r *BitReader) read(b uint) uint64 {
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

func (r *BitReader) read64(b uint) uint64 {
	if b <= 32 {
		return r.read(b)
	}
	low := r.read(32)
	return low | r.read(b-32)<<32
}

func (r *BitReader) rice(k uint) uint64 {
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

// End returns the bytes of whole, from its first on, that were not touched; or ErrForm when there were too few.
func (r *BitReader) End(whole []byte) (rest []byte, err error) {
	if r.over {
		return nil, ErrForm
	}
	return whole[len(whole)-len(r.src)-int(r.n/8):], nil
}

// Zigzag folds the sign into the lowest bit, so that small numbers of both signs stay small.
func Zigzag(v int64) uint64 { return uint64(v)<<1 ^ uint64(v>>63) }

// Unzigzag undoes Zigzag.
func Unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }
