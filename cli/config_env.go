package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weir/config"
)

func newConfigEnv(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "env",
		Short: "List the variables that Weir reads",
		Long: "List every variable that Weir reads, with its default and its meaning. The\n" +
			"variables of configuration keys come first: WEIR_ and the key in capitals, with\n" +
			"_ for each dot. They override the files, and flags override them.",
		Example: "  weir config env | grep LISTENERS",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			vars := append(config.Variables(), config.OtherVariables()...)
			c.show(map[string]any{"total": len(vars), "variables": vars}, func(w io.Writer) { printVariables(w, vars) })
			return nil
		},
	}
}

func printVariables(w io.Writer, vars []config.EnvVar) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, v := range vars {
		def := v.Default
		if def == "" {
			def = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", v.Name, def, v.Doc)
	}
	_ = t.Flush() // the reader has gone
}
