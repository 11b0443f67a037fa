// Package health looks for what is wrong with an instance or with the machine under it, and says what to do about it. A
// check looks at one thing and returns a Finding; Look runs checks one after the other, each bounded in time. What the
// checks ask of the operating system goes through a Machine, so that a test can put a full disk or a clock in 1970 there.
//
// The checks of this package know the machine; those that look at the parts of an instance stand in app, which knows them.
package health

import (
	"context"
	"fmt"
	"time"
)

// Result is how a check ended.
type Result string

// The results. A check that could not look is skipped, and its finding says why.
const (
	OK      Result = "ok"
	Skipped Result = "skip"
	Warning Result = "warn"
	Failure Result = "fail"
)

// weight orders results: the heaviest of a report is the report's.
func (r Result) weight() int {
	switch r {
	case Failure:
		return 2
	case Warning:
		return 1
	}
	return 0
}

// Finding is what a check has found, and what may be done about it.
type Finding struct {
	ID     string `json:"id"`
	Result Result `json:"result"`
	Text   string `json:"finding"`
	Hint   string `json:"hint,omitempty"`
}

// Good says that a thing is as it should be.
func Good(format string, args ...any) Finding {
	return Finding{Result: OK, Text: fmt.Sprintf(format, args...)}
}

// Skip says why a check could not look.
func Skip(format string, args ...any) Finding {
	return Finding{Result: Skipped, Text: fmt.Sprintf(format, args...)}
}

// Warn says what may become a problem.
func Warn(hint, format string, args ...any) Finding {
	return Finding{Result: Warning, Text: fmt.Sprintf(format, args...), Hint: hint}
}

// Fail says what is wrong.
func Fail(hint, format string, args ...any) Finding {
	return Finding{Result: Failure, Text: fmt.Sprintf(format, args...), Hint: hint}
}

// Check looks at one thing. Its id is stable: scripts may rely on it.
type Check struct {
	ID   string
	Look func(ctx context.Context) Finding
}

// Report is everything that was found.
type Report struct {
	Result   Result    `json:"result"` // the heaviest of the findings; ok when there is nothing to say
	Running  bool      `json:"running"`
	Findings []Finding `json:"findings"`
}

// Add puts a finding into the report.
func (r *Report) Add(f Finding) {
	r.Findings = append(r.Findings, f)
	if r.Result == "" || f.Result.weight() > r.Result.weight() {
		r.Result = f.Result
	}
	if r.Result == Skipped {
		r.Result = OK
	}
}

// Look runs the checks in their order. One that is not done after patience is left behind and told as such; when ctx
// ends, the rest is skipped.
func Examine(ctx context.Context, patience time.Duration, checks []Check) *Report {
	r := &Report{Result: OK}
	for _, c := range checks {
		f := look(ctx, patience, c)
		f.ID = c.ID
		r.Add(f)
	}
	return r
}

func look(ctx context.Context, patience time.Duration, c Check) Finding {
	if ctx.Err() != nil {
		return Skip("not looked at: no time was left")
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found := make(chan Finding, 1)
	go func() { found <- c.Look(bounded) }()
	grace := time.NewTimer(patience + patience/4) // a check that minds its context ends by itself
	defer grace.Stop()
	select {
	case f := <-found:
		return f
	case <-grace.C:
		return Warn("a disk or a network file system that hangs does this", "no answer within %s", patience)
	}
}
