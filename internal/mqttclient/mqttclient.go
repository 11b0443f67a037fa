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
// The other side is not trusted. What it sends is bounded before it is read, and neither a write nor an acknowledgement is waited for
// without an end. Connections are made by the function that is handed in, and by nothing else.
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
	stream  *stream
	timeout time.Duration
	maxQoS  byte
	maximum uint32        // bytes of a packet; 0: none
	window  chan struct{} // holds one for each message that the broker has not acknowledged
	pinging time.Duration
	close   sync.Once
	done    chan struct{}

	mu     sync.Mutex
	id     uint16
	waits  map[uint16]*published
	pinged bool  // a ping is unanswered
	err    error // why the connection has ended
}

// published is a message that waits for its acknowledgement. One that its caller has given up stays: an acknowledgement that comes late must
// not be taken for that of another message.
type published struct {
	qos      byte
	received bool       // PUBREC has come
	answer   chan error // of one
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
	c := &Client{stream: newStream(conn, o.Timeout), timeout: o.Timeout, pinging: keepAlive * time.Second, waits: map[uint16]*published{}, done: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends the reading below
	err = c.greet(&o)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close() // nothing was sent that needs a goodbye
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	go c.read()
	go c.ping()
	return c, nil
}

// greet writes CONNECT and reads CONNACK.
func (c *Client) greet(o *Options) error {
	h := hello{version: MQTT5, clientID: o.ClientID, clean: true, keepAlive: keepAlive, receiveMaximum: receiveMaximum, maximumPacket: maxPacket, username: o.Username, password: o.Password}
	c.stream.put(h.encode())
	_, body, err := c.stream.packet()
	if err != nil {
		return cmp.Or(c.stream.broken(), err)
	}
	ack, err := decodeConnack(MQTT5, body)
	switch {
	case err != nil:
		return fmt.Errorf("%w: CONNACK: %w", ErrMalformed, err)
	case ack.code >= 0x80:
		return &Refused{Packet: "CONNACK", Code: ack.code, Reason: ack.reason}
	case ack.code != 0:
		return fmt.Errorf("%w: CONNACK with the code 0x%02x", ErrMalformed, ack.code)
	}
	c.maxQoS, c.maximum, c.window = ack.maximumQoS, ack.maximumPacket, make(chan struct{}, ack.receiveMaximum)
	if ack.keepAlive > 0 {
		c.pinging = min(c.pinging, time.Duration(ack.keepAlive)*time.Second)
	}
	return nil
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
// ErrLost, those of the context, and context.DeadlineExceeded when the broker does not answer within the timeout.
func (c *Client) Publish(ctx context.Context, m Message) error {
	size := publishOverhead + len(m.Topic) + len(m.Payload)
	for _, u := range m.Properties {
		size += len(u[0]) + len(u[1]) + 5
	}
	m.Retain = false
	switch {
	case m.QoS > c.maxQoS:
		return ErrQoS
	case c.maximum > 0 && uint64(size) > uint64(c.maximum):
		return ErrTooLarge
	case m.QoS == 0:
		if c.stream.put(encodePublish(MQTT5, 0, &m)); c.stream.broken() != nil || c.over() {
			return ErrLost
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	select {
	case c.window <- struct{}{}:
	case <-c.done:
		return ErrLost
	case <-ctx.Done():
		return ctx.Err()
	}
	id, p := c.expect(m.QoS)
	c.stream.put(encodePublish(MQTT5, id, &m))
	select {
	case err := <-p.answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
	}
	select {
	case err := <-p.answer: // it came before the end
		return err
	default:
		return ErrLost
	}
}

func (c *Client) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// expect gives a message a packet identifier that is not in use.
func (c *Client) expect(qos byte) (uint16, *published) {
	p := &published{qos: qos, answer: make(chan error, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	for { // window is smaller than the number of identifiers
		if c.id++; c.id != 0 && c.waits[c.id] == nil {
			c.waits[c.id] = p
			return c.id, p
		}
	}
}

// read handles what the broker sends until the connection ends.
func (c *Client) read() {
	defer close(c.done)
	for {
		first, body, err := c.stream.packet()
		if err == nil {
			err = c.handle(first>>4, body)
		}
		if err != nil {
			_ = c.stream.Close() // the connection is over whatever this says
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			return
		}
	}
}

// handle handles a packet. Its error ends the connection.
func (c *Client) handle(kind byte, body []byte) error {
	switch kind {
	case pktPingresp:
		c.mu.Lock()
		c.pinged = false
		c.mu.Unlock()
		return nil
	case pktDisconnect:
		code, reason := decodeDisconnect(body)
		return &Refused{Packet: "DISCONNECT", Code: code, Reason: reason}
	}
	id, code, reason, err := decodeAnswer(body)
	if err != nil {
		return fmt.Errorf("%w: a packet of the type %d: %w", ErrMalformed, kind, err)
	}
	c.mu.Lock()
	p := c.waits[id]
	fits := p != nil && (kind == pktPuback && p.qos == 1 || kind == pktPubrec && p.qos == 2 || kind == pktPubcomp && p.received)
	ends := fits && (kind != pktPubrec || code >= 0x80)
	switch {
	case ends:
		delete(c.waits, id)
	case fits:
		p.received = true
	}
	c.mu.Unlock()
	switch {
	case !fits:
		return fmt.Errorf("%w: a packet of the type %d that nothing asked for", ErrMalformed, kind)
	case !ends:
		c.stream.put([]byte{pktPubrel<<4 | 2, 2, byte(id >> 8), byte(id)})
		return nil
	case code >= 0x80:
		p.answer <- &Refused{Packet: map[byte]string{pktPuback: "PUBACK", pktPubrec: "PUBREC", pktPubcomp: "PUBCOMP"}[kind], Code: code, Reason: reason}
	default:
		p.answer <- nil
	}
	<-c.window
	return nil
}

// ping asks the broker for an answer twice in each keep-alive. One that gives none is lost.
func (c *Client) ping() {
	t := time.NewTicker(max(c.pinging/2, time.Second))
	defer t.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-t.C:
		}
		c.mu.Lock()
		silent := c.pinged
		c.pinged = true
		c.mu.Unlock()
		if silent {
			_ = c.stream.Close() // the reader learns of it
			return
		}
		c.stream.put([]byte{pktPingreq << 4, 0})
	}
}

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err is why the connection has ended, such as a *Refused with what a DISCONNECT said; nil while it stands.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close disconnects. What is not acknowledged returns ErrLost.
func (c *Client) Close() error {
	c.close.Do(func() {
		c.stream.put(encodeDisconnect(MQTT5))
		_ = c.stream.Close() // the broker has closed it, or will
	})
	<-c.done
	return nil
}
