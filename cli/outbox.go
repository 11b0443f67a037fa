package cli

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/health"
	"weir/operate"
)

func newOutbox(c *command) *cobra.Command {
	var q operate.OutboxQuery
	cmd := &cobra.Command{
		Use:   "outbox [TENANT]",
		Short: "Show which orders of rules wait, for whom and since when",
		Long: "Show what rules have ordered and what is not yet performed, by target, the one\n" +
			"that waits longest first: the commands for the devices of a tenant, and the\n" +
			"messages for each destination outside. A target that stands still has failed\n" +
			"several times in a row; what is for it goes on by itself once it is back.\n\n" +
			"With --orders, show each order, oldest first. An order that cannot be performed\n" +
			"becomes a dead letter: weir ledger dead-letters.",
		Example: "  weir outbox\n  weir outbox acme --orders --limit 20\n  weir outbox acme --kind sendCommand --json",
		Args:    upTo("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				q.Tenant = args[0]
			}
			if err := checkLimit(q.Limit, operate.MaxOutbox); err != nil {
				return err
			}
			r, err := ask(cmd.Context(), c.operator, &operate.ShowOutbox, q)
			if err != nil {
				return err
			}
			c.show(r, func(w io.Writer) { printOutbox(w, r, time.Now()) })
			return nil
		},
	}
	cmd.Flags().StringVar(&q.Kind, "kind", "", "of one kind of action, such as sendCommand")
	cmd.Flags().StringVar(&q.Target, "target", "", "of one target")
	cmd.Flags().BoolVar(&q.Orders, "orders", false, "each order, too")
	cmd.Flags().IntVar(&q.Limit, "limit", 50, fmt.Sprintf("at most this many targets, and orders, up to %d", operate.MaxOutbox))
	return cmd
}

// devicesThemselves is the target of orders that go to no other system.
const devicesThemselves = "(devices)"

func printOutbox(w io.Writer, r *operate.Outbox, now time.Time) {
	if len(r.Targets) == 0 {
		fmt.Fprintln(w, "nothing waits")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TENANT\tKIND\tTARGET\tORDERS\tDEVICES\tSIZE\tSINCE")
	var shown int64
	for _, x := range r.Targets {
		shown += x.Rows
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", x.Tenant, x.Kind, printable(cmp.Or(x.Target, devicesThemselves)), x.Rows, x.Devices, health.Bytes(x.Bytes), x.Since.Format(time.RFC3339))
	}
	_ = t.Flush() // what is written to the terminal fails there
	for _, x := range r.Targets {
		if s := x.Standing; s != nil {
			fmt.Fprintf(w, "%s stands still for %s after %s, the next attempt is at %s: %s\n", printable(s.Name()), now.Sub(s.Since).Round(time.Second),
				health.Count(s.Failures, "failure"), s.Next.Format(time.RFC3339), printable(s.Error))
		}
	}
	if more := r.Rows - shown; more > 0 {
		fmt.Fprintf(w, "and %s of other targets; --limit shows more of them\n", health.Count(more, "order"))
	}
	printOrders(w, r.Orders)
}

func printOrders(w io.Writer, orders []operate.OutboxOrder) {
	for _, o := range orders {
		fmt.Fprintf(w, "%d  %s  %s/%s  %s %s  of %s", o.ID, o.Since.Format(time.RFC3339), o.Tenant, printable(o.Device), o.Kind, printable(cmp.Or(o.Target, devicesThemselves)), printable(o.Rule))
		if o.Attempts > 0 {
			fmt.Fprintf(w, ": failed %s", health.Count(o.Attempts, "time"))
			if o.Next != nil {
				fmt.Fprintf(w, ", next at %s", o.Next.Format(time.RFC3339))
			}
			fmt.Fprintf(w, ": %s", printable(o.Error))
		}
		fmt.Fprintln(w)
	}
}
