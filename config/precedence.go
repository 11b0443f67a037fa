package config

import (
	"reflect"
	"strings"

	"github.com/spf13/viper"
)

// precedence lets viper decide which value of a key is effective: that of a flag, or else of a variable, of the last file that
// gives the key, or the default. The walker parses and checks every value before viper sees it, because viper knows no
// positions, ignores the case of keys and takes values of other types; variables come from Source, not from the process, so
// that they are merged as a layer over the files.
type precedence struct{ viper *viper.Viper }

// newPrecedence begins with the values of a struct as the defaults.
func newPrecedence(defaults reflect.Value) precedence {
	p := precedence{viper.New()}
	leaves(defaults, "", func(path string, f field) {
		switch {
		case f.reference():
		case f.kind == fieldSections: // how many members it has
			p.viper.SetDefault(path, 0)
		default:
			p.viper.SetDefault(path, f.value.Interface())
		}
	})
	return p
}

// merge lays the values of a file, or of all variables, over what was merged before.
func (p precedence) merge(values map[string]any) {
	tree := map[string]any{}
	for path, value := range values {
		keys := strings.Split(path, ".")
		at := tree
		for _, key := range keys[:len(keys)-1] {
			if at[key] == nil {
				at[key] = map[string]any{}
			}
			at = at[key].(map[string]any)
		}
		at[keys[len(keys)-1]] = value
	}
	_ = p.viper.MergeConfigMap(tree) // always nil
}

// override sets values over all that was merged.
func (p precedence) override(values map[string]any) {
	for path, value := range values {
		p.viper.Set(path, value)
	}
}

// fill sets every key of a struct to its effective value, which has the type of the key.
func (p precedence) fill(into reflect.Value) {
	p.fillSections(into, "")
	leaves(into, "", func(path string, f field) {
		if !f.reference() && f.kind != fieldSections {
			f.value.Set(reflect.ValueOf(p.viper.Get(path)))
		}
	})
}
