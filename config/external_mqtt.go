package config

import (
	"strings"

	"weir/ingest"
	"weir/internal/mqttclient"
)

// ownSources are the ids of the event sources of Weir's own listeners, and others that no source may have.
var ownSources = []string{"mqtt1", "http1", ingest.TransportResend, ingest.TransportConsole}

// externalMQTT checks the sources of external_mqtt: each by itself, and their names.
func (l *loader) externalMQTT() {
	ids := map[string]string{}
	for _, id := range ownSources {
		ids[id] = "Weir itself"
	}
	for i := range l.config.MQTTSource.Sources {
		s := &l.config.MQTTSource.Sources[i]
		at := memberPath("external_mqtt.sources", i)
		for _, f := range s.Check() {
			l.member(at, f.Key, f.Reason)
		}
		if s.IsLocal() && !l.hasOpenTopics() {
			l.member(at, "url", noOpenTopics)
		}
		if other := ids[s.ID]; other != "" {
			l.member(at, "id", "is that of "+other)
		}
		ids[s.ID] = at
		l.brokerTLS(at, s.TLS)
		if first, _, _ := strings.Cut(s.ID, ":"); first == "sparkplug" {
			l.warnMember(at, "id", "looks like a source of Sparkplug", "choose another one")
		}
	}
}

const noOpenTopics = "is the open topics of this instance, which has none: set broker.open_topics"

// hasOpenTopics reports whether the instance has open topics, which sources with the URL local read.
func (l *loader) hasOpenTopics() bool {
	return l.config.Broker.Enabled && l.config.Broker.OpenTopics != ""
}

// brokerTLS warns of a connection that trusts every broker.
func (l *loader) brokerTLS(at string, f mqttclient.TLSFiles) {
	if f.Insecure {
		l.warnMember(at, "tls.insecure_skip_verify", "accepts any certificate: a machine that can redirect the connection reads the password and sends as any device", "set tls.ca_file instead")
	}
}

// member reports what is wrong with a key of a member of a list, at the key or else at the member.
func (l *loader) member(at, key, reason string) {
	path := at + "." + key
	if l.bad[path] {
		return
	}
	l.bad[path] = true
	by := l.last(path)
	if !by.file && by.name == "" {
		by = l.nearest(path)
	}
	f, known := fieldAt(l.root, path)
	l.problems = append(l.problems, by.problem(path, known && f.secret(), "", reason))
}

func (l *loader) warnMember(at, key, reason, hint string) {
	l.warnings = append(l.warnings, l.nearest(at+"."+key).problem(at+"."+key, false, hint, reason))
}

// nearest is where a key, or else what holds it, was given.
func (l *loader) nearest(path string) given {
	for path != "" {
		if g := l.last(path); g.file || g.name != "" {
			return g
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return given{}
}
