package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/model"
	"weir/operate"
)

// firstReading is what commands share that give a device a token: the commands for its first reading, and the wait for it.
type firstReading struct {
	c        *command
	commands string // which commands to print and nothing else, "" for all that there is to say
	host     string
	wait     time.Duration // 0: do not
}

// tokenGift is how a device gets its token, which is shown once: a token that could not be shown is taken back.
type tokenGift struct {
	give func(operate.Target) (*operate.DeviceAdded, error)
	// text writes what there is to say of the token, for a host in the commands.
	text func(w io.Writer, d *operate.DeviceAdded, host string)
	// finish does what must not happen before the token is shown; nil: nothing.
	finish func(operate.Target, *operate.DeviceAdded) error
	// undo undoes what give has done.
	undo func(context.Context, operate.Target, *operate.DeviceAdded) error
}

func (f *firstReading) flags(cmd *cobra.Command) {
	choiceVar(cmd.Flags(), &f.commands, "print-commands", "", snippets, "print only the commands for a first reading: all, mosquitto_pub, curl, python or go")
	cmd.Flags().Lookup("print-commands").NoOptDefVal = "all"
	cmd.Flags().StringVar(&f.host, "host", "", "host name or address in the commands, if the instance listens on every interface (default: this machine)")
	spanVar(cmd.Flags(), &f.wait, "wait", 0, "wait for the first reading, and show refusals meanwhile")
	cmd.Flags().Lookup("wait").NoOptDefVal = "60s"
}

// snippets are the values of --print-commands.
var snippets = []string{"all", "mosquitto_pub", "curl", "python", "go"}

func (f *firstReading) check() error {
	if f.wait < 0 {
		return usageError{errors.New("--wait must not be negative")}
	}
	return nil
}

// run gives a device its token, prints what there is to say of it, and waits when that was asked for. The wait stands
// before the token exists, so that no reading is missed.
func (f *firstReading) run(cmd *cobra.Command, tenant, device string, gift *tokenGift) error {
	if err := f.check(); err != nil {
		return err
	}
	if f.wait == 0 && f.commands == "" {
		op, err := f.c.operator(cmd.Context())
		if err != nil {
			return err
		}
		defer op.Close()
		return f.give(cmd.Context(), op, gift)
	}
	client, err := f.c.dial(cmd.Context())
	if err != nil {
		return err
	}
	defer client.Close()
	if f.wait == 0 {
		return f.give(cmd.Context(), client, gift)
	}
	seen, err := f.c.watch(cmd.Context(), client, operate.TailQuery{Device: device, Unnamed: true})
	if err != nil {
		return err
	}
	defer seen.stop()
	if err := f.give(cmd.Context(), client, gift); err != nil {
		return err
	}
	return f.await(cmd.Context(), seen, tenant, device)
}

func (f *firstReading) give(ctx context.Context, op operate.Target, gift *tokenGift) error {
	made, err := gift.give(op)
	if err != nil {
		return err
	}
	if f.commands != "" {
		err = f.printCommands(made)
	} else {
		f.c.show(made, func(w io.Writer) { gift.text(w, made, f.host) })
	}
	if lost := f.c.out.err(); lost != nil {
		return undone(ctx, lost, func(ctx context.Context) error { return gift.undo(ctx, op, made) })
	}
	if err == nil && gift.finish != nil {
		err = gift.finish(op, made)
	}
	return err
}

func (f *firstReading) printCommands(d *operate.DeviceAdded) error {
	var chosen []operate.Snippet
	for _, s := range operate.FirstReading(d, f.host) {
		if f.commands == "all" || strings.EqualFold(f.commands, s.Title) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return &model.Error{Code: model.CodeUnsupported, Message: fmt.Sprintf("device %s has its access token, but no listener is open for such a command", d.Token),
			Hint: fmt.Sprintf("open listeners.ingest or listeners.mqtt, then: weir device rotate %s %s --print-commands", d.Tenant, d.Token)}
	}
	f.c.show(map[string]any{"total": len(chosen), "commands": chosen}, func(w io.Writer) { printCommands(w, chosen) })
	return nil
}

// printCommands prints snippets so that a single one can be piped into what runs it.
func printCommands(w io.Writer, all []operate.Snippet) {
	for i, s := range all {
		if len(all) > 1 {
			if i > 0 {
				fmt.Fprintln(w)
			}
			how := "# " + s.Title
			switch s.Language {
			case "python":
				how += ": save it as first.py, then: python3 first.py"
			case "go":
				how = "// " + s.Title + ": save it as first.go, then: go run first.go"
			}
			fmt.Fprintln(w, how)
		}
		fmt.Fprintln(w, strings.TrimRight(s.Text, "\n"))
	}
}

// await shows what comes of a device until its first reading is kept. What names no device at all may be its: of a body
// that does not read, or a credential that does not exist, the device is not known.
func (f *firstReading) await(ctx context.Context, seen *watching, tenant, device string) error {
	began, over := time.Now(), time.After(f.wait)
	f.c.note("waiting %s for the first reading of %s; Ctrl-C ends", f.wait, device)
	refused := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-over:
			return f.overdue(refused, tenant, device)
		case t, open := <-seen.tails:
			if !open {
				return seen.ended(ctx)
			}
			for i := range t.Messages {
				m := &t.Messages[i]
				if m.Tenant != tenant && (m.Tenant != "" || m.Device != device) {
					continue
				}
				f.show(m, time.Since(began))
				if m.Outcome == "stored" {
					return nil
				}
				refused++
			}
		}
	}
}

func (f *firstReading) show(m *operate.Seen, after time.Duration) {
	if f.c.json {
		f.c.writeLine(f.c.io.Stdout, m)
		return
	}
	if m.Outcome == "stored" {
		f.c.note("arrived after %s over %s: %s, stored", after.Round(100*time.Millisecond), m.Transport, valuesText(m))
		return
	}
	whose := ""
	if m.Device == "" {
		whose = " (it names no device, and may be another's)"
	}
	f.c.note("%s%s", outcomeText(m), whose)
	if hint := reasonHint(m.Reason, m.Connection); hint != "" {
		f.c.note("  hint: %s", hint)
	}
}

func (f *firstReading) overdue(refused int, tenant, device string) error {
	e := checkError{fmt.Errorf("no reading of %s was kept within %s", device, f.wait),
		"no message of the device reached a transport: check the address, and that the port is open on the way"}
	if refused > 0 {
		e.hint = fmt.Sprintf("what was refused is shown above; later: weir device show %s %s", tenant, device)
	}
	return e
}

// reasonHint is what the user may do about a message that was not kept.
func reasonHint(reason string, connection bool) string {
	if connection && reason == "not-authorized" {
		return "user name TENANT:ACCESSTOKEN, client id INSTANCE:TENANT:DEVICE; weir device rotate makes a new access token"
	}
	return map[string]string{
		"bad-credential":    "the access token must be whole and of this very device; weir device rotate makes a new one",
		"undecodable":       `a body is {"eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"21.5"}}]}}; values are strings`,
		"not-authorized":    "a device sends to its own topic only: INSTANCE/TENANT/devices/DEVICE/events",
		"no-consumer":       "events go to INSTANCE/TENANT/devices/DEVICE/events",
		"unknown-device":    "see what there is with: weir device list TENANT",
		"unknown-tenant":    "the tenant is named in the topic or the path",
		"tenant-disabled":   "the tenant is disabled",
		"invalid-value":     "the profile of the device's type says what its metrics may be",
		"ceiling":           "the tenant's tier and the key governance say how much it may send",
		"unauthenticated":   "unauthenticated messages share one small bucket: send a credential",
		"backpressure":      "the log is filling up: weir status",
		"log-unavailable":   "the log does not take it: weir status",
		"series_limit":      "limits.series_per_device and limits.series_per_tenant",
		"bad-time":          "ingest.max_age says how old an event may be; without occurredTime it counts as of its receipt",
		"too-many-readings": "at most 256 readings in one message",
		"too-large":         "ingest.max_body says how large a body may be",
	}[cmp.Or(reason, "none")]
}
