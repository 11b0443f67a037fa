// Package jsonscan pulls JSON values (RFC 8259) out of a byte slice without building a tree: the caller says what it
// expects next and gets it or an error with its position. It is stricter than encoding/json where leniency would lose
// something: a member given twice can be noticed, names match exactly, text must be valid UTF-8, nothing may
// follow the document, and nesting is bounded.
package jsonscan

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is the deepest nesting that Skip walks through.
const MaxDepth = 64

// SyntaxError is what does not read as expected, at a byte offset counted from 0.
type SyntaxError struct {
	At   int
	What string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.What, e.At) }

// Scanner reads one document. The zero value is not usable; make one with New.
type Scanner struct {
	b   []byte
	pos int
	err error
}

// New returns a Scanner of b, which it does not change.
func New(b []byte) Scanner { return Scanner{b: b} }

// Err is the first error.
func (s *Scanner) Err() error { return s.err }

// Pos is the offset of the next byte.
func (s *Scanner) Pos() int { return s.pos }

// Fail sets the error, when none is set yet, at the present place.
func (s *Scanner) Fail(format string, args ...any) {
	if s.err == nil {
		s.err = &SyntaxError{At: s.pos, What: fmt.Sprintf(format, args...)}
	}
}

// Adopt sets the error to that of a scanner that read a part of this document from offset base on, when that has one
// and none is set yet. prefix says what the part is.
func (s *Scanner) Adopt(part *Scanner, base int, prefix string) {
	var inner *SyntaxError
	if s.err == nil && errors.As(part.err, &inner) {
		s.err = &SyntaxError{At: base + inner.At, What: prefix + inner.What}
	}
}

func (s *Scanner) space() {
	for s.pos < len(s.b) {
		switch s.b[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// Peek returns the first byte of the next value without taking it: one of { [ " - 0..9 t f n } ] , : or 0 at the end
// or after an error.
func (s *Scanner) Peek() byte {
	if s.err != nil {
		return 0
	}
	s.space()
	if s.pos >= len(s.b) {
		return 0
	}
	return s.b[s.pos]
}

func (s *Scanner) expect(c byte, what string) bool {
	if s.Peek() != c {
		s.Fail("expected %s", what)
		return false
	}
	s.pos++
	return true
}

// End reports an error unless only white space is left.
func (s *Scanner) End() error {
	if s.err == nil {
		if s.space(); s.pos < len(s.b) {
			s.Fail("unexpected text after the document")
		}
	}
	return s.err
}

// Object calls member for each member of the object that comes next. member must take exactly one value.
func (s *Scanner) Object(member func(name []byte)) {
	if !s.expect('{', "an object") {
		return
	}
	if s.Peek() == '}' {
		s.pos++
		return
	}
	for s.err == nil {
		if s.Peek() != '"' {
			s.Fail("expected a member name")
			return
		}
		name := s.text()
		if !s.expect(':', "':'") {
			return
		}
		member(name)
		switch s.Peek() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			return
		default:
			s.Fail("expected ',' or '}'")
		}
	}
}

// Array calls element for each element of the array that comes next, with its index. element must take exactly one value.
func (s *Scanner) Array(element func(i int)) {
	if !s.expect('[', "an array") {
		return
	}
	if s.Peek() == ']' {
		s.pos++
		return
	}
	for i := 0; s.err == nil; i++ {
		element(i)
		switch s.Peek() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			return
		default:
			s.Fail("expected ',' or ']'")
		}
	}
}

// String takes a string.
func (s *Scanner) String(what string) string {
	if s.Peek() != '"' {
		s.Fail("%s must be a string", what)
		return ""
	}
	return string(s.text())
}

// Bytes takes a string; the result may share the document's memory.
func (s *Scanner) Bytes(what string) []byte {
	if s.Peek() != '"' {
		s.Fail("%s must be a string", what)
		return nil
	}
	return s.text()
}

// Number takes a number and returns its text.
func (s *Scanner) Number(what string) string {
	if c := s.Peek(); c != '-' && (c < '0' || c > '9') {
		s.Fail("%s must be a number", what)
		return ""
	}
	return string(s.number())
}

// Raw takes any value and returns its bytes, which share the document's memory.
func (s *Scanner) Raw() []byte {
	s.Peek()
	from := s.pos
	s.Skip()
	if s.err != nil {
		return nil
	}
	return s.b[from:s.pos]
}

// Skip reads any value and discards it.
func (s *Scanner) Skip() { s.skip(0) }

func (s *Scanner) skip(depth int) {
	if depth > MaxDepth {
		s.Fail("nesting deeper than %d", MaxDepth)
		return
	}
	switch c := s.Peek(); {
	case c == '{':
		s.Object(func([]byte) { s.skip(depth + 1) })
	case c == '[':
		s.Array(func(int) { s.skip(depth + 1) })
	case c == '"':
		s.text()
	case c == '-' || c >= '0' && c <= '9':
		s.number()
	case c == 't':
		s.word("true")
	case c == 'f':
		s.word("false")
	case c == 'n':
		s.word("null")
	default:
		s.Fail("expected a value")
	}
}

// Null takes a null if one comes next.
func (s *Scanner) Null() bool {
	if s.Peek() != 'n' {
		return false
	}
	s.word("null")
	return s.err == nil
}

// Bool takes true or false.
func (s *Scanner) Bool(what string) bool {
	switch s.Peek() {
	case 't':
		s.word("true")
		return true
	case 'f':
		s.word("false")
	default:
		s.Fail("%s must be true or false", what)
	}
	return false
}

func (s *Scanner) word(w string) {
	if !bytes.HasPrefix(s.b[s.pos:], []byte(w)) {
		s.Fail("expected a value")
		return
	}
	s.pos += len(w)
}

func (s *Scanner) number() []byte {
	from := s.pos
	i := s.pos
	digits := func() bool {
		start := i
		for i < len(s.b) && s.b[i] >= '0' && s.b[i] <= '9' {
			i++
		}
		return i > start
	}
	if i < len(s.b) && s.b[i] == '-' {
		i++
	}
	zero := i < len(s.b) && s.b[i] == '0'
	first := i
	ok := digits() && !(zero && i-first > 1)
	if ok && i < len(s.b) && s.b[i] == '.' {
		i++
		ok = digits()
	}
	if ok && i < len(s.b) && (s.b[i] == 'e' || s.b[i] == 'E') {
		i++
		if i < len(s.b) && (s.b[i] == '+' || s.b[i] == '-') {
			i++
		}
		ok = digits()
	}
	if !ok {
		s.Fail("malformed number")
		return nil
	}
	s.pos = i
	return s.b[from:i]
}

// text takes the string at the present place; without escapes it shares the document's memory.
func (s *Scanner) text() []byte {
	s.pos++ // the quote
	from := s.pos
	ascii := true
	for i := from; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '"':
			p := s.b[from:i]
			if !ascii && !utf8.Valid(p) {
				s.Fail("string is not valid UTF-8")
				return nil
			}
			s.pos = i + 1
			return p
		case c == '\\':
			return s.escaped(from, i)
		case c < 0x20:
			s.pos = i
			s.Fail("control character in a string")
			return nil
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	s.Fail("string without an end")
	return nil
}

func (s *Scanner) escaped(from, at int) []byte {
	out := append(make([]byte, 0, at-from+16), s.b[from:at]...)
	for i := at; i < len(s.b); {
		c := s.b[i]
		switch {
		case c == '"':
			if !utf8.Valid(out) {
				s.Fail("string is not valid UTF-8")
				return nil
			}
			s.pos = i + 1
			return out
		case c < 0x20:
			s.pos = i
			s.Fail("control character in a string")
			return nil
		case c != '\\':
			out = append(out, c)
			i++
		default:
			var n int
			if out, n = unescape(out, s.b[i:]); n == 0 {
				s.pos = i
				s.Fail("malformed escape in a string")
				return nil
			}
			i += n
		}
	}
	s.Fail("string without an end")
	return nil
}

// unescape appends what the escape at the start of b stands for and returns how many bytes it took, 0 when malformed.
// A surrogate without its pair is malformed: it stands for no character.
func unescape(out, b []byte) ([]byte, int) {
	if len(b) < 2 {
		return out, 0
	}
	switch b[1] {
	case '"', '\\', '/':
		return append(out, b[1]), 2
	case 'b':
		return append(out, '\b'), 2
	case 'f':
		return append(out, '\f'), 2
	case 'n':
		return append(out, '\n'), 2
	case 'r':
		return append(out, '\r'), 2
	case 't':
		return append(out, '\t'), 2
	case 'u':
		r, ok := hex4(b[2:])
		if !ok {
			return out, 0
		}
		if !utf16.IsSurrogate(r) {
			return utf8.AppendRune(out, r), 6
		}
		if len(b) < 12 || b[6] != '\\' || b[7] != 'u' {
			return out, 0
		}
		low, ok := hex4(b[8:])
		r = utf16.DecodeRune(r, low)
		if !ok || r == utf8.RuneError {
			return out, 0
		}
		return utf8.AppendRune(out, r), 12
	}
	return out, 0
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	v, err := strconv.ParseUint(string(b[:4]), 16, 16)
	return rune(v), err == nil
}
