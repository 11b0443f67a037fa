package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weir/model"
	"weir/operate"
)

func newTenant(c *command) *cobra.Command {
	return group("tenant", "Tenants of the instance", newTenantCreate(c), newTenantList(c), newTenantSet(c), newTenantEnable(c), newTenantDisable(c), newTenantDelete(c), newTenantDeletions(c))
}

func newTenantCreate(c *command) *cobra.Command {
	var t operate.NewTenant
	cmd := &cobra.Command{
		Use:   "create TOKEN",
		Short: "Create a tenant",
		Long: "Create a tenant, on a running instance or in a data directory that no instance\n" +
			"uses. The token names the tenant in topics and URLs and cannot be changed; the\n" +
			"tier determines how much the tenant may use.",
		Example: "  weir tenant create acme --name 'Acme Inc.'",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.Token = args[0]
			made, err := ask(cmd.Context(), c.operator, &operate.CreateTenant, t)
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
		Use:   "list",
		Short: "List the tenants",
		Long: "List all tenants by token, with their tier, whether they are enabled, how many\n" +
			"devices they have, and how many bytes their rows take of their maximum\n" +
			"(governance.registry_bytes).",
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
			c.show(map[string]any{"total": len(all), "tenants": all}, func(w io.Writer) { printTenants(w, all) })
			return nil
		},
	}
}

func newTenantSet(c *command) *cobra.Command {
	var name, tier string
	cmd := &cobra.Command{
		Use:   "set TOKEN",
		Short: "Change the name or the tier of a tenant",
		Long: "Change the name or the tier of a tenant; what is not named stays. An empty name\n" +
			"removes it. The token cannot be changed.",
		Example: "  weir tenant set acme --name 'Acme Ltd.' --tier gold",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			change := operate.TenantChange{Token: args[0]}
			if cmd.Flags().Changed("name") {
				change.Name = &name
			}
			if cmd.Flags().Changed("tier") {
				change.Tier = &tier
			}
			if change.Name == nil && change.Tier == nil {
				return usageError{errors.New("nothing to change: give --name or --tier")}
			}
			return c.changeTenant(cmd.Context(), change)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "display name")
	cmd.Flags().StringVar(&tier, "tier", "", "gold, silver or bronze")
	return cmd
}

func newTenantEnable(c *command) *cobra.Command {
	return &cobra.Command{
		Use:     "enable TOKEN",
		Short:   "Enable a tenant that was disabled",
		Example: "  weir tenant enable acme",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.changeTenant(cmd.Context(), operate.TenantChange{Token: args[0], Enabled: new(true)})
		},
	}
}

func newTenantDisable(c *command) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "disable TOKEN",
		Short: "Disable a tenant: refuse its devices and users, keep its data",
		Long: "Disable a tenant: its devices are refused and its users are signed out at once.\n" +
			"Its data stays; weir tenant enable reverses it.",
		Example: "  weir tenant disable acme --yes",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.confirm(cmd.Context(), yes, "Refuse the devices and users of "+args[0]+"?"); err != nil {
				return err
			}
			return c.changeTenant(cmd.Context(), operate.TenantChange{Token: args[0], Enabled: new(false)})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (c *command) changeTenant(ctx context.Context, change operate.TenantChange) error {
	t, err := ask(ctx, c.operator, &operate.ChangeTenant, change)
	if err != nil {
		return err
	}
	c.show(t, func(w io.Writer) { printTenants(w, []operate.TenantLine{*t}) })
	return nil
}

func printTenants(w io.Writer, all []operate.TenantLine) {
	if len(all) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOKEN\tNAME\tTIER\tENABLED\tDEVICES\tROWS TAKE")
	for _, l := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s of %s\n", l.Token, cmp.Or(printable(l.Name), "-"), cmp.Or(l.Tier, "-"), enabledText(l), l.Devices,
			bytesText(l.RegistryBytes), bytesText(l.MaxRegistryBytes))
	}
	_ = t.Flush() // the reader has gone
}

func enabledText(l operate.TenantLine) string {
	if l.Purging {
		return "deleted"
	}
	return yesNo(l.Enabled)
}
