package site

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"weir/internal/yamldoc"
	"weir/model"
	"weir/registry/geometry"
	"weir/rules"
	"weir/rules/ruletest"
)

// maxTestFiles bounds the files of tests beside a site file.
const maxTestFiles = 1000

// RuleTestsBeside returns the files of tests, in the directories of the named files, that test rules of one of them: those
// that name it under "rules". The error is RuleProblems: such a file that does not read is never left out.
func RuleTestsBeside(src Source, files ...string) ([]string, error) {
	src = src.withDefaults()
	var found []string
	var problems RuleProblems
	for _, dir := range directories(files) {
		names, err := src.Glob(filepath.Join(escape(dir), "*"+ruletest.Extension))
		if err != nil || len(names) > maxTestFiles {
			return nil, RuleProblems{yamldoc.Position{File: yamldoc.NewFile(dir)}.Problem("", false, "", "has more than %d files of rule tests, or cannot be read", maxTestFiles)}
		}
		slices.Sort(names)
		for _, name := range names {
			f, ps := readTests(src, name)
			if names := sourcesOf(f); !slices.ContainsFunc(files, func(file string) bool { return slices.Contains(names, filepath.Clean(file)) }) {
				continue
			}
			found, problems = append(found, name), append(problems, ps...)
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return found, nil
}

// directories are those of files, each once, in their order.
func directories(files []string) (dirs []string) {
	for _, f := range files {
		if dir := filepath.Dir(f); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// escape takes the meaning from the characters of a pattern.
func escape(dir string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(dir)
}

func readTests(src Source, name string) (*ruletest.File, RuleProblems) {
	text, err := src.ReadFile(name)
	if err != nil {
		return &ruletest.File{Name: name}, unreadable(name, err)
	}
	f, problems := ruletest.Parse(name, text)
	return f, RuleProblems(problems)
}

// sourcesOf are the files with rules that a file of tests names, as they are found from here.
func sourcesOf(f *ruletest.File) []string {
	out := make([]string, len(f.Sources))
	for i, s := range f.Sources {
		out[i] = s.Path
		if !filepath.IsAbs(s.Path) {
			out[i] = filepath.Join(filepath.Dir(f.Name), s.Path)
		}
		out[i] = filepath.Clean(out[i])
	}
	return out
}

// RunRuleTests runs files of tests. The error is RuleProblems, of all files; then no report is complete. Warnings are for
// people.
func RunRuleTests(src Source, files ...string) (reports []ruletest.Report, warnings []string, err error) {
	src = src.withDefaults()
	var problems RuleProblems
	sources := map[string]source{} // each is read once
	for _, name := range files {
		f, ps := readTests(src, name)
		if len(ps) > 0 {
			problems = append(problems, ps...)
			continue
		}
		r, err := runFile(src, f, sources, &warnings)
		if ps, ok := errors.AsType[RuleProblems](err); ok {
			problems = append(problems, ps...)
		} else if err != nil {
			return nil, warnings, err
		}
		reports = append(reports, r)
	}
	if len(problems) > 0 {
		return reports, warnings, distinctProblems(problems)
	}
	return reports, warnings, nil
}

// source is a file with rules that was read.
type source struct {
	rules []DeclaredRule
	err   error
}

func runFile(src Source, f *ruletest.File, sources map[string]source, warnings *[]string) (ruletest.Report, error) {
	var declared []DeclaredRule
	for _, name := range sourcesOf(f) {
		s, read := sources[name]
		if !read {
			var more []string
			s.rules, more, s.err = ReadRules(src, name)
			sources[name] = s
			*warnings = append(*warnings, more...)
		}
		if s.err != nil {
			return ruletest.Report{}, s.err
		}
		declared = append(declared, s.rules...)
	}
	compiler, err := rules.NewCompiler(f.Limits())
	if err != nil {
		return ruletest.Report{}, err
	}
	report, problems := f.Run(compiler, ruletest.World{
		Rule: func(token string) (ruletest.Rule, error) { return ruleOf(declared, token) },
		Area: func(text string) (ruletest.Area, error) { return geometry.Parse(text) },
	})
	if len(problems) > 0 {
		return report, RuleProblems(problems)
	}
	return report, nil
}

// ruleOf finds the rule that a test names.
func ruleOf(declared []DeclaredRule, token string) (ruletest.Rule, error) {
	var found *DeclaredRule
	for i := range declared {
		switch r := &declared[i]; {
		case !r.named(token):
		case found != nil:
			return ruletest.Rule{}, fmt.Errorf("%q is both %s and %s: write it with its profile, and its tenant", token, found.FullName(), r.FullName())
		default:
			found = r
		}
	}
	if found != nil {
		r := ruletest.Rule{Definition: found.Definition, Group: found.Group, Fences: found.fences}
		if found.Profile != "" {
			r.Stable = model.RuleStableID(found.Profile, found.Token)
		}
		return r, nil
	}
	names := make([]string, len(declared))
	for i := range declared {
		names[i] = declared[i].Token
	}
	slices.Sort(names)
	hint := yamldoc.Suggest(token, names)
	switch {
	case len(declared) == 0:
		hint = "name the file that has it: rules site.yaml"
	case hint == "":
		hint = "there are " + shortened(strings.Join(slices.Compact(names), ", "))
	}
	return ruletest.Rule{}, fmt.Errorf("there is no rule %q (%s)", token, hint)
}

// distinctProblems leaves out what was found twice: several files of tests name one file with rules.
func distinctProblems(ps RuleProblems) RuleProblems {
	seen := map[string]bool{}
	return slices.DeleteFunc(ps, func(p yamldoc.Problem) bool {
		text := p.String()
		defer func() { seen[text] = true }()
		return seen[text]
	})
}
