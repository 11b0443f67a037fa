package ingest

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/throttle"
	"weir/model"
	"weir/spool"
)

// When new messages are refused, and when they are taken again. Of bytes and records of the log, in parts of its budget: nine
// tenths and eight tenths. Of its disk, in parts of the reserve: below it, and from five quarters on.
const (
	runwayRefuse = 30 * time.Second // the log would be full in less, at the current rates
	runwayResume = 60 * time.Second
	runwayOver   = 10 * time.Second // the rates are measured over this time
	runwayMin    = 5 * time.Second  // … and from no less than this
	pressureTick = 200 * time.Millisecond
	behindTick   = 50 * time.Millisecond // while the applier is behind
)

// Cause is why new messages are turned away, as the label of the metric.
type Cause string

// The causes. The first three are of the log: its bytes, its records, and that it will soon be full.
const (
	CauseBytes   Cause = "bytes"
	CauseRecords Cause = "records"
	CauseRunway  Cause = "runway"
	CauseDisk    Cause = "disk"
)

// causes are all of them, each with the key of the configuration that bounds it.
var causes = []struct {
	Cause
	key string
}{{CauseBytes, "ingest.spool_max_bytes"}, {CauseRecords, "ingest.spool_max_messages"}, {CauseRunway, "ingest.spool_max_bytes"}, {CauseDisk, "spool.disk_reserve"}}

// GaugeConfig is what a gauge watches.
type GaugeConfig struct {
	Log spool.Log
	// Applied is the newest record that is applied: whether the log fills follows from it; nil: the runway is not watched.
	Applied func() model.Offset
	// Done is the newest record that only another reader of the log than the applier still needs: it slows no sender. nil: there is no other reader.
	Done func() model.Offset
	// Disk is what is free on the disk of the log, and how large it is; nil: the disk is not watched.
	Disk func() (free, size int64, err error)
	DiskSettings
	// Throttle is kept up to date; nil: there is none.
	Throttle *throttle.Throttle
	Logger   *slog.Logger // nil: silent
	Registry prometheus.Registerer
}

// What applying takes, in units of about 10 ns: a record, each of its readings, each rule that judges, each edge; a change of the
// registry that a message causes, which is a transaction, and each attribute of a device report; an alarm that an edge reaches, and a row of
// the outbox.
const (
	costRecord    = 60
	costReading   = 25
	costJudgement = 1
	costEdge      = 30
	costFold      = 8_000
	costOrder     = 2_000
	costCaused    = 20_000
	costAttribute = 6_000
)

// workMeter adds up what the tenants of a batch cost the applier. One goroutine uses it.
type workMeter struct {
	work []throttle.Work
	cost int64 // of all
}

// add adds a record. Those of a tenant come in a row more often than not; a batch of many tenants has some lines for each.
func (w *workMeter) add(tenant string, readings int, judged int64) {
	if n := len(w.work); n == 0 || w.work[n-1].Tenant != tenant {
		w.work = append(w.work, throttle.Work{Tenant: tenant})
	}
	last := &w.work[len(w.work)-1]
	cost := costRecord + costReading*int64(readings) + judged
	last.Readings += int64(max(readings, 1))
	last.Cost += cost
	w.cost += cost
}

// report hands over what was added and begins again.
func (w *workMeter) report(t *throttle.Throttle) {
	if t != nil {
		t.Applied(w.work)
	}
	clear(w.work)
	w.work, w.cost = w.work[:0], 0
}

// Gauge watches how full the log and its disk are. It implements Pressure.
type Gauge struct {
	GaugeConfig

	refusing, full atomic.Bool // read for every message

	mu      sync.Mutex
	on      map[Cause]bool
	changed chan struct{} // closed when the log has more space than before
	first   model.Offset  // of the log
	samples []sample      // of the last runwayOver, oldest first
	runway  time.Duration
	reserve int64
}

// sample is how far the log and the applier were.
type sample struct {
	at            time.Time
	through       int64 // bytes ever appended
	last, applied model.Offset
}

// endless is the runway of a log that does not fill.
const endless = time.Duration(math.MaxInt64)

// NewGauge returns a gauge. Run keeps it moving.
func NewGauge(c GaugeConfig) *Gauge {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Gauge{
		GaugeConfig: c,
		on:          map[Cause]bool{},
		changed:     make(chan struct{}),
		runway:      endless,
		reserve:     int64(c.DiskReserve),
	}
	g.Sample()
	if c.Registry != nil {
		c.Registry.MustRegister(g.collectors()...)
	}
	return g
}

func (g *Gauge) collectors() []prometheus.Collector {
	gauge := func(name, help string, labels prometheus.Labels, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value)
	}
	all := []prometheus.Collector{
		gauge("weir_ingest_backpressure", "1 while new messages are refused because the log is nearly full.", nil, func() float64 { return truth(g.Refusing()) }),
		gauge("weir_ingest_backpressure_full", "1 while all messages are refused because the disk of the log is nearly full.", nil, func() float64 { return truth(g.Full()) }),
		gauge("weir_ingest_runway_seconds", "Time until the log is full at the rate of the last ten seconds.", nil, func() float64 {
			if d := g.Runway(); d < endless {
				return d.Seconds()
			}
			return math.Inf(1)
		}),
		gauge("weir_ingest_disk_reserve_bytes", "Free disk space below which new messages are refused.", nil, func() float64 {
			g.mu.Lock()
			defer g.mu.Unlock()
			return float64(g.reserve)
		}),
	}
	if g.Throttle != nil {
		all = append(all, throttled(g.Throttle)...)
	}
	for _, c := range causes {
		all = append(all, gauge("weir_ingest_backpressure_cause", "1 while new messages are refused for this cause.", prometheus.Labels{"cause": string(c.Cause)}, func() float64 {
			g.mu.Lock()
			defer g.mu.Unlock()
			return truth(g.on[c.Cause])
		}))
	}
	return all
}

// throttled are the metrics of a throttle.
func throttled(t *throttle.Throttle) (all []prometheus.Collector) {
	for _, r := range throttle.Reasons() {
		labels := prometheus.Labels{"reason": string(r)}
		all = append(all, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "weir_ingest_slowed_messages_total", ConstLabels: labels,
			Help: "Messages whose acknowledgement was delayed because applying lags behind (lag) or the log fills (fill)."}, func() float64 {
			n, _ := t.Delayed(r)
			return float64(n)
		}), prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_ingest_slowed_delay_seconds", ConstLabels: labels,
			Help: "Longest delay of an acknowledgement in the last second, by reason; 0 when none is delayed."}, func() float64 {
			_, d := t.Delayed(r)
			return d.Seconds()
		}))
	}
	return all
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Run samples the log until ctx ends.
func (g *Gauge) Run(ctx context.Context) error {
	t := time.NewTimer(pressureTick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			g.Sample()
			t.Reset(g.tick())
		}
	}
}

// tick is when to sample again.
func (g *Gauge) tick() time.Duration {
	if g.Throttle != nil && g.Throttle.Lag() > 0 {
		return behindTick
	}
	return pressureTick
}

// Sample implements Pressure.
func (g *Gauge) Sample() {
	// Ask log, applier and disk before the lock is taken: the disk may be slow.
	s := g.Log.Stats()
	var applied model.Offset
	if g.Applied != nil {
		applied = g.Applied()
	}
	var free, size int64
	known := false
	if g.Disk != nil {
		var err error
		free, size, err = g.Disk()
		known = err == nil // a disk that fails is reported by the log, when it cannot write
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	before, full := g.causes(), g.full.Load()
	records := int64(s.Last + 1 - s.First)
	// Senders are slowed by what the applier has yet to do, not by what only an uplink still needs.
	if g.Throttle != nil {
		own := records // of the applier
		if g.Done != nil {
			own = min(own, int64(s.Last)-int64(g.Done()))
		}
		bytes := int64(float64(s.Bytes) * part(own, records)) // as if all were of one size
		g.Throttle.Sample(time.Now(), uint64(s.Last), uint64(applied), max(part(bytes, s.MaxBytes), part(own, s.MaxRecords)))
	}
	// Each cause begins and ends at different values, so that it does not flicker.
	g.on[CauseBytes] = between(g.on[CauseBytes], s.Bytes >= nineTenths(s.MaxBytes), s.Bytes <= eightTenths(s.MaxBytes))
	g.on[CauseRecords] = between(g.on[CauseRecords], records >= nineTenths(s.MaxRecords), records <= eightTenths(s.MaxRecords))
	if g.Applied != nil {
		g.runway = g.forecast(s, applied, time.Now())
		g.on[CauseRunway] = between(g.on[CauseRunway], g.runway < runwayRefuse, g.runway >= runwayResume)
	}
	// An unknown state of the disk changes nothing.
	if known {
		g.reserve = min(int64(g.DiskReserve), size/20)
		g.on[CauseDisk] = between(g.on[CauseDisk], free < g.reserve, free >= g.reserve+g.reserve/4)
		g.full.Store(between(full, free < g.reserve/2, free >= g.reserve*3/4))
	}
	freed := s.First > g.first
	g.first = s.First
	g.report(before, full, freed)
}

// part is n as a part of all, 0 when there is no bound.
func part(n, all int64) float64 {
	if all <= 0 {
		return 0
	}
	return float64(n) / float64(all)
}

// between is a state that begins and ends at different values.
func between(on, begins, ends bool) bool {
	if on {
		return !ends
	}
	return begins
}

// nineTenths is the smallest whole number that is nine tenths of n, eightTenths the largest that is no more than eight.
func nineTenths(n int64) int64  { return n - n/10 }
func eightTenths(n int64) int64 { return n - n/5 - min(n%5, 1) }

// forecast returns when the log will be full at the rate of the last seconds: it keeps what is appended and not applied. It
// needs the lock.
func (g *Gauge) forecast(s spool.Stats, applied model.Offset, now time.Time) time.Duration {
	// Keep the samples of the time over which the rate is measured, one from before it.
	g.samples = append(g.samples, sample{now, s.Through, s.Last, applied})
	for len(g.samples) > 2 && now.Sub(g.samples[1].at) >= runwayOver {
		g.samples = g.samples[1:]
	}
	from := g.samples[0]
	over := now.Sub(from.at)
	in := float64(s.Last) - float64(from.last)
	left := in - (float64(applied) - float64(from.applied)) // that were appended and not applied
	if over < runwayMin || applied >= s.Last || in <= 0 || left <= 0 {
		return endless
	}
	// Only what is not applied stays in the log.
	perSecond := left / over.Seconds()
	bytesPerSecond := float64(s.Through-from.through) * min(left/in, 1) / over.Seconds()
	runway := math.Inf(1)
	for _, c := range [][2]float64{{float64(s.MaxBytes - s.Bytes), bytesPerSecond}, {float64(s.MaxRecords - int64(s.Last+1-s.First)), perSecond}} {
		if c[1] > 0 {
			runway = min(runway, max(c[0], 0)/c[1])
		}
	}
	if runway >= endless.Seconds()/2 {
		return endless
	}
	return time.Duration(runway * float64(time.Second))
}

// report wakes the waiting senders when the log has more space than before, and logs every change of state. A message that found the log
// full waits for any space, not until nothing is refused any more. It needs the lock.
func (g *Gauge) report(before []string, full, freed bool) {
	now := g.causes()
	g.refusing.Store(len(now) > 0)
	// Wake the waiting messages: closing the channel reaches all of them.
	if len(before) > 0 && (freed || len(now) == 0) || full && !g.full.Load() {
		close(g.changed)
		g.changed = make(chan struct{})
	}
	switch {
	case len(before) == 0 && len(now) > 0:
		g.Logger.Warn("new messages are refused: there is no room for them", "cause", strings.Join(now, ", "), "keys", strings.Join(g.keys(), ", "))
	case len(before) > 0 && len(now) == 0:
		g.Logger.Info("new messages are taken again", "was", strings.Join(before, ", "))
	}
}

// causes are those that hold. It needs the lock.
func (g *Gauge) causes() (all []string) {
	for _, c := range causes {
		if g.on[c.Cause] {
			all = append(all, string(c.Cause))
		}
	}
	return all
}

// keys are what bounds them. It needs the lock.
func (g *Gauge) keys() (all []string) {
	for _, c := range causes {
		if g.on[c.Cause] {
			all = append(all, c.key)
		}
	}
	return all
}

// Refusing implements Pressure.
func (g *Gauge) Refusing() bool { return g.refusing.Load() }

// Full implements Pressure.
func (g *Gauge) Full() bool { return g.full.Load() }

// Why names the causes for which new messages are refused, none when they are not.
func (g *Gauge) Why() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.causes()
}

// Runway is the time until the log is full at the rate of the last seconds; more than a century when it does not fill.
func (g *Gauge) Runway() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.runway
}

// Wait implements Pressure: it waits until the log has more space than now, or one tick when nothing is refused although the log was
// full.
func (g *Gauge) Wait(ctx context.Context) error {
	// Channel and state are read together, or a change between the two would be missed.
	g.mu.Lock()
	changed, refusing := g.changed, g.refusing.Load()
	g.mu.Unlock()
	if refusing {
		select {
		case <-changed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	t := time.NewTimer(pressureTick)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
