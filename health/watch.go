package health

import (
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Watch evaluates the instance's own metrics as Prometheus would, and logs a line when an alert begins and one when it
// ends: none in between, so that a lasting condition does not fill the disk.
type Watch struct {
	alerts []*watched
	from   prometheus.Gatherer
	log    *slog.Logger

	mu     sync.Mutex
	firing []string
}

// watched is an alert with its state.
type watched struct {
	Alert
	since  time.Time // when the condition began to hold; zero: it does not hold
	firing bool
	past   []sample // of counters, oldest first, no older than the span
}

type sample struct {
	at         time.Time
	value, num float64 // num: of a histogram, how many
}

// NewWatch returns a watch over alerts, except those on changes over a restart, which only Prometheus can see.
func NewWatch(alerts []Alert, from prometheus.Gatherer, log *slog.Logger) *Watch {
	w := &Watch{from: from, log: log}
	for _, a := range alerts {
		if a.When.Changes == 0 {
			w.alerts = append(w.alerts, &watched{Alert: a})
		}
	}
	return w
}

// Firing returns the names of the alerts that fire, in the order of the list.
func (w *Watch) Firing() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.firing)
}

// Sample evaluates the alerts once, as of now. One goroutine calls it every few seconds.
func (w *Watch) Sample(now time.Time) {
	values := w.gather()
	firing := []string{}
	for _, a := range w.alerts {
		a.look(now, values, w.log)
		if a.firing {
			firing = append(firing, a.Name)
		}
	}
	w.mu.Lock()
	w.firing = firing
	w.mu.Unlock()
}

func (a *watched) look(now time.Time, values values, log *slog.Logger) {
	v, known := a.value(now, values)
	if !known || !a.When.holds(v) {
		if a.firing {
			log.Info("alert over", "alert", a.Name)
		}
		a.since, a.firing = time.Time{}, false
		return
	}
	if a.since.IsZero() {
		a.since = now
	}
	if !a.firing && now.Sub(a.since) >= a.For {
		a.firing = true
		log.Warn("alert", "alert", a.Name, "severity", string(a.Severity), "what", a.Summary, "value", math.Round(v*1000)/1000, "see", "troubleshooting.md#"+a.Runbook)
	}
}

func (c *Condition) holds(v float64) bool {
	if c.Below {
		return v < c.Above
	}
	return v > c.Above
}

// value is the value that the condition compares; known is false before there is one.
func (a *watched) value(now time.Time, values values) (v float64, known bool) {
	c := &a.When
	switch {
	case c.Over != "":
		v, over := values.sum(c.Metric, c.Labels), values.sum(c.Over, nil)
		return v.value / over.value, v.there && over.there && over.value != 0
	case c.Within > 0:
		first, last, ok := a.remember(now, values.sum(c.Metric, c.Labels), c.Within)
		return last.value - first.value, ok
	case c.Mean > 0:
		first, last, ok := a.remember(now, values.sum(c.Metric, nil), c.Mean)
		return (last.value - first.value) / (last.num - first.num), ok && last.num > first.num
	}
	if c.NotOneBy != "" {
		return values.notOne(c.Metric, c.NotOneBy)
	}
	if c.MinBy != "" || c.Each {
		return values.least(c.Metric, c.Labels)
	}
	s := values.sum(c.Metric, c.Labels)
	return s.value, s.there
}

// remember keeps a counter's past over a span and returns its ends. A counter with labels does not exist before it counts:
// it was 0 then.
func (a *watched) remember(now time.Time, s total, span time.Duration) (first, last sample, ok bool) {
	last = sample{at: now, value: s.value, num: s.num}
	for len(a.past) > 1 && now.Sub(a.past[1].at) >= span {
		a.past = a.past[1:]
	}
	a.past = append(a.past, last)
	return a.past[0], last, s.there
}

// values are the metrics of one sample, by name.
type values map[string][]series

type series struct {
	labels     map[string]string
	value, num float64
}

type total struct {
	value, num float64
	there      bool
}

// sum adds the series of a metric that have the labels.
func (v values) sum(metric string, labels [][2]string) (t total) {
	for _, s := range v[metric] {
		if slices.ContainsFunc(labels, func(l [2]string) bool { return s.labels[l[0]] != l[1] }) {
			continue
		}
		t.value, t.num, t.there = t.value+s.value, t.num+s.num, true
	}
	return t
}

// notOne adds the series of a metric for each value of a label, and returns by how much the sum that is farthest from 1 differs from it.
func (v values) notOne(metric, label string) (most float64, there bool) {
	sums := map[string]float64{}
	for _, s := range v[metric] {
		sums[s.labels[label]] += s.value
	}
	for _, sum := range sums {
		most = max(most, math.Abs(sum-1))
	}
	return most, len(sums) > 0
}

// least is the lowest of the series of a metric that have the labels.
func (v values) least(metric string, labels [][2]string) (low float64, there bool) {
	for _, s := range v[metric] {
		if slices.ContainsFunc(labels, func(l [2]string) bool { return s.labels[l[0]] != l[1] }) {
			continue
		}
		if !there || s.value < low {
			low, there = s.value, true
		}
	}
	return low, there
}

func (w *Watch) gather() values {
	families, err := w.from.Gather()
	if err != nil && len(families) == 0 {
		w.log.Warn("reading the instance's own metrics failed", "error", err)
		return nil
	}
	out := values{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			s := series{labels: map[string]string{}}
			for _, l := range m.GetLabel() {
				s.labels[l.GetName()] = l.GetValue()
			}
			switch {
			case m.GetCounter() != nil:
				s.value = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				s.value = m.GetGauge().GetValue()
			case m.GetHistogram() != nil:
				s.value, s.num = m.GetHistogram().GetSampleSum(), float64(m.GetHistogram().GetSampleCount())
			default:
				continue
			}
			out[f.GetName()] = append(out[f.GetName()], s)
		}
	}
	return out
}
