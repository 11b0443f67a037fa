// Package report reads device reports: the attributes that a device reports of itself, as JSON. Their bounds are in one place:
// a report that a transport decoded from a format of its own is held against the same ones.
package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"weir/internal/jsonscan"
	"weir/model"
)

// Bounds of an attribute.
const (
	MaxKey   = 128      // characters
	MaxValue = 16 << 10 // bytes
)

// Decode reads {"attributes": {"<key>": <value>, …}}. Unknown members are ignored. The text of an error is one line, fit to be
// sent to the device.
func Decode(body []byte) (*model.Report, error) {
	d := decoder{Scanner: jsonscan.New(bytes.TrimRight(body, "\x00"))}
	seen := false
	d.Object(func(name []byte) {
		switch {
		case string(name) != "attributes":
			d.Skip()
		case seen:
			d.Fail("member %q is given twice", name)
		default:
			seen = true
			d.Object(d.attribute)
		}
	})
	if !seen {
		d.Fail("attributes is required")
	}
	if err := d.End(); err != nil {
		return nil, err
	}
	return &d.report, nil
}

type decoder struct {
	jsonscan.Scanner
	report model.Report
}

// attribute takes one attribute. The type of its value follows from the JSON.
func (d *decoder) attribute(name []byte) {
	a := model.Reported{Key: string(name)}
	switch c := d.Peek(); {
	case c == 'n':
		d.Null()
	case c == '"':
		a.Type, a.Value = model.ReportedString, d.String("value")
	case c == 't' || c == 'f':
		a.Type, a.Value = model.ReportedBoolean, strconv.FormatBool(d.Bool("value"))
	case c == '{' || c == '[':
		a.Type, a.Value = model.ReportedJSON, compact(d.Raw())
	case c == '-' || c >= '0' && c <= '9':
		a.Type, a.Value = number(d.Number("value"))
	default:
		d.Fail("expected a value")
	}
	if d.Err() != nil {
		return
	}
	if why := check(d.report.Attributes, &a); why != "" {
		d.Fail("%s", why)
		return
	}
	d.report.Attributes = append(d.report.Attributes, a)
}

// compact returns a JSON document without the space between its parts.
func compact(doc []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, doc) != nil { // the scanner has read it
		return string(doc)
	}
	return b.String()
}

// number tells a whole number of 64 bits, written without a point and an exponent, from any other.
func number(text string) (model.ReportedType, string) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return model.ReportedLong, strconv.FormatInt(n, 10)
	}
	return model.ReportedDouble, text
}

// Check returns what is wrong with a report that a transport decoded, "" when nothing is.
func Check(r *model.Report) string {
	for i := range r.Attributes {
		if why := check(r.Attributes[:i], &r.Attributes[i]); why != "" {
			return why
		}
	}
	return ""
}

// check checks an attribute that comes after others.
func check(before []model.Reported, a *model.Reported) string {
	switch {
	case len(before) >= model.MaxReported:
		return fmt.Sprintf("a report may carry at most %d attributes", model.MaxReported)
	case strings.TrimSpace(a.Key) == "" || utf8.RuneCountInString(a.Key) > MaxKey:
		return fmt.Sprintf("the key of an attribute must have 1 to %d characters, not only spaces", MaxKey)
	case !storable(a.Key):
		return "the key of an attribute holds a character that cannot be stored"
	case len(a.Value) > MaxValue:
		return fmt.Sprintf("the value of attribute %q is larger than %d bytes", a.Key, MaxValue)
	case !storable(a.Value):
		return fmt.Sprintf("the value of attribute %q holds a character that cannot be stored", a.Key)
	}
	for i := range before {
		if before[i].Key == a.Key {
			return fmt.Sprintf("attribute %q is given twice", a.Key)
		}
	}
	return checkValue(a)
}

// checkValue checks the text of a value against its type.
func checkValue(a *model.Reported) string {
	sound := false
	switch a.Type {
	case model.ReportedNull:
		sound = a.Value == ""
	case model.ReportedString:
		sound = true
	case model.ReportedLong:
		_, err := strconv.ParseInt(a.Value, 10, 64)
		sound = err == nil
	case model.ReportedDouble:
		f, err := strconv.ParseFloat(a.Value, 64)
		sound = err == nil && !math.IsInf(f, 0) && strings.Trim(a.Value, "+-.0123456789eE") == ""
	case model.ReportedBoolean:
		sound = a.Value == "true" || a.Value == "false"
	case model.ReportedJSON:
		s := jsonscan.New([]byte(a.Value))
		c := s.Peek()
		s.Skip()
		sound = s.End() == nil && (c == '{' || c == '[')
	}
	if !sound {
		return fmt.Sprintf("the value of attribute %q is no %s", a.Key, a.Type)
	}
	return ""
}

func storable(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }
