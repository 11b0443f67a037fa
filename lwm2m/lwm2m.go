// Package lwm2m is the LwM2M transport: a server for devices that speak LwM2M 1.0 to 1.2 over CoAP and DTLS.
//
//	socket.go     one UDP socket, routed to sessions by connection id or address
//	handshake.go  DTLS: who may begin a handshake, by which key, and what becomes of it
//	certificates.go handshakes by X.509; authentic.go: cipher suites, and which datagrams wake a session
//	continuity.go sessions that go on over a restart, and are parked; dtlsstate.go: what of the DTLS library that takes
//	session.go    the CoAP exchanges of one session: repeats, retransmissions, blocks
//	requests.go   what devices ask: register, update, de-register, send
//	registry.go   registrations: lifetimes, queue mode, what of them is stored
//	observe.go    observations, and what their notifications become
//	models.go     objects of definition files
//	telemetry.go  from values of resources to messages and attributes
//	harvest.go    what a device says about itself
//	carrier.go    commands that wait for devices; perform.go: what each of them does; firmware.go: the one that takes long
//	bootstrap.go  the bootstrap server, which gives devices their accounts
//	transport.go  start and stop, the sources, the metrics
//	coap, content messages and formats, as pure functions
//
// A confirmable notification is acknowledged when its readings are on disk, never before; a registration is answered when its row is.
package lwm2m

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/command"
	"weir/ingest"
	"weir/internal/setting"
	"weir/lwm2m/content"
	"weir/model"
	"weir/presence"
)

// Config configures the server. Zero values mean the defaults.
type Config struct {
	Source string // event source id; "lwm2m"
	Settings
	presence.Timing
}

// Deps are the collaborators. Listen, Intake, Keys and Store are required.
type Deps struct {
	// Listen opens the socket.
	Listen func() (net.PacketConn, error)
	// Wanted reports whether some device has a key, where the socket is opened only then; nil: it is opened at once.
	Wanted func(context.Context) (bool, error)
	Intake Intake
	Keys   Keys
	// Certificates are those of devices that prove themselves by X.509; nil: none does.
	Certificates Certificates
	Store        Store
	// Orphaned reports whether a device that no credential has proven (model.Binding.Credential is 0) has lost its identity; nil: none has.
	Orphaned func(context.Context, model.Binding) (bool, error)
	Presence presence.Store
	Desk     command.Desk // nil: no command is delivered
	// Artifacts are what devices are given; nil: firmware updates are refused.
	Artifacts Artifacts
	// Bootstrap is what the bootstrap server needs; nil: there is none.
	Bootstrap *BootstrapDeps
	// Registered is called for each registration, with what has proven it; nil: it is not called.
	Registered func(ctx context.Context, device model.Binding) error
	// Profile returns what the profile of a device says about LwM2M, nil for nothing, and the metrics that it declares. nil: none says anything.
	Profile func(ctx context.Context, device model.Binding) (*model.LwM2MProfile, []model.MetricView, error)
	// Refused is called for each handshake of a known identity that was refused; nil: it is not called. It must not block.
	Refused    func(tenant, device, why, mistake string)
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time // nil: time.Now
}

// Intake is the part of ingest.Intake that the server needs.
type Intake interface {
	// Accept takes a message and calls done exactly once, before it returns or later. It may block; ctx ends with the session.
	Accept(ctx context.Context, a *ingest.Arrival, done func(ingest.Answer))
	// Presence takes a transition of a device, as Accept takes a message.
	Presence(ctx context.Context, transport, source string, b model.Binding, p model.Presence, done func(ingest.Answer))
}

// Key is the pre-shared key of an identity, and the device that it proves.
type Key struct {
	model.Binding
	Secret  []byte
	Expires model.Micros // 0: never
	// Make makes the device, which is not there yet, once the handshake has proven the secret; nil: it is there.
	Make func(ctx context.Context) (model.Binding, error)
}

// ErrUnknown says that an identity has no key that is good now.
var ErrUnknown = errors.New("lwm2m: unknown identity")

// Keys finds the keys of identities. ErrUnknown says that there is none; any other error that it could not be looked up.
type Keys interface {
	Key(ctx context.Context, identity string) (Key, error)
}

// Registration is a registration as it is stored.
type Registration struct {
	Binding    model.Binding
	Location   string // what the device names it by; "" after its end
	Endpoint   string
	Version    string // of LwM2M
	Binds      string // binding mode
	Queue      bool
	Lifetime   int64  // seconds
	Links      string // in link format
	Session    uint64 // of its presence
	Registered model.Micros
	Heard      model.Micros // the last message
	Harvested  model.Micros // 0: never
}

// Session is a DTLS session as it is stored.
type Session struct {
	Binding  model.Binding
	Name     string // among the sessions of the device
	Form     int    // of State
	State    []byte // secret: the store seals it
	Bound    uint64 // no record with this number or a higher one was sent
	Received uint64 // records of the device below it are not taken any more
	Address  string // newest of the device
	Heard    model.Micros
}

// Observation is an observation as it is stored.
type Observation struct {
	Binding  model.Binding
	Token    []byte
	Paths    string // separated by spaces
	Settings string // JSON
	Session  string // name of the session in which the device agreed to it, "" before
	Number   uint32 // of the newest notification that was stored
	Heard    model.Micros
	Value    model.Micros
}

// Changes are stored together, in this order.
type Changes struct {
	Registrations []Registration
	Forget        []int64 // devices whose observations are forgotten
	Observations  []Observation
	Unobserved    []Observation // removed
	Ended         []int64       // devices whose sessions are removed
	Sessions      []Session     // each in the place of the one before
	Reserved      []Session     // Bound of the session with that name
	Progress      []Session     // Received, Address, Heard of the session with that name
	Firmware      []Firmware    // each in the place of the one before
	FirmwareEnded []Firmware    // removed, unless another command is in its place
}

// Restored takes what is stored.
type Restored struct {
	Registration func(Registration)
	Session      func(Session) (good bool) // one that is not is removed
	Observation  func(Observation)
	Firmware     func(Firmware)
}

// Store keeps registrations, sessions and observations over a restart.
type Store interface {
	// Restore hands out what is stored, registrations first. The stored bounds of sessions are raised by reserve, on disk, before the sessions are handed
	// out with those of before: who goes on with one may use the numbers between.
	Restore(ctx context.Context, reserve uint64, to Restored) error
	// Save stores changes: with sync they survive a power cut when it returns.
	Save(ctx context.Context, sync bool, c *Changes) error
}

// Server is the LwM2M transport. It is safe for concurrent use.
type Server struct {
	cfg      Config
	settings atomic.Pointer[Settings]
	deps     Deps
	log      *slog.Logger
	now      func() time.Time
	metrics  *metrics
	tracker  *presence.Tracker
	gate     *gate
	carrier  *carrier
	secret   [32]byte // keys of unknown identities are made of it
	state    sourceState
	known    atomic.Pointer[content.Models] // besides what is built in

	ctx      context.Context
	abort    context.CancelFunc
	work     sync.WaitGroup
	starting sync.Mutex // of work
	ended    bool       // nothing is started any more
	drops    atomic.Uint64
	refusals atomic.Int64 // of handshakes
	closing  atomic.Bool

	mu         sync.Mutex
	socket     *socket // nil until it is open
	sessions   map[*session]struct{}
	parked     map[*parked]struct{}
	byDevice   map[int64]*registration
	byLocation map[string]*registration
	dirty      map[*registration]struct{}
	noted      map[*observation]*registration // to be stored
	harvests   harvests

	keeper  keeper
	updates *updates
	boot    *bootstrapper
}

// New returns a server that listens to nothing yet: Run opens its socket.
func New(cfg Config, deps Deps) (*Server, error) {
	if cfg.Source == "" {
		cfg.Source = "lwm2m"
	}
	setting.FillDefaults(&cfg.Settings)
	setting.FillDefaults(&cfg.Timing)
	if deps.Listen == nil || deps.Intake == nil || deps.Keys == nil || deps.Store == nil {
		return nil, errors.New("lwm2m: a socket, an intake, keys and a store are required")
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Profile == nil {
		deps.Profile = func(context.Context, model.Binding) (*model.LwM2MProfile, []model.MetricView, error) {
			return nil, nil, nil
		}
	}
	if deps.Refused == nil {
		deps.Refused = func(string, string, string, string) {}
	}
	s := &Server{cfg: cfg, deps: deps, log: deps.Logger, now: deps.Now, sessions: map[*session]struct{}{}, parked: map[*parked]struct{}{}, noted: map[*observation]*registration{},
		keeper: keeper{want: map[int64]*keeping{}, ready: make(chan struct{}, 1)}, byDevice: map[int64]*registration{},
		byLocation: map[string]*registration{}, dirty: map[*registration]struct{}{}, harvests: harvests{}}
	s.settings.Store(&cfg.Settings)
	s.metrics = newMetrics(deps.Registerer, s)
	s.ctx, s.abort = context.WithCancel(context.Background())
	s.updates = newUpdates(s, deps.Registerer)
	var err error
	if cfg.Source != bootstrapSource {
		if s.boot, err = newBootstrapper(s, deps.Bootstrap, deps.Registerer); err != nil {
			return nil, err
		}
	}
	s.gate = newGate(s)
	s.tracker = presence.NewTracker(presence.TrackerConfig{Source: cfg.Source, Timing: cfg.Timing, MaxGraces: func() int { return s.settings.Load().MaxSessions }},
		presence.TrackerDeps{Store: deps.Presence, Now: deps.Now, Logger: deps.Logger,
			Emit: func(ctx context.Context, b model.Binding, p model.Presence) {
				deps.Intake.Presence(ctx, ingest.TransportLwM2M, cfg.Source, b, p, func(ingest.Answer) {})
			}})
	if deps.Desk != nil {
		s.carrier = newCarrier(s)
	}
	if err := s.newSecret(); err != nil {
		return nil, err
	}
	s.state.enter(ingest.SourceDown, deps.Now(), nil)
	return s, nil
}
