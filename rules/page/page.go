// Package page is the form of what the rule engine keeps: a version, a kind, numbers and strings, and a checksum at the end. A
// page that fails any of it is an error, never another state.
package page

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// The first byte of a page is its version. Pages of latches have Version1; a page with a key that stores more has Version2, one
// whose keys have samples in segments has Version.
const (
	Version1 = 1
	Version2 = 2
	Version  = 3 // the newest
)

// Errors of Open and End.
var (
	// ErrDamaged is returned when a page fails its checksum or its form, or does not agree with its siblings.
	ErrDamaged = errors.New("rules: damaged page")
	// ErrVersion is returned when a page was written by a newer Weir.
	ErrVersion = errors.New("rules: newer page format")
)

// Header begins a page.
func Header(kind byte) []byte { return []byte{Version1, kind} }

// AppendString appends a string with its length before it.
func AppendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Seal ends a page.
func Seal(b []byte) []byte { return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)) }

// Reader reads a page. After the first violation it returns zeros, and End reports the damage.
type Reader struct {
	b       []byte
	Version byte // of the page
	bad     bool
}

// Open checks the seal of a page of a kind and returns a reader of what it holds.
func Open(data []byte, kind byte) (*Reader, error) {
	if len(data) > 0 && data[0] > Version {
		return nil, ErrVersion
	}
	if len(data) < 6 || data[0] < Version1 || data[1] != kind {
		return nil, ErrDamaged
	}
	body, sum := data[:len(data)-4], data[len(data)-4:]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(sum) {
		return nil, ErrDamaged
	}
	return &Reader{b: body[2:], Version: data[0]}, nil
}

// Must notes a violation.
func (r *Reader) Must(ok bool) {
	if !ok {
		r.bad, r.b = true, nil
	}
}

// End reports a violation, or that something is left over.
func (r *Reader) End() error {
	if r.bad || len(r.b) > 0 {
		return ErrDamaged
	}
	return nil
}

// Unsigned reads a number from 0 on.
func (r *Reader) Unsigned() uint64 {
	v, n := binary.Uvarint(r.b)
	if r.Must(n > 0); n <= 0 {
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Signed reads a number.
func (r *Reader) Signed() int64 {
	v, n := binary.Varint(r.b)
	if r.Must(n > 0); n <= 0 {
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Count reads the number of things that follow; each takes at least a byte, so the number cannot exceed what is left.
func (r *Reader) Count() int {
	n := r.Unsigned()
	if n > uint64(len(r.b)) {
		r.Must(false)
		return 0
	}
	return int(n)
}

// Take returns the next n bytes, or nil.
func (r *Reader) Take(n int) []byte {
	if n > len(r.b) {
		r.Must(false)
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// Text reads a string.
func (r *Reader) Text() string { return string(r.Take(r.Count())) }

// Byte reads a byte.
func (r *Reader) Byte() byte {
	if b := r.Take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

// Flag reads a bool.
func (r *Reader) Flag() bool {
	b := r.Byte()
	r.Must(b <= 1)
	return b == 1
}

// Blob returns a reader of a part of a page.
func Blob(b []byte) *Reader { return &Reader{b: b} }

// Rest returns what is left.
func (r *Reader) Rest() []byte { return r.Take(len(r.b)) }
