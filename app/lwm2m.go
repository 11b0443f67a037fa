package app

import (
	"context"
	"errors"
	"net"

	"weir/auth"
	"weir/config"
	"weir/ingest"
	"weir/internal/memory"
	"weir/lwm2m"
	"weir/model"
	"weir/operate"
)

// sessionLwM2M is what a DTLS session of a device takes: its state, buffers, stacks.
const sessionLwM2M = 80 << 10

var lwm2mShare = share{Share: memory.Share{Name: "LwM2M sessions", PerMille: 40, Min: 1 << 20, Max: 1 << 40},
	planned: func(bytes int64, c config.Config) int64 {
		return int64(sessionsIn(bytes, c.LwM2M.MaxSessions)) * sessionLwM2M
	}}

// sessionsIn is how many sessions of devices there may be: what the configuration allows, as far as memory lasts.
func sessionsIn(bytes int64, configured int) int {
	return int(min(int64(configured), max(bytes/sessionLwM2M, minConnections)))
}

// lwm2mTransport is the LwM2M server.
var lwm2mTransport = Transport{
	Name:      ingest.TransportLwM2M,
	Source:    "lwm2m",
	Listeners: lwm2mListeners,
	New:       newLwM2M,
	share:     &lwm2mShare,
}

func newLwM2M(d TransportDeps) (Served, error) {
	listener := lwm2mListeners(d.Config)[0]
	if listener.Configured == "" {
		return Served{}, nil
	}
	// Computed again at each reload, so that the memory bound stays in it.
	settings := func(c *config.Config) lwm2m.Settings {
		s := c.LwM2M
		s.ModelsDir = operate.LwM2MModelsDir(*c)
		s.MaxSessions = sessionsIn(d.lock.budget.of(lwm2mShare), s.MaxSessions)
		return s
	}
	deps := lwm2m.Deps{
		Listen:    func() (net.PacketConn, error) { return d.Datagrams(listener) },
		Intake:    d.Intake,
		Keys:      keys{d.Verifier},
		Store:     d.Registrations,
		Presence:  d.Presence,
		Desk:      d.Desk,
		Artifacts: d.Registrations.entities.Artifacts,
		Profile: func(ctx context.Context, b model.Binding) (*model.LwM2MProfile, []model.MetricView, error) {
			return d.Registry.Devices.LwM2MOf(ctx, b.TenantID, b.DeviceID)
		},
		Refused:    d.Refused,
		Logger:     d.Logger,
		Registerer: d.Registerer,
	}
	// Certificates and keys: credentials in the store, and identities of the configuration before them.
	own, err := newCertificates(d)
	if err != nil {
		return Served{}, err
	}
	deps.Certificates = own
	named, err := newIdentities(d, keys{d.Verifier})
	if err != nil {
		return Served{}, err
	}
	deps.Keys, deps.Orphaned = named, named.Orphaned
	// The bootstrap server has a socket of its own.
	if boot := lwm2mListeners(d.Config)[1]; boot.Configured != "" {
		socket, err := d.Datagrams(boot) // what is wrong with the address is said at the start
		if err != nil {
			return Served{}, err
		}
		deps.Bootstrap = &lwm2m.BootstrapDeps{
			Listen:  func() (net.PacketConn, error) { return socket, nil },
			Keys:    bootstrapKeys{d.Verifier},
			Mint:    minter{d.Registry.Credentials}.mint,
			Discard: minter{d.Registry.Credentials}.discard,
		}
		deps.Registered = minter{d.Registry.Credentials}.registered
	}
	// By default the server opens its socket only once a device has a key: most instances have no LwM2M device.
	wanted := d.Config.LwM2M.Enabled == "true" || len(named.configured) > 0
	if !wanted {
		if wanted, err = d.Registry.Credentials.HasKeys(context.Background()); err != nil {
			return Served{}, err
		}
	}
	if wanted { // what is wrong with the address is said at the start
		socket, err := d.Datagrams(listener)
		if err != nil {
			return Served{}, err
		}
		deps.Listen = func() (net.PacketConn, error) { return socket, nil }
	} else {
		deps.Wanted = d.Registry.Credentials.HasKeys
	}
	s, err := lwm2m.New(lwm2m.Config{Source: d.Source, Settings: settings(&d.Config), Timing: d.Config.Presence.Timing}, deps)
	if err != nil {
		return Served{}, err
	}
	// The API shows its registrations from here on.
	d.Registrations.entities.registered.server.Store(s)
	return Served{Transport: s, Carrier: s.Commands(), Reload: func(c *config.Config) { s.Set(settings(c), c.Presence.Timing) }}, nil
}

// lwm2mListeners is the socket of the LwM2M server.
func lwm2mListeners(c config.Config) []operate.Listener {
	l := operate.Listener{
		Name:       operate.LwM2MListener,
		Key:        "listeners.lwm2m",
		Configured: c.Listeners.LwM2M,
		Protocol:   "LwM2M",
		Access:     "devices; a pre-shared key or a certificate per session",
		Datagrams:  true,
	}
	if c.LwM2M.Enabled == "false" {
		l.Configured = ""
	}
	b := operate.Listener{
		Name:       operate.LwM2MBootListener,
		Key:        "listeners.lwm2m_bootstrap",
		Configured: c.Listeners.LwM2MBootstrap,
		Protocol:   "LwM2M bootstrap",
		Access:     "devices; a bootstrap key per session",
		Datagrams:  true,
	}
	if l.Configured == "" {
		b.Configured = ""
	}
	return []operate.Listener{l, b}
}

// keys lets the LwM2M server ask auth for the key of a handshake.
type keys struct{ v *auth.Verifier }

func (k keys) Key(ctx context.Context, identity string) (lwm2m.Key, error) {
	p, secret, err := k.v.Key(ctx, identity)
	return keyOf(p, secret, err)
}

func keyOf(p auth.Proof, secret []byte, err error) (lwm2m.Key, error) {
	if errors.Is(err, auth.ErrCredentialBad) {
		err = lwm2m.ErrUnknown
	}
	return lwm2m.Key{Binding: model.Binding{
		Tenant:     p.Tenant,
		TenantID:   p.TenantID,
		Device:     p.Device,
		DeviceID:   p.DeviceID,
		Credential: p.CredentialID,
	}, Secret: secret, Expires: p.Expires}, err
}
