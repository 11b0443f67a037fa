// Package pack encodes columns of numbers and of texts in few bytes, and decodes them: decode ∘ encode is the identity,
// and bytes that no encoder wrote are an error. A column does not contain its length; the caller knows it. The
// forms are frozen: a new one gets a first byte that no old one has.
package pack

import (
	"encoding/binary"
	"errors"
)

// ErrForm is the error of every decoder for bytes that no encoder wrote; callers add the row.
var ErrForm = errors.New("not a packed column")

// Encoder holds the scratch space of encodings. It is used by one goroutine at a time.
type Encoder struct {
	ints      []int64
	residuals [3][]int64
	sample    [sampleSize]int64
	raw       []byte
	texts     []string
}

// Uvarint reads an unsigned varint.
func Uvarint(src []byte) (v uint64, rest []byte, err error) {
	v, n := binary.Uvarint(src)
	if n <= 0 {
		return 0, nil, ErrForm
	}
	return v, src[n:], nil
}

// Varint reads a signed varint.
func Varint(src []byte) (v int64, rest []byte, err error) {
	v, n := binary.Varint(src)
	if n <= 0 {
		return 0, nil, ErrForm
	}
	return v, src[n:], nil
}

// MaxText is the longest text: altIds, sources, units are far below.
const MaxText = 1 << 12

// AppendText appends a text after its length.
func AppendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// Text reads what AppendText wrote.
func Text(src []byte) (s string, rest []byte, err error) {
	n, src, err := Uvarint(src)
	if err != nil || n > uint64(len(src)) || n > MaxText {
		return "", nil, ErrForm
	}
	return string(src[:n]), src[n:], nil
}
