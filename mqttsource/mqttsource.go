// Package mqttsource reads the MQTT brokers of others. An operator names a broker and what of it Weir takes: the topics of Weir's own broker, or
// topics of other programs, which mappings translate. What comes in is as safe as what Weir's own listeners take: a message at QoS 1 is
// acknowledged to the broker once its record is synced.
//
//	mqttsource.go  the transport: its sources
//	source.go      a source: its connection, its subscription, what a refusal does
//	lease.go       which node reads a source
//	receive.go     a message on its way from the broker to the intake
//	mapping.go     mappings: which device and which form a topic has
//	template.go    templates of topics, and filters
//	commands.go    commands for the devices of mappings
//	decode.go      payloads: JSON, numbers and words, presence
//	cbor.go        payloads in CBOR
//	path.go        paths into payloads, RFC 9535
//	presets.go     the topics of other programs
//	metrics.go     the figures
//	settings.go    the keys of the configuration
package mqttsource

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/command"
	"weir/ingest"
	"weir/ingest/links"
	"weir/internal/mqttclient"
	"weir/model"
	"weir/presence"
	"weir/registry"
	"weir/store"
)

// Config configures the transport. Settings must have passed Check.
type Config struct {
	InstanceID string
	Node       string // in the client identifier, and in the lease
	Alone      bool   // no other process uses the store: a lease that another run holds is of one that has ended
	Settings
	presence.Timing
}

// Intake is what takes messages in. See ingest.Intake.
type Intake interface {
	Accept(ctx context.Context, a *ingest.Arrival, done func(ingest.Answer))
	AcceptAll(ctx context.Context, as []*ingest.Arrival, done func(ingest.Answer, int))
	Received(transport, source, tenant string, bytes int) ingest.Packet
	Drop(p ingest.Packet, reason ingest.Reason)
	Presence(ctx context.Context, transport, source string, b model.Binding, p model.Presence, done func(ingest.Answer))
	Suspended() string
}

// Adopter finds the devices of external ids. See registry.Adoptions.
type Adopter interface {
	Adopt(ctx context.Context, a registry.Adoption) (b model.Binding, made bool, err error)
}

// Deps are the collaborators. Every field but Store, DialLocal, Desk, Logger and Registerer is required.
type Deps struct {
	Intake   Intake
	Adopter  Adopter
	Tenant   func(token string) (id int64, enabled, known bool)
	Presence presence.Store
	Store    store.Store // of the leases; nil: no other node reads the sources
	Link     func(source string) links.Link
	Dial     mqttclient.Dial
	// DialLocal connects to the open topics of this instance, for sources with the URL local; nil: there are none.
	DialLocal func() (net.Conn, error)
	Desk      command.Desk // of the commands of devices; nil: none is delivered
	// Suspend closes all transports for a reason until resume is called.
	Suspend    func(reason string) (resume func())
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time // nil: time.Now
}

// Transport reads the brokers of the configuration. It implements ingest.Transport.
type Transport struct {
	cfg     Config
	deps    Deps
	metrics *metrics
	sources []*source
	carrier *carrier // nil: no mapping has commands
	closing chan struct{}
	close   sync.Once
}

var _ ingest.Transport = (*Transport)(nil)

// New returns a transport that has not connected yet. The error is one of the settings.
func New(cfg Config, deps Deps) (*Transport, error) {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	t := &Transport{cfg: cfg, deps: deps, metrics: newMetrics(deps.Registerer), closing: make(chan struct{})}
	for i := range cfg.Sources {
		s, err := t.newSource(i)
		if err != nil {
			return nil, err
		}
		t.sources = append(t.sources, s)
	}
	t.carrier = newCarrier(t)
	return t, nil
}

// Name implements ingest.Transport.
func (*Transport) Name() string { return ingest.TransportExternalMQTT }

// Run reads all sources until ctx ends or Close is called.
func (t *Transport) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-t.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	var all sync.WaitGroup
	for _, s := range t.sources {
		all.Go(func() { s.run(ctx) })
	}
	all.Wait()
	if t.carrier != nil {
		t.carrier.stop()
	}
	return nil
}

// Close disconnects from all brokers once what was taken is answered.
func (t *Transport) Close(ctx context.Context) error {
	t.close.Do(func() { close(t.closing) })
	for _, s := range t.sources {
		select {
		case <-s.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Drop implements ingest.Transport. No connection is that of a device: what has changed is found with each message.
func (*Transport) Drop(func(model.Binding) bool) {}

// Sources implements ingest.Transport.
func (t *Transport) Sources() (all []ingest.SourceStatus) {
	for _, s := range t.sources {
		all = append(all, s.report())
	}
	return all
}

// Set takes over what a reload has changed.
func (t *Transport) Set(timing presence.Timing) {
	for _, s := range t.sources {
		s.presences.set(timing)
	}
}

// Owns reports whether the settings name a source.
func (s Settings) Owns(source string) bool {
	for i := range s.Sources {
		if s.Sources[i].ID == source {
			return true
		}
	}
	return false
}

// IsLocal reports whether the source reads the open topics of the instance itself.
func (s *Source) IsLocal() bool { return s.URL == mqttclient.Local }

// Broker is the URL of the source's broker.
func (s *Source) Broker() string {
	if s.URL != "" {
		return s.URL
	}
	host := s.Host
	if strings.Contains(host, ":") { // an address of IPv6
		host = "[" + strings.Trim(host, "[]") + "]"
	}
	return fmt.Sprintf("mqtt://%s:%d", host, s.Port)
}
