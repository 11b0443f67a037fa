package sparkplug

import (
	"path"
	"time"

	"weir/internal/mqttclient"
	"weir/internal/setting"
)

// Settings are the keys of the section sparkplug.
type Settings struct {
	Sources []Source `yaml:"sources" doc:"Brokers at which Weir is a host application, see docs/transports/sparkplug.md." example:"tenant: acme; broker: {url: tcp://broker.example.org:1883}; device_type_token: node; auto_register: true"`
}

// Source is a broker, and what Weir does there.
type Source struct {
	Tenant string   `yaml:"tenant" doc:"Tenant of all nodes and devices of the source."`
	HostID string   `yaml:"host_id" default:"weir" doc:"Host id: STATE is published on spBv1.0/STATE/<host_id>. No other host may have it."`
	Broker Broker   `yaml:"broker"`
	Groups []string `yaml:"groups" doc:"Groups that are subscribed to; empty: all."`

	DeviceType   string `yaml:"device_type_token" doc:"Device type of the nodes and devices that auto_register makes."`
	AutoRegister bool   `yaml:"auto_register" doc:"Whether nodes and devices that do not exist are made when they are born."`

	ReorderTimeout time.Duration `yaml:"reorder_timeout" doc:"How long a message is waited for that others have overtaken; 0s: a gap asks for a rebirth at once." max:"1m" min:"0s"`
	ResumeWithin   time.Duration `yaml:"resume_within" default:"30s" doc:"How long an interruption may last after which a node goes on without a rebirth; 0s: never." max:"5m" min:"0s"`

	//limit:what requests for a rebirth
	//limit:chapter Sparkplug
	//limit:bound {} a second of a source, 20 at once; one to a node in 5 s, doubled to 5 min while the cause stays
	//limit:met weir_sparkplug_rebirths_deferred_total
	//limit:then it waits
	RebirthsPerSecond int `yaml:"rebirths_per_second" default:"10" min:"1" max:"1000" doc:"Maximum rate of requests for a rebirth; twice as many at once."`

	Metrics Filter              `yaml:"metrics"`
	TLS     mqttclient.TLSFiles `yaml:"tls"`
}

// Broker is how a broker is reached.
type Broker struct {
	URL      string         `yaml:"url" doc:"Broker: tcp:// or mqtt://, over TLS ssl://, tls:// or mqtts://, over WebSocket ws:// and wss://; or local, the open topics of this instance (broker.open_topics)."`
	Username string         `yaml:"username" doc:"User name at the broker."`
	Password setting.Secret `yaml:"password" doc:"Password of username."`
	Protocol string         `yaml:"protocol" default:"auto" enum:"auto 5 3.1.1" doc:"Version of MQTT; auto begins with 5 and goes on with 3.1.1 where the broker refuses it."`
}

// IsLocal reports whether the broker is the open topics of the instance itself.
func (b *Broker) IsLocal() bool { return b.URL == mqttclient.Local }

// Filter says which metrics are wanted.
type Filter struct {
	Include []string `yaml:"include" doc:"Patterns of the names of metrics that are kept, such as Line 1/*; empty: all."`
	Exclude []string `yaml:"exclude" doc:"Patterns of the names of metrics that are left out."`
}

// keep returns the function that Rules.Keep takes; nil: all are kept.
func (f Filter) keep() func(name string) bool {
	if len(f.Include)+len(f.Exclude) == 0 {
		return nil
	}
	return func(name string) bool {
		return (len(f.Include) == 0 || matches(f.Include, name)) && !matches(f.Exclude, name)
	}
}

// matches reports whether a name matches one of the patterns: * stands for any characters but /, ? for one, and a pattern that ends with /** for
// all names that begin so.
func matches(patterns []string, name string) bool {
	for _, p := range patterns {
		if n := len(p) - 2; n >= 0 && p[n:] == "**" && len(name) >= n && name[:n] == p[:n] {
			return true
		}
		if ok, err := path.Match(p, name); ok && err == nil {
			return true
		}
	}
	return false
}

// Problem is a key of a source that is wrong.
type Problem struct {
	Source int    // index
	Key    string // below the source
	Why    string
}

// SourceID is the id of the event source.
func (s *Source) SourceID() string { return "sparkplug:" + s.HostID }
