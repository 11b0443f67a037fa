package config

import (
	"net"
	"net/netip"
	"path/filepath"
	"strings"

	"weir/ingest"
	"weir/internal/yamldoc"
)

// Warning is something that works and is perhaps not wanted.
type Warning = yamldoc.Problem

// Warnings returns what the operator should reconsider. No warning stops a start.
func (c *Config) Warnings() []Warning {
	var out yamldoc.Problems
	if c.from != nil {
		out = append(out, c.from.warnings...)
	}
	warn := func(path, hint, reason string) {
		out = append(out, c.place(path).problem(path, false, hint, reason))
	}
	if c.Role != RoleEdge && open(c.Listeners.Ingest) && c.Auth.DeviceAuth != ingest.AuthRequired {
		warn("listeners.ingest", "set auth.device_auth_mode to required, or name an address such as 127.0.0.1:8081",
			"is open on every interface, without TLS, and auth.device_auth_mode is "+string(c.Auth.DeviceAuth)+": any client that reaches it can send as any device")
	}
	if c.TLS.Enabled() && open(c.Listeners.IngestTLS) && c.Auth.DeviceAuth != ingest.AuthRequired {
		warn("listeners.ingest_tls", "set auth.device_auth_mode to required, or name one address",
			"is open on every interface and auth.device_auth_mode is "+string(c.Auth.DeviceAuth)+": any client that reaches it can send as any device")
	}
	if c.mqttsWithoutCertificate() {
		warn("listeners.mqtts", "set tls.cert_file and tls.key_file, or leave the key out", "is not opened: there is no certificate")
	}
	if c.Metrics.Enabled && open(c.Listeners.Metrics) {
		warn("listeners.metrics", "name an address such as 127.0.0.1:9090", "is open on every interface: any client that reaches it can read the metrics")
	}
	if reason := c.Broker.openTopics(); reason != "" {
		warn("broker.open_topics", "leave the key out unless a bridge, local nodes or a conformance suite need it", reason)
	}
	if !c.Commands.PresenceGated {
		warn("commands.presence_gate", "leave the key out unless presence is known to be wrong",
			"is off: commands for absent devices are SENT to where no device listens, and end as TIMEOUT")
	}
	if c.Role == RoleEdge {
		if c.Edge.Username == "" && !c.Edge.Synced() && !loopback(c.Edge.Listen) {
			warn("edge.username", "set edge.username and edge.password", "is empty: any client that reaches the edge can send as any device")
		}
	}
	if up := c.Edge.Uplink; up.BrokerURL != "" {
		if up.Username != "" && strings.HasPrefix(up.BrokerURL, "tcp://") && !loopback(strings.TrimPrefix(up.BrokerURL, "tcp://")) {
			warn("edge.uplink.broker_url", "use tls://", "sends user name and password of the uplink without TLS")
		}
	}
	if dir, gone := fleeting(c.DataDir); gone {
		warn("data_dir", "name a directory on a disk, such as /var/lib/weir", "lies in "+dir+", which may be emptied at a restart: what was acknowledged would be lost")
	}
	out.Sort()
	return out
}

// place is where a key was given, nowhere for one that was not.
func (c *Config) place(path string) given {
	if c.from == nil || len(c.from.given[path]) == 0 {
		return given{}
	}
	g := c.from.given[path]
	return g[len(g)-1]
}

// open reports whether an address is on every interface.
func open(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// openTopics says what is to be thought over about the open topics, "" when there are none. They are never quiet.
func (b Broker) openTopics() string {
	switch {
	case b.OpenTopics == "":
		return ""
	case !b.Enabled:
		return "is not opened: broker.enabled is false"
	case b.OpenTopicsTenant == "" && !b.OpenTopicsAnonymous:
		return "lets no client in: broker.open_topics_tenant names no tenant"
	}
	text := "serves general publish and subscribe; nothing published there is stored"
	if !loopback(b.OpenTopics) {
		text += ", and it can be reached from other machines, without TLS"
	}
	if b.OpenTopicsAnonymous {
		text += "; no credential is asked for"
	}
	return text
}

// loopback reports whether only the machine itself reaches an address.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// fleeting reports whether a directory lies where a restart may empty it.
func fleeting(dir string) (where string, gone bool) {
	dir = filepath.Clean(dir)
	for _, where := range []string{"/tmp", "/dev/shm", "/run", "/var/run"} {
		if dir == where || strings.HasPrefix(dir, where+"/") {
			return where, true
		}
	}
	return "", false
}
