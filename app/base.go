package app

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"weir/config"
	"weir/internal/logring"
	"weir/internal/memory"
)

// base is what all components of an instance share.
type base struct {
	cfg       config.Config
	opt       Options
	log       *slog.Logger
	lines     *logring.Ring // the newest lines of log
	metrics   *prometheus.Registry
	memory    *memory.Accountant
	accounts  map[string]*memory.Account // of the parts that count what they hold
	budget    Budget
	boot      uint64
	started   time.Time
	kinds     []Transport // of transports
	brought   []Capability
	listeners listeners
	serving   atomic.Bool                   // all components run: devices are served
	closed    func() string                 // why all transports are closed, "" while they are open
	ready     atomic.Bool                   // … and queries are answered: what was acknowledged before the start is applied
	current   atomic.Pointer[config.Config] // with what reloads have applied

	failOnce sync.Once
	failed   chan error
	running  sync.WaitGroup // ends before the log closes
}

func newBase(cfg config.Config, opt Options) *base {
	// Default the options first: everything below copies them.
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Getenv == nil {
		opt.Getenv = func(string) string { return "" }
	}
	if opt.Out == nil {
		opt.Out = io.Discard
	}
	if opt.LostWrites == nil {
		opt.LostWrites = func() uint64 { return 0 }
	}
	// Every line goes through the ring as well, so that the console can show the newest ones.
	lines := logring.New(time.Now)
	opt.Logger = slog.New(lines.Handler(opt.Logger.Handler()))
	b := &base{
		cfg:      cfg,
		opt:      opt,
		log:      opt.Logger,
		lines:    lines,
		metrics:  prometheus.NewRegistry(),
		accounts: map[string]*memory.Account{},
		budget:   NewBudget(MemoryLimit(cfg)),
		started:  time.Now(),
		failed:   make(chan error, 1),
	}
	// The lists of transports and capabilities first: the listeners are derived from them.
	b.kinds = slices.Concat(ownTransports(), opt.Transports)
	b.brought = slices.Concat(capabilities(), opt.Capabilities)
	b.listeners.all = listenersOf(cfg, b.kinds)
	b.current.Store(&cfg)
	b.memory = memory.New(b.budget.Limit, b.metrics)
	b.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	b.metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "weir_output_lost_writes_total",
		Help: "Writes to stdout and of log lines that failed since the start: the reader of a pipe has gone, or a disk is full."},
		func() float64 { return float64(opt.LostWrites()) }))
	held := func(name, help string, value func(lines, bytes int) int) {
		b.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value(lines.Held())) }))
	}
	held("weir_log_kept_lines", "Lines of the log that are kept in memory.", func(n, _ int) int { return n })
	held("weir_log_kept_bytes", "Size of the lines of the log that are kept in memory.", func(_, n int) int { return n })
	// The boot id tells monotonic times of this start from those of others.
	var bits [8]byte
	_, _ = rand.Read(bits[:]) // never fails
	b.boot = binary.LittleEndian.Uint64(bits[:])
	return b
}

// effective is the configuration that applies now: as it was at the start, with what reloads have changed.
func (b *base) effective() *config.Config { return b.current.Load() }

// runPart runs a part in a goroutine of its own. Parts end with life; one that ends with an error stops the instance.
func (b *base) runPart(life context.Context, name string, run func(context.Context) error) {
	b.running.Go(b.part(life, name, run))
}

func (b *base) part(life context.Context, name string, run func(context.Context) error) func() {
	return func() {
		if err := run(life); err != nil && life.Err() == nil {
			b.fail(fmt.Errorf("%s: %w", name, err))
		}
	}
}

func (b *base) fail(err error) { b.failOnce.Do(func() { b.failed <- err }) }

// readClock returns what the system's clock says and the monotonic time since the start.
func (b *base) readClock() (time.Time, time.Duration) {
	if b.opt.Now != nil {
		return b.opt.Now()
	}
	now := time.Now()
	return now, now.Sub(b.started)
}

func (b *base) elapsed() time.Duration {
	_, d := b.readClock()
	return d
}

// warn logs what the operator should think over. A program that has set itself up (the demonstration) needs no warning.
func (b *base) warn(ws []config.Warning) {
	if b.opt.Source == nil {
		return
	}
	for _, w := range ws {
		// Name the position in the file where it is known, else the file.
		at := w.Path
		if w.Line > 0 {
			at = fmt.Sprintf("%s (%s:%d)", w.Path, w.File, w.Line)
		} else if at == "" {
			at = w.File
		}
		b.log.Warn("configuration: "+at+" "+w.Reason, "hint", w.Hint)
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
