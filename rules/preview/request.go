package preview

import (
	"strings"

	"weir/model"
	"weir/rules"
)

// Request is what is asked for. Exactly one of Graph and Definition names the draft.
type Request struct {
	Graph, Definition *string
	Profile           string // token
	Start, End        string // RFC 3339
	Trace             bool
	Group             *string // token of the group that the draft is scoped to, with GroupVersion
	GroupVersion      *int
}

// MaxDraft is the maximum size of a draft in bytes.
const MaxDraft = 1 << 20

// The severities of a diagnostic.
const (
	Error   = "error"
	Warning = "warning"
)

// Diagnostic is why a request is refused, or an advisory finding on a draft.
type Diagnostic struct {
	Node     string // of a graph, "" for none
	Severity string
	Code     string // of a warning, "" for none
	Params   []string
	Message  string
}

func refused(format string, args ...any) []Diagnostic {
	return []Diagnostic{{Severity: Error, Message: model.Errorf(model.CodeInvalidInput, format, args...).Message}}
}

// Canvas compiles graphs to rules.
type Canvas interface {
	// Compile returns what a graph of a profile compiles to, nil when a diagnostic refuses it.
	Compile(graph, profile string) (*Compiled, []Diagnostic)
}

// Compiled is a graph that has compiled.
type Compiled struct {
	Definition string
	// Trace says what the nodes of the graph did at an edge.
	Trace func(model.Edge) []Step
}

// Draft is a rule that is to be run.
type Draft struct {
	Definition string
	Program    *rules.Program
	Scoped     bool
	Trace      func(model.Edge) []Step // nil: none is asked for
}

// TestsFence reports whether the result reveals when a device was inside a region.
func (d *Draft) TestsFence() bool { return d.Program.TestsFence() }

// Draft compiles the draft of a request. It returns nil when a diagnostic refuses it; the others are advice. A nil canvas compiles nothing.
func (r *Request) Draft(c *rules.Compiler, canvas Canvas) (*Draft, []Diagnostic) {
	d := &Draft{Scoped: r.Group != nil}
	switch {
	case (r.Graph == nil) == (r.Definition == nil):
		return nil, refused("exactly one of graph and ruleDefinition names the draft")
	case (r.Group == nil) != (r.GroupVersion == nil):
		return nil, refused("entityGroupToken and entityGroupVersion are given together or not at all")
	case r.Definition != nil:
		d.Definition = *r.Definition
	case canvas == nil:
		return nil, refused("graph: this Weir does not compile canvases; give the rule as ruleDefinition")
	}
	var found []Diagnostic
	if r.Graph != nil {
		if len(*r.Graph) > MaxDraft {
			return nil, refused("graph: longer than %d bytes", MaxDraft)
		}
		compiled, diagnostics := canvas.Compile(*r.Graph, r.Profile)
		if compiled == nil {
			return nil, diagnostics
		}
		d.Definition, found = compiled.Definition, diagnostics
		if r.Trace {
			d.Trace = compiled.Trace
		}
	}
	if len(d.Definition) > MaxDraft {
		return nil, refused("ruleDefinition: longer than %d bytes", MaxDraft)
	}
	program, warnings, faults := c.Inspect(d.Definition, rules.Options{GroupScoped: d.Scoped})
	if len(faults) > 0 {
		for _, fault := range faults {
			found = append(found, Diagnostic{Severity: Error, Message: fault.Error()})
		}
		return nil, found
	}
	if r.Graph == nil {
		for _, w := range warnings {
			found = append(found, Diagnostic{Severity: Warning, Code: string(w.Code), Params: w.Params, Message: w.Message})
		}
	}
	d.Program = program
	return d, found
}

// Window returns the window of a request, and whether it was shortened. It returns diagnostics when it is none.
func (r *Request) Window() (w Window, shortened bool, _ []Diagnostic) {
	start, err := model.ParseTime(strings.TrimSpace(r.Start))
	if err != nil {
		return w, false, refused("start: %.64q is not an RFC 3339 time", r.Start)
	}
	end, err := model.ParseTime(strings.TrimSpace(r.End))
	if err != nil {
		return w, false, refused("end: %.64q is not an RFC 3339 time", r.End)
	}
	if !end.After(start) {
		return w, false, refused("end: %s is not after start, %s", r.End, r.Start)
	}
	if end.Sub(start) > MaxWindow {
		start, shortened = end.Add(-MaxWindow), true
	}
	return Window{model.MicrosOf(start), model.MicrosOf(end)}, shortened, nil
}
