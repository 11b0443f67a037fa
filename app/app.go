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
	"strings"
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
	"weir/internal/certs"
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
	// Source is where the configuration was read, to be read again at a reload; nil: it stays as it is.
	Source *config.Source
	// Level is that of Logger, for a reload to change; nil: it stays.
	Level *slog.LevelVar
	// Hangup asks for a reload; nil: never.
	Hangup <-chan os.Signal
	// Ticks are when a watched configuration is looked at; nil: every two seconds.
	Ticks <-chan time.Time
	// Sync stands around each durable step of the log; tests hold it, delay it or make it fail.
	Sync func(func() error) error
	// Now is what the system's clock says and the monotonic time since the start; nil: the system's own. Tests set it.
	Now func() (wall time.Time, mono time.Duration)
}

// Instance is a running Weir. Two fit in one process.
type Instance struct {
	rooms
	cfg     config.Config
	opt     Options
	log     *slog.Logger
	metrics *prometheus.Registry
	memory  *memory.Accountant
	budget  Budget
	head    *memory.Account
	boot    uint64
	started time.Time

	lock     *dirlock.Lock
	vault    *store.Vault
	store    *sqlite.DB
	spool    *bolt.Log
	series   *series.Series
	control  *ingest.Controller
	doors    *ingest.TransportCounts
	listen   *ingest.Listening
	clock    *ingest.Clock
	gauge    *ingest.Gauge
	gate     *ingest.Intake
	applier  *ingest.Applier
	edges    *hub.Hub[model.Edge]
	readings *hub.Hub[series.Point]
	tap      *ingest.Tap
	gql      *gql.Server
	api      *web.Server
	late     map[string]*later // what stands behind the front, by area or path
	setup    *setup
	broker   *broker.Broker
	http     *httpingest.Transport
	maxBody  func(int) // of http
	socket   *http.Server
	commands *commands
	private  *http.Server
	// streaming ends when the streams of the socket must.
	streaming  context.Context
	endStreams context.CancelFunc

	reloads   reloads
	backups   backups
	retention chan struct{} // tells the sweep of history that a time has changed

	vitals     *vitals
	recounting sync.Mutex // one recount of the ledger at a time

	addrs Addresses
	certs *certs.Reloader            // nil: there is no certificate
	sited atomic.Pointer[SiteStatus] // the last apply
	ready atomic.Bool
	// last is how the process before this one ended.
	last LastStop
	// foreign is where a log of another store was set aside at the start, "" when there was none.
	foreign string
	files   int            // that may be open, 0 for any number
	hole    *ingest.LogGap // what of the log is known to be lost since the start
	changes uint64         // of the registry, as of the start

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

	MQTTS     string `json:"mqtts,omitempty"`
	APITLS    string `json:"apiTls,omitempty"`
	IngestTLS string `json:"ingestTls,omitempty"`
	MQTTWS    string `json:"mqttWs,omitempty"`
	MQTTWSS   string `json:"mqttWss,omitempty"`

	OpenTopics string `json:"openTopics,omitempty"`
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
	in.retention = make(chan struct{}, 1)
	in.reloads.init(cfg, in.metrics)
	in.backups.init(in.metrics)
	in.budget = NewBudget(MemoryLimit(cfg))
	in.memory = memory.New(in.budget.Limit, in.metrics)
	in.openAccounts()
	in.commands = newCommands(in.budget.commandBytes(), in.metrics)
	in.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	in.boot = binary.LittleEndian.Uint64(b[:])
	return in
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

// stamp is when something was received.
func (in *Instance) stamp() model.Stamp { return in.clock.Stamp() }

// look returns what the wall says and the monotonic time since the start.
func (in *Instance) look() (time.Time, time.Duration) {
	if in.opt.Now != nil {
		return in.opt.Now()
	}
	now := time.Now()
	return now, now.Sub(in.started)
}

func (in *Instance) elapsed() time.Duration {
	_, d := in.look()
	return d
}

// listenOn opens the listener of a key of the configuration and notes where it really is.
func (in *Instance) listenOn(key, addr string, at *string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if in.opt.AnyPort && errors.Is(err, syscall.EADDRINUSE) {
		if host, _, split := net.SplitHostPort(addr); split == nil {
			l, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
		}
	}
	if err != nil {
		return nil, notListening(key, addr, err)
	}
	*at = l.Addr().String()
	return l, nil
}

// notListening says which listener did not open, and what to do.
func notListening(key, addr string, err error) error {
	variable := "WEIR_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
	e := &model.Error{Message: fmt.Sprintf("%s: %s cannot be opened: %v", key, addr, err), Err: err,
		Hint: fmt.Sprintf("choose another address with %s or %s", key, variable)}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		e.Message = fmt.Sprintf("%s: %s is in use by another process", key, addr)
		e.Hint = fmt.Sprintf("stop what has the port (ss -ltnp shows it), or choose another one with %s or %s", key, variable)
	case errors.Is(err, os.ErrPermission):
		e.Hint = fmt.Sprintf("ports below 1024 need CAP_NET_BIND_SERVICE; choose a higher one with %s or %s", key, variable)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		e.Hint = fmt.Sprintf("no interface of this machine has the address; choose another one with %s or %s", key, variable)
	}
	return e
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

var _ spool.MetaSource = (*ingest.TransportCounts)(nil)

// storeMicros is d in the unit of stored times.
func storeMicros(d time.Duration) model.Micros { return model.Micros(d.Microseconds()) }
