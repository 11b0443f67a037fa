// Package strict decodes JSON documents that people write, without forgiving anything: unknown fields, fields given twice, names in another
// case, values of another type and null are refused, each with the path of its field, and decoding goes on after an offence. Rule
// definitions and canvases are such documents.
//
// CheckText makes sure that the text is one well-formed object; a Decoder then walks its tokens. A setter reads the value of one field
// into where it belongs, so the fields of an object are a map of setters.
package strict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"weir/model"
)

// MaxIdentifier is the longest attribute, anchor type, alarm key, command or connector name, and the longest name of a metric in characters.
const MaxIdentifier = model.MaxToken

// Error is the reason for which a document is refused, written for its author: the field first, then the reason.
type Error struct {
	// Field is the path of the field, such as when, hold or actions[0].httpCall.url; "" for the document as a whole.
	Field  string
	Reason string
	Fields []string // of an unknown field: those that its object has
	Values []string // of a value that is none of these: the permitted ones
	Hint   string   // what to write instead, "" for nothing
}

func (e *Error) Error() string {
	text := e.Reason
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	if hint := e.Advice(); hint != "" {
		text += " (" + hint + ")"
	}
	return text
}

// Advice is what to write instead, with the names that there are, "" for nothing.
func (e *Error) Advice() string {
	if len(e.Fields) > 0 {
		return "known are " + strings.Join(e.Fields, ", ")
	}
	return e.Hint
}

// Top is the top-level field that the error concerns, "" for the document as a whole.
func (e *Error) Top() string {
	for i := range len(e.Field) {
		if e.Field[i] == '.' || e.Field[i] == '[' {
			return e.Field[:i]
		}
	}
	return e.Field
}

// Refuse makes an error.
func Refuse(field, format string, args ...any) *Error {
	return &Error{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// CheckText makes sure that src is one well-formed object of at most limit bytes, so that the walk need not handle broken syntax. what
// names the document in an error.
func CheckText(src []byte, what string, limit int) *Error {
	if len(src) > limit {
		return Refuse("", "the %s is %d bytes long, at most %d are allowed", what, len(src), limit)
	}
	if !utf8.Valid(src) {
		return Refuse("", "the %s is not valid UTF-8", what)
	}
	var raw json.RawMessage
	switch err := json.Unmarshal(src, &raw).(type) {
	case nil:
	case *json.SyntaxError:
		return Refuse("", "the %s is not valid JSON: %v (at byte %d)", what, err, err.Offset)
	default:
		return Refuse("", "the %s is not valid JSON: %v", what, err)
	}
	if t := bytes.TrimLeft(src, " \t\r\n"); t[0] != '{' {
		return Refuse("", "the %s must be a JSON object, not %s", what, kindOfJSON(t[0]))
	}
	return nil
}

// Decoder walks the tokens of text that is known to be well-formed, and goes on after an offence.
type Decoder struct {
	// Millis says that durations are whole milliseconds in the document, and not strings such as "10m".
	Millis bool

	json   *json.Decoder
	faults []*Error
}

// New returns a decoder of text that passed CheckText, or of a value out of it.
func New(src []byte) *Decoder { return &Decoder{json: tokens(src)} }

func tokens(src []byte) *json.Decoder {
	d := json.NewDecoder(bytes.NewReader(src))
	d.UseNumber()
	return d
}

// Faults are the offences, in the order of the text.
func (d *Decoder) Faults() []*Error { return d.faults }

// MaxFaults is how many offences of a document are kept.
const MaxFaults = 100

// Note keeps an offence.
func (d *Decoder) Note(err *Error) {
	if err != nil && len(d.faults) < MaxFaults {
		d.faults = append(d.faults, err)
	}
}

// Refused reports whether something was held against a field.
func (d *Decoder) Refused(field string) bool {
	return slices.ContainsFunc(d.faults, func(e *Error) bool { return e.Field == field })
}

// apart lets read walk the next value by itself, so that the walk continues after the value whatever read has left of it.
func (d *Decoder) apart(read func() *Error) {
	whole := d.json
	d.json = tokens(d.value())
	d.Note(read())
	d.json = whole
}

// value takes the next value as it stands; CheckText made sure that there is one.
func (d *Decoder) value() (value json.RawMessage) {
	_ = d.json.Decode(&value)
	return value
}

// Setter reads the value of one field. path is the field's, for errors.
type Setter func(path string) *Error

// Object reads an object whose fields are exactly those named.
func (d *Decoder) Object(path string, fields map[string]Setter) *Error {
	return d.Members(path, func(name, at string) *Error {
		set, ok := fields[name]
		if !ok {
			err := Refuse(at, "unknown field")
			err.Fields = slices.Sorted(maps.Keys(fields))
			return err
		}
		return set(at)
	})
}

// Members reads an object and passes each member to set. It refuses a name that is given twice.
func (d *Decoder) Members(path string, set func(name, at string) *Error) *Error {
	if err := d.open(path, '{', "an object"); err != nil {
		return err
	}
	seen := map[string]bool{}
	for d.json.More() {
		name, _ := d.token().(string)
		at, again := Join(path, name), seen[name]
		seen[name] = true
		d.apart(func() *Error {
			if again {
				return Refuse(at, "given twice")
			}
			return set(name, at)
		})
	}
	d.token()
	return nil
}

// List reads an array of at most limit elements and passes each to element, with its position and path. what names them in an error.
func (d *Decoder) List(limit int, what string, element func(i int, at string) *Error) Setter {
	return func(path string) *Error {
		if err := d.open(path, '[', "an array"); err != nil {
			return err
		}
		for i := 0; d.json.More(); i++ {
			if i == limit {
				return Refuse(path, "at most %d %s are allowed", limit, what)
			}
			d.apart(func() *Error { return element(i, path+"["+strconv.Itoa(i)+"]") })
		}
		d.token()
		return nil
	}
}

// Raw reads any value as it stands.
func (d *Decoder) Raw(to *[]byte) Setter {
	return func(string) *Error {
		*to = d.value()
		return nil
	}
}

func (d *Decoder) open(path string, delim json.Delim, want string) *Error {
	if tok := d.token(); tok != delim {
		return wrongType(path, want, tok)
	}
	return nil
}

// token returns the next token; CheckText made sure that there is one.
func (d *Decoder) token() json.Token {
	tok, _ := d.json.Token()
	return tok
}

// Text reads a string.
func (d *Decoder) Text(to *string) Setter {
	return func(path string) *Error {
		tok := d.token()
		s, ok := tok.(string)
		if !ok {
			return wrongType(path, "a string", tok)
		}
		if strings.ContainsRune(s, 0) {
			return Refuse(path, "must not hold a NUL character")
		}
		*to = s
		return nil
	}
}

// OneOf reads a string that is one of those named, or empty.
func OneOf[S ~string](d *Decoder, to *S, allowed []S) Setter {
	return func(path string) *Error {
		var s string
		if err := d.Text(&s)(path); err != nil {
			return err
		}
		if s != "" && !slices.Contains(allowed, S(s)) {
			err := Refuse(path, "%s is not one of %s", Quote(s), strings.Join(Texts(allowed), ", "))
			err.Values = Texts(allowed)
			return err
		}
		*to = S(s)
		return nil
	}
}

// Identifier reads a name of the entity-token pattern, or an empty string.
func (d *Decoder) Identifier(to *string) Setter {
	return func(path string) *Error {
		if err := d.Text(to)(path); err != nil {
			return err
		}
		if *to != "" && !model.ValidToken(*to) {
			return Refuse(path, "%s must match ^[A-Za-z0-9][A-Za-z0-9_-]*$ and be at most %d characters", Quote(*to), MaxIdentifier)
		}
		return nil
	}
}

// Metric reads the name of a metric, or an empty string. A device names its metrics as it likes: a path of LwM2M, a name of Sparkplug with spaces.
func (d *Decoder) Metric(to *string) Setter {
	return func(path string) *Error {
		if err := d.Text(to)(path); err != nil {
			return err
		}
		if n := utf8.RuneCountInString(*to); n > MaxIdentifier {
			return Refuse(path, "must have at most %d characters, not %d", MaxIdentifier, n)
		}
		return nil
	}
}

// Flag reads true or false.
func (d *Decoder) Flag(to *bool) Setter {
	return func(path string) *Error {
		tok := d.token()
		b, ok := tok.(bool)
		if !ok {
			return wrongType(path, "true or false", tok)
		}
		*to = b
		return nil
	}
}

// Float reads a number; a negative zero is zero.
func (d *Decoder) Float(to **float64) Setter {
	return func(path string) *Error {
		tok := d.token()
		n, ok := tok.(json.Number)
		if !ok {
			return wrongType(path, "a number", tok)
		}
		f, err := strconv.ParseFloat(string(n), 64)
		if err != nil || math.IsInf(f, 0) {
			return Refuse(path, "%s is out of range", short(string(n)))
		}
		*to = Unsigned(&f)
		return nil
	}
}

// Integer reads a whole number from lowest to highest.
func (d *Decoder) Integer(to *int32, lowest, highest int32) Setter {
	return func(path string) *Error {
		tok := d.token()
		n, ok := tok.(json.Number)
		if !ok {
			return wrongType(path, "a whole number", tok)
		}
		v, err := strconv.ParseInt(string(n), 10, 32)
		if err != nil || int32(v) < lowest || int32(v) > highest {
			return Refuse(path, "%s is not a whole number from %d to %d", short(string(n)), lowest, highest)
		}
		*to = int32(v)
		return nil
	}
}

// Period reads a duration longer than zero. As a number of milliseconds, 0 stands for none, as an empty string does.
func (d *Decoder) Period(to *time.Duration) Setter {
	return func(path string) *Error {
		var got *time.Duration
		if err := d.Span(&got)(path); err != nil || got == nil {
			return err
		}
		if *got == 0 && !d.Millis {
			return Refuse(path, "must be longer than zero")
		}
		*to = *got
		return nil
	}
}

// Span reads a duration that may be zero.
func (d *Decoder) Span(to **time.Duration) Setter {
	if d.Millis {
		return d.millis(to)
	}
	return func(path string) *Error {
		var s string
		if err := d.Text(&s)(path); err != nil || s == "" {
			return err
		}
		v, err := time.ParseDuration(s)
		if err != nil {
			return Refuse(path, `%s is no duration such as "90s", "10m" or "1h30m"`, Quote(s))
		}
		if v < 0 {
			return Refuse(path, "must not be negative")
		}
		*to = &v
		return nil
	}
}

// maxMillis is the longest duration that fits into one of Go.
const maxMillis = math.MaxInt64 / int64(time.Millisecond)

func (d *Decoder) millis(to **time.Duration) Setter {
	return func(path string) *Error {
		tok := d.token()
		n, ok := tok.(json.Number)
		if !ok {
			return wrongType(path, "a whole number of milliseconds", tok)
		}
		v, err := strconv.ParseInt(string(n), 10, 64)
		if err != nil || v < 0 || v > maxMillis {
			return Refuse(path, "%s is not a whole number of milliseconds from 0 on", short(string(n)))
		}
		*to = new(time.Duration(v) * time.Millisecond)
		return nil
	}
}

// Unsigned takes the sign off a zero, so that equal numbers are written alike.
func Unsigned(v *float64) *float64 {
	if v == nil || *v != 0 {
		return v
	}
	return new(float64(0))
}

func wrongType(path, want string, got json.Token) *Error {
	return Refuse(path, "must be %s, not %s", want, kindOfToken(got))
}

func kindOfToken(tok json.Token) string {
	switch tok := tok.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case json.Delim:
		return kindOfJSON(byte(tok))
	}
	return "a number"
}

// kindOfJSON names the kind of the value that begins with c.
func kindOfJSON(c byte) string {
	switch c {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// Join composes the path of a field as Error.Field has it. A name that no field has is shown short.
func Join(path, name string) string {
	if !model.ValidToken(name) {
		name = Quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// Texts are names as strings.
func Texts[S ~string](names []S) []string {
	ss := make([]string, len(names))
	for i, n := range names {
		ss[i] = string(n)
	}
	return ss
}

// Quote shows a text of the document in an error, short.
func Quote(s string) string { return strconv.Quote(short(s)) }

func short(s string) string {
	const limit = 40
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit]) + "…"
}
