package cli

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable makes a string that others have chosen (a device, or a user of the API) fit for one line
// of a terminal: nothing of it moves the cursor, changes colours, turns the direction round or begins a line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, s)
}

// harmless takes what steers a terminal out of a text of several lines. Everything that is written for people goes through
// it, so that a value that was not made printable does no more than look strange.
func harmless(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || turning(r)) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// turning reports whether a character turns the direction of what follows.
func turning(r rune) bool { return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 }

// escaped writes those controls that JSON lets stand, which only stand in its strings, as JSON also may.
func escaped(json string) string {
	if !strings.ContainsFunc(json, steering) {
		return json
	}
	var b strings.Builder
	for _, r := range json {
		if steering(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func steering(r rune) bool { return r >= 0x7f && r <= 0x9f || turning(r) }
