package site

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"weir/internal/yamldoc"
)

// numeral is a number as JSON writes it.
var numeral = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// doubtful looks like a number to some readers of YAML and like a text to others.
var doubtful = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9][0-9_]*\.?[0-9_]*)([eE][-+]?[0-9]+)?$|^[-+]?0[xob][0-9a-fA-F_]+$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$`)

// jsonOf writes a value of a YAML document as JSON. problem is called with what cannot be one.
func jsonOf(n *yamldoc.Node, problem func(at yamldoc.Position, hint, format string, args ...any)) string {
	var b strings.Builder
	writeJSON(&b, n, problem)
	if b.Len() > maxDocument {
		problem(n.Place, "", "the document is larger than %d KiB", maxDocument>>10)
	}
	return b.String()
}

// maxDocument is more than any document of the API may have. Aliases could make more of a small file than memory holds.
const maxDocument = 1 << 20

func writeJSON(b *strings.Builder, n *yamldoc.Node, problem func(at yamldoc.Position, hint, format string, args ...any)) {
	if b.Len() > maxDocument {
		return
	}
	switch n.Kind {
	case yamldoc.Null:
		b.WriteString("null")
	case yamldoc.Scalar:
		b.WriteString(scalarJSON(n, problem))
	case yamldoc.List:
		b.WriteByte('[')
		for i, item := range n.Items {
			if i > 0 {
				b.WriteByte(',')
			}
			writeJSON(b, item, problem)
		}
		b.WriteByte(']')
	case yamldoc.Map:
		b.WriteByte('{')
		for i, e := range n.Entries {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(textJSON(e.Key))
			b.WriteByte(':')
			writeJSON(b, e.Value, problem)
		}
		b.WriteByte('}')
	}
}

func scalarJSON(n *yamldoc.Node, problem func(at yamldoc.Position, hint, format string, args ...any)) string {
	switch {
	case n.Quoted:
	case n.Text == "true" || n.Text == "false", numeral.MatchString(n.Text):
		return n.Text
	case doubtful.MatchString(n.Text):
		problem(n.Place, "write a number as 12 or 0.5, a text in quotes", "%s is read as a number by some and as a text by others", n.Text)
	}
	return textJSON(n.Text)
}

func textJSON(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a text always has a JSON form
	return strings.TrimSuffix(b.String(), "\n")
}

// decodeJSON reads one JSON document; numbers stay as they are written.
func decodeJSON(text string) (any, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("more than one document")
	}
	return v, nil
}

// sameJSON reports whether two documents mean the same: white space, the order of keys and how a number is written mean
// nothing.
func sameJSON(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := decodeJSON(a)
	y, errY := decodeJSON(b)
	return errX == nil && errY == nil && sameValue(x, y)
}

func sameValue(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		o, ok := b.(map[string]any)
		if !ok || len(a) != len(o) {
			return false
		}
		for k, v := range a {
			if w, ok := o[k]; !ok || !sameValue(v, w) {
				return false
			}
		}
		return true
	case []any:
		o, ok := b.([]any)
		if !ok || len(a) != len(o) {
			return false
		}
		for i := range a {
			if !sameValue(a[i], o[i]) {
				return false
			}
		}
		return true
	case json.Number:
		o, ok := b.(json.Number)
		return ok && sameNumber(string(a), string(o))
	}
	return a == b
}

// sameNumber compares whole numbers digit by digit and others as the numbers that a reader makes of them.
func sameNumber(a, b string) bool {
	if a == b {
		return true
	}
	if whole(a) && whole(b) {
		return a == "-0" && b == "0" || a == "0" && b == "-0"
	}
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y
}

func whole(s string) bool { return !strings.ContainsAny(s, ".eE") }
