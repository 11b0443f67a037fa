package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/health"
	"weir/operate"
)

// maxEdgeDeadLetters is how many dead letters of an edge are listed at most.
const maxEdgeDeadLetters = 1000

func newEdgeGroup(c *command) *cobra.Command {
	return group("edge", "Show an edge: what waits, and the uplink to the broker above", newEdgeStatus(c), newEdgeDeadLetters(c), newEdgeResync(c), newEdgeExport(c), newEdgeImport(c))
}

func newEdgeStatus(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the log and the uplink of a running edge",
		Long: "Show an instance with role: edge, or the uplink of a platform: who the\n" +
			"installation is, how many messages wait in the log and since when, and whether\n" +
			"the broker above is reached. weir ledger shows the outcome of each message (of a\n" +
			"platform with --uplink), weir doctor checks more.",
		Example: "  weir edge status\n  weir edge status --json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := ask(cmd.Context(), c.client, &operate.GetEdge, operate.None{})
			if err != nil {
				return err
			}
			c.show(s, func(w io.Writer) {
				t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
				printEdge(func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }, s)
				_ = t.Flush() // the reader has gone
			})
			return nil
		},
	}
}

func newEdgeResync(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "resync",
		Short: "Have an edge introduce itself to the Weir above again",
		Long: "End the connection to the broker above and make it again: a Weir above is asked\n" +
			"which messages it has, and for the devices and credentials of the site. What is\n" +
			"on its way is sent again under its numbers.",
		Example: "  weir edge resync",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := ask(cmd.Context(), c.client, &operate.ResyncEdge, operate.None{})
			if err != nil {
				return err
			}
			c.show(s, func(w io.Writer) { fmt.Fprintln(w, "the connection is made again; weir edge status shows it") })
			return nil
		},
	}
}

// printEdge writes the rows of an edge.
func printEdge(row func(name, format string, args ...any), s *operate.EdgeStatus) {
	row("install", "%s, epoch %d", s.InstallID, s.Epoch)
	printConnection(row, s)
	row("log", "%s of %s, when full: %s", bytesText(s.Bytes), bytesText(s.MaxBytes), s.WhenFull)
	if s.Waiting == 0 {
		row("waiting", "nothing")
	} else {
		row("waiting", "%s, the oldest came %s ago; %d in flight", count(int(s.Waiting), "message"), (time.Duration(s.OldestSeconds) * time.Second).String(), s.InFlight)
	}
	if len(s.Outcomes) > 0 {
		var text []string
		for _, outcome := range []string{"stored", "dead-letter", "dropped"} {
			if n := s.Outcomes[outcome]; n > 0 {
				text = append(text, fmt.Sprintf("%d %s", n, outcomeWords(outcome)))
			}
		}
		if len(text) > 0 {
			row("handed over", "%s", strings.Join(text, ", "))
		}
	}
	if s.RatePerSecond > 0 {
		row("rate", "at most %.0f messages a second: the broker above asks the edge to be slower", s.RatePerSecond)
	}
	if f := s.Follows; f != nil {
		switch {
		case f.Problem != "":
			row("follows", "NOT: %s", f.Problem)
		case f.Time.IsZero():
			row("follows", "not yet since the start")
		default:
			row("follows", "the Weir above, as of %s", f.Time.Format(time.RFC3339))
		}
		for _, j := range f.Judges {
			if j.Until == 0 {
				row("judges", "rules with placement EDGE of profile %s, version %d, from message %d on", j.Profile, j.Version, j.From)
			}
		}
		if f.Firings > 0 {
			row("firings", "%d edges of rules wait for the Weir above", f.Firings)
		}
	}
	if s.Devices != nil {
		row("devices", "%d with their credentials, as of %s", s.Devices.Devices, s.Devices.Time.Format(time.RFC3339))
	}
	if u := &s.Uplink; len(u.Gaps) > 0 {
		row("!", "numbers that have left the edge and are not above, and that the log has no more: %s", strings.Join(u.Gaps, ", "))
	}
	if s.Uplink.Refused != "" {
		row("!", "%s", printable(s.Uplink.Refused))
	}
	if s.LogError != "" {
		row("!", "the log refuses appends: %s", printable(s.LogError))
	}
	if s.ClockUnknown {
		row("!", "the clock cannot be believed; what comes in is kept and waits until it is set")
	}
	if !s.LocalAuth {
		row("!", "no user name and password are asked for: any client that reaches the edge can send as any device")
	}
}

// printConnection writes how the uplink is connected.
func printConnection(row func(name, format string, args ...any), s *operate.EdgeStatus) {
	u := &s.Uplink
	if !u.Connected {
		row("uplink", "NOT connected to %s, as %s", printable(u.Broker), printable(u.ClientID))
		if u.LastError != "" {
			row("", "%s", printable(u.LastError))
		}
		return
	}
	peer := "a plain broker"
	if u.Peer == "weir" {
		peer = "a Weir"
	}
	row("uplink", "connected to %s since %s, %s, MQTT %s, as %s", printable(u.Broker), u.Since.Format(time.RFC3339), peer, u.MQTT, printable(u.ClientID))
}

// printUplink writes the rows of the uplink of a platform; weir edge status has the others.
func printUplink(row func(name, format string, args ...any), s *operate.EdgeStatus) {
	printConnection(row, s)
	if s.Waiting > 0 {
		row("", "%s, the oldest came %s ago", count(int(s.Waiting), "message")+" wait for it", (time.Duration(s.OldestSeconds) * time.Second).String())
	}
	if s.Uplink.Refused != "" {
		row("!", "%s", printable(s.Uplink.Refused))
	}
}

func newEdgeDeadLetters(c *command) *cobra.Command {
	q := operate.EdgeDeadLetterQuery{}
	cmd := &cobra.Command{
		Use:   "dead-letters",
		Short: "Show the messages that the broker above has refused for good",
		Long: "Show the messages that the broker above has refused for good, the newest first:\n" +
			"not-authorized, undecodable or too-large. They are kept until newer ones take\n" +
			"their room, 16 MiB in all. With --json they have their payload, in base64.",
		Example: "  weir edge dead-letters\n  weir edge dead-letters --limit 5 --json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLimit(q.Limit, maxEdgeDeadLetters); err != nil {
				return err
			}
			all, err := ask(cmd.Context(), c.client, &operate.ListEdgeDeadLetters, q)
			if err != nil {
				return err
			}
			c.show(map[string]any{"deadLetters": all}, func(w io.Writer) {
				if len(all) == 0 {
					fmt.Fprintln(w, "none")
				}
				for _, d := range all {
					fmt.Fprintf(w, "%s  %s  %s  %s\n", d.Time.Format(time.RFC3339), printable(d.Reason), printable(d.Topic), health.Bytes(int64(len(d.Payload))))
				}
			})
			return nil
		},
	}
	cmd.Flags().IntVar(&q.Limit, "limit", 20, fmt.Sprintf("at most this many, up to %d", maxEdgeDeadLetters))
	return cmd
}
