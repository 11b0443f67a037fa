package operate

import (
	"fmt"
	"reflect"
	"unicode/utf8"

	"weir/model"
)

// checkText refuses the input of a verb with a string that is no text in UTF-8, as an argument of a command line may be: JSON would put
// U+FFFD in its place without a word. Byte slices are no text.
func checkText(in any) error {
	if bad := notText(reflect.ValueOf(in)); bad != "" {
		return model.Errorf(model.CodeInvalidInput, "%s is no text in UTF-8", bad)
	}
	return nil
}

// notText returns the first string that is no text, quoted, "" for none.
func notText(v reflect.Value) string {
	switch v.Kind() {
	case reflect.String:
		if s := v.String(); !utf8.ValidString(s) {
			return fmt.Sprintf("%.80q", s)
		}
	case reflect.Pointer, reflect.Interface:
		return notText(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if bad := notText(v.Field(i)); bad != "" {
				return bad
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return ""
		}
		for i := range v.Len() {
			if bad := notText(v.Index(i)); bad != "" {
				return bad
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if bad := notText(key); bad != "" {
				return bad
			}
			if bad := notText(v.MapIndex(key)); bad != "" {
				return bad
			}
		}
	}
	return ""
}
