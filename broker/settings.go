package broker

import (
	"weir/internal/setting"
	"weir/presence"
)

// Settings are the keys of device connections, in the section broker. They may change while the broker runs.
type Settings struct {
	// AllowQoS2 applies to new connections: open ones keep what their CONNACK said.
	AllowQoS2 bool `yaml:"allow_qos2" doc:"Complete the QoS 2 handshake and store the message as for QoS 1; false: QoS 2 is refused." reload:"yes"`
	// MaxConnections leaves open connections alone; new ones are refused until there are fewer.
	//limit:what MQTT connections
	//limit:chapter Connections
	//limit:bound {}; fewer where memory is small
	//limit:keys limits.memory
	//limit:level weir_broker_connections weir_broker_max_connections
	//limit:met weir_broker_refused_connects_total{reason="busy"} weir_broker_refused_connects_total{reason="too-many"}
	//limit:then CONNACK 0x89, for 3.1.1 return code 3
	//limit:cost 40 KiB each, of `MQTT connections`
	MaxConnections int `yaml:"max_connections" default:"100000" zero:"default" doc:"Maximum number of connections at once." reload:"yes"`
}

// OpenSettings are the keys of the open topics, in the section broker.
type OpenSettings struct {
	OpenTopics string `yaml:"open_topics" format:"address" doc:"Address of a listener for general publish and subscribe, separate from the devices; nothing published there is stored. Empty: no such listener."`
	// OpenTopicsTenant is one tenant only, so that tenants never meet.
	OpenTopicsTenant    string `yaml:"open_topics_tenant" doc:"Tenant whose device credentials are accepted there; empty: no device credentials are accepted."`
	OpenTopicsAnonymous bool   `yaml:"open_topics_anonymous" doc:"Whether clients are accepted there without a credential; on a loopback address only."`
}

// Set changes the settings and the timing of presence. Zero values mean the defaults.
func (b *Broker) Set(s Settings, t presence.Timing) {
	setting.FillDefaults(&s)
	setting.FillDefaults(&t)
	b.settings.Store(&s)
	b.tracker.Set(t)
}

// Settings returns the effective settings.
func (b *Broker) Settings() Settings { return *b.settings.Load() }

// Timing returns the effective timing of presence.
func (b *Broker) Timing() presence.Timing { return b.tracker.Timing() }
