package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weir/operate"
)

func newRuleExplain(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "explain FILE [RULE]",
		Short: "Explain what a rule reads, costs and judges when",
		Long: "Explain the rules of a file, or one of them: which metrics, attributes, anchors,\n" +
			"geofences and groups it reads, which samples it looks at and when it judges them,\n" +
			"what late and missing data do, what it costs in time and memory, and what its\n" +
			"actions do. The file is the definition of one rule or a site file.",
		Example: "  weir rule explain too-hot.yaml\n  weir rule explain site.yaml boiler/too-hot",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := ruleFiles(cmd, args); err != nil {
				return err
			}
			return upTo("a file", "the token of a rule")(cmd, args)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			reference := ""
			if len(args) == 2 {
				reference = args[1]
			}
			rules, warnings, err := operate.ExplainRules(c.ruleSource(), args[0], reference)
			if err != nil {
				return err
			}
			if !c.json {
				c.warnAll(warnings)
			}
			c.show(map[string]any{"total": len(rules), "rules": rules}, func(w io.Writer) { explainRules(w, rules) })
			return nil
		},
	}
}

func explainRules(w io.Writer, rules []operate.ExplainedRule) {
	for i := range rules {
		if i > 0 {
			fmt.Fprintln(w)
		}
		explainRule(w, &rules[i])
	}
	if len(rules) == 0 {
		fmt.Fprintln(w, "no rules")
	}
}

func explainRule(w io.Writer, r *operate.ExplainedRule) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, value string) { fmt.Fprintf(t, "%s\t%s\n", name, printable(cmp.Or(value, "-"))) }
	some := func(name string, values []string) {
		if len(values) > 0 {
			row(name, strings.Join(values, ", "))
		}
	}
	row("rule", r.Rule)
	row("name", r.Name)
	row("kind", string(r.Kind))
	row("metrics", strings.Join(r.Metrics, ", "))
	some("attributes", r.Attributes)
	some("anchors", r.Anchors)
	some("reads all of", r.Entire)
	some("geofences", r.Fences)
	if r.Group != "" {
		row("group", r.Group+": only its members are judged")
	}
	row("looks at", r.LooksAt)
	row("cost", fmt.Sprintf("%d of at most %d for each sample", r.Cost, r.MaxCost))
	row("state", r.State)
	row("judges", r.Judged)
	row("late data", r.Late)
	row("missing data", r.Missing)
	row("keeps", r.Keeps)
	row("memory", footprint(r))
	for i := range r.Actions {
		a := &r.Actions[i]
		row("action", actionText(a))
		if a.Guard != "" {
			row("  guard", fmt.Sprintf("%s (cost %d)", a.Guard, a.GuardCost))
		}
		if a.Template != "" {
			row("  template", fmt.Sprintf("%s (cost %d)", a.Template, a.TemplateCost))
		}
	}
	if len(r.Actions) == 0 {
		row("actions", "")
	}
	_ = t.Flush() // the reader has gone
}

// footprint is the memory of a rule.
func footprint(r *operate.ExplainedRule) string {
	text := fmt.Sprintf("%d bytes for each state", r.Footprint.Key)
	if r.Footprint.Member > 0 {
		text += fmt.Sprintf(", %d for each device in it", r.Footprint.Member)
	}
	if r.Footprint.Sample > 0 {
		text += fmt.Sprintf(", at most %d for each sample that is kept", r.Footprint.Sample)
	}
	return text
}

// actionText is what an action does.
func actionText(a *operate.ExplainedAction) string {
	text := fmt.Sprintf("%s: %s", a.Type, a.Does)
	switch {
	case a.Type != "raiseAlarm":
	case a.Key != "":
		text += ", key " + a.Key
	case a.Template != "":
		text += ", key from the template"
	default:
		text += ", key {profileToken}/{ruleToken}"
	}
	if a.MaxAge != "" {
		text += ", not when the edge is older than " + a.MaxAge
	}
	return text
}
