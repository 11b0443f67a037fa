package cli

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weir/model"
	"weir/operate"
)

func newTenant(c *command) *cobra.Command {
	return group("tenant", "Tenants of the instance", newTenantCreate(c), newTenantList(c))
}

func newTenantCreate(c *command) *cobra.Command {
	var t operate.NewTenant
	cmd := &cobra.Command{
		Use:   "create TOKEN",
		Short: "Make a tenant",
		Long: "Make a tenant, on a running instance or on a directory where none runs. The token names it in topics and URLs and\n" +
			"cannot be changed; the tier says how much it may use.",
		Example: "  weir tenant create acme --name 'Acme Inc.'",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.Token = args[0]
			op, err := c.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			made, err := operate.CreateTenant.Ask(cmd.Context(), op, t)
			if err != nil {
				return hinted(err, model.ReasonNotUnique, "the tenant exists already; add a device to it with: weir device add "+t.Token+" DEVICE")
			}
			c.show(made, func(w io.Writer) { fmt.Fprintf(w, "tenant %s made, tier %s\n", made.Token, made.Tier) })
			return nil
		},
	}
	cmd.Flags().StringVar(&t.Name, "name", "", "display name")
	cmd.Flags().StringVar(&t.Tier, "tier", "", "gold, silver or bronze (default: silver)")
	return cmd
}

func newTenantList(c *command) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the tenants",
		Long:    "List all tenants by token, with their tier, whether they are enabled, and how many devices they have.",
		Example: "  weir tenant list\n  weir tenant list --json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := ask(cmd.Context(), c.operator, &operate.ListTenants, operate.None{})
			if err != nil {
				return err
			}
			if len(all) == 0 {
				c.note("there is no tenant yet; make one with: weir tenant create TOKEN")
			}
			c.show(all, func(w io.Writer) { printTenants(w, all) })
			return nil
		},
	}
}

func printTenants(w io.Writer, all []operate.TenantLine) {
	if len(all) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOKEN\tNAME\tTIER\tENABLED\tDEVICES")
	for _, l := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\n", l.Token, cmp.Or(printable(l.Name), "-"), l.Tier, yesNo(l.Enabled), l.Devices)
	}
	_ = t.Flush() // the reader has gone
}
