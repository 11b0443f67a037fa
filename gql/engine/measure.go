package engine

import (
	"math"

	"github.com/vektah/gqlparser/v2/ast"

	"weir/model"
)

// measure refuses a document over a limit that its text alone decides. It runs before validation,
// so names may be wrong, fragments missing and cycles present.
func (e *Engine) measure(doc *ast.QueryDocument) *Error {
	m := measurer{engine: e, fragments: map[string]*ast.FragmentDefinition{}, sizes: map[string]extent{},
		measuring: map[string]bool{}}
	for _, f := range doc.Fragments {
		if _, dup := m.fragments[f.Name]; !dup {
			m.fragments[f.Name] = f
		}
	}
	total := 0
	for _, op := range doc.Operations {
		s := m.set(op.SelectionSet)
		if m.cycle != nil {
			return m.cycle
		}
		if m.introspection != nil && !e.devTools {
			err := *errIntrospection
			return err.at(m.introspection)
		}
		if total = addCapped(total, s.selections); s.selections > e.limits.Selections || total > 10*e.limits.Selections {
			return LimitError("selections", "the document selects more than %d fields, fragments spread", e.limits.Selections)
		}
		if s.depth > e.limits.Depth {
			return LimitError("depth", "the selection is %d levels deep, at most %d are allowed", s.depth, e.limits.Depth)
		}
		if err := m.roots(op); err != nil {
			return err
		}
		if err := m.repeats(op.SelectionSet, &repeated{}); err != nil {
			return err
		}
	}
	// A fragment that no operation spreads is invalid, but it is walked before that is noticed.
	for _, f := range doc.Fragments {
		if s := m.set(f.SelectionSet); s.selections > e.limits.Selections {
			return LimitError("selections", "the document selects more than %d fields, fragments spread", e.limits.Selections)
		}
		if err := m.repeats(f.SelectionSet, &repeated{}); err != nil {
			return err
		}
	}
	return m.cycle
}

type measurer struct {
	engine        *Engine
	fragments     map[string]*ast.FragmentDefinition
	sizes         map[string]extent // of fragments
	measuring     map[string]bool
	cycle         *Error        // a fragment that spreads itself
	introspection *ast.Position // where the document contains introspection
}

type extent struct{ selections, depth int }

func (m *measurer) set(set ast.SelectionSet) extent {
	var sum extent
	include := func(s extent, below int) {
		sum.selections = addCapped(sum.selections, s.selections)
		if s.depth > 0 {
			sum.depth = max(sum.depth, s.depth+below)
		}
	}
	for _, s := range set {
		sum.selections = addCapped(sum.selections, 1)
		switch s := s.(type) {
		case *ast.Field:
			if asksSchema(s) {
				m.introspection = s.Position
				include(extent{selections: m.set(s.SelectionSet).selections}, 0) // has its own bound of depth
				continue
			}
			sum.depth = max(sum.depth, 1)
			include(m.set(s.SelectionSet), 1)
		case *ast.InlineFragment:
			include(m.set(s.SelectionSet), 0)
		case *ast.FragmentSpread:
			include(m.fragment(s.Name), 0)
		}
	}
	return sum
}

func (m *measurer) fragment(name string) extent {
	if s, ok := m.sizes[name]; ok {
		return s
	}
	f, ok := m.fragments[name]
	if !ok {
		return extent{}
	}
	if m.measuring[name] {
		m.cycle = Errorf("", `Cannot spread fragment "%s" within itself.`, clip(name)).at(f.Position)
		return extent{}
	}
	m.measuring[name] = true
	s := m.set(f.SelectionSet)
	m.sizes[name] = s
	return s
}

// maxRepeats bounds the selections of a response key at one level: validation compares each pair of them.
const maxRepeats = 100

// repeated counts the selections of a response key, and of the keys below it.
type repeated struct {
	times int
	below map[string]*repeated
}

// repeats refuses a selection with more than maxRepeats selections of one key. It visits every selection, fragments
// spread; their number has been checked before.
func (m *measurer) repeats(set ast.SelectionSet, at *repeated) *Error {
	for _, s := range set {
		var err *Error
		switch s := s.(type) {
		case *ast.Field:
			if at.below == nil {
				at.below = map[string]*repeated{}
			}
			k := at.below[s.Alias]
			if k == nil {
				k = &repeated{}
				at.below[s.Alias] = k
			}
			if k.times++; k.times > maxRepeats {
				return LimitError("selections", "%q is selected more than %d times at one place", clip(s.Alias), maxRepeats).at(s.Position)
			}
			err = m.repeats(s.SelectionSet, k)
		case *ast.InlineFragment:
			err = m.repeats(s.SelectionSet, at)
		case *ast.FragmentSpread:
			if f := m.fragments[s.Name]; f != nil {
				err = m.repeats(f.SelectionSet, at)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// roots limits the response keys at the root, and those of them that check credentials.
func (m *measurer) roots(op *ast.OperationDefinition) *Error {
	keys := map[string]bool{} // response key → checks credentials
	m.rootKeys(op.Operation, op.SelectionSet, keys, map[string]bool{})
	if op.Operation == ast.Subscription && len(keys) > 1 { // the library's rule counts names, the specification response keys
		return Errorf("", "A subscription must select exactly one root field, this one selects %d.", len(keys)).at(op.Position)
	}
	limits := m.engine.limits
	maximum, kind := limits.QueryRootFields, "query"
	if op.Operation == ast.Mutation {
		maximum, kind = limits.MutationRootFields, "mutation"
	}
	if len(keys) > maximum {
		return Errorf(model.CodeTooManyRootFields, "a %s may have %d root fields, this one has %d", kind, maximum, len(keys))
	}
	checks := 0
	for _, check := range keys {
		if check {
			checks++
		}
	}
	if checks > limits.CredentialChecks {
		return Errorf(model.CodeTooManyCredentials, "a request may check credentials %d times, this one would %d times",
			limits.CredentialChecks, checks)
	}
	return nil
}

func (m *measurer) rootKeys(op ast.Operation, set ast.SelectionSet, keys, seen map[string]bool) {
	for _, s := range set {
		switch s := s.(type) {
		case *ast.Field:
			reg := m.engine.fields[rootTypeName(op)+"."+s.Name]
			keys[s.Alias] = keys[s.Alias] || reg != nil && reg.credentialCheck
		case *ast.InlineFragment:
			m.rootKeys(op, s.SelectionSet, keys, seen)
		case *ast.FragmentSpread:
			if f := m.fragments[s.Name]; f != nil && !seen[s.Name] {
				seen[s.Name] = true
				m.rootKeys(op, f.SelectionSet, keys, seen)
			}
		}
	}
}

// rootTypeName is the name under which fields of the root are registered.
func rootTypeName(op ast.Operation) string {
	switch op {
	case ast.Mutation:
		return "Mutation"
	case ast.Subscription:
		return "Subscription"
	}
	return "Query"
}

// addCapped adds without overflow, also where int has 32 bits.
func addCapped(a, b int) int {
	if a > math.MaxInt32-b {
		return math.MaxInt32
	}
	return a + b
}

func multiplyCapped(a, b int) int {
	if a != 0 && b > math.MaxInt32/a {
		return math.MaxInt32
	}
	return a * b
}

// costNode is a field of the expanded selection with the factor for the cost below it.
type costNode struct {
	rule     costRule
	site     int // index of the field's site, -1 without arguments
	children []costNode
}

type costRule struct {
	kind   costKind
	path   []string // of the page size, or of the lists of keys
	custom func(Args) int
}

type costKind uint8

const (
	costOne    costKind = iota
	costPage            // the page size, or 100
	costKeys            // length of the list of keys
	costList            // a plain list: 10
	costCustom          // declared with the resolver
)

const (
	defaultPage = 100
	maxPage     = 1000
	plainList   = 10
)

// costRuleOf returns the factor of a field. The items of a page object are multiplied by the page size already.
func (e *Engine) costRuleOf(parent costKind, f *ast.Field, reg *field) costRule {
	def := f.Definition
	isList := def.Type.Elem != nil
	switch {
	case reg != nil && reg.multiplier != nil:
		return costRule{kind: costCustom, custom: reg.multiplier}
	case parent == costPage && def.Name == "results":
		return costRule{}
	}
	if path := e.pageSizePath(def.Arguments); path != nil {
		return costRule{kind: costPage, path: path}
	}
	if !isList {
		return costRule{}
	}
	var lists []string
	for _, a := range def.Arguments {
		if a.Type.Elem != nil {
			lists = append(lists, a.Name)
		}
	}
	if lists != nil {
		return costRule{kind: costKeys, path: lists}
	}
	return costRule{kind: costList}
}

// pageSizePath returns the path of the argument, or of the input object's field, that bounds the page; nil for none.
func (e *Engine) pageSizePath(args ast.ArgumentDefinitionList) []string {
	for _, a := range args {
		if a.Name == "pageSize" || a.Name == "limit" {
			return []string{a.Name}
		}
		def := e.schema.Types[a.Type.Name()]
		if a.Type.Elem == nil && def.Kind == ast.InputObject && def.Fields.ForName("pageSize") != nil {
			return []string{a.Name, "pageSize"}
		}
	}
	return nil
}

func (r costRule) multiplier(args Args) int {
	switch r.kind {
	case costPage:
		for _, name := range r.path[:len(r.path)-1] {
			args = args.Object(name)
		}
		n := args.Int(r.path[len(r.path)-1])
		if n < 1 {
			return defaultPage
		}
		return min(n, maxPage)
	case costKeys:
		n := 0
		for _, name := range r.path {
			list, _ := args.m[name].([]any)
			n += len(list)
		}
		return n
	case costList:
		return plainList
	case costCustom:
		return max(r.custom(args), 0)
	}
	return 1
}

// price is the sum over all fields of the product of the page sizes above them; it stops counting above maximum.
func price(nodes []costNode, product, maximum int, args func(site int) Args) int {
	sum := 0
	for _, n := range nodes {
		sum = addCapped(sum, product)
		if len(n.children) > 0 {
			var a Args
			if n.site >= 0 {
				a = args(n.site)
			}
			sum = addCapped(sum, price(n.children, multiplyCapped(product, n.rule.multiplier(a)), maximum, args))
		}
		if sum > maximum {
			return sum
		}
	}
	return sum
}

// shape is the order of a selection's keys in the response.
type shape struct {
	keys   []shapeKey
	byName map[string]*shape
}

type shapeKey struct {
	name  string
	start []byte // "name":
	below *shape
}

// child returns the shape below a key, adding the key at the end when it is new.
func (s *shape) child(name string) *shape {
	if c, ok := s.byName[name]; ok {
		return c
	}
	if s.byName == nil {
		s.byName = map[string]*shape{}
	}
	c := &shape{}
	s.byName[name] = c
	s.keys = append(s.keys, shapeKey{name: name, start: jsonKey(name), below: c})
	return c
}
