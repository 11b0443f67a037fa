package engine

import (
	"errors"
	"strings"
	"time"

	gast "github.com/graphql-go/graphql/language/ast"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/parser"
	"github.com/vektah/gqlparser/v2/validator/core"
	"github.com/vektah/gqlparser/v2/validator/rules"

	"weir/model"
)

// document is a query text that was parsed, is valid and within the limits that do not depend on variables. Documents
// are cached and shared by requests, so they are never changed.
type document struct {
	operations []*Operation
}

// Operation is one operation of a document, prepared for the executor.
type Operation struct {
	def           *ast.OperationDefinition
	sites         []site                        // fields with arguments
	byField       map[*gast.Field]*ast.Field    // the executor's field → ours, of sites only
	positions     map[*gast.Field]*ast.Position // the executor's field → its position in the text
	steps         []step                        // in order of execution: one for a query, one per root field of a mutation
	introspection []question                    // introspection fields at the root of a query
	shape         *shape                        // order of the response
	cost          []costNode                    // before the page sizes are known
	conditions    []*ast.Directive              // directives that depend on variables
	booleans      map[string]bool               // variables that directives read
	subscription  *field                        // the field of a subscription
	subField      *ast.Field                    // its selection
	within        time.Duration                 // time limit
}

// question is an introspection field with its directives and those of the fragments around it.
type question struct {
	field  *ast.Field
	around []ast.DirectiveList
}

// step is one run of the executor.
type step struct {
	doc   *gast.Document
	plain []plainRoot // tried before the executor; nil when the step is not plain
}

// site is a field with arguments to coerce. Arguments without variables are coerced once.
type site struct {
	field    *ast.Field
	reg      *field
	constant bool
	args     Args // when constant
}

// validationRules are those of the specification in a fixed order, except the rules about values: this package checks
// literals and variables with the same code.
func validationRules() []core.Rule {
	return []core.Rule{
		rules.FieldsOnCorrectTypeRule, rules.FragmentsOnCompositeTypesRule, rules.KnownArgumentNamesRule,
		rules.KnownDirectivesRule, rules.KnownFragmentNamesRule, rules.KnownRootTypeRule, rules.KnownTypeNamesRule,
		rules.LoneAnonymousOperationRule, rules.MaxIntrospectionDepth, rules.NoFragmentCyclesRule,
		rules.NoUndefinedVariablesRule, rules.NoUnusedFragmentsRule, rules.NoUnusedVariablesRule,
		rules.OverlappingFieldsCanBeMergedRule, rules.PossibleFragmentSpreadsRule, rules.ProvidedRequiredArgumentsRule,
		rules.ScalarLeafsRule, rules.SingleFieldSubscriptionsRule, rules.UniqueArgumentNamesRule,
		rules.UniqueDirectivesPerLocationRule, rules.UniqueFragmentNamesRule, rules.UniqueInputFieldNamesRule,
		rules.UniqueOperationNamesRule, rules.UniqueVariableNamesRule, rules.VariablesAreInputTypesRule,
		rules.VariablesInAllowedPositionRule,
	}
}

// document returns the document of a query text, from the cache when possible. Refused texts are not cached.
func (e *Engine) document(text string) (*document, []*Error) {
	if len(text) > e.limits.QueryLength {
		return nil, []*Error{LimitError("query length", "the query is %d bytes long, at most %d are allowed",
			len(text), e.limits.QueryLength)}
	}
	key := cacheKey{e, text}
	if d := e.cache.get(key); d != nil {
		return d, nil
	}
	d, errs := e.prepare(text)
	if len(errs) > 0 {
		return nil, errs
	}
	e.cache.put(key, d)
	return d, nil
}

func (e *Engine) prepare(text string) (*document, []*Error) {
	parsed, err := parser.ParseQuery(&ast.Source{Input: text})
	if err != nil {
		return nil, []*Error{syntaxError(err)}
	}
	if err := e.measure(parsed); err != nil { // before validation, which can cost more than linear time
		return nil, []*Error{err}
	}
	if errs := e.validate(parsed); len(errs) > 0 {
		return nil, errs
	}
	d := &document{}
	for _, def := range parsed.Operations {
		op, errs := e.convert(def)
		if len(errs) > 0 {
			return nil, errs
		}
		d.operations = append(d.operations, op)
	}
	return d, nil
}

func syntaxError(err error) *Error {
	ge, ok := errors.AsType[*gqlerror.Error](err)
	if !ok {
		return Errorf("", "Syntax Error")
	}
	e := fromParser(ge, "")
	e.Message = "Syntax Error: " + strings.TrimSuffix(e.Message, ".") + "."
	return e
}

func (e *Engine) validate(doc *ast.QueryDocument) []*Error {
	if len(doc.Operations) == 0 {
		return []*Error{Errorf("", "The document holds no operation.")}
	}
	var errs []*Error
	events := &core.Events{}
	for _, rule := range e.rules {
		rule.RuleFunc(events, func(options ...core.ErrorOption) {
			if len(errs) >= maxShownErrors {
				return
			}
			ge := &gqlerror.Error{Rule: rule.Name}
			for _, o := range options {
				o(ge)
			}
			errs = append(errs, fromParser(ge, ""))
		})
	}
	core.Walk(e.schema, doc, events)
	if len(errs) > 0 {
		return errs
	}
	return e.checkLiterals(doc)
}

// checkLiterals checks every value in the document.
func (e *Engine) checkLiterals(doc *ast.QueryDocument) []*Error {
	c := literalCoercer{schema: e.schema}
	for _, op := range doc.Operations {
		for _, v := range op.VariableDefinitions {
			if v.DefaultValue != nil {
				c.value(v.Type, v.DefaultValue)
			}
		}
		c.checkDirectives(op.Directives)
		c.checkSelections(op.SelectionSet)
	}
	for _, f := range doc.Fragments {
		c.checkSelections(f.SelectionSet)
	}
	return c.errs
}

func (c *literalCoercer) checkSelections(set ast.SelectionSet) {
	for _, s := range set {
		switch s := s.(type) {
		case *ast.Field:
			c.checkDirectives(s.Directives)
			if s.Definition != nil {
				c.arguments(s.Definition.Arguments, s.Arguments, s.Position)
			}
			c.checkSelections(s.SelectionSet)
		case *ast.InlineFragment:
			c.checkDirectives(s.Directives)
			c.checkSelections(s.SelectionSet)
		case *ast.FragmentSpread:
			c.checkDirectives(s.Directives)
		}
	}
}

func (c *literalCoercer) checkDirectives(list ast.DirectiveList) {
	for _, d := range list {
		if d.Definition != nil {
			c.arguments(d.Definition.Arguments, d.Arguments, d.Position)
		}
	}
}

// find returns the operation with the name; "" selects the only operation.
func (d *document) find(name string) (*Operation, *Error) {
	if name == "" {
		if len(d.operations) > 1 {
			return nil, Errorf("", "Must provide operation name if query contains multiple operations.")
		}
		return d.operations[0], nil
	}
	for _, op := range d.operations {
		if op.def.Name == name {
			return op, nil
		}
	}
	return nil, Errorf("", `Unknown operation named "%s".`, clip(name))
}

var errIntrospection = Errorf(model.CodeIntrospectionDisabled,
	"introspection is disabled; the schema is published under /schema/index.json")
