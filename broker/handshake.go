package broker

import (
	"bufio"
	"container/list"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"
)

// readBuffer is the size of a connection's read buffer. A packet that fits is not copied.
const readBuffer = 2048

// handle serves a connection from accept to its end.
func (b *Broker) handle(nc net.Conn, l *Listener) {
	defer nc.Close()
	c := b.greet(nc, l)
	if c == nil {
		return
	}
	defer b.metrics.byListener.WithLabelValues(l.Name).Dec()
	defer c.finish()
	c.run()
}

// greet reads and judges the CONNECT. It returns nil when the connection was refused, and the refusal is written.
func (b *Broker) greet(raw net.Conn, l *Listener) (in *conn) {
	defer func() {
		if p := recover(); p != nil {
			b.metrics.panics.Inc()
			b.log.Error("a CONNECT panicked", "panic", p, "stack", string(debug.Stack()))
			in = nil
		}
	}()
	_ = raw.SetDeadline(time.Now().Add(b.cfg.ConnectTimeout))
	place := b.pending.add(raw)
	defer b.pending.remove(place)
	nc, buffer, shown, why, detail := l.open(raw)
	var body []byte
	if why == "" {
		if body, why = readConnect(buffer, b.cfg.MaxConnectPacket); why == "not-mqtt" {
			detail = strangerText(buffer, l.TLS != nil)
		}
	}
	b.pending.remove(place)
	if why != "" {
		b.countRefused(why)
		b.reportStranger(l.Name, addressOf(raw), why, detail)
		if ws, ok := nc.(*wsConn); ok && ws.status != 0 { // the close frame says why
			linger(ws)
		}
		return nil
	}
	p, r := decodeConnect(body)
	p.shown, p.from, p.local = shown, addressOf(nc), l.local
	if r == nil {
		if in, r = b.admit(nc, buffer, &p, l); r == nil {
			return in
		}
	}
	if !l.Open {
		b.reportRefused(&p, r)
	}
	b.refuse(nc, p.version, r)
	return nil
}

// addressOf is the address of the other side.
func addressOf(nc net.Conn) netip.Addr {
	if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr()
	}
	return netip.Addr{}
}

// countRefused counts a connection that is not established.
func (b *Broker) countRefused(why string) {
	b.refusals.Add(1)
	b.metrics.refused.WithLabelValues(why).Inc()
}

// reportRefused reports who was refused, as far as the CONNECT can be read: what it claims, which is not verified.
func (b *Broker) reportRefused(p *connect, r *refusal) {
	if b.deps.Refused == nil {
		return
	}
	id, mistake := p.identify(b.cfg.InstanceID)
	if p.provisions() && b.provisioning != nil {
		mistake = "the provision key or its secret was refused, or the client id is no token"
	}
	switch r {
	case refuseIdentity:
	case refuseCredential:
		switch mistake = "no credential of the tenant is the access token in the user name, or it is disabled or has expired"; id.claim.Type {
		case MQTTBasic:
			mistake = "no credential of the tenant is this user name with this password; an access token stands alone, without a password"
		case X509Certificate:
			mistake = "no credential of the tenant is the certificate, or it is disabled or has expired"
		}
	case refuseDevice:
		mistake = "the credential is of another device than the client id names"
	case refuseWillTopic:
		mistake = fmt.Sprintf("the will's topic %s is none of the device's topics", shownID(p.will.topic))
	default:
		mistake = ""
	}
	b.deps.Refused(id.tenant, id.device, r.why, mistake)
}

// refuse answers a CONNECT that was refused, in the form of the client's version.
func (b *Broker) refuse(nc net.Conn, version byte, r *refusal) {
	b.countRefused(r.why)
	b.log.Debug("an MQTT connection was refused", "reason", r.why, "remote", nc.RemoteAddr().String())
	if version < mqtt5 && r.v3 == 0 || version == mqtt5 && r.code == 0 || version == 0 {
		return
	}
	_ = nc.SetDeadline(time.Now().Add(lastWordTimeout))
	if _, err := nc.Write(connackRefusal(version, r)); err == nil {
		linger(nc)
	}
}

// readConnect reads the first packet, which must be a CONNECT of at most limit bytes. Another packet is not answered: the
// other side may not speak MQTT at all. It returns why, as the label of the metric.
func readConnect(in *bufio.Reader, limit int) (body []byte, why string) {
	first, err := in.Peek(1)
	switch {
	case err != nil && isTimeout(err):
		return nil, "no-connect"
	case err != nil:
		return nil, "closed-before-connect"
	case first[0] != pktConnect<<4:
		return nil, "not-mqtt"
	}
	_, size, err := fixedHeader(in)
	switch {
	case err != nil:
		return nil, "no-connect"
	case size < 0:
		return nil, refuseMalformed.why
	case packetSize(size) > limit:
		return nil, "connect-too-large"
	}
	// Memory grows with what arrives: a size that an unauthenticated client announces costs nothing.
	for len(body) < size {
		n := min(size-len(body), readBuffer)
		body = append(body, make([]byte, n)...)
		if _, err := io.ReadFull(in, body[len(body)-n:]); err != nil {
			return nil, "no-connect"
		}
	}
	return body, ""
}

// admit has the credential verified by the service of the connection and gives the client its session.
func (b *Broker) admit(nc net.Conn, in *bufio.Reader, p *connect, l *Listener) (*conn, *refusal) {
	if r := p.serves(); r != nil {
		return nil, r
	}
	var s service = b.devices
	sessions := b.devices.pubsub
	switch {
	case l.Open:
		s, sessions = b.general, b.general.pubsub
	case b.site != nil:
		s, sessions = b.site, b.site.pubsub
	case p.provisions() && b.provisioning != nil:
		s, sessions = b.provisioning, b.provisioning.pubsub
	}
	id, r := s.claims(p)
	if r != nil {
		return nil, r
	}
	ctx, cancel := context.WithTimeout(b.closing, b.cfg.ConnectTimeout)
	defer cancel()
	for range verifyAttempts {
		drops := b.drops.Load()
		proof, r := s.verify(ctx, p, &id)
		if r != nil {
			return nil, r
		}
		c := b.newConn(s, sessions, nc, in, p, id, proof)
		c.listener, c.secure = l.Name, l.TLS != nil
		if r := sessions.claim(c); r != nil {
			c.abandon()
			return nil, r
		}
		if b.drops.Load() == drops {
			sessions.join(c)
			b.metrics.byListener.WithLabelValues(l.Name).Inc()
			_ = nc.SetDeadline(time.Time{})
			if c.cause.Load() != nil { // taken over, or dropped, while it waited
				c.interrupt()
			}
			return c, nil
		}
		sessions.release(c) // something was dropped meanwhile: perhaps this credential
		c.abandon()
	}
	return nil, refuseBusy
}

// verifyAttempts bounds how often a connection is verified because credentials change meanwhile.
const verifyAttempts = 5

// pending holds the connections that have not sent their CONNECT. When it is full the one that has waited longest is closed: a
// device sends its CONNECT at once, so idle connections cannot keep devices out.
type pending struct {
	mu      sync.Mutex
	max     int
	conns   list.List // of net.Conn, oldest first
	metrics *metrics
	evicted func()
}

func (p *pending) init(limit int, m *metrics, evicted func()) {
	p.max, p.metrics, p.evicted = limit, m, evicted
	p.conns.Init()
}

func (p *pending) add(nc net.Conn) *list.Element {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns.Len() >= p.max {
		oldest := p.conns.Front()
		p.conns.Remove(oldest)
		oldest.Value.(net.Conn).Close()
		p.evicted()
	}
	e := p.conns.PushBack(nc)
	p.metrics.handshakes.Set(float64(p.conns.Len()))
	return e
}

func (p *pending) remove(e *list.Element) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns.Remove(e) // does nothing for one that was closed
	p.metrics.handshakes.Set(float64(p.conns.Len()))
}

// crowded reports whether half of the places are taken.
func (p *pending) crowded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return 2*p.conns.Len() >= p.max
}

func (p *pending) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := p.conns.Front(); e != nil; e = e.Next() {
		e.Value.(net.Conn).Close()
	}
}
