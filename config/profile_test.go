package config

import (
	"slices"
	"strings"
	"testing"
)

func TestWhatInitWritesIsItsProfile(t *testing.T) {
	t.Parallel()
	d := Default()
	for _, p := range Profiles() {
		text, want := p.YAML(), p.Config()
		c, err := load(text)
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		if diff := Diff(&want, c); len(diff) > 0 || len(Diff(&d, c)) == 0 {
			t.Errorf("%s: the file is not the profile: %v", p.Name, diff)
		}
		if w := c.Warnings(); len(w) > 0 && p.Name != "edge" { // user name and password are each site's own
			t.Errorf("%s: warns %v", p.Name, w)
		}
		for _, k := range want.keys() {
			set := c.origin(k.path).Kind == OriginFile
			if differs := slices.ContainsFunc(Diff(&d, &want), func(ch Change) bool { return ch.Path == k.path }); set != differs {
				t.Errorf("%s: %s is set: %v, differs: %v", p.Name, k.path, set, differs)
			}
			if words := strings.Fields(k.doc()); !strings.Contains(strings.Join(strings.Fields(strings.ReplaceAll(text, "#", "")), " "), strings.Join(words, " ")) {
				t.Errorf("%s: nothing is said of %s", p.Name, k.path)
			}
		}
	}
}

func TestWhatIsCommentedOutIsTheDefault(t *testing.T) {
	t.Parallel()
	p, _ := ProfileNamed("site")
	want := p.Config()
	var b strings.Builder
	for line := range strings.Lines(p.YAML()) { // a user who removes the # before each key, but has no secrets
		if at := strings.IndexByte(line, '#'); at >= 0 && !strings.HasPrefix(line[at:], "# ") && !strings.HasPrefix(line[at:], "#\n") && !strings.Contains(line, "_file: /") {
			line = line[:at] + line[at+1:]
		}
		b.WriteString(line)
	}
	c, err := load(b.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	if diff := Diff(&want, c); len(diff) > 0 {
		t.Errorf("got %v", diff)
	}
}
