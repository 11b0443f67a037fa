package config

import (
	"reflect"
)

// Change is a key whose value differs between two configurations. A secret shows as set or not, or as another one.
type Change struct {
	Path   string `json:"key"`
	From   string `json:"from"` // as a variable has it
	To     string `json:"to"`
	Origin Origin `json:"origin"` // of the new value
	// Reload says that a running instance takes it from a reload; else it needs a restart.
	Reload bool `json:"reload"`
}

// Keys is how many keys there are.
func Keys() int {
	c := Default()
	return len(c.keys())
}

// Reloadable are the keys that a running instance takes from a reload.
func Reloadable() []string {
	var out []string
	c := Default()
	for _, k := range c.keys() {
		if k.reloadable() {
			out = append(out, k.path)
		}
	}
	return out
}

// Diff returns the keys in which one configuration differs from another, in their order.
func Diff(from, to *Config) []Change {
	out := []Change{}
	old := map[string]key{}
	for _, k := range from.keys() {
		old[k.path] = k
	}
	for _, k := range to.keys() {
		was, there := old[k.path]
		delete(old, k.path)
		if there && alike(was, k) || k.kind == fieldSections {
			continue
		}
		c := Change{Path: k.path, To: text(k.value), Origin: to.origin(k.path), Reload: k.reloadable()}
		if there {
			c.From = text(was.value)
		} else if k.value.IsZero() { // of a member that was added
			continue
		}
		if c.From == c.To { // two secrets
			c.To = "(another)"
		}
		out = append(out, c)
	}
	for _, k := range from.keys() { // of members that were removed
		if was, gone := old[k.path]; gone && was.kind != fieldSections && !was.value.IsZero() {
			out = append(out, Change{Path: k.path, From: text(was.value), Origin: Origin{Kind: OriginDefault}, Reload: k.reloadable()})
		}
	}
	return out
}

// alike compares two values; a list without items is one, however it came to be empty.
func alike(a, b key) bool {
	if (a.kind == fieldList || a.kind == fieldTexts || a.kind == fieldSections) && a.value.Len() == 0 && b.value.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a.value.Interface(), b.value.Interface())
}

// Take returns what applies after a reload in an instance to which from applies, that has read to: the keys that can be reloaded
// from to, the others as they were. The origins are those of to where its value applies.
func Take(from, to *Config) *Config {
	taken := *from
	cloneSections(ofConfig(&taken))
	taken.from = &provenance{given: map[string][]given{}}
	fresh := map[string]key{}
	for _, k := range to.keys() {
		fresh[k.path] = k
	}
	for _, k := range taken.keys() {
		source := from
		if f, there := fresh[k.path]; there && k.kind != fieldSections && (k.reloadable() || alike(k, f)) {
			k.value.Set(f.value)
			source = to
		}
		if source.from != nil {
			taken.from.given[k.path] = source.from.given[k.path]
		}
	}
	return &taken
}
