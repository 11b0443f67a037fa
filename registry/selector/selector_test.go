package selector

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"weir/model"
)

func compile(t testing.TB, source string) model.Condition {
	t.Helper()
	c, err := new(Compiler).Compile(source, "device")
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	return c
}

func TestASelectorBecomesACondition(t *testing.T) {
	t.Parallel()
	eq := func(key string, value any) model.Condition {
		return model.Condition{Op: model.Compare, Key: key, Cmp: model.Equal, Value: value}
	}
	a, b, c := eq("a", 1.0), eq("b", "x"), eq("c", true)
	for source, want := range map[string]model.Condition{
		`attr["a"] == 1`:                     a,
		`attr["a"] == 1u`:                    a,
		`attr["a"] == 1.0`:                   a,
		`attr["a"] == -1`:                    eq("a", -1.0),
		`attr["a"] == -1.5e3`:                eq("a", -1500.0),
		`attr["b"] == 'x'`:                   b,
		`(attr["c"]) == (true)`:              c,
		`attr["a"] >= 2`:                     {Op: model.Compare, Key: "a", Cmp: model.GreaterOrEqual, Value: 2.0},
		`attr["b"] != "x"`:                   {Op: model.Compare, Key: "b", Cmp: model.NotEqual, Value: "x"},
		`"k" in attr`:                        {Op: model.HasKey, Key: "k"},
		`!("k" in attr)`:                     {Op: model.Not, Parts: []model.Condition{{Op: model.HasKey, Key: "k"}}},
		`!!("k" in attr)`:                    {Op: model.HasKey, Key: "k"},
		`attr["a"] == 1 && attr["b"] == "x"`: {Op: model.AllOf, Parts: []model.Condition{a, b}},
		`memberType == "device"`:             {Op: model.Always},
		`memberType != "device"`:             {Op: model.Never},
		`!(memberType == "asset")`:           {Op: model.Always},
		`memberType == "device" && (` + `attr["a"] == 1)`:          a,
		`memberType == "asset" || attr["a"] == 1`:                  a,
		`memberType == "asset" && attr["a"] == 1`:                  {Op: model.Never},
		`attr["a"] == 1 || memberType == "device"`:                 {Op: model.Always},
		"attr['a'] == 1 && attr['b'] == 'x'\n&& attr['c'] == true": {Op: model.AllOf, Parts: []model.Condition{a, b, c}},
		`attr["a"] == 1 || attr["b"] == "x" && attr["c"] == true`:  {Op: model.AnyOf, Parts: []model.Condition{a, {Op: model.AllOf, Parts: []model.Condition{b, c}}}},
	} {
		if got := compile(t, source); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, want %+v", source, got, want)
		}
	}
}

// What is no part of a selector is refused, with its position and what was expected.
func TestWhatCannotBeLoweredIsRefused(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		``:                                "selector: line 1, column 1: ",
		`attr["a"] ==`:                    "selector: line 1, column 13: Syntax error",
		`true`:                            "line 1, column 1: expected &&",
		`1`:                               "line 1, column 1: expected &&",
		`attr`:                            "line 1, column 1: expected &&",
		`attr["a"]`:                       `expected &&, ||, !, "key" in attr, or a comparison`,
		`attr.a == 1`:                     `line 1, column 5: expected attr["key"] or memberType on the left`,
		`1 == attr["a"]`:                  `line 1, column 1: expected attr["key"] or memberType on the left`,
		`attr["a"] == attr["b"]`:          "line 1, column 18: expected a number, a string, true or false",
		`attr["a"] == null`:               "expected a number, a string, true or false",
		`attr["a"] == [1]`:                "expected a number, a string, true or false",
		`attr["a"] == b"x"`:               "expected a number, a string, true or false",
		`attr["a"] < "x"`:                 "line 1, column 13: expected a number: only numbers have an order",
		`attr["a"] == 9007199254740993`:   "expected a number below 2^53",
		`attr["a"] < -9007199254740992.0`: "expected a number below 2^53",
		`attr["a"] < true`:                "expected a number: only numbers have an order",
		`attr["a"] == -"x"`:               "expected a number, a string, true or false",
		`attr["a"] + 1 == 2`:              `expected attr["key"] or memberType on the left`,
		`attr[1] == 2`:                    "line 1, column 6: expected the key of an attribute, a string",
		`attr[memberType] == 2`:           "expected the key of an attribute, a string",
		`other["a"] == 2`:                 `line 1, column 1: expected attr["key"]`,
		`device == "d"`:                   `expected attr["key"] or memberType on the left`,
		`"k" in other`:                    "line 1, column 8: expected attr",
		`attr["a"] in attr`:               "expected the key of an attribute",
		`memberType in ["device"]`:        "expected attr",
		`memberType < "device"`:           "expected == or != for memberType",
		`memberType == 1`:                 "expected a string: memberType is one of device, asset, area, customer",
		`has(attr.a)`:                     "expected &&",
		`attr.exists(k, k == "a")`:        "expected &&",
		`attr["a"] == 1 ? true : true`:    "expected &&",
		`attr["a"].startsWith("x")`:       "expected &&",
		"attr['a'] == 1 &&\n  attr.b":     "line 2, column ",
		`attr["` + strings.Repeat("k", MaxKey+1) + `"] == 1`:                         "expected a key of at most 128 characters",
		strings.Repeat(`attr["a"] == 1 && `, MaxComparisons) + `attr["a"] == 1`:      "makes 33 comparisons, at most 32 are allowed",
		strings.Repeat(`"a" in attr || `, MaxComparisons) + `memberType == "device"`: "makes 33 comparisons",
		`attr["a"] == "` + strings.Repeat("x", 2000) + `"`:                           "may cost ",
		`attr["a"] == "` + strings.Repeat("x", MaxLength) + `"`:                      "exceeds",
		strings.Repeat("(", 300) + `attr["a"] == 1` + strings.Repeat(")", 300):       "recursion",
		strings.Repeat("!", 2000) + `("a" in attr)`:                                  "",
	} {
		_, err := new(Compiler).Compile(source, "device")
		short := source[:min(len(source), 60)]
		switch {
		case want == "" && err != nil && model.CodeOf(err) != model.CodeInvalidInput:
			t.Errorf("%s: %v", short, err)
		case want == "":
		case err == nil:
			t.Errorf("%s is taken", short)
		case model.CodeOf(err) != model.CodeInvalidInput || !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v, want %q", short, err, want)
		}
	}
}

// The bounds let 32 comparisons through.
func TestASelectorOfTheMaximum(t *testing.T) {
	t.Parallel()
	parts := make([]string, MaxComparisons)
	for i := range parts {
		parts[i] = fmt.Sprintf(`attr["key-%d"] >= %d`, i, i)
	}
	if c := compile(t, strings.Join(parts, " && ")); len(c.Parts) != MaxComparisons {
		t.Errorf("%d parts", len(c.Parts))
	}
	if c := compile(t, `attr["a"] == "`+strings.Repeat("x", 500)+`"`); c.Op != model.Compare {
		t.Errorf("%+v", c)
	}
}

// of are the attributes of a map.
func of(attributes map[string]any) Attributes {
	return func(key string) (any, bool) { value, exists := attributes[key]; return value, exists }
}

func TestAConditionHolds(t *testing.T) {
	t.Parallel()
	attributes := map[string]any{"n": 2.0, "s": "x", "b": true, "null": nil, "json": []byte(`{"a":1}`)}
	for source, want := range map[string]bool{
		`attr["n"] == 2`: true, `attr["n"] == 3`: false, `attr["n"] != 3`: true, `attr["n"] != 2`: false,
		`attr["n"] < 3`: true, `attr["n"] < 2`: false, `attr["n"] <= 2`: true, `attr["n"] > 1`: true, `attr["n"] > 2`: false, `attr["n"] >= 2`: true,
		`attr["s"] == "x"`: true, `attr["s"] == "y"`: false, `attr["s"] != "y"`: true,
		`attr["b"] == true`: true, `attr["b"] == false`: false, `attr["b"] != false`: true,
		`attr["n"] == "2"`: false, `attr["n"] != "2"`: true, `attr["b"] == 1`: false, `attr["s"] < 1`: false, `attr["s"] >= 1`: false,
		`attr["none"] == 1`: false, `attr["none"] != 1`: false, `attr["none"] < 1`: false, `!(attr["none"] == 1)`: true, `!(attr["none"] != 1)`: true,
		`"n" in attr`: true, `"none" in attr`: false, `"null" in attr`: true, `!("none" in attr)`: true,
		`attr["null"] == 0`: false, `attr["null"] != 0`: true, `attr["null"] < 1`: false, `attr["null"] == ""`: false,
		`attr["json"] == "{}"`: false, `attr["json"] != "{}"`: true,
		`attr["n"] == 2 && attr["s"] == "x"`: true, `attr["n"] == 2 && attr["s"] == "y"`: false,
		`attr["n"] == 3 || attr["s"] == "x"`: true, `attr["n"] == 3 || attr["s"] == "y"`: false,
		`memberType == "device"`: true, `memberType == "area"`: false,
	} {
		if got := Holds(compile(t, source), of(attributes)); got != want {
			t.Errorf("%s: %v", source, got)
		}
	}
}

func TestTheKeysOfACondition(t *testing.T) {
	t.Parallel()
	got := Keys(compile(t, `attr["b"] == 1 && !("a" in attr) || attr["b"] == 2 && attr["c"] < 1`))
	if !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("%q", got)
	}
}

// Whatever is sent: the compiler refuses it as input, or gives a condition within the bounds that the evaluator answers.
func FuzzSelector(f *testing.F) {
	for _, seed := range []string{`attr["a"] == 1`, `"k" in attr && !(attr["b"] != "x" || attr["c"] < -1.5)`, `memberType == "device"`, `has(attr.a)`,
		`attr["a"] == 9223372036854775808`, `attr["\x00"] == "\u00ff"`, `!!!("a" in attr)`, "attr[\n'a'\n]==true", `attr["a"] == 1e309`, `{"a":1}["a"] == 1`} {
		f.Add(seed)
	}
	compiler := new(Compiler)
	f.Fuzz(func(t *testing.T, source string) {
		c, err := compiler.Compile(source, "device")
		if err != nil {
			if model.CodeOf(err) != model.CodeInvalidInput {
				t.Fatalf("%q: %v", source, err)
			}
			return
		}
		if keys := Keys(c); len(keys) > MaxComparisons {
			t.Fatalf("%q has %d keys", source, len(keys))
		}
		Holds(c, of(map[string]any{"a": 1.0, "b": "x", "c": true, "k": nil}))
		again, err := compiler.Compile(source, "device")
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%q: %+v, then %+v, %v", source, c, again, err)
		}
	})
}
