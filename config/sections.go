package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"weir/internal/setting"
	"weir/internal/yamldoc"
)

// A list of sections, such as the event sources of a transport, has members whose keys have paths of their own: sources[0].url. The
// last file that gives the list counts as a whole, as for every list; variables and flags set single keys of members, and the next
// number adds a member.

// maxMembers bounds a list of sections.
const maxMembers = 256

// memberPath is the path of a member.
func memberPath(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// memberOf takes the number out of a name such as sources[0].
func memberOf(name string) (list string, i int, ok bool) {
	list, rest, found := strings.Cut(name, "[")
	if !found {
		return name, 0, false
	}
	number, closed := strings.CutSuffix(rest, "]")
	i, err := strconv.Atoi(number)
	if !closed || err != nil || i < 0 || i >= maxMembers || strconv.Itoa(i) != number {
		return name, 0, false
	}
	return list, i, true
}

// members sets a list of sections from a list node. What was given of the list before does not count any more.
func (l *loader) members(path string, node *yamldoc.Node, at yamldoc.Position, f field) {
	switch {
	case node.Kind == yamldoc.Null: // a key without a value keeps what it has
		return
	case node.Kind != yamldoc.List:
		l.bad[path] = true
		l.problem(path, at, false, "write one line with - for each", "must be a list of sections")
		return
	case len(node.Items) > maxMembers:
		l.bad[path] = true
		l.problem(path, at, false, "", "has %d members; the maximum is %d", len(node.Items), maxMembers)
		return
	}
	l.forget(path + "[")
	f.value.SetZero()
	l.grow(path, f, len(node.Items))
	l.given[path] = append(l.given[path], given{at: at, file: true})
	for i, item := range node.Items {
		member := memberPath(path, i)
		l.given[member] = []given{{at: item.Place, file: true}}
		l.mapping(member, item, f.value.Index(i))
	}
}

// forget drops what earlier layers said of keys that begin so.
func (l *loader) forget(prefix string) {
	begins := func(key string) bool { return strings.HasPrefix(key, prefix) }
	maps.DeleteFunc(l.given, func(key string, _ []given) bool { return begins(key) })
	maps.DeleteFunc(l.waiting, func(key string, _ reference) bool { return begins(key) })
	maps.DeleteFunc(l.layer, func(key string, _ spelling) bool { return begins(key) })
	maps.DeleteFunc(l.fresh, func(key string, _ any) bool { return begins(key) })
}

// grow adds members up to n, with their defaults, which the layer gives from here on.
func (l *loader) grow(path string, f field, n int) {
	for i := f.value.Len(); i < n; i++ {
		f.value.Set(reflect.Append(f.value, setting.Member(f.value)))
		leaves(f.value.Index(i), memberPath(path, i), func(key string, k field) {
			switch {
			case k.reference():
			case k.kind == fieldSections:
				l.fresh[key] = 0
			default:
				l.fresh[key] = k.value.Interface()
			}
		})
	}
	l.fresh[path] = f.value.Len()
}

// growByVariables adds the members that variables name: WEIR_…_SOURCES_0_URL.
func (l *loader) growByVariables(in reflect.Value, path string) {
	for _, name := range names(in) {
		f, _ := fieldOf(in, name)
		full := yamldoc.Join(path, name)
		switch f.kind {
		case fieldSection:
			l.growByVariables(f.value, full)
		case fieldSections:
			if n := l.numbered(Variable(full) + "_"); n > f.value.Len() {
				l.grow(full, f, n)
			}
			for i := range f.value.Len() {
				l.growByVariables(f.value.Index(i), memberPath(full, i))
			}
		}
	}
}

// numbered is one more than the highest number that follows the prefix in a variable.
func (l *loader) numbered(prefix string) (n int) {
	for _, kv := range l.src.Environ {
		rest, ok := strings.CutPrefix(kv, prefix)
		number, _, more := strings.Cut(rest, "_")
		if i, err := strconv.Atoi(number); ok && more && err == nil && i >= 0 && i < maxMembers {
			n = max(n, i+1)
		}
	}
	return n
}

// growByPath adds the member that a path names when its number is the next one.
func (l *loader) growByPath(path string) {
	heads := strings.Split(path, ".")
	for i, head := range heads {
		list, n, ok := memberOf(head)
		if !ok {
			continue
		}
		full := strings.Join(append(slices.Clone(heads[:i]), list), ".")
		if f, found := fieldAt(l.parsed, full); found && f.kind == fieldSections && n == f.value.Len() {
			l.grow(full, f, n+1)
		}
	}
}

// fillSections sets every list of sections to as many members as are effective.
func (p precedence) fillSections(into reflect.Value, path string) {
	for _, name := range names(into) {
		f, _ := fieldOf(into, name)
		full := yamldoc.Join(path, name)
		switch f.kind {
		case fieldSection:
			p.fillSections(f.value, full)
		case fieldSections:
			n, _ := p.viper.Get(full).(int)
			f.value.SetZero()
			for i := range n {
				f.value.Set(reflect.Append(f.value, setting.Member(f.value)))
				p.fillSections(f.value.Index(i), memberPath(full, i))
			}
		}
	}
}

// described are all keys, and those of the members that lists of sections can have, with paths such as sources[].url.
func described(in reflect.Value) (out []key) {
	var walk func(in reflect.Value, path string)
	walk = func(in reflect.Value, path string) {
		for _, name := range names(in) {
			f, _ := fieldOf(in, name)
			full := yamldoc.Join(path, name)
			switch {
			case f.reference():
			case f.kind == fieldSection:
				walk(f.value, full)
			default:
				out = append(out, key{f, full})
				if f.kind == fieldSections {
					walk(setting.Member(f.value), full+"[]")
				}
			}
		}
	}
	walk(in, "")
	return out
}

// cloneSections gives the lists of sections of a struct that was copied backing arrays of its own.
func cloneSections(in reflect.Value) {
	for sf, v := range setting.Keys(in) {
		_ = sf
		switch {
		case setting.IsSection(v):
			cloneSections(v)
		case setting.IsSections(v) && v.Len() > 0:
			own := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
			reflect.Copy(own, v)
			v.Set(own)
			for i := range v.Len() {
				cloneSections(v.Index(i))
			}
		}
	}
}

// MemberPath is the path of a key of a member of a list of sections, for what is said about it.
func MemberPath(list string, i int, keys ...string) string {
	return strings.Join(append([]string{fmt.Sprintf("%s[%d]", list, i)}, keys...), ".")
}
