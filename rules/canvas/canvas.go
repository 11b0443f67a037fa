// Package canvas compiles an automation that was drawn, as nodes and edges, to a rule definition, and shows a definition as such a drawing:
//
//	canvas ─decode─► nodes and edges ─check, fold─► rules.Definition ─rules.Compiler─► the definition that the form would author
//
// A canvas has exactly one condition node, which is the rule. Sources say which devices it watches, actions are its actions, the branches on
// the way to an action become its guard, and computes name values that conditions and guards read. Nothing of a canvas is left at run time:
// the compiled definition is an ordinary one, has the same body as the form's, and goes through the same compiler and the same cost check.
//
// types.go lists the node types with their ports and fields; the fields of conditions and actions are those of the decoder of definitions.
// steps.go lists the checks in their order. Every finding is a Diagnostic with the node that it concerns.
package canvas

import (
	"cmp"
	"slices"
	"strings"

	"weir/rules"
)

// Version is the schemaVersion of canvases.
const Version = 1

// The bounds of a canvas. Nesting is bounded by jsonscan.MaxDepth.
const (
	MaxText  = 256 << 10 // bytes, as much as authoringGraph of a detection rule holds
	MaxNodes = 100
	MaxEdges = 200
	MaxID    = 128 // bytes of a node's id
	MaxFound = 100 // findings that are reported
	// MaxExpressions are the bytes of all expressions, each with the computes that flow into it: as much as a definition holds.
	MaxExpressions = rules.MaxDefinition
)

// Severities of a diagnostic: an error rejects the canvas, a warning is advice.
const (
	Error   = "error"
	Warning = "warning"
)

// Diagnostic is a finding on a canvas.
type Diagnostic struct {
	Node     string   // id of the node that it concerns, "" for the canvas as a whole
	Severity string   // Error or Warning
	Code     string   // of a warning of the rule compiler, otherwise ""
	Params   []string // what the code's text interpolates; empty without a code
	Message  string   // English: the field of the node, if it is about one, and the reason
	Reason   string   // the message without the field
	Path     string   // of the place in the document, such as nodes[1].config.holdMs; "" for the whole
}

// Result is what a canvas compiles to. Without OK only the diagnostics are set, and at least one of them is an error.
type Result struct {
	OK          bool
	Definition  string // canonical JSON
	Cost        uint64 // static worst case of the condition, in cost units
	Program     *rules.Program
	Wiring      Wiring
	Diagnostics []Diagnostic // in the order in which they are found; an empty list for nothing
}

// Wiring says which node of a canvas has become which part of its rule.
type Wiring struct {
	Source, Condition string        // ids of nodes
	Actions           []WiredAction // as the actions of the definition
}

// WiredAction is the node of an action, with the branches between the condition and it.
type WiredAction struct {
	Node     string
	Branches []WiredBranch // the one next to the condition first
}

// WiredBranch is the node of a branch and its part of the guard, with the computes that it reads.
type WiredBranch struct{ Node, Guard string }

// Compiler compiles canvases with the compiler of rules. It is safe for concurrent use.
type Compiler struct {
	rules *rules.Compiler
	types []NodeType
}

// NewCompiler returns a compiler of canvases, which allows what the compiler of rules allows.
func NewCompiler(c *rules.Compiler) *Compiler { return &Compiler{c, nodeTypes(c)} }

// Types are the node types, in the order of the documentation.
func (c *Compiler) Types() []NodeType { return slices.Clone(c.types) }

// Compile compiles the text of a canvas that watches a profile. Whatever is wrong with it is a diagnostic. It keeps nothing.
func (c *Compiler) Compile(text, profile string) Result {
	g := &graph{compiler: c, text: text, profile: strings.TrimSpace(profile), byID: map[string]*node{}}
	for _, phase := range phases {
		for _, step := range phase {
			step(g)
		}
		if g.refused {
			return Result{Diagnostics: g.found}
		}
	}
	return Result{OK: true, Definition: g.definition, Cost: g.program.Cost(), Program: g.program, Wiring: g.wiring, Diagnostics: append([]Diagnostic{}, g.found...)}
}

// report keeps a finding, each once, as long as there are not too many; the first error is always kept.
func (g *graph) report(d Diagnostic) {
	same := func(o Diagnostic) bool { return o.Node == d.Node && o.Message == d.Message && o.Path == d.Path }
	d.Severity, d.Params, d.Reason = cmp.Or(d.Severity, Error), append([]string{}, d.Params...), cmp.Or(d.Reason, d.Message)
	if slices.ContainsFunc(g.found, same) || len(g.found) >= MaxFound && (g.refused || d.Severity == Warning) {
		return
	}
	g.refused = g.refused || d.Severity == Error
	g.found = append(g.found, d)
}
