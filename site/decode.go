package site

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"weir/internal/yamldoc"
	"weir/model"
	"weir/rules/strict"
	"weir/store"
)

// list reads the list of a kind into lists. scope is where its names are unique.
func (r *reader) list(k *kind, n *yamldoc.Node, path, scope string, lists map[string][]*Entity) {
	switch n.Kind {
	case yamldoc.List:
	case yamldoc.Null: // all of it commented out: not declared
		p := n.Place.Problem(path, false, "write [] where there shall be none", "is empty, so it declares nothing and leaves what is there")
		p.Source = ""
		r.warnings = append(r.warnings, p.String())
		return
	default:
		r.problem(start(n), path, "begin each with a dash", "must be a list")
		return
	}
	if lists[k.list] == nil {
		lists[k.list] = []*Entity{} // an empty list is one, too: nothing of the kind is declared
	}
	for i, item := range n.Items {
		r.entity(k, item, fmt.Sprintf("%s[%d]", path, i), scope, lists)
	}
}

// start is where a value begins; a mapping itself has the place of a colon.
func start(n *yamldoc.Node) yamldoc.Position {
	if len(n.Entries) > 0 {
		return n.Entries[0].Place
	}
	return n.Place
}

// suggest is the hint for a key that is not known: one that is nearly the same, or the only one that begins like it.
func suggest(key string, known []string) string {
	if hint := yamldoc.Suggest(key, known); hint != "" || len(key) < 4 {
		return hint
	}
	begins := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return !strings.HasPrefix(k, key) })
	if len(begins) != 1 {
		return ""
	}
	return "did you mean " + begins[0] + "?"
}

// suggestOr is suggest, or all that is known where nothing is near.
func suggestOr(key string, known []string) string {
	if hint := suggest(key, known); hint != "" {
		return hint
	}
	return "there are " + strings.Join(known, ", ")
}

// article puts the article before the name of a kind.
func article(name string) string {
	if name != "" && strings.ContainsRune("aeiou", rune(name[0])) {
		return "an " + name
	}
	return "a " + name
}

// entity reads one item of a list.
func (r *reader) entity(k *kind, n *yamldoc.Node, path, scope string, lists map[string][]*Entity) {
	if n.Kind != yamldoc.Map {
		r.problem(start(n), path, "", "must be a mapping with %s", strings.Join(k.ids, " and "))
		return
	}
	place := start(n)
	e := &Entity{At: Position{File: place.File.Name, Line: place.Line, Column: place.Column, Path: path}, Fields: store.Patch{}, Places: map[string][2]int{}, scope: scope}
	into, inner := e, scope // metrics, rules and credentials have their token in the tenant
	if r.name(k, n, e) {
		into, _ = r.declare(k, scope, e, lists)
	} else {
		e.Name = path // it is no entity, but the mistakes inside it are reported
	}
	if into == e {
		r.items = append(r.items, item{k, e, r.inside})
	}
	switch k {
	case r.format.tenant:
		inner = k.list + "/" + e.Name
	case r.format.identity:
		inner = k.list + "/" + strings.ToLower(e.Name)
	}
	for _, literal := range []bool{false, true} { // whether a credentialId is a secret depends on the credentialType
		for _, entry := range n.Entries {
			f := k.field(entry.Key)
			if !slices.Contains(k.ids, entry.Key) && literal == (f != nil && f.literal()) {
				r.key(k, into, entry, yamldoc.Join(path, entry.Key), inner)
			}
		}
	}
}

// name reads the fields that name the entity.
func (r *reader) name(k *kind, n *yamldoc.Node, e *Entity) bool {
	values := make([]string, len(k.ids))
	for i, id := range k.ids {
		v := n.Get(id)
		switch {
		case v == nil:
			r.problem(r.place(e.At), yamldoc.Join(e.At.Path, id), "", "is missing: it names the %s", k.name)
			return false
		case v.Kind != yamldoc.Scalar:
			r.problem(v.Place, yamldoc.Join(e.At.Path, id), "", "must be a text")
			return false
		}
		values[i] = v.Text
		if f := k.field(id); f != nil {
			e.Fields[id], e.Places[id] = v.Text, [2]int{v.Place.Line, v.Place.Column}
		}
	}
	e.Name = strings.Join(values, "/")
	place := n.Get(k.ids[0])
	switch {
	case k == r.format.identity:
		e.Name = strings.ToLower(strings.TrimSpace(e.Name))
	case len(k.ids) > 1: // its values are checked like those of other fields
	case k.dotted:
		if err := model.CheckDotted(k.ids[0], e.Name); err != nil {
			r.problem(place.Place, yamldoc.Join(e.At.Path, k.ids[0]), "letters, digits, -, _ and ., at most 128", "%q names no %s", shortened(e.Name), k.name)
			return false
		}
	case !model.ValidToken(e.Name):
		r.problem(place.Place, yamldoc.Join(e.At.Path, k.ids[0]), "letters, digits, - and _, at most 128; the first is a letter or a digit", "%q is no token", shortened(e.Name))
		return false
	}
	return true
}

// key reads one key of an entity: a field, where a secret is, or what is declared inside.
func (r *reader) key(k *kind, e *Entity, entry yamldoc.Entry, path, scope string) {
	secret, from := k.secretOf(entry.Key)
	nested, f := k.nested(entry.Key), k.field(entry.Key)
	switch {
	case secret != nil:
		r.secretKey(e, secret, from, entry, path)
	case nested != nil:
		if e.Lists == nil {
			e.Lists = map[string][]*Entity{}
		}
		outer := r.inside
		r.inside = e
		r.list(nested, entry.Value, path, scope, e.Lists)
		r.inside = outer
	case k == r.format.tenant && entry.Key == keyFrom:
		r.fleets(e, entry.Value, path, scope)
	case f == nil:
		r.problem(entry.Place, path, suggestOr(entry.Key, k.keys()), "is not a field of %s", article(k.name))
	case r.given(e, f.name, entry, path):
	case f.secret:
		r.literal(e, f, entry, path)
	default:
		v, ok := r.fieldValue(f, entry.Value, path)
		if ok {
			e.Fields[f.name] = v
		}
		if f.name == "definition" {
			r.documents[e] = entry.Value
		}
		if f.placed && entry.Place.File.Name == e.At.File {
			e.note(f.name, entry.Value)
		}
	}
}

// maxPlaces is how many places of an entity are kept: aliases could make many of a small file.
const maxPlaces = 4096

// note keeps the places inside of a document.
func (e *Entity) note(path string, n *yamldoc.Node) {
	inside := func(path string, at yamldoc.Position, n *yamldoc.Node) {
		if len(e.Places) < maxPlaces {
			e.Places[path] = [2]int{at.Line, at.Column}
			e.note(path, n)
		}
	}
	for _, entry := range n.Entries {
		inside(strict.Join(path, entry.Key), entry.Place, entry.Value)
	}
	for i, item := range n.Items {
		inside(fmt.Sprintf("%s[%d]", path, i), start(item), item)
	}
}

// given notes where a field stands, and says when another spelling or another file has given it.
func (r *reader) given(e *Entity, name string, entry yamldoc.Entry, path string) bool {
	for _, key := range []string{name, name + "_file", name + "_env"} {
		if p, ok := e.Places[key]; ok {
			r.problem(entry.Place, path, "", "is given at %s already", Position{File: e.At.File, Line: p[0], Column: p[1]})
			return true
		}
	}
	if entry.Place.File.Name == e.At.File { // the places of an entity are those of one file
		e.Places[entry.Key] = [2]int{entry.Place.Line, entry.Place.Column}
		return false
	}
	if _, ok := e.Fields[name]; ok {
		r.problem(entry.Place, path, "", "is given in another file already")
		return true
	}
	return false
}

// secretKey reads the file or the variable of a secret.
func (r *reader) secretKey(e *Entity, f *field, from string, entry yamldoc.Entry, path string) {
	if r.given(e, f.name, entry, path) {
		return
	}
	if entry.Value.Kind != yamldoc.Scalar || entry.Value.Text == "" {
		r.problem(entry.Value.Place, path, "", "must name a %s", map[string]string{"_file": "file", "_env": "variable"}[from])
		return
	}
	value, why := r.secret(from, entry.Value.Text, entry.Value.Place.File.Name)
	if why != "" {
		r.problem(entry.Value.Place, path, "", "%s", why)
		return
	}
	e.keep(f.name, value)
}

func (e *Entity) keep(name, secret string) {
	if e.Secrets == nil {
		e.Secrets = map[string]string{}
	}
	e.Secrets[name] = secret
}

// literal takes the secret of a field that is one in name only: a user name, or the hash of a certificate. A secret in
// the file itself is refused, and never shown.
func (r *reader) literal(e *Entity, f *field, entry yamldoc.Entry, path string) {
	if entry.Value.Kind == yamldoc.Null && !f.literal() {
		e.Fields[f.name] = nil
		return
	}
	if f.literal() && e.Fields["credentialType"] != nil && e.Fields["credentialType"] != "ACCESS_TOKEN" {
		v, ok := r.fieldValue(f, entry.Value, path)
		if id, isText := v.(string); isText {
			e.keep(f.name, id)
		}
		if !ok || v != nil {
			return
		}
	}
	hint := fmt.Sprintf("name a file with %s_file, or a variable with %s_env", f.name, f.name)
	if f.literal() && e.Fields["credentialType"] == nil {
		hint = "of an access token it is the secret: give credentialType, and for an access token " + hint
	}
	r.problems = append(r.problems, entry.Place.Problem(path, true, hint, "a secret does not stand in a site file"))
}

// fieldValue reads the value of a field as its type says. ok is false after a problem.
func (r *reader) fieldValue(f *field, n *yamldoc.Node, path string) (v any, ok bool) {
	if n.Kind == yamldoc.Null {
		return nil, true
	}
	before := len(r.problems)
	switch f.typ {
	case documentField:
		v = r.document(f, n, path)
	case listField, setField:
		v = r.texts(n, path)
	default:
		if n.Kind != yamldoc.Scalar {
			r.problem(n.Place, path, "", "must be a single value")
			return nil, false
		}
		var why string
		if v, why = scalar(f.typ, n.Text, n.Quoted); why != "" {
			r.problem(n.Place, path, "", "%s", why)
		}
	}
	return v, len(r.problems) == before
}

// scalar reads one value. why says what is wrong with it.
func scalar(t fieldType, text string, quoted bool) (v any, why string) {
	switch t {
	case boolField:
		if quoted || text != "true" && text != "false" {
			return nil, "must be true or false"
		}
		return text == "true", ""
	case integerField:
		n, err := strconv.ParseInt(text, 10, 32)
		if quoted || err != nil || !numeral.MatchString(text) {
			return nil, "must be a whole number"
		}
		return n, ""
	case numberField:
		x, err := strconv.ParseFloat(text, 64)
		if quoted || err != nil || !numeral.MatchString(text) || math.IsInf(x, 0) {
			return nil, "must be a number"
		}
		return x, ""
	case instantField:
		if text == "" { // the API clears with it
			return nil, ""
		}
		if _, err := model.ParseTime(text); err != nil {
			return nil, "must be a time such as 2027-01-31T12:00:00Z"
		}
	}
	return text, ""
}

// texts reads a list of texts.
func (r *reader) texts(n *yamldoc.Node, path string) any {
	if n.Kind != yamldoc.List {
		r.problem(n.Place, path, "", "must be a list")
		return nil
	}
	list := []any{}
	for i, item := range n.Items {
		if item.Kind != yamldoc.Scalar {
			r.problem(item.Place, fmt.Sprintf("%s[%d]", path, i), "", "must be a text")
			continue
		}
		list = append(list, item.Text)
	}
	return list
}

// document reads a JSON document, written in YAML or as a JSON text.
func (r *reader) document(f *field, n *yamldoc.Node, path string) any {
	if n.Kind == yamldoc.Scalar {
		if n.Text == "" && f.emptyClears {
			return nil
		}
		if !json.Valid([]byte(n.Text)) {
			r.problem(n.Place, path, "", "must be a mapping, or the text of a JSON document")
		}
		return n.Text
	}
	if n.Kind == yamldoc.Map && f.keys != nil {
		for _, e := range n.Entries {
			if !slices.Contains(f.keys, e.Key) {
				r.problem(e.Place, yamldoc.Join(path, e.Key), yamldoc.Suggest(e.Key, f.keys), "is not a key of %s", f.name)
			}
		}
	}
	return jsonOf(n, func(at yamldoc.Position, hint, format string, args ...any) {
		r.problem(at, path, hint, format, args...)
	})
}

// shortened is a value for a message.
func shortened(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
