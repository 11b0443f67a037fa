package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"weir/operate"
)

func newDeviceRotate(c *command) *cobra.Command {
	var yes, keep bool
	first := firstReading{c: c}
	cmd := &cobra.Command{
		Use:   "rotate TENANT TOKEN",
		Short: "Give a device a new access token",
		Long: "Give a device a new access token, which is printed once. Those that it had are no longer good, and connections that\n" +
			"they opened end, unless --keep leaves them. Credentials of other types are left as they are.",
		Example: "  weir device rotate acme boiler-1\n  weir device rotate acme boiler-1 --keep --print-commands=curl",
		Args:    exactly("the tenant's token", "the device's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.confirm(cmd.Context(), yes || keep, fmt.Sprintf("End all access tokens that device %s of tenant %s has?", args[1], args[0])); err != nil {
				return err
			}
			return first.run(cmd, args[0], args[1], func(op operate.Target) (*operate.DeviceAdded, error) {
				return tenantAPI{op, args[0]}.rotateDevice(cmd.Context(), args[1], keep)
			}, printRotated)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the access tokens that the device has")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	first.flags(cmd)
	return cmd
}

// rotateDevice gives a device a new access token, in place of those that it has unless they are kept.
func (a tenantAPI) rotateDevice(ctx context.Context, token string, keep bool) (*operate.DeviceAdded, error) {
	at, err := operate.GetEntrances.Ask(ctx, a.to, operate.None{})
	if err != nil {
		return nil, err
	}
	issued, err := a.issueToken(ctx, token, !keep, nil)
	if err != nil {
		return nil, err
	}
	return &operate.DeviceAdded{Tenant: a.tenant, Token: token, Type: issued.Credential.Device.DeviceType.Token, Removed: issued.Replaced,
		Secret: issued.AccessToken, Entrances: *at}, nil
}

func printRotated(w io.Writer, d *operate.DeviceAdded, host string) {
	fmt.Fprintf(w, "device %s of tenant %s has a new access token; %s ended\n", d.Token, d.Tenant, count(d.Removed, "old one"))
	printToken(w, d, host)
}
