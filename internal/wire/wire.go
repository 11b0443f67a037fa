// Package wire writes and reads the small binary forms that Weir keeps: unsigned and zigzag varints, strings and byte
// slices with their length before them, fixed-width numbers in little-endian order. A Reader never panics and never
// allocates more than its input can hold: the first thing that does not fit sets its error and everything after it
// reads as zero.
package wire

import (
	"encoding/binary"
	"errors"
	"math"
)

// ErrShort says that the input ended before the form did.
var ErrShort = errors.New("wire: input too short")

// ErrForm says that the input is not in the form expected.
var ErrForm = errors.New("wire: bad form")

// AppendString appends s with its length before it.
func AppendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// AppendBytes appends p with its length before it.
func AppendBytes(b, p []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(p))), p...)
}

// AppendFloat appends the eight bytes of f.
func AppendFloat(b []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
}

// Reader reads what the Append functions wrote.
type Reader struct {
	b     []byte
	err   error
	texts *Texts
}

// NewReader returns a Reader of b. Strings and byte slices are copied out of it unless said otherwise.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// NewReaderWith is NewReader with a place for the names in it, which may be nil.
func NewReaderWith(b []byte, names *Texts) *Reader { return &Reader{b: b, texts: names} }

// Err is the first error, nil when everything read so far was there.
func (r *Reader) Err() error { return r.err }

// Len is the number of bytes not yet read.
func (r *Reader) Len() int { return len(r.b) }

// Fail sets the error when none is set yet.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err, r.b = err, nil
	}
}

// End returns the error, or ErrForm when something is left over.
func (r *Reader) End() error {
	if r.err == nil && len(r.b) > 0 {
		return ErrForm
	}
	return r.err
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	p := r.Take(1)
	if p == nil {
		return 0
	}
	return p[0]
}

// Uvarint reads an unsigned varint.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.Fail(ErrShort)
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Varint reads a zigzag varint.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.Fail(ErrShort)
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Count reads an unsigned varint that counts things of at least size bytes each, and fails when the rest of the input
// cannot hold as many.
func (r *Reader) Count(size int) int {
	n := r.Uvarint()
	if n > uint64(len(r.b)/max(size, 1)) {
		r.Fail(ErrShort)
		return 0
	}
	return int(n)
}

// Uint64 reads eight bytes.
func (r *Reader) Uint64() uint64 {
	p := r.Take(8)
	if p == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(p)
}

// Uint32 reads four bytes.
func (r *Reader) Uint32() uint32 {
	p := r.Take(4)
	if p == nil {
		return 0
	}
	return binary.LittleEndian.Uint32(p)
}

// Float reads a float64.
func (r *Reader) Float() float64 { return math.Float64frombits(r.Uint64()) }

// Take returns the next n bytes without copying, nil when there are fewer.
func (r *Reader) Take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.Fail(ErrShort)
		return nil
	}
	p := r.b[:n:n]
	r.b = r.b[n:]
	return p
}

// String reads a string.
func (r *Reader) String() string { return string(r.Take(r.Count(1))) }

// Name reads a string that is likely to be met again: where the reader has a place for names, it is made only once.
func (r *Reader) Name() string {
	p := r.Take(r.Count(1))
	if r.texts == nil {
		return string(p)
	}
	return r.texts.of(p)
}

// Bytes reads a byte slice into memory of its own; nil when it is empty.
func (r *Reader) Bytes() []byte {
	p := r.Take(r.Count(1))
	if len(p) == 0 {
		return nil
	}
	return append([]byte(nil), p...)
}
