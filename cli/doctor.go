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
		Short: "Check the instance and show what to do",
		Long: "Check the configuration, the data directory, the disk, the clock, system\n" +
			"limits, the listeners and the state of the instance. Each check prints one\n" +
			"line: ok, warn, fail, or skip with the reason. A running instance checks\n" +
			"itself. Without one, the command reads the directory and changes nothing in it;\n" +
			"it reads the whole database if the timeout of a check allows that.\n\n" +
			"The exit code is 0 if no check fails, otherwise 5; with --strict it is 5 for\n" +
			"warnings, too.",
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
			c.show(r, func(w io.Writer) {
				printReport(w, r)
				printSummary(w, r)
			})
			return reportError(r, strict)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 5 for warnings, too")
	spanVar(cmd.Flags(), &timeout, "timeout", operate.CheckTimeout, "maximum time of each check if no instance runs")
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

// printSummary ends a report with how many findings there are of each kind.
func printSummary(w io.Writer, r *health.Report) {
	counts := countFindings(r)
	fmt.Fprintf(w, "%s, %s, %d ok, %d skipped\n", count(counts[health.Failure], "failure"), count(counts[health.Warning], "warning"), counts[health.OK],
		counts[health.Skipped])
}

func countFindings(r *health.Report) map[health.Result]int {
	counts := map[health.Result]int{}
	for _, f := range r.Findings {
		counts[f.Result]++
	}
	return counts
}

// reportError is how weir doctor ends.
func reportError(r *health.Report, strict bool) error {
	counts := countFindings(r)
	failed, warned := counts[health.Failure], counts[health.Warning]
	switch {
	case failed > 0:
		return checkError{error: fmt.Errorf("%s, %s", count(failed, "failure"), count(warned, "warning"))}
	case warned > 0 && strict:
		return checkError{error: errors.New(count(warned, "warning"))}
	}
	return nil
}
