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
		Long: "Print a rules file for Prometheus: the conditions that need an operator, each\n" +
			"with its severity, a one-line description and a link to instructions. Every\n" +
			"expression uses metrics that the metrics listener of this version exports. The\n" +
			"instance evaluates the same conditions itself: it logs a line when a condition\n" +
			"begins and when it ends, and weir status lists those that hold.",
		Example: "  weir alerts > /etc/prometheus/rules/weir.yml\n  weir alerts --docs https://wiki.example.org/weir\n  weir alerts --json",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			list := append(health.Alerts(), health.EdgeAlerts()...)
			shown := make([]shownAlert, len(list))
			for i := range list {
				shown[i] = shownAlert{list[i], list[i].Expr(), list[i].For.String()}
			}
			c.show(map[string]any{"total": len(shown), "alerts": shown}, func(w io.Writer) { fmt.Fprint(w, health.Rules(list, docs)) })
			return nil
		},
	}
	cmd.Flags().StringVar(&docs, "docs", documentation, "address of the documentation, for the links")
	return cmd
}

// shownAlert is an alert as JSON has it.
type shownAlert struct {
	health.Alert
	Expr string `json:"expr"`
	For  string `json:"for"`
}
