package channel

import (
	"strings"
	"testing"
)

func TestTextsInOneLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		hostile["line breaks"]:       "a Bcc: thief@example.net faked b c",
		hostile["other line breaks"]: "a b c d e f",
		hostile["turned around"]:     "cod�exe.�gpj",
		hostile["right to left"]:     hostile["right to left"],
		hostile["emoji"]:             hostile["emoji"],
		hostile["NUL and escapes"]:   "a�b�[31mred��c",
		hostile["spaces"]:            "a b c",
		hostile["only spaces"]:       "",
		hostile["tags and marks"]:    "�a�b",
		"0123456789012345678":        "0123456789012345678",
		"01234567890123456789":       "01234567890123456789",
		"012345678901234567890":      "01234567890123456789…",
		strings.Repeat("🔥", 30):      strings.Repeat("🔥", 20) + "…",
		"\xff\xfe":                   "��",
	} {
		limit := 20
		if !strings.HasSuffix(want, "…") {
			limit = max(limit, len(text))
		}
		if got := line(text, limit); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestTextsOfSeveralLines(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Open.\r\n\r\nCall.\rWait.\u2028Go.\n": "  Open.\n  Call.\n  Wait.\n  Go.",
		"\n \n":                                "",
		"a\n\x1b[2Jb":                          "  a\n  �[2Jb",
	} {
		if got := prose(text, "  "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{strings.Repeat("x", 10_000), strings.Repeat("é\n", 10_000)} {
		if got := prose(text, "  "); len([]rune(got)) > 5*maxProse {
			t.Errorf("%d characters", len([]rune(got)))
		}
	}
}
