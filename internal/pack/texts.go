package pack

import (
	"encoding/binary"
	"strconv"
	"strings"
)

// A column of texts says how many of them are not empty and, unless all are, at which places they stand; then comes a form
// and the texts in it. Ids are what they mostly are: counters, or random digits of a fixed length.
const (
	sharing  = 0 // each as how many bytes it shares with the one before, and the rest
	counting = 1 // a text, a number of digits (0: as many as it takes), and whole numbers
	molded   = 2 // an alphabet, the first text, a bit per place that says where others differ, and what they have there
)

// alphabets are what the differing characters of molded texts are of, the smallest first; the number is the bits that one
// takes. A text of the last consists of bytes.
var alphabets = [...]struct {
	bits  uint
	chars string
}{{4, "0123456789abcdef"}, {4, "0123456789ABCDEF"}, {5, "0123456789ABCDEFGHJKMNPQRSTVWXYZ"},
	{6, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"}, {8, ""}}

const bytesAlphabet = len(alphabets) - 1

// AppendTexts appends a column of texts, each of at most MaxText bytes.
func (e *Encoder) AppendTexts(dst []byte, texts []string) []byte {
	have, places := e.texts[:0], e.ints[:0]
	for i, s := range texts {
		if s != "" {
			have, places = append(have, s), append(places, int64(i))
		}
	}
	e.ints = places
	defer func() { clear(have); e.texts = have[:0] }()
	dst = binary.AppendUvarint(dst, uint64(len(have)))
	if len(have) == 0 {
		return dst
	}
	if len(have) < len(texts) {
		dst = e.AppendInts(dst, places, Delta)
	}
	if prefix, digits, ok := e.counters(have); ok {
		dst = append(AppendText(append(dst, counting), prefix), byte(digits))
		return e.AppendInts(dst, e.ints, Delta, DeltaOfDelta)
	}
	if sameLength(have) {
		return appendMolded(append(dst, molded), have)
	}
	return appendSharing(append(dst, sharing), have)
}

// maxDigits is how many digits a number has at most that int64 surely holds.
const maxDigits = 18

// counters finds out whether all texts are one prefix and a number, and leaves the numbers in e.ints.
func (e *Encoder) counters(texts []string) (prefix string, digits int, ok bool) {
	number := texts[0]
	for n := 0; n < maxDigits && number != "" && isDigit(number[len(number)-1]); n++ {
		number = number[:len(number)-1]
	}
	prefix = number
	digits = len(texts[0]) - len(prefix)
	free := true // numbers are written as they come, without zeros before them
	numbers := e.ints[:0]
	for _, s := range texts {
		number, found := strings.CutPrefix(s, prefix)
		if !found || number == "" || len(number) > maxDigits {
			return "", 0, false
		}
		v := int64(0)
		for i := range len(number) {
			if !isDigit(number[i]) {
				return "", 0, false
			}
			v = v*10 + int64(number[i]-'0')
		}
		free = free && (number[0] != '0' || len(number) == 1)
		if len(number) != digits {
			digits = -1
		}
		numbers = append(numbers, v)
	}
	e.ints = numbers
	if free {
		return prefix, 0, true
	}
	return prefix, digits, digits > 0
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func sameLength(texts []string) bool {
	for _, s := range texts {
		if len(s) != len(texts[0]) {
			return false
		}
	}
	return true
}

func appendMolded(dst []byte, texts []string) []byte {
	first := texts[0]
	mask := make([]byte, (len(first)+7)/8)
	for _, s := range texts[1:] {
		for i := range len(s) {
			if s[i] != first[i] {
				mask[i/8] |= 1 << (i % 8)
			}
		}
	}
	a := alphabetOf(texts, mask)
	dst = append(AppendText(append(dst, byte(a)), first), mask...)
	w := BitWriter{dst: dst}
	for _, s := range texts[1:] {
		for i := range len(s) {
			if mask[i/8]>>(i%8)&1 != 0 {
				w.write(codeOf(a, s[i]), alphabets[a].bits)
			}
		}
	}
	return w.Finish()
}

// alphabetOf is the first alphabet that has all characters at the masked places.
func alphabetOf(texts []string, mask []byte) int {
next:
	for a := range bytesAlphabet {
		for _, s := range texts[1:] {
			for i := range len(s) {
				if mask[i/8]>>(i%8)&1 != 0 && strings.IndexByte(alphabets[a].chars, s[i]) < 0 {
					continue next
				}
			}
		}
		return a
	}
	return bytesAlphabet
}

func codeOf(a int, c byte) uint64 {
	if a == bytesAlphabet {
		return uint64(c)
	}
	return uint64(strings.IndexByte(alphabets[a].chars, c))
}

func appendSharing(dst []byte, texts []string) []byte {
	prev := ""
	for _, s := range texts {
		shared := 0
		for shared < min(len(prev), len(s)) && prev[shared] == s[shared] {
			shared++
		}
		dst = binary.AppendUvarint(dst, uint64(shared))
		dst = AppendText(dst, s[shared:])
		prev = s
	}
	return dst
}

// DecodeTexts reads a column of len(texts) texts.
func DecodeTexts(src []byte, texts []string) (rest []byte, err error) {
	n, src, err := Uvarint(src)
	if err != nil || n > uint64(len(texts)) {
		return nil, ErrForm
	}
	clear(texts)
	if n == 0 {
		return src, nil
	}
	have := texts
	var places []int64
	if n < uint64(len(texts)) {
		places, have = make([]int64, n), make([]string, n)
		if src, err = DecodeInts(src, places); err != nil {
			return nil, err
		}
	}
	if src, err = decodeForm(src, have); err != nil {
		return nil, err
	}
	last := int64(-1)
	for i, at := range places {
		if at <= last || at >= int64(len(texts)) {
			return nil, ErrForm
		}
		texts[at], last = have[i], at
	}
	return src, nil
}

func decodeForm(src []byte, texts []string) (rest []byte, err error) {
	if len(src) == 0 {
		return nil, ErrForm
	}
	switch src[0] {
	case sharing:
		return DecodeSharing(src[1:], texts)
	case counting:
		return decodeCounting(src[1:], texts)
	case molded:
		return decodeMolded(src[1:], texts)
	}
	return nil, ErrForm
}

func decodeCounting(src []byte, texts []string) (rest []byte, err error) {
	prefix, src, err := Text(src)
	if err != nil || len(src) == 0 || src[0] > maxDigits {
		return nil, ErrForm
	}
	digits := int(src[0])
	numbers := make([]int64, len(texts))
	if src, err = DecodeInts(src[1:], numbers); err != nil {
		return nil, err
	}
	var own []byte
	b := []byte(prefix)
	for i, v := range numbers {
		own = strconv.AppendInt(own[:0], v, 10)
		if v < 0 || len(own) > maxDigits || digits > 0 && len(own) > digits || len(prefix)+max(len(own), digits) > MaxText {
			return nil, ErrForm
		}
		b = b[:len(prefix)]
		for range digits - len(own) {
			b = append(b, '0')
		}
		b = append(b, own...)
		texts[i] = string(b)
	}
	return src, nil
}

func decodeMolded(src []byte, texts []string) (rest []byte, err error) {
	if len(src) == 0 || int(src[0]) >= len(alphabets) {
		return nil, ErrForm
	}
	a := &alphabets[src[0]]
	first, src, err := Text(src[1:])
	size := (len(first) + 7) / 8
	if err != nil || len(src) < size {
		return nil, ErrForm
	}
	var differ []int
	for i := range size * 8 {
		if src[i/8]>>(i%8)&1 != 0 {
			if i >= len(first) {
				return nil, ErrForm
			}
			differ = append(differ, i)
		}
	}
	src = src[size:]
	// What is not there is not waited for: a few bytes could ask for many long texts.
	if uint64(len(texts)-1)*uint64(len(differ))*uint64(a.bits) > 8*uint64(len(src)) {
		return nil, ErrForm
	}
	r := BitReader{src: src}
	texts[0] = first
	b := []byte(first)
	for i := range texts[1:] {
		for _, at := range differ {
			if b[at] = byte(r.read(a.bits)); a.chars != "" {
				b[at] = a.chars[b[at]]
			}
		}
		if texts[i+1] = first; len(differ) > 0 {
			texts[i+1] = string(b)
		}
	}
	return r.End(src)
}

// DecodeSharing reads len(texts) texts that share their beginnings.
func DecodeSharing(src []byte, texts []string) (rest []byte, err error) {
	prev := ""
	for i := range texts {
		var shared uint64
		var own string
		if shared, src, err = Uvarint(src); err != nil {
			return nil, err
		}
		if own, src, err = Text(src); err != nil {
			return nil, err
		}
		// Without a bound a few bytes could ask for texts that grow with each other.
		if shared > uint64(len(prev)) || int(shared)+len(own) > MaxText {
			return nil, ErrForm
		}
		texts[i] = prev[:shared] + own
		prev = texts[i]
	}
	return src, nil
}
