package site

import (
	"encoding/json"
	"strings"

	"weir/internal/yamldoc"
	"weir/rules/canvas"
)

// CompiledCanvas is the rule that the canvas of a file draws.
type CompiledCanvas struct {
	Definition  json.RawMessage
	Cost        uint64
	Diagnostics []canvas.Diagnostic // warnings
}

// CompileCanvas compiles the file of a canvas, which is YAML or JSON. With an empty profile it is that of the canvas's first source. The error is
// RuleProblems, with the place of each. Warnings are for people.
func CompileCanvas(src Source, name, profile string) (*CompiledCanvas, []string, error) {
	text, err := src.withDefaults().ReadFile(name)
	if err != nil {
		return nil, nil, unreadable(name, err)
	}
	root, problems := yamldoc.Parse(name, text)
	if len(problems) == 0 && root.Kind != yamldoc.Map {
		problems = append(problems, root.Place.Problem("", false, "write schemaVersion, nodes and edges", "must be a mapping: a canvas"))
	}
	at := start(root)
	graph := ""
	if len(problems) == 0 {
		graph = jsonOf(root, func(at yamldoc.Position, hint, format string, args ...any) {
			problems = append(problems, at.Problem("", false, hint, format, args...))
		})
	}
	if len(problems) > 0 {
		return nil, nil, RuleProblems(problems)
	}
	if profile == "" {
		profile = firstProfile(root)
	}
	compiler, err := newCompiler()
	if err != nil {
		return nil, nil, err
	}
	result := canvas.NewCompiler(compiler).Compile(graph, profile)
	var warnings []string
	for _, d := range result.Diagnostics {
		p := canvasProblem(root, at, d)
		if d.Severity == canvas.Error {
			problems = append(problems, p)
			continue
		}
		p.Source = ""
		warnings = append(warnings, p.String())
	}
	if problems.Sort(); len(problems) > 0 {
		return nil, nil, RuleProblems(problems)
	}
	return &CompiledCanvas{json.RawMessage(result.Definition), result.Cost, result.Diagnostics}, warnings, nil
}

// firstProfile is the profile of the first source of a canvas, "" where there is none.
func firstProfile(root *yamldoc.Node) string {
	text := func(n *yamldoc.Node, keys ...string) string {
		for _, key := range keys {
			if n == nil || n.Kind != yamldoc.Map {
				return ""
			}
			n = n.Get(key)
		}
		if n == nil || n.Kind != yamldoc.Scalar {
			return ""
		}
		return n.Text
	}
	nodes := root.Get("nodes")
	if nodes == nil {
		return ""
	}
	for _, n := range nodes.Items {
		if text(n, "type") == "source" {
			return text(n, "config", "scope", "profileToken")
		}
	}
	return ""
}

// canvasProblem is a finding at its place in the file.
func canvasProblem(root *yamldoc.Node, at yamldoc.Position, d canvas.Diagnostic) yamldoc.Problem {
	at, _ = locate(root, at, d.Path)
	hint := ""
	if d.Node != "" {
		hint = "node " + d.Node
	}
	return at.Problem(d.Path, false, hint, "%s", d.Reason)
}

// ShowAsCanvas shows a rule of a file as a canvas, as JSON: the only rule of the file, or the one that a reference names. The profile is that of a
// rule in a site file; for every other rule it must be given.
func ShowAsCanvas(src Source, name, reference, profile string) (json.RawMessage, []string, error) {
	found, warnings, err := ExplainRules(src, name, reference)
	if err != nil {
		return nil, warnings, err
	}
	refuse := func(hint, format string, args ...any) error {
		return RuleProblems{yamldoc.Position{File: yamldoc.NewFile(name)}.Problem("", false, hint, format, args...)}
	}
	if len(found) != 1 {
		tokens := make([]string, len(found))
		for i := range found {
			tokens[i] = found[i].FullName()
		}
		return nil, warnings, refuse("name one: "+shortened(strings.Join(tokens, ", ")), "has %d rules", len(found))
	}
	r := found[0]
	if profile == "" {
		profile = r.Profile
	}
	if profile == "" {
		return nil, warnings, refuse("give it with --profile", "the profile of the rule is not known")
	}
	compiler, err := newCompiler()
	if err != nil {
		return nil, warnings, err
	}
	graph, reason := canvas.NewCompiler(compiler).Show(r.Definition, profile)
	if reason != "" {
		return nil, warnings, refuse("", "the rule %s has no canvas: %s", r.FullName(), reason)
	}
	return json.RawMessage(graph), warnings, nil
}
