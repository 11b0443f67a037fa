package site

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"weir/auth"
	"weir/govern"
	"weir/internal/yamldoc"
	"weir/model"
	"weir/registry"
	"weir/rules"
	"weir/rules/strict"
	"weir/store"
)

// item is an entity as it stands in a file, whether its name is valid or not.
type item struct {
	kind  *kind
	e     *Entity
	outer *Entity // what it is declared inside of, nil at the top
}

// check reads every value as the API would and compiles the rules: everything that needs no instance.
func (r *reader) check() {
	compiler, err := newCompiler()
	if err != nil {
		r.problem(yamldoc.Position{}, "", "", "the rules cannot be compiled: %v", err)
		return
	}
	for _, it := range r.items {
		refused := r.values(it)
		switch {
		case it.kind.is(tableRules) && !refused["definition"]:
			r.rule(it, compiler)
		case it.kind.is(tableMetrics):
			r.metric(it)
		case it.kind.is(tableCredentials):
			r.shortToken(it)
		}
	}
	r.distinct()
}

// values checks the fields of an entity and returns those that were refused.
func (r *reader) values(it item) map[string]bool {
	refused := map[string]bool{}
	for _, err := range r.valueErrors(it) {
		e, ok := errors.AsType[*model.Error](err)
		if !ok {
			continue // it is about what is stored
		}
		refused[e.Field] = true
		if _, given := it.e.Places[e.Field]; given && !strings.ContainsAny(e.Field, ".[") && !it.e.has(e.Field) { // reported when it was read
			continue
		}
		at := it.e.field(e.Field)
		r.problem(r.place(at), yamldoc.Join(it.e.At.Path, e.Field), it.permitted(e.Field), "%s", e.Text())
	}
	return refused
}

// has reports whether a field has a value.
func (e *Entity) has(name string) bool {
	_, field := e.Fields[name]
	_, secret := e.Secrets[name]
	return field || secret
}

func (r *reader) valueErrors(it item) (refused []error) {
	switch {
	case it.kind == r.format.identity:
		refused = auth.CheckIdentity(it.e.Name, given(it.e.Fields, "firstName", "lastName"))
		if password, ok := it.e.Secrets["password"]; ok && !r.src.WithoutSecrets {
			refused = append(refused, auth.CheckPassword(password))
		}
	case it.kind.live != nil:
		refused = it.kind.live.Check(it.patch(), r.src.Complete)
		if it.kind.is(tableCredentials) {
			refused = append(refused, checkCredential(it.e))
		}
		refused = append(refused, it.special()...)
		refused = append(refused, it.documents()...)
	}
	return refused
}

// documents returns what is wrong with the documents that have a form of their own.
func (it item) documents() (refused []error) {
	for i := range it.kind.fields {
		f := &it.kind.fields[i]
		if text, ok := it.e.Fields[f.name].(string); ok && f.normal != nil {
			if _, err := f.normal(text); err != nil {
				refused = append(refused, err)
			}
		}
	}
	return refused
}

func given(from store.Patch, names ...string) store.Patch {
	p := store.Patch{}
	for _, name := range names {
		if v, ok := from[name]; ok {
			p[name] = v
		}
	}
	return p
}

// checkCredential checks what a credential says in the file itself.
func checkCredential(e *Entity) error {
	kind, _ := e.Fields["credentialType"].(string)
	if id, ok := e.Secrets["credentialId"]; ok && id != "" && kind == registry.X509Certificate {
		return registry.CheckCertificateID(id)
	}
	return nil
}

// patch is what a create of the entity would be given, with a name in place of what follows from where it stands.
func (it item) patch() store.Patch {
	p := it.kind.naming(it.e.Name)
	if id := it.kind.ids[0]; it.kind.dotted && model.CheckDotted(id, it.e.Name) != nil || !it.kind.dotted && len(it.kind.ids) == 1 && !model.ValidToken(it.e.Name) {
		p[id] = "x" // reported when it was read
	}
	if it.kind.parent != nil {
		p[it.kind.parent.Name] = "x"
	}
	if it.kind.is(tableTenants) {
		p["tierToken"] = govern.DefaultTier
	}
	for i := range it.kind.fields {
		if f := &it.kind.fields[i]; f.fresh != nil && f.column != "" {
			p[f.name] = f.fresh
		}
	}
	for name, v := range it.e.Fields {
		f := it.kind.field(name)
		if f == nil || f.column == "" {
			continue
		}
		p[name] = v
		if text, ok := v.(string); ok && f.sent != nil {
			p[name] = f.sent(text)
		}
	}
	return p
}

// permitted suggests one of the permitted values of a field.
func (it item) permitted(name string) string {
	if it.kind.is(tablePolicies) {
		return policyHint(it.e, name)
	}
	f := it.kind.field(name)
	value, ok := it.e.Fields[name].(string)
	if f == nil || !ok || len(f.oneOf) == 0 {
		return ""
	}
	return cmp.Or(yamldoc.Suggest(strings.ToUpper(value), f.oneOf), yamldoc.Suggest(value, f.oneOf))
}

// shortAccessToken is how many characters an access token has at least that cannot be guessed: 64 bits in hexadecimal.
const shortAccessToken = 16

// shortToken warns, once, of an access token that can be guessed.
func (r *reader) shortToken(it item) {
	token, ok := it.e.Secrets["credentialId"]
	if !ok || it.e.Fields["credentialType"] != registry.AccessToken || token == "" || utf8.RuneCountInString(token) >= shortAccessToken || r.warned["short token"] {
		return
	}
	r.warned["short token"] = true
	at := it.e.field("credentialId")
	p := r.place(at).Problem(at.Path, true, "give it 64 random hexadecimal digits, as weir device add does", "has fewer than %d characters: an access token of this length can be guessed",
		shortAccessToken)
	p.Source = ""
	r.warnings = append(r.warnings, p.String())
}

// metric warns of a definition that no reading fits.
func (r *reader) metric(it item) {
	m := registry.MetricDefinition{}
	m.DataType, _ = it.e.Fields["dataType"].(string)
	if enum, ok := it.e.Fields["enum"].(string); ok {
		m.Enum = &enum
	}
	for _, text := range m.Advice() {
		name, _, _ := strings.Cut(text, ":")
		at := it.e.field(name)
		p := r.place(at).Problem(yamldoc.Join(it.e.At.Path, name), false, "", "%s", strings.TrimPrefix(text, name+": "))
		p.Source = ""
		r.warnings = append(r.warnings, p.String())
	}
}

// rule compiles the definition of a rule. What is wrong with one that is not published is a warning.
func (r *reader) rule(it item, compiler *rules.Compiler) {
	definition, ok := it.e.Fields["definition"].(string)
	if !ok {
		return
	}
	program, advice, faults := compiler.Inspect(definition, rules.Options{GroupScoped: it.e.Fields["entityGroupToken"] != nil, AtSite: it.e.Fields["placement"] == model.PlacementEdge})
	draft := it.e.Fields["enabled"] == false || it.outer != nil && it.outer.Fields[keyPublish] == false
	for _, fault := range faults {
		p := r.fault(it.e, fault)
		if draft {
			p.Source = ""
			r.warnings = append(r.warnings, p.String()+"; the rule cannot be published")
		} else {
			r.problems = append(r.problems, p)
		}
	}
	for _, w := range advice {
		r.warn(it.e, "", w.Message)
	}
	if program == nil || !r.src.Complete || it.outer == nil {
		return
	}
	for _, a := range adviceOn(program, declaredVocabulary(it.outer)) {
		r.warn(it.e, a.field, a.message)
	}
}

func (r *reader) warn(e *Entity, field, message string) {
	p := r.fault(e, &rules.Error{Field: field, Reason: message})
	p.Source = ""
	r.warnings = append(r.warnings, p.String())
}

// fault is an offence of a definition at its key.
func (r *reader) fault(e *Entity, fault *rules.Error) yamldoc.Problem {
	return faultAt(r.documents[e], r.place(e.field("definition")), yamldoc.Join(e.At.Path, "definition"), fault)
}

// faultAt is an offence of a definition in a document that stands at a position and path.
func faultAt(node *yamldoc.Node, at yamldoc.Position, path string, fault *rules.Error) yamldoc.Problem {
	if fault.Field != "" {
		path = yamldoc.Join(path, fault.Field)
	}
	at, value := locate(node, at, fault.Field)
	if value != nil && fault.Field == "when" {
		if i := slices.IndexFunc(value.Entries, func(e yamldoc.Entry) bool { return e.Key == "cel" }); i >= 0 { // it is about the expression
			at, path = value.Entries[i].Place, path+".cel"
		}
	}
	var hints []string
	switch {
	case len(fault.Fields) > 0:
		hints = append(hints, suggest(fault.Field[strings.LastIndexByte(fault.Field, '.')+1:], fault.Fields))
	case value != nil && len(fault.Values) > 0:
		hints = append(hints, yamldoc.Suggest(value.Text, fault.Values))
	}
	hints = slices.DeleteFunc(append(hints, fault.Advice()), func(s string) bool { return s == "" })
	return at.Problem(path, false, strings.Join(hints, " "), "%s", fault.Reason)
}

// locate follows the path of a field into a document, as far as there are keys. The node is nil where the path is left.
func locate(n *yamldoc.Node, at yamldoc.Position, field string) (yamldoc.Position, *yamldoc.Node) {
	for field != "" && n != nil {
		var next *yamldoc.Node
		switch n.Kind {
		case yamldoc.Map:
			for _, e := range n.Entries {
				rest, ok := strings.CutPrefix(field, strict.Join("", e.Key))
				if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
					at, field, next = e.Place, strings.TrimPrefix(rest, "."), e.Value
					break
				}
			}
		case yamldoc.List:
			index, rest, _ := strings.Cut(strings.TrimPrefix(field, "["), "]")
			if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(n.Items) {
				next = n.Items[i]
				at, field = start(next), strings.TrimPrefix(rest, ".")
			}
		}
		n = next
	}
	return at, n
}

// distinct refuses two entities with the same value of a field that must be unique: in the tenant, or inside of one entity.
func (r *reader) distinct() {
	type owner struct {
		scope string
		outer *Entity
		kind  *kind
		field string
		value string
	}
	type given struct {
		e     *Entity
		field string
	}
	first := map[owner]*given{}
	for _, it := range r.items {
		for _, f := range it.kind.fields {
			if !f.unique && !f.uniqueInside {
				continue
			}
			values := texts(it.e.Fields[f.name])
			if value, ok := it.e.Fields[f.name].(string); ok {
				values = []string{value}
			}
			for _, value := range values {
				if value == "" {
					continue
				}
				o := owner{it.e.scope, nil, it.kind, cmp.Or(f.with, f.name), value}
				if f.uniqueInside {
					o.outer = it.outer
				}
				if have := first[o]; have != nil && (have.e != it.e || have.field != f.name) {
					at := it.e.field(f.name)
					r.problem(r.place(at), yamldoc.Join(it.e.At.Path, f.name), "", "%q is given to the %s %q at %s already", shortened(value), it.kind.name, have.e.Name, have.e.field(have.field))
					continue
				}
				first[o] = &given{it.e, f.name}
			}
		}
	}
}
