package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weir/operate"
)

func newFirings(c *command) *cobra.Command {
	q := operate.FiringQuery{}
	var follow bool
	cmd := &cobra.Command{
		Use:   "firings [TENANT]",
		Short: "Show which rules fired, on which device and when",
		Long: "List the rules that fired, newest first: when, in which tenant, on which device,\n" +
			"the rule, its severity, the edge (raised: its condition began to hold; resolved:\n" +
			"it no longer holds) and the value that raised it.\n\n" +
			"With --follow, show each firing as it is stored, until Ctrl-C. Past firings are\n" +
			"kept for history.event_retention_days.",
		Example: "  weir firings\n  weir firings acme --since 12h --severity critical\n  weir firings acme --device boiler-1 --edge raised --json\n" +
			"  weir firings --follow",
		Args: upTo("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				q.Tenant = args[0]
			}
			if err := checkFirings(&q, follow, cmd.Flags().Changed); err != nil {
				return err
			}
			if follow {
				return c.followFirings(cmd.Context(), q)
			}
			op, err := c.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			f, err := operate.ListFirings.Ask(cmd.Context(), op, q)
			if err != nil {
				return err
			}
			c.show(f, func(w io.Writer) { printFirings(w, f, q) })
			return nil
		},
	}
	cmd.Flags().StringVar(&q.Device, "device", "", "of one device")
	cmd.Flags().StringVar(&q.Profile, "profile", "", "of the rules of one device profile")
	cmd.Flags().StringVar(&q.Rule, "rule", "", "of one rule")
	choiceVar(cmd.Flags(), &q.Severity, "severity", "", operate.Severities(), "of one severity: "+strings.Join(operate.Severities(), ", "))
	choiceVar(cmd.Flags(), &q.Edge, "edge", "", operate.Edges, "only one edge: "+strings.Join(operate.Edges, " or "))
	momentVar(cmd.Flags(), &q.Since, "since", "", "from then on: a time such as 2026-03-01T08:00:00Z, or how long ago, such as 12h or 3d")
	momentVar(cmd.Flags(), &q.Until, "until", "", "up to then, likewise (default: now)")
	cmd.Flags().IntVar(&q.Limit, "limit", 50, fmt.Sprintf("at most this many, up to %d", operate.MaxFirings))
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "show firings as they are stored, until Ctrl-C")
	return cmd
}

func checkFirings(q *operate.FiringQuery, follow bool, given func(string) bool) error {
	if follow {
		for _, flag := range []string{"since", "until", "limit"} {
			if given(flag) {
				return usageError{fmt.Errorf("--%s cannot be used with --follow, which shows what fires from now on", flag)}
			}
		}
		return nil
	}
	return checkLimit(q.Limit, operate.MaxFirings)
}

func (c *command) followFirings(ctx context.Context, q operate.FiringQuery) error {
	client, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	stream, err := operate.FollowFirings.Follow(ctx, client, q)
	if err != nil {
		return err
	}
	defer stream.Close()
	if !c.json {
		c.note("watching; Ctrl-C ends")
	}
	for {
		f, err := stream.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case c.json:
			c.writeLine(c.io.Stdout, f)
		default:
			fmt.Fprintln(c.io.Stdout, harmless(strings.Join(firingFields(f), "  ")))
		}
	}
}

func printFirings(w io.Writer, list *operate.Firings, q operate.FiringQuery) {
	if len(list.Firings) == 0 {
		fmt.Fprintln(w, "no firings match")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TIME\tTENANT\tDEVICE\tRULE\tSEVERITY\tEDGE\tVALUE")
	for i := range list.Firings {
		fmt.Fprintln(t, strings.Join(firingFields(&list.Firings[i]), "\t"))
	}
	_ = t.Flush() // the reader has gone
	if more := list.Total - int64(len(list.Firings)); more > 0 {
		fmt.Fprintf(w, "%s older; --limit or --until shows them\n", countText(more, "firing"))
	}
}

// firingText is a firing of a device.
func firingText(f *operate.Firing) string {
	text := fmt.Sprintf("%s  %s %s", timeText(&f.Occurred), printable(f.Rule), f.Edge)
	if f.Severity != "" {
		text += " (" + f.Severity + ")"
	}
	if f.Value != nil {
		text += " at " + strconv.FormatFloat(*f.Value, 'g', -1, 64)
	}
	return text
}

// firingFields are the columns of a firing.
func firingFields(f *operate.Firing) []string {
	severity, value := f.Severity, ""
	if severity == "" {
		severity = "-"
	}
	if f.Value != nil {
		value = strconv.FormatFloat(*f.Value, 'g', -1, 64)
	}
	return []string{f.Occurred.UTC().Format("2006-01-02T15:04:05.000Z"), printable(f.Tenant), printable(f.Device), printable(f.Rule), severity, f.Edge, value}
}
