// Package broker is the MQTT door: MQTT 3.1.1 and 5.0 for devices, with the mochi library behind a guard of our own.
//
// A connection goes through these hands:
//
//	door.go      accepts, bounds what strangers may cost, reads the CONNECT, has the credential verified
//	listener.go  what is spoken before MQTT: TLS; websocket.go and frames.go: WebSocket
//	session.go   one per connection: its binding, its clock, why it ended, what follows from that
//	guard.go     the net.Conn that mochi is shown: it frames and judges every packet before the library sees one
//	publish.go   takes the device's publishes to the gate of ingest: at the guard, or on the hook path out of mochi's hands
//	acks.go      PUBACKs in the order of arrival, each only after the gate has answered, joined into few writes
//	hook.go      what mochi asks of us; it keeps SUBSCRIBE, UNSUBSCRIBE, PINGREQ and the way down to the device
//	kept.go      what outlives a connection: the subscription, a delayed will
//	will.go      a will on its way to the gate
//	open.go      the open topics, a listener for what is no device: general publish and subscribe, nothing of it stored
//	presence.go  connects and disconnects as presence, the grace after what Weir itself ended
//
// A QoS 1 publish is acknowledged when the gate says that it is on disk, never before, and the goroutine that reads the
// connection never waits for the disk: it hands the message over and reads on, up to the receive window.
package broker

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/prometheus/client_golang/prometheus"

	"weir/ingest"
	"weir/model"
)

// Config is what an operator or a test may set. Zero values mean the defaults named here.
type Config struct {
	InstanceID string // first level of every topic
	Source     string // event source id; "mqtt1"

	MaxConnections   int // 100,000; beyond it a CONNECT is refused as busy
	MaxPerDevice     int // 1,000 connections of one device, by suffixes of its client id
	MaxHandshakes    int // 1,024 connections that have not sent their CONNECT; beyond it the oldest of them is closed
	MaxConnectPacket int // 64 KiB
	MaxPacket        int // 1 MiB, header included
	MaxLargePackets  int // 32 packets over 64 KiB are read at a time, others wait
	ReceiveMaximum   int // 256 publishes of a connection may wait for their PUBACK
	MaxKeptSessions  int // 10,000 subscriptions are remembered for devices that are away; the oldest go first

	// Open are the open topics, served by a Door that says so; nil: there are none.
	Open *OpenConfig
	// HookPath takes publishes through mochi's decoder and its OnPublish hook; else the guard takes them out before.
	HookPath bool
	// AllowQoS2 completes the handshake of QoS 2; the message is stored as for QoS 1. Else QoS 2 is refused.
	AllowQoS2 bool

	ConnectTimeout time.Duration // 10 s from accept to CONNACK
	WriteTimeout   time.Duration // 10 s for one write, then the reader is too slow
	MaxKeepAlive   time.Duration // 600 s
	MaxSession     time.Duration // 12 h, then the client has to connect anew

	SilentPresence    bool          // do not assert presence; what was asserted before is demoted
	RestartGrace      time.Duration // 150 s in which a device that Weir cut off may return
	ReconcileInterval time.Duration // 300 s
}

// Deps are the neighbours. Intake and Verifier are required; Presence is, unless Config.SilentPresence is set and nothing
// was ever asserted.
type Deps struct {
	Gate     Intake
	Verifier Verifier
	Presence PresenceStore
	// Refused is told of connections that named who they are and were turned away; nil tells nobody. It must not block.
	Refused    func(tenant, device, why string)
	Logger     *slog.Logger          // nil: nothing is logged
	Registerer prometheus.Registerer // nil: metrics are kept and not registered
	Now        func() time.Time      // wall clock; nil: time.Now
}

// Gate is the part of ingest.Intake that the door needs.
type Intake interface {
	// Accept takes a message and calls done exactly once, before it returns or later. It may block; ctx is the life of
	// the connection.
	Accept(ctx context.Context, a *ingest.Arrival, done func(ingest.Answer))
	// Presence takes a transition of the bound device, as Accept takes a message.
	Presence(ctx context.Context, door, source string, b ingest.Binding, p model.Presence, done func(ingest.Answer))
	// Received counts a parsed message that never becomes an Arrival, Refuse how it ended.
	Received(door, tenant string, bytes int)
	Refuse(door, tenant string, reason ingest.Reason)
}

// Verifier verifies device credentials. Any error is a refusal; the device is never told which.
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
}

// Proof is a verified credential.
type Proof struct {
	ingest.Binding
	Expires model.Micros // 0 when it does not
}

// Broker is the MQTT door. It is safe for concurrent use.
type Broker struct {
	cfg      Config
	settings atomic.Pointer[Settings] // what counts in place of cfg
	deps     Deps
	log      *slog.Logger
	metrics  *metrics
	server   *mqtt.Server
	lobby    lobby
	kept     kept
	keeper   *keeper
	general  *openTopics   // nil: there are none
	large    chan struct{} // places for packets over largePacket

	work     sync.WaitGroup // connections being handled
	open     atomic.Int64   // of them, in whatever state
	drops    atomic.Uint64  // calls of Drop, so that a credential verified before one is verified again
	sessions struct {
		sync.Mutex
		byClient  map[string]*session
		perDevice map[int64]int
		listeners map[net.Listener]struct{}
		closing   bool
	}
	// closing ends when Close may no longer wait for answers.
	closing context.Context
	hurry   context.CancelFunc
}

// New returns a broker that serves nobody yet.
func New(cfg Config, deps Deps) (*Broker, error) {
	cfg = cfg.withDefaults()
	if !model.ValidToken(cfg.InstanceID) {
		return nil, model.CheckToken("instance.id", cfg.InstanceID)
	}
	if deps.Gate == nil || deps.Verifier == nil {
		return nil, errors.New("broker: a gate and a verifier are required")
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Broker{cfg: cfg, deps: deps, log: deps.Logger, metrics: newMetrics(deps.Registerer),
		large: make(chan struct{}, cfg.MaxLargePackets)}
	b.settings.Store(cfg.settings())
	if deps.Registerer != nil {
		b.registerBounds(deps.Registerer)
	}
	b.closing, b.hurry = context.WithCancel(context.Background())
	b.sessions.byClient = map[string]*session{}
	b.sessions.perDevice = map[int64]int{}
	b.sessions.listeners = map[net.Listener]struct{}{}
	b.lobby.init(cfg.MaxHandshakes, b.metrics)
	b.kept.init(b)
	b.keeper = newKeeper(b)
	if cfg.Open != nil {
		b.general = newOpenTopics(b, *cfg.Open)
		b.metrics.open.Set(1)
	}
	b.server = mqtt.New(serverOptions(cfg))
	if err := b.server.AddHook(&hook{broker: b}, nil); err != nil {
		return nil, err
	}
	return b, nil
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
	number(&c.MaxConnections, 100_000)
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
	duration(&c.RestartGrace, 150*time.Second)
	duration(&c.ReconcileInterval, 300*time.Second)
	c.MaxConnectPacket = min(c.MaxConnectPacket, c.MaxPacket)
	c.ReceiveMaximum = min(c.ReceiveMaximum, math.MaxUint16)
	c.MaxKeepAlive = min(c.MaxKeepAlive, maxKeepAlive*time.Second)
	if c.Source == "" {
		c.Source = "mqtt1"
	}
	return c
}

// maxKeepAlive is the longest keep-alive that mochi can hold: it computes one and a half of it in 16 bits.
const maxKeepAlive = math.MaxUint16 / 3 * 2

// serverOptions sets mochi up. Its listeners and its event loop are never started: connections are handed to it one by
// one, sessions that outlive a connection are ours, and it would otherwise copy its client table every second. Its logger
// is silenced because it logs whole packets.
func serverOptions(cfg Config) *mqtt.Options {
	caps := mqtt.NewDefaultServerCapabilities()
	caps.MaximumClients = math.MaxInt64 // counted by the door, before mochi allocates anything
	caps.MaximumClientWritesPending = 64
	caps.MaximumSessionExpiryInterval = 0
	caps.MaximumMessageExpiryInterval = 0 // it would put an expiry of its own on every message
	caps.MaximumPacketSize = uint32(cfg.MaxPacket)
	caps.ReceiveMaximum = uint16(cfg.ReceiveMaximum)
	caps.TopicAliasMaximum = 0
	caps.SharedSubAvailable = 0
	caps.WildcardSubAvailable = 0
	caps.SubIDAvailable = 0
	caps.RetainAvailable = 0
	caps.MaximumQos = 1
	caps.MinimumProtocolVersion = 4
	caps.Compatibilities.NoInheritedPropertiesOnAck = true
	caps.Compatibilities.ObscureNotAuthorized = true
	caps.Compatibilities.PassiveClientDisconnect = true
	return &mqtt.Options{
		Capabilities:             caps,
		ClientNetReadBufferSize:  16, // the guard buffers; this is the smallest that bufio takes
		ClientNetWriteBufferSize: 2048,
		SysTopicResendInterval:   365 * 24 * 3600,
		Logger:                   slog.New(slog.DiscardHandler),
	}
}

// Serve serves a listener on which MQTT is spoken, without TLS.
func (b *Broker) Serve(ctx context.Context, ln net.Listener) error {
	return b.ServeListener(ctx, ln, Listener{})
}

// ServeListener accepts connections on ln until ctx ends or Close is called; it then closes ln and returns nil. Several
// listeners may be served at once; they share the limits. The handshakes of TLS and WebSocket are done within
// ConnectTimeout, each by the goroutine of its connection.
func (b *Broker) ServeListener(ctx context.Context, ln net.Listener, d Listener) error {
	if d.Name == "" {
		d.Name = "mqtt"
	}
	if d.Open && b.general == nil {
		return errors.Join(errors.New("broker: there are no open topics"), ln.Close())
	}
	if !b.attach(ln) {
		return errors.Join(net.ErrClosed, ln.Close())
	}
	defer b.detach(ln)
	b.metrics.accepted.WithLabelValues(d.Name)
	b.metrics.byListener.WithLabelValues(d.Name)
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	for pause := time.Duration(0); ; {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			pause = 0
			b.take(conn, &d)
		case ctx.Err() != nil || b.isClosing():
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default: // out of file descriptors, most likely: wait for some to come back
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			b.metrics.acceptErrors.Inc()
			b.log.Warn("accepting an MQTT connection failed", "error", err, "retry_in", pause)
			if !sleep(ctx, b.closing, pause) {
				return nil
			}
		}
	}
}

// take begins with a connection. Whatever its state, there are never more than the sessions and handshakes allowed.
func (b *Broker) take(conn net.Conn, d *Listener) {
	b.metrics.accepted.WithLabelValues(d.Name).Inc()
	if b.open.Add(1) > int64(b.settings.Load().MaxConnections)+int64(b.cfg.MaxHandshakes) {
		b.open.Add(-1)
		b.metrics.refused.WithLabelValues("too-many").Inc()
		conn.Close()
		return
	}
	b.work.Go(func() {
		defer b.open.Add(-1)
		b.handle(conn, d)
	})
}

// Run keeps presence true: it ends the grace of devices that did not return and repairs what was lost. It returns nil when
// ctx ends.
func (b *Broker) Run(ctx context.Context) error { return b.keeper.run(ctx) }

// Close stops accepting, tells MQTT 5 clients 0x8B (server shutting down), waits until what was handed to the gate is
// answered and the answers are written, closes every connection and hands the wills to the gate, those that wait for their
// delay as well. When ctx ends first the rest is cut off and ctx's error returned; wills are then refused where they would
// have to wait. Devices keep their presence: Weir's own stop is no transition of theirs.
func (b *Broker) Close(ctx context.Context) error {
	sessions := b.shut()
	b.lobby.closeAll()
	for _, s := range sessions {
		s.end(causeShutdown)
	}
	if b.general != nil {
		for _, c := range b.general.shut() {
			sessions = append(sessions, c.session)
		}
		defer b.general.clear()
	}
	done := make(chan struct{})
	go func() {
		b.work.Wait()
		close(done)
	}()
	defer b.hurry()
	defer context.AfterFunc(ctx, b.hurry)()
	defer b.kept.close()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		b.hurry()
		for _, s := range sessions {
			s.conn.Close()
		}
		return ctx.Err()
	}
}

// Drop ends the connections whose binding matches, at once and with 0x87 (not authorized) to MQTT 5 clients: a
// credential, a device or a tenant is gone. A connection that is just being verified is verified again. It returns how
// many it ended.
func (b *Broker) Drop(match func(ingest.Binding) bool) int {
	b.drops.Add(1)
	n := 0
	for _, s := range b.live() {
		if match(s.binding) && s.end(causeDropped) {
			n++
		}
	}
	b.kept.drop(match)
	if b.general != nil {
		n += b.general.drop(match)
	}
	return n
}

// Connections is the number of connections that are open.
func (b *Broker) Connections() int {
	b.sessions.Lock()
	defer b.sessions.Unlock()
	return len(b.sessions.byClient)
}

func (b *Broker) live() []*session {
	b.sessions.Lock()
	defer b.sessions.Unlock()
	all := make([]*session, 0, len(b.sessions.byClient))
	for _, s := range b.sessions.byClient {
		all = append(all, s)
	}
	return all
}

func (b *Broker) attach(ln net.Listener) bool {
	b.sessions.Lock()
	defer b.sessions.Unlock()
	if b.sessions.closing {
		return false
	}
	b.sessions.listeners[ln] = struct{}{}
	return true
}

func (b *Broker) detach(ln net.Listener) {
	b.sessions.Lock()
	defer b.sessions.Unlock()
	delete(b.sessions.listeners, ln)
	ln.Close()
}

func (b *Broker) isClosing() bool {
	b.sessions.Lock()
	defer b.sessions.Unlock()
	return b.sessions.closing
}

// shut refuses what comes from here on and returns the sessions there are.
func (b *Broker) shut() []*session {
	b.sessions.Lock()
	b.sessions.closing = true
	for ln := range b.sessions.listeners {
		ln.Close()
	}
	b.sessions.Unlock()
	return b.live()
}

// sleep waits for d and reports whether neither context ended before.
func sleep(ctx, other context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-other.Done():
	}
	return false
}
