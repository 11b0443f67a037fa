// Package sparkplug is a transport: a host application of Sparkplug B 3.0 at brokers that the operator names. It follows the births, the
// sequences and the deaths of edge nodes and of the devices behind them, stores what they report, asserts their presence, and asks a node for
// its births where something is missing. It sends no other command.
//
//	sparkplug.go  the transport: one host for each source
//	settings.go   the keys of the configuration
//	host.go       a session with a broker: STATE, subscriptions, requests for rebirths
//	perform.go    what follows from the messages: devices, presence, readings, attributes, dead letters
//	queue.go      messages between the connection and what judges them
//	machine.go    what follows from a message or from time, as a function of both: births, sequences, deaths
//	node.go       a node, and messages that wait for a birth
//	birth.go      names, aliases and types
//	values.go     which metrics become readings and attributes
//	governor.go   who is asked for a rebirth, and when
//	carrier.go    why no command reaches a device
//	rows.go       what is stored of nodes
//	topic.go, hoststate.go, payload.go, structure.go, datatype.go, readings.go   what travels
//
// The statements of the specification are named by their ids (tck-id-…) where they are kept.
package sparkplug

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/ingest"
	"weir/ingest/links"
	"weir/internal/mqttclient"
	"weir/model"
	"weir/presence"
	"weir/registry"
	"weir/store"
)

// Config configures a transport.
type Config struct {
	InstanceID string
	Node       string // of the instance, in client identifiers
	Settings
	presence.Timing
}

// Intake is what a transport asks of the intake.
type Intake interface {
	Accept(ctx context.Context, a *ingest.Arrival, done func(ingest.Answer))
	Presence(ctx context.Context, transport, source string, b model.Binding, p model.Presence, done func(ingest.Answer))
	Received(transport, source, tenant string, bytes int) ingest.Packet
	Drop(p ingest.Packet, reason ingest.Reason)
	TenantFull(tenant string) bool
}

// Deps are the collaborators of a transport. Store, Logger and Registerer may be nil.
type Deps struct {
	Intake Intake
	// Tenant finds a tenant by its token.
	Tenant func(token string) (id int64, enabled, known bool)
	// Adopt finds the device of an external id, or makes it.
	Adopt    func(ctx context.Context, a registry.Adoption) (b model.Binding, made bool, err error)
	Presence presence.Store
	// ExternalID returns the external id of a device, "" for none.
	ExternalID func(ctx context.Context, b model.Binding) (string, error)
	// Accepting reports whether the log takes messages.
	Accepting func() bool
	// Link is the link of a source, whose listening time stands still while it is down.
	Link func(source string) links.Link
	Dial mqttclient.Dial
	// DialLocal connects to the open topics of this instance, for sources with the URL local; nil: there are none.
	DialLocal func() (net.Conn, error)
	Store     store.Store // of rows of nodes
	Now       func() time.Time

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Transport is the host applications of all sources.
type Transport struct {
	cfg      Config
	deps     Deps
	metrics  *metrics
	gauges   *gauges
	hosts    []*host
	trackers map[string]*presence.Tracker // by event source: several brokers may have the same host id
}

var _ ingest.Transport = (*Transport)(nil)

// New returns the transport. Run connects it.
func New(cfg Config, deps Deps) *Transport {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	t := &Transport{cfg: cfg, deps: deps, trackers: map[string]*presence.Tracker{}}
	t.metrics = newMetrics(deps.Registerer)
	sharers := map[string]int{}
	for i := range cfg.Sources {
		sharers[cfg.Sources[i].SourceID()]++
	}
	t.gauges = &gauges{all: map[*host]figures{}, m: t.metrics}
	for i := range cfg.Sources {
		source := &t.cfg.Sources[i]
		id := source.SourceID()
		if t.trackers[id] == nil {
			t.trackers[id] = t.newTracker(id)
		}
		t.hosts = append(t.hosts, newHost(t, source, t.trackers[id], sharers[id] == 1))
	}
	return t
}

func (t *Transport) newTracker(source string) *presence.Tracker {
	return presence.NewTracker(presence.TrackerConfig{Source: source, Timing: t.cfg.Timing, MaxGraces: func() int { return 0 }},
		presence.TrackerDeps{Store: t.deps.Presence, Now: t.deps.Now, Logger: t.deps.Logger,
			Emit: func(ctx context.Context, b model.Binding, p model.Presence) {
				t.metrics.presence.Inc()
				t.deps.Intake.Presence(ctx, ingest.TransportSparkplug, source, b, p, func(ingest.Answer) {}) // the tracker's check finds what was refused
			}})
}

// Name implements ingest.Transport.
func (t *Transport) Name() string { return ingest.TransportSparkplug }

// Run implements ingest.Transport: it keeps the sessions with all brokers open until ctx ends or Close has closed them.
func (t *Transport) Run(ctx context.Context) error {
	var all sync.WaitGroup
	life, end := context.WithCancel(ctx)
	defer end()
	for _, tracker := range t.trackers {
		all.Go(func() { _ = tracker.Run(life) }) // it always returns nil
	}
	var hosts sync.WaitGroup
	for _, h := range t.hosts {
		hosts.Go(func() { h.run(ctx) })
	}
	hosts.Wait()
	end()
	all.Wait()
	return nil
}

// Close implements ingest.Transport: STATE says offline, the sessions end, and what has come is answered and stored.
func (t *Transport) Close(ctx context.Context) error {
	errs := make([]error, len(t.hosts))
	var all sync.WaitGroup
	for i, h := range t.hosts {
		all.Go(func() { errs[i] = h.close(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Drop implements ingest.Transport: devices that were removed are forgotten. The session with a broker is nobody's but Weir's.
func (t *Transport) Drop(f func(model.Binding) bool) {
	for _, h := range t.hosts {
		h.drop(f)
	}
}

// Sources implements ingest.Transport.
func (t *Transport) Sources() []ingest.SourceStatus {
	var all []ingest.SourceStatus
	for _, h := range t.hosts {
		all = append(all, h.status())
	}
	return all
}

// SetTiming changes the timing of presence.
func (t *Transport) SetTiming(timing presence.Timing) {
	for _, tracker := range t.trackers {
		tracker.Set(timing)
	}
}
