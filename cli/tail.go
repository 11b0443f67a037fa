package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/app"
	"weir/model"
	"weir/operate"
)

func newTail(c *command) *cobra.Command {
	var q operate.TailQuery
	var tenant string
	var limit int64
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Show messages with their outcomes as they end",
		Long: "Show each message when its outcome is known: receive time, tenant, transport,\n" +
			"device, outcome and reason, first values, which of them were out of range, and\n" +
			"the time from receipt to outcome.\n" +
			"Connections that the MQTT listener refuses are shown, too. Messages that arrive\n" +
			"too fast to be shown are counted. An unauthenticated message is shown without\n" +
			"its values, and a credential is never shown; the tenant is (unauthenticated),\n" +
			"or (NAME?) for an unknown tenant. End the command with Ctrl-C.",
		Example: "  weir tail\n  weir tail --tenant acme --outcome dead-letter\n  weir tail --device boiler-1 --limit 1 --json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("tenant") {
				q.Tenant = &tenant
			}
			if limit < 0 {
				return usageError{errors.New("--limit must not be negative")}
			}
			client, err := c.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			seen, err := c.watch(cmd.Context(), client, q)
			if err != nil {
				return err
			}
			defer seen.stop()
			if !c.json {
				c.note("watching; Ctrl-C ends")
			}
			return c.showTail(cmd.Context(), seen, limit)
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only this tenant; \"\" stands for unauthenticated senders and unknown tenants")
	cmd.Flags().StringVar(&q.Device, "device", "", "only this device, as the message names it")
	choiceVar(cmd.Flags(), &q.Transport, "transport", "", app.TransportNames(), "only this transport: "+strings.Join(app.TransportNames(), ", "))
	choiceVar(cmd.Flags(), &q.Outcome, "outcome", "", outcomes, "only this outcome: "+strings.Join(outcomes, ", "))
	cmd.Flags().Int64Var(&limit, "limit", 0, "stop after this number of messages (default: at Ctrl-C)")
	return cmd
}

// outcomes are how a message may end, as an option names them.
var outcomes = []string{"stored", "duplicate", "dead-letter", "refused", "dropped"}

// showTail writes what is seen until ctx or the instance ends, or limit messages were shown (0: no limit).
func (c *command) showTail(ctx context.Context, seen *watching, limit int64) error {
	for n := int64(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case t, open := <-seen.tails:
			if !open {
				return seen.ended(ctx)
			}
			for i := range t.Messages {
				c.showSeen(&t.Messages[i])
				if n++; n == limit {
					return nil
				}
			}
			c.showLeftOut(t.LeftOut)
		}
	}
}

func (c *command) showSeen(m *operate.Seen) {
	if c.json {
		c.writeLine(c.io.Stdout, m)
		return
	}
	printSeen(c.io.Stdout, m)
}

func (c *command) showLeftOut(n int64) {
	switch {
	case n == 0:
	case c.json:
		c.writeLine(c.io.Stdout, map[string]int64{"leftOut": n})
	default:
		fmt.Fprintf(c.io.Stdout, "… %s more, too fast to show\n", grouped(n))
	}
}

// printSeen writes a message as one line.
func printSeen(w io.Writer, m *operate.Seen) {
	tenant := m.Tenant
	if tenant == "" {
		if tenant = unauthenticated; m.Named != "" {
			tenant = "(" + m.Named + "?)"
		}
	}
	device := m.Device
	if device == "" {
		device = "-"
	}
	line := fmt.Sprintf("%s  %s  %s  %s  %s", m.Time.UTC().Format("15:04:05.000Z"), tenant, m.Transport, device, outcomeText(m))
	line += each("  ", valuesText(m), outOfRangeText(m), firingsText(m))
	fmt.Fprintf(w, "%s  %s\n", printable(line), delayText(m.DelayMS))
}

// outcomeWords is the name of an outcome in a sentence.
func outcomeWords(name string) string { return strings.ReplaceAll(name, "-", " ") }

// each is the texts that are not empty, each after the separator.
func each(separator string, texts ...string) string {
	var b strings.Builder
	for _, text := range texts {
		if text != "" {
			b.WriteString(separator + text)
		}
	}
	return b.String()
}

// outcomeText says where a message ended, and why.
func outcomeText(m *operate.Seen) string {
	text := outcomeWords(m.Outcome)
	if m.Connection {
		text = "connection " + m.Outcome
	}
	if m.Reason != "" {
		text += " (" + m.Reason + ")"
	}
	if m.Why != "" {
		text += ": " + m.Why
	}
	return printable(text)
}

// valuesText shows the first values of a message.
func valuesText(m *operate.Seen) string {
	text := strings.Join(m.Values, " ")
	if more := m.Readings - len(m.Values); more > 0 && len(m.Values) > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return printable(text)
}

// outOfRangeText names the stored readings that were outside their range.
func outOfRangeText(m *operate.Seen) string {
	var out []string
	for _, r := range m.Marked {
		text := r.Metric + " flagged"
		if r.Mark == model.Clamped.String() {
			text = fmt.Sprintf("%s stored as %v", r.Metric, r.Stored)
		}
		out = append(out, text)
	}
	if len(out) == 0 {
		return ""
	}
	text := "OUT OF RANGE " + strings.Join(out, ", ")
	if more := m.OutOfRange - len(out); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return printable(text)
}

// firingsText names the rules that a message made fire.
func firingsText(m *operate.Seen) string {
	var out []string
	for _, f := range m.Firings {
		text := "FIRING " + f.Rule + " " + f.Edge
		if f.Severity != "" {
			text += " (" + f.Severity + ")"
		}
		out = append(out, text)
	}
	return printable(strings.Join(out, "; "))
}

func delayText(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	if d < 10*time.Millisecond {
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// watching is a tail whose values can be waited for together with something else. err is why it ended, once tails is closed.
type watching struct {
	tails <-chan *operate.Sightings
	stop  context.CancelFunc
	err   error
}

// ended is how a command ends whose tail has: well, when that was asked for.
func (w *watching) ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	return w.err
}

// watch opens a tail; what happens after it has returned is seen.
func (c *command) watch(ctx context.Context, client *operate.Client, q operate.TailQuery) (*watching, error) {
	ctx, stop := context.WithCancel(ctx)
	stream, err := operate.Tail.Follow(ctx, client, q)
	if err != nil {
		stop()
		return nil, err
	}
	tails := make(chan *operate.Sightings)
	w := &watching{tails: tails, stop: stop}
	go func() {
		defer close(tails)
		defer stream.Close()
		for {
			t, err := stream.Next(ctx)
			if w.err = err; err != nil {
				return
			}
			select {
			case tails <- t:
			case <-ctx.Done():
				w.err = ctx.Err()
				return
			}
		}
	}()
	return w, nil
}
