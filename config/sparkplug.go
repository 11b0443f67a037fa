package config

import (
	"net/url"
	"path"
	"slices"
	"strings"

	"weir/internal/mqttclient"
	"weir/internal/yamldoc"
	"weir/model"
	"weir/sparkplug"
)

// sparkplug checks the sources of Sparkplug B.
func (l *loader) sparkplug() {
	tenants, hosts := map[string]string{}, map[string]bool{} // of an endpoint; of endpoint and host id
	for i := range l.config.Sparkplug.Sources {
		s := &l.config.Sparkplug.Sources[i]
		at := func(key string) string { return yamldoc.Join(memberPath("sparkplug.sources", i), key) }
		l.check(at("tenant"), model.ValidToken(s.Tenant), "must be the token of a tenant")
		l.check(at("host_id"), topicPart(s.HostID), "must be an id: not empty, without / + # and NUL, at most 128 bytes")
		for _, g := range s.Groups {
			l.check(at("groups"), topicPart(g), "must be group ids: not empty, without / + # and NUL, at most 128 bytes")
		}
		l.check(at("device_type_token"), s.DeviceType == "" || model.ValidToken(s.DeviceType), "must be the token of a device type")
		l.check(at("auto_register"), !s.AutoRegister || s.DeviceType != "", "needs device_type_token, the type of the devices that are made")
		for _, p := range slices.Concat(s.Metrics.Include, s.Metrics.Exclude) {
			_, err := path.Match(p, "")
			l.check(at("metrics"), err == nil, "must be patterns such as Line 1/* or **")
		}
		secure, known := brokerURL(s.Broker.URL)
		if s.Broker.IsLocal() {
			known = l.sparkplugLocal(s, at)
		} else {
			l.check(at("broker.url"), known, "must be the URL of a broker, such as tcp://broker.example.org:1883, or local: the open topics of this instance")
		}
		l.check(at("tls"), secure || !s.TLS.Used(), "counts with a broker over TLS only: ssl://, tls://, mqtts:// or wss://")
		l.check(at("tls.key_file"), (s.TLS.Cert == "") == (s.TLS.Key == ""), "must be given together with cert_file")
		l.check(at("broker.username"), s.Broker.Username != "" || !s.Broker.Password.Set(), "must be given with a password")
		if !known {
			continue
		}
		endpoint := sparkplug.Endpoint(s.Broker.URL)
		l.check(at("broker.url"), tenants[endpoint] == "" || tenants[endpoint] == s.Tenant, "is the broker of another tenant, too: a broker belongs to one")
		tenants[endpoint] = s.Tenant
		l.check(at("host_id"), !hosts[endpoint+" "+s.HostID], "is that of another source at the same broker")
		hosts[endpoint+" "+s.HostID] = true
	}
}

// sparkplugLocal checks a source at the open topics of the instance. It reports whether there are any.
func (l *loader) sparkplugLocal(s *sparkplug.Source, at func(key string) string) bool {
	l.check(at("broker.username"), s.Broker.Username == "", "has no use with url: local: the open topics are those of this instance")
	open := l.hasOpenTopics()
	l.check(at("broker.url"), open, noOpenTopics)
	return open
}

func topicPart(s string) bool { return s != "" && len(s) <= 128 && !strings.ContainsAny(s, "/+#\x00") }

// brokerURL reports whether a text is the URL of a broker, and whether it is one over TLS.
func brokerURL(s string) (secure, ok bool) {
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return false, false
	}
	secure, ok = mqttclient.Schemes()[u.Scheme]
	return secure, ok
}
