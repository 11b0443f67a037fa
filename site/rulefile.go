package site

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"weir/internal/yamldoc"
	"weir/model"
	"weir/rules"
)

// DeclaredRule is a rule of a rule file or of a site file.
type DeclaredRule struct {
	Tenant     string   `json:"tenant,omitempty"` // of a rule in a site file
	Profile    string   `json:"profile,omitempty"`
	Token      string   `json:"token"` // of a rule file: its name without what follows the first point
	At         Position `json:"at"`
	Definition string   `json:"-"` // JSON
	Group      string   `json:"group,omitempty"`
	program    *rules.Program
	fences     map[string]string // geometries of the geofences that its tenant declares, by token
}

// FullName is the rule with its tenant and profile.
func (r *DeclaredRule) FullName() string {
	if r.Profile == "" {
		return r.Token
	}
	return r.Tenant + "/" + r.Profile + "/" + r.Token
}

// named reports whether a reference means the rule: its token, with that of its profile before it, or also of its tenant.
func (r *DeclaredRule) named(reference string) bool {
	return reference == r.Token || reference == r.Profile+"/"+r.Token || reference == r.FullName()
}

// RuleProblems is everything that is wrong with files of rules and of their tests.
type RuleProblems yamldoc.Problems

func (ps RuleProblems) Error() string {
	return "the rules are not valid:\n" + yamldoc.Problems(ps).Lines()
}

// ReadRules reads the rules of a file and compiles them: a file with the definition of one rule, as YAML or JSON, or a site
// file, which is checked as a whole. The error is RuleProblems. Warnings are for people.
func ReadRules(src Source, name string) ([]DeclaredRule, []string, error) {
	src = src.withDefaults()
	text, err := src.ReadFile(name)
	if err != nil {
		return nil, nil, unreadable(name, err)
	}
	root, problems := yamldoc.Parse(name, text)
	if root.Kind == yamldoc.Map && (root.Get(keyVersion) != nil || root.Get("tenants") != nil) {
		return readSiteRules(src, name)
	}
	if len(problems) == 0 && root.Kind != yamldoc.Map {
		problems = append(problems, root.Place.Problem("", false, "write name, type and when, or version: 1 of a site file", "must be a mapping: the definition of a rule, or a site file"))
	}
	if len(problems) > 0 {
		return nil, nil, RuleProblems(problems)
	}
	return readDefinition(name, root)
}

func unreadable(name string, err error) RuleProblems {
	return RuleProblems{yamldoc.Position{File: yamldoc.NewFile(name)}.Problem("", false, "", "cannot be read: %s", strings.TrimPrefix(reason(err), name+": "))}
}

// readDefinition reads the file of one rule.
func readDefinition(name string, root *yamldoc.Node) ([]DeclaredRule, []string, error) {
	var problems yamldoc.Problems
	at := start(root)
	r := DeclaredRule{Token: strings.SplitN(filepath.Base(name), ".", 2)[0], At: Position{File: name, Line: at.Line, Column: at.Column}}
	r.Definition = jsonOf(root, func(at yamldoc.Position, hint, format string, args ...any) {
		problems = append(problems, at.Problem("", false, hint, format, args...))
	})
	if len(problems) > 0 {
		return nil, nil, RuleProblems(problems)
	}
	compiler, err := newCompiler()
	if err != nil {
		return nil, nil, err
	}
	program, advice, faults := compiler.Inspect(r.Definition, rules.Options{})
	for _, fault := range faults {
		problems = append(problems, faultAt(root, at, "", fault))
	}
	if problems.Sort(); len(problems) > 0 {
		return nil, nil, RuleProblems(problems)
	}
	var warnings []string
	for _, w := range advice {
		warnings = append(warnings, fmt.Sprintf("%s: %s", r.At, w.Message))
	}
	r.program = program
	return []DeclaredRule{r}, warnings, nil
}

// readSiteRules reads the rules that a site file declares.
func readSiteRules(src Source, name string) ([]DeclaredRule, []string, error) {
	src.WithoutSecrets, src.Checked = true, true
	d, warnings, err := Read(src, name)
	if ps, ok := err.(Problems); ok {
		return nil, warnings, RuleProblems(ps)
	}
	if err != nil {
		return nil, warnings, err
	}
	compiler, err := newCompiler()
	if err != nil {
		return nil, warnings, err
	}
	var found []DeclaredRule
	for _, tenant := range d.Lists[tableTenants] {
		fences := map[string]string{}
		for _, e := range tenant.Lists["geoFences"] {
			if geometry, ok := e.Fields["geometry"].(string); ok {
				fences[e.Name] = geometry
			}
		}
		for _, profile := range tenant.Lists["deviceProfiles"] {
			for _, e := range profile.Lists["detectionRules"] {
				r := DeclaredRule{Tenant: tenant.Name, Profile: profile.Name, Token: e.Name, At: e.field("definition"), fences: fences}
				r.Definition, _ = e.Fields["definition"].(string)
				r.Group, _ = e.Fields["entityGroupToken"].(string)
				r.program, _, _ = compiler.Inspect(r.Definition, rules.Options{GroupScoped: r.Group != ""})
				found = append(found, r)
			}
		}
	}
	return found, warnings, nil
}

// ExplainedRule is a rule of a file and what it does.
type ExplainedRule struct {
	DeclaredRule
	Rule string `json:"rule"` // with its profile and tenant
	rules.Explanation
	Canonical json.RawMessage `json:"definition"`
}

func explained(r DeclaredRule, compiler *rules.Compiler) ExplainedRule {
	x := compiler.Explain(r.program)
	for i := range x.Actions {
		if a := &x.Actions[i]; a.Type == rules.ActionRaiseAlarm && a.Template == "" && a.Key == "" && r.Profile != "" {
			a.Key = model.RuleStableID(r.Profile, r.Token)
		}
	}
	return ExplainedRule{r, r.FullName(), x, r.program.Definition().Canonical()}
}

// ExplainRules explains the rules of a file, those that a reference names or all.
func ExplainRules(src Source, name, reference string) ([]ExplainedRule, []string, error) {
	declared, warnings, err := ReadRules(src, name)
	if err != nil {
		return nil, warnings, err
	}
	compiler, err := newCompiler()
	if err != nil {
		return nil, warnings, err
	}
	var out []ExplainedRule
	for _, r := range declared {
		if r.program != nil && (reference == "" || r.named(reference)) {
			out = append(out, explained(r, compiler))
		}
	}
	if len(out) == 0 && reference != "" {
		names := make([]string, len(declared))
		for i := range declared {
			names[i] = declared[i].Token
		}
		slices.Sort(names)
		hint := yamldoc.Suggest(reference, names)
		return nil, warnings, RuleProblems{yamldoc.Position{File: yamldoc.NewFile(name)}.Problem("", false, hint, "has no rule %q that runs", reference)}
	}
	return out, warnings, nil
}
