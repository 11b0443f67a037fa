package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/model"
	"weir/operate"
)

// previewFlags are the options of rule preview.
type previewFlags struct {
	tenant, profile, events string
	since, until            *time.Time
	group                   string
	groupVersion            int
	trace, explain          bool
}

func newRulePreview(c *command) *cobra.Command {
	var f previewFlags
	cmd := &cobra.Command{
		Use:   "preview FILE [RULE]",
		Short: "Show when a rule would have fired",
		Long: "Run a rule that is not published over what devices have sent, and show when it\n" +
			"would have fired. The file is the definition of a rule, a canvas, or a site file\n" +
			"with the rule. Nothing is stored or changed, and live rules are not affected.\n\n" +
			"Without --events a running instance judges the last 24 hours of its history, or\n" +
			"24 hours of --since and --until, as it stood then. With --events the events come\n" +
			"from a file, one JSON object a line, and no instance is needed: a line is an\n" +
			"ingest event with its device and receivedTime. Ctrl-C ends a preview, also at\n" +
			"the instance. weir docs rules explains previews and the format of the file.",
		Example: "  weir rule preview too-hot.yaml --profile boiler\n  weir rule preview site.yaml boiler/too-hot --since 3d --until 2d\n" +
			"  weir rule preview boiler.canvas.json --trace --tenant acme\n  weir rule preview too-hot.yaml --profile boiler --explain\n" +
			"  weir rule preview too-hot.yaml --events events.ndjson",
		Args: ruleFileAndToken,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.readDraft(args, f.profile)
			if err != nil {
				return err
			}
			if f.events != "" {
				return c.previewEvents(cmd.Context(), d, &f)
			}
			return c.previewLive(cmd.Context(), d, &f)
		},
	}
	cmd.Flags().StringVar(&f.tenant, "tenant", "", "tenant whose history is judged (default: that of the rule in a site file, or the only one)")
	cmd.Flags().StringVar(&f.profile, "profile", "", "device profile whose devices are judged (default: that of the canvas, or of the rule in a site file)")
	cmd.Flags().StringVar(&f.events, "events", "", "file of events to judge instead, one JSON object a line; - for stdin")
	momentVar(cmd.Flags(), &f.since, "since", "", "first event time: a time such as 2026-03-01T08:00:00Z, or how long ago, such as 12h or 3d (default: 24 h before --until; of a file its first event)")
	momentVar(cmd.Flags(), &f.until, "until", "", "last event time, likewise (default: now; of a file its last event)")
	cmd.Flags().StringVar(&f.group, "group", "", "only the members of this group of devices")
	cmd.Flags().IntVar(&f.groupVersion, "group-version", 0, "published version of the group")
	cmd.Flags().BoolVar(&f.trace, "trace", false, "of a canvas: show what each node did at each firing")
	cmd.Flags().BoolVar(&f.explain, "explain", false, "show what would be read, and judge nothing")
	return cmd
}

// readDraft reads the rule or canvas of a file.
func (c *command) readDraft(args []string, profile string) (*operate.RuleDraft, error) {
	reference := ""
	if len(args) == 2 {
		reference = args[1]
	}
	d, warnings, err := operate.ReadDraft(c.ruleSource(), args[0], reference, profile)
	if err == nil && !c.json {
		c.warnAll(warnings)
	}
	return d, err
}

func (c *command) previewEvents(ctx context.Context, d *operate.RuleDraft, f *previewFlags) error {
	switch {
	case f.explain:
		return usageError{errors.New("--explain is for a running instance: a file is read as a whole")}
	case f.tenant != "":
		return usageError{errors.New("--tenant is for a running instance: a file of events has no tenant")}
	case f.group != "" || f.groupVersion != 0:
		return usageError{errors.New("--group is for a running instance: a file of events has no groups")}
	}
	events, from, to, err := c.openEvents(f)
	if err != nil {
		return err
	}
	defer events.Close()
	done := c.waiting("previewing")
	p, err := operate.PreviewEvents(ctx, d, f.events, events, from, to, f.trace)
	done()
	if err != nil {
		return err
	}
	return c.showPreview(p, f)
}

// openEvents opens the file of events, and returns the window of it that is asked for: a time that was not given is zero.
func (c *command) openEvents(f *previewFlags) (events io.ReadCloser, from, to time.Time, err error) {
	if f.since != nil {
		from = *f.since
	}
	if f.until != nil {
		to = *f.until
	}
	if f.since != nil && f.until != nil && !to.After(from) {
		return nil, from, to, usageError{errors.New("--until must be after --since")}
	}
	if f.events == "-" {
		return io.NopCloser(c.io.Stdin), from, to, nil
	}
	events, err = os.Open(f.events)
	return events, from, to, err
}

// fits refuses a draft of which the options do not say enough to judge an instance's history.
func (f *previewFlags) fits(d *operate.RuleDraft) error {
	switch {
	case d.Profile == "":
		return usageError{errors.New("--profile is missing: the file does not say which devices the rule watches")}
	case d.Group != "" && f.group == "":
		return usageError{fmt.Errorf("the rule is scoped to the group %s: name the published version with --group %[1]s --group-version N", d.Group)}
	}
	return nil
}

const previewDocument = `query($i: PreviewRuleInput!) { previewRule(input: $i) { ok firings { occurredAt series signal trace { nodeId kind disposition detail } }
	stats { eventsScanned firingCount evalErrors wallMs } degraded diagnostics { nodeId severity code params message } reads { from devices rows readings } } }`

func (c *command) previewLive(ctx context.Context, d *operate.RuleDraft, f *previewFlags) error {
	if err := f.fits(d); err != nil {
		return err
	}
	op, err := c.operator(ctx)
	if err != nil {
		return err
	}
	defer op.Close()
	a := tenantAPI{op, cmp.Or(f.tenant, d.Tenant)}
	if a.tenant == "" {
		if a.tenant, err = onlyTenant(ctx, op); err != nil {
			return err
		}
	}
	in := f.input(d, time.Now())
	if !f.explain && c.showsProgress() {
		if reads, err := a.preview(ctx, in, true); err == nil && reads.Reads != nil {
			c.note("%s", readsText(reads))
		}
	}
	done := c.waiting("previewing")
	p, err := a.preview(ctx, in, f.explain)
	done()
	if err != nil {
		return err
	}
	return c.showPreview(p, f)
}

// input is the input of previewRule.
func (f *previewFlags) input(d *operate.RuleDraft, now time.Time) gqlVars {
	until := now
	if f.until != nil {
		until = *f.until
	}
	since := until.Add(-24 * time.Hour)
	if f.since != nil {
		since = *f.since
	}
	in := gqlVars{"profileToken": d.Profile, "start": since.UTC().Format(time.RFC3339Nano), "end": until.UTC().Format(time.RFC3339Nano), "trace": f.trace}
	if d.Graph != "" {
		in["graph"] = d.Graph
	} else {
		in["ruleDefinition"] = d.Definition
	}
	if f.group != "" {
		in["entityGroupToken"] = f.group
	}
	if f.groupVersion != 0 {
		in["entityGroupVersion"] = f.groupVersion
	}
	return in
}

// preview asks the instance.
func (a tenantAPI) preview(ctx context.Context, in gqlVars, explain bool) (*operate.Preview, error) {
	in["explain"] = explain
	var got struct{ PreviewRule *operate.Preview }
	if err := a.run(ctx, processingArea, previewDocument, gqlVars{"i": in}, &got); err != nil {
		return nil, err
	}
	if p := got.PreviewRule; !p.OK {
		var why []string
		for _, d := range p.Diagnostics {
			why = append(why, d.Message)
		}
		return nil, model.Errorf(model.CodeInvalidInput, "%s", strings.Join(why, "; "))
	}
	return got.PreviewRule, nil
}

func (c *command) showPreview(p *operate.Preview, f *previewFlags) error {
	if !c.json {
		for _, d := range p.Diagnostics {
			c.note("warning: %s", printable(d.Message))
		}
	}
	c.show(p, func(w io.Writer) { printPreview(w, p, f) })
	return nil
}

func printPreview(w io.Writer, p *operate.Preview, f *previewFlags) {
	switch {
	case f.explain:
		fmt.Fprintln(w, readsText(p))
	case len(p.Firings) == 0:
		fmt.Fprintln(w, "the rule would not have fired")
	default:
		printPreviewed(w, p.Firings)
	}
	if !f.explain {
		text := fmt.Sprintf("%s; %s judged", countText(p.Stats.Firings, "firing"), countText(p.Stats.Events, "event"))
		if p.Stats.EvalErrors > 0 {
			text += fmt.Sprintf(", %d could not be", p.Stats.EvalErrors)
		}
		fmt.Fprintln(w, text)
	}
	if p.Degraded != nil {
		for why := range strings.SplitSeq(*p.Degraded, "; ") {
			fmt.Fprintf(w, "not everything: %s\n", printable(why))
		}
	}
}

func printPreviewed(w io.Writer, firings []operate.PreviewFiring) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TIME\tSERIES\tEDGE")
	for i := range firings {
		x := &firings[i]
		fmt.Fprintf(t, "%s\t%s\t%s\n", x.Occurred.UTC().Format("2006-01-02T15:04:05.000Z"), printable(x.Series), x.Signal)
		for _, s := range x.Trace {
			text := fmt.Sprintf("  %s %s: %s", s.Kind, printable(s.Node), s.Disposition)
			if s.Detail != nil {
				text += " (" + printable(*s.Detail) + ")"
			}
			fmt.Fprintln(t, text)
		}
	}
	_ = t.Flush() // the reader has gone
}

// readsText is what a preview reads.
func readsText(p *operate.Preview) string {
	if p.Reads == nil {
		return "nothing is read"
	}
	return fmt.Sprintf("reads %s of %s in %s, received from %s on", countText(p.Reads.Readings, "reading"), countText(p.Reads.Devices, "device"),
		countText(p.Reads.Rows, "row"), timeText(&p.Reads.From))
}

// showsProgress reports whether somebody looks at the progress of a command.
func (c *command) showsProgress() bool { return !c.json && isTerminal(c.io.Stderr) }

// waiting says for how long the command waits, where somebody looks, until done is called.
func (c *command) waiting(what string) (done func()) {
	if !c.showsProgress() {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for began := time.Now(); ; {
			select {
			case <-stop:
				fmt.Fprint(c.io.Stderr, "\r\x1b[K")
				return
			case <-tick.C:
				fmt.Fprintf(c.io.Stderr, "\r%s: %s, Ctrl-C ends it   ", what, time.Since(began).Round(time.Second))
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

// ruleFileAndToken checks the arguments of a command that judges one rule: its file, and which rule where the file has several.
func ruleFileAndToken(cmd *cobra.Command, args []string) error {
	if err := ruleFiles(cmd, args); err != nil {
		return err
	}
	return upTo("a file", "the token of a rule")(cmd, args)
}
