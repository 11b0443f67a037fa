package ruletest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"weir/internal/test/fences"
	"weir/rules"
)

func compiler(t testing.TB, f *File) *rules.Compiler {
	t.Helper()
	c, err := rules.NewCompiler(f.Limits())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// around knows no rule, since the rules of the files stand in them, and reads geofences as the program does.
var around = World{
	Rule: func(string) (Rule, error) { return Rule{}, errors.New("there is no such rule") },
	Area: func(text string) (Area, error) { return fences.Area(text) },
}

// TestRules runs the tests of the eight kinds of rules.
func TestRules(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*" + Extension)
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			f, problems := Parse(name, text)
			if len(problems) > 0 {
				t.Fatal(problems.Lines())
			}
			report, problems := f.Run(compiler(t, f), around)
			if len(problems) > 0 {
				t.Fatal(problems.Lines())
			}
			for _, r := range report.Tests {
				if !r.Passed {
					t.Errorf("%s:%d: %s: %s", name, r.Failure.Line, r.Name, r.Failure)
				}
			}
		})
	}
}
