package broker

import (
	"bufio"
	"container/list"
	"context"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"time"
)

// readBuffer is the size of a connection's read buffer. A packet that fits is not copied.
const readBuffer = 2048

// handle takes a connection from accept to its end.
func (b *Broker) handle(conn net.Conn, d *Listener) {
	defer conn.Close()
	g := b.greet(conn, d)
	if g == nil {
		return
	}
	defer g.finish()
	g.run()
}

// guest is a connection that was let in: a session of a device, or one with the open topics.
type guest interface {
	run()    // until it ends
	finish() // and closes the connection
}

// greet reads and judges the CONNECT. It returns nil when the connection was refused, and the refusal is written.
func (b *Broker) greet(raw net.Conn, d *Listener) (in guest) {
	defer func() {
		if p := recover(); p != nil {
			b.metrics.panics.Inc()
			b.log.Error("a CONNECT panicked", "panic", p, "stack", string(debug.Stack()))
			in = nil
		}
	}()
	_ = raw.SetDeadline(time.Now().Add(b.cfg.ConnectTimeout))
	place := b.lobby.enter(raw)
	defer b.lobby.leave(place)
	conn, buffer, shown, why := d.open(raw)
	var body []byte
	if why == "" {
		body, why = readConnect(buffer, b.cfg.MaxConnectPacket)
	}
	b.lobby.leave(place)
	if why != "" {
		b.metrics.refused.WithLabelValues(why).Inc()
		if ws, ok := conn.(*wsConn); ok && ws.status != 0 { // of which it is told
			linger(ws)
		}
		return nil
	}
	p, r := decodeConnect(body)
	p.shown = shown
	if r == nil {
		if in, r = b.letIn(conn, buffer, &p, d); r == nil {
			return in
		}
	}
	if !d.Open {
		b.tell(&p, r)
	}
	b.refuse(conn, p.version, r)
	return nil
}

// letIn gives a connection to whom the listener is for.
func (b *Broker) letIn(conn net.Conn, buffer *bufio.Reader, p *connect, d *Listener) (guest, *refusal) {
	if d.Open {
		return b.general.admit(conn, buffer, p, d)
	}
	if r := p.forDevice(); r != nil {
		return nil, r
	}
	return b.admit(conn, buffer, p, d)
}

// tell says who was turned away, as far as the CONNECT can be read: what it claims, not what is so.
func (b *Broker) tell(p *connect, r *refusal) {
	if b.deps.Refused == nil {
		return
	}
	if id, unread := p.identify(b.cfg.InstanceID); unread == nil {
		b.deps.Refused(id.tenant, id.device, r.why)
	}
}

func (b *Broker) refuse(conn net.Conn, version byte, r *refusal) {
	b.metrics.refused.WithLabelValues(r.why).Inc()
	b.log.Debug("an MQTT connection was refused", "reason", r.why, "remote", conn.RemoteAddr().String())
	if version < mqtt5 && r.v3 == 0 || version == mqtt5 && r.code == 0 || version == 0 {
		return
	}
	_ = conn.SetDeadline(time.Now().Add(lastWordTimeout))
	if _, err := conn.Write(connackRefusal(version, r)); err == nil {
		linger(conn)
	}
}

// readConnect reads the first packet, which must be a CONNECT of at most limit bytes. What is none is not answered: the
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
	// Memory grows with what arrives: a stranger's word for the size costs nothing.
	for len(body) < size {
		n := min(size-len(body), readBuffer)
		body = append(body, make([]byte, n)...)
		if _, err := io.ReadFull(in, body[len(body)-n:]); err != nil {
			return nil, "no-connect"
		}
	}
	return body, ""
}

// admit has the credential verified and gives the client its session.
func (b *Broker) admit(conn net.Conn, in *bufio.Reader, p *connect, d *Listener) (*session, *refusal) {
	if r := p.serves(); r != nil {
		return nil, r
	}
	id, r := p.identify(b.cfg.InstanceID)
	if r != nil {
		return nil, r
	}
	if p.will != nil && p.will.qos == 2 && !b.settings.Load().AllowQoS2 {
		return nil, refuseWillQoS
	}
	own := topicsOf(b.cfg.InstanceID, id.tenant, id.device)
	if p.will != nil && own.purpose(p.will.topic) == forbidden {
		return nil, refuseIdentity
	}
	ctx, cancel := context.WithTimeout(b.closing, b.cfg.ConnectTimeout)
	defer cancel()
	for range verifyAttempts {
		drops := b.drops.Load()
		proof, err := b.deps.Verifier.Verify(ctx, id.claim)
		if err != nil || proof.Tenant != id.tenant || proof.Device != id.device {
			return nil, refuseIdentity
		}
		if id.claim.Type == X509Certificate && (proof.Expires == 0 || p.shown.ends < proof.Expires) {
			proof.Expires = p.shown.ends
		}
		s := newSession(b, conn, in, p, id, proof)
		s.door = d.Name
		old, r := b.enrol(s)
		if r != nil {
			s.abandon()
			return nil, r
		}
		b.takeOver(s, old)
		if b.drops.Load() == drops {
			s.resumed = b.kept.enter(s)
			return s, nil
		}
		b.forget(s) // something was dropped meanwhile: perhaps this
		s.abandon()
	}
	return nil, refuseBusy
}

// verifyAttempts bounds how often a connection is verified because credentials change meanwhile.
const verifyAttempts = 5

// enrol puts the session in the place of its client id and returns the one that was there.
func (b *Broker) enrol(s *session) (old *session, r *refusal) {
	b.sessions.Lock()
	defer b.sessions.Unlock()
	old = b.sessions.byClient[s.clientID]
	switch {
	case b.sessions.closing:
		return nil, refuseStopping
	case old != nil: // its place is taken over
	case len(b.sessions.byClient) >= b.settings.Load().MaxConnections, b.sessions.perDevice[s.binding.DeviceID] >= b.cfg.MaxPerDevice:
		return nil, refuseBusy
	default:
		b.sessions.perDevice[s.binding.DeviceID]++
	}
	b.sessions.byClient[s.clientID] = s
	b.metrics.connections.Set(float64(len(b.sessions.byClient)))
	b.metrics.byListener.WithLabelValues(s.door).Inc()
	return old, nil
}

// takeOver ends the session that had the client id before and waits until nothing of it is left: mochi never sees two.
func (b *Broker) takeOver(s, old *session) {
	if old != nil {
		old.end(causeTakenOver)
		<-old.done
	}
	_ = s.conn.SetDeadline(time.Time{})
	if s.cause.Load() != nil { // taken over itself, or dropped, while it waited
		s.hurryUp()
	}
}

// abandon lets go of a session that never was.
func (s *session) abandon() {
	s.cancel()
	s.stall.stop()
	close(s.done)
}

// forget takes the session out of the table, unless another has its place by now.
func (b *Broker) forget(s *session) {
	b.sessions.Lock()
	defer b.sessions.Unlock()
	if b.sessions.byClient[s.clientID] == s {
		delete(b.sessions.byClient, s.clientID)
		if b.sessions.perDevice[s.binding.DeviceID]--; b.sessions.perDevice[s.binding.DeviceID] == 0 {
			delete(b.sessions.perDevice, s.binding.DeviceID)
		}
	}
	b.metrics.connections.Set(float64(len(b.sessions.byClient)))
	b.metrics.byListener.WithLabelValues(s.door).Dec()
}

// lobby holds the connections that have not sent their CONNECT. When it is full the one that has waited longest goes: a
// device sends its CONNECT at once, so that idle connections cannot keep devices out.
type lobby struct {
	mu      sync.Mutex
	max     int
	guests  list.List // of net.Conn, oldest first
	metrics *metrics
}

func (l *lobby) init(most int, m *metrics) {
	l.max, l.metrics = most, m
	l.guests.Init()
}

func (l *lobby) enter(conn net.Conn) *list.Element {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.guests.Len() >= l.max {
		oldest := l.guests.Front()
		l.guests.Remove(oldest)
		oldest.Value.(net.Conn).Close()
		l.metrics.refused.WithLabelValues("handshakes").Inc()
	}
	e := l.guests.PushBack(conn)
	l.metrics.handshakes.Set(float64(l.guests.Len()))
	return e
}

func (l *lobby) leave(e *list.Element) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guests.Remove(e) // does nothing for one that was sent away
	l.metrics.handshakes.Set(float64(l.guests.Len()))
}

func (l *lobby) crowded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return 2*l.guests.Len() >= l.max
}

func (l *lobby) closeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.guests.Front(); e != nil; e = e.Next() {
		e.Value.(net.Conn).Close()
	}
}
