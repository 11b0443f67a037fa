package rules

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"weir/model"
)

// decoder walks the tokens of text that is known to be well-formed, and goes on after an offence.
type decoder struct {
	*json.Decoder
	types  []Type // that a rule may have
	faults []*Error
}

func newDecoder(src []byte) *decoder {
	d := &decoder{Decoder: json.NewDecoder(bytes.NewReader(src))}
	d.UseNumber()
	return d
}

// note keeps an offence.
func (d *decoder) note(err *Error) {
	if err != nil {
		d.faults = append(d.faults, err)
	}
}

// refused reports whether something was held against a field.
func (d *decoder) refused(field string) bool {
	return slices.ContainsFunc(d.faults, func(e *Error) bool { return e.Field == field })
}

// apart lets read walk the next value by itself, so that the walk continues after the value whatever read has left of it.
func (d *decoder) apart(read func() *Error) {
	var value json.RawMessage
	_ = d.Decode(&value) // checkText made sure that there is one
	whole := d.Decoder
	d.Decoder = newDecoder(value).Decoder
	d.note(read())
	d.Decoder = whole
}

// setter reads the value of one field. path is the field's, for errors.
type setter func(path string) *Error

// object reads an object whose fields are exactly those named.
func (d *decoder) object(path string, fields map[string]setter) *Error {
	return d.members(path, func(name, at string) *Error {
		set, ok := fields[name]
		if !ok {
			err := refuse(at, "unknown field")
			err.Fields = slices.Sorted(maps.Keys(fields))
			return err
		}
		return set(at)
	})
}

// members reads an object and passes each member to set. It refuses a name that is given twice.
func (d *decoder) members(path string, set func(name, at string) *Error) *Error {
	if err := d.open(path, '{', "an object"); err != nil {
		return err
	}
	seen := map[string]bool{}
	for d.More() {
		name, _ := d.token().(string)
		at, again := join(path, name), seen[name]
		seen[name] = true
		d.apart(func() *Error {
			if again {
				return refuse(at, "given twice")
			}
			return set(name, at)
		})
	}
	d.token()
	return nil
}

func (d *decoder) open(path string, delim json.Delim, want string) *Error {
	if tok := d.token(); tok != delim {
		return wrongType(path, want, tok)
	}
	return nil
}

// token returns the next token; checkText made sure that there is one.
func (d *decoder) token() json.Token {
	tok, _ := d.Token()
	return tok
}

// text reads a string.
func (d *decoder) text(to *string) setter {
	return func(path string) *Error {
		tok := d.token()
		s, ok := tok.(string)
		if !ok {
			return wrongType(path, "a string", tok)
		}
		if strings.ContainsRune(s, 0) {
			return refuse(path, "must not hold a NUL character")
		}
		*to = s
		return nil
	}
}

// oneOf reads a string that is one of those named, or empty.
func oneOf[S ~string](d *decoder, to *S, allowed []S) setter {
	return func(path string) *Error {
		var s string
		if err := d.text(&s)(path); err != nil {
			return err
		}
		if s != "" && !slices.Contains(allowed, S(s)) {
			err := refuse(path, "%s is not one of %s", quote(s), strings.Join(texts(allowed), ", "))
			err.Values = texts(allowed)
			return err
		}
		*to = S(s)
		return nil
	}
}

// identifier reads a name of the entity-token pattern, or an empty string.
func (d *decoder) identifier(to *string) setter {
	return func(path string) *Error {
		if err := d.text(to)(path); err != nil {
			return err
		}
		if *to != "" && !model.ValidToken(*to) {
			return refuse(path, "%s must match ^[A-Za-z0-9][A-Za-z0-9_-]*$ and be at most %d characters", quote(*to), maxIdentifier)
		}
		return nil
	}
}

func (d *decoder) flag(to *bool) setter {
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

// float reads a number; a negative zero is zero.
func (d *decoder) float(to **float64) setter {
	return func(path string) *Error {
		tok := d.token()
		n, ok := tok.(json.Number)
		if !ok {
			return wrongType(path, "a number", tok)
		}
		f, err := strconv.ParseFloat(string(n), 64)
		if err != nil || math.IsInf(f, 0) {
			return refuse(path, "%s is out of range", short(string(n)))
		}
		*to = unsigned(&f)
		return nil
	}
}

// integer reads a whole number from lowest to highest.
func (d *decoder) integer(to *int32, lowest, highest int32) setter {
	return func(path string) *Error {
		tok := d.token()
		n, ok := tok.(json.Number)
		if !ok {
			return wrongType(path, "a whole number", tok)
		}
		v, err := strconv.ParseInt(string(n), 10, 32)
		if err != nil || int32(v) < lowest || int32(v) > highest {
			return refuse(path, "%s is not a whole number from %d to %d", short(string(n)), lowest, highest)
		}
		*to = int32(v)
		return nil
	}
}

// period reads a duration longer than zero.
func (d *decoder) period(to *time.Duration) setter {
	return func(path string) *Error {
		var got *time.Duration
		if err := d.span(&got)(path); err != nil || got == nil {
			return err
		}
		if *got == 0 {
			return refuse(path, "must be longer than zero")
		}
		*to = *got
		return nil
	}
}

// span reads a duration that may be zero.
func (d *decoder) span(to **time.Duration) setter {
	return func(path string) *Error {
		var s string
		if err := d.text(&s)(path); err != nil || s == "" {
			return err
		}
		v, err := time.ParseDuration(s)
		if err != nil {
			return refuse(path, `%s is no duration such as "90s", "10m" or "1h30m"`, quote(s))
		}
		if v < 0 {
			return refuse(path, "must not be negative")
		}
		*to = &v
		return nil
	}
}

func wrongType(path, want string, got json.Token) *Error {
	return refuse(path, "must be %s, not %s", want, kindOfToken(got))
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

// Join composes the path of a field as Error.Field has it.
func Join(path, name string) string { return join(path, name) }

// join composes the path of a field. A name that no field has is shown short.
func join(path, name string) string {
	if !model.ValidToken(name) {
		name = quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

func texts[S ~string](names []S) []string {
	ss := make([]string, len(names))
	for i, n := range names {
		ss[i] = string(n)
	}
	return ss
}

func quote(s string) string { return strconv.Quote(short(s)) }

func short(s string) string {
	const limit = 40
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit]) + "…"
}
