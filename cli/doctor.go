package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/config"
	"weir/health"
	"weir/operate"
)

func newDoctor(c *command) *cobra.Command {
	var strict bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong, and show what to do",
		Long: "Look at the configuration, the data directory, the disk, the clock, the limits of the system, the listeners and what\n" +
			"the instance knows of itself, one line for each check: ok, warn, fail, or skip where it could not look and why. A\n" +
			"running instance is asked; where none runs, the directory is looked at as it lies, and nothing in it is changed: the\n" +
			"database is read to its end where the time of a check allows that.\n\n" +
			"Ends with 0 when nothing fails and with 5 when something does; with --strict with 5 for warnings, too.",
		Example: "  weir doctor\n  weir doctor --strict --json\n  weir doctor --timeout 30m",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return usageError{errors.New("--timeout takes a time such as 4s or 30m")}
			}
			r, err := c.examine(cmd.Context(), timeout)
			if err != nil {
				return err
			}
			c.show(r, func(w io.Writer) { printReport(w, r) })
			return reportError(r, strict)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "end with 5 when there are warnings, too")
	cmd.Flags().DurationVar(&timeout, "timeout", operate.CheckTimeout, "maximum time of each check where no instance runs")
	return cmd
}

// examine lets the running instance look at itself, or looks at a directory where none runs. A configuration that does
// not load is a finding: the running instance keeps the one before it; where none runs nothing else can be looked at,
// for it says where everything is.
func (c *command) examine(ctx context.Context, timeout time.Duration) (*health.Report, error) {
	read, err := c.reading()
	if err != nil {
		return nil, err
	}
	r, err := c.lookAt(ctx, read, timeout)
	if err != nil {
		return nil, err
	}
	first := configFinding(read.Problems, nil, r.Running)
	if read.Config != nil {
		first = configFinding(nil, read.Config.Warnings(), r.Running)
	}
	whole := &health.Report{Running: r.Running}
	for _, f := range append([]health.Finding{first}, r.Findings...) {
		whole.Add(f)
	}
	return whole, nil
}

func (c *command) lookAt(ctx context.Context, read config.Reading, timeout time.Duration) (*health.Report, error) {
	to, err := c.reachRead(ctx, read)
	if errors.Is(err, operate.ErrNotRunning) {
		return &health.Report{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer to.Close()
	return operate.RunDoctor.Ask(ctx, to, operate.DoctorQuery{Version: Version, CheckTimeout: timeout})
}

// configFinding reports what is wrong with a configuration, or else what to think over, without the lines themselves: a
// mistyped key may stand before a secret.
func configFinding(problems, warnings config.Problems, running bool) health.Finding {
	f := health.Good("it loads")
	switch {
	case len(problems) > 0 && running:
		f = health.Fail("the instance runs with the configuration before it, and would not start again with this one; weir config validate shows the lines",
			"%s", withoutSource(problems))
	case len(problems) > 0:
		f = health.Fail("correct it first: it says where everything is, so nothing else was looked at; weir config validate shows the lines",
			"%s", withoutSource(problems))
	case len(warnings) > 0:
		f = health.Warn("weir config validate shows the lines", "%s", withoutSource(warnings))
	}
	f.ID = "config"
	return f
}

func withoutSource(ps config.Problems) string {
	texts := make([]string, len(ps))
	for i, p := range ps {
		p.Source = ""
		texts[i] = p.String()
	}
	return strings.Join(texts, "; ")
}

func printReport(w io.Writer, r *health.Report) {
	width := 0
	for _, f := range r.Findings {
		width = max(width, len(f.ID))
	}
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%-4s  %-*s  %s\n", f.Result, width, f.ID, printable(strings.ReplaceAll(f.Text, "\n", "; ")))
		if f.Hint != "" && f.Result != health.OK {
			fmt.Fprintf(w, "%-4s  %-*s  hint: %s\n", "", width, "", printable(f.Hint))
		}
	}
}

// reportError is how weir doctor ends.
func reportError(r *health.Report, strict bool) error {
	counts := map[health.Result]int{}
	for _, f := range r.Findings {
		counts[f.Result]++
	}
	failed, warned := counts[health.Failure], counts[health.Warning]
	switch {
	case failed > 0:
		return checkError{error: fmt.Errorf("%s, %s", count(failed, "failure"), count(warned, "warning"))}
	case warned > 0 && strict:
		return checkError{error: errors.New(count(warned, "warning"))}
	}
	return nil
}
