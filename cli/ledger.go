package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/app"
	"weir/operate"
)

func newLedger(c *command) *cobra.Command {
	var q operate.LedgerQuery
	var tenant string
	var all bool
	cmd := &cobra.Command{
		Use:   "ledger",
		Short: "Show the outcomes of all messages, per hour",
		Long: "Every message that reached a transport ends with exactly one outcome. An hour\n" +
			"balances when what was received, counted by the transport, equals what ended;\n" +
			"MISSING is the difference. Outcomes that no message had have no column.",
		Example: "  weir ledger --since 3d\n  weir ledger --tenant acme --transport mqtt --json",
		Args:    subcommandOrNone,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("tenant") {
				q.Tenant = &tenant
			}
			r, err := ask(cmd.Context(), c.client, &operate.ShowLedger, q)
			if err != nil {
				return err
			}
			c.show(r, func(w io.Writer) { printLedger(w, r, all) })
			return nil
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only this tenant; \"\" stands for unauthenticated senders and unknown tenants")
	choiceVar(cmd.Flags(), &q.Transport, "transport", "", app.TransportNames(), "only this transport: "+strings.Join(app.TransportNames(), ", "))
	cmd.Flags().BoolVar(&all, "all", false, "every gap, not only the newest")
	momentVar(cmd.Flags(), &q.Since, "since", "", "from then on: a time such as 2026-03-01T08:00:00Z, or how long ago, such as 24h or 3d")
	cmd.AddCommand(newDeadLetters(c), newLedgerVerify(c), newLedgerTrace(c))
	return cmd
}

// unauthenticated stands for what belongs to no tenant.
const unauthenticated = "(unauthenticated)"

// ledgerOutcomes are the columns of the ledger. A column but STORED is left out when no line has a message of it, so that
// lines fit into 80 characters.
var ledgerOutcomes = []struct{ outcome, title string }{{"stored", "STORED"}, {"duplicate", "DUPLICATE"}, {"dead letter", "DEAD"}, {"refused", "REFUSED"},
	{"dropped", "DROPPED"}, {"waiting", "WAITING"}}

func printHours(w io.Writer, lines []operate.LedgerEntry) {
	columns := slices.Clone(ledgerOutcomes)
	columns = slices.DeleteFunc(columns, func(c struct{ outcome, title string }) bool {
		return c.outcome != "stored" && !slices.ContainsFunc(lines, func(l operate.LedgerEntry) bool { return l.Outcomes[c.outcome] != 0 })
	})
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "HOUR\tTENANT\tVIA\tRECEIVED\t")
	for _, c := range columns {
		fmt.Fprintf(t, "%s\t", c.title)
	}
	fmt.Fprintln(t, "READINGS\tMISSING\t")
	for _, l := range lines {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t", l.Hour.Format("2006-01-02 15:04"), cmp.Or(l.Tenant, unauthenticated), l.Transport, l.Received)
		for _, c := range columns {
			fmt.Fprintf(t, "%d\t", l.Outcomes[c.outcome])
		}
		fmt.Fprintf(t, "%d\t%d\t\n", l.Readings, l.Missing)
	}
	_ = t.Flush() // the reader has gone
}

func printLedger(w io.Writer, r *operate.LedgerReport, all bool) {
	if len(r.Lines) == 0 {
		fmt.Fprintln(w, "no message has reached a transport yet")
	} else {
		printHours(w, r.Lines)
		for _, l := range r.Lines {
			for _, n := range l.Reasons {
				fmt.Fprintf(w, "%s %s %s: %d %s (%s)\n", l.Hour.Format("2006-01-02 15:04"), cmp.Or(l.Tenant, unauthenticated), l.Transport, n.Count, n.Outcome, n.Reason)
			}
		}
	}
	printGaps(w, r.Gaps, all)
}

// shownGaps is how many gaps are printed, the newest, unless all are asked for.
const shownGaps = 3

func printGaps(w io.Writer, gaps []operate.Gap, all bool) {
	if more := len(gaps) - shownGaps; more > 0 && !all {
		gaps = gaps[:shownGaps]
		defer fmt.Fprintf(w, "and %s before; weir ledger --all shows them\n", count(more, "gap"))
	}
	for _, g := range gaps {
		fmt.Fprintf(w, "gap: refusals from %s to %s may not be counted (unclean stop)\n", g.From.Format(time.RFC3339), g.To.Format(time.RFC3339))
	}
}

func newDeadLetters(c *command) *cobra.Command {
	q := operate.DeadLetterQuery{}
	var tenant string
	cmd := &cobra.Command{
		Use:   "dead-letters",
		Short: "List accepted messages that could not be stored, newest first",
		Long: "List accepted messages that could not be stored, newest first, each with the\n" +
			"reason: an unknown device or tenant, a wrong credential, an impossible time.\n" +
			"The list includes unreadable bodies that were refused; their senders received\n" +
			"an error.",
		Example: "  weir ledger dead-letters\n  weir ledger dead-letters --tenant acme --reason unknown-device --limit 10",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("tenant") {
				q.Tenant = &tenant
			}
			client, err := c.client(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			ds, err := operate.ListDeadLetters.Ask(cmd.Context(), client, q)
			if err != nil {
				return err
			}
			c.show(map[string]any{"deadLetters": ds}, func(w io.Writer) { printDeadLetters(w, ds) })
			return nil
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only this tenant; \"\" stands for unauthenticated senders and unknown tenants")
	cmd.Flags().StringVar(&q.Reason, "reason", "", "only this reason, such as unknown-device")
	cmd.Flags().IntVar(&q.Limit, "limit", 50, "maximum number, up to 1000")
	cmd.Flags().Int64Var(&q.Before, "before", 0, "only dead letters older than the one with this id")
	return cmd
}

func printDeadLetters(w io.Writer, ds []operate.DeadLetter) {
	if len(ds) == 0 {
		fmt.Fprintln(w, "no dead letters")
		return
	}
	for _, d := range ds {
		notified := ""
		if d.Refused {
			notified = " (the sender was notified)"
		}
		from := cmp.Or(d.Tenant, unauthenticated)
		if d.Device != "" {
			from += "/" + d.Device
		}
		fmt.Fprintf(w, "%d  %s  %s  %s  %s: %s%s\n", d.ID, d.Occurred.Format(time.RFC3339Nano), d.Source, printable(from), d.Reason, printable(d.Summary), notified)
		if d.Detail != "" {
			fmt.Fprintf(w, "    %s\n", printable(d.Detail))
		}
	}
}
