package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/operate"
)

func newTenantDelete(c *command) *cobra.Command {
	var yes, wait bool
	cmd := &cobra.Command{
		Use:   "delete TOKEN",
		Short: "Delete a tenant and erase all that it has",
		Long: "Delete a tenant: its devices, users and programs are refused at once, and all\n" +
			"that it has is erased in the background, its records in the log included; after\n" +
			"that no row, free page or new backup holds any of it. Nothing brings it back.\n" +
			"Backups that were made before keep what they hold.\n\n" +
			"It is refused while the tenant has memberships, and while the site files of the\n" +
			"configuration declare it. Where no instance runs the erase begins with\n" +
			"the next start. The token is free again once all is erased and 12 hours have\n" +
			"passed; weir tenant deletions shows how far it is.",
		Example: "  weir tenant delete acme --yes\n  weir tenant delete acme --yes --wait",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if err := c.confirm(ctx, yes, "Delete the tenant "+args[0]+" and erase all that it has?"); err != nil {
				return err
			}
			op, err := c.operator(ctx)
			if err != nil {
				return err
			}
			defer op.Close()
			_, atRest := op.(*operate.Directory)
			d, err := operate.DeleteTenant.Ask(ctx, op, operate.TenantName{Token: args[0]})
			if err == nil && wait && !atRest {
				d, err = c.awaitErase(ctx, op, d)
			}
			if err != nil {
				return err
			}
			if atRest {
				c.note("no instance runs: the erase begins with the next start")
			}
			c.show(d, func(w io.Writer) { printDeletions(w, []operate.TenantDeletion{*d}) })
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until all is erased, for some minutes at least")
	return cmd
}

// erasePoll is how often it is asked how far an erase is.
const erasePoll = time.Second

// awaitErase waits until nothing of the tenant is left and shows on the way how far it is.
func (c *command) awaitErase(ctx context.Context, op operate.Target, d *operate.TenantDeletion) (*operate.TenantDeletion, error) {
	shown := ""
	for !d.Over() {
		if line := deletionLine(d); line != shown {
			shown = line
			c.note("%s", line)
		}
		select {
		case <-ctx.Done():
			return d, ctx.Err()
		case <-time.After(erasePoll):
		}
		all, err := operate.ListDeletions.Ask(ctx, op, operate.TenantName{Token: d.Token})
		if err != nil || len(all) == 0 {
			return d, err
		}
		d = &all[0]
	}
	return d, nil
}

func deletionLine(d *operate.TenantDeletion) string {
	line := fmt.Sprintf("%s: %s, %s rows erased", d.Token, waitText(d), grouped(d.Rows))
	if len(d.BlockedBy) > 0 {
		line += "; " + strings.Join(d.BlockedBy, "; ")
	}
	return line
}

// waitText says what a deletion waits for.
func waitText(d *operate.TenantDeletion) string {
	var text string
	switch d.Awaiting {
	case "STORES":
		return "erasing"
	case "SETTLE":
		text = "erased, looking for stragglers"
	case "TOKEN_HOLD":
		text = "erased, token reserved"
	default:
		return "complete"
	}
	if d.ElapsesAt != nil {
		text += " until " + d.ElapsesAt.Format(time.RFC3339)
	}
	return text
}

func newTenantDeletions(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "deletions",
		Short: "List deleted tenants and how far their erase is",
		Long: "List the tenants that were deleted, newest first: what each erase waits for, how\n" +
			"many rows are erased, and who deleted it.",
		Example: "  weir tenant deletions\n  weir tenant deletions --json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := ask(cmd.Context(), c.operator, &operate.ListDeletions, operate.TenantName{})
			if err != nil {
				return err
			}
			if len(all) == 0 {
				c.note("no tenant was deleted")
			}
			c.show(map[string]any{"total": len(all), "deletions": all}, func(w io.Writer) { printDeletions(w, all) })
			return nil
		},
	}
}

func printDeletions(w io.Writer, all []operate.TenantDeletion) {
	if len(all) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOKEN\tDELETED\tBY\tSTATE\tROWS ERASED")
	for i := range all {
		d := &all[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", d.Token, d.Epoch.Format(time.RFC3339), printable(d.By), waitText(d), grouped(d.Rows))
	}
	_ = t.Flush() // the reader has gone
	for i := range all {
		for _, line := range all[i].BlockedBy {
			fmt.Fprintf(w, "%s: %s\n", all[i].Token, line)
		}
	}
}
