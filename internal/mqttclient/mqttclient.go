// Package mqttclient speaks to the MQTT brokers of others: over TCP, TLS and WebSocket. A Client publishes with MQTT 5 at QoS 0 to 2 to brokers
// that users name: its publishes go out without waiting for one another, and each returns with its own acknowledgement. A Session reads
// from a broker that the operator names, with MQTT 5.0 or 3.1.1 at QoS 0 and 1, and acknowledges by hand; a Link keeps one open.
//
//	mqttclient.go  a client: connect, publish, close
//	session.go     a session: connect, subscribe, receive, acknowledge, publish
//	link.go        sessions one after the other: versions, waits
//	wire.go        the packets of a session as bytes
//	settings.go    the keys of TLS
//	stream.go      what is read from a broker: which packets, and how large
//	websocket.go   MQTT over WebSocket
//
// The other side is not trusted. What it sends is checked before the library reads it, and neither a write nor an acknowledgement is
// waited for without an end. Connections are made by the function that is handed in, and by nothing else.
package mqttclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
)

// Dial makes a TCP connection.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Options are how a client connects.
type Options struct {
	// URL has one of the Schemes, a host and a port, and for WebSocket a path.
	URL string
	// Dial makes the connection. It is called once.
	Dial Dial
	// TLS is what a secure scheme takes: the roots. The name that is verified is its ServerName, else the host of URL.
	TLS      *tls.Config
	ClientID string
	Username string        // "": none is sent, and no password
	Password string        // "": none is sent
	Timeout  time.Duration // of a write, and of an answer; default 10 s
}

const (
	defaultTimeout = 10 * time.Second
	keepAlive      = 60 // seconds
	receiveMaximum = 8  // messages of the broker that wait: none is subscribed to
)

// Schemes are the schemes of URLs, and whether each is secure.
func Schemes() map[string]bool {
	return map[string]bool{"tcp": false, "mqtt": false, "ws": false, "ssl": true, "tls": true, "mqtts": true, "wss": true}
}

// Refused is an answer with which a broker turns a connection or a message away.
type Refused struct {
	Packet  string // that said so: CONNACK, PUBACK, PUBREC, PUBCOMP, DISCONNECT
	Code    byte   // reason code of MQTT 5, from 0x80 on, or return code of a CONNACK of MQTT 3.1.1
	Reason  string // reason string of MQTT 5, "" for none
	Version byte   // of a session: MQTT5 or MQTT311
}

func (r *Refused) Error() string {
	text := fmt.Sprintf("%s 0x%02x", r.Packet, r.Code)
	if r.Version == 0 { // of a client
		return text
	}
	name := reasonName(r.Code)
	if r.Version == MQTT311 && r.Packet == "CONNACK" {
		name = returnNames[r.Code]
	}
	if name != "" {
		text += " " + name
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return text
}

// returnNames are the return codes of a CONNACK of MQTT 3.1.1.
var returnNames = map[byte]string{1: "unacceptable protocol version", 2: "client identifier rejected", 3: "server unavailable", 4: "bad user name or password", 5: "not authorized"}

// reasonName names a reason code of MQTT 5, "" for one that is not known.
func reasonName(code byte) string {
	return map[byte]string{0x80: "unspecified error", 0x81: "malformed packet", 0x82: "protocol error", 0x83: "implementation specific error", 0x84: "unsupported protocol version",
		0x85: "client identifier not valid", 0x86: "bad user name or password", 0x87: "not authorized", 0x88: "server unavailable", 0x89: "server busy", 0x8a: "banned",
		0x8b: "server shutting down", 0x8d: "keep alive timeout", 0x8e: "session taken over", 0x8f: "topic filter invalid", 0x90: "topic name invalid",
		0x93: "receive maximum exceeded", 0x95: "packet too large", 0x97: "quota exceeded", 0x98: "administrative action", 0x9a: "retain not supported",
		0x9b: "QoS not supported", 0x9c: "use another server", 0x9d: "server moved", 0x9e: "shared subscriptions not supported", 0xa1: "subscription identifiers not supported",
		0xa2: "wildcard subscriptions not supported"}[code]
}

// ErrLost says that the connection broke. Whether the broker has the message is not known.
var ErrLost = errors.New("mqttclient: the connection is lost")

// ErrQoS says that the broker does not take messages of that QoS.
var ErrQoS = errors.New("mqttclient: the broker does not support the QoS")

// ErrTooLarge says that the message is larger than the broker takes.
var ErrTooLarge = errors.New("mqttclient: the message is larger than the broker takes")

// Client is a connection to a broker. It is safe for concurrent use.
type Client struct {
	paho    *paho.Client
	stream  *stream
	close   sync.Once
	maxQoS  byte
	maximum uint32 // bytes of a packet; 0: none

	life context.Context // ends with the connection
	lost context.CancelFunc
}

// Connect connects, and returns once the broker has accepted the connection. Errors are those of Dial, of TLS and WebSocket, a *Refused,
// ErrMalformed and those of the context.
func Connect(ctx context.Context, o Options) (*Client, error) {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	conn, err := open(ctx, &o)
	if err != nil {
		return nil, err
	}
	stream := newStream(conn, o.Timeout)
	c := &Client{stream: stream, maxQoS: 2}
	c.paho = paho.NewClient(paho.ClientConfig{ClientID: o.ClientID, Conn: stream, PacketTimeout: o.Timeout, AuthHandler: noAuth{},
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(paho.PublishReceived) (bool, error) { return true, nil }}})
	hello := &paho.Connect{ClientID: o.ClientID, CleanStart: true, KeepAlive: keepAlive, Properties: &paho.ConnectProperties{ReceiveMaximum: new(uint16(receiveMaximum)),
		MaximumPacketSize: new(uint32(maxPacket))}}
	if o.Username != "" {
		hello.Username, hello.UsernameFlag = o.Username, true
		hello.Password, hello.PasswordFlag = []byte(o.Password), o.Password != ""
	}
	ack, err := c.paho.Connect(ctx, hello)
	switch {
	case err == nil:
		if p := ack.Properties; p != nil {
			if p.MaximumQoS != nil {
				c.maxQoS = *p.MaximumQoS
			}
			if p.MaximumPacketSize != nil {
				c.maximum = *p.MaximumPacketSize
			}
		}
		c.life, c.lost = context.WithCancel(context.Background())
		go func() {
			<-c.paho.Done()
			c.lost()
		}()
		return c, nil
	case ack != nil && ack.ReasonCode >= 0x80:
		err = &Refused{Packet: "CONNACK", Code: ack.ReasonCode}
	case ctx.Err() != nil:
		err = ctx.Err()
	case stream.broken() != nil:
		err = stream.broken()
	}
	_ = conn.Close() // the library may have closed it
	return nil, err
}

// open makes the connection that the URL names.
func open(ctx context.Context, o *Options) (net.Conn, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, err
	}
	secure, known := Schemes()[u.Scheme]
	if !known {
		return nil, fmt.Errorf("mqttclient: the scheme %q is none of MQTT", u.Scheme)
	}
	security := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.TLS != nil {
		security = o.TLS.Clone()
	}
	security.ServerName = cmp.Or(security.ServerName, u.Hostname())
	if u.Scheme == "ws" || u.Scheme == "wss" {
		return openWebSocket(ctx, o, security)
	}
	conn, err := o.Dial(ctx, "tcp", u.Host)
	if err != nil || !secure {
		return conn, err
	}
	encrypted := tls.Client(conn, security)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the handshake has failed
		return nil, err
	}
	return encrypted, nil
}

// noAuth answers no enhanced authentication: stream refuses its packets, and the library needs one all the same.
type noAuth struct{}

func (noAuth) Authenticate(*paho.Auth) *paho.Auth { return &paho.Auth{ReasonCode: 0x8c} }
func (noAuth) Authenticated()                     {}

// Message is what is published.
type Message struct {
	Topic   string
	Payload []byte
	QoS     byte
	// Properties are user properties, names and values.
	Properties [][2]string
	// Retain counts in sessions and wills only: a Client never retains.
	Retain bool
}

// publishOverhead is what a packet takes besides topic, payload and properties.
const publishOverhead = 32

// Publish sends a message and returns once it is acknowledged; at QoS 0 once it was written. Errors are a *Refused, ErrQoS, ErrTooLarge,
// ErrLost and those of the context.
func (c *Client) Publish(ctx context.Context, m Message) error {
	size := publishOverhead + len(m.Topic) + len(m.Payload)
	p := &paho.Publish{QoS: m.QoS, Topic: m.Topic, Payload: m.Payload, Properties: &paho.PublishProperties{}}
	for _, u := range m.Properties {
		p.Properties.User.Add(u[0], u[1])
		size += len(u[0]) + len(u[1]) + 5
	}
	switch {
	case m.QoS > c.maxQoS:
		return ErrQoS
	case c.maximum > 0 && uint64(size) > uint64(c.maximum):
		return ErrTooLarge
	}
	// The library lets a message that it registers while the connection breaks wait for its time-out.
	publishing, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(c.life, end)()
	ack, err := c.paho.Publish(publishing, p)
	switch {
	case ack != nil && ack.ReasonCode >= 0x80: // the library returns a refused PUBREC without an error
		return &Refused{Packet: map[byte]string{1: "PUBACK", 2: "PUBREC"}[m.QoS], Code: ack.ReasonCode}
	case err == nil && (m.QoS > 0 || c.stream.broken() == nil): // acknowledged, or written
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case c.life.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return ErrLost
}

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.paho.Done() }

// Close disconnects. What is not acknowledged returns ErrLost.
func (c *Client) Close() error {
	c.close.Do(func() {
		_ = c.paho.Disconnect(&paho.Disconnect{ReasonCode: packets.DisconnectNormalDisconnection}) // a connection that is lost needs no goodbye
	})
	return nil
}
