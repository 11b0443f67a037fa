package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"weir/app"
)

func (c *command) deviceRotate() *cobra.Command {
	q := app.RotateDevice{}
	var yes bool
	first := firstReading{c: c}
	cmd := &cobra.Command{
		Use:   "rotate TENANT TOKEN",
		Short: "Give a device a new access token",
		Long: "Give a device a new access token, which is printed once. Those that it had are no longer good, and connections that\n" +
			"they opened end, unless --keep leaves them. Credentials of other types are left as they are.",
		Example: "  weir device rotate acme boiler-1\n  weir device rotate acme boiler-1 --keep --print-commands=curl",
		Args:    exactly("the tenant's token", "the device's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Tenant, q.Token = args[0], args[1]
			if err := c.confirm(cmd.Context(), yes || q.Keep, fmt.Sprintf("End all access tokens that device %s of tenant %s has?", q.Token, q.Tenant)); err != nil {
				return err
			}
			return first.run(cmd, q.Tenant, q.Token, func(op app.Operator) (*app.DeviceAdded, error) {
				return op.RotateDevice(cmd.Context(), q)
			}, printRotated)
		},
	}
	cmd.Flags().BoolVar(&q.Keep, "keep", false, "leave the access tokens that the device has")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	first.flags(cmd)
	return cmd
}

func printRotated(w io.Writer, d *app.DeviceAdded, host string) {
	fmt.Fprintf(w, "device %s of tenant %s has a new access token; %s ended\n", d.Token, d.Tenant, count(d.Removed, "old one"))
	printToken(w, d, host)
}
