// Package app puts an instance together. It is the only place that knows every package: it builds each part from its
// configuration, hands it its neighbours, and starts and stops the parts as components in one order (components.go). What an
// operator can ask of an instance is in package operate.
package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"weir/config"
	"weir/edge"
	"weir/ingest"
	"weir/operate"
	"weir/rules"
)

// Options are what an instance is given besides its configuration.
type Options struct {
	Logger  *slog.Logger
	Getenv  func(string) string
	Version string
	// Program is how the program was called, for the commands that the start prints; "": weir.
	Program string
	// Out is where the instance says what it has opened and what to do first; nil: nowhere.
	Out io.Writer
	// LostWrites are how many writes to Out and of Logger have failed; nil: they are not counted.
	LostWrites func() uint64
	// AnyPort opens a listener on a free port where the one it was given is taken.
	AnyPort bool
	// Source is where the configuration was read, to be read again at a reload; nil: it stays as it is.
	Source *config.Source
	// Level is that of Logger, for a reload to change; nil: it stays.
	Level *slog.LevelVar
	// Serving is called once devices are served, where queries must still wait for what was acknowledged before the start; nil: it
	// is not.
	Serving func()
	// Waits is told what a start or a stop waits for, every few seconds, and how much longer it may take; nil: it is not.
	Waits func(text string, more time.Duration)
	// Hangup asks for a reload; nil: never.
	Hangup <-chan os.Signal
	// Ticks are when a watched configuration is looked at; nil: every two seconds.
	Ticks <-chan time.Time
	// Capabilities are capabilities besides those of Weir.
	Capabilities []Capability
	// Projections are results of the log besides Weir's own.
	Projections []ingest.Projection
	// Sync stands around each durable step of the log; tests hold it, delay it or make it fail.
	Sync func(func() error) error
	// Now is what the system's clock says and the monotonic time since the start; nil: the system's own. Tests set it.
	Now func() (wall time.Time, mono time.Duration)
	// RuleKinds are kinds of rules besides those of Weir.
	RuleKinds []rules.Kind
	// Transports are transports besides those of Weir.
	Transports []Transport
}

// Instance is a running Weir. Two fit in one process.
type Instance struct {
	*base
	lock        *lock
	certificate *certificate
	front       *front
	store       *database
	spool       *logStore
	background  *background
	entities    *entities
	applier     *applier
	site        *siteFiles
	uplink      *uplink
	intake      *intake
	operator    *operator
	api         *api
	scrape      *scrape
	socket      *socket
	transports  *transports
	reload      *reload
}

// New returns an instance that is not yet started.
func New(cfg config.Config, opt Options) *Instance {
	// Each component is made from those that it needs; nothing starts yet.
	b := newBase(cfg, opt)
	in := &Instance{base: b, background: &background{base: b}}
	in.lock = &lock{base: b}
	in.certificate = &certificate{base: b}
	in.front = &front{base: b, lock: in.lock, certificate: in.certificate}
	in.store = &database{base: b}
	in.spool = &logStore{base: b, store: in.store}
	in.entities = &entities{base: b, store: in.store, spool: in.spool, certificate: in.certificate}
	in.applier = &applier{base: b, store: in.store, spool: in.spool, entities: in.entities}
	in.site = &siteFiles{base: b, entities: in.entities}
	in.intake = &intake{base: b, store: in.store, spool: in.spool, entities: in.entities, applier: in.applier}
	in.uplink = &uplink{base: b, store: in.store, spool: in.spool, entities: in.entities, repeats: edge.NewRepeats()}
	// The uplink is built after the applier and brings projections of its own to it.
	in.applier.uplink = in.uplink
	in.operator = &operator{
		base:     b,
		uplink:   in.uplink,
		lock:     in.lock,
		store:    in.store,
		spool:    in.spool,
		entities: in.entities,
		applier:  in.applier,
		intake:   in.intake,
	}
	in.api = &api{
		base:     b,
		front:    in.front,
		entities: in.entities,
		applier:  in.applier,
		spool:    in.spool,
		intake:   in.intake,
		operator: in.operator,
	}
	in.scrape = &scrape{base: b}
	in.socket = &socket{base: b, operator: in.operator}
	in.transports = &transports{
		base:        b,
		lock:        in.lock,
		certificate: in.certificate,
		store:       in.store,
		spool:       in.spool,
		entities:    in.entities,
		applier:     in.applier,
		intake:      in.intake,
		api:         in.api,
		uplink:      in.uplink,
	}
	in.reload = newReload(b, in)
	// What the operator asks of components that start after it is read through functions.
	in.operator.connections = in.transports.connections
	in.operator.reloads = in.reload
	in.operator.setupLink = in.api.setupLink
	in.operator.sources = in.transports.sources
	b.closed = in.transports.closedReasons
	// Last: the functions of the memory accounts ask the components.
	openAccounts(in)
	return in
}

// Listeners returns the listeners that the instance can have, with the addresses of those that are open. It is complete
// once Run has called ready.
func (in *Instance) Listeners() operate.Listeners { return in.listeners.list() }

// Sources returns how the event sources of the transports are.
func (in *Instance) Sources() []ingest.SourceStatus { return in.transports.sources() }

// Run starts the instance, calls ready when it answers everything (ready may be nil), and stops it when ctx ends or a part
// fails. Closing early ends the waits of the stop; a nil channel never does.
func (in *Instance) Run(ctx context.Context, ready func(), early <-chan struct{}) error {
	// life outlasts ctx: when ctx ends, parts in the background go on until the order of the stop reaches them.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	in.background.end = end
	up, err := in.start(ctx, life)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) { // a part that was still at its start has given up
		err = nil
	}
	if err == nil {
		if err = in.serve(ctx, ready); err != nil {
			in.log.Error("a part failed; stopping", "error", err)
		} else {
			in.log.Info("stopping")
		}
	}
	// Health checks report the stop before anything is taken down, so that a load balancer sends no more requests.
	in.ready.Store(false)
	in.serving.Store(false)
	return errors.Join(operate.Unreadable(in.cfg.DataDir, err), in.stop(up, early))
}

// serve calls ready once everything that was acknowledged before the start is applied. It returns when ctx ends, or with the
// error of a part that failed.
func (in *Instance) serve(ctx context.Context, ready func()) error {
	if ctx.Err() != nil { // the start was cut short
		return nil
	}
	// Devices are served from here on; queries wait for the replay.
	in.serving.Store(true)
	if !in.applier.ingest.CaughtUp() {
		in.log.Info("devices are served; queries wait for what was acknowledged before the start", "took", in.sinceStart())
		if in.opt.Serving != nil {
			in.opt.Serving()
		}
	}
	// Ready means that answers contain everything that was acknowledged before the start.
	if err := in.applier.caughtUp(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	in.ready.Store(true)
	in.log.Info("ready", "took", in.sinceStart())
	if ready != nil {
		ready()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-in.failed:
		return err
	}
}

func (in *Instance) sinceStart() string {
	return time.Since(in.started).Round(time.Millisecond).String()
}
