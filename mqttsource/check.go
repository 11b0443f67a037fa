package mqttsource

import (
	"fmt"
	"net/url"
	"strings"

	"weir/internal/mqttclient"
	"weir/model"
)

// Check returns what is wrong with a source by itself, each with the key below the source.
func (s *Source) Check() (faults []*Fault) {
	fault := func(ok bool, key, reason string) {
		if !ok {
			faults = append(faults, &Fault{key, reason})
		}
	}
	segment, _, _ := strings.Cut(s.ID, ":")
	fault(s.ID != "" && model.ValidToken(strings.ReplaceAll(s.ID, ":", "_")), "id", "must be letters, digits, -, _ and :, at most 128")
	fault(segment != "lwm2m" && s.ID != "lwm2m", "id", "must not begin with lwm2m")
	fault((s.URL == "") != (s.Host == ""), "url", "must be given, or host in its place, and not both")
	secure := false
	if s.URL != "" {
		u, err := url.Parse(s.URL)
		known := false
		if err == nil {
			secure, known = mqttclient.Schemes()[u.Scheme]
		}
		switch {
		case s.IsLocal():
			fault(s.Username == "", "username", "has no use with url: local: the open topics are those of this instance")
		case !known:
			fault(false, "url", "must begin with mqtt://, tcp://, mqtts://, ssl://, tls://, ws:// or wss://, or be local: the open topics of this instance")
		case u.User != nil:
			fault(false, "url", "must not hold a user: set username and password")
		case u.Port() == "" || u.Hostname() == "":
			fault(false, "url", "must name host and port, such as mqtts://broker.example.org:8883")
		case (u.Scheme != "ws" && u.Scheme != "wss") && (u.Path != "" && u.Path != "/" || u.RawQuery != ""):
			fault(false, "url", "must end with the port: a path has a meaning for ws and wss only")
		}
	}
	fault(!s.TLS.Used() || secure, "tls", "needs a url with mqtts://, ssl://, tls:// or wss://")
	fault((s.TLS.Cert == "") == (s.TLS.Key == ""), "tls.cert_file", "must be given with key_file, and key_file with it")
	fault(!s.Password.Set() || s.Username != "", "password", "needs username, too")
	fault(!s.AutoRegister || s.DeviceType != "", "auto_register", "needs device_type_token, too")
	fault(!s.AutoRegister || len(s.Map) > 0, "auto_register", "needs map: the topics of Weir's own broker make no devices")
	fault(s.Tenant == "" || model.ValidToken(s.Tenant), "tenant", "must be the token of a tenant")
	all, more := s.compile("")
	faults = append(faults, more...)
	for _, f := range s.filters(all) {
		fault(validFilter(f), "topic", fmt.Sprintf("%q is no topic filter", f))
	}
	return faults
}
