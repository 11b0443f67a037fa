package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/app"
)

func (c *command) deviceList() *cobra.Command {
	var q app.DeviceQuery
	var all bool
	cmd := &cobra.Command{
		Use:   "list TENANT",
		Short: "List the devices of a tenant, newest first",
		Long: "List the devices of a tenant, newest first, a page at a time. PRESENCE is connected or disconnected where the transport\n" +
			"tells, else active or silent, and - for a device that was never heard.",
		Example: "  weir device list acme\n  weir device list acme --type boiler --all --json",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Tenant = args[0]
			if q.Limit < 1 || q.Limit > app.MaxDevicePage || q.Page < 1 {
				return usageError{fmt.Errorf("--limit must lie in 1..%d, --page counts from 1", app.MaxDevicePage)}
			}
			op, err := c.existing(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			l, err := listDevices(cmd.Context(), op, q, all)
			if err != nil {
				return err
			}
			c.show(l, func(w io.Writer) { printDevices(w, l) })
			if left := l.Total - int64(len(l.Devices)); left > 0 && !c.json {
				c.note("%s of %s devices; see --page and --all", grouped(int64(len(l.Devices))), grouped(l.Total))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&q.Type, "type", "", "of one device type")
	cmd.Flags().IntVar(&q.Limit, "limit", 100, fmt.Sprintf("at most this many on a page, up to %d", app.MaxDevicePage))
	cmd.Flags().IntVar(&q.Page, "page", 1, "which page")
	cmd.Flags().BoolVar(&all, "all", false, "all pages from --page on")
	return cmd
}

// listDevices fetches a page, or all pages from it on.
func listDevices(ctx context.Context, op app.Operator, q app.DeviceQuery, all bool) (*app.DeviceList, error) {
	if !all {
		return op.ListDevices(ctx, q)
	}
	q.Limit = app.MaxDevicePage
	list := &app.DeviceList{Devices: []app.DeviceSummary{}}
	for ; ; q.Page++ {
		page, err := op.ListDevices(ctx, q)
		if err != nil {
			return nil, err
		}
		list.Total, list.Devices = page.Total, append(list.Devices, page.Devices...)
		if len(page.Devices) < q.Limit {
			return list, nil
		}
	}
}

func printDevices(w io.Writer, l *app.DeviceList) {
	if len(l.Devices) == 0 {
		fmt.Fprintln(w, "no devices")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOKEN\tTYPE\tNAME\tEXTERNAL ID\tPRESENCE\tLAST SEEN")
	for i := range l.Devices {
		d := &l.Devices[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", d.Token, d.Type, orDash(d.Name), orDash(d.ExternalID), cmp.Or(d.Presence, "-"), timeText(d.LastSeen))
	}
	_ = t.Flush() // whoever reads has gone
}

func orDash(s *string) string {
	if s == nil || *s == "" {
		return "-"
	}
	return printable(*s)
}

func timeText(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
