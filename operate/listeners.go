package operate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"weir/health"
)

// Listener is a listening socket that an instance can have.
type Listener struct {
	Name       string // in the status, the metrics and the start banner: mqtt_ws
	Key        string // of the configuration: listeners.mqtt_ws; "" for the operator's socket, which is a file
	Configured string // its address in the configuration, "" when it stays closed
	Address    string // where it listens, "" when it is closed
	TLS        bool
	Protocol   string // what is spoken there: MQTT over WebSocket
	Access     string // what is served there and what a client must prove, for people
	// ClientCertificate says that TLS asks the client for a certificate.
	ClientCertificate bool
	// Datagrams says that it is a UDP socket: no connection can be tried.
	Datagrams bool
}

// Names of the listeners that a command looks for.
const (
	APIListener       = "api"
	APITLSListener    = "api_tls"
	IngestListener    = "ingest"
	IngestTLSListener = "ingest_tls"
	MQTTListener      = "mqtt"
	MQTTSListener     = "mqtts"
	OpenListener      = "open_topics"
	LwM2MListener     = "lwm2m"
	LwM2MBootListener = "lwm2m_bootstrap"
	MetricsListener   = "metrics"
	SocketListener    = "socket"
)

// Description says for people what is served and whether it is protected.
func (l Listener) Description() string {
	switch {
	case l.Key == "":
		return l.Access
	case l.TLS:
		return l.Access + "; TLS"
	}
	return l.Access + "; no TLS"
}

// Listeners are those of an instance, in the order in which they are shown. In JSON they are an object of the addresses of
// those that are open: {"api":"127.0.0.1:8080","apiTls":"127.0.0.1:8443"}; all else is lost there.
type Listeners []Listener

// At returns where a listener listens, "" when it is closed.
func (ls Listeners) At(name string) string { return ls.named(name).Address }

func (ls Listeners) named(name string) Listener {
	if i := slices.IndexFunc(ls, func(l Listener) bool { return l.Name == name }); i >= 0 {
		return ls[i]
	}
	return Listener{}
}

// Open returns those that listen.
func (ls Listeners) Open() Listeners {
	return slices.DeleteFunc(slices.Clone(ls), func(l Listener) bool { return l.Address == "" })
}

// Secure returns the names of those that listen and speak TLS.
func (ls Listeners) Secure() []string {
	names := []string{}
	for _, l := range ls.Open() {
		if l.TLS {
			names = append(names, l.Name)
		}
	}
	return names
}

// configured are the ports of the configuration, opened those that listen.
func (ls Listeners) configured() []health.Listener {
	return ls.ports(func(l Listener) string { return l.Configured })
}

func (ls Listeners) opened() []health.Listener {
	return ls.ports(func(l Listener) string { return l.Address })
}

// ports are the listeners to which connections can be tried. One of datagrams is none of them: it answers nobody without a key, and what it
// carries cannot be read.
func (ls Listeners) ports(address func(Listener) string) (all []health.Listener) {
	for _, l := range ls {
		if l.Key != "" && !l.Datagrams {
			all = append(all, health.Listener{Key: l.Key, Address: address(l), TLS: l.TLS})
		}
	}
	return all
}

// MarshalJSON implements json.Marshaler.
func (ls Listeners) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, l := range ls.Open() {
		if i > 0 {
			out = append(out, ',')
		}
		address, err := json.Marshal(l.Address)
		if err != nil {
			return nil, err
		}
		out = fmt.Appendf(out, "%q:%s", camel(l.Name), address)
	}
	return append(out, '}'), nil
}

// UnmarshalJSON implements json.Unmarshaler: it keeps the order, which a map would lose.
func (ls *Listeners) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("listeners: %v, expected an object (%w)", t, err)
	}
	*ls = nil
	for d.More() {
		var l Listener
		key, err := d.Token()
		if err == nil {
			err = d.Decode(&l.Address)
		}
		if err != nil {
			return fmt.Errorf("listeners: %w", err)
		}
		l.Name = snake(fmt.Sprint(key))
		*ls = append(*ls, l)
	}
	return nil
}

// camel turns mqtt_ws into mqttWs, snake turns it back.
func camel(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

func snake(key string) string {
	var b strings.Builder
	for _, r := range key {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}
