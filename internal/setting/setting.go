// Package setting is how a package declares the keys that an operator can set. The keys are the fields of a struct next to
// the code that uses them, and the tags of a field are everything that is declared about its key, for the defaults, the
// loader, the reference, the schema and weir init:
//
//	yaml     name of the key
//	doc      meaning of the key
//	default  default, written as in a file; without it: the zero value
//	enum     permitted values, separated by spaces
//	format   "address" or "url": the form of a string that is not empty
//	min, max bounds of a number, a size or a duration
//	zero     "default": a value of 0 or less means the default; "no": it is refused
//	example  of a list of sections: the keys of a member, separated by "; "
//	reload   "yes": a running instance applies a new value at a reload; otherwise it applies at a restart
//
// Comments above the field that begin with //limit: declare the limit that the key sets, for docs/limits.md: see
// internal/test/keylimit.
//
// A field is a string, a bool, an integer, a float, a duration, a list of strings, a Secret, Texts, another type with UnmarshalText,
// a struct, which is a section, or a list of structs, which is a list of sections. An embedded struct adds its keys to the section that embeds it; a field without a yaml tag
// is not a key. config composes the structs of all packages.
package setting

import (
	"encoding"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strconv"
	"time"
)

// Keys yields the keys and sections of a struct in their order.
func Keys(in reflect.Value) iter.Seq2[reflect.StructField, reflect.Value] {
	return func(yield func(reflect.StructField, reflect.Value) bool) { keys(in, yield) }
}

func keys(in reflect.Value, yield func(reflect.StructField, reflect.Value) bool) bool {
	for sf, v := range in.Fields() {
		switch {
		case sf.Tag.Get("yaml") != "":
			if !yield(sf, v) {
				return false
			}
		case sf.Anonymous && v.Kind() == reflect.Struct:
			if !keys(v, yield) {
				return false
			}
		}
	}
	return true
}

// IsSections reports whether a value is a list of sections.
func IsSections(v reflect.Value) bool {
	return v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct
}

// Member returns a new member of a list of sections, with the defaults of its keys.
func Member(list reflect.Value) reflect.Value {
	m := reflect.New(list.Type().Elem()).Elem()
	setDefaults(m)
	return m
}

// IsSection reports whether a value holds keys of its own.
func IsSection(v reflect.Value) bool {
	return v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[Secret]()
}

// SetDefaults sets all keys of the struct to which settings points to their defaults.
func SetDefaults(settings any) { setDefaults(reflect.ValueOf(settings).Elem()) }

func setDefaults(in reflect.Value) {
	for sf, v := range Keys(in) {
		if IsSection(v) {
			setDefaults(v)
		} else if def, ok := OfTag(sf, "default"); ok {
			v.Set(def)
		}
	}
}

// FillDefaults sets the numbers that are not set to their defaults, for a caller that is not configured by an operator.
func FillDefaults(settings any) {
	for sf, v := range Keys(reflect.ValueOf(settings).Elem()) {
		def, ok := OfTag(sf, "default")
		if ok && NotPositive(v) && (v.IsZero() || sf.Tag.Get("zero") == "default") {
			v.Set(def)
		}
	}
}

// NotPositive reports whether a number is 0 or less; NaN is.
func NotPositive(v reflect.Value) bool {
	return v.CanInt() && v.Int() <= 0 || v.CanFloat() && !(v.Float() > 0)
}

// OfTag returns the value in a tag of a key, which has the type of the key. It panics when the tag cannot be parsed.
func OfTag(sf reflect.StructField, tag string) (_ reflect.Value, ok bool) {
	text, ok := sf.Tag.Lookup(tag)
	if !ok {
		return reflect.Value{}, false
	}
	v := reflect.New(sf.Type).Elem()
	if err := Parse(v, text); err != nil {
		panic(fmt.Sprintf("the tag %s of %s: %q %v", tag, sf.Name, text, err))
	}
	return v, true
}

// Parse sets a single value from text.
func Parse(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	if v.Type() == reflect.TypeFor[time.Duration]() {
		d, err := time.ParseDuration(text)
		if err != nil {
			return errors.New("must be a duration such as 30s, 5m or 24h")
		}
		v.SetInt(int64(d))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		if text != "true" && text != "false" {
			return errors.New("must be true or false")
		}
		v.SetBool(text == "true")
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || len(text) > 1 && text[0] == '0' {
			return errors.New("must be a whole number")
		}
		v.SetInt(n)
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return errors.New("must be a number")
		}
		v.SetFloat(n)
	default:
		return fmt.Errorf("has a type that cannot be set: %s", v.Type())
	}
	return nil
}
