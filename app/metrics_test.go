package app_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/made"

	"github.com/prometheus/client_golang/prometheus"

	"weir/app"
	"weir/config"
	"weir/internal/test/testcerts"
)

// description is the form in which the library prints what a collector describes.
var description = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), unit: "[^"]*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// TestMetricsAreFrozen holds name, labels, type and help of each metric against testdata/metrics.txt: dashboards and
// alerts of users depend on them. A new metric is added with go test ./app -run TestMetricsAreFrozen -update.
func TestMetricsAreFrozen(t *testing.T) {
	t.Parallel()
	const path = "testdata/metrics.txt"
	got := metricsOf(t, withEveryListener(t))
	got = merged(got, metricsOf(t, withAnEdge(t)))
	if made.Update() {
		made.Write(t, path, []byte(got))
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(want)) {
		if !strings.Contains("\n"+got, "\n"+line) {
			t.Errorf("removed or changed: %s", line)
		}
	}
	for line := range strings.Lines(got) {
		if !strings.Contains("\n"+string(want), "\n"+line) {
			t.Errorf("not in %s: %s", path, line)
		}
	}
}

// withEveryListener returns a running instance with TLS and open topics.
func withEveryListener(t *testing.T) *app.Instance {
	t.Helper()
	ca, err := testcerts.NewCA("test CA")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server(time.Now().Add(24 * time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	if cfg.TLS.Cert, cfg.TLS.Key, err = pair.Write(t.TempDir(), "server"); err != nil {
		t.Fatal(err)
	}
	cfg.DataDir = t.TempDir() + "/d"
	const free = "127.0.0.1:0"
	cfg.Listeners = config.Listeners{API: free, Ingest: free, MQTT: free, MQTTS: free, LwM2M: free, Metrics: free}
	cfg.Broker.OpenTopics, cfg.Broker.OpenTopicsAnonymous = free, true
	aSource(&cfg)
	in := &instance{Instance: app.New(cfg, app.Options{}), cfg: cfg}
	in.run(t, context.Background())
	return in.Instance
}

// merged is the lines of both, each once, in their order.
func merged(a, b string) string {
	lines := slices.Collect(strings.Lines(a + b))
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "")
}

// withAnEdge returns a running edge.
func withAnEdge(t *testing.T) *app.Edge {
	t.Helper()
	const free = "127.0.0.1:0"
	cfg := config.Default()
	cfg.Role, cfg.DataDir = config.RoleEdge, t.TempDir()+"/d"
	cfg.Listeners = config.Listeners{API: free, Ingest: free, Metrics: free}
	cfg.Edge.Listen, cfg.Edge.Uplink.BrokerURL = free, "tcp://127.0.0.1:1"
	in := app.NewEdge(cfg, app.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- in.Run(ctx, func() { close(ready) }, nil) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	}
	return in
}

// registered has metrics.
type registered interface{ Registry() *prometheus.Registry }

// metricsOf returns a line for each metric of Weir's own, in the order of their names.
func metricsOf(t *testing.T, in registered) string {
	t.Helper()
	var types map[string]string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); { // until each listener accepts
		if types = typesOf(t, in); !slices.ContainsFunc(ofListeners, func(name string) bool { return types[name] == "" }) {
			break
		}
	}
	var lines []string
	for _, d := range descriptions(in.Registry()) {
		m := description.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("the library describes a metric in another form: %s", d)
		}
		name, help := strings.Trim(m[1], `"`), strings.ReplaceAll(strings.Trim(m[2], `"`), `\"`, `"`)
		if !strings.HasPrefix(name, "weir_") { // a metric of the Go runtime or of the process
			continue
		}
		labels := strings.FieldsFunc(m[4], func(r rune) bool { return r == ',' || r == ' ' })
		for _, c := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(m[3], -1) {
			labels = append(labels, c[1])
		}
		if types[name] == "" {
			t.Errorf("%s has no series in a new instance: create those of the known label values with the metric", name)
		}
		lines = append(lines, fmt.Sprintf("%s{%s} %s %s\n", name, strings.Join(labels, ","), types[name], help))
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "")
}

// ofListeners are metrics that appear with the goroutines that serve listeners.
var ofListeners = []string{"weir_broker_listener_connections", "weir_broker_listener_accepted_total", "weir_socket_connections", "weir_metrics_connections",
	"weir_http_connections", "weir_httpingest_connections"}

// typesOf returns the type of each metric that has a series.
func typesOf(t *testing.T, in registered) map[string]string {
	t.Helper()
	families, err := in.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]string{}
	for _, f := range families {
		types[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	return types
}

func descriptions(reg *prometheus.Registry) []*prometheus.Desc {
	ch := make(chan *prometheus.Desc)
	go func() {
		reg.Describe(ch)
		close(ch)
	}()
	var all []*prometheus.Desc
	for d := range ch {
		all = append(all, d)
	}
	return all
}
