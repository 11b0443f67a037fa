package app_test

import (
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/app"
	"weir/health"
	"weir/operate"
)

// scrape returns the metrics that an instance shows: the labels of each series, by name.
func (in *instance) scrape(t *testing.T) map[string][]map[string]string {
	t.Helper()
	resp, err := http.Get("http://" + in.Listeners().At(operate.MetricsListener) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	line, label := regexp.MustCompile(`^([a-z0-9_]+)(?:\{(.*)\})? \S+$`), regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
	out := map[string][]map[string]string{}
	for text := range strings.Lines(string(body)) {
		m := line.FindStringSubmatch(strings.TrimSpace(text))
		if m == nil {
			continue
		}
		labels := map[string]string{}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			labels[l[1]] = l[2]
		}
		out[m[1]] = append(out[m[1]], labels)
	}
	return out
}

// Counters with labels are there once they have counted: an unauthenticated message makes a dead letter.
func TestEveryAlertSpeaksOfMetricsThatARunningInstanceShows(t *testing.T) {
	t.Parallel()
	in := runInstanceSet(t, app.Options{}, aSource)
	in.token = "of-nobody"
	if status, _, err := in.post(); err != nil || status != http.StatusAccepted {
		t.Fatal(status, err)
	}
	metrics := in.scrape(t)
	ended := func() bool {
		return slices.ContainsFunc(metrics["weir_ingest_messages_total"], func(labels map[string]string) bool { return labels["outcome"] == "dead letter" })
	}
	for end := time.Now().Add(10 * time.Second); !ended() && time.Now().Before(end); metrics = in.scrape(t) {
	}
	for _, a := range health.Alerts() {
		names := []string{a.When.Metric}
		if a.When.Mean > 0 {
			names = []string{a.When.Metric + "_sum", a.When.Metric + "_count"}
		}
		if a.When.Over != "" {
			names = append(names, a.When.Over)
		}
		for _, name := range names {
			if metrics[name] == nil && a.When.MinBy != "listener" { // without TLS: TestAnExpiredCertificateIsServedAndToldUntilItIsRenewed
				t.Errorf("%s: no metric %s is shown", a.Name, name)
			}
			if !strings.Contains(a.Expr(), name) {
				t.Errorf("%s: %s does not speak of %s", a.Name, a.Expr(), name)
			}
		}
		if len(a.When.Labels) > 0 && !slices.ContainsFunc(metrics[a.When.Metric], func(labels map[string]string) bool {
			return !slices.ContainsFunc(a.When.Labels, func(l [2]string) bool { return labels[l[0]] != l[1] })
		}) {
			t.Errorf("%s: %s has no series with %v", a.Name, a.When.Metric, a.When.Labels)
		}
		if a.Summary == "" || a.Runbook == "" || a.Severity != health.Critical && a.Severity != health.Minor {
			t.Errorf("%s is not described well: %+v", a.Name, a)
		}
	}
}
