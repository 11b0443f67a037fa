package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"weir/app"
	"weir/model"
)

func (c *command) deviceRm() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "rm TENANT TOKEN...",
		Short: "Remove devices with their credentials",
		Long: "Remove devices: all that are named, or none when one does not exist. Their credentials, their live state and their\n" +
			"latest values go with them, and their connections end. Their history stays; a device of the same token begins a new one.",
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
			op, err := c.existing(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			gone, err := op.RemoveDevices(cmd.Context(), app.DeviceNames{Tenant: args[0], Tokens: args[1:]})
			if err != nil {
				return hintedNotFound(err, "nothing was removed; see what there is with: weir device list "+args[0])
			}
			c.show(gone, func(w io.Writer) {
				fmt.Fprintf(w, "%s removed from tenant %s: %s\n", count(len(gone.Removed), "device"), gone.Tenant, strings.Join(gone.Removed, ", "))
			})
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// hintedNotFound adds what to do about a thing that does not exist.
func hintedNotFound(err error, hint string) error {
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Code != model.CodeNotFound || e.Hint != "" {
		return err
	}
	told := *e
	told.Hint = hint
	return &told
}
