package app

import (
	"weir/config"
	"weir/httpingest"
	"weir/ingest"
	"weir/internal/memory"
	"weir/operate"
)

// connectionHTTP is what a connection takes; maxIngest bounds their number.
const (
	connectionHTTP = 20 << 10
	maxIngest      = 4096
)

var ingestShare = share{Share: memory.Share{Name: "HTTP connections", PerMille: 50, Min: 1 << 20, Max: maxIngest * connectionHTTP}}

func (b Budget) ingestConnections() int {
	return int(max(b.of(ingestShare)/connectionHTTP, minConnections))
}

// httpTransport is HTTP ingest.
var httpTransport = Transport{
	Name:      ingest.TransportHTTP,
	Source:    "http1",
	Listeners: ingestListeners,
	New:       newHTTP,
	share:     &ingestShare,
}

func newHTTP(d TransportDeps) (Served, error) {
	if len(d.Sockets) == 0 {
		return Served{}, nil
	}
	// The transport takes the sockets over.
	var listeners []httpingest.Listener
	for _, s := range d.Sockets {
		listeners = append(listeners, httpingest.Listener{Listener: s.Listener, Name: s.About.Name, TLS: s.TLS})
	}
	h, err := httpingest.New(httpingest.Config{
		InstanceID:     d.Config.Instance.ID,
		Source:         d.Source,
		Settings:       d.Config.Ingest.Settings,
		MaxConnections: d.lock.ingestConnections(),
		MaxLargeBodies: d.lock.budget.largeBodies(),
	}, httpingest.Deps{
		Intake:     d.Intake,
		Provision:  d.Provision,
		Desk:       d.Desk,
		Attributes: d.Registry.Attributes,
		Listeners:  listeners,
		Refused:    func(why, text string) { d.Refused("", "", why, text) },
		Logger:     d.Logger,
		Registerer: d.Registerer,
	})
	if err != nil {
		return Served{}, err
	}
	return Served{Transport: h, Carrier: h.Commands(), Reload: func(c *config.Config) { h.SetMaxBody(c.Ingest.MaxBody) }}, nil
}

func ingestListeners(c config.Config) []operate.Listener {
	const protocol = "HTTP ingest"
	access := protocol + "; " + protection(c.Auth.DeviceAuth)
	return []operate.Listener{
		{Name: operate.IngestListener, Key: "listeners.ingest", Configured: c.Listeners.Ingest, Protocol: protocol, Access: access},
		{Name: operate.IngestTLSListener, Key: "listeners.ingest_tls", Configured: c.Listeners.IngestTLS, Protocol: protocol, Access: access, TLS: true},
	}
}

func protection(mode ingest.DeviceAuthMode) string {
	switch mode {
	case ingest.AuthOptional:
		return "a credential in the body is checked when there is one"
	case ingest.AuthDisabled:
		return "NO credential is asked for"
	}
	return "a credential in each body, or in its header"
}
