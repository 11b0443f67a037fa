package parameter

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

func TestASchemaIsChecked(t *testing.T) {
	t.Parallel()
	deep := func(n int) string {
		return strings.Repeat(`[{"name":"o","kind":"OBJECT","parameters":`, n) + `[]` + strings.Repeat(`}]`, n)
	}
	many := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(`{"name":"p%d","dataType":"INT"}`, i)
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	enum := func(n int) string {
		return `[{"name":"a","dataType":"INT","enum":[` + strings.TrimSuffix(strings.Repeat("1,", n), ",") + `]}]`
	}
	for text, want := range map[string]string{
		`[]`:                            "",
		" [ ] ":                         "",
		deep(MaxDepth - 1):              "",
		deep(MaxDepth):                  "nested more than 8 deep",
		many(MaxParameters):             "",
		many(MaxParameters + 1):         "more than 256 parameters",
		enum(MaxEnum):                   "",
		enum(MaxEnum + 1):               "more than 256 values",
		`[{"name":"a","dataType":"X"}]`: `"a": dataType`,
		`[{"name":"a"}]`:                `"a": dataType`,
		`[{"name":"a","dataType":"DOUBLE","description":"d","kind":"SCALAR","unit":"m","required":true,"default":"1","minValue":-1.5,"maxValue":2,"enum":["1",2],"parameters":[]}]`:  "",
		`[{"name":"a","dataType":"DOUBLE","description":null,"kind":null,"unit":null,"required":null,"default":null,"minValue":null,"maxValue":null,"enum":null,"parameters":null}]`: "",
		`[{"name":"a","kind":"OBJECT"}]`: "",
		`[{"name":"a","kind":"OBJECT","description":"d","required":true,"parameters":[{"name":"a","dataType":"BOOLEAN"}]}]`: "",
		``:       "must be a JSON array",
		`null`:   "must be a JSON array",
		`{}`:     "must be a JSON array",
		`[`:      "is no JSON array",
		`[] []`:  "something after",
		`[1]`:    "is no JSON array",
		`[null]`: "parameter 1 of the command has no name",
		`[{}]`:   "parameter 1 of the command has no name",
		`[{"name":"` + strings.Repeat("é", MaxName) + `","dataType":"INT"}]`:                          "",
		`[{"name":"` + strings.Repeat("é", MaxName+1) + `","dataType":"INT"}]`:                        "a name of more than 128",
		`[{"name":"a","dataType":"INT"},{"name":"a","dataType":"INT"}]`:                               `"a" is declared twice`,
		`[{"name":"a","dataType":"INT","kind":"scalar"}]`:                                             "neither SCALAR nor OBJECT",
		`[{"name":"a","dataType":"INT","typo":1}]`:                                                    "typo",
		`[{"name":"a","dataType":"INT","parameters":[{"name":"b","dataType":"INT"}]}]`:                "only an OBJECT",
		`[{"name":"a","kind":"OBJECT","dataType":"INT"}]`:                                             "an OBJECT has parameters",
		`[{"name":"a","kind":"OBJECT","minValue":1}]`:                                                 "an OBJECT has parameters",
		`[{"name":"a","kind":"OBJECT","enum":["x"]}]`:                                                 "an OBJECT has parameters",
		`[{"name":"o","kind":"OBJECT","parameters":[{"name":"a","dataType":"STRING","minValue":1}]}]`: `"o"."a": only DOUBLE and INT`,
		`[{"name":"a","dataType":"BOOLEAN","maxValue":1}]`:                                            "only DOUBLE and INT",
		`[{"name":"a","dataType":"BOOLEAN","enum":["true"]}]`:                                         "a BOOLEAN has no enum",
		`[{"name":"a","dataType":"INT","minValue":2,"maxValue":1}]`:                                   "minValue 2 is above maxValue 1",
		`[{"name":"a","dataType":"INT","enum":[1.5]}]`:                                                "value 1 of enum: must be a whole number",
		`[{"name":"a","dataType":"INT","enum":[1,"x"]}]`:                                              "value 2 of enum: must be a number",
		`[{"name":"a","dataType":"DOUBLE","enum":["Inf"]}]`:                                           "must be a number",
		`[{"name":"a","dataType":"STRING","enum":["x",1]}]`:                                           "value 2 of enum: must be a string",
		`[{"name":"a","dataType":"STRING","enum":[null]}]`:                                            "must be a string",
	} {
		_, err := Parse(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.200s: %v, want %q", text, err, want)
		}
	}
}

const everything = `[
	{"name": "s", "dataType": "STRING", "enum": ["on", "off"]},
	{"name": "d", "dataType": "DOUBLE", "minValue": -1, "maxValue": 1.5},
	{"name": "i", "dataType": "INT", "required": true, "enum": [1, "2", 3.0]},
	{"name": "b", "dataType": "BOOLEAN"},
	{"name": "o", "kind": "OBJECT", "parameters": [
		{"name": "x", "dataType": "INT", "required": true},
		{"name": "p", "kind": "OBJECT", "required": true, "parameters": []}]}]`

func TestAPayloadIsHeldAgainstTheSchema(t *testing.T) {
	t.Parallel()
	s, err := Parse(everything)
	if err != nil {
		t.Fatal(err)
	}
	for payload, want := range map[string]string{
		`{"i": 1}`:   "",
		`{"i": 2.0}`: "",
		`{"i": 30e-1, "s": "on", "d": 1.5, "b": false, "o": {"x": -9007199254740993, "p": {}}}`: "",
		``:                                       `"i" is required`,
		`{}`:                                     `"i" is required`,
		`null`:                                   "must be a JSON object",
		`[]`:                                     "must be a JSON object",
		`{"i": 1`:                                "no JSON document",
		`{"i": 1} {}`:                            "something after",
		`{"i": 4}`:                               `"i" must be one of 1, "2", 3.0`,
		`{"i": 1.5}`:                             `"i" must be a whole number`,
		`{"i": "1"}`:                             `"i" must be of the type INT`,
		`{"i": null}`:                            `"i" must be of the type INT`,
		`{"i": 1e400}`:                           `"i" must be a number`,
		`{"i": 1, "i": 1}`:                       `"i" is given twice`,
		`{"i": 1, "I": 1}`:                       `"I" is no parameter of the command`,
		`{"i": 1, "s": "ON"}`:                    `"s" must be one of "on", "off"`,
		`{"i": 1, "s": 1}`:                       `"s" must be of the type STRING`,
		`{"i": 1, "d": -1.01}`:                   `"d" must be at least -1`,
		`{"i": 1, "d": 1.6}`:                     `"d" must be at most 1.5`,
		`{"i": 1, "d": true}`:                    `"d" must be of the type DOUBLE`,
		`{"i": 1, "b": "true"}`:                  `"b" must be of the type BOOLEAN`,
		`{"i": 1, "b": {}}`:                      `"b" must be of the type BOOLEAN`,
		`{"i": 1, "o": 1}`:                       `"o" must be an object`,
		`{"i": 1, "o": []}`:                      `"o" must be an object`,
		`{"i": 1, "o": {}}`:                      `"o"."x" is required`,
		`{"i": 1, "o": {"x": 1}}`:                `"o"."p" is required`,
		`{"i": 1, "o": {"y": 1}}`:                `"o"."y" is no parameter of "o"`,
		`{"i": 1, "o": {"x": 1, "p": {"q": 1}}}`: `"o"."p"."q" is no parameter of "o"."p"`,
	} {
		err := s.Check(payload)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", payload, err, want)
		}
	}
	if s, err := Parse(`[]`); err != nil || s.Check("") != nil || s.Check(`{"a":1}`) == nil {
		t.Errorf("no parameters: %v", err)
	}
}

// FuzzCheck: whatever is sent, nothing breaks, and what is taken fits the declaration at every depth.
func FuzzCheck(f *testing.F) {
	f.Add(everything, `{"i": 1, "o": {"x": 5, "p": {}}}`)
	f.Add(everything, `{"i": 3e0, "s": "on", "d": -1, "b": true}`)
	f.Add(`[]`, `{}`)
	f.Add(`[{"name":"a","dataType":"STRING"}]`, `{"a":"\ud800"}`)
	f.Add(`[{"name":"a","dataType":"INT","minValue":1},{"name":"A","kind":"OBJECT"}]`, `{"A":{},"a":1}`)
	f.Fuzz(func(t *testing.T, schema, payload string) {
		s, err := Parse(schema)
		if err != nil {
			if err.Error() == "" {
				t.Error("a refusal without a reason")
			}
			return
		}
		if !json.Valid([]byte(schema)) {
			t.Errorf("a schema that is no JSON is taken: %q", schema)
		}
		if payload == "" || s.Check(payload) != nil {
			return
		}
		var members map[string]any
		if err := json.Unmarshal([]byte(payload), &members); err != nil || members == nil {
			t.Fatalf("%q is taken: %v", payload, err)
		}
		if why := misfit(s.params, members); why != "" {
			t.Errorf("%q is taken by %q: %s", payload, schema, why)
		}
	})
}

// misfit says why an object is not one of the declared, "" when it is.
func misfit(params []parameter, members map[string]any) string {
	left := len(members)
	for i := range params {
		p := &params[i]
		v, given := members[p.Name]
		switch {
		case given:
			left--
		case p.Required != nil && *p.Required:
			return p.Name + " is missing"
		}
		if !given {
			continue
		}
		if p.object() {
			inner, ok := v.(map[string]any)
			if !ok {
				return p.Name + " is no object"
			}
			if why := misfit(p.Parameters, inner); why != "" {
				return p.Name + "." + why
			}
			continue
		}
		if why := p.misfit(v); why != "" {
			return p.Name + " " + why
		}
	}
	if left > 0 {
		return "a key is not declared"
	}
	return ""
}

func (p *parameter) misfit(v any) string {
	ok := false
	switch v := v.(type) {
	case bool:
		ok = p.dataType() == "BOOLEAN"
	case string:
		ok = p.dataType() == "STRING"
	case float64:
		ok = p.numeric() && (p.dataType() == "DOUBLE" || v == float64(int64(v)) || v > 1<<53 || v < -1<<53) && (p.MinValue == nil || v >= *p.MinValue) && (p.MaxValue == nil || v <= *p.MaxValue)
	}
	if !ok {
		return fmt.Sprintf("is %v", v)
	}
	for _, raw := range p.Enum {
		text := string(raw)
		if unquoted := ""; json.Unmarshal(raw, &unquoted) == nil {
			text = unquoted
		}
		if fmt.Sprint(v) == text {
			return ""
		}
		if n, err := strconv.ParseFloat(text, 64); err == nil && v == any(n) {
			return ""
		}
	}
	if len(p.Enum) > 0 {
		return fmt.Sprintf("is %v, which is not of the enum", v)
	}
	return ""
}
