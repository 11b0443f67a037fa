package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"weir/model"
	"weir/operate"
)

func newDevice(c *command) *cobra.Command {
	return group("device", "Devices of a tenant", newDeviceAdd(c), newDeviceList(c), newDeviceShow(c), newDeviceRm(c), newDeviceImport(c), newDeviceRotate(c))
}

func newDeviceAdd(c *command) *cobra.Command {
	var d operate.NewDevice
	first := firstReading{c: c}
	cmd := &cobra.Command{
		Use:   "add TENANT TOKEN",
		Short: "Make a device with an access token",
		Long: "Make a device with an access token, which is printed once, and print how the device sends its first reading.\n" +
			"Without --type the device gets the type \"" + operate.DefaultDeviceType + "\", which is made when there is none.\n\n" +
			"With --wait the command goes on until the first reading has arrived, and shows what is refused on the way: a wrong\n" +
			"credential, a malformed body, a value outside its range, a reading over the ceiling. It ends with 5 when none arrives.",
		Example: "  weir device add acme boiler-1\n  weir device add acme boiler-1 --print-commands=curl\n  weir device add acme boiler-1 --wait=5m",
		Args:    exactly("the tenant's token", "the device's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.Tenant, d.Token = args[0], args[1]
			return first.run(cmd, args[0], args[1], func(op operate.Target) (*operate.DeviceAdded, error) {
				made, err := operate.AddDevice.Ask(cmd.Context(), op, d)
				return made, hinted(err, model.ReasonNotUnique, "nothing was made; choose another token, or another external id")
			}, printDevice)
		},
	}
	cmd.Flags().StringVar(&d.Type, "type", "", "token of its device type")
	cmd.Flags().StringVar(&d.Name, "name", "", "display name")
	cmd.Flags().StringVar(&d.ExternalID, "external-id", "", "id that others give it: a serial number, a MAC address")
	first.flags(cmd)
	return cmd
}

func printDevice(w io.Writer, d *operate.DeviceAdded, host string) {
	if d.TypeMade {
		fmt.Fprintf(w, "device type %s made\n", d.Type)
	}
	fmt.Fprintf(w, "device %s made in tenant %s\n", d.Token, d.Tenant)
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
