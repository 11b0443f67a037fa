package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"weir/model"
	"weir/operate"
)

func newDevice(c *command) *cobra.Command {
	return group("device", "Devices of a tenant", newDeviceAdd(c), newDeviceList(c), newDeviceShow(c), newDeviceSet(c), newDeviceRm(c), newDeviceImport(c), newDeviceRotate(c))
}

func newDeviceAdd(c *command) *cobra.Command {
	var d operate.NewDevice
	first := firstReading{c: c}
	cmd := &cobra.Command{
		Use:   "add TENANT TOKEN",
		Short: "Create a device with an access token",
		Long: "Create a device with an access token, print the token once, and print commands\n" +
			"that send a first reading. Without --type the device has the type \"" + operate.DefaultDeviceType + "\",\n" +
			"which the command creates if it does not exist.\n\n" +
			"With --wait the command waits for the first reading and shows refusals\n" +
			"meanwhile: a wrong credential, a malformed body, a value out of range, a\n" +
			"reading over the ceiling. The exit code is 5 if no reading arrives.\n\n" +
			"With --psk the device gets a pre-shared key for LwM2M, too, under the identity\n" +
			"TENANT:TOKEN; both are printed once.",
		Example: "  weir device add acme boiler-1\n  weir device add acme boiler-1 --print-commands=curl\n  weir device add acme boiler-1 --wait=5m\n  weir device add acme meter-1 --psk",
		Args:    exactly("the tenant's token", "the device's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.Tenant, d.Token = args[0], args[1]
			return first.run(cmd, args[0], args[1], &tokenGift{
				give: func(op operate.Target) (*operate.DeviceAdded, error) {
					made, err := operate.AddDevice.Ask(cmd.Context(), op, d)
					return made, hinted(err, model.ReasonNotUnique, "nothing was made; choose another token, or another external id")
				},
				text: printDevice,
				undo: func(ctx context.Context, op operate.Target, made *operate.DeviceAdded) error {
					_, err := tenantAPI{op, made.Tenant}.removeDevices(ctx, []string{made.Token})
					return err
				},
			})
		},
	}
	cmd.Flags().StringVar(&d.Type, "type", "", "token of the device type")
	cmd.Flags().StringVar(&d.Name, "name", "", "display name")
	cmd.Flags().StringVar(&d.ExternalID, "external-id", "", "identifier in other systems: a serial number, a MAC address")
	cmd.Flags().BoolVar(&d.PSK, "psk", false, "make a pre-shared key for LwM2M, too")
	first.flags(cmd)
	return cmd
}

func printDevice(w io.Writer, d *operate.DeviceAdded, host string) {
	if d.TypeMade {
		fmt.Fprintf(w, "device type %s made\n", d.Type)
	}
	fmt.Fprintf(w, "device %s made in tenant %s\n", d.Token, d.Tenant)
	if k := d.PSK; k != nil {
		fmt.Fprintf(w, "LwM2M identity: %s\nLwM2M key (shown once): %s\n  in base64: %s\n", k.Identity, k.Hex, k.Base64)
	}
	printToken(w, d, host)
}

// printToken shows a new access token and what can be done with it.
func printToken(w io.Writer, d *operate.DeviceAdded, host string) {
	fmt.Fprintf(w, "access token (shown once): %s\n", d.Secret)
	for _, s := range operate.FirstReading(d, host) {
		if s.Language == "sh" {
			fmt.Fprintf(w, "\nsend a reading with %s:\n  %s\n", s.Title, strings.ReplaceAll(s.Text, "\n", "\n  "))
		}
	}
}
