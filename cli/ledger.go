package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

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
			"MISSING is the difference. Outcomes that no message had have no column. A table\n" +
			"that would be wider than 80 characters has one column OTHER for all but STORED.",
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
	cmd.Flags().BoolVar(&q.Uplink, "uplink", false, "what became of the messages that the uplink of this platform forwards, instead")
	cmd.Flags().BoolVar(&all, "all", false, "every gap, not only the newest")
	momentVar(cmd.Flags(), &q.Since, "since", "", "from then on: a time such as 2026-03-01T08:00:00Z, or how long ago, such as 24h or 3d")
	cmd.AddCommand(newDeadLetters(c), newLedgerVerify(c), newLedgerTrace(c))
	return cmd
}

// unauthenticated stands for what belongs to no tenant.
const unauthenticated = "(unauthenticated)"

// ledgerColumn is an outcome's column of the ledger.
type ledgerColumn struct{ outcome, title string }

// ledgerColumns are the outcomes in their order. A column but STORED is left out when no line has a message of it.
func ledgerColumns(lines []operate.LedgerEntry) []ledgerColumn {
	all := []ledgerColumn{{"stored", "STORED"}, {"duplicate", "DUPLICATE"}, {"dead-letter", "DEAD"}, {"refused", "REFUSED"}, {"dropped", "DROPPED"}, {"waiting", "WAITING"}}
	return slices.DeleteFunc(all, func(c ledgerColumn) bool {
		return c.outcome != "stored" && !slices.ContainsFunc(lines, func(l operate.LedgerEntry) bool { return l.Outcomes[c.outcome] != 0 })
	})
}

// screen is the width that tables of the ledger keep to.
const screen = 80

// How a table of the ledger writes hours: without the year where the line would be too long, since the lines of the
// reasons below it have it.
const (
	fullHour  = "2006-01-02 15:04"
	shortHour = "01-02 15:04"
)

// printHours writes the table of hours in the first form that fits the screen: with the full hour or the short one, with
// all columns or with one for all outcomes but STORED. Outcomes without a column follow below it.
func printHours(w io.Writer, lines []operate.LedgerEntry) {
	columns := ledgerColumns(lines)
	fewer := []ledgerColumn{{"stored", "STORED"}, {"", "OTHER"}}
	hours := []string{fullHour, shortHour}
	if lines[0].Hour.Year() != lines[len(lines)-1].Hour.Year() {
		hours = hours[:1]
	}
	table := ""
	for form, shown := range [][]ledgerColumn{columns, fewer} {
		for _, hour := range hours {
			if table = hoursTable(lines, shown, hour); widthOf(table) > screen {
				continue
			}
			fmt.Fprint(w, table)
			if form > 0 {
				printUnexplained(w, lines, columns[1:])
			}
			return
		}
	}
	fmt.Fprint(w, table) // tokens that are too long for any form
	printUnexplained(w, lines, columns[1:])
}

// printUnexplained shows the outcomes that no line about a reason shows.
func printUnexplained(w io.Writer, lines []operate.LedgerEntry, columns []ledgerColumn) {
	for i := range lines {
		l := &lines[i]
		var rest []string
		for _, c := range columns {
			explained := slices.ContainsFunc(l.Reasons, func(r operate.ReasonCount) bool { return r.Outcome == c.outcome })
			if n := l.Outcomes[c.outcome]; n != 0 && !explained {
				rest = append(rest, fmt.Sprintf("%d %s", n, outcomeWords(c.outcome)))
			}
		}
		if len(rest) > 0 {
			fmt.Fprintf(w, "%s: %s\n", ledgerRow(l), strings.Join(rest, ", "))
		}
	}
}

// hoursTable is the table with some columns; the outcome "" stands for all but stored.
func hoursTable(lines []operate.LedgerEntry, columns []ledgerColumn, hour string) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 1, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "HOUR\tTENANT\tVIA\tRECEIVED\t")
	for _, c := range columns {
		fmt.Fprintf(t, "%s\t", c.title)
	}
	fmt.Fprintln(t, "READINGS\tMISSING\t")
	for _, l := range lines {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t", l.Hour.Format(hour), cmp.Or(l.Tenant, unauthenticated), l.Transport, l.Received)
		for _, c := range columns {
			n := l.Outcomes[c.outcome]
			if c.outcome == "" {
				n = otherOutcomes(&l)
			}
			fmt.Fprintf(t, "%d\t", n)
		}
		fmt.Fprintf(t, "%d\t%d\t\n", l.Readings, l.Missing)
	}
	_ = t.Flush()                                          // a string takes everything
	return strings.ReplaceAll(b.String()[1:], "\n ", "\n") // every line begins with the blank between columns
}

func otherOutcomes(l *operate.LedgerEntry) (n int64) {
	for outcome, count := range l.Outcomes {
		if outcome != "stored" {
			n += count
		}
	}
	return n
}

// widthOf is the length of the longest line.
func widthOf(text string) (width int) {
	for line := range strings.Lines(text) {
		width = max(width, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
	}
	return width
}

// ledgerRow names a line of the table in what is said about it.
func ledgerRow(l *operate.LedgerEntry) string {
	return fmt.Sprintf("%s %s %s", l.Hour.Format(fullHour), cmp.Or(l.Tenant, unauthenticated), l.Transport)
}

func printLedger(w io.Writer, r *operate.LedgerReport, all bool) {
	if len(r.Lines) == 0 {
		fmt.Fprintln(w, "no message has reached a transport yet")
	} else {
		printHours(w, r.Lines)
		for _, l := range r.Lines {
			for _, n := range l.Reasons {
				fmt.Fprintf(w, "%s: %d %s (%s)\n", ledgerRow(&l), n.Count, outcomeWords(n.Outcome), n.Reason)
			}
			if l.OutOfRange > 0 {
				fmt.Fprintf(w, "%s: %d of the readings out of range\n", ledgerRow(&l), l.OutOfRange)
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
