package app

import (
	"strings"
	"time"

	"weir/config"
	"weir/ingest"
	"weir/sparkplug"
)

// sparkplugTransport is a host application of Sparkplug B at each broker that the configuration names.
var sparkplugTransport = Transport{Name: ingest.TransportSparkplug, New: newSparkplug,
	Owns: func(_ config.Config, source string) bool { return strings.HasPrefix(source, "sparkplug:") }}

func newSparkplug(d TransportDeps) (Served, error) {
	c := d.Config
	t := sparkplug.New(sparkplug.Config{InstanceID: c.Instance.ID, Node: "1", Settings: c.Sparkplug, Timing: c.Presence.Timing},
		sparkplug.Deps{
			Intake:     d.Intake,
			Tenant:     d.Tenant,
			Adopt:      d.Registry.Adoptions.Adopt,
			Presence:   d.Presence,
			Accepting:  func() bool { return !d.Pressure.Refusing() },
			ExternalID: d.Registry.Adoptions.ExternalIDOf,
			Link:       d.Link,
			Dial:       d.Dial,
			DialLocal:  d.DialOpen,
			Store:      d.Store,
			Now:        time.Now,
			Logger:     d.Logger,
			Registerer: d.Registerer,
		})
	if len(c.Sparkplug.Sources) == 0 {
		return Served{}, nil // its metrics are there
	}
	return Served{Transport: t, Carrier: t.Commands(), Reload: func(c *config.Config) { t.SetTiming(c.Presence.Timing) }}, nil
}
