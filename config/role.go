package config

import (
	"strings"

	"weir/edge"
	"weir/model"
)

// edgeKeys are the keys besides those of the section edge that apply with role: edge. All others are refused there: an accepted setting
// has an effect.
var edgeKeys = map[string]bool{
	"role": true, "data_dir": true, "limits.memory": true,
	"listeners.api": true, "listeners.api_tls": true, "listeners.ingest": true, "listeners.ingest_tls": true, "listeners.metrics": true,
	"listeners.mqtts": true, "listeners.mqtt_ws": true, "listeners.mqtt_wss": true,
	"ingest.http_header_timeout": true, "ingest.http_request_timeout": true, "ingest.max_body": true,
	"spool.commit_interval": true, "broker.allow_qos2": true, "broker.max_connections": true, "metrics.enabled": true,
}

// uplinkKeys are those of the section edge that apply with role: platform, besides the section edge.uplink, once there is an uplink.
var uplinkKeys = map[string]bool{"edge.agent_id": true, "edge.commands": true, "edge.when_full": true}

// edgeSections are sections of which every key applies with role: edge.
var edgeSections = map[string]bool{"edge": true, "instance": true, "tls": true, "logging": true}

// role checks that the keys fit the role, and what an edge needs.
func (l *loader) role() {
	atEdge := l.config.Role == RoleEdge
	if l.bad["role"] {
		return
	}
	uplink := l.config.Edge.Uplink.BrokerURL != ""
	d := Default()
	defaults := map[string]key{}
	for _, k := range d.keys() {
		defaults[k.path] = k
	}
	for _, k := range keysOf(l.root) {
		if before, ok := defaults[k.path]; len(l.given[k.path]) == 0 || ok && alike(before, k) { // a default that is spelled out is no setting
			continue
		}
		section, _, _ := strings.Cut(k.path, ".")
		switch {
		case !atEdge && section == "edge" && !uplinkKeys[k.path] && !strings.HasPrefix(k.path, "edge.uplink."):
			l.complain(k.path, "set role: edge, or leave the key out: of the section edge a platform has edge.uplink, edge.agent_id, edge.commands and edge.when_full", "has an effect with role: edge only")
		case !atEdge && section == "edge" && !uplink:
			l.complain(k.path, "name the broker above, such as tls://weir.example.org:8883, in edge.uplink.broker_url, or leave the section edge out", "has no effect without edge.uplink.broker_url")
		case atEdge && k.path == "listeners.mqtt":
			l.complain(k.path, "set edge.listen", "has no effect with role: edge: edge.listen is the address of its broker")
		case atEdge && !edgeSections[section] && !edgeKeys[k.path]:
			l.complain(k.path, "leave it out", "has no effect with role: edge")
		}
	}
	if atEdge || uplink {
		l.edge()
	}
}

const noTLS = "has no effect without TLS: edge.uplink.broker_url must begin with tls:// or ssl://"

// edge checks the section edge.
func (l *loader) edge() {
	e := l.config.Edge
	up := e.Uplink
	if up.BrokerURL == "" {
		l.complain("edge.uplink.broker_url", "name the broker above, such as tls://weir.example.org:8883", "is required with role: edge")
	} else if why := edge.CheckURL(up.BrokerURL); why != "" {
		l.complain("edge.uplink.broker_url", "", why)
	}
	both := func(name, user string, password bool) {
		l.check(name+".username", user != "" || !password, "is required with "+name+".password")
		l.check(name+".password", password || user == "" || name == "edge.uplink", "is required with "+name+".username: an empty one would let anybody in")
	}
	both("edge", e.Username, e.Password.Set())
	both("edge.uplink", up.Username, up.Password.Set())
	l.check("edge.uplink.tls.key_file", up.TLS.Key != "" || up.TLS.Cert == "", "is required with edge.uplink.tls.cert_file")
	l.check("edge.uplink.tls.cert_file", up.TLS.Cert != "" || up.TLS.Key == "", "is required with edge.uplink.tls.key_file")
	l.check("edge.uplink.tls.ca_file", up.TLS.CA == "" || edge.Secure(up.BrokerURL), noTLS)
	l.check("edge.uplink.tls.cert_file", up.TLS.Cert == "" || edge.Secure(up.BrokerURL), noTLS)
	l.check("edge.uplink.backoff_max", up.BackoffMax >= up.BackoffMin, "must be at least edge.uplink.backoff_min")
	_, credential, named := strings.Cut(up.Username, ":")
	switch e.Auth {
	case edge.AuthSynced:
		l.check("edge.auth", edge.Secure(up.BrokerURL), "synced needs TLS: credentials go over TLS only, so edge.uplink.broker_url must begin with tls:// or ssl://")
		l.check("edge.auth", e.AgentID != "" && named && (credential != "" || up.TLS.Cert != ""), "synced needs a Weir above: set edge.agent_id, and edge.uplink.username as TENANT:CREDENTIAL")
		l.check("edge.username", e.Username == "", "has no effect with edge.auth: synced")
	case edge.AuthShared:
		l.check("edge.username", e.Username != "", "is required with edge.auth: shared")
	case edge.AuthOpen:
		l.check("edge.username", e.Username == "", "has no effect with edge.auth: open")
	}
	l.check("edge.agent_id", e.AgentID == "" || model.ValidToken(e.AgentID), "must be an entity token: letters, digits, - and _, at most 128")
}
