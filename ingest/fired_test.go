package ingest

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/model"
)

func TestDetectionsAreCountedByProfileAndSeverity(t *testing.T) {
	t.Parallel()
	c := newFiredCounter()
	edge := func(profile string, s model.EdgeSignal) model.Edge {
		return model.Edge{Tenant: "acme", Profile: profile, Severity: "major", Signal: s}
	}
	value := func(labels ...string) float64 { return testutil.ToFloat64(c.WithLabelValues(labels...)) }
	c.count([]model.Edge{edge("p", model.Raised), edge("p", model.Resolved), edge("p", model.Raised)})
	if r, e := value("acme", "p", "major", "raised"), value("acme", "p", "major", "resolved"); r != 2 || e != 1 {
		t.Errorf("raised %v, resolved %v", r, e)
	}
	for i := range 2 * maxFiredLabels {
		c.count([]model.Edge{edge(fmt.Sprint("q", i), model.Raised)})
	}
	c.count([]model.Edge{edge("p", model.Raised)})
	if n := testutil.CollectAndCount(c); n != maxFiredLabels+2 {
		t.Errorf("%d series, want %d and those of the others", n, maxFiredLabels)
	}
	if p, other := value("acme", "p", "major", "raised"), value("", "(other)", "", "raised"); p != 3 || other != maxFiredLabels+2 {
		t.Errorf("p %v, others %v", p, other)
	}
}
