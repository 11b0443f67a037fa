package mqttsource

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestATemplateTakesItsTopics(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		template, topic string
		want            captured // nil: it is another topic
	}{
		{"a/{device}/{metric}", "a/d/m", captured{"device": "d", "metric": "m"}},
		{"a/{device}/{metric}", "a/d", nil},
		{"a/{device}/{metric}", "b/d/m", nil},
		{"a/{device}/{metric}", "a/d/m/x", nil},
		{"a/{device}/{metric}", "a//m", nil},
		{"+/{device}", "x/d", captured{"device": "d"}},
		{"z/{device...}", "z/hall/lamp", captured{"device": "hall/lamp"}},
		{"z/{device...}", "z/lamp", captured{"device": "lamp"}},
		{"z/{device...}", "z", nil},
		{"z/{device...}/availability", "z/hall/lamp/availability", captured{"device": "hall/lamp"}},
		{"z/{device...}/availability", "z/availability", nil},
		{"z/{device...}/{metric}", "z/a/b/c", captured{"device": "a/b", "metric": "c"}},
		{"{tenant}/{hall}/{device}", "acme/h1/d", captured{"tenant": "acme", "hall": "h1", "device": "d"}},
		{"{device}/x", "$SYS/x", nil},
		{"exact", "exact", captured{}},
	} {
		tpl, err := parseTemplate(c.template)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := tpl.match(c.topic)
		if ok != (c.want != nil) || ok && !maps.Equal(got, c.want) {
			t.Errorf("%s of %s: %v, %v", c.template, c.topic, got, ok)
		}
		if ok && !covers(tpl.filter(), c.topic) {
			t.Errorf("%s subscribes to %s, which does not match %s", c.template, tpl.filter(), c.topic)
		}
	}
}

func TestTemplatesThatCannotBeParsed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                        "must not be empty",
		"a/#":                     "must be a name in braces",
		"a/x{device}":             "must be a name in braces",
		"{}":                      "no valid name",
		"{a b}":                   "no valid name",
		"{device}/{device}":       "twice",
		"{device...}/{device...}": "once",
		"{metric...}":             "once",
		strings.Repeat("a/", 70):  "more than 64 levels",
	} {
		if _, err := parseTemplate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestFiltersThatOthersCoverAreLeftOut(t *testing.T) {
	t.Parallel()
	got := withoutCovered([]string{"a/+/b", "a/#", "a/x/b", "c/+", "c/d", "c/+", "d"})
	if want := []string{"a/#", "c/+", "d"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func FuzzTemplate(f *testing.F) {
	f.Add("a/{device}/{metric}", "a/d/m")
	f.Add("z/{device...}/availability", "z/hall/lamp/availability")
	f.Add("+/{tenant}/{device}", "x/t/d")
	f.Fuzz(func(t *testing.T, text, topic string) {
		tpl, err := parseTemplate(text)
		if err != nil {
			return
		}
		if !validFilter(tpl.filter()) && len(text) < 60000 {
			t.Errorf("%q subscribes to %q", text, tpl.filter())
		}
		if c, ok := tpl.match(topic); ok && !strings.ContainsAny(topic, "+#\x00") {
			for _, v := range c {
				if v == "" || !strings.Contains(topic, v) {
					t.Errorf("%q captures %q of %q", text, v, topic)
				}
			}
		}
	})
}
