package lwm2m

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/pion/dtls/v3"

	"weir/model"
)

// A session goes on after a restart of the program, and while it is parked, from what is kept of it. The number of a record is its nonce: no
// number may be used twice, whatever the crash. So the row of a session holds a bound, and no record with that number or a higher one is sent
// before a higher bound is on disk; who goes on from a row begins at its bound.

// parked is a session of which nothing but this is left in memory. The next datagram of its device wakes it, or who has something to ask.
type parked struct {
	binding  model.Binding
	expires  model.Micros // of the credential, 0: never
	proof    proven
	name     string
	id       string         // connection id; "": its records are known by their address
	from     netip.AddrPort // newest address of the device
	state    dtlsState      // with the number of the next record
	limit    uint64         // record numbers from it on are not reserved; 0: the session has no row
	since    time.Time
	verified bool          // its credential was seen since the start
	awake    chan struct{} // closed when the session is there again, or is lost
}

// proven is by what a session was proven.
type proven struct {
	Identity    string   // or the fingerprint of a certificate
	Sum         [32]byte // of the key
	Certificate bool
	Ends        model.Micros // of the certificate
}

// kind is by what a session was proven, as it is shown.
func (p *proven) kind() string {
	if p.Certificate {
		return "X509"
	}
	return "PSK"
}

// kept is what the state of a row holds. It is stored as gob.
type kept struct {
	Proven proven
	ID     string // connection id
	DTLS   dtlsState
}

// bounds are the record numbers of a session's records: of those with keys, which are counted from the handshake on.
type bounds struct {
	mu      sync.Mutex
	counted bool   // from now on
	length  int    // of the connection ids in our records
	next    uint64 // numbers below it may have been used
	limit   uint64 // numbers from it on are not reserved; 0: there is no row
	reserve uint64
	short   func() // called when the reserve runs low. It does not block.
}

// admit reports whether a datagram may be sent. It needs the lock.
func (b *bounds) admit(datagram []byte) bool {
	if !b.counted {
		return true
	}
	n, found := lastRecord(datagram, b.length)
	if !found {
		return true
	}
	if b.limit > 0 && n+b.reserve/2 >= b.limit {
		b.short()
	}
	b.next = max(b.next, n+1)
	return b.limit == 0 || n < b.limit
}

// raise allows the numbers below limit, which are reserved on disk.
func (b *bounds) raise(limit uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = max(b.limit, limit)
}

// free allows all numbers: there is no row any more.
func (b *bounds) free() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = 0
}

// begin begins to count the records of a session and returns its state. Numbers from bound on are refused from now on, so that a row with that bound can
// be written.
func (s *session) begin(reserve uint64) (state dtlsState, bound uint64, err error) {
	b := &s.peer.bounds
	b.mu.Lock()
	defer b.mu.Unlock()
	state, err = exportState(s.dtls)
	if err != nil {
		return state, 0, err
	}
	b.counted, b.length = true, len(state.RemoteConnectionID)
	b.next = max(b.next, state.SequenceNumber)
	bound = max(b.limit, b.next+reserve)
	if b.limit == 0 {
		b.limit = bound
	}
	return state, bound, nil
}

// keeper stores the sessions of devices: what it is asked for is taken together, and each device's as it is when its turn comes.
type keeper struct {
	mu    sync.Mutex
	want  map[int64]*keeping
	ready chan struct{} // of one
}

// keeping is what is to be stored of a device.
type keeping struct {
	sessions map[*session]struct{} // sessions that wait for numbers
	done     []chan error
}

// keep stores the session of a device, or its end. The channel says how it ended; sess, which may be nil, may go on sending then.
func (s *Server) keep(device int64, sess *session) <-chan error {
	done := make(chan error, 1)
	k := &s.keeper
	k.mu.Lock()
	want := k.want[device]
	if want == nil {
		want = &keeping{sessions: map[*session]struct{}{}}
		k.want[device] = want
	}
	if sess != nil {
		want.sessions[sess] = struct{}{}
	}
	want.done = append(want.done, done)
	k.mu.Unlock()
	select {
	case k.ready <- struct{}{}:
	default:
	}
	return done
}

// short asks for more numbers of a session. It does not wait, and asks once at a time.
func (s *Server) short(sess *session) {
	k := &s.keeper
	k.mu.Lock()
	want := k.want[sess.binding.DeviceID]
	if want == nil {
		want = &keeping{sessions: map[*session]struct{}{}}
		k.want[sess.binding.DeviceID] = want
	}
	want.sessions[sess] = struct{}{}
	k.mu.Unlock()
	select {
	case k.ready <- struct{}{}:
	default:
	}
}

// runKeeper stores sessions until ctx ends.
func (s *Server) runKeeper(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.keeper.ready:
			s.keepAll(ctx)
		}
	}
}

// maxKept is how many devices' sessions are stored in one transaction.
const maxKept = 512

// keepAll stores what it was asked for.
func (s *Server) keepAll(ctx context.Context) {
	k := &s.keeper
	for {
		k.mu.Lock()
		batch := make(map[int64]*keeping, min(len(k.want), maxKept))
		for device, want := range k.want {
			if len(batch) == maxKept {
				break
			}
			batch[device] = want
			delete(k.want, device)
		}
		k.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		var c Changes
		var after []func()
		for device, want := range batch {
			after = append(after, s.keepDevice(device, want, &c))
		}
		err := s.deps.Store.Save(ctx, true, &c)
		if err == nil {
			for _, f := range after {
				f()
			}
		} else if ctx.Err() == nil {
			s.metrics.rowsBehind.Inc()
			s.log.Warn("sessions could not be stored; they are stored when they send more", "sessions", len(batch), "error", err)
		}
		for _, want := range batch {
			for _, done := range want.done {
				done <- err
			}
		}
	}
}

// keepDevice adds what is to be stored of a device, and returns what follows once it is.
func (s *Server) keepDevice(device int64, want *keeping, c *Changes) (after func()) {
	s.mu.Lock()
	var current *session
	var stored, asleep string
	r := s.byDevice[device]
	if r != nil {
		current, stored = r.session, r.stored
		if r.parked != nil {
			asleep = r.parked.name
		}
	}
	s.mu.Unlock()
	var then []func()
	done := func() {
		for _, f := range then {
			f()
		}
	}
	switch {
	case current != nil && current.peer != nil:
		row, fresh, err := s.rowOf(current, stored)
		if err != nil { // it ends
			break
		}
		if fresh {
			c.Sessions = append(c.Sessions, row)
		} else {
			c.Reserved = append(c.Reserved, row)
		}
		then = append(then, func() {
			current.peer.bounds.raise(row.Bound)
			s.mu.Lock()
			if s.byDevice[device] == r {
				r.stored = row.Name
			}
			s.mu.Unlock()
		})
		stored = row.Name
	case asleep != "" && asleep == stored:
	default:
		c.Ended = append(c.Ended, device)
		stored = ""
		then = append(then, func() {
			s.mu.Lock()
			if r != nil {
				r.stored = ""
			}
			s.mu.Unlock()
		})
	}
	for sess := range want.sessions { // what has no row may send what it likes
		if sess != current && sess.named != stored {
			then = append(then, sess.peer.bounds.free)
		}
	}
	return done
}

// rowOf is the row of a session. fresh says that none of it is stored.
func (s *Server) rowOf(sess *session, stored string) (row Session, fresh bool, err error) {
	reserve := uint64(s.settings.Load().Reserve)
	if sess.named == stored {
		b := &sess.peer.bounds
		b.mu.Lock()
		defer b.mu.Unlock()
		return Session{Binding: sess.binding, Name: stored, Bound: max(b.limit, b.next+reserve)}, false, nil
	}
	state, bound, err := sess.begin(reserve)
	if err != nil {
		return row, false, err
	}
	row = Session{Binding: sess.binding, Name: sess.named, Form: stateForm, Bound: bound, Received: state.RemoteSequenceNumber, Address: sess.conn.RemoteAddr().String(), Heard: model.MicrosOf(s.now())}
	state.SequenceNumber = 0
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(kept{Proven: sess.proof, ID: s.idOf(sess.peer), DTLS: state}); err != nil {
		return row, false, err
	}
	row.State = b.Bytes()
	return row, true, nil
}

func (s *Server) idOf(p *peer) string {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return p.id
}

// restoreSession takes over a session of before the start: it is parked. It reports whether it is one.
func (s *Server) restoreSession(row *Session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byDevice[row.Binding.DeviceID]
	var k kept
	from, err := netip.ParseAddrPort(row.Address)
	if r == nil || row.Form != stateForm || err != nil || gob.NewDecoder(bytes.NewReader(row.State)).Decode(&k) != nil {
		return false
	}
	k.DTLS.SequenceNumber, k.DTLS.RemoteSequenceNumber = row.Bound, row.Received
	p := &parked{binding: row.Binding, proof: k.Proven, name: row.Name, id: k.ID, from: from, state: k.DTLS, limit: row.Bound + uint64(s.settings.Load().Reserve),
		since: s.now(), awake: make(chan struct{})}
	r.parked, r.stored = p, row.Name
	s.parked[p] = struct{}{}
	return true
}

// maxParked is how many sessions may be parked for each that may be live: it takes so much less memory.
const maxParked = 20

// park leaves nothing of a session but what it goes on from. Its device is not told.
func (s *Server) park(sess *session) {
	p := sess.peer
	p.bounds.mu.Lock()
	p.mute.Store(true) // whoever writes from now on does so unheard: no number is used any more
	state, err := exportState(sess.dtls)
	limit := p.bounds.limit
	p.bounds.mu.Unlock()
	if err != nil {
		sess.close()
		return
	}
	from, err := netip.ParseAddrPort(sess.conn.RemoteAddr().String())
	if err != nil {
		sess.close()
		return
	}
	k := &parked{binding: sess.binding, expires: sess.expires, proof: sess.proof, name: sess.named, from: from, state: state, limit: limit, since: s.now(), verified: true,
		awake: make(chan struct{})}
	s.mu.Lock()
	_, there := s.sessions[sess]
	there = there && len(s.parked) < maxParked*s.settings.Load().MaxSessions && p.s.park(p, k)
	if there {
		delete(s.sessions, sess)
		s.parked[k] = struct{}{}
		if r := s.byDevice[sess.binding.DeviceID]; r != nil && r.session == sess {
			r.session, r.parked = nil, k
		}
	}
	s.mu.Unlock()
	sess.close() // unheard
	if !there {
		return
	}
	for { // what came meanwhile wakes it
		select {
		case d := <-p.in:
			p.s.route(d.b, d.from)
			continue
		default:
		}
		return
	}
}

// wake makes a session of what was parked, over p, to which its datagrams are routed already.
func (s *Server) wake(p *peer, k *parked) {
	drops := s.drops.Load()
	s.mu.Lock()
	_, there := s.parked[k]
	if there && len(s.sessions) >= s.settings.Load().MaxSessions { // the device tries again
		p.s.park(p, k)
		s.mu.Unlock()
		s.metrics.dropped("sessions")
		_ = p.Close()
		return
	}
	delete(s.parked, k)
	s.mu.Unlock()
	if !there || !s.begin(func() { s.resume(p, k, drops) }) {
		_ = p.Close()
	}
}

// errGone says that what a session goes on from is not good any more.
var errGone = errors.New("the credential has changed")

// resume runs a session that was parked.
func (s *Server) resume(p *peer, k *parked, drops uint64) {
	defer func() { _ = p.Close() }()
	s.metrics.wakes.Inc()
	sess, err := s.resumed(p, k)

	if err == nil {
		s.runSession(sess, drops, k)
		return
	}
	if errors.Is(err, errGone) {
		s.metrics.dropped("credential")
		s.lose(k)
		return
	}
	if s.ctx.Err() == nil {
		s.log.Warn("a session could not go on; it is tried again with the next datagram", "device", k.binding.Device, "tenant", k.binding.Tenant, "error", err)
	}
	s.mu.Lock()
	s.parked[k] = struct{}{}
	p.s.park(p, k)
	s.mu.Unlock()
}

func (s *Server) resumed(p *peer, k *parked) (*session, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.settings.Load().HandshakeTimeout)
	defer cancel()
	if !k.verified {
		good, err := s.stillGood(ctx, k.binding, k.proof)
		if err != nil {
			return nil, err
		}
		if k.expires, k.verified = good, true; good < 0 {
			return nil, errGone
		}
	}
	p.bounds = bounds{counted: true, length: len(k.state.RemoteConnectionID), next: k.state.SequenceNumber, limit: k.limit, reserve: uint64(s.settings.Load().Reserve), short: func() {}}
	conn, err := resumeState(ctx, &k.state, p, net.UDPAddrFromAddrPort(k.from), s.resumeOptions()...)
	if err != nil {
		if conn != nil {
			_ = conn.Close()
		}
		return nil, err
	}
	sess := newSession(conn, s.now)
	sess.dtls, sess.peer, sess.binding, sess.expires, sess.proof, sess.named = conn, p, k.binding, k.expires, k.proof, k.name
	p.bounds.mu.Lock()
	p.bounds.short = func() { s.short(sess) }
	p.bounds.mu.Unlock()
	if r := s.registered(k.binding.DeviceID); r != nil && s.unread(r) { // before its first message is handled
		s.readProfile(sess)
	}
	return sess, nil
}

// unread reports whether the profile of a registration was not read since the start.
func (s *Server) unread(r *registration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.profile == nil
}

// stillGood looks whether a credential is what it was. expires is negative where it is not.
func (s *Server) stillGood(ctx context.Context, b model.Binding, by proven) (expires model.Micros, err error) {
	k, err := s.lookUp(ctx, by)
	switch {
	case errors.Is(err, ErrUnknown):
		return -1, nil
	case err != nil:
		return 0, err
	case k.Binding != b || sha256.Sum256(k.Secret) != by.Sum:
		return -1, nil
	}
	return k.Expires, nil
}

// resumeOptions are those of a connection that goes on.
func (s *Server) resumeOptions() []dtls.Option {
	return []dtls.Option{dtls.WithPSK(func([]byte) ([]byte, error) { return nil, errNoState }), dtls.WithCipherSuites(s.suites()...), dtls.WithMTU(maxRecord)}
}

// lose forgets a session that does not go on.
func (s *Server) lose(k *parked) {
	s.mu.Lock()
	delete(s.parked, k)
	r := s.byDevice[k.binding.DeviceID]
	mine := r != nil && r.parked == k
	if mine {
		r.parked = nil
	}
	sock := s.socket
	s.mu.Unlock()
	if sock != nil {
		sock.forget(k)
	}
	k.over()
	if mine {
		s.keep(k.binding.DeviceID, nil)
	}
}

// over tells who waits for the session that it need not.
func (k *parked) over() {
	select {
	case <-k.awake:
	default:
		close(k.awake)
	}
}

// reach returns the session of a registration, woken where it is parked; nil: there is none.
func (s *Server) reach(ctx context.Context, r *registration) *session {
	for {
		s.mu.Lock()
		sess, k, sock := r.session, r.parked, s.socket
		s.mu.Unlock()
		if sess != nil || k == nil || sock == nil {
			return sess
		}
		if p := sock.take(k); p != nil {
			s.wake(p, k)
		}
		select {
		case <-k.awake:
		case <-ctx.Done():
			return nil
		}
		s.mu.Lock()
		again := r.parked == k && r.session == nil
		s.mu.Unlock()
		if again {
			return nil
		}
	}
}

// settle parks the sessions that are quiet, and ends those that are quiet for too long.
func (s *Server) settle() {
	set := s.settings.Load()
	now := s.now()
	parkAfter := set.ParkAfter
	if few := set.MaxSessions / 4; few > 0 { // the fewer are left, the earlier
		left := max(set.MaxSessions-s.sessionCount(), 0)
		parkAfter = min(parkAfter, parkAfter*time.Duration(left)/time.Duration(few))
	}
	quiet := func(since time.Time, d time.Duration) bool { return now.Sub(since) > d }
	var park, gone []*session
	var lost []*parked
	s.mu.Lock()
	for sess := range s.sessions {
		r := s.byDevice[sess.binding.DeviceID]
		replaced := r != nil && r.session != sess && (r.session != nil || r.parked != nil)
		switch last := sess.lastHeard(); {
		case set.IdleTimeout > 0 && quiet(last, set.IdleTimeout), replaced && quiet(last, parkAfter):
			gone = append(gone, sess)
		case quiet(last, parkAfter) && sess.peer != nil && sess.dtls != nil && sess.idle():
			park = append(park, sess)
		}
	}
	for k := range s.parked {
		if set.IdleTimeout > 0 && quiet(k.since, set.IdleTimeout) || k.expires > 0 && model.MicrosOf(now) >= k.expires {
			lost = append(lost, k)
		}
	}
	s.mu.Unlock()
	for _, sess := range gone {
		sess.close()
	}
	for _, sess := range park {
		s.park(sess)
	}
	for _, k := range lost {
		s.lose(k)
	}
}

// idle reports whether nothing of the session is under way.
func (s *session) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.exchanges) == 0 && len(s.work) == 0 && s.working == 0
}

// lastHeard is when the device has sent something last, or the session began.
func (s *session) lastHeard() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}
