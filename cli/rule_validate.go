package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"weir/operate"
)

// ruleFiles is siteFiles for files with rules.
func ruleFiles(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError{fmt.Errorf("%s: a file is missing", cmd.CommandPath())}
	}
	return nil
}

// ruleSource is where files of rules come from: secrets of site files stay unread.
func (c *command) ruleSource() operate.SiteSource {
	return operate.SiteSource{LookupEnv: c.lookupEnv, WithoutSecrets: true}
}

func (c *command) warnAll(warnings []string) {
	for _, w := range warnings {
		c.note("warning: %s", printable(w))
	}
}

// validatedRules is what rule validate answers.
type validatedRules struct {
	Valid    bool                   `json:"valid"`
	Rules    []operate.DeclaredRule `json:"rules"`
	Warnings []string               `json:"warnings,omitempty"`
}

func newRuleValidate(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE…",
		Short: "Check rules without an instance",
		Long: "Read and compile the rules of files as publishing them would, and report every\n" +
			"mistake with its file, line and column. A file is the definition of one rule, as\n" +
			"YAML or JSON, or a site file, which is checked as a whole.",
		Example: "  weir rule validate too-hot.yaml\n  weir rule validate site.yaml --json",
		Args:    ruleFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			out := validatedRules{Valid: true, Rules: []operate.DeclaredRule{}}
			var problems operate.RuleProblems
			for _, name := range args {
				rules, warnings, err := operate.ReadRules(c.ruleSource(), name)
				if ps, ok := operate.AsRuleProblems(err); ok {
					problems = append(problems, ps...)
				} else if err != nil {
					return err
				}
				out.Rules, out.Warnings = append(out.Rules, rules...), append(out.Warnings, warnings...)
			}
			if !c.json {
				c.warnAll(out.Warnings)
			}
			if len(problems) > 0 {
				return problems
			}
			c.show(out, func(w io.Writer) { fmt.Fprintf(w, "%s valid: %s\n", isOrAre(args), count(len(out.Rules), "rule")) })
			return nil
		},
	}
}
