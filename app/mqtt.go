package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"weir/auth"
	"weir/broker"
	"weir/config"
	"weir/ingest"
	"weir/internal/edgewire"
	"weir/internal/memory"
	"weir/internal/ranges"
	"weir/model"
	"weir/operate"
	"weir/presence"
	"weir/registry"
	"weir/site"
	"weir/store"
)

// connectionMQTT is what a connection takes: session, buffers, stacks.
const connectionMQTT = 40 << 10

var mqttShare = share{Share: memory.Share{Name: "MQTT connections", PerMille: 200, Min: 4 << 20, Max: 1 << 40},
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

// mqttTransport is the broker.
var mqttTransport = Transport{
	Name:      ingest.TransportMQTT,
	Source:    "mqtt1",
	Listeners: mqttListeners,
	New:       newMQTT,
	share:     &mqttShare,
}

func newMQTT(d TransportDeps) (Served, error) {
	if len(d.Sockets) == 0 {
		return Served{}, nil
	}
	c, lock := d.Config, d.lock
	// The configured settings, with as many connections as memory and open files allow.
	settings := func(c *config.Config) broker.Settings {
		s := c.Broker.Settings
		s.MaxConnections = lock.maxConnections(s.MaxConnections)
		return s
	}
	// With an uplink that takes commands, the Weir above is notified which devices listen here.
	var listening func(tenant, device string, listens bool)
	if d.Uplink != nil && c.Edge.Commands {
		listening = d.Uplink.Listening
	}
	b, err := broker.New(broker.Config{
		InstanceID:      c.Instance.ID,
		Source:          d.Source,
		Settings:        settings(&c),
		MaxHandshakes:   lock.maxHandshakes(),
		MaxLargePackets: lock.budget.largeBodies(),
		SilentPresence:  !c.Presence.Broker,
		Timing:          c.Presence.Timing,
		Open:            openTopics(c.Broker.OpenSettings),
	}, broker.Deps{
		Listening:  listening,
		Intake:     d.Intake,
		Verifier:   connectVerifier{d.Verifier, d.Intake.Suspended},
		Presence:   d.Presence,
		Provision:  d.Provision,
		Desk:       d.Desk,
		Attributes: d.Registry.Attributes,
		Edges:      edgesOf{d.Registry.Edges, d.Site, d.Relayed},
		Link:       d.Link,
		Refused:    d.Refused,
		Logger:     d.Logger,
		Registerer: d.Registerer,
	})
	if err != nil {
		return Served{}, err
	}
	// Edges that are connected are notified when what is synced to them changes.
	d.Registry.Edges.OnSynced(b.EdgesChanged)
	if listening != nil {
		d.Uplink.HandOnBy(b.HandOn)
	}
	// From here on the sockets belong to the broker.
	for _, s := range d.Sockets {
		b.Listen(s.Listener, broker.Listener{
			Name:      s.About.Name,
			TLS:       s.TLS,
			WebSocket: s.About.Protocol == mqttOverWebSocket,
			Open:      s.About.Protocol == mqttOpen,
		})
	}
	return Served{
		Transport:     b,
		DialOpen:      b.DialOpen,
		Carrier:       b.Commands(),
		EdgeCarrier:   b.EdgeCommands(),
		SharedChanged: b.SharedChanged,
		Reload:        func(c *config.Config) { b.Set(settings(c), c.Presence.Timing) },
		Connections:   func() (open, maximum int) { return b.Connections(), b.Settings().MaxConnections },
	}, nil
}

// Protocols of the broker's listeners.
const (
	mqttPlain         = "MQTT"
	mqttOverWebSocket = "MQTT over WebSocket"
	mqttOpen          = "MQTT on open topics"
)

// mqttListeners are those of the broker. Of those with TLS only mqtts asks for the certificate of a device.
func mqttListeners(c config.Config) []operate.Listener {
	const devices, webSocket = "devices; a credential per connection", "devices over WebSocket, /mqtt; a credential per connection"
	l, secure := c.Listeners, devices
	if c.TLS.ClientCA != "" {
		secure = "devices; a credential or a certificate per connection"
	}
	all := []operate.Listener{
		{Name: operate.MQTTListener, Key: "listeners.mqtt", Configured: l.MQTT, Protocol: mqttPlain, Access: devices},
		{Name: operate.MQTTSListener, Key: "listeners.mqtts", Configured: l.MQTTS, Protocol: mqttPlain, Access: secure, TLS: true, ClientCertificate: true},
		{Name: "mqtt_ws", Key: "listeners.mqtt_ws", Configured: l.MQTTWS, Protocol: mqttOverWebSocket, Access: webSocket},
		{Name: "mqtt_wss", Key: "listeners.mqtt_wss", Configured: l.MQTTWSS, Protocol: mqttOverWebSocket, Access: webSocket, TLS: true},
		{Name: operate.OpenListener, Key: "broker.open_topics", Configured: c.Broker.OpenTopics, Protocol: mqttOpen,
			Access: "general publish and subscribe, NOT stored; " + openTo(c.Broker)},
	}
	if !c.Broker.Enabled {
		for i := range all {
			all[i].Configured = ""
		}
	}
	return all
}

// openTo says which clients may use the open topics.
func openTo(b config.Broker) string {
	switch {
	case b.OpenTopicsAnonymous:
		return "NO credential is asked for"
	case b.OpenTopicsTenant != "":
		return "a device credential of " + b.OpenTopicsTenant
	}
	return "no client is let in"
}

// openTopics are those of the configuration, nil for none.
func openTopics(s broker.OpenSettings) *broker.OpenConfig {
	if s.OpenTopics == "" {
		return nil
	}
	return &broker.OpenConfig{OpenSettings: s}
}

// connectVerifier lets the broker ask auth about a connection.
type connectVerifier struct {
	v      *auth.Verifier
	closed func() string
}

func (d connectVerifier) Verify(ctx context.Context, c broker.Claim) (broker.Proof, error) {
	// Busy, not refused: the device is right and must try again.
	if d.closed() != "" {
		return broker.Proof{}, fmt.Errorf("%w: all transports are closed", broker.ErrBusy)
	}
	p, err := d.v.Verify(ctx, auth.Claim{
		Tenant:     c.Tenant,
		Type:       c.Type,
		ID:         c.ID,
		Secret:     c.Secret,
		From:       c.From,
		Connecting: true,
		Presented:  c.Type == broker.X509Certificate,
	})
	if err != nil {
		if _, judged := auth.VerdictOf(err); !judged {
			err = fmt.Errorf("%w: %w", broker.ErrBusy, err)
		}
		return broker.Proof{}, err
	}
	return broker.Proof{Binding: model.Binding{
		Tenant:     p.Tenant,
		TenantID:   p.TenantID,
		Device:     p.Device,
		DeviceID:   p.DeviceID,
		Credential: p.CredentialID,
	},
		Expires: p.Expires}, nil
}

// edgesOf lets the broker ask for whom an edge speaks.
type edgesOf struct {
	*registry.Edges
	site *site.Site
	// relayed returns the numbers of a link that are known; complete says that what was acknowledged before the call is among them.
	relayed func(ctx context.Context, tenant, link string) (known ranges.Set, complete bool)
}

// Devices implements broker.Edges.
func (e edgesOf) Devices(ctx context.Context, edge model.Binding, after string) ([]edgewire.Device, string, error) {
	return e.DevicesFor(ctx, edge, after)
}

// Site implements broker.Edges.
func (e edgesOf) Site(ctx context.Context, edge model.Binding) (*edgewire.SiteDocument, error) {
	d, err := e.site.ForEdge(ctx, edge)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	return edgewire.DivideSite(body)
}

// Said implements broker.Edges.
func (e edgesOf) Said(ctx context.Context, edge model.Binding, h *edgewire.Hello) (*edgewire.Welcome, error) {
	// What was acknowledged counts only once it is applied, so this may wait.
	above, complete := e.relayed(ctx, edge.Tenant, h.Link())
	w, err := e.Edges.Said(ctx, edge, h, above, complete)
	if err != nil || w == nil {
		return w, err
	}
	key, err := e.CarryKey(ctx)
	if err == nil && key != nil {
		w.CarryKey = string(key.Public())
	}
	return w, err
}

// Behind implements broker.Edges.
func (e edgesOf) Behind(ctx context.Context, edge model.Binding, device string) (model.Binding, error) {
	b, err := e.Edges.Behind(ctx, edge, device)
	if errors.Is(err, registry.ErrOutOfScope) || errors.Is(err, registry.ErrNoEdge) {
		err = fmt.Errorf("%w: %w", broker.ErrNotBehind, err)
	}
	return b, err
}

// presences lets the broker read what is stored of its devices' presence.
type presences struct {
	store    *database
	entities *entities
	applier  *applier
}

func (p presences) PresenceSession(ctx context.Context, device int64) (session uint64, err error) {
	err = p.store.db.For(store.Devices).Read(ctx, func(tx store.Tx) error {
		d, err := store.GetDeviceState(tx, device)
		if err == nil && d != nil {
			session = d.Session
		}
		return err
	})
	return session, err
}

// PresenceSources implements presence.BackstopStore.
func (p presences) PresenceSources(ctx context.Context) (all []string, err error) {
	err = p.store.db.For(store.Devices).Read(ctx, func(tx store.Tx) (err error) {
		all, err = store.PresenceSources(tx)
		return err
	})
	return all, err
}

// AssertedPresence implements presence.Store. It waits until what was acknowledged before the start is applied: a connection
// that began or ended shortly before it is not stored yet.
func (p presences) AssertedPresence(ctx context.Context, source string, after int64, limit int) ([]presence.Asserted, error) {
	select {
	case <-p.applier.ingest.Replayed():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var out []presence.Asserted
	err := p.store.db.For(store.Devices).Read(ctx, func(tx store.Tx) error {
		rows, err := store.AssertedStates(tx, source, after, limit)
		if err != nil {
			return err
		}
		for _, r := range rows {
			out = append(out, presence.Asserted{
				Binding: model.Binding{
					Tenant:   p.entities.Govern.TokenOf(r.TenantID),
					TenantID: r.TenantID,
					Device:   r.Token,
					DeviceID: r.DeviceID,
				},
				Session:   r.Session,
				Connected: r.State == model.Connected,
				At:        r.At,
			})
		}
		return nil
	})
	return out, err
}
