package connectors

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"weir/internal/guard"
	"weir/internal/mqttclient"
	"weir/rules/strict"
)

// mqttType publishes to an MQTT broker.
func mqttType() *Type {
	return &Type{Name: "mqtt", Summary: "Publishes to a topic of an MQTT 5 broker.",
		Fields: []Field{
			{Name: "urls", Kind: strict.ListField, Required: true, Max: 2048, Check: checkBroker,
				Doc: "URLs of the broker, tried in this order, each with its port: `mqtt://` or `tcp://`; over TLS `mqtts://`, `ssl://` or `tls://`; over WebSocket `ws://` and `wss://`, with a path where the broker has one."},
			{Name: "topic", Kind: strict.TextField, Required: true, Max: 1024, Check: checkTopic, Doc: "Topic of every message, without wildcards. Nothing is put into it."},
			{Name: "qos", Kind: strict.NumberField, Default: "1", Min: 0, Max: 2, Doc: "QoS. At 0 a message is delivered once it was written to the connection, whatever becomes of it."},
			{Name: "clientId", Kind: strict.TextField, Default: `"weir"`, Max: 64, Check: checkClientID, Doc: "Client identifier. A random suffix is added, since two clients with one identifier end each other's connection."},
			{Name: "username", Kind: strict.TextField, Max: 256, Doc: "User name at the broker."},
		},
		Secret:  "the password that belongs to `username`",
		Example: `{"urls": ["mqtts://broker.example.com:8883"], "topic": "plant/alerts", "qos": 1, "username": "weir"}`,
		open:    openMQTT,
	}
}

func checkBroker(text string) error {
	u, err := guard.CheckURL(text, slices.Sorted(maps.Keys(mqttclient.Schemes()))...)
	switch {
	case err != nil:
		return err
	case u.Port() == "":
		return errors.New("must name the port, such as mqtts://broker.example.com:8883")
	case u.Scheme != "ws" && u.Scheme != "wss" && (u.Path != "" || u.RawQuery != "" || u.ForceQuery):
		return errors.New("must end with the port: a path has a meaning for ws and wss only")
	}
	return nil
}

func checkTopic(text string) error {
	if strings.ContainsAny(text, "+#") {
		return errors.New("must not hold the wildcards + and #")
	}
	return noControls(text)
}

func checkClientID(text string) error {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return errors.New("must consist of printable ASCII characters without spaces")
	}
	return nil
}

func noControls(text string) error {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r >= 0x7f && r <= 0x9f }) {
		return errors.New("must not hold control characters")
	}
	return nil
}

// egress is how connections are made for a tenant.
type egress struct {
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	transport func() *transport  // of HTTP
	tls       func() *tls.Config // trusts the authorities of egress.ca_file, too
	mqttRoots *x509.CertPool     // nil: those of the system
	now       func() time.Time
}

// outgoing is a message to a connector.
type outgoing struct {
	payload []byte
	key     string // idempotency key
	device  string // token of the device that it is about; "" for a test
}

// session is a connection to the target of a connector, in the way that a version of it says. It is safe for concurrent use.
type session interface {
	send(ctx context.Context, m *outgoing) error
	// Done is closed when the connection has ended.
	Done() <-chan struct{}
	Close() error
}

type mqttSession struct {
	*mqttclient.Client
	topic string
	qos   byte
}

// openMQTT connects to the first broker that takes the connection.
func openMQTT(ctx context.Context, e *egress, c *config, secret string) (session, error) {
	o := mqttclient.Options{Dial: e.dial, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: e.mqttRoots}, ClientID: c.Texts["clientId"] + "-" + strings.ToLower(rand.Text()[:12]),
		Username: c.Texts["username"], Password: secret}
	var failed error
	for _, o.URL = range c.Lists["urls"] {
		client, err := mqttclient.Connect(ctx, o)
		if err == nil {
			return &mqttSession{client, c.Texts["topic"], byte(c.Numbers["qos"])}, nil
		}
		// One that is not allowed says less than one that did not answer: the other may come back.
		if failed == nil || failureOf(failed).Outcome == Blocked {
			failed = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, cmp.Or(failed, errors.New("connectors: no URL"))
}

// keyProperty is the user property with the idempotency key.
const keyProperty = "idempotency_key"

func (s *mqttSession) send(ctx context.Context, m *outgoing) error {
	return s.Publish(ctx, mqttclient.Message{Topic: s.topic, QoS: s.qos, Payload: m.payload, Properties: [][2]string{{keyProperty, m.key}}})
}
