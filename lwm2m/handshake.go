package lwm2m

import (
	"container/list"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/pion/dtls/v3"

	"weir/internal/lograte"
	"weir/model"
)

// Bounds of handshakes before anybody has proven anything.
const (
	perAddress   = 50      // handshakes that begin in a second from one IPv4 address or IPv6 /64
	maxAddresses = 1 << 14 // addresses whose handshakes are counted; then all are counted anew
	maxIdentity  = 1024    // bytes
	maxRecord    = 1200    // bytes of a datagram of a handshake
)

// gate lets handshakes begin, as many as may.
type gate struct {
	s *Server

	mu       sync.Mutex
	open     *list.List // of *peer, the oldest first
	places   map[*peer]*list.Element
	second   int64
	begun    int
	from     map[netip.Prefix]int
	refusals lograte.Every
}

func newGate(s *Server) *gate {
	return &gate{s: s, open: list.New(), places: map[*peer]*list.Element{}, from: map[netip.Prefix]int{}}
}

// begin returns the peer of a new handshake of an address, nil when it may not begin.
func (g *gate) begin(from netip.AddrPort) *peer {
	set := g.s.settings.Load()
	if g.s.closing.Load() {
		return nil
	}
	g.mu.Lock()
	if now := g.s.now().Unix(); now != g.second {
		g.second, g.begun = now, 0
		clear(g.from)
	}
	bits := 32
	if from.Addr().Is6() {
		bits = 64
	}
	prefix, _ := from.Addr().Prefix(bits)
	if g.begun >= set.HandshakesPerSec || g.from[prefix] >= perAddress || g.s.sessionCount() >= set.MaxSessions {
		g.mu.Unlock()
		g.s.metrics.handshake("refused")
		return nil
	}
	g.begun++
	if len(g.from) < maxAddresses {
		g.from[prefix]++
	}
	var evicted *peer
	if g.open.Len() >= set.MaxHandshakes {
		if evicted = g.oldest(); evicted == nil {
			g.mu.Unlock()
			g.s.metrics.handshake("refused")
			return nil
		}
		g.remove(evicted)
	}
	p := newPeer(g.s.openSocket(), from)
	g.places[p] = g.open.PushBack(p)
	g.mu.Unlock()
	if evicted != nil {
		g.s.metrics.handshake("evicted")
		_ = evicted.Close()
	}
	p.s.add(p)
	g.s.begin(func() { g.s.shake(p) })
	return p
}

// oldest is the handshake that began first of those whose address has answered nothing: it may be forged. It needs the lock.
func (g *gate) oldest() *peer {
	for e := g.open.Front(); e != nil; e = e.Next() {
		if p := e.Value.(*peer); p.answers.Load() < 2 {
			return p
		}
	}
	return nil
}

func (g *gate) remove(p *peer) {
	if e := g.places[p]; e != nil {
		g.open.Remove(e)
		delete(g.places, p)
	}
}

func (g *gate) ended(p *peer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(p)
}

func (g *gate) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open.Len()
}

func (s *Server) newSecret() error {
	_, err := rand.Read(s.secret[:])
	return err
}

// pretended is the key of an identity that has none: it fails as a wrong key does.
func (s *Server) pretended(identity string) []byte {
	m := hmac.New(sha256.New, s.secret[:])
	m.Write([]byte(identity))
	return m.Sum(nil)[:16]
}

// proof is what a handshake has found out so far.
type proof struct {
	identity    string
	key         Key
	known       bool
	certificate bool         // identity is the fingerprint of a certificate
	ends        model.Micros // of the certificate
	failed      error        // the key could not be looked up
}

// key returns the key of an identity for a handshake.
func (s *Server) key(ctx context.Context, into *proof, identity []byte) []byte {
	name := string(identity)
	*into = proof{identity: name}
	if name == "" || len(name) > maxIdentity || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return s.pretended(name)
	}
	k, err := s.deps.Keys.Key(ctx, name)
	switch {
	case err == nil:
		into.key, into.known = k, true
		return k.Secret
	case !errors.Is(err, ErrUnknown):
		into.failed = err
	}
	return s.pretended(name)
}

// shake completes the handshake of a peer and runs its session.
func (s *Server) shake(p *peer) {
	set := s.settings.Load()
	defer func() { _ = p.Close() }()
	ctx, cancel := context.WithTimeout(s.ctx, set.HandshakeTimeout)
	defer cancel()
	drops := s.drops.Load()
	var who proof
	conn, err := dtls.ServerWithOptions(p, net.UDPAddrFromAddrPort(p.from), s.dtlsOptions(ctx, p, &who)...)
	if err == nil {
		err = conn.HandshakeContext(ctx)
	}
	s.gate.ended(p)
	if err == nil && !who.fits(conn) {
		err = errNotProven
	}
	if err == nil {
		err = who.makeDevice(ctx)
	}
	if err != nil {
		s.shaken(p, &who, err)
		if conn != nil {
			_ = conn.Close()
		}
		return
	}
	s.metrics.handshake("ok")
	before, asleep := p.s.established(p, p.id == "") // an id is made where the device has asked for one
	if before != nil {
		_ = before.Close()
	}
	if asleep != nil {
		s.lose(asleep)
	}
	sess := newSession(conn, s.now)
	sess.dtls, sess.peer, sess.binding, sess.expires = conn, p, who.key.Binding, who.key.Expires
	sess.proof = proven{Identity: who.identity, Sum: sha256.Sum256(who.key.Secret), Certificate: who.certificate, Ends: who.ends}
	p.bounds.mu.Lock()
	p.bounds.reserve, p.bounds.short = uint64(set.Reserve), func() { s.short(sess) }
	p.bounds.mu.Unlock()
	s.runSession(sess, drops, nil)
}

// shaken notes why a handshake has failed.
func (s *Server) shaken(p *peer, who *proof, err error) {
	outcome := "failed"
	switch {
	case s.ctx.Err() != nil:
		return
	case who.failed != nil:
		outcome = "error"
	case who.certificate && !who.known:
		outcome = "unknown_certificate"
	case who.identity != "" && !who.known:
		outcome = "unknown_identity"
	case who.known:
		outcome = "wrong_key" // for a certificate: one that came, and then nothing
		s.deps.Refused(who.key.Tenant, who.key.Device, "the handshake failed: a wrong key, or the device stopped", "")
	case p.answers.Load() < 2:
		outcome = "abandoned"
	}
	s.metrics.handshake(outcome)
	s.refusals.Add(1)
	if outcome == "error" {
		s.log.Error("a key could not be looked up", "error", who.failed)
		return
	}
	if n, ok := s.gate.logs(s.now()); ok {
		s.log.Info("a DTLS handshake failed", "from", p.from.Addr().String(), "outcome", outcome, "identity", shown(who.identity), "error", err, "others", n)
	}
}

// logs reports whether a failure may be logged, and how many were not since the last one.
func (g *gate) logs(now time.Time) (others int, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, ok := g.refusals.Allow(time.Duration(now.UnixNano()))
	return int(n), ok
}

// shown is an identity as a line of the log may show it.
func shown(identity string) string {
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return '?'
		}
		return r
	}, identity)
	if len(clean) > 64 {
		clean = clean[:64] + "…"
	}
	return clean
}

// dtlsOptions are those of one handshake.
func (s *Server) dtlsOptions(ctx context.Context, p *peer, who *proof) []dtls.ServerOption {
	options := []dtls.ServerOption{
		dtls.WithPSK(func(identity []byte) ([]byte, error) { return s.key(ctx, who, identity), nil }),
		dtls.WithCipherSuites(s.suites()...),
		dtls.WithExtendedMasterSecret(dtls.RequestExtendedMasterSecret),
		dtls.WithMTU(maxRecord),
	}
	options = append(options, s.certificateOptions(ctx, who)...)
	if n := p.s.idLength; n > 0 {
		options = append(options, dtls.WithConnectionIDGenerator(func() []byte {
			id := make([]byte, n)
			_, _ = rand.Read(id)
			id[0] = 0 // names the node: there is one
			p.s.name(p, id)
			return id
		}))
	}
	return options
}

// runSession serves a session until it ends. drops is how many changes of credentials there were before its key was looked up. k, if not nil, is what
// it was while it was parked.
func (s *Server) runSession(sess *session, drops uint64, k *parked) {
	defer sess.close()
	set := s.settings.Load()
	sess.maxBody = int(set.MaxBody)
	sess.handle, sess.notified, sess.knows, sess.heard = s.request, s.notified, s.observes, s.heard
	sess.count, sess.unbound = s.metrics.count, s.fetches
	if !s.admit(sess, drops, k) {
		return
	}
	defer s.leave(sess)
	if k != nil {
		s.begin(func() { s.observe(sess) }) // what the device has not agreed to yet
	}
	sess.run()
}

// admit adds a session to those that a change of credentials ends, and reports whether its key is still good.
func (s *Server) admit(sess *session, drops uint64, k *parked) bool {
	s.mu.Lock()
	s.sessions[sess] = struct{}{}
	if r := s.byDevice[sess.binding.DeviceID]; k != nil && r != nil && r.parked == k {
		r.parked, r.session = nil, sess
	}
	s.mu.Unlock()
	if k != nil {
		k.over()
	}
	if s.drops.Load() == drops {
		return true
	}
	if expires, err := s.stillGood(s.ctx, sess.binding, sess.proof); err == nil && expires >= 0 {
		return true
	}
	s.leave(sess)
	return false
}

func (s *Server) leave(sess *session) {
	s.mu.Lock()
	delete(s.sessions, sess)
	r := s.byDevice[sess.binding.DeviceID]
	mine := r != nil && r.session == sess
	if mine {
		r.session = nil
	}
	s.mu.Unlock()
	if mine && !s.closing.Load() && s.ctx.Err() == nil { // over for the device as well
		s.keep(sess.binding.DeviceID, nil)
	}
}

func (s *Server) sessionCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

func (s *Server) openSocket() *socket {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.socket
}

// Drop implements ingest.Transport.
func (s *Server) Drop(f func(model.Binding) bool) {
	s.drops.Add(1)
	s.mu.Lock()
	var gone []*session
	for sess := range s.sessions {
		if f(sess.binding) {
			gone = append(gone, sess)
		}
	}
	var asleep []*parked
	for k := range s.parked {
		if f(k.binding) {
			asleep = append(asleep, k)
		}
	}
	s.mu.Unlock()
	for _, k := range asleep {
		s.metrics.dropped("credential")
		s.lose(k)
	}
	for _, sess := range gone {
		s.metrics.dropped("credential")
		sess.end()      // from here on nothing that it sends is taken
		go sess.close() // it writes an alert
	}
}
