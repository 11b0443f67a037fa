package app

import (
	"context"
	"errors"
	"sync/atomic"

	"weir/auth"
	"weir/broker"
	"weir/config"
	"weir/ingest"
	"weir/internal/memory"
	"weir/model"
	"weir/presence"
	"weir/store"
)

// connectionMQTT is what a connection takes: session, buffers, stacks.
const connectionMQTT = 40 << 10

var mqttShare = share{Share: memory.Share{Name: "MQTT connections", PerMille: 240, Min: 4 << 20, Max: 1 << 40},
	planned: func(bytes int64, c config.Config) int64 {
		return int64(connectionsIn(bytes, c.Broker.MaxConnections)) * connectionMQTT
	},
	held: func(in *Instance) int64 {
		n, _ := in.transports.connections()
		return int64(n) * connectionMQTT
	}}

// mqttConnections is how many connections there may be: what the configuration allows, as far as memory lasts.
func (b Budget) mqttConnections(configured int) int {
	return connectionsIn(b.of(mqttShare), configured)
}

func connectionsIn(bytes int64, configured int) int {
	return int(min(int64(configured), max(bytes/connectionMQTT, minConnections)))
}

// mqtt is the broker with its listeners.
type mqtt struct {
	transportDeps
	broker atomic.Pointer[broker.Broker] // nil: it does not listen
}

func newMQTT(d transportDeps) transport { return &mqtt{transportDeps: d} }

func (m *mqtt) start(life context.Context) error {
	listeners := m.listeners()
	if !m.cfg.Broker.Enabled || len(listeners) == 0 {
		return nil
	}
	b, err := broker.New(broker.Config{InstanceID: m.cfg.Instance.ID, Source: m.source, MaxConnections: m.lock.maxConnections(m.cfg.Broker.MaxConnections),
		MaxHandshakes: m.lock.maxHandshakes(), MaxLargePackets: m.budget.largeBodies(),
		SilentPresence: !m.cfg.Presence.Broker, RestartGrace: m.cfg.Presence.RestartGrace,
		ReconcileInterval: m.cfg.Presence.ReconcileInterval, AllowQoS2: m.cfg.Broker.AllowQoS2,
		Open: openTopics(m.cfg.Broker)},
		broker.Deps{Intake: m.intake.into, Verifier: connectVerifier{m.entities.verifier}, Presence: presences{m.store, m.entities}, Refused: m.refused, Logger: m.log, Registerer: m.metrics})
	if err != nil {
		return err
	}
	for _, l := range listeners {
		o, err := m.listenOn(l.key, l.address, l.at)
		if err != nil {
			return errors.Join(err, b.Close(life))
		}
		b.Listen(o, l.Listener)
	}
	m.broker.Store(b)
	m.entities.verifier.OnInvalidate(func(f auth.Invalidation) {
		b.Drop(func(bound model.Binding) bool {
			return f.CredentialID != 0 && bound.Credential == f.CredentialID || f.DeviceID != 0 && bound.DeviceID == f.DeviceID ||
				f.Tenant != "" && bound.Tenant == f.Tenant
		})
	})
	m.goes(life, b.Name(), b.Run)
	return nil
}

func (m *mqtt) stop(ctx context.Context) error {
	if b := m.broker.Load(); b != nil {
		return b.Close(ctx)
	}
	return nil
}

func (m *mqtt) apply(c *config.Config) {
	if b := m.broker.Load(); b != nil {
		b.Set(broker.Settings{MaxConnections: m.lock.maxConnections(c.Broker.MaxConnections), AllowQoS2: c.Broker.AllowQoS2,
			RestartGrace: c.Presence.RestartGrace, ReconcileInterval: c.Presence.ReconcileInterval})
	}
}

func (m *mqtt) connections() (open, maximum int) {
	if b := m.broker.Load(); b != nil {
		return b.Connections(), b.Settings().MaxConnections
	}
	return 0, 0
}

func (m *mqtt) opened() []listener {
	return []listener{{"mqtt", m.addrs.MQTT, "devices; a credential per connection; no TLS"},
		{"mqtts", m.addrs.MQTTS, "devices; " + m.proofs() + " per connection; TLS"},
		{"mqtt_ws", m.addrs.MQTTWS, "devices over WebSocket, /mqtt; a credential per connection; no TLS"},
		{"mqtt_wss", m.addrs.MQTTWSS, "devices over WebSocket, /mqtt; a credential per connection; TLS"},
		{"open_topics", m.addrs.OpenTopics, "general publish and subscribe, NOT stored; " + m.openTo() + "; no TLS"}}
}

// openTo says which clients may use the open topics.
func (m *mqtt) openTo() string {
	switch b := m.cfg.Broker; {
	case b.OpenTopicsAnonymous:
		return "NO credential is asked for"
	case b.OpenTopicsTenant != "":
		return "a device credential of " + b.OpenTopicsTenant
	}
	return "no client is let in"
}

// proofs is what opens a connection at mqtts.
func (m *mqtt) proofs() string {
	if m.cfg.TLS.ClientCAFile != "" {
		return "a credential or a certificate"
	}
	return "a credential"
}

// refused shows a connection that the broker turned away.
func (m *mqtt) refused(tenant, device, why string) {
	m.applier.tap.ConnectionRefused(ingest.TransportMQTT, m.source, tenant, device, why, m.entities.Govern.Known(tenant))
}

// mqttListener is a listener of the broker.
type mqttListener struct {
	broker.Listener
	key     string
	address string  // as configured
	at      *string // where it really is
}

// listeners are those that are to be opened. Of those with TLS only mqtts asks for the certificate of a device.
func (m *mqtt) listeners() (all []mqttListener) {
	l := m.cfg.Listeners
	add := func(name, address string, at *string, d broker.Listener) {
		if d.Name = name; address != "" {
			all = append(all, mqttListener{d, "listeners." + name, address, at})
		}
	}
	add("mqtt", l.MQTT, &m.addrs.MQTT, broker.Listener{})
	add("mqtt_ws", l.MQTTWS, &m.addrs.MQTTWS, broker.Listener{WebSocket: true})
	if pair := m.certificate.pair; pair != nil {
		add("mqtts", l.MQTTS, &m.addrs.MQTTS, broker.Listener{TLS: pair.Server(true)})
		add("mqtt_wss", l.MQTTWSS, &m.addrs.MQTTWSS, broker.Listener{TLS: pair.Server(false), WebSocket: true})
	}
	if open := m.cfg.Broker.OpenTopics; open != "" {
		all = append(all, mqttListener{broker.Listener{Name: "open_topics", Open: true}, "broker.open_topics", open, &m.addrs.OpenTopics})
	}
	return all
}

// openTopics are those of the configuration, nil for none.
func openTopics(c config.Broker) *broker.OpenConfig {
	if c.OpenTopics == "" {
		return nil
	}
	return &broker.OpenConfig{Tenant: c.OpenTopicsTenant, Anonymous: c.OpenTopicsAnonymous}
}

// connectVerifier lets the broker ask auth about a connection.
type connectVerifier struct{ v *auth.Verifier }

func (d connectVerifier) Verify(ctx context.Context, c broker.Claim) (broker.Proof, error) {
	p, err := d.v.Verify(ctx, auth.Claim{Tenant: c.Tenant, Type: c.Type, ID: c.ID, Secret: c.Secret, Connecting: true,
		Presented: c.Type == broker.X509Certificate})
	if err != nil {
		return broker.Proof{}, err
	}
	return broker.Proof{Binding: model.Binding{Tenant: p.Tenant, TenantID: p.TenantID, Device: p.Device, DeviceID: p.DeviceID, Credential: p.CredentialID},
		Expires: p.Expires}, nil
}

// presences lets the broker read what is stored of its devices' presence.
type presences struct {
	store    *database
	entities *entities
}

func (p presences) PresenceSession(ctx context.Context, device int64) (session uint64, err error) {
	err = p.store.db.Read(ctx, func(tx store.Tx) error {
		d, err := store.GetDeviceState(tx, device)
		if err == nil && d != nil {
			session = d.Session
		}
		return err
	})
	return session, err
}

func (p presences) AssertedPresence(ctx context.Context, source string, after int64, limit int) ([]presence.Asserted, error) {
	var out []presence.Asserted
	err := p.store.db.Read(ctx, func(tx store.Tx) error {
		rows, err := store.AssertedStates(tx, source, after, limit)
		if err != nil {
			return err
		}
		for _, r := range rows {
			out = append(out, presence.Asserted{Binding: model.Binding{Tenant: p.entities.Govern.TokenOf(r.TenantID), TenantID: r.TenantID, Device: r.Token,
				DeviceID: r.DeviceID}, Session: r.Session, Connected: r.State == model.Connected})
		}
		return nil
	})
	return out, err
}
