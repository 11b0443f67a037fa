package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"weir/app"
	"weir/model"
)

func (c *command) tenant() *cobra.Command {
	return group("tenant", "Tenants of the instance", c.tenantCreate())
}

func (c *command) tenantCreate() *cobra.Command {
	var t app.NewTenant
	cmd := &cobra.Command{
		Use:     "create TOKEN",
		Short:   "Make a tenant",
		Example: "  weir tenant create acme --name 'Acme Inc.'",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.Token = args[0]
			op, err := c.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			made, err := op.CreateTenant(cmd.Context(), t)
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
