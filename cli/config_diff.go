package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weir/config"
	"weir/operate"
)

func newConfigDiff(c *command) *cobra.Command {
	var running, exitCode bool
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Compare the configuration with the defaults or with a running instance",
		Long: "Show the keys that differ from their defaults, and the source of each value.\n" +
			"With --running: show how the configuration files differ from the configuration\n" +
			"of the running instance, which keys a reload applies and which need a restart.\n" +
			"The instance reads the files itself, with its own flags and environment, and\n" +
			"changes nothing.",
		Example: "  weir config diff --config weir.yaml\n  weir config diff --running --exit-code",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := c.diff(cmd, running)
			if err == nil && exitCode && n > 0 {
				err = checkError{error: errors.New(count(n, "difference"))}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&running, "running", false, "compare the files with the configuration of the running instance")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 5 if there is a difference")
	return cmd
}

// shownChanges are differences as JSON has them: against the defaults and against a running instance alike. What a reload
// applies has reload: true.
type shownChanges struct {
	Total    int              `json:"total"`
	Changes  []config.Change  `json:"changes"`
	Warnings []config.Warning `json:"warnings,omitempty"`
}

// diff shows the differences and returns how many there are.
func (c *command) diff(cmd *cobra.Command, running bool) (int, error) {
	if running {
		return c.diffRunning(cmd)
	}
	cfg, err := c.load()
	if err != nil {
		return 0, err
	}
	d := config.Default()
	changes := config.Diff(&d, cfg)
	c.show(shownChanges{len(changes), changes, nil}, func(w io.Writer) {
		if len(changes) == 0 {
			fmt.Fprintln(w, "every key has its default")
		}
		printChanges(w, "", changes)
	})
	return len(changes), nil
}

func (c *command) diffRunning(cmd *cobra.Command) (int, error) {
	client, err := c.client(cmd.Context())
	if err != nil {
		return 0, err
	}
	defer client.Close()
	r, err := operate.PlanReload.Ask(cmd.Context(), client, operate.None{})
	if err != nil {
		return 0, err
	}
	if len(r.Problems) > 0 {
		return 0, r.Problems
	}
	changes := append(slices.Clone(r.Taken), r.Waiting...)
	c.show(shownChanges{len(changes), changes, r.Warnings}, func(w io.Writer) { printReload(w, r, "a reload takes", "as they apply") })
	return len(changes), nil
}

// orQuotes is a value that can be seen.
func orQuotes(value string) string {
	if value == "" {
		return `""`
	}
	return value
}

func printChanges(w io.Writer, indent string, changes []config.Change) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, ch := range changes {
		fmt.Fprintf(t, "%s%s\t%s -> %s\t(%s)\n", indent, ch.Path, orQuotes(ch.From), orQuotes(ch.To), ch.Origin)
	}
	_ = t.Flush() // the reader has gone
}
