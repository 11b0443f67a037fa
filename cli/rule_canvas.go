package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"weir/operate"
)

// compiledCanvas is what rule canvas answers, with the names of compileCanvas in the API.
type compiledCanvas struct {
	OK            bool            `json:"ok"`
	Definition    json.RawMessage `json:"definition"`
	EstimatedCost uint64          `json:"estimatedCost"`
	Diagnostics   []canvasFinding `json:"diagnostics"`
}

// canvasFinding is a warning.
type canvasFinding struct {
	NodeID   string   `json:"nodeId,omitempty"`
	Severity string   `json:"severity"`
	Code     string   `json:"code,omitempty"`
	Params   []string `json:"params"`
	Message  string   `json:"message"`
}

func newRuleCanvas(c *command) *cobra.Command {
	var profile string
	var fromRule bool
	cmd := &cobra.Command{
		Use:   "canvas FILE [RULE]",
		Short: "Compile a canvas to a rule, or show a rule as a canvas",
		Long: "Compile the file of a canvas, as YAML or JSON, to the definition of the rule that\n" +
			"it draws, and print the definition. Mistakes are reported with the file, line and\n" +
			"column, and the node. The canvas watches the profile of its first source, or the\n" +
			"one of --profile. With --from-rule the file is the definition of a rule, or a site\n" +
			"file with a rule, and the command prints a canvas that compiles to the rule.\n" +
			"No instance is needed. weir docs rules explains canvases.",
		Example: "  weir rule canvas boiler.canvas.json\n  weir rule canvas boiler.canvas.json --profile boiler --json\n" +
			"  weir rule canvas --from-rule too-hot.yaml --profile boiler\n  weir rule canvas --from-rule site.yaml boiler/too-hot",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := ruleFiles(cmd, args); err != nil {
				return err
			}
			if len(args) > 1 && !fromRule {
				return usageError{fmt.Errorf("%s: a canvas draws one rule; the token of a rule goes with --from-rule", cmd.CommandPath())}
			}
			return upTo("a file", "the token of a rule")(cmd, args)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if fromRule {
				return c.showAsCanvas(args, profile)
			}
			return c.compileCanvas(args[0], profile)
		},
	}
	cmd.Flags().StringVar(&profile, "profile", "", "token of the device profile that the canvas watches")
	cmd.Flags().BoolVar(&fromRule, "from-rule", false, "show a rule as a canvas")
	return cmd
}

func (c *command) compileCanvas(file, profile string) error {
	got, warnings, err := operate.CompileCanvas(c.ruleSource(), file, profile)
	if err != nil {
		return err
	}
	out := compiledCanvas{OK: true, Definition: got.Definition, EstimatedCost: got.Cost, Diagnostics: []canvasFinding{}}
	for _, d := range got.Diagnostics {
		out.Diagnostics = append(out.Diagnostics, canvasFinding{d.Node, d.Severity, d.Code, d.Params, d.Message})
	}
	if !c.json {
		c.warnAll(warnings)
	}
	c.show(out, func(w io.Writer) { printJSON(w, got.Definition) })
	return nil
}

func (c *command) showAsCanvas(args []string, profile string) error {
	reference := ""
	if len(args) == 2 {
		reference = args[1]
	}
	graph, warnings, err := operate.ShowAsCanvas(c.ruleSource(), args[0], reference, profile)
	if err != nil {
		return err
	}
	if !c.json {
		c.warnAll(warnings)
	}
	c.show(map[string]any{"graph": graph}, func(w io.Writer) { printJSON(w, graph) })
	return nil
}

// printJSON writes a document so that people can read it.
func printJSON(w io.Writer, document json.RawMessage) {
	var b bytes.Buffer
	if json.Indent(&b, document, "", "  ") == nil { // it is JSON
		fmt.Fprintln(w, b.String())
	}
}
