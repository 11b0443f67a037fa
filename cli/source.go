package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/app"
	"weir/operate"
)

func newSourceGroup(c *command) *cobra.Command {
	return group("source", "Look at event sources: the listeners, and the brokers that Weir reads",
		newSourceList(c), newSourceShow(c), newSourceCheck(c), newSourceTry(c))
}

func newSourceList(c *command) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the event sources of the running instance",
		Long:    "List the event sources of the running instance: their state, the node that reads them,\nwhat they received, and the last error.",
		Example: "  weir source list\n  weir source list --json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := ask(cmd.Context(), c.client, &operate.ListSources, operate.None{})
			if err != nil {
				return err
			}
			c.show(all, func(w io.Writer) { printSources(w, all) })
			return nil
		},
	}
}

func printSources(w io.Writer, all []operate.SourceStatus) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SOURCE\tTRANSPORT\tSTATE\tRECEIVED\tDROPPED\tUNACKNOWLEDGED\tLAST ERROR")
	for _, s := range all {
		var dropped int64
		for _, n := range s.Dropped {
			dropped += n
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", s.ID, s.Transport, s.State, s.Received, dropped, s.Unacknowledged, s.LastError)
	}
	_ = t.Flush() // the terminal is gone
}

func newSourceShow(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "show SOURCE",
		Short: "Show what a source reads, and its counts when the instance runs",
		Long: "Show the broker of a source of external_mqtt.sources, the topic filters and the mappings,\nthose that a preset stands for included. When the instance runs, its state and counts\n" +
			"follow, and the external ids that no device has.",
		Example: "  weir source show plant --config /etc/weir/weir.yaml",
		Args:    exactly("the id of a source"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			s, err := app.SourceNamed(cfg, args[0])
			if err != nil {
				return err
			}
			out := struct {
				app.ShownSource
				Status *operate.SourceStatus `json:"status,omitempty"`
			}{ShownSource: app.ShowSource(s)}
			if all, err := ask(cmd.Context(), c.client, &operate.ListSources, operate.None{}); err == nil {
				if i := slices.IndexFunc(all, func(o operate.SourceStatus) bool { return o.ID == args[0] }); i >= 0 {
					out.Status = &all[i]
				}
			}
			c.show(out, func(w io.Writer) { printSource(w, out.ShownSource, out.Status) })
			return nil
		},
	}
}

func printSource(w io.Writer, s app.ShownSource, at *operate.SourceStatus) {
	fmt.Fprintf(w, "%s reads %s (MQTT %s)\n", s.ID, s.Broker, s.Protocol)
	for _, f := range s.Filters {
		fmt.Fprintf(w, "  subscribes to %s\n", f)
	}
	if len(s.Mappings) == 0 {
		fmt.Fprintln(w, "  takes ingest events of {x}/{tenant}/devices/{device}/events")
	}
	for _, m := range s.Mappings {
		fmt.Fprintf(w, "  %s: %s%s%s\n", m.Topic, m.Decode, after(", device ", m.Device), after(", metric ", m.Metric))
		if m.Commands != "" {
			fmt.Fprintf(w, "    commands %s\n", m.Commands)
		}
	}
	if at == nil {
		fmt.Fprintln(w, "The instance does not run, or runs without this source.")
		return
	}
	fmt.Fprintf(w, "%s since %s%s\n", at.State, at.Since.Format(time.RFC3339), after(": ", at.LastError))
	fmt.Fprintf(w, "received %d, unacknowledged %d, reconnects %d, devices made %d\n", at.Received, at.Unacknowledged, at.Reconnects, at.DevicesMade)
	for _, reason := range slices.Sorted(maps.Keys(at.Ignored)) {
		fmt.Fprintf(w, "ignored, %s: %d\n", reason, at.Ignored[reason])
	}
	for _, reason := range slices.Sorted(maps.Keys(at.Dropped)) {
		fmt.Fprintf(w, "dropped, %s: %d\n", reason, at.Dropped[reason])
	}
	for _, id := range at.Unknown {
		fmt.Fprintf(w, "no device has the external id %s\n", id)
	}
	for _, note := range at.Notes {
		fmt.Fprintln(w, note)
	}
}

// after puts text before a value that is not empty.
func after(before, value string) string {
	if value == "" {
		return ""
	}
	return before + value
}

func newSourceCheck(c *command) *cobra.Command {
	wait, messages := 10*time.Second, 10
	cmd := &cobra.Command{
		Use:   "check SOURCE",
		Short: "Connect to the broker of a source and show its first messages",
		Long: "Connect to the broker of a source of external_mqtt.sources under a client identifier of\nits own, subscribe, and show what the mappings make of the first messages. The instance\n" +
			"need not run, and nothing is stored.",
		Example: "  weir source check plant\n  weir source check plant --wait 1m --messages 50",
		Args:    exactly("the id of a source"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			s, err := app.SourceNamed(cfg, args[0])
			if err != nil {
				return err
			}
			return app.CheckSource(cmd.Context(), cfg, s, wait, messages, c.io.Stdout)
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", wait, "how long to wait for messages")
	cmd.Flags().IntVar(&messages, "messages", messages, "how many messages to show")
	return cmd
}

func newSourceTry(c *command) *cobra.Command {
	var topic, file string
	cmd := &cobra.Command{
		Use:   "try SOURCE --topic TOPIC --payload FILE",
		Short: "Show what the mappings of a source make of a message, offline",
		Long:  "Show what the mappings of a source of external_mqtt.sources make of a message: tenant,\ndevice, readings, attributes, presence, or why it is ignored or cannot be decoded.\nNothing is connected to, looked up or stored.",
		Example: "  weir source try plant --topic zigbee2mqtt/hall/lamp --payload message.json\n" +
			"  echo 21.5 | weir source try plant --topic hall/temperature --payload -",
		Args: exactly("the id of a source"),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			s, err := app.SourceNamed(cfg, args[0])
			if err != nil {
				return err
			}
			if topic == "" || file == "" {
				return usageError{errors.New("weir source try needs --topic and --payload")}
			}
			payload, err := c.payload(file)
			if err != nil {
				return err
			}
			tried := app.TrySource(s, topic, payload)
			c.show(tried, func(w io.Writer) { fmt.Fprintln(w, tried) })
			return nil
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "topic of the message")
	cmd.Flags().StringVar(&file, "payload", "", "file of the payload; - reads standard input")
	return cmd
}

// payload reads a file of at most 1 MiB, or standard input.
func (c *command) payload(file string) ([]byte, error) {
	in := c.io.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, 1<<20+1))
	if err == nil && len(b) > 1<<20 {
		err = usageError{fmt.Errorf("%s is larger than 1 MiB", file)}
	}
	return b, err
}
