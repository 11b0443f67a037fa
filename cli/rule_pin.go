package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"weir/operate"
)

// pinnedTest is what rule pin answers.
type pinnedTest struct {
	File    string `json:"file,omitempty"` // "": it went to stdout
	Test    string `json:"test"`
	Samples int    `json:"samples"`
	Firings int    `json:"firings"`
	Text    string `json:"text,omitempty"`
}

func newRulePin(c *command) *cobra.Command {
	var f previewFlags
	var device, name, out string
	var force bool
	cmd := &cobra.Command{
		Use:   "pin FILE [RULE]",
		Short: "Keep what happened as a test of a rule",
		Long: "Write a rule test from what devices have sent in a window: their readings, the\n" +
			"attributes and memberships of then, and the edges that the rule of the file has\n" +
			"fired. The test passes; once the rule is changed so that it would judge that\n" +
			"window otherwise, weir rule test and weir site plan say so, if the test stays\n" +
			"beside the site file. The history is that of a running instance, or a file of\n" +
			"events as weir rule preview reads it. At most 10,000 samples become a test;\n" +
			"--device takes those of one device.",
		Example: "  weir rule pin site.yaml boiler/too-hot --since 2026-03-01T08:00:00Z --until 2026-03-01T09:00:00Z -o burst.ruletest\n" +
			"  weir rule pin site.yaml boiler/too-hot --since 1h --device boiler-1 -o burst.ruletest\n" +
			"  weir rule pin too-hot.yaml --events events.ndjson -o burst.ruletest",
		Args: ruleFileAndToken,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.readDraft(args, f.profile)
			if err != nil {
				return err
			}
			var p *operate.Pinned
			if f.events != "" {
				p, err = c.pinEvents(cmd.Context(), d, &f, device)
			} else {
				p, err = c.pinLive(cmd.Context(), d, &f, device)
			}
			if err != nil {
				return err
			}
			name = cmp.Or(name, "what happened at "+p.Begin.Time().UTC().Format(time.RFC3339))
			text, err := operate.PinTest(c.ruleSource(), p, d, name, args[0], out)
			if err != nil {
				return err
			}
			for _, why := range p.Degraded {
				c.note("warning: %s", printable(why))
			}
			made := pinnedTest{File: out, Test: name, Samples: p.Samples, Firings: len(p.Firings)}
			if out == "" || out == "-" {
				made.File, made.Text = "", text
				c.show(made, func(w io.Writer) { fmt.Fprint(w, text) })
				return nil
			}
			if err := writeNew(out, text, ownFile, force); err != nil {
				return err
			}
			c.show(made, func(w io.Writer) {
				fmt.Fprintf(w, "%s: %s, %s\n", out, count(made.Samples, "sample"), count(made.Firings, "firing"))
			})
			return nil
		},
	}
	cmd.Flags().StringVar(&f.tenant, "tenant", "", "tenant whose history it is (default: that of the rule in a site file, or the only one)")
	cmd.Flags().StringVar(&f.profile, "profile", "", "device profile whose devices are judged (default: that of the canvas, or of the rule in a site file)")
	cmd.Flags().StringVar(&f.events, "events", "", "file of events to take instead, one JSON object a line; - for stdin")
	momentVar(cmd.Flags(), &f.since, "since", "", "first event time: a time such as 2026-03-01T08:00:00Z, or how long ago, such as 12h or 3d (default: an hour before --until; of a file its first event)")
	momentVar(cmd.Flags(), &f.until, "until", "", "last event time, likewise (default: now; of a file its last event)")
	cmd.Flags().StringVar(&f.group, "group", "", "group of devices to which the rule is scoped")
	cmd.Flags().IntVar(&f.groupVersion, "group-version", 0, "published version of the group")
	cmd.Flags().StringVar(&device, "device", "", "only what this device has sent")
	cmd.Flags().StringVar(&name, "name", "", "name of the test (default: when it happened)")
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write; - for stdout")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite an existing file")
	return cmd
}

func (c *command) pinEvents(ctx context.Context, d *operate.RuleDraft, f *previewFlags, device string) (*operate.Pinned, error) {
	if f.tenant != "" || f.group != "" || f.groupVersion != 0 {
		return nil, usageError{errors.New("--tenant and --group are for a running instance: a file of events has neither")}
	}
	events, from, to, err := c.openEvents(f)
	if err != nil {
		return nil, err
	}
	defer events.Close()
	return operate.PinEvents(ctx, d, f.events, events, from, to, device)
}

func (c *command) pinLive(ctx context.Context, d *operate.RuleDraft, f *previewFlags, device string) (*operate.Pinned, error) {
	if err := f.fits(d); err != nil {
		return nil, err
	}
	client, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	tenant := cmp.Or(f.tenant, d.Tenant)
	if tenant == "" {
		if tenant, err = onlyTenant(ctx, client); err != nil {
			return nil, err
		}
	}
	q := operate.PinQuery{Tenant: tenant, Profile: d.Profile, Definition: d.Definition, Group: f.group, Version: f.groupVersion, Device: device, To: time.Now()}
	if f.until != nil {
		q.To = *f.until
	}
	if q.From = q.To.Add(-time.Hour); f.since != nil {
		q.From = *f.since
	}
	done := c.waiting("reading history")
	defer done()
	return operate.PinFirings.Ask(ctx, client, q)
}
