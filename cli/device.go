package cli

import (
	"fmt"
	"io"
	"net"

	"github.com/spf13/cobra"

	"weir/app"
	"weir/model"
)

func (c *command) device() *cobra.Command {
	return group("device", "Devices of a tenant", c.deviceAdd())
}

func (c *command) deviceAdd() *cobra.Command {
	var d app.NewDevice
	cmd := &cobra.Command{
		Use:   "add TENANT TOKEN",
		Short: "Make a device with an access token",
		Long: "Make a device with an access token, which is printed once, and print how the device sends its first reading.\n" +
			"Without --type the device gets the type \"" + app.DefaultDeviceType + "\", which is made when there is none.",
		Example: "  weir device add acme boiler-1",
		Args:    exactly("the tenant's token", "the device's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.Tenant, d.Token = args[0], args[1]
			op, err := c.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			made, err := op.AddDevice(cmd.Context(), d)
			if err != nil {
				return hinted(err, model.ReasonNotUnique, "nothing was made; choose another token, or another external id")
			}
			c.show(made, func(w io.Writer) { printDevice(w, made) })
			return nil
		},
	}
	cmd.Flags().StringVar(&d.Type, "type", "", "token of its device type")
	cmd.Flags().StringVar(&d.Name, "name", "", "display name")
	cmd.Flags().StringVar(&d.ExternalID, "external-id", "", "id that others give it: a serial number, a MAC address")
	return cmd
}

func printDevice(w io.Writer, d *app.DeviceAdded) {
	if d.TypeMade {
		fmt.Fprintf(w, "device type %s made\n", d.Type)
	}
	fmt.Fprintf(w, "device %s made in tenant %s\n", d.Token, d.Tenant)
	fmt.Fprintf(w, "access token (shown once): %s\n", d.Secret)
	if d.MQTT != "" {
		host, port := reachable(d.MQTT)
		fmt.Fprintf(w, "\nsend a reading over MQTT:\n  mosquitto_pub -h %s -p %s -q 1 -i %s:%s:%s -u '%s:%s' \\\n    -t %s/%s/devices/%s/events \\\n    -m '%s'\n",
			host, port, d.Instance, d.Tenant, d.Token, d.Tenant, d.Secret, d.Instance, d.Tenant, d.Token, firstReading(""))
	}
	if d.Ingest != "" {
		host, port := reachable(d.Ingest)
		fmt.Fprintf(w, "\nor over HTTP:\n  curl -i http://%s/%s/%s/events \\\n    -d '%s'\n", net.JoinHostPort(host, port), d.Instance, d.Tenant,
			firstReading(fmt.Sprintf(`"credentialType":"ACCESS_TOKEN","credentialId":%q,`, d.Secret)))
	}
}

func firstReading(credential string) string {
	return `{` + credential + `"eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"21.5"}}]}}`
}

// reachable is an address at which a listener on every interface can be reached from here.
func reachable(addr string) (host, port string) {
	host, port, _ = net.SplitHostPort(addr)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return host, port
}
