package operate

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/health"
	"weir/model"
	"weir/spool"
	"weir/store"
)

// How often the vitals are looked at, and the ledger among them; how far back the ledger is looked at then.
const (
	vitalsTick   = 10 * time.Second
	ledgerTick   = time.Minute
	ledgerReach  = 48 * time.Hour
	stalledAfter = 30 * time.Second
)

// vitals are figures of the instance that are not counted and must be looked at: how far the applier is behind, the
// disk, the ledger. With them the alerts are watched.
type vitals struct {
	o       *Operator
	machine health.Machine
	watch   *health.Watch
	meter   health.Meter

	unbalanced, free, size, dead, losses prometheus.Gauge

	pulse    pulse
	standing standing
	ledgered time.Time
}

func newVitals(o *Operator, m health.Machine) *vitals {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	v := &vitals{o: o, machine: m,
		unbalanced: gauge("weir_ledger_unbalanced_lines", "Lines of the ledger of the last two days that do not balance."),
		losses:     gauge("weir_log_recent_gaps", "Gaps found in the log within the last day; the value survives restarts."),
		free:       gauge("weir_disk_free_bytes", "Free space of the file system of the data directory."),
		size:       gauge("weir_disk_size_bytes", "Size of the file system of the data directory.")}
	v.dead = gauge("weir_dead_letters", "Dead letters kept, of all tenants and of unauthenticated senders, as of the last minute.")
	o.deps.Metrics.MustRegister(v.unbalanced, v.free, v.size, v.dead, v.losses,
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "weir_ingest_readings_stored_total", Help: "Readings stored since the start."},
			func() float64 { return float64(o.deps.Applier.ReadingsStored()) }))
	live := func(name, help string, value func() float64) {
		o.deps.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	live("weir_eventprocessing_detect_consumer_pending", "Records of the log not yet applied.", func() float64 { return float64(o.deps.Applier.Waiting()) })
	live("weir_eventprocessing_detect_lag_seconds", "Time by which applying lags behind receiving, 0 when no record waits.", func() float64 {
		now := model.NanosOf(time.Now())
		return max(now.Time().Sub(o.deps.Applier.AsOf(now).Time()).Seconds(), 0)
	})
	live("weir_ingest_applier_stalled", "1 while records wait and none is applied.", func() float64 {
		return map[bool]float64{true: 1}[v.beat(time.Now())]
	})
	budget := func(name, help string, value func(spool.BudgetState) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(o.deps.Writes.State()) })
	}
	o.deps.Metrics.MustRegister(
		budget("weir_spool_write_budget_bytes", "Bytes that may be written per day, 0 without a budget.", func(s spool.BudgetState) float64 { return float64(s.PerDay) }),
		budget("weir_disk_written_today_bytes", "Bytes written since the day began in UTC, or since the start when that was later.", func(s spool.BudgetState) float64 { return float64(s.Today) }),
		budget("weir_spool_stretched_commit_interval_seconds", "Time that commits wait to keep the write budget.", func(s spool.BudgetState) float64 { return s.CommitIntervalMillis / 1000 }),
		budget("weir_spool_write_budget_exhausted", "1 while the write budget is exceeded although commits wait as long as they may.", func(s spool.BudgetState) float64 {
			return map[bool]float64{true: 1}[s.Exhausted]
		}))
	if _, err := m.Written(); err == nil {
		o.deps.Metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "weir_disk_written_bytes_total",
			Help: "Bytes that this process wrote to disks, as counted by the kernel."}, v.written))
	}
	v.watch = health.NewWatch(health.Alerts(), o.deps.Metrics, o.deps.Log)
	return v
}

func (v *vitals) written() float64 {
	n, err := v.machine.Written()
	if err != nil {
		return 0
	}
	return float64(n)
}

// StartVitals looks once, so that nothing is missing from the first scrape on, and returns what looks every some seconds.
func (o *Operator) StartVitals(ctx context.Context) (run func(context.Context) error) {
	v := newVitals(o, health.ThisMachine())
	v.look(ctx, time.Now())
	o.vitals = v
	return func(ctx context.Context) error {
		t := time.NewTicker(vitalsTick)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case now := <-t.C:
				v.look(ctx, now)
			}
		}
	}
}

func (v *vitals) look(ctx context.Context, now time.Time) {
	v.beat(now)
	if fs, err := v.machine.FileSystem(v.o.deps.Config.DataDir); err == nil {
		v.free.Set(float64(fs.FreeBytes))
		v.size.Set(float64(fs.Bytes))
	}
	n, err := v.machine.Written()
	if err == nil {
		v.meter.Sample(now, n, v.o.deps.Applier.ReadingsStored())
	} else {
		n = -1
	}
	v.o.deps.Writes.Sample(now, n, v.o.deps.Spool.Stats().Batches)
	if now.Sub(v.ledgered) >= ledgerTick {
		v.ledgered = now
		v.lookAtLedger(ctx, now)
	}
	v.watch.Sample(now)
}

// beat looks at the applier, and reports whether it stands still.
func (v *vitals) beat(now time.Time) (stalled bool) {
	a := v.o.deps.Applier
	return v.pulse.beat(now, a.Applied(), a.Waiting(), a.Stalled() != "")
}

// lookAtLedger counts the lines that miss the same as a minute ago.
func (v *vitals) lookAtLedger(ctx context.Context, now time.Time) {
	if lost, err := losses(ctx, v.o.deps.Store); err == nil {
		v.losses.Set(float64(len(since(lost, now.Add(-lossAlert)))))
	}
	r, err := v.o.ledger(ctx, LedgerQuery{Since: new(now.Add(-ledgerReach))})
	if err != nil {
		return // what keeps the store from being read is reported elsewhere
	}
	v.unbalanced.Set(float64(v.standing.look(r.Lines)))
	var dead int64
	if v.o.deps.Store.Read(ctx, func(tx store.Tx) (err error) { dead, err = store.CountDeadLetters(tx); return err }) == nil {
		v.dead.Set(float64(dead))
	}
}

// shown is what the status shows; nothing while the instance starts.
func (v *vitals) shown() ([]string, *health.Writing) {
	if v == nil {
		return []string{}, nil
	}
	return append([]string{}, v.watch.Firing()...), v.meter.Writing()
}

func (v *vitals) writing() *health.Writing {
	_, w := v.shown()
	return w
}

// pulse is how the applier moves, from one look to the next.
type pulse struct {
	mu      sync.Mutex
	applied model.Offset
	moved   time.Time // when applied last changed, or nothing waited
}

// beat works out whether the applier stands still: records wait, and none was applied for a while.
func (p *pulse) beat(now time.Time, applied model.Offset, waiting int64, failing bool) (stalled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if waiting == 0 || applied != p.applied || p.moved.IsZero() {
		p.applied, p.moved = applied, now
	}
	return failing || now.Sub(p.moved) >= stalledAfter
}

// standing separates lines of the ledger that do not balance from messages that are moving at the instant of a look.
type standing struct{ missing map[[3]string]int64 }

// look returns how many lines miss the same as at the look before.
func (s *standing) look(lines []LedgerEntry) (still int) {
	missing := map[[3]string]int64{}
	for _, l := range lines {
		if l.Missing == 0 {
			continue
		}
		k := [3]string{l.Tenant, l.Transport, l.Hour.Format(time.RFC3339)}
		missing[k] = l.Missing
		if s.missing[k] == l.Missing {
			still++
		}
	}
	s.missing = missing
	return still
}
