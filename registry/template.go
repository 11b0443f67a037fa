package registry

import (
	"encoding/hex"
	"io"
	"strconv"
	"strings"

	"weir/model"
)

// maxIndexWidth is the widest that {n:0Wd} may ask for: no index has more digits.
const maxIndexWidth = 19

// template is a name pattern of createDevices: text with the placeholders {n}, {n:0Wd} (index, padded with zeros to W
// digits) and, where allowed, {random} (128 random bits as 32 hexadecimal digits).
type template []templatePart

type templatePart struct {
	text   string // literal, when neither index nor random
	index  bool
	width  int
	random bool
}

// parseTemplate reads s; field names the input field in a refusal. Braces have no other use than placeholders.
func parseTemplate(field, s string, allowRandom bool) (template, error) {
	var t template
	for s != "" {
		open := strings.IndexAny(s, "{}")
		if open < 0 {
			return append(t, templatePart{text: s}), nil
		}
		// Every brace belongs to a placeholder.
		if s[open] == '}' {
			return nil, model.Invalid(field, "a closing brace without an opening one")
		}
		if open > 0 {
			t = append(t, templatePart{text: s[:open]})
		}
		end := strings.IndexByte(s[open:], '}')
		if end < 0 {
			return nil, model.Invalid(field, "an opening brace without a closing one")
		}
		part, err := parsePlaceholder(field, s[open+1:open+end], allowRandom)
		if err != nil {
			return nil, err
		}
		t = append(t, part)
		s = s[open+end+1:]
	}
	return t, nil
}

func parsePlaceholder(field, name string, allowRandom bool) (templatePart, error) {
	if name == "n" {
		return templatePart{index: true}, nil
	}
	if name == "random" {
		if !allowRandom {
			return templatePart{}, model.Invalid(field, "{random} is allowed in externalIdTemplate only")
		}
		return templatePart{random: true}, nil
	}
	if digits, ok := strings.CutPrefix(name, "n:0"); ok {
		if digits, ok = strings.CutSuffix(digits, "d"); ok {
			if w, ok := parseWidth(digits); ok {
				return templatePart{index: true, width: w}, nil
			}
		}
	}
	return templatePart{}, model.Invalid(field, "{%s} is no placeholder, use {n} or {n:0Wd} with W from 1 to %d", name, maxIndexWidth)
}

func parseWidth(digits string) (int, bool) {
	if digits == "" || len(digits) > 2 || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	w, err := strconv.Atoi(digits)
	return w, err == nil && w >= 1 && w <= maxIndexWidth
}

// indexed reports whether the template holds an index placeholder.
func (t template) indexed() bool {
	for _, p := range t {
		if p.index {
			return true
		}
	}
	return false
}

// varies reports whether two indexes give two texts.
func (t template) varies() bool {
	for _, p := range t {
		if p.index || p.random {
			return true
		}
	}
	return false
}

// expand fills the template in for an index.
func (t template) expand(n int64, random io.Reader) (string, error) {
	var b strings.Builder
	for _, p := range t {
		switch {
		case p.random:
			var bits [16]byte
			if _, err := io.ReadFull(random, bits[:]); err != nil {
				return "", err
			}
			b.WriteString(hex.EncodeToString(bits[:]))
		case p.index:
			digits := strconv.FormatInt(n, 10)
			b.WriteString(strings.Repeat("0", max(0, p.width-len(digits))))
			b.WriteString(digits)
		default:
			b.WriteString(p.text)
		}
	}
	return b.String(), nil
}
