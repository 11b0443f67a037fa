package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"weir/operate"
)

func newReload(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Make the running instance read its configuration again",
		Long: "Make the running instance read its configuration again, with its own flags and\n" +
			"environment, and apply every change that needs no restart. The command lists\n" +
			"the keys that need one. If the configuration has a mistake, nothing is changed,\n" +
			"every mistake is reported, and the exit code is 3. SIGHUP has the same effect;\n" +
			"config.watch has it when a file changes.",
		Example: "  weir reload --config weir.yaml\n  weir config diff --running    # what it would do",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := ask(cmd.Context(), c.client, &operate.Reload, operate.None{})
			if err != nil {
				return err
			}
			if len(r.Problems) > 0 {
				return r.Problems
			}
			c.warn(r.Warnings)
			c.show(r, func(w io.Writer) { printReload(w, r, "taken", "unchanged") })
			return nil
		},
	}
}

// printReload prints what a reload takes or would take; taken and unchanged are the words for it.
func printReload(w io.Writer, r *operate.ReloadReport, taken, unchanged string) {
	if len(r.Taken) > 0 {
		fmt.Fprintln(w, taken+":")
		printChanges(w, "  ", r.Taken)
	}
	if len(r.Waiting) > 0 {
		fmt.Fprintln(w, "waiting for a restart:")
		printChanges(w, "  ", r.Waiting)
	}
	fmt.Fprintf(w, "%s %s\n", count(r.Unchanged, "key"), unchanged)
}
