package jsonscan

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// Text returns what of a document is no text: a byte that is no UTF-8, or a surrogate without its pair in a string. encoding/json puts
// U+FFFD in place of both without a word, so whoever decodes with it what others have sent asks here first. Anything else that is wrong with the document is
// left to the decoder. The error is a *SyntaxError.
func Text(doc []byte) error {
	for at := 0; at < len(doc); {
		c := doc[at]
		switch {
		case c == '\\':
			n, ok := escape(doc[at:])
			if !ok {
				return &SyntaxError{at, "half of a surrogate pair, which is no character,"}
			}
			at += n
		case c < utf8.RuneSelf:
			at++
		default:
			r, size := utf8.DecodeRune(doc[at:])
			if r == utf8.RuneError && size == 1 {
				return &SyntaxError{at, fmt.Sprintf("0x%02x, which is no text in UTF-8,", c)}
			}
			at += size
		}
	}
	return nil
}

// escape returns the length of the escape at the start of b; ok is false for a surrogate without its pair.
func escape(b []byte) (n int, ok bool) {
	if len(b) < 2 || b[1] != 'u' {
		return min(2, len(b)), true
	}
	r, well := hex4(b[2:])
	switch {
	case !well:
		return 2, true
	case r >= 0xdc00 && r <= 0xdfff:
		return 0, false
	case r < 0xd800 || r > 0xdbff:
		return 6, true
	}
	if len(b) < 12 || !bytes.HasPrefix(b[6:], []byte(`\u`)) {
		return 0, false
	}
	low, well := hex4(b[8:])
	return 12, well && low >= 0xdc00 && low <= 0xdfff
}
