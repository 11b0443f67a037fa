package ingest

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/spool"
)

// How full the log may be, in percent of its budget, before doors that can say so turn messages away, and how empty it
// must be before they take them again.
const (
	refuseAt     = 90
	resumeAt     = 80
	pressureTick = 200 * time.Millisecond
)

// Gauge watches how full the log is and tells the doors. It implements Pressure.
type Gauge struct {
	log spool.Log

	mu       sync.Mutex
	refusing bool
	changed  chan struct{} // closed when refusing ends
}

// NewGauge returns a gauge of the log. Run keeps it moving.
func NewGauge(log spool.Log, reg prometheus.Registerer) *Gauge {
	g := &Gauge{log: log, changed: make(chan struct{})}
	g.Look()
	if reg != nil {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_ingest_backpressure",
			Help: "1 while the log is so full that new messages are refused."}, func() float64 {
			if g.Refusing() {
				return 1
			}
			return 0
		}))
	}
	return g
}

// Run looks at the log until ctx ends.
func (g *Gauge) Run(ctx context.Context) error {
	t := time.NewTicker(pressureTick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			g.Look()
		}
	}
}

// Look implements Pressure.
func (g *Gauge) Look() {
	s := g.log.Stats()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !g.refusing && s.Bytes*100 >= s.MaxBytes*refuseAt:
		g.refusing = true
	case g.refusing && s.Bytes*100 <= s.MaxBytes*resumeAt:
		g.refusing = false
		close(g.changed)
		g.changed = make(chan struct{})
	}
}

// Refusing implements Pressure.
func (g *Gauge) Refusing() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refusing
}

// Room implements Pressure: it waits until the log is emptier, or one tick when it is not refusing and yet was full.
func (g *Gauge) Room(ctx context.Context) error {
	g.mu.Lock()
	changed, refusing := g.changed, g.refusing
	g.mu.Unlock()
	if !refusing {
		changed = nil
	}
	t := time.NewTimer(pressureTick)
	defer t.Stop()
	for {
		select {
		case <-changed:
			return nil
		case <-t.C:
			if !refusing {
				return nil
			}
			t.Reset(time.Hour)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
