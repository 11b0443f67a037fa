package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"weir/health"
)

// documentation is where alerts send their reader unless a flag names another place: next to the rules file.
const documentation = "docs"

func newAlerts(c *command) *cobra.Command {
	docs := documentation
	cmd := &cobra.Command{
		Use:   "alerts",
		Short: "Print the alerts as a rules file for Prometheus",
		Long: "Print a rules file for Prometheus: the conditions that need an operator, each with its severity, one line of what\n" +
			"it means and a link to what to do. Every expression uses metrics that the metrics listener of this version shows.\n" +
			"The instance watches the same conditions itself: it writes a line into its log when one begins and when it is over,\n" +
			"and weir status names those that fire.",
		Example: "  weir alerts > /etc/prometheus/rules/weir.yml\n  weir alerts --docs https://wiki.example.org/weir\n  weir alerts --json",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			list := health.Alerts()
			shown := make([]shownAlert, len(list))
			for i := range list {
				shown[i] = shownAlert{list[i], list[i].Expr(), list[i].For.String()}
			}
			c.show(shown, func(w io.Writer) { fmt.Fprint(w, health.Rules(list, docs)) })
			return nil
		},
	}
	cmd.Flags().StringVar(&docs, "docs", documentation, "where the documentation is, for the links")
	return cmd
}

// shownAlert is an alert as JSON has it.
type shownAlert struct {
	health.Alert
	Expr string `json:"expr"`
	For  string `json:"for"`
}
