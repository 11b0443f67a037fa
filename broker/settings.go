package broker

import "time"

// Settings are what of a Config may change while the broker runs. Zero values mean the defaults, as there.
type Settings struct {
	MaxConnections    int  // those that are open stay; nobody new comes until there are fewer
	AllowQoS2         bool // for connections made from now on: the others keep what they were told
	RestartGrace      time.Duration
	ReconcileInterval time.Duration
}

func (c Config) settings() *Settings {
	return &Settings{MaxConnections: c.MaxConnections, AllowQoS2: c.AllowQoS2, RestartGrace: c.RestartGrace, ReconcileInterval: c.ReconcileInterval}
}

// Set changes the settings.
func (b *Broker) Set(s Settings) {
	c := Config{MaxConnections: s.MaxConnections, AllowQoS2: s.AllowQoS2, RestartGrace: s.RestartGrace, ReconcileInterval: s.ReconcileInterval}
	b.settings.Store(c.withDefaults().settings())
	b.keeper.nudge() // it counts its time anew
}

// Settings returns what counts now.
func (b *Broker) Settings() Settings { return *b.settings.Load() }
