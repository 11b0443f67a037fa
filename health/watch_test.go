package health

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/test/conformance"
	"weir/internal/test/need"
	"weir/spool"
)

// watchWorld is a watch over a gauge, a counter and a histogram, with a clock that is moved.
type watchWorld struct {
	watch *Watch
	gauge prometheus.Gauge
	count *prometheus.CounterVec
	took  prometheus.Histogram
	log   bytes.Buffer
	now   time.Time
}

func newWatchWorld(t *testing.T) *watchWorld {
	t.Helper()
	w := &watchWorld{gauge: prometheus.NewGauge(prometheus.GaugeOpts{Name: "g"}), now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
		count: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "c"}, []string{"kind"}), took: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h"})}
	reg := prometheus.NewRegistry()
	reg.MustRegister(w.gauge, w.count, w.took)
	w.watch = NewWatch([]Alert{
		{Name: "Held", When: Condition{Metric: "g", Above: 5}, For: time.Minute},
		{Name: "Grown", When: Condition{Metric: "c", Labels: [][2]string{{"kind", "bad"}}, Within: 10 * time.Minute, Above: 3}},
		{Name: "Slow", When: Condition{Metric: "h", Mean: 10 * time.Minute, Above: 0.2}},
		{Name: "Absent", When: Condition{Metric: "nothing", Below: true, Above: 1}},
	}, reg, slog.New(slog.NewTextHandler(&w.log, nil)))
	return w
}

// look looks every ten seconds for a while and returns what was logged meanwhile.
func (w *watchWorld) look(d time.Duration) string {
	w.log.Reset()
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(10 * time.Second) {
		w.watch.Sample(w.now)
	}
	return w.log.String()
}

func TestAnAlertIsLoggedWhenItBeginsAndWhenItIsOverAndNotBetween(t *testing.T) {
	t.Parallel()
	w := newWatchWorld(t)
	w.gauge.Set(6)
	if got := w.look(50 * time.Second); got != "" {
		t.Errorf("before its time: %s", got)
	}
	got := w.look(time.Hour)
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN msg=alert alert=Held") || !strings.Contains(got, "value=6") {
		t.Errorf("an hour: %s", got)
	}
	if f := w.watch.Firing(); len(f) != 1 || f[0] != "Held" {
		t.Errorf("firing: %v", f)
	}
	w.gauge.Set(5)
	if got := w.look(time.Hour); strings.Count(got, "\n") != 1 || !strings.Contains(got, `level=INFO msg="alert over" alert=Held`) {
		t.Errorf("over: %s", got)
	}
	w.gauge.Set(6)
	w.look(30 * time.Second)
	w.gauge.Set(1)
	w.look(30 * time.Second)
	w.gauge.Set(6)
	if got := w.look(50 * time.Second); got != "" {
		t.Errorf("a condition that did not hold through: %s", got)
	}
}

func TestACounterIsSeenByItsGrowthWithinASpan(t *testing.T) {
	t.Parallel()
	w := newWatchWorld(t)
	w.count.WithLabelValues("good").Add(100)
	w.count.WithLabelValues("bad").Add(50) // before anybody looked
	if got := w.look(time.Minute); got != "" {
		t.Errorf("what was there before: %s", got)
	}
	w.count.WithLabelValues("bad").Add(3)
	if got := w.look(time.Minute); got != "" {
		t.Errorf("three: %s", got)
	}
	w.count.WithLabelValues("bad").Add(1)
	if got := w.look(8 * time.Minute); strings.Count(got, "alert=Grown") != 1 {
		t.Errorf("four: %s", got)
	}
	if got := w.look(12 * time.Minute); !strings.Contains(got, `"alert over" alert=Grown`) {
		t.Errorf("after the span: %s", got)
	}
}

// TestASourceThatNotOneNodeReads is reported after two minutes, whether none reads it or several do.
func TestASourceThatNotOneNodeReads(t *testing.T) {
	t.Parallel()
	owner := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_eventsources_external_mqtt_owner"}, []string{"source", "instance"})
	reg := prometheus.NewRegistry()
	reg.MustRegister(owner)
	var alert Alert
	for _, a := range Alerts() {
		if a.Name == "ExternalMqttSourceNotReadByOnePod" {
			alert = a
		}
	}
	if expr := alert.Expr(); expr != "sum by (source) (weir_eventsources_external_mqtt_owner) != 1" || alert.For != 2*time.Minute || alert.Severity != Critical {
		t.Fatalf("%s, for %v, %s", expr, alert.For, alert.Severity)
	}
	w := watchWorld{now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
	w.watch = NewWatch([]Alert{alert}, reg, slog.New(slog.NewTextHandler(&w.log, nil)))
	readers := func(a, b float64) {
		owner.WithLabelValues("plant", "a").Set(a)
		owner.WithLabelValues("plant", "b").Set(b)
		owner.WithLabelValues("other", "b").Set(1)
	}
	for _, several := range []float64{0, 1} {
		readers(1, 0)
		w.look(time.Hour)
		if len(w.watch.Firing()) > 0 {
			t.Fatal("one reader is an alert")
		}
		readers(several, several)
		w.look(110 * time.Second)
		if len(w.watch.Firing()) > 0 {
			t.Errorf("%v and %v: fires before two minutes", several, several)
		}
		w.look(20 * time.Second)
		if len(w.watch.Firing()) != 1 {
			t.Errorf("%v and %v: does not fire after two minutes", several, several)
		}
	}
	conformance.Shown(t, "S2-057")
}

func TestAHistogramIsSeenByItsMeanWithinASpan(t *testing.T) {
	t.Parallel()
	w := newWatchWorld(t)
	for range 1000 {
		w.took.Observe(0.001)
	}
	w.look(11 * time.Minute)
	for range 10 {
		w.took.Observe(0.5)
	}
	if got := w.look(time.Minute); strings.Count(got, "alert=Slow") != 1 {
		t.Errorf("slow: %q", got)
	}
	for range 1000 {
		w.took.Observe(0.001)
	}
	if got := w.look(time.Minute); !strings.Contains(got, `"alert over" alert=Slow`) {
		t.Errorf("fast again: %q", got)
	}
}

func TestTheRulesFileReadsAsPrometheusReadsIt(t *testing.T) {
	t.Parallel()
	promtool := need.Program(t, "promtool")
	file := filepath.Join(t.TempDir(), "weir.rules.yml")
	if err := os.WriteFile(file, []byte(Rules(Alerts(), "docs")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestEveryRunbookIsAHeading(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			anchors[anchor(title)] = true
		}
	}
	for _, a := range Alerts() {
		if !anchors[a.Runbook] {
			t.Errorf("%s: docs/troubleshooting.md has no heading %s", a.Name, a.Runbook)
		}
	}
}

// anchor is how a heading is linked to.
func anchor(title string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(title)) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		}
	}
	return b.String()
}

func TestWrittenBytesAreReportedPerReadingAndPerDay(t *testing.T) {
	t.Parallel()
	var m Meter
	if w := m.Writing(); w != nil {
		t.Errorf("before the first look: %v", w)
	}
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for i := range 720 { // two hours, ten seconds apart: a busy one, then 1 MB in ten seconds
		n := int64(i) * 1e6
		if i < 360 {
			n = int64(i) * 1e5
		}
		m.Sample(now, n, int64(i)*1000)
		now = now.Add(10 * time.Second)
	}
	w := m.Writing()
	if w.Bytes != 719e6 || w.PerReading != 1000 || w.Span != time.Hour || w.PerDay < 15.8e9 || w.PerDay > 17.2e9 {
		t.Errorf("%+v", w)
	}
	if got, want := w.String(), "686 MiB since the start, 1000 B a reading; 15 GiB a day, going by the last 1h0m0s"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	few := Writing{Bytes: 1 << 20, Readings: 999, PerReading: 1 << 20}
	if got, want := few.String(), "1.0 MiB since the start"; got != want {
		t.Errorf("the writes of the start count for few readings: %s, want %s", got, want)
	}
	if f := Wear(w, nil).Look(t.Context()); f.Result != OK {
		t.Errorf("15 GiB a day: %+v", f)
	}
	w.PerDay = 60 << 30
	if f := Wear(w, nil).Look(t.Context()); f.Result != Warning || !strings.Contains(f.Hint, "spool.write_budget") {
		t.Errorf("60 GiB a day: %+v", f)
	}
	w.Span = time.Minute
	if f := Wear(w, nil).Look(t.Context()); f.Result != OK {
		t.Errorf("a minute says nothing: %+v", f)
	}
	if f := Wear(nil, nil).Look(t.Context()); f.Result != Skipped {
		t.Errorf("unknown: %+v", f)
	}
	b := &spool.BudgetState{PerDay: 20 << 30, Today: 3 << 30, CommitIntervalMillis: 70}
	if f := Wear(nil, b).Look(t.Context()); f.Result != OK || f.Text != "write budget: 3.0 GiB of 20 GiB today; commits wait 70 ms for it" {
		t.Errorf("within its budget: %+v", f)
	}
	b.Exhausted = true
	if f := Wear(nil, b).Look(t.Context()); f.Result != Warning || !strings.Contains(f.Hint, "spool.commit_interval_max") {
		t.Errorf("a budget that cannot be kept: %+v", f)
	}
}

func TestThePageOnMonitoringHasEveryAlertAsItIs(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range Alerts() {
		if row := "| " + a.Name + " | " + string(a.Severity) + " | " + strings.TrimSuffix(a.Summary, ".") + ": `" + a.Expr() + "`"; !strings.Contains(string(b), row) {
			t.Errorf("docs/monitoring.md has no row %s", row)
		}
	}
}
