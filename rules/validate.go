package rules

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
)

// Candidate is a rule to be checked.
type Candidate struct {
	Token       string
	Definition  string
	GroupScoped bool
}

// ValidationError is the first reason for which a candidate is refused.
type ValidationError struct {
	Index   int // position in the list, from 0
	Token   string
	Message string // English, for the rule's author
}

// ValidationWarning is an advisory finding on a candidate that is accepted.
type ValidationWarning struct {
	Index int
	Token string
	Warning
}

// Validate decodes and compiles each candidate in the order of the list, without keeping anything. A candidate has one
// error, the first found, or any number of warnings. What the engine cannot run yet is an error: no rule is accepted
// that would then do nothing.
func (c *Compiler) Validate(candidates []Candidate) ([]ValidationError, []ValidationWarning) {
	var errs []ValidationError
	var warns []ValidationWarning
	for i, cand := range candidates {
		found, err := c.validate(cand)
		if err != nil {
			errs = append(errs, ValidationError{i, cand.Token, err.Error()})
			continue
		}
		for _, w := range found {
			warns = append(warns, ValidationWarning{i, cand.Token, w})
		}
	}
	return errs, warns
}

// Inspect decodes and compiles one definition and returns everything that is wrong with it: every offence of a single
// field and of the condition, or the first of those that concern fields together or the engine. Without an offence p is its
// program.
func (c *Compiler) Inspect(definition string, opt Options) (p *Program, warnings []Warning, faults []*Error) {
	def, faults := decodeAll([]byte(definition), c.kinds)
	if len(faults) > 0 {
		return nil, nil, append(faults, c.conditionFaults(def, faults)...)
	}
	p, warnings, err := c.Compile(def, opt)
	if err == nil {
		err = p.Evaluable()
	}
	if err == nil {
		return p, warnings, nil
	}
	fault, ok := errors.AsType[*Error](err)
	if !ok {
		fault = refuse("", "%v", err)
	}
	return nil, nil, []*Error{fault}
}

// conditionFaults looks at the condition of a definition that has other faults.
func (c *Compiler) conditionFaults(def *Definition, found []*Error) []*Error {
	if def == nil || slices.ContainsFunc(found, func(e *Error) bool { return e.Top() == "when" }) {
		return nil
	}
	if err := def.When.checkForm(); err != nil {
		return []*Error{err}
	}
	if def.When.CEL == "" {
		return nil
	}
	if _, _, err := c.envs.leaf.check(def.When.CEL, c.limits.MaxCost); err != nil {
		return []*Error{refusedAt("when", err)}
	}
	return nil
}

func (c *Compiler) validate(cand Candidate) ([]Warning, error) {
	def, err := c.Decode([]byte(cand.Definition))
	if err != nil {
		return nil, err
	}
	p, warnings, err := c.Compile(def, Options{GroupScoped: cand.GroupScoped})
	if err != nil {
		return nil, err
	}
	return warnings, p.Evaluable()
}

// Warning is an advisory finding on a rule that compiled.
type Warning struct {
	Code    string
	Params  []string // what the text interpolates, in a fixed order per code
	Message string   // English
}

// Warning codes.
const (
	WarnNegatedAttributeGuard         = "negatedAttributeGuard"
	WarnNegatedAttributeGuardDisjunct = "negatedAttributeGuardDisjunct"
	WarnValueNeverSet                 = "valueNeverSet"
)

func guardWarnings(leaf *cel.Ast) []Warning {
	guards, disjuncts := map[string]bool{}, map[string]bool{}
	missingTests(leaf.NativeRep().Expr(), false, guards, disjuncts)
	var ws []Warning
	for attr := range maps.Keys(guards) {
		ws = append(ws, Warning{WarnNegatedAttributeGuard, []string{attr},
			"the condition asks that attribute " + attr + " is missing: it holds for every device that was not given it"})
		delete(disjuncts, attr)
	}
	for attr := range maps.Keys(disjuncts) {
		ws = append(ws, Warning{WarnNegatedAttributeGuardDisjunct, []string{attr},
			"a missing attribute " + attr + " is enough for one side of an || in the condition"})
	}
	return ws
}

func sortWarnings(ws []Warning) []Warning {
	slices.SortFunc(ws, func(a, b Warning) int {
		if c := strings.Compare(a.Code, b.Code); c != 0 {
			return c
		}
		return slices.Compare(a.Params, b.Params)
	})
	return ws
}
