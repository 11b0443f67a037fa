package config

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"

	"weir/internal/setting"
	"weir/internal/yamldoc"
)

// aliases are keys of the client's documents and what they are called here.
var aliases = map[string]string{"infrastructure.messaging.mqttFailClosed": "broker.fail_closed",
	"externalMqtt.publishWindow": "external_mqtt.publish_window"}

// file lays a file over what was read before it.
func (l *loader) file(name string, text []byte) {
	l.begin()
	before := len(l.problems)
	root, problems := yamldoc.Parse(name, text)
	l.problems = append(l.problems, problems...)
	l.mapping("", root, l.parsed)
	l.end(l.merge)
	if len(l.problems) == before {
		l.secretsInside(name)
	}
}

// mapping sets the fields of a struct from a mapping node.
func (l *loader) mapping(path string, node *yamldoc.Node, into reflect.Value) {
	switch node.Kind {
	case yamldoc.Null: // a section whose keys are all commented out
		return
	case yamldoc.Map:
	default:
		l.problem(path, node.Place, false, "", "must be a mapping of keys")
		return
	}
	for _, e := range node.Entries {
		full := yamldoc.Join(path, e.Key)
		if l.alias(full, e.Value, e.Place) {
			continue
		}
		field, found := fieldOf(into, e.Key)
		switch {
		case !found:
			l.strangeKey(full, e.Key, given{at: e.Place, file: true}, names(into))
		case field.kind == fieldSection:
			l.mapping(full, e.Value, field.value)
		case field.kind == fieldSections:
			l.members(full, e.Value, e.Place, field)
		default:
			l.value(full, e.Value, e.Place, field)
		}
	}
}

// alias sets what an aliased key stands for. A mapping on the way to one is walked.
func (l *loader) alias(path string, node *yamldoc.Node, at yamldoc.Position) bool {
	for from, to := range aliases {
		if from == path {
			field, _ := fieldAt(l.parsed, to)
			l.aliased(from, to, node, at, field)
			return true
		}
		if strings.HasPrefix(from, path+".") {
			for _, e := range node.Entries {
				full := yamldoc.Join(path, e.Key)
				if !l.alias(full, e.Value, e.Place) {
					l.problem(full, e.Place, false, "", "is not a key that this Weir knows")
				}
			}
			return true
		}
	}
	return false
}

// aliased sets the key to from its other spelling. The layer knows it under the spelling, so that two with different
// values are a mistake.
func (l *loader) aliased(from, to string, node *yamldoc.Node, at yamldoc.Position, f field) {
	if node.Kind != yamldoc.Scalar {
		l.value(from, node, at, f) // reported, or nothing
		return
	}
	by := given{at: at, file: true}
	l.given[to] = append(l.given[to], by)
	why := f.set(node.Text)
	if why != "" {
		l.bad[to] = true
		l.problem(from, node.Place, false, "", "%s", why)
	}
	l.once(to, from, f, by, why == "")
}

// value sets one key.
func (l *loader) value(path string, node *yamldoc.Node, at yamldoc.Position, f field) {
	by := given{at: at, file: true}
	switch {
	case node.Kind == yamldoc.Null && !f.reference(): // a key without a value keeps what it has
	case node.Kind == yamldoc.List && f.kind == fieldList:
		l.give(path, f, by, node.Place, "", func() string { return l.items(path, node, f) })
	case node.Kind == yamldoc.Map && f.kind == fieldTexts:
		l.give(path, f, by, node.Place, "", func() string { return l.texts(path, node, f) })
	case f.kind == fieldTexts:
		l.bad[path] = true
		l.problem(path, at, false, "write {name: text}, or one line for each", "must be a mapping of names and texts")
	case f.kind == fieldList:
		l.bad[path] = true
		l.problem(path, at, false, "write [a, b], or one line with - for each", "must be a list")
	case node.Kind == yamldoc.Scalar || node.Kind == yamldoc.Null:
		l.text(path, f, by, node.Place, node.Text)
	default:
		l.bad[f.path(path)] = true
		l.problem(path, at, f.secret(), "", "must be a single value")
	}
}

// items sets a list. Each item that is no string is reported with its line.
func (l *loader) items(path string, node *yamldoc.Node, f field) string {
	var items []string
	for i, n := range node.Items {
		if n.Kind != yamldoc.Scalar || n.Text == "" {
			l.bad[path] = true
			l.problem(fmt.Sprintf("%s[%d]", path, i), n.Place, false, "", "must be a single value that is not empty")
			continue
		}
		items = append(items, n.Text)
	}
	f.setList(items)
	return ""
}

// texts sets names and their texts. Each that has no single text is reported with its line.
func (l *loader) texts(path string, node *yamldoc.Node, f field) string {
	texts := setting.Texts{}
	for _, e := range node.Entries {
		if e.Value.Kind != yamldoc.Scalar {
			l.bad[path] = true
			l.problem(yamldoc.Join(path, e.Key), e.Place, false, "", "must be a single value")
			continue
		}
		texts[e.Key] = e.Value.Text
		l.given[yamldoc.Join(path, e.Key)] = []given{{at: e.Value.Place, file: true}}
	}
	f.keepTexts(texts)
	return ""
}

func notThere(err error) bool { return errors.Is(err, fs.ErrNotExist) }

func asPathError(err error) (*fs.PathError, bool) { return errors.AsType[*fs.PathError](err) }
