package presence

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
)

// ReasonSourceGone is why a backstop demotes.
const ReasonSourceGone = "source-gone"

// backstopCheck is how often a backstop looks at the sources, at least.
const backstopCheck = 30 * time.Second

// BackstopStore is what a backstop reads of stored presence.
type BackstopStore interface {
	// PresenceSources lists the event sources that moved the presence of a device last.
	PresenceSources(ctx context.Context) ([]string, error)
	// AssertedPresence is that of Store.
	AssertedPresence(ctx context.Context, source string, after int64, limit int) ([]Asserted, error)
}

// BackstopDeps are the collaborators of a backstop. All but the last two are required.
type BackstopDeps struct {
	Store BackstopStore
	// Up reports whether an event source is served now: it could tell of a device that connects or leaves.
	Up func(source string) bool
	// Listening is the listening time of all transports, in nanoseconds: it stands still while Weir does not listen.
	Listening func() int64
	// Emit hands a transition to the intake.
	Emit func(ctx context.Context, source string, b model.Binding, p model.Presence)
	Now  func() time.Time

	Logger     *slog.Logger          // nil: nothing is logged
	Registerer prometheus.Registerer // nil: metrics are not registered
}

// Backstop returns devices to inferred presence whose event source has gone: one that is not configured any more, or whose link stays
// cut. What it asserted would hold for ever: no other source says otherwise. Listening time counts, so that neither a stop of
// Weir nor a step of the clock brings the end nearer, and it counts from each start on: every source has the whole time to come up.
type Backstop struct {
	deps  BackstopDeps
	after atomic.Int64 // nanoseconds; 0: never
	since map[string]int64
	done  map[string]bool // sources that are gone and assert nothing

	gone                  prometheus.Gauge
	demotions, readErrors prometheus.Counter
}

// NewBackstop returns a backstop that demotes after a time, 0 for never.
func NewBackstop(after time.Duration, deps BackstopDeps) *Backstop {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Backstop{deps: deps, since: map[string]int64{}, done: map[string]bool{},
		gone: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_presence_gone_sources", Help: "Event sources that are gone and still assert the presence of devices."}),
		demotions: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_presence_source_gone_total",
			Help: "Devices that were returned to inferred presence because their event source was gone."}),
		readErrors: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_presence_backstop_read_errors_total", Help: "Failures to read the presence that gone sources assert."})}
	if deps.Registerer != nil {
		deps.Registerer.MustRegister(b.gone, b.demotions, b.readErrors)
	}
	b.Set(after)
	return b
}

// Set changes the time after which it demotes, 0 for never. It is safe for concurrent use.
func (b *Backstop) Set(after time.Duration) { b.after.Store(int64(after)) }

// After returns the effective time.
func (b *Backstop) After() time.Duration { return time.Duration(b.after.Load()) }

// Run looks at the sources until ctx ends. It always returns nil.
func (b *Backstop) Run(ctx context.Context) error {
	for {
		b.check(ctx)
		every := backstopCheck
		if after := b.After(); after > 0 {
			every = min(every, max(after, time.Second))
		}
		if !sleep(ctx, every) {
			return nil
		}
	}
}

// check notes which sources are gone, and demotes the devices of those that have been for too long.
func (b *Backstop) check(ctx context.Context) {
	sources, err := b.deps.Store.PresenceSources(ctx)
	if err != nil {
		b.readFailed(ctx, err)
		return
	}
	forgotten := func(source string) bool { return !slices.Contains(sources, source) } // they moved no device last
	maps.DeleteFunc(b.since, func(source string, _ int64) bool { return forgotten(source) })
	maps.DeleteFunc(b.done, func(source string, _ bool) bool { return forgotten(source) })
	now, after, gone := b.deps.Listening(), int64(b.After()), 0
	for _, source := range sources {
		if b.deps.Up(source) {
			delete(b.since, source)
			delete(b.done, source)
			continue
		}
		if _, noted := b.since[source]; !noted {
			b.since[source] = now
		}
		if b.done[source] {
			continue
		}
		gone++
		if after > 0 && now-b.since[source] >= after {
			b.demote(ctx, source)
		}
	}
	b.gone.Set(float64(gone))
}

// demote demotes what a source asserts, page by page, until the source is back. What the intake refuses is found again by the next check.
func (b *Backstop) demote(ctx context.Context, source string) {
	n := 0
	for after := int64(0); ; {
		page, err := b.deps.Store.AssertedPresence(ctx, source, after, scanPage)
		if err != nil {
			b.readFailed(ctx, err)
			return
		}
		for _, d := range page {
			if after = d.Binding.DeviceID; b.deps.Up(source) {
				return
			}
			b.deps.Emit(ctx, source, d.Binding, d.transition(model.Demoted, ReasonSourceGone, b.deps.Now()))
			b.demotions.Inc()
			if n++; !sleep(ctx, pace) {
				return
			}
		}
		if len(page) < scanPage {
			break
		}
	}
	if b.done[source] = n == 0; n > 0 {
		b.deps.Logger.Info("devices were demoted: their event source is gone", "source", source, "devices", n)
	}
}

func (b *Backstop) readFailed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	b.readErrors.Inc()
	b.deps.Logger.Warn("reading stored presence failed; it is read again", "error", err, "retry_in", backstopCheck)
}
