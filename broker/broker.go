// Package broker is the MQTT transport: MQTT 3.1.1 and 5.0, for devices and for open topics.
//
// A connection passes through these files:
//
//	transport.go  listeners, start and stop
//	handshake.go  accepts, bounds what unauthenticated clients may cost, reads the CONNECT, has the credential verified
//	listener.go   what is spoken before MQTT: TLS; websocket.go and frames.go: WebSocket
//	conn.go       one per connection: its identity, its timeouts, why it ended and what follows from that
//	reader.go     reads packets and dispatches every one of them: one loop for all
//	device.go     the service for devices: publishes go to the intake, a device may subscribe to its own commands and attributes
//	provision.go  the service for devices that get their credential themselves
//	site.go       the service for the clients of a site, in the role edge
//	open.go       the service for open topics: general publish and subscribe, nothing of it stored
//	pubsub.go     sessions, subscriptions and retained messages of a service; session.go what outlives a connection
//	deliver.go    writes answers and deliveries to a client
//	commands.go   commands that wait for devices: who gets one, when it is claimed, and how its delivery ended
//	attributes.go what a device may read of itself: sent when it subscribes, and after each change
//	acks.go       PUBACKs in the order of arrival, each only after the intake has answered, joined into few writes
//	codec.go      what the mochi library encodes and decodes
//
// A QoS 1 publish is acknowledged when the intake reports that it is on disk, never before, and the goroutine that reads the
// connection never waits for the disk: it hands the message over and reads on, up to the receive window.
package broker

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/command"
	"weir/ingest"
	"weir/ingest/links"
	"weir/internal/handshake"
	"weir/internal/setting"
	"weir/internal/transfers"
	"weir/model"
	"weir/presence"
)

// Config is what an operator or a test may set. Zero values mean the defaults named here.
type Config struct {
	InstanceID string // first level of every topic
	Source     string // event source id; "mqtt1"

	Settings
	MaxPerDevice     int // 1,000 connections of one device, by client ids
	MaxHandshakes    int // 1,024 connections that have not sent their CONNECT; beyond it the oldest of them is closed
	MaxConnectPacket int // 64 KiB
	MaxPacket        int // 1 MiB, header included
	MaxLargePackets  int // 32 packets over 64 KiB are read at a time, a quarter of them of one tenant; others wait
	ReceiveMaximum   int // 256 publishes of a connection may wait for their PUBACK
	MaxKeptSessions  int // 10,000 subscriptions are remembered for devices that are away; the oldest go first

	// Open are the open topics, served by a Listener with Open; nil: there are none.
	Open *OpenConfig
	// Site is whom the other listeners serve in place of devices; nil: devices.
	Site *Site

	ConnectTimeout time.Duration // 10 s from accept to CONNACK
	WriteTimeout   time.Duration // 10 s for one write, then the reader is too slow
	MaxKeepAlive   time.Duration // 600 s
	MaxSession     time.Duration // 12 h, then the client has to connect again

	SilentPresence bool // do not assert presence; what was asserted before is demoted
	presence.Timing
}

// Deps are the collaborators. Intake is required, and Verifier unless Config.Site is set; Presence is, unless Config.SilentPresence is set and nothing was
// ever asserted.
type Deps struct {
	Intake    Intake
	Verifier  Verifier
	Presence  presence.Store
	Provision Provisioner // nil: no device gets its credential here
	// Desk hands out the commands of devices, see Broker.Commands; nil: none is delivered.
	Desk command.Desk
	// Attributes reads what devices may read of themselves, see Broker.SharedChanged; nil: no device can.
	Attributes Attributes
	// Edges knows which devices are edges; nil: none is.
	Edges Edges
	// Listening is called when a device begins or ceases to take commands from HandOn: clients are subscribed to its command topic, or none is any more.
	// It is called one after the other. nil: HandOn reaches no device, and the clients of a site may not subscribe.
	Listening func(tenant, device string, listens bool)
	// Link returns the listening time of a link that can be cut; nil: the links of edges have none of their own.
	Link func(name string) links.Link
	// Refused is called for each CONNECT that was refused, and about once a minute for connections that end before one;
	// nil: it is not called. It must not block. tenant and device are what it claimed, "" where it could not be read;
	// mistake says what is wrong with its user name, client id or credential, "" when they have the right form.
	Refused    func(tenant, device, why, mistake string)
	Logger     *slog.Logger          // nil: nothing is logged
	Registerer prometheus.Registerer // nil: metrics are kept and not registered
	Now        func() time.Time      // wall clock; nil: time.Now
}

// Intake is the part of ingest.Intake that the broker needs.
type Intake interface {
	// Accept takes a message and calls done exactly once, before it returns or later. It may block; ctx ends with
	// the connection.
	Accept(ctx context.Context, a *ingest.Arrival, done func(ingest.Answer))
	// Presence takes a transition of the bound device, as Accept takes a message.
	Presence(ctx context.Context, transport, source string, b model.Binding, p model.Presence, done func(ingest.Answer))
	// Firing takes an edge of a rule that the site of an edge has judged, once under its number.
	Firing(ctx context.Context, transport, source string, b model.Binding, f model.Firing, link string, number uint64, done func(ingest.Answer))
	// Received counts a parsed packet that never becomes an Arrival, Refuse why it was refused.
	Received(transport, source, tenant string, bytes int) ingest.Packet
	Refuse(p ingest.Packet, reason ingest.Reason)
}

// Verifier verifies device credentials. An error that wraps ErrBusy says that the credential was not judged, any other is a refusal;
// the answer to the device never says which refusal.
type Verifier interface {
	Verify(ctx context.Context, c Claim) (Proof, error)
}

// Credential types that open a connection.
const (
	AccessToken     = "ACCESS_TOKEN"     // possession of the id is the proof
	MQTTBasic       = "MQTT_BASIC"       // id and password
	X509Certificate = "X509_CERTIFICATE" // id is the lower-case hex SHA-256 of what TLS verified
)

// Claim is what a CONNECT presents.
type Claim struct {
	Tenant string
	Type   string // AccessToken, MQTTBasic or X509Certificate
	ID     string
	Secret string // of MQTTBasic only
	From   netip.Addr
}

// ErrBusy says that a credential was not judged: too many are being checked, or its user name waits after wrong passwords. The
// device is told that the server is busy, since it may have presented the right one.
var ErrBusy = errors.New("broker: the credential cannot be checked now")

// Proof is a verified credential.
type Proof struct {
	model.Binding
	Expires model.Micros // 0 when it does not
	edge    bool         // the device is an edge
}

// Broker is the MQTT transport. It is safe for concurrent use.
type Broker struct {
	strangers *handshake.Reporter

	cfg          Config
	settings     atomic.Pointer[Settings] // what applies in place of cfg
	deps         Deps
	log          *slog.Logger
	metrics      *metrics
	pending      pending
	tracker      *presence.Tracker
	devices      *devices
	general      *openTopics      // nil: there are none
	provisioning *provisioning    // nil: no device gets its credential here
	site         *site            // nil: devices are served
	large        *transfers.Slots // for packets over largePacket
	listeners    listeners
	state        sourceState

	work      sync.WaitGroup // connections being handled
	open      atomic.Int64   // of them, in whatever state
	drops     atomic.Uint64  // calls of Drop, so that a credential verified before one is verified again
	refusals  atomic.Int64   // of connections and publishes
	lastHeard atomic.Int64   // when the last publish came, in seconds
	// closing ends when Close may no longer wait for answers.
	closing context.Context
	abort   context.CancelFunc
}

// New returns a broker that serves no listener yet.
func New(cfg Config, deps Deps) (*Broker, error) {
	cfg = cfg.withDefaults()
	if !model.ValidToken(cfg.InstanceID) {
		return nil, model.CheckToken("instance.id", cfg.InstanceID)
	}
	if deps.Intake == nil || deps.Verifier == nil && cfg.Site == nil {
		return nil, errors.New("broker: an intake and a verifier are required")
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Broker{cfg: cfg, deps: deps, log: deps.Logger, metrics: newMetrics(deps.Registerer),
		large: transfers.New(cfg.MaxLargePackets)}
	b.settings.Store(&cfg.Settings)
	if deps.Registerer != nil {
		b.registerBounds(deps.Registerer)
	}
	b.closing, b.abort = context.WithCancel(context.Background())
	b.listeners.open = map[net.Listener]struct{}{}
	b.strangers = b.newUnnamed()
	b.pending.init(cfg.MaxHandshakes, b.metrics, func() { b.countRefused("handshakes") })
	b.tracker = b.newTracker()
	b.devices = newDevices(b)
	if deps.Provision != nil {
		b.provisioning = newProvisioning(b)
	}
	if cfg.Site != nil {
		b.site = newSite(b, cfg.Site)
	}
	if cfg.Open != nil {
		b.general = newOpenTopics(b, *cfg.Open)
		b.metrics.open.Set(1)
	}
	b.state.set(ingest.SourceDown, deps.Now())
	return b, nil
}

// newTracker returns the tracker of the devices' presence.
func (b *Broker) newTracker() *presence.Tracker {
	return presence.NewTracker(presence.TrackerConfig{Source: b.cfg.Source, Silent: b.cfg.SilentPresence, Timing: b.cfg.Timing,
		MaxGraces: func() int { return b.settings.Load().MaxConnections }},
		presence.TrackerDeps{Store: b.deps.Presence, Crowded: b.pending.crowded, Now: b.deps.Now, Logger: b.log,
			InGrace: func(n int) { b.metrics.grace.Set(float64(n)) }, ReadFailed: b.metrics.presenceUnknown.Inc,
			Emit: func(ctx context.Context, bound model.Binding, p model.Presence) {
				b.deps.Intake.Presence(ctx, ingest.TransportMQTT, b.cfg.Source, bound, p, func(a ingest.Answer) {
					b.metrics.presence.WithLabelValues(p.State.String(), outcomeWord(a.Outcome)).Inc()
				})
			}})
}

func (c Config) withDefaults() Config {
	number := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	duration := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	setting.FillDefaults(&c.Settings)
	setting.FillDefaults(&c.Timing)
	number(&c.MaxPerDevice, 1000)
	number(&c.MaxHandshakes, 1024)
	number(&c.MaxConnectPacket, 64<<10)
	number(&c.MaxPacket, 1<<20)
	number(&c.MaxLargePackets, 32)
	number(&c.ReceiveMaximum, 256)
	number(&c.MaxKeptSessions, 10_000)
	duration(&c.ConnectTimeout, 10*time.Second)
	duration(&c.WriteTimeout, 10*time.Second)
	duration(&c.MaxKeepAlive, 600*time.Second)
	duration(&c.MaxSession, 12*time.Hour)
	c.MaxConnectPacket = min(c.MaxConnectPacket, c.MaxPacket)
	c.ReceiveMaximum = min(c.ReceiveMaximum, math.MaxUint16)
	c.MaxKeepAlive = min(c.MaxKeepAlive, maxKeepAlive*time.Second)
	if c.Source == "" {
		c.Source = "mqtt1"
	}
	return c
}

// maxKeepAlive is the longest keep-alive: one and a half of it fits into 16 bits.
const maxKeepAlive = math.MaxUint16 / 3 * 2
