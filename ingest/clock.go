package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
	"weir/spool"
)

const (
	// clockSlack is how far the wall clock may lie before the newest stamp and still be plausible: time servers step clocks
	// back by small amounts, and the stamps slow down until the clock has caught up.
	clockSlack = model.Nanos(time.Minute)
	// clockSteady is by how much the wall clock may differ from the monotonic one, since both were read together, before it counts as a step.
	clockSteady = model.Nanos(10 * time.Millisecond)
	// clockUnit is the unit of the monotonic time of stamps: half of it is a microsecond, the unit in which receive times are kept.
	clockUnit = 2 * time.Microsecond
	clockTick = time.Second
	// guessAt is how full the log may be, in percent of its budget, before waiting for the clock ends.
	guessAt = 80
)

// ClockConfig is the configuration of a clock.
type ClockConfig struct {
	Boot uint64
	// Now returns the wall clock's time and the monotonic time since the start.
	Now func() (wall time.Time, mono time.Duration)
	// Built is the build time of the program: no earlier time is plausible.
	Built time.Time
	// Synchronized reports whether the system says that its clock is synchronized: then it is believed even when it
	// lies before the newest stamp. nil: it never does.
	Synchronized func() bool
	Log          spool.Log
	Logger       *slog.Logger
	Registry     prometheus.Registerer
}

// Clock gives out stamps and decides whether the wall clock is plausible. A wall clock is plausible when it lies neither before
// the build nor before the newest stamp of the log. Until then, messages are stamped with monotonic time, and the applier
// waits; then a time map in the log gives the time of day of each stamp. A replay reads the map and asks no clock.
type Clock struct {
	cfg ClockConfig

	mu     sync.Mutex
	begun  bool
	unset  bool // no time of day is known
	behind bool // the wall clock went back by more than the slack
	floor  model.Nanos
	since  int64 // monotonic time at which the floor held
	newest model.Nanos
	at     int64 // monotonic time of newest
	// The stamps go on evenly with the monotonic time, from base at the monotonic time from: at half of its speed while the wall
	// clock lies before the newest one.
	base   model.Nanos
	from   int64
	slow   bool
	known  *model.TimeMap // of this boot, once it is durable
	mapped chan struct{}  // closed with known
	now    model.Nanos    // last reading of the wall clock
	gap    prometheus.Gauge
}

// NewClock returns a clock that trusts the wall clock until Begin, except for times before the build.
func NewClock(cfg ClockConfig) *Clock {
	c := &Clock{cfg: cfg, mapped: make(chan struct{}), gap: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_clock_behind_seconds",
		Help: "Time by which the system clock lags behind the newest receive stamp, otherwise 0."})}
	if !cfg.Built.IsZero() {
		c.floor = model.NanosOf(cfg.Built)
	}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(c.gap, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_clock_plausible",
			Help: "1 while the system clock is plausible: neither before the build time nor before the newest receive stamp."}, func() float64 {
			if c.Doubt() != "" {
				return 0
			}
			return 1
		}))
	}
	return c
}

// Begin compares the wall clock with the newest stamp of the log. It is called once, when everything that the log held at the
// start is applied and before anything is stamped that goes into it.
func (c *Clock) Begin(newest model.Nanos) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, mono := c.readClock()
	// Stamps continue from the newest of the log, never before it.
	c.floor, c.since, c.begun = max(c.floor, newest), mono, true
	c.newest, c.at = max(c.newest, newest), mono
	c.base, c.from, c.slow = c.newest, c.at, false
	// Until the clock is set, stamps say only how much time has passed.
	if c.unset = !c.plausible(wall); c.unset {
		c.cfg.Logger.Warn("the clock cannot be believed; what comes in is kept and waits until it is set", "clock", stampText(wall), "not before", stampText(c.floor))
	}
}

func (c *Clock) readClock() (wall model.Nanos, mono int64) {
	t, d := c.cfg.Now()
	c.now = model.NanosOf(t)
	return c.now, int64(d.Truncate(clockUnit))
}

func (c *Clock) plausible(wall model.Nanos) bool {
	return wall >= c.floor-clockSlack ||
		wall >= c.built() && c.cfg.Synchronized != nil && c.cfg.Synchronized()
}

func (c *Clock) built() model.Nanos {
	if c.cfg.Built.IsZero() {
		return 0
	}
	return model.NanosOf(c.cfg.Built)
}

// Stamp returns the receive time of what arrives now. The wall time of a stamp is never before that of an earlier stamp. Between two
// steps of the wall clock it goes on exactly with the monotonic time, so that the listening time of a record follows from it.
func (c *Clock) Stamp() model.Stamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, mono := c.readClock()
	s := model.Stamp{Boot: c.cfg.Boot, Mono: mono}
	switch {
	case c.unset:
		s.Clock, wall = model.ClockUnset, c.floor+model.Nanos(mono-c.since)
		c.base, c.from = wall, mono
	case !c.begun:
		wall = max(wall, c.floor+model.Nanos(mono))
	default:
		c.step(wall)
		if c.behind {
			s.Clock = model.ClockBehind
			if wall >= c.built() {
				s.Shown = wall
			}
		}
		wall = c.follow(wall, mono)
	}
	// Never go back, also not when the wall clock does.
	c.newest, c.at = max(c.newest, wall), mono
	s.Wall = c.newest
	return s
}

// follow returns the wall time of a stamp. It follows the wall clock, but never goes back: while the wall clock lies before the newest
// stamp, stamps go on at half speed, so that the clock catches up and distinct times stay distinct.
func (c *Clock) follow(wall model.Nanos, mono int64) model.Nanos {
	// Without a step the stamp follows the monotonic clock alone, exactly.
	even := c.base + model.Nanos(mono-c.from)
	if !c.slow && wall-even <= clockSteady && even-wall <= clockSteady {
		return even
	}
	// The wall clock went back: slow down until it has caught up.
	if !c.slow && wall < even {
		c.base, c.from, c.slow = c.newest, c.at, true
	}
	if half := c.base + model.Nanos(mono-c.from)/2; c.slow && wall < half {
		return half
	}
	// A step forward, or the end of one back: go on from the wall clock.
	c.base, c.from, c.slow = wall.Micros().Nanos(), mono, false
	return max(c.base, c.newest)
}

// step notices that the wall clock went back by more than the slack, and that it has caught up.
func (c *Clock) step(wall model.Nanos) {
	gap := c.newest - wall
	c.gap.Set(max(0, time.Duration(gap).Seconds()))
	switch {
	case !c.behind && gap > clockSlack:
		c.behind = true
		c.cfg.Logger.Warn("the clock went back; stamps go on from the newest one, and event times are kept as sent", "clock", stampText(wall), "newest stamp", stampText(c.newest))
	case c.behind && gap <= 0:
		c.behind = false
		c.cfg.Logger.Info("the clock has caught up with the newest stamp", "clock", stampText(wall))
	}
}

// Doubt returns why the wall clock is implausible, "" when it is plausible.
func (c *Clock) Doubt() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, _ := c.readClock()
	switch {
	case c.unset && wall < c.built():
		return fmt.Sprintf("the clock says %s, and this program was made %s", stampText(wall), stampText(c.built()))
	case c.unset:
		return fmt.Sprintf("the clock says %s, and the newest record was received %s", stampText(wall), stampText(c.floor))
	case c.behind:
		return fmt.Sprintf("the clock went back: it says %s, and the newest stamp is %s", stampText(wall), stampText(c.newest))
	}
	return ""
}

func stampText(n model.Nanos) string { return n.Time().Format(time.RFC3339) }

// Run samples the wall clock until ctx ends.
func (c *Clock) Run(ctx context.Context) error {
	t := time.NewTicker(clockTick)
	defer t.Stop()
	for {
		if err := c.Sample(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Logger.Warn("the time of day is known and cannot be written to the log; it is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// Sample notices that the wall clock has become plausible and appends the time map of this boot to the log. When the log is too
// full to wait longer, the map says that the stamps hold as they were given out.
func (c *Clock) Sample(ctx context.Context) error {
	c.mu.Lock()
	wall, mono := c.readClock()
	unset, known, plausible := c.unset, c.known, c.unset && c.plausible(wall)
	c.mu.Unlock()
	// Waiting for the clock ends when the log is nearly full: nothing is applied meanwhile.
	full := false
	if s := c.cfg.Log.Stats(); unset {
		full = s.Bytes*100 >= s.MaxBytes*guessAt
	}
	if !unset || !plausible && (known != nil || !full) {
		return nil
	}
	// The map is durable before anything depends on it.
	if known == nil {
		m := &model.TimeMap{Boot: c.cfg.Boot, Mono: mono, Wall: wall, Guessed: !plausible}
		if err := appendTimeMap(ctx, c.cfg.Log, c.Stamp(), m); err != nil {
			return err
		}
		c.announce(m)
	}
	// From here on stamps say the time of day.
	if plausible {
		c.mu.Lock()
		c.unset = false
		c.mu.Unlock()
		c.cfg.Logger.Info("the clock can be believed now", "clock", stampText(wall), "after", time.Duration(mono).Round(time.Second).String())
	}
	return nil
}

func (c *Clock) announce(m *model.TimeMap) {
	c.mu.Lock()
	c.known = m
	c.mu.Unlock()
	// The applier waits for this.
	close(c.mapped)
	if m.Guessed {
		c.cfg.Logger.Warn("the log is too full to wait for the clock: what came in counts from the newest stamp before the start; event times are kept as sent")
	}
}

// mapOfBoot returns the time map of this boot, nil while there is none.
func (c *Clock) mapOfBoot() *model.TimeMap {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// timeMap waits for the time map of this boot.
func (c *Clock) timeMap(ctx context.Context) (*model.TimeMap, error) {
	select {
	case <-c.mapped:
		return c.mapOfBoot(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// appendTimeMap writes a time map and waits until it is durable: no result may depend on one that a power cut removes.
func appendTimeMap(ctx context.Context, log spool.Log, at model.Stamp, m *model.TimeMap) error {
	r := &model.Record{Kind: model.KindTimeMap, Received: at, TimeMap: m}
	synced := make(chan error, 1)
	if err := log.Append(ctx, spool.Entry{
		Data:   model.AppendRecord(nil, r),
		Value:  r,
		Exempt: true,
		Done:   func(_ model.Offset, err error) { synced <- err },
	}); err != nil {
		return err
	}
	return <-synced
}
