package cli

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/app"
	"weir/model"
)

func (c *command) deviceShow() *cobra.Command {
	var commands bool
	cmd := &cobra.Command{
		Use:   "show TENANT TOKEN",
		Short: "Show what is known of a device",
		Long: "Show a device: its fields, its credentials without their secrets, its presence, the latest value of each metric, and the\n" +
			"newest dead letters that name it. Where nothing runs, values are as of the last stop.",
		Example: "  weir device show acme boiler-1",
		Args:    exactly("the tenant's token", "the device's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if commands {
				return &model.Error{Code: model.CodeUnsupported, Message: "the commands need the access token, which cannot be shown again",
					Hint: fmt.Sprintf("make a new one, which ends the old: weir device rotate %s %s --print-commands", args[0], args[1])}
			}
			op, err := c.existing(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			d, err := op.ShowDevice(cmd.Context(), app.DeviceName{Tenant: args[0], Token: args[1]})
			if err != nil {
				return err
			}
			c.show(d, func(w io.Writer) { printDetails(w, d) })
			return nil
		},
	}
	cmd.Flags().BoolVar(&commands, "print-commands", false, "cannot be: the secret is shown once; see weir device rotate")
	return cmd
}

func printDetails(w io.Writer, d *app.DeviceDetails) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("token", "%s", d.Token)
	row("type", "%s", d.Type)
	for _, f := range []struct {
		name  string
		value *string
	}{{"name", d.Name}, {"description", d.Description}, {"external id", d.ExternalID}, {"metadata", d.Metadata}} {
		if f.value != nil {
			row(f.name, "%s", orDash(f.value))
		}
	}
	row("made", "%s, changed %s", timeText(&d.CreatedAt), timeText(&d.UpdatedAt))
	row("presence", "%s", presenceText(d))
	for i := range d.Credentials {
		row("credential", "%s", credentialText(&d.Credentials[i]))
	}
	for i := range d.Latest {
		v := &d.Latest[i]
		unit := ""
		if v.Unit != "" {
			unit = " " + v.Unit
		}
		row("latest", "%s = %v%s at %s", printable(v.Metric), v.Value, printable(unit), v.Occurred.UTC().Format(time.RFC3339Nano))
	}
	if l := d.Location; l != nil && l.Latitude != nil && l.Longitude != nil {
		row("location", "%v, %v at %s", *l.Latitude, *l.Longitude, l.Occurred.UTC().Format(time.RFC3339Nano))
	}
	for _, l := range d.DeadLetters {
		row("dead letter", "%s  %s: %s", timeText(&l.Occurred), l.Reason, printable(l.Summary))
	}
	_ = t.Flush() // whoever reads has gone
}

func presenceText(d *app.DeviceDetails) string {
	switch d.Presence {
	case "":
		return "never heard"
	case app.Connected:
		return fmt.Sprintf("connected since %s, last seen %s", timeText(d.LastConnect), timeText(d.LastSeen))
	case app.Disconnected:
		return fmt.Sprintf("disconnected since %s, last seen %s", timeText(d.LastDisconnect), timeText(d.LastSeen))
	}
	return fmt.Sprintf("%s, last seen %s over %s", d.Presence, timeText(d.LastSeen), cmp.Or(d.Source, "-"))
}

func credentialText(c *app.Credential) string {
	text := fmt.Sprintf("%s %s, made %s", c.Type, c.Token, timeText(&c.CreatedAt))
	if c.ID != "" {
		text += ", id " + printable(c.ID)
	}
	if !c.Enabled {
		text += ", disabled"
	}
	if c.ExpiresAt != nil {
		text += ", expires " + timeText(c.ExpiresAt)
	}
	return text
}
