package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// deviceFields are the fields that weir device set changes, by the names of its options and of the API.
var deviceFields = []struct{ flag, field, usage string }{
	{"type", "deviceTypeToken", "token of another device type"},
	{"name", "name", "display name; empty removes it"},
	{"description", "description", "description; empty removes it"},
	{"external-id", "externalId", "identifier in other systems; empty removes it"},
	{"metadata", "metadata", "a JSON document as text; empty removes it"},
}

func newDeviceSet(c *command) *cobra.Command {
	values := make([]string, len(deviceFields))
	cmd := &cobra.Command{
		Use:   "set TENANT TOKEN",
		Short: "Change the type, name or other fields of a device",
		Long: "Change fields of a device; what is not named stays. The token cannot be changed.\n" +
			"A device of another type is judged by the rules of that type's profile.",
		Example: "  weir device set acme boiler-1 --name 'Boiler in the cellar' --type boiler",
		Args:    exactly("the tenant's token", "the device's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := gqlVars{}
			for i, f := range deviceFields {
				if cmd.Flags().Changed(f.flag) {
					if request[f.field] = values[i]; values[i] == "" {
						request[f.field] = nil
					}
				}
			}
			if len(request) == 0 {
				return usageError{errors.New("nothing to change: give --name, --type or another field")}
			}
			op, err := c.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			a := tenantAPI{op, args[0]}
			const document = `mutation($t: String!, $r: DeviceUpdateRequest!) { updateDevice(token: $t, request: $r) { token name externalId deviceType { token } } }`
			var changed struct{ UpdateDevice deviceRow }
			if err := a.run(cmd.Context(), deviceArea, document, gqlVars{"t": args[1], "r": request}, &changed); err != nil {
				return a.located(err, "nothing was changed; ")
			}
			d := changed.UpdateDevice.summary(nil)
			c.show(d, func(w io.Writer) { fmt.Fprintf(w, "device %s of tenant %s changed\n", d.Token, args[0]) })
			return nil
		},
	}
	for i, f := range deviceFields {
		cmd.Flags().StringVar(&values[i], f.flag, "", f.usage)
	}
	return cmd
}
