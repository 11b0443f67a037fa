// Package secrettext takes the secret out of the text of a file. It is the one reader of such files: what an editor adds is taken off, and
// what could make the secret another one than was meant is refused.
package secrettext

import (
	"bytes"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The reasons for which a text is refused. None shows the text.
var (
	ErrEmpty    = errors.New("is empty")
	ErrEncoding = errors.New("is no text in UTF-8: save it as UTF-8 without a byte order mark")
	ErrUTF16    = errors.New("is in UTF-16: save it as UTF-8")
	ErrBlank    = errors.New("begins or ends with a blank: take it off")
	ErrControl  = errors.New("contains a control character: one line of text was expected")
)

// Of returns the secret of a text, without a byte order mark of UTF-8 and the ends of lines at its end.
func Of(text []byte) (string, error) {
	if bytes.HasPrefix(text, []byte{0xff, 0xfe}) || bytes.HasPrefix(text, []byte{0xfe, 0xff}) {
		return "", ErrUTF16
	}
	s := strings.TrimRight(string(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))), "\r\n")
	switch {
	case s == "":
		return "", ErrEmpty
	case strings.ContainsRune(s, 0) && len(s) > 1 && len(s)%2 == 0 && strings.Count(s, "\x00") >= len(s)/2:
		return "", ErrUTF16
	case !utf8.ValidString(s):
		return "", ErrEncoding
	case strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r' }):
		return "", ErrControl
	case strings.TrimSpace(s) != s:
		return "", ErrBlank
	}
	return s, nil
}
