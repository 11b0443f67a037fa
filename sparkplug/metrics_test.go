package sparkplug

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestSourcesShareTheirMetrics: hosts and the other sources are one series each of the same metrics, and a source at several brokers is
// connected when all of them are.
func TestSourcesShareTheirMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	theirs := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_source_connected", Help: "1 while the source is connected to its broker and subscribed, else 0."}, []string{"source"})
	reg.MustRegister(theirs)
	theirs.WithLabelValues("plant").Set(1)
	g := &gauges{all: map[*host]figures{}, m: newMetrics(reg)}
	one, two := &host{id: "sparkplug:weir"}, &host{id: "sparkplug:weir"}
	connected := func(want float64) {
		t.Helper()
		if got := testutil.ToFloat64(theirs.WithLabelValues("sparkplug:weir")); got != want {
			t.Errorf("connected %v, want %v", got, want)
		}
	}
	g.set(one, figures{up: true, received: 5, reconnects: 1, last: time.Unix(70, 0)})
	connected(1)
	g.set(two, figures{received: 2, last: time.Unix(60, 0)})
	connected(0)
	g.set(two, figures{up: true, received: 3})
	connected(1)
	received, reconnects, last := testutil.ToFloat64(g.m.received.WithLabelValues("sparkplug:weir")), testutil.ToFloat64(g.m.reconnects.WithLabelValues("sparkplug:weir")), testutil.ToFloat64(g.m.last.WithLabelValues("sparkplug:weir"))
	if received != 8 || reconnects != 1 || last != 70 {
		t.Errorf("%v received, %v reconnects, the last at %v", received, reconnects, last)
	}
	if n, err := testutil.GatherAndCount(reg, "weir_source_connected"); n != 2 || err != nil {
		t.Errorf("%d series are gathered: %v", n, err)
	}
}
