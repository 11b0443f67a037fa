package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// withLists is a configuration as config.go would declare it.
type withLists struct {
	Site  []string `yaml:"site" doc:"Files that are applied at the start."`
	Fence struct {
		Allowed []string `yaml:"allowed" doc:"Allowed targets."`
	} `yaml:"fence"`
}

func loadLists(yaml string, set []string, environ ...string) (*withLists, string) {
	c := new(withLists)
	src := Source{File: "weir.yaml", Environ: environ, Set: set, ReadFile: func(string) ([]byte, error) { return []byte(yaml), nil }}
	l := newLoader(src.withDefaults(), reflect.ValueOf(c).Elem())
	l.layers()
	l.problems.Sort()
	return c, l.problems.Lines()
}

func TestAListIsReadFromEveryLayer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, yaml string
		set, env   []string
		want       []string
	}{
		{name: "one line", yaml: "site: [a.yaml, 'b, c.yaml']\n", want: []string{"a.yaml", "b, c.yaml"}},
		{name: "a line each", yaml: "site:\n  - a.yaml\n  - b.yaml\n", want: []string{"a.yaml", "b.yaml"}},
		{name: "none", yaml: "site: []\n"},
		{name: "left open", yaml: "site:\n"},
		{name: "a variable replaces the whole", yaml: "site: [a.yaml]\n", env: []string{"WEIR_SITE=b.yaml, c.yaml"}, want: []string{"b.yaml", "c.yaml"}},
		{name: "an empty variable clears", yaml: "site: [a.yaml]\n", env: []string{"WEIR_SITE="}},
		{name: "a flag is last", env: []string{"WEIR_SITE=b.yaml"}, set: []string{"site=c.yaml,d.yaml"}, want: []string{"c.yaml", "d.yaml"}},
	} {
		got, problems := loadLists(c.yaml, c.set, c.env...)
		if problems != "" || !slices.Equal(got.Site, c.want) {
			t.Errorf("%s: got %q, %s", c.name, got.Site, problems)
		}
	}
	if got, problems := loadLists("fence: {allowed: [x]}\n", nil); problems != "" || !slices.Equal(got.Fence.Allowed, []string{"x"}) {
		t.Errorf("in a section: got %q, %s", got.Fence.Allowed, problems)
	}
}

func TestWhatIsNoListIsTold(t *testing.T) {
	t.Parallel()
	for yaml, want := range map[string]string{
		"site: a.yaml\n": `weir.yaml:1:1: site: must be a list (write [a, b], or one line with - for each)
    site: a.yaml
    ^`,
		"site: {a: b}\n": `weir.yaml:1:1: site: must be a list (write [a, b], or one line with - for each)
    site: {a: b}
    ^`,
		"fence:\n  allowed: [a, [b], '']\n": `weir.yaml:2:16: fence.allowed[1]: must be a single value that is not empty
      allowed: [a, [b], '']
                   ^
weir.yaml:2:21: fence.allowed[2]: must be a single value that is not empty
      allowed: [a, [b], '']
                        ^`,
	} {
		if _, got := loadLists(yaml, nil); got != want {
			t.Errorf("%q: got\n%s\nwant\n%s", yaml, got, want)
		}
	}
}

func TestAListIsWrittenAsItIsRead(t *testing.T) {
	t.Parallel()
	c := withLists{Site: []string{"a.yaml", `b "c", d`}}
	yaml := document(keysOf(reflect.ValueOf(&c).Elem()), func(b *strings.Builder, indent string, k key) {
		b.WriteString(indent + k.name() + ": " + k.yaml() + "\n")
	})
	got, problems := loadLists(yaml, nil)
	if problems != "" || !slices.Equal(got.Site, c.Site) || !strings.Contains(yaml, "  allowed: []\n") {
		t.Errorf("got %q from\n%s%s", got.Site, yaml, problems)
	}
}
