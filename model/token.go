package model

import (
	"fmt"
	"strings"
)

// MaxToken is the longest entity token or tenant id, in bytes.
const MaxToken = 128

// ValidToken reports whether s is an entity token or tenant id: ^[A-Za-z0-9][A-Za-z0-9_-]*$, at most MaxToken bytes.
// Tokens become segments of topics and of URLs, so characters with a meaning there are not allowed.
func ValidToken(s string) bool {
	if len(s) == 0 || len(s) > MaxToken {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// CheckToken returns an INVALID_INPUT error that names field when s is no token.
func CheckToken(field, s string) error {
	if ValidToken(s) {
		return nil
	}
	return Invalid(field, "%s must match ^[A-Za-z0-9][A-Za-z0-9_-]*$ and be at most %d characters", quoteShort(s), MaxToken)
}

// CheckDotted is CheckToken for names that may hold dots: ids of OAuth clients, keys of settings. They never become a segment of
// a topic.
func CheckDotted(field, s string) error {
	if s != "" && len(s) <= MaxToken && !strings.ContainsFunc(s, notDotted) {
		return nil
	}
	return Invalid(field, "%s must consist of letters, digits, -, _ and . and be at most %d characters", quoteShort(s), MaxToken)
}

func notDotted(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
}

func quoteShort(s string) string {
	const maximum = 40
	if len(s) > maximum {
		return fmt.Sprintf("%q…", s[:maximum])
	}
	return fmt.Sprintf("%q", s)
}
