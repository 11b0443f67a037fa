// Package mqttpeer is a small MQTT 5 broker for tests: it keeps what it gets, delivers what a test hands it, and answers as a test says.
package mqttpeer

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/eclipse/paho.golang/packets"

	"weir/internal/edgewire"
)

// Message is a message that was published.
type Message struct {
	Topic   string
	Payload string
	QoS     byte
	Key     string // user property idempotency_key
	Number  string // user property weir-edge
	Retain  bool
}

// Broker is a broker. Its hooks are set before the first connection; nil hooks accept.
type Broker struct {
	// OnConnect returns the reason code of the CONNACK.
	OnConnect func(c *packets.Connect) byte
	// OnPublish returns the reason code of the acknowledgement; false: there is none.
	OnPublish func(m Message) (code byte, answer bool)
	// OnSubscribe returns the reason code for a filter.
	OnSubscribe func(filter string, qos byte) byte
	// OnAck is told of each acknowledgement of a message that was delivered.
	OnAck func(packetID uint16)
	// MaximumQoS is what the CONNACK says; nil: nothing.
	MaximumQoS *byte
	// Time is the user property weir-time of the CONNACK; "": there is none.
	Time string
	// Present is what the CONNACK says of the session.
	Present bool

	ln       net.Listener
	ws       bool
	mu       sync.Mutex
	got      []Message
	connects int
	open     []net.Conn
	subs     []Subscribed
	acked    []uint16
	writing  sync.Mutex
}

// Subscribed is a filter that a connection has subscribed to.
type Subscribed struct {
	Filter string
	QoS    byte
	conn   net.Conn
}

// Subscribed are the filters that open connections have subscribed to.
func (b *Broker) Subscribed() []Subscribed {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.subs)
}

// Acked are the packet identifiers that were acknowledged, in order.
func (b *Broker) Acked() []uint16 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.acked)
}

// Delivery is a message for those who have subscribed.
type Delivery struct {
	Topic    string
	Payload  string
	QoS      byte
	PacketID uint16
	Dup      bool
	Retain   bool
}

// Deliver sends a message to every connection that has subscribed to anything, and returns to how many.
func (b *Broker) Deliver(d Delivery) (n int) {
	out := packets.NewControlPacket(packets.PUBLISH)
	p := out.Content.(*packets.Publish)
	p.Topic, p.Payload, p.QoS, p.PacketID, p.Duplicate, p.Retain = d.Topic, []byte(d.Payload), d.QoS, d.PacketID, d.Dup, d.Retain
	var to []net.Conn
	for _, s := range b.Subscribed() {
		if !slices.Contains(to, s.conn) {
			to = append(to, s.conn)
		}
	}
	b.writing.Lock()
	defer b.writing.Unlock()
	for _, conn := range to {
		if _, err := out.WriteTo(conn); err == nil {
			n++
		}
	}
	return n
}

// Start starts a broker on loopback; security may be nil; ws: it speaks WebSocket.
func Start(t testing.TB, b *Broker, security *tls.Config, ws bool) *Broker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if security != nil {
		ln = tls.NewListener(ln, security)
	}
	b.ln, b.ws = ln, ws
	var running sync.WaitGroup
	running.Go(func() {
		if ws {
			_ = http.Serve(ln, b) // until the listener is closed
			return
		}
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() { b.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		b.Cut()
		running.Wait()
	})
	return b
}

// Dial connects a client without a socket, whatever the address: also in a bubble of synctest. A broker that has not been started serves it, too;
// Cut ends the connection.
func (b *Broker) Dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go b.serve(server)
	return client, nil
}

// Port is where it listens.
func (b *Broker) Port() string {
	_, port, _ := net.SplitHostPort(b.ln.Addr().String())
	return port
}

// Messages are those that it got.
func (b *Broker) Messages() []Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

// Connects is how many connections were accepted.
func (b *Broker) Connects() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.connects
}

// Open is how many connections are open.
func (b *Broker) Open() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)
}

// Cut breaks all connections.
func (b *Broker) Cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.open {
		_ = c.Close()
	}
}

// ServeHTTP speaks MQTT over WebSocket.
func (b *Broker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"mqtt"}})
	if err == nil {
		b.serve(websocket.NetConn(context.Background(), c, websocket.MessageBinary))
	}
}

func (b *Broker) serve(conn net.Conn) {
	defer conn.Close()
	b.mu.Lock()
	b.open = append(b.open, conn)
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.open = slices.DeleteFunc(b.open, func(c net.Conn) bool { return c == conn })
		b.subs = slices.DeleteFunc(b.subs, func(s Subscribed) bool { return s.conn == conn })
		b.mu.Unlock()
	}()
	for {
		p, err := packets.ReadPacket(conn)
		if err != nil || !b.answer(conn, p) {
			return
		}
	}
}

// answer answers a packet; false ends the connection.
func (b *Broker) answer(conn net.Conn, p *packets.ControlPacket) bool {
	out := packets.NewControlPacket(packets.PINGRESP)
	switch c := p.Content.(type) {
	case *packets.Connect:
		code := byte(0)
		if b.OnConnect != nil {
			code = b.OnConnect(c)
		}
		out = packets.NewControlPacket(packets.CONNACK)
		ack := out.Content.(*packets.Connack)
		ack.ReasonCode, ack.Properties.MaximumQOS, ack.SessionPresent = code, b.MaximumQoS, b.Present
		if b.Time != "" {
			ack.Properties.User = []packets.User{{Key: edgewire.PropertyTime, Value: b.Time}}
		}
		if code == 0 {
			b.mu.Lock()
			b.connects++
			b.mu.Unlock()
		}
	case *packets.Publish:
		return b.published(conn, c)
	case *packets.Pubrel:
		out = packets.NewControlPacket(packets.PUBCOMP)
		out.Content.(*packets.Pubcomp).PacketID = c.PacketID
	case *packets.Subscribe:
		out = packets.NewControlPacket(packets.SUBACK)
		ack := out.Content.(*packets.Suback)
		ack.PacketID = c.PacketID
		b.mu.Lock()
		for _, o := range c.Subscriptions {
			code := o.QoS
			if b.OnSubscribe != nil {
				code = b.OnSubscribe(o.Topic, o.QoS)
			}
			if ack.Reasons = append(ack.Reasons, code); code < 0x80 {
				b.subs = append(b.subs, Subscribed{o.Topic, code, conn})
			}
		}
		b.mu.Unlock()
	case *packets.Puback:
		b.mu.Lock()
		b.acked = append(b.acked, c.PacketID)
		b.mu.Unlock()
		if b.OnAck != nil {
			b.OnAck(c.PacketID)
		}
		return true
	case *packets.Disconnect:
		return false
	}
	b.writing.Lock()
	defer b.writing.Unlock()
	_, err := out.WriteTo(conn)
	return err == nil
}

func (b *Broker) published(conn net.Conn, p *packets.Publish) bool {
	m := Message{Topic: p.Topic, Payload: string(p.Payload), QoS: p.QoS, Retain: p.Retain}
	for _, u := range p.Properties.User {
		switch u.Key {
		case "idempotency_key":
			m.Key = u.Value
		case edgewire.PropertyNumber:
			m.Number = u.Value
		}
	}
	code, answer := byte(0), true
	if b.OnPublish != nil {
		code, answer = b.OnPublish(m)
	}
	if code < 0x80 && answer {
		b.mu.Lock()
		b.got = append(b.got, m)
		b.mu.Unlock()
	}
	if !answer || p.QoS == 0 {
		return true
	}
	out := packets.NewControlPacket(packets.PUBACK)
	if p.QoS == 2 {
		out = packets.NewControlPacket(packets.PUBREC)
		rec := out.Content.(*packets.Pubrec)
		rec.PacketID, rec.ReasonCode = p.PacketID, code
	} else {
		ack := out.Content.(*packets.Puback)
		ack.PacketID, ack.ReasonCode = p.PacketID, code
	}
	_, err := out.WriteTo(conn)
	return err == nil
}
