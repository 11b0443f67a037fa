package cli

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/operate"
)

func newLedgerTrace(c *command) *cobra.Command {
	var since, until *time.Time
	cmd := &cobra.Command{
		Use:   "trace TENANT DEVICE",
		Short: "Show the outcome of each message of a device",
		Long: "Show the outcome of each message of a device that was received in a span of\n" +
			"time, oldest first: stored with the number of readings, dead letter with the\n" +
			"reason, duplicate with the original record, or waiting in the log.\n\n" +
			"Stored messages and dead letters are shown as long as they are kept. A\n" +
			"duplicate leaves only a count, so it is shown while the log still holds its\n" +
			"record. A message that a transport refused has no record; the command also\n" +
			"shows the counts of the whole tenant in those hours.",
		Example: "  weir ledger trace acme boiler-1\n  weir ledger trace acme boiler-1 --since 2h\n" +
			"  weir ledger trace acme boiler-1 --since 2026-03-01T08:00:00Z --until 2026-03-01T09:00:00Z --json",
		Args: exactly("TENANT", "DEVICE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := operate.TraceQuery{Tenant: args[0], Device: args[1], Since: *since, Until: time.Now()}
			if until != nil {
				q.Until = *until
			}
			r, err := ask(cmd.Context(), c.client, &operate.TraceDevice, q)
			if err != nil {
				return err
			}
			c.show(r, func(w io.Writer) { printTrace(w, r) })
			return nil
		},
	}
	momentVar(cmd.Flags(), &since, "since", "24h", "start: a time such as 2026-03-01T08:00:00Z, or a span before now, such as 2h or 3d")
	momentVar(cmd.Flags(), &until, "until", "", "end, likewise (default: now)")
	return cmd
}

func printTrace(w io.Writer, r *operate.TraceReport) {
	if len(r.Messages) == 0 {
		fmt.Fprintln(w, "nothing of that span is kept")
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := range r.Messages {
		m := &r.Messages[i]
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", m.Received.Format("2006-01-02T15:04:05.000Z"), m.Offset, m.Transport, printable(tracedText(m)))
	}
	_ = t.Flush() // the reader has gone
	if r.LogSince != nil {
		fmt.Fprintf(w, "the log holds records since %s: duplicates before it left nothing but their count\n", r.LogSince.Format(time.RFC3339))
	} else {
		fmt.Fprintln(w, "the log holds no records any more: duplicates left nothing but their count")
	}
	for _, n := range r.TurnedAway {
		fmt.Fprintf(w, "turned away in these hours, of the whole tenant: %s %s (%s)\n", countText(n.Count, "message"), outcomeWords(n.Outcome), n.Reason)
	}
}

func tracedText(m *operate.Traced) string {
	text := outcomeWords(m.Outcome)
	if m.Outcome == "stored" {
		text += ", " + countText(int64(m.Readings), "reading")
	}
	if m.Reason != "" {
		text += " (" + m.Reason + ")"
	}
	if m.AltID != "" {
		text += fmt.Sprintf(", altId %s", m.AltID)
	}
	if m.Text != "" {
		text += ": " + m.Text
	}
	return text
}
