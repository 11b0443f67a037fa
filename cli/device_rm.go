package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func newDeviceRm(c *command) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "rm TENANT TOKEN...",
		Short: "Remove devices with their credentials",
		Long: "Remove all named devices, or none if one does not exist. The command also\n" +
			"removes their credentials, live state and latest values, and their connections\n" +
			"end. Their history is kept; a new device with the same token starts a new\n" +
			"history.",
		Example: "  weir device rm acme boiler-1\n  weir device rm acme boiler-1 boiler-2 --yes",
		Args:    atLeast("the tenant's token", "the device's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			what := "device " + args[1]
			if n := len(args) - 1; n > 1 {
				what = count(n, "device")
			}
			if err := c.confirm(cmd.Context(), yes, fmt.Sprintf("Remove %s of tenant %s?", what, args[0])); err != nil {
				return err
			}
			gone, err := inTenant(cmd.Context(), c, args[0], func(a tenantAPI) (*devicesRemoved, error) {
				return a.removeDevices(cmd.Context(), args[1:])
			})
			if err != nil {
				return err
			}
			c.show(gone, func(w io.Writer) {
				fmt.Fprintf(w, "%s removed from tenant %s: %s\n", count(len(gone.Removed), "device"), gone.Tenant, strings.Join(gone.Removed, ", "))
			})
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return cmd
}

// devicesRemoved is the result of a removal.
type devicesRemoved struct {
	Tenant  string   `json:"tenant"`
	Removed []string `json:"removed"`
}

// removeDevices removes devices, none when one does not exist.
func (a tenantAPI) removeDevices(ctx context.Context, tokens []string) (*devicesRemoved, error) {
	tokens = slices.Compact(slices.Sorted(slices.Values(tokens)))
	const document = `mutation($tokens: [String!]!) { deleteDevices(tokens: $tokens) }`
	if err := a.run(ctx, deviceArea, document, gqlVars{"tokens": tokens}, nil); err != nil {
		return nil, a.located(err, "nothing was removed; ")
	}
	return &devicesRemoved{Tenant: a.tenant, Removed: tokens}, nil
}
