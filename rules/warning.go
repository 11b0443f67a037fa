package rules

import (
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
)

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
