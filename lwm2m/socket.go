package lwm2m

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Record types of DTLS (RFC 6347 section 4.1, RFC 9146).
const (
	recordCipherChange = 20
	recordAlert        = 21
	recordHandshake    = 22
	recordData         = 23
	recordWithID       = 25

	recordHeader = 13 // without a connection id
	idOffset     = 11 // of a connection id in its record
	clientHello  = 1
)

// maxDatagram is the largest datagram that is read; maxQueued how many of one peer may wait for its session.
const (
	maxDatagram = 16 << 10
	maxQueued   = 32
)

// socket routes the datagrams of one UDP socket to the sessions: by connection id where the record has one, else by address. A handshake
// from the address of a session is routed beside it until it is complete: nobody who forges an address ends a session.
type socket struct {
	conn     net.PacketConn
	idLength int
	// begin is called for the first record of a handshake of an address. It does not block. nil: it is turned away.
	begin func(from netip.AddrPort) *peer
	// lost is called for a datagram that belongs to no session, forged for one that only seems to.
	lost, forged func()

	mu      sync.Mutex
	byID    map[string]*peer
	byAddr  map[netip.AddrPort]*peer // sessions whose peer sends no connection id
	shaking map[netip.AddrPort]*peer
	// parked sessions, by what their records are known by. wake is called when one is to go on over a peer, without the lock.
	parkedID   map[string]*parked
	parkedAddr map[netip.AddrPort]*parked
	wake       func(p *peer, k *parked)
}

func newSocket(conn net.PacketConn, idLength int) *socket {
	return &socket{conn: conn, idLength: idLength, byID: map[string]*peer{}, byAddr: map[netip.AddrPort]*peer{}, shaking: map[netip.AddrPort]*peer{}, lost: func() {}, forged: func() {},
		parkedID: map[string]*parked{}, parkedAddr: map[netip.AddrPort]*parked{}, wake: func(*peer, *parked) {}}
}

// serve reads the socket until it is closed.
func (s *socket) serve() error {
	buf := make([]byte, maxDatagram+1)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil && n == 0:
			// An ICMP error of an earlier datagram, or one that is not for us: the socket itself goes on.
			var errno net.Error
			if errors.As(err, &errno) && !errno.Timeout() {
				continue
			}
			return err
		case n > maxDatagram:
			s.lost()
			continue
		}
		s.route(buf[:n], addrPort(from))
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	if u, ok := a.(*net.UDPAddr); ok {
		at := u.AddrPort()
		return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	}
	return netip.AddrPort{}
}

// route hands a datagram to the session that it belongs to.
func (s *socket) route(b []byte, from netip.AddrPort) {
	p, k := s.find(b, from)
	if k != nil {
		if !k.authentic(b) {
			s.forged()
			return
		}
		if p = s.take(k); p == nil { // woken by somebody else meanwhile, or gone
			k = nil
			p, _ = s.find(b, from)
		}
	}
	if p == nil && startsHandshake(b) {
		p = s.begin(from)
	}
	if p == nil {
		s.lost()
		return
	}
	p.deliver(b, from)
	if k != nil {
		s.wake(p, k)
	}
}

// find returns the session of a datagram, nil for none; k where it is parked.
func (s *socket) find(b []byte, from netip.AddrPort) (p *peer, k *parked) {
	if len(b) < recordHeader {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b[0] == recordWithID {
		if s.idLength == 0 || len(b) < idOffset+s.idLength {
			return nil, nil
		}
		id := b[idOffset : idOffset+s.idLength]
		if k := s.parkedID[string(id)]; k != nil {
			return nil, k
		}
		return s.byID[string(id)], nil
	}
	there, parked, shaking := s.byAddr[from], s.parkedAddr[from], s.shaking[from]
	encrypted := b[3] != 0 || b[4] != 0 // of an epoch above 0
	switch {
	case shaking != nil && (there == nil && parked == nil || !encrypted || shaking.secured.Load()):
		if b[0] == recordCipherChange {
			shaking.secured.Store(true)
		}
		return shaking, nil
	case parked != nil && encrypted:
		return nil, parked
	case there != nil && !encrypted && startsHandshake(b):
		return nil, nil // of a device that has begun anew
	}
	return there, nil
}

// unpark routes to a new peer what was routed to a parked session; nil: nothing was. It needs the lock.
func (s *socket) unpark(k *parked) *peer {
	p := newPeer(s, k.from)
	switch {
	case k.id != "" && s.parkedID[k.id] == k:
		delete(s.parkedID, k.id)
		p.id = k.id
		s.byID[k.id] = p
	case k.id == "" && s.parkedAddr[k.from] == k:
		delete(s.parkedAddr, k.from)
		s.byAddr[k.from] = p
	default:
		return nil
	}
	return p
}

// take is unpark for who holds no lock.
func (s *socket) take(k *parked) *peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unpark(k)
}

// park routes to a parked session what was routed to p, and reports whether something was.
func (s *socket) park(p *peer, k *parked) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case p.id != "" && s.byID[p.id] == p:
		delete(s.byID, p.id)
		if k.id != p.id { // else it is read without the lock
			k.id = p.id
		}
		s.parkedID[k.id] = k
	case s.byAddr[p.from] == p:
		delete(s.byAddr, p.from)
		k.from = p.from
		s.parkedAddr[k.from] = k
	default:
		return false
	}
	return true
}

// restored routes to a session of before the start, and reports whether its records can be recognised.
func (s *socket) restored(k *parked) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case k.id == "":
		s.parkedAddr[k.from] = k
	case len(k.id) == s.idLength:
		s.parkedID[k.id] = k
	default:
		return false
	}
	return true
}

// forget routes nothing to a parked session any more.
func (s *socket) forget(k *parked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parkedID[k.id] == k {
		delete(s.parkedID, k.id)
	}
	if s.parkedAddr[k.from] == k {
		delete(s.parkedAddr, k.from)
	}
}

// startsHandshake reports whether a datagram is the first of a handshake: a ClientHello that answers no cookie.
func startsHandshake(b []byte) bool {
	const sequence = recordHeader + 4 // of the message in its handshake
	return len(b) > sequence+2 && b[0] == recordHandshake && b[3] == 0 && b[4] == 0 && b[recordHeader] == clientHello && b[sequence] == 0 && b[sequence+1] == 0
}

// add routes a handshake of an address to p.
func (s *socket) add(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shaking[p.from] = p
}

// name routes what bears a connection id to p. It is called before the id is sent: the first record with it can be faster than the end of
// the handshake.
func (s *socket) name(p *peer, id []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.id != "" {
		delete(s.byID, p.id)
	}
	p.id = string(id)
	s.byID[p.id] = p
}

// established ends the handshake of p. byAddr says that its records bear no connection id. It returns the sessions that it replaces, nil for none.
func (s *socket) established(p *peer, byAddr bool) (before *peer, asleep *parked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shaking[p.from] == p {
		delete(s.shaking, p.from)
	}
	if !byAddr {
		return nil, nil
	}
	if p.id != "" {
		delete(s.byID, p.id)
		p.id = ""
	}
	before, asleep = s.byAddr[p.from], s.parkedAddr[p.from]
	delete(s.parkedAddr, p.from)
	s.byAddr[p.from] = p
	return before, asleep
}

// remove routes nothing to p any more.
func (s *socket) remove(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shaking[p.from] == p {
		delete(s.shaking, p.from)
	}
	if s.byAddr[p.from] == p {
		delete(s.byAddr, p.from)
	}
	if p.id != "" && s.byID[p.id] == p {
		delete(s.byID, p.id)
	}
}

// peer is the way of one session to its peer: a net.PacketConn for the DTLS library.
type peer struct {
	s       *socket
	from    netip.AddrPort // of its handshake
	id      string         // connection id; "" for none. The socket's lock guards it.
	secured atomic.Bool    // the peer has changed to its keys
	answers atomic.Int32   // datagrams that came since the first

	in     chan datagram
	closed chan struct{}
	once   sync.Once
	mute   atomic.Bool // nothing is written any more
	bounds bounds
	read   deadline
}

type datagram struct {
	b    []byte
	from netip.AddrPort
}

func newPeer(s *socket, from netip.AddrPort) *peer {
	return &peer{s: s, from: from, in: make(chan datagram, maxQueued), closed: make(chan struct{})}
}

var _ net.PacketConn = (*peer)(nil)

// deliver queues a datagram. One that has no room is lost, as the network may lose it.
func (p *peer) deliver(b []byte, from netip.AddrPort) {
	p.answers.Add(1)
	select {
	case p.in <- datagram{append([]byte(nil), b...), from}:
	default:
		p.s.lost()
	}
}

// ReadFrom implements net.PacketConn.
func (p *peer) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case <-p.closed:
		return 0, nil, net.ErrClosed
	default:
	}
	select {
	case d := <-p.in:
		return copy(b, d.b), net.UDPAddrFromAddrPort(d.from), nil
	case <-p.closed:
		return 0, nil, net.ErrClosed
	case <-p.read.over():
		return 0, nil, os.ErrDeadlineExceeded
	}
}

// WriteTo implements net.PacketConn.
func (p *peer) WriteTo(b []byte, to net.Addr) (int, error) {
	select {
	case <-p.closed:
		return 0, net.ErrClosed
	default:
	}
	p.bounds.mu.Lock()
	defer p.bounds.mu.Unlock()
	if p.mute.Load() {
		return len(b), nil
	}
	if !p.bounds.admit(b) { // the network may lose it as well
		p.s.lost()
		return len(b), nil
	}
	return p.s.conn.WriteTo(b, to)
}

// Close implements net.PacketConn.
func (p *peer) Close() error {
	p.once.Do(func() {
		p.s.remove(p)
		close(p.closed)
		p.read.set(time.Time{})
	})
	return nil
}

// LocalAddr implements net.PacketConn.
func (p *peer) LocalAddr() net.Addr { return p.s.conn.LocalAddr() }

// SetDeadline implements net.PacketConn.
func (p *peer) SetDeadline(t time.Time) error { return p.SetReadDeadline(t) }

// SetReadDeadline implements net.PacketConn.
func (p *peer) SetReadDeadline(t time.Time) error {
	p.read.set(t)
	return nil
}

// SetWriteDeadline implements net.PacketConn. A write to a UDP socket does not wait.
func (p *peer) SetWriteDeadline(time.Time) error { return nil }

// deadline is a channel that is closed at a time that may be moved.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	ended chan struct{}
	count int // of calls of set: a timer that is late belongs to an earlier one
}

func (d *deadline) over() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended == nil {
		d.ended = make(chan struct{})
	}
	return d.ended
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.count++
	select {
	case <-d.ended: // closed by an earlier deadline
		d.ended = make(chan struct{})
	default:
		if d.ended == nil {
			d.ended = make(chan struct{})
		}
	}
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		close(d.ended)
		return
	}
	count := d.count
	d.timer = time.AfterFunc(left, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.count == count {
			close(d.ended)
		}
	})
}
