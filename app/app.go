// Package app puts an instance together. It is the only place that knows every room: it builds each from its config,
// hands it its neighbours, starts them back to front and stops them front to back (stations.go).
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
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"weir/broker"
	"weir/config"
	"weir/gql"
	"weir/httpingest"
	"weir/ingest"
	"weir/internal/dirlock"
	"weir/internal/hub"
	"weir/internal/memory"
	"weir/model"
	"weir/series"
	"weir/spool"
	"weir/spool/bolt"
	"weir/store"
	"weir/store/sqlite"
	"weir/web"
)

// Options are what an instance is told beside its config.
type Options struct {
	Logger  *slog.Logger
	Getenv  func(string) string
	Version string
	// Out is where the instance says what it has opened and what to do first; nil: nowhere.
	Out io.Writer
	// AnyPort opens a listener on a free port where the one it was given is taken.
	AnyPort bool
	// Sync stands around each durable step of the log; tests hold it, delay it or make it fail.
	Sync func(func() error) error
}

// Instance is a running Weir. Two fit in one process.
type Instance struct {
	rooms
	cfg     config.Config
	opt     Options
	log     *slog.Logger
	metrics *prometheus.Registry
	memory  *memory.Accountant
	boot    uint64
	started time.Time

	lock     *dirlock.Lock
	vault    *store.Vault
	store    *sqlite.DB
	spool    *bolt.Log
	series   *series.Series
	control  *ingest.Controller
	doors    *ingest.Doors
	listen   *ingest.Listening
	gauge    *ingest.Gauge
	gate     *ingest.Gate
	applier  *ingest.Applier
	edges    *hub.Hub[model.Edge]
	readings *hub.Hub[series.Point]
	gql      *gql.Server
	api      *web.Server
	late     map[string]*later // what stands behind the front, by area or path
	broker   *broker.Broker
	http     *httpingest.Server
	socket   *http.Server
	private  *http.Server

	addrs Addresses
	ready atomic.Bool
	wall  wallClock

	failOnce sync.Once
	failed   chan error
	running  sync.WaitGroup // ends before the log closes
	front    sync.WaitGroup // the API port: answers until the store has closed
}

// Addresses are what the instance really listens on, "" where it does not.
type Addresses struct {
	API     string `json:"api,omitempty"`
	Ingest  string `json:"ingest,omitempty"`
	MQTT    string `json:"mqtt,omitempty"`
	Metrics string `json:"metrics,omitempty"`
	Socket  string `json:"socket,omitempty"`
}

// New returns an instance that is not yet started.
func New(cfg config.Config, opt Options) *Instance {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Getenv == nil {
		opt.Getenv = func(string) string { return "" }
	}
	if opt.Out == nil {
		opt.Out = io.Discard
	}
	in := &Instance{cfg: cfg, opt: opt, log: opt.Logger, metrics: prometheus.NewRegistry(), started: time.Now(), failed: make(chan error, 1)}
	in.memory = memory.New(MemoryLimit(cfg), in.metrics)
	in.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	in.boot = binary.LittleEndian.Uint64(b[:])
	return in
}

// MemoryLimit is what limits.memory means on this machine, in bytes.
func MemoryLimit(cfg config.Config) int64 {
	if cfg.Limits.Memory > 0 {
		return int64(cfg.Limits.Memory)
	}
	return memory.Detect("/")
}

// Addresses returns what the instance listens on; it is complete once Run has called ready.
func (in *Instance) Addresses() Addresses { return in.addrs }

// Run starts the instance, calls ready when it serves (ready may be nil), and stops it when ctx ends or a part fails.
// hurry cuts the waits of the stop short; a nil channel never does.
func (in *Instance) Run(ctx context.Context, ready func(), hurry <-chan struct{}) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stops, err := in.start(ctx, life)
	if err == nil {
		in.ready.Store(true)
		in.log.Info("ready", "took", time.Since(in.started).Round(time.Millisecond).String())
		if ready != nil {
			ready()
		}
		select {
		case <-ctx.Done():
			in.log.Info("stopping")
		case err = <-in.failed:
			in.log.Error("a part failed; stopping", "error", err)
		}
	}
	in.ready.Store(false)
	return errors.Join(err, in.stop(stops, end, hurry))
}

// goes runs a part in a goroutine of its own. Parts end with life; one that ends with an error stops the instance.
func (in *Instance) goes(life context.Context, name string, run func(context.Context) error) {
	in.running.Go(in.part(life, name, run))
}

func (in *Instance) part(life context.Context, name string, run func(context.Context) error) func() {
	return func() {
		if err := run(life); err != nil && life.Err() == nil {
			in.fail(fmt.Errorf("%s: %w", name, err))
		}
	}
}

func (in *Instance) fail(err error) { in.failOnce.Do(func() { in.failed <- err }) }

// stamp is when something was received. The wall never goes back while the process runs.
func (in *Instance) stamp() model.Stamp {
	now := time.Now()
	return model.Stamp{Boot: in.boot, Mono: int64(now.Sub(in.started)), Wall: in.wall.forward(model.NanosOf(now))}
}

func (in *Instance) elapsed() time.Duration { return time.Since(in.started) }

// wallClock is a wall clock that stands still while the system's goes back.
type wallClock struct{ newest atomic.Int64 }

func (w *wallClock) forward(now model.Nanos) model.Nanos {
	for {
		have := w.newest.Load()
		if int64(now) <= have {
			return model.Nanos(have)
		}
		if w.newest.CompareAndSwap(have, int64(now)) {
			return now
		}
	}
}

// listenOn opens a listener and notes where it really is.
func (in *Instance) listenOn(addr string, at *string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if in.opt.AnyPort && errors.Is(err, syscall.EADDRINUSE) {
		if host, _, split := net.SplitHostPort(addr); split == nil {
			l, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
		}
	}
	if err != nil {
		return nil, &model.Error{Message: err.Error(), Hint: "another process may use the port; choose another one under listeners", Err: err}
	}
	*at = l.Addr().String()
	return l, nil
}

// paths of what stands in a data directory.
func dbPath(dir string) string     { return filepath.Join(dir, "weir.db") }
func spoolPath(dir string) string  { return filepath.Join(dir, "spool") }
func socketPath(dir string) string { return filepath.Join(dir, "weir.sock") }
func cleanPath(dir string) string  { return filepath.Join(dir, "clean") }

func (in *Instance) rootKeyPath() string {
	if f := in.cfg.Secrets.RootKeyFile; f != "" {
		return f
	}
	return filepath.Join(in.cfg.DataDir, "root.key")
}

// makeDataDir makes the data directory when it is not there, readable by its owner only.
func makeDataDir(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("the data directory cannot be made: %w", err)
	}
	return nil
}

var _ spool.MetaSource = (*ingest.Doors)(nil)

// storeMicros is d in the unit of stored times.
func storeMicros(d time.Duration) model.Micros { return model.Micros(d.Microseconds()) }
