package broker

import (
	"time"

	"weir/presence"
)

// Settings are the part of a Config that may change while the broker runs. Zero values mean the defaults, as there.
type Settings struct {
	MaxConnections    int  // open connections stay; a new one is refused until there are fewer
	AllowQoS2         bool // for connections made from now on: the others keep what their CONNACK said
	RestartGrace      time.Duration
	ReconcileInterval time.Duration
}

func (c Config) settings() *Settings {
	return &Settings{MaxConnections: c.MaxConnections, AllowQoS2: c.AllowQoS2, RestartGrace: c.RestartGrace, ReconcileInterval: c.ReconcileInterval}
}

func (s *Settings) timing() presence.Timing {
	return presence.Timing{Grace: s.RestartGrace, Check: s.ReconcileInterval}
}

// Set changes the settings.
func (b *Broker) Set(s Settings) {
	c := Config{MaxConnections: s.MaxConnections, AllowQoS2: s.AllowQoS2, RestartGrace: s.RestartGrace, ReconcileInterval: s.ReconcileInterval}
	now := c.withDefaults().settings()
	b.settings.Store(now)
	b.tracker.Set(now.timing())
}

// Settings returns what applies now.
func (b *Broker) Settings() Settings { return *b.settings.Load() }
