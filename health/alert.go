package health

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Severity is the urgency of an alert.
type Severity string

// Severities: Critical needs an operator now, Minor within the day.
const (
	Critical Severity = "critical"
	Minor    Severity = "warning"
)

// Alert is a condition that needs an operator: a condition on the instance's own metrics, how long it must hold, and its
// summary. The same description makes the Prometheus rule and is evaluated inside the instance for its log.
type Alert struct {
	Name     string        `json:"alert"`
	Severity Severity      `json:"severity"`
	When     Condition     `json:"-"`
	For      time.Duration `json:"-"`
	Summary  string        `json:"summary"`
	// Runbook is the heading of docs/troubleshooting.md, as a link has it.
	Runbook string `json:"runbook"`
}

// Condition compares the value of a metric with a limit. Without a modifier it compares the metric itself; at most one of Over, Within,
// Mean, MinBy, Each, NotOneBy and Changes is set. The condition of an absent metric is false.
type Condition struct {
	Metric string
	Labels [][2]string
	Above  float64 // the condition is: greater than this
	Below  bool    // … or, when set, less than Above
	// Over divides the metric by another one.
	Over string
	// Within compares the increase of a counter within this span.
	Within time.Duration
	// Mean compares a histogram's mean over this span; Metric is its name without suffix.
	Mean time.Duration
	// MinBy is a label: the lowest value of the gauge over the values of that label is compared.
	MinBy string
	// Each compares each series by itself: the condition holds when it does for any of them. Below must be set.
	Each bool
	// NotOneBy is a label: for each value of it the gauge, added over all nodes, must be 1. The instance itself sees its own series only.
	NotOneBy string
	// Changes counts the changes of a gauge within this span. Changes over a restart are visible only to Prometheus.
	Changes time.Duration
}

// Expr is the condition in PromQL.
func (c *Condition) Expr() string {
	sign := ">"
	if c.Below {
		sign = "<"
	}
	if c.NotOneBy != "" {
		return c.value() + " != 1"
	}
	return c.value() + " " + sign + " " + strconv.FormatFloat(c.Above, 'f', -1, 64)
}

func (c *Condition) value() string {
	name := c.Metric + c.labels()
	switch {
	case c.MinBy != "":
		return "min without (" + c.MinBy + ") (" + name + ")"
	case c.NotOneBy != "":
		return "sum by (" + c.NotOneBy + ") (" + name + ")"
	case c.Over != "":
		return name + " / " + c.Over
	case c.Within > 0:
		if len(c.Labels) > 0 {
			return "sum without (reason) (increase(" + name + "[" + promSpan(c.Within) + "]))"
		}
		return "increase(" + name + "[" + promSpan(c.Within) + "])"
	case c.Mean > 0:
		span := promSpan(c.Mean)
		return fmt.Sprintf("increase(%s_sum[%s]) / increase(%s_count[%s])", c.Metric, span, c.Metric, span)
	case c.Changes > 0:
		return "changes(" + name + "[" + promSpan(c.Changes) + "])"
	}
	return name
}

func (c *Condition) labels() string {
	if len(c.Labels) == 0 {
		return ""
	}
	parts := make([]string, len(c.Labels))
	for i, l := range c.Labels {
		parts[i] = l[0] + "=" + strconv.Quote(l[1])
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// promSpan writes a duration as Prometheus does.
func promSpan(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// Expr is the alert's condition in PromQL.
func (a *Alert) Expr() string { return a.When.Expr() }

// Rules writes alerts as a Prometheus rules file. docs is the address of the documentation.
func Rules(alerts []Alert, docs string) string {
	var b strings.Builder
	b.WriteString("groups:\n  - name: weir\n    rules:\n")
	for i := range alerts {
		a := &alerts[i]
		fmt.Fprintf(&b, "      - alert: %s\n        expr: %s\n", a.Name, yamlText(a.Expr()))
		if a.For > 0 {
			fmt.Fprintf(&b, "        for: %s\n", promSpan(a.For))
		}
		fmt.Fprintf(&b, "        labels:\n          severity: %s\n        annotations:\n          summary: %s\n          runbook_url: %s\n",
			a.Severity, yamlText(a.Summary), yamlText(strings.TrimSuffix(docs, "/")+"/troubleshooting.md#"+a.Runbook))
	}
	return b.String()
}

// yamlText quotes so that nothing in it means anything.
func yamlText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
