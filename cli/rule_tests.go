package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"weir/operate"
)

// testedRules is what rule test answers.
type testedRules struct {
	Tests    int                  `json:"tests"`
	Failed   int                  `json:"failed"`
	Files    []operate.RuleReport `json:"files"`
	Warnings []string             `json:"warnings,omitempty"`
}

func newRuleTest(c *command) *cobra.Command {
	var verbose bool
	cmd := &cobra.Command{
		Use:   "test FILE…",
		Short: "Run tests of rules",
		Long: "Run files of rule tests (*.ruletest) without an instance: each test gives readings\n" +
			"at times of its own to the engine that judges live ones, and says which edges\n" +
			"shall come. For a site file the tests beside it that name it run, as in site plan.\n" +
			"The exit code is 5 if a test failed. weir docs rules explains the language.",
		Example: "  weir rule test boiler.ruletest\n  weir rule test site.yaml\n  weir rule test *.ruletest --json",
		Args:    ruleFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			files, err := operate.RuleTestFiles(c.ruleSource(), args...)
			if err != nil {
				return err
			}
			if len(files) == 0 {
				return usageError{fmt.Errorf("no file of tests beside %s names it", args[0])}
			}
			out, err := c.testRules(files)
			if err != nil {
				return err
			}
			if !c.json {
				c.warnAll(out.Warnings)
			}
			c.show(out, func(w io.Writer) { printRuleTests(w, out, verbose) })
			return out.failure()
		},
	}
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "name the tests that passed, too")
	return cmd
}

// testRules runs files of tests.
func (c *command) testRules(files []string) (*testedRules, error) {
	reports, warnings, err := operate.RunRuleTests(c.ruleSource(), files...)
	if err != nil {
		return nil, err
	}
	out := &testedRules{Files: reports, Warnings: warnings}
	for i := range reports {
		out.Tests += len(reports[i].Tests)
		out.Failed += reports[i].Failed
	}
	return out, nil
}

// failure is the error of tests that failed, nil for none.
func (t *testedRules) failure() error {
	if t == nil || t.Failed == 0 {
		return nil
	}
	return checkError{fmt.Errorf("%d of %s failed", t.Failed, count(t.Tests, "rule test")), ""}
}

func printRuleTests(w io.Writer, t *testedRules, verbose bool) {
	for i := range t.Files {
		f := &t.Files[i]
		for _, r := range f.Tests {
			switch {
			case !r.Passed:
				fmt.Fprintf(w, "%s:%d: FAIL %s\n    %s\n", f.File, r.Failure.Line, printable(r.Name), printable(r.Failure.String()))
			case verbose:
				fmt.Fprintf(w, "%s:%d: ok   %s\n", f.File, r.Line, printable(r.Name))
			}
		}
	}
	if t.Failed == 0 {
		fmt.Fprintf(w, "%s passed in %s\n", count(t.Tests, "test"), count(len(t.Files), "file"))
	}
}
