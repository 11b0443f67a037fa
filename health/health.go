// Package health finds problems of an instance or of its machine, and their remedies. A check examines one subject and
// returns a Finding; Examine runs checks one after the other, each bounded in time. Checks use the operating system
// through a Machine, so that a test can simulate a full disk or a clock in 1970.
//
// The checks of this package know only the machine; checks of the components of an instance belong to their package.
package health

import (
	"context"
	"fmt"
	"time"
)

// Result is the result of a check.
type Result string

// The results. A check that cannot run is skipped, and its finding has the reason.
const (
	OK      Result = "ok"
	Skipped Result = "skip"
	Warning Result = "warn"
	Failure Result = "fail"
)

// weight orders results: the most severe of a report is the report's.
func (r Result) weight() int {
	switch r {
	case Failure:
		return 2
	case Warning:
		return 1
	}
	return 0
}

// Finding is the finding of a check, with a hint for its remedy.
type Finding struct {
	ID     string `json:"id"`
	Result Result `json:"result"`
	Text   string `json:"finding"`
	Hint   string `json:"hint,omitempty"`
}

// Good is the finding of a subject without a problem.
func Good(format string, args ...any) Finding {
	return Finding{Result: OK, Text: fmt.Sprintf(format, args...)}
}

// Skip is the finding of a check that cannot run, with the reason.
func Skip(format string, args ...any) Finding {
	return Finding{Result: Skipped, Text: fmt.Sprintf(format, args...)}
}

// Warn is the finding of a possible problem.
func Warn(hint, format string, args ...any) Finding {
	return Finding{Result: Warning, Text: fmt.Sprintf(format, args...), Hint: hint}
}

// Fail is the finding of a problem.
func Fail(hint, format string, args ...any) Finding {
	return Finding{Result: Failure, Text: fmt.Sprintf(format, args...), Hint: hint}
}

// Check examines one subject. Its id is stable: scripts may rely on it.
type Check struct {
	ID   string
	Look func(ctx context.Context) Finding
}

// Report contains all findings.
type Report struct {
	Result   Result    `json:"result"` // the most severe of the findings; ok without one
	Running  bool      `json:"running"`
	Findings []Finding `json:"findings"`
}

// Add adds a finding to the report.
func (r *Report) Add(f Finding) {
	r.Findings = append(r.Findings, f)
	if r.Result == "" || f.Result.weight() > r.Result.weight() {
		r.Result = f.Result
	}
	if r.Result == Skipped {
		r.Result = OK
	}
}

// Examine runs the checks in their order. A check that exceeds timeout is abandoned and reported as such; when ctx
// ends, the rest is skipped.
func Examine(ctx context.Context, timeout time.Duration, checks []Check) *Report {
	r := &Report{Result: OK}
	for _, c := range checks {
		f := look(ctx, timeout, c)
		f.ID = c.ID
		r.Add(f)
	}
	return r
}

func look(ctx context.Context, timeout time.Duration, c Check) Finding {
	if ctx.Err() != nil {
		return Skip("not checked: no time was left")
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found := make(chan Finding, 1)
	go func() { found <- c.Look(bounded) }()
	grace := time.NewTimer(timeout + timeout/4) // a check that honours its context ends before
	defer grace.Stop()
	select {
	case f := <-found:
		return f
	case <-grace.C:
		return Warn("a hanging disk or network file system can be the cause", "no answer within %s", timeout)
	}
}
