package rules

import (
	"strings"
	"time"
)

// FormatDuration writes d as a Go duration string without the zero parts at its end: 10m, not 10m0s. It is the
// canonical form of durations in a definition.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-len("0s")]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-len("0m")]
	}
	return s
}
