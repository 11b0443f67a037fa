package engine

import (
	"strings"

	gast "github.com/graphql-go/graphql/language/ast"
	"github.com/vektah/gqlparser/v2/ast"
)

// converter prepares an operation: the parsed document becomes one of graphql-go, without arguments.
type converter struct {
	engine    *Engine
	op        *Operation
	fragments map[string]gast.Node // those that the operation spreads
	order     []gast.Node
	siteOf    map[*ast.Field]int
}

func (e *Engine) convert(def *ast.OperationDefinition) (*Operation, []*Error) {
	op := &Operation{def: def, within: e.limits.Time, byField: map[*gast.Field]*ast.Field{}, positions: map[*gast.Field]*ast.Position{},
		booleans: map[string]bool{}, shape: &shape{}}
	c := &converter{engine: e, op: op, fragments: map[string]gast.Node{}, siteOf: map[*ast.Field]int{}}
	if def.Operation == ast.Mutation {
		c.mutation(def.SelectionSet)
	} else {
		c.query(def.SelectionSet)
	}
	c.eachRoot(def.SelectionSet, nil, func(f *ast.Field, _ []ast.DirectiveList) {
		if reg := e.registered(f); reg != nil {
			op.within = max(op.within, reg.within)
		}
	})
	c.expand(def.SelectionSet, op.shape)
	op.cost = c.price(def.SelectionSet, costOne)
	return op, c.constants()
}

// query makes one step of all root fields except introspection, which is answered separately.
func (c *converter) query(set ast.SelectionSet) {
	c.eachRoot(set, nil, func(f *ast.Field, around []ast.DirectiveList) {
		if asksSchema(f) {
			c.op.introspection = append(c.op.introspection, question{f, append(around, f.Directives)})
			c.noteConditions(f.SelectionSet)
		}
	})
	if sel := c.selections(set); sel != nil {
		c.op.steps = []step{{doc: c.document(sel)}}
		if c.op.def.Operation == ast.Query {
			c.op.steps[0].plain = c.plainRoots(set)
		}
	}
	if c.op.def.Operation == ast.Subscription {
		c.eachRoot(set, nil, func(f *ast.Field, _ []ast.DirectiveList) { c.op.subField = f })
		if c.op.subField != nil {
			c.op.subscription = c.engine.registered(c.op.subField)
		}
	}
}

// mutation makes one step per response key at the root, so that each runs after the previous one has ended. A step keeps
// the directives of the fragments around its field.
func (c *converter) mutation(set ast.SelectionSet) {
	var keys []string
	wrapped := map[string][]gast.Selection{}
	c.eachRoot(set, nil, func(f *ast.Field, around []ast.DirectiveList) {
		if wrapped[f.Alias] == nil {
			keys = append(keys, f.Alias)
		}
		var sel gast.Selection = c.field(f)
		for i := len(around) - 1; i >= 0; i-- {
			if dirs := c.directives(around[i]); dirs != nil {
				sel = gast.NewInlineFragment(&gast.InlineFragment{Directives: dirs,
					SelectionSet: gast.NewSelectionSet(&gast.SelectionSet{Selections: []gast.Selection{sel}})})
			}
		}
		wrapped[f.Alias] = append(wrapped[f.Alias], sel)
	})
	for _, key := range keys {
		c.op.steps = append(c.op.steps, step{doc: c.document(
			gast.NewSelectionSet(&gast.SelectionSet{Selections: wrapped[key]}))})
	}
}

// eachRoot visits the root fields with the directives of the fragments around them, outermost first.
func (c *converter) eachRoot(set ast.SelectionSet, around []ast.DirectiveList, visit func(*ast.Field, []ast.DirectiveList)) {
	for _, s := range set {
		if f, ok := s.(*ast.Field); ok {
			visit(f, around)
			continue
		}
		below, dirs := parts(s)
		c.eachRoot(below, append(around[:len(around):len(around)], dirs), visit)
	}
}

// parts returns what is selected below a selection, fragments spread, and its directives.
func parts(s ast.Selection) (below ast.SelectionSet, dirs ast.DirectiveList) {
	switch s := s.(type) {
	case *ast.Field:
		return s.SelectionSet, s.Directives
	case *ast.InlineFragment:
		return s.SelectionSet, s.Directives
	case *ast.FragmentSpread:
		return s.Definition.SelectionSet, s.Directives
	}
	return nil, nil
}

// noteConditions records the directives of introspection, which is not converted.
func (c *converter) noteConditions(set ast.SelectionSet) {
	for _, s := range set {
		below, dirs := parts(s)
		c.directives(dirs)
		c.noteConditions(below)
	}
}

// asksSchema reports whether a root field is introspection.
func asksSchema(f *ast.Field) bool { return f.Name == "__schema" || f.Name == "__type" }

// document wraps a selection of any operation as a query, together with the fragments that it spreads.
func (c *converter) document(sel *gast.SelectionSet) *gast.Document {
	op := gast.NewOperationDefinition(&gast.OperationDefinition{Operation: gast.OperationTypeQuery, SelectionSet: sel})
	for _, v := range sortedKeys(c.op.booleans) {
		op.VariableDefinitions = append(op.VariableDefinitions, gast.NewVariableDefinition(&gast.VariableDefinition{
			Variable: gast.NewVariable(&gast.Variable{Name: astName(v)}),
			Type:     gast.NewNamed(&gast.Named{Name: astName("Boolean")})}))
	}
	return gast.NewDocument(&gast.Document{Definitions: append([]gast.Node{op}, c.order...)})
}

// selections converts a set; nil when nothing is left of it.
func (c *converter) selections(set ast.SelectionSet) *gast.SelectionSet {
	var out []gast.Selection
	for _, s := range set {
		switch s := s.(type) {
		case *ast.Field:
			if !asksSchema(s) {
				out = append(out, c.field(s))
			}
		case *ast.InlineFragment:
			if below := c.selections(s.SelectionSet); below != nil {
				f := gast.NewInlineFragment(&gast.InlineFragment{Directives: c.directives(s.Directives), SelectionSet: below})
				if s.TypeCondition != "" {
					f.TypeCondition = gast.NewNamed(&gast.Named{Name: astName(s.TypeCondition)})
				}
				out = append(out, f)
			}
		case *ast.FragmentSpread:
			c.fragment(s.Definition)
			out = append(out, gast.NewFragmentSpread(&gast.FragmentSpread{Name: astName(s.Name), Directives: c.directives(s.Directives)}))
		}
	}
	if out == nil {
		return nil
	}
	return gast.NewSelectionSet(&gast.SelectionSet{Selections: out})
}

func (c *converter) fragment(def *ast.FragmentDefinition) {
	if _, done := c.fragments[def.Name]; done {
		return
	}
	f := gast.NewFragmentDefinition(&gast.FragmentDefinition{Name: astName(def.Name),
		TypeCondition: gast.NewNamed(&gast.Named{Name: astName(def.TypeCondition)})})
	c.fragments[def.Name] = f
	c.order = append(c.order, f)
	if f.SelectionSet = c.selections(def.SelectionSet); f.SelectionSet == nil {
		f.SelectionSet = gast.NewSelectionSet(&gast.SelectionSet{})
	}
}

func (c *converter) field(f *ast.Field) *gast.Field {
	out := gast.NewField(&gast.Field{Name: astName(f.Name), Directives: c.directives(f.Directives)})
	if f.Alias != f.Name {
		out.Alias = astName(f.Alias)
	}
	c.op.positions[out] = f.Position
	if f.Definition != nil && len(f.Definition.Arguments) > 0 {
		if _, seen := c.siteOf[f]; !seen {
			c.siteOf[f] = len(c.op.sites)
			c.op.sites = append(c.op.sites, site{field: f, reg: c.engine.registered(f)})
		}
		c.op.byField[out] = f
	}
	out.SelectionSet = c.selections(f.SelectionSet)
	return out
}

// directives converts skip and include; the executor needs no others.
func (c *converter) directives(list ast.DirectiveList) []*gast.Directive {
	var out []*gast.Directive
	for _, d := range list {
		if d.Name != "skip" && d.Name != "include" {
			continue
		}
		arg := d.Arguments.ForName("if").Value
		var value gast.Value = gast.NewBooleanValue(&gast.BooleanValue{Value: arg.Raw == "true"})
		if arg.Kind == ast.Variable {
			c.op.booleans[arg.Raw] = true
			c.op.conditions = append(c.op.conditions, d)
			value = gast.NewVariable(&gast.Variable{Name: astName(arg.Raw)})
		}
		out = append(out, gast.NewDirective(&gast.Directive{Name: astName(d.Name),
			Arguments: []*gast.Argument{gast.NewArgument(&gast.Argument{Name: astName("if"), Value: value})}}))
	}
	return out
}

func astName(s string) *gast.Name { return gast.NewName(&gast.Name{Value: s}) }

// constants coerces the arguments that hold no variable, once for all requests.
func (c *converter) constants() []*Error {
	for i := range c.op.sites {
		s := &c.op.sites[i]
		s.constant = true
		for _, a := range s.field.Arguments {
			s.constant = s.constant && isConstant(a.Value)
		}
		if !s.constant {
			continue
		}
		l := literalCoercer{schema: c.engine.schema, run: true}
		s.args = l.arguments(s.field.Definition.Arguments, s.field.Arguments, s.field.Position)
		if len(l.errs) > 0 {
			return l.errs
		}
		if err := c.engine.checkLists(s.reg, s.args); err != nil {
			return []*Error{err.at(s.field.Position)}
		}
	}
	return nil
}

// expand adds the response keys of a selection to a shape in their order, fragments spread.
func (c *converter) expand(set ast.SelectionSet, into *shape) {
	for _, s := range set {
		below, _ := parts(s)
		if f, ok := s.(*ast.Field); ok {
			c.expand(below, into.child(f.Alias))
		} else {
			c.expand(below, into)
		}
	}
}

// price returns the cost nodes of a selection, fragments spread. Introspection costs nothing.
func (c *converter) price(set ast.SelectionSet, parent costKind) []costNode {
	var out []costNode
	for _, s := range set {
		below, _ := parts(s)
		f, ok := s.(*ast.Field)
		switch {
		case !ok:
			out = append(out, c.price(below, parent)...)
		case !asksSchema(f):
			n := costNode{site: -1}
			if len(below) > 0 {
				n.rule = c.engine.costRuleOf(parent, f, c.engine.registered(f))
				if i, ok := c.siteOf[f]; ok {
					n.site = i
				}
				n.children = c.price(below, n.rule.kind)
			}
			out = append(out, n)
		}
	}
	return out
}

// registered returns the registration of a selected field, nil when it is read from a Go field.
func (e *Engine) registered(f *ast.Field) *field {
	if f.ObjectDefinition == nil || strings.HasPrefix(f.Name, "__") {
		return nil
	}
	return e.fieldOf(f.ObjectDefinition, f.Name)
}

// fieldOf returns the registration of a field of an object type, nil for none. The fields of the roots are registered
// under Query, Mutation and Subscription, independent of the names of these types in the schema.
func (e *Engine) fieldOf(def *ast.Definition, name string) *field {
	typ := def.Name
	switch def {
	case e.schema.Query:
		typ = "Query"
	case e.schema.Mutation:
		typ = "Mutation"
	case e.schema.Subscription:
		typ = "Subscription"
	}
	return e.fields[typ+"."+name]
}

// checkLists refuses arguments with a list that is too long.
func (e *Engine) checkLists(reg *field, args Args) *Error {
	return listLimit(args.m, "", func(path string) int {
		if reg != nil {
			if n, ok := reg.listLimits[path]; ok {
				return n
			}
		}
		return e.limits.ListArgument
	})
}
