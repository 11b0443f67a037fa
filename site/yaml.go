package site

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"weir/internal/yamldoc"
)

// header stands above an exported file.
const header = `# What this Weir holds. Secrets are not written: existing ones are kept when the file is applied. To make the credentials
# and the people anew elsewhere, add credentialId_file, credentialValue_file, provisionSecret_file, secret_file and password_file (or _env).
`

// YAML writes the document as a site file, without secrets.
func (d *Document) YAML() string {
	w := &writer{}
	w.b.WriteString(header)
	fmt.Fprintf(&w.b, "version: %d\n", Version)
	format := d.format
	if format == nil {
		format = DefaultFormat()
	}
	w.lists(format.root, d.Lists, 0)
	return w.b.String()
}

// writer writes block YAML, two spaces a level.
type writer struct{ b strings.Builder }

func (w *writer) line(indent int, format string, args ...any) {
	w.b.WriteString(strings.Repeat("  ", indent))
	fmt.Fprintf(&w.b, format, args...)
	w.b.WriteByte('\n')
}

func (w *writer) lists(k *kind, lists map[string][]*Entity, indent int) {
	for _, n := range k.lists {
		list := lists[n.list]
		if len(list) == 0 {
			continue
		}
		w.line(indent, "%s:", n.list)
		for _, e := range list {
			w.entity(n, e, indent+1)
		}
	}
}

func (w *writer) entity(k *kind, e *Entity, indent int) {
	begin := "- "
	for i, value := range strings.SplitN(e.Name, "/", len(k.ids)) {
		w.line(indent, "%s%s: %s", begin, k.ids[i], scalarYAML(value))
		begin = "  "
	}
	indent++
	for i := range k.fields {
		f := &k.fields[i]
		if slices.Contains(k.ids, f.name) {
			continue
		}
		if id, ok := e.Secrets[f.name]; ok && f.literal() && e.Fields["credentialType"] != "ACCESS_TOKEN" {
			w.line(indent, "%s: %s", f.name, scalarYAML(id))
		}
		if v, ok := e.Fields[f.name]; ok {
			w.field(f, v, indent)
		}
	}
	w.lists(k, e.Lists, indent)
}

func (w *writer) field(f *field, v any, indent int) {
	switch v := v.(type) {
	case nil:
		w.line(indent, "%s: null", f.name)
	case string:
		if f.typ == documentField {
			w.document(f, v, indent)
			return
		}
		w.line(indent, "%s: %s", f.name, scalarYAML(v))
	case float64:
		w.line(indent, "%s: %s", f.name, strconv.FormatFloat(v, 'g', -1, 64))
	case []string, []any:
		items := texts(v)
		for i := range items {
			items[i] = scalarYAML(items[i])
		}
		w.line(indent, "%s: [%s]", f.name, strings.Join(items, ", "))
	default:
		w.line(indent, "%s: %v", f.name, v)
	}
}

// document writes a JSON document as YAML. One that would be read as something else (it has a key twice, or is very deep)
// is written as its text.
func (w *writer) document(f *field, text string, indent int) {
	inner := &writer{}
	if inner.value(f.name+":", text, indent) && reads(inner.b.String(), f.name, text) {
		w.b.WriteString(inner.b.String())
		return
	}
	w.line(indent, "%s: %s", f.name, quotedYAML(text))
}

// reads reports whether what was written is read as the document.
func reads(written, name, text string) bool {
	n, problems := yamldoc.Parse("", []byte(written))
	if len(problems) > 0 || n.Kind != yamldoc.Map {
		return false
	}
	v := n.Get(name)
	if v == nil || v.Kind != yamldoc.Map && v.Kind != yamldoc.List {
		return false
	}
	ok := true
	got := jsonOf(v, func(yamldoc.Position, string, string, ...any) { ok = false })
	return ok && sameJSON(got, text)
}

// value writes a JSON value after a key or a dash; it returns false when the value has no form in YAML.
func (w *writer) value(before, text string, indent int) bool {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return w.next(d, before, indent) && !d.More()
}

func (w *writer) next(d *json.Decoder, before string, indent int) bool {
	t, err := d.Token()
	if err != nil {
		return false
	}
	switch t := t.(type) {
	case json.Delim:
		if !d.More() {
			_, err := d.Token()
			w.line(indent, "%s %s", before, map[json.Delim]string{'{': "{}", '[': "[]"}[t])
			return err == nil
		}
		w.line(indent, "%s", before)
		for d.More() {
			key := "-"
			if t == '{' {
				k, err := d.Token()
				name, ok := k.(string)
				if err != nil || !ok {
					return false
				}
				key = scalarYAML(name) + ":"
			}
			if !w.next(d, key, indent+1) {
				return false
			}
		}
		_, err := d.Token()
		return err == nil
	case string:
		w.line(indent, "%s %s", before, scalarYAML(t))
	case nil:
		w.line(indent, "%s null", before)
	default: // numbers as they are written, truth values
		w.line(indent, "%s %v", before, t)
	}
	return true
}

// plainYAML is what needs no quotes for any reader.
var plainYAML = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./@+-]*( [A-Za-z0-9_./@+-]+)*$`)

// words are texts that some readers of YAML take for something else.
var words = strings.Fields("null true false yes no on off y n")

// scalarYAML writes a text so that it is read as that text.
func scalarYAML(s string) string {
	if plainYAML.MatchString(s) && !slices.Contains(words, strings.ToLower(s)) {
		return s
	}
	return quotedYAML(s)
}

func quotedYAML(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < ' ' || r >= 0x7f && r <= 0xa0:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r >= 0x2000 && r <= 0x206f || r == 0xfeff || r == utf8.RuneError:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
