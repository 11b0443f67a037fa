package strict

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestDocumentsOfDescribedFields(t *testing.T) {
	t.Parallel()
	fields := []Field{
		{Name: "name", Kind: TextField, Required: true, Max: 5, Check: func(text string) error {
			if text == "bad" {
				return errors.New("is bad")
			}
			return nil
		}},
		{Name: "way", Kind: TextField, Max: 5, Default: `"up"`, OneOf: []string{"up", "down"}},
		{Name: "hosts", Kind: ListField, Max: 5},
		{Name: "qos", Kind: NumberField, Max: 2, Default: "1"},
		{Name: "on", Kind: FlagField},
		{Name: "pairs", Kind: MapField, Max: 5, CheckPair: func(name, text string) (string, error) {
			if text == "no" {
				return "", errors.New("is refused")
			}
			return strings.ToUpper(name), nil
		}},
		{Name: "sasl", Kind: ObjectField, Fields: []Field{{Name: "user", Kind: TextField, Required: true, Max: 5}, {Name: "tries", Kind: NumberField, Max: 9, Default: "3"}}},
	}
	v, err := ReadFields(`{"name": "a", "hosts": ["b", "c"], "on": true, "pairs": {"x": "1"}, "sasl": {"user": "u"}}`, "config", 1000, fields)
	if err != nil || fmt.Sprint(v.Texts, v.Lists, v.Numbers, v.Flags, v.Maps) != "map[name:a sasl.user:u way:up] map[hosts:[b c]] map[qos:1 sasl.tries:3] map[on:true] map[pairs:map[X:1]]" || v.Given["way"] || !v.Given["sasl.user"] {
		t.Errorf("%v %+v", err, v)
	}
	for text, want := range map[string]string{
		`{}`:                                           "name: is required",
		`{"name": ""}`:                                 "name: must not be empty",
		`{"name": "abcdef"}`:                           "name: has 6 bytes, at most 5 are allowed",
		`{"name": "bad"}`:                              "name: is bad",
		`{"name": "a", "way": "left"}`:                 `way: "left" is none of up, down`,
		`{"name": "a", "hosts": []}`:                   "hosts: must not be empty",
		`{"name": "a", "hosts": [1]}`:                  "hosts[0]: must be a string, not a number",
		`{"name": "a", "qos": 3}`:                      "qos: 3 is not a whole number from 0 to 2",
		`{"name": "a", "on": 1}`:                       "on: must be true or false, not a number",
		`{"name": "a", "sasl": {}}`:                    "sasl.user: is required",
		`{"name": "a", "sasl": "x"}`:                   "sasl: must be an object, not a string",
		`{"name": "a", "nmae": 1}`:                     "nmae: unknown field",
		`{"name": "a", "name": "b"}`:                   "name: given twice",
		`{"name": "a", "pairs": {"x": "no"}}`:          "pairs.x: is refused",
		`{"name": "a", "pairs": {"x": "1", "X": "2"}}`: "pairs.X: given twice",
	} {
		if _, err := ReadFields(text, "config", 1000, fields); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := ReadFields(`{"name": "a"}`, "config", 5, fields); err == nil {
		t.Error("too long")
	}
}
