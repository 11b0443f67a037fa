package strict

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Field describes a field of a document, so that validation, documentation and forms follow from one description.
type Field struct {
	Name     string
	Doc      string
	Kind     FieldKind
	Required bool
	Default  string   // as it is written in JSON; "": none
	OneOf    []string // of a text
	Max      int      // bytes of a text or of each of a list; the number itself
	Min      int      // of a number
	Check    func(text string) error
	// CheckPair checks a name and a text of a map, and returns the name as it is kept; nil: any.
	CheckPair func(name, text string) (string, error)
	Fields    []Field // of an object
}

// FieldKind is how the value of a field is written in JSON.
type FieldKind string

// The kinds of fields.
const (
	TextField   FieldKind = "text"
	ListField   FieldKind = "list" // of texts
	NumberField FieldKind = "number"
	FlagField   FieldKind = "boolean"
	MapField    FieldKind = "map"    // of texts by names
	ObjectField FieldKind = "object" // of the fields that it has in turn
)

// maxElements is the maximum number of elements of a list and of a map.
const maxElements = 32

// Values are the values of fields by their names, those of an object as object.field.
type Values struct {
	Texts   map[string]string
	Lists   map[string][]string
	Numbers map[string]int32
	Flags   map[string]bool
	Maps    map[string]map[string]string
	Given   map[string]bool // what the document has, defaults left aside
}

// ReadFields reads a document of at most limit bytes that has these fields and no others. what names it in an error, which is an *Error and
// names the first field that is wrong.
func ReadFields(text, what string, limit int, fields []Field) (*Values, error) {
	if err := CheckText([]byte(text), what, limit); err != nil {
		return nil, err
	}
	v := &Values{map[string]string{}, map[string][]string{}, map[string]int32{}, map[string]bool{}, map[string]map[string]string{}, map[string]bool{}}
	d := New([]byte(text))
	d.Note(d.Object("", v.setters(d, "", fields)))
	if faults := d.Faults(); len(faults) > 0 {
		return nil, faults[0]
	}
	if err := v.complete("", fields); err != nil {
		return nil, err
	}
	return v, nil
}

// setters read fields, those of an object with its name before theirs.
func (v *Values) setters(d *Decoder, object string, fields []Field) map[string]Setter {
	set := map[string]Setter{}
	for i := range fields {
		f, name := &fields[i], Join(object, fields[i].Name)
		read := f.setter(d, v, name)
		set[f.Name] = func(path string) *Error {
			v.Given[name] = true
			return read(path)
		}
	}
	return set
}

// complete sets the defaults of the fields that are not given, and refuses a document without those that are required.
func (v *Values) complete(object string, fields []Field) *Error {
	for i := range fields {
		f, name := &fields[i], Join(object, fields[i].Name)
		switch {
		case v.Given[name] && f.Kind == ObjectField:
			if err := v.complete(name, f.Fields); err != nil {
				return err
			}
		case v.Given[name]:
		case f.Required:
			return Refuse(name, "is required")
		case f.Kind == TextField:
			v.Texts[name], _ = strconv.Unquote(f.Default) // "" stays ""
		case f.Kind == NumberField:
			n, _ := strconv.ParseInt(f.Default, 10, 32)
			v.Numbers[name] = int32(n)
		}
	}
	return nil
}

// setter reads the value of the field.
func (f *Field) setter(d *Decoder, v *Values, name string) Setter {
	switch f.Kind {
	case ListField:
		return f.list(d, v, name)
	case MapField:
		return f.pairs(d, v, name)
	case NumberField:
		return func(path string) *Error {
			var n int32
			err := d.Integer(&n, int32(f.Min), int32(f.Max))(path)
			v.Numbers[name] = n
			return err
		}
	case FlagField:
		return func(path string) *Error {
			var on bool
			err := d.Flag(&on)(path)
			v.Flags[name] = on
			return err
		}
	case ObjectField:
		return func(path string) *Error { return d.Object(path, v.setters(d, name, f.Fields)) }
	}
	return func(path string) (err *Error) {
		v.Texts[name], err = f.text(d, path)
		return err
	}
}

func (f *Field) text(d *Decoder, path string) (s string, err *Error) {
	if err = d.Text(&s)(path); err == nil {
		err = f.refuse(path, s)
	}
	return s, err
}

func (f *Field) list(d *Decoder, v *Values, name string) Setter {
	var list []string
	read := d.List(maxElements, "elements", func(_ int, path string) *Error {
		s, err := f.text(d, path)
		list = append(list, s)
		return err
	})
	return func(path string) *Error {
		err := read(path)
		if v.Lists[name] = list; err == nil && len(list) == 0 {
			err = Refuse(path, "must not be empty")
		}
		return err
	}
}

func (f *Field) pairs(d *Decoder, v *Values, name string) Setter {
	return func(path string) *Error {
		pairs := map[string]string{}
		v.Maps[name] = pairs
		return d.Members(path, func(key, at string) *Error {
			s, err := f.text(d, at)
			if err != nil {
				return err
			}
			if f.CheckPair != nil {
				kept, err := f.CheckPair(key, s)
				if err != nil {
					return Refuse(at, "%v", err)
				}
				key = kept
			}
			if _, twice := pairs[key]; twice {
				return Refuse(at, "given twice")
			}
			if len(pairs) == maxElements {
				return Refuse(path, "at most %d elements are allowed", maxElements)
			}
			pairs[key] = s
			return nil
		})
	}
}

// refuse checks a text.
func (f *Field) refuse(path, s string) *Error {
	switch {
	case s == "" && f.Required:
		return Refuse(path, "must not be empty")
	case len(s) > f.Max:
		return Refuse(path, "has %d bytes, at most %d are allowed", len(s), f.Max)
	case len(f.OneOf) > 0 && !slices.Contains(f.OneOf, s):
		return Refuse(path, "%s is none of %s", Quote(s), strings.Join(f.OneOf, ", "))
	case f.Check == nil:
		return nil
	}
	if err := f.Check(s); err != nil {
		return Refuse(path, "%v", err)
	}
	return nil
}

// ReadTexts reads a JSON array of at most limit texts, as large as maxBytes. what names it in an error.
func ReadTexts(text, what string, limit, maxBytes int) ([]string, error) {
	// An array is read as the only field of a document, whose syntax is checked.
	if len(text) > maxBytes {
		return nil, Refuse("", "the %s have %d bytes, at most %d are allowed", what, len(text), maxBytes)
	}
	if !json.Valid([]byte(text)) {
		return nil, Refuse("", "the %s must be a JSON array of strings", what)
	}
	document := `{"` + what + `":` + text + `}`
	if err := CheckText([]byte(document), what, maxBytes+len(what)+8); err != nil {
		return nil, err
	}
	var list []string
	d := New([]byte(document))
	d.Note(d.Object("", map[string]Setter{what: d.List(limit, "elements", func(_ int, path string) *Error {
		var s string
		err := d.Text(&s)(path)
		list = append(list, s)
		return err
	})}))
	if faults := d.Faults(); len(faults) > 0 {
		return nil, faults[0]
	}
	return list, nil
}
