package cli

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/app"
)

func (c *command) status() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "How the running instance is",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.client(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			s, err := client.Status(cmd.Context())
			if err != nil {
				return err
			}
			c.show(s, func(w io.Writer) { printStatus(w, s) })
			return nil
		},
	}
}

func printStatus(w io.Writer, s *app.Status) {
	state := "ready"
	if !s.Ready {
		state = "not ready"
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("state", "%s, version %s, up %s", state, s.Version, time.Since(s.StartedAt).Round(time.Second))
	row("instance", "%s, data in %s", s.Instance, s.DataDir)
	row("listeners", "api %s, ingest %s, mqtt %s, metrics %s", orNone(s.Listeners.API), orNone(s.Listeners.Ingest), orNone(s.Listeners.MQTT), orNone(s.Listeners.Metrics))
	row("connections", "%d", s.Connections)
	row("log", "%s of %s; %s", bytesText(s.Log.Bytes), bytesText(s.Log.MaxBytes), records(&s.Log))
	row("store", "%s on disk, head %s in memory", bytesText(s.StoreBytes), bytesText(s.HeadBytes))
	row("rules", "%d running in %s", s.Rules.Rules, count(s.Rules.Profiles, "profile"))
	if s.Unbalanced > 0 {
		row("ledger", "does NOT balance in %s: weir ledger", count(s.Unbalanced, "hour"))
	} else {
		row("ledger", "balanced")
	}
	if s.LedgerGaps > 0 {
		row("", "%s after unclean stops", count(s.LedgerGaps, "gap"))
	}
	if s.Log.Refusing {
		row("!", "the log is filling up: new messages are refused")
	}
	if s.Log.Error != "" {
		row("!", "the log refuses appends: %s", s.Log.Error)
	}
	if s.Waiting != "" {
		row("!", "%s", s.Waiting)
	}
	_ = t.Flush() // whoever reads has gone
}

func orNone(addr string) string {
	if addr == "" {
		return "closed"
	}
	return addr
}

func records(l *app.LogStatus) string {
	switch {
	case l.Last < l.First:
		return "no records"
	case l.Applied < l.Last:
		return fmt.Sprintf("records %d to %d, applied up to %d", l.First, l.Last, l.Applied)
	}
	return fmt.Sprintf("records %d to %d, all applied", l.First, l.Last)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// bytesText is a number of bytes for people.
func bytesText(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n), -1
	for v >= 1024 && unit < 3 {
		v /= 1024
		unit++
	}
	if v < 10 {
		return fmt.Sprintf("%.1f %ciB", v, "KMGT"[unit])
	}
	return fmt.Sprintf("%.0f %ciB", v, "KMGT"[unit])
}
