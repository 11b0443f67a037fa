package lwm2m

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/dtls/v3"

	"weir/lwm2m/coap"
	"weir/model"
)

// The times of RFC 7252 section 4.8. A lost message is sent again after ackTimeout and up to half of it more, then after twice as long.
const (
	ackTimeout    = 2 * time.Second
	maxRetransmit = 4
	// exchangeLifetime is how long the answer to a request is repeated when the request is.
	exchangeLifetime = 247 * time.Second
)

// Bounds of a session.
const (
	maxWork      = 16   // requests and notifications that wait for their turn
	maxAnswered  = 24   // answers that are kept for a repeat
	maxExchanges = 8    // requests of ours that are under way
	blockSize    = 1024 // of block-wise transfers
)

// errNoAnswer says that a device has not answered a request in time.
var errNoAnswer = errors.New("no answer")

// errEnded says that the session of a device has ended.
var errEnded = errors.New("the session has ended")

// transport is what a session sends and receives over: a DTLS connection.
type transport interface {
	Read([]byte) (int, error)
	Write([]byte) (int, error)
	Close() error
	RemoteAddr() net.Addr
}

// session is an authenticated connection of a device with its CoAP exchanges. Messages of the device are handled one after the
// other, in the order in which they came; acknowledgements and answers to requests of ours pass them.
type session struct {
	conn     transport
	dtls     *dtls.Conn // conn; nil in tests
	peer     *peer      // nil in tests
	binding  model.Binding
	expires  model.Micros // of the credential, 0: never
	proof    proven
	named    string // among the sessions of its device
	now      func() time.Time
	handle   func(s *session, m *coap.Message) *coap.Message // answers a request
	notified func(s *session, m *coap.Message, done func(ack bool))
	knows    func(s *session, token string) bool // reports whether a token is that of an observation
	heard    func(s *session)
	count    func(what string)                      // retransmissions, dropped messages
	unbound  func(s *session, m *coap.Message) bool // reports whether a request does not count against what a device may ask in a second
	maxBody  int

	ctx  context.Context
	end  context.CancelFunc
	work chan func()
	slot chan struct{} // one confirmable message at a time (NSTART)

	mu        sync.Mutex
	nextID    uint16
	exchanges map[string]*exchange
	byID      map[uint16]*exchange
	answered  []answered
	upload    *upload
	budget    float64 // of requests of the device
	budgetAt  time.Time
	last      time.Time // the device was heard, or the session began
	working   int
	closing   atomic.Bool
	closed    chan struct{} // conn is
}

// exchange is a request of ours.
type exchange struct {
	id     uint16
	begins bool          // asks to observe
	acked  chan struct{} // closed with the acknowledgement
	once   sync.Once
	answer chan *coap.Message // nil: reset
}

// answered is a message of the device and what it was answered.
type answered struct {
	id    uint16
	bytes []byte // nil: not yet
	at    time.Time
}

// upload is a body that comes in blocks.
type upload struct {
	key  string
	body []byte
}

// Bounds of the requests of one identity.
const (
	requestsPerSecond = 20
	requestBurst      = 100
)

func newSession(conn transport, now func() time.Time) *session {
	s := &session{conn: conn, now: now, work: make(chan func(), maxWork), slot: make(chan struct{}, 1), closed: make(chan struct{}), exchanges: map[string]*exchange{}, byID: map[uint16]*exchange{},
		maxBody: 64 << 10, count: func(string) {}, heard: func(*session) {}, unbound: func(*session, *coap.Message) bool { return false }, knows: func(*session, string) bool { return false }, budget: requestBurst, budgetAt: now(), last: now(), named: newLocation()}
	var id [2]byte
	_, _ = rand.Read(id[:])
	s.nextID = binary.BigEndian.Uint16(id[:])
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

// run reads the session until it ends.
func (s *session) run() {
	var worker sync.WaitGroup
	worker.Go(s.perform)
	defer worker.Wait()
	defer s.end()
	buf := make([]byte, maxDatagram)
	for {
		n, err := s.conn.Read(buf)
		if err != nil {
			return
		}
		now := s.now()
		if s.expires > 0 && model.MicrosOf(now) >= s.expires || s.ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		s.last = now
		s.mu.Unlock()
		s.receive(append([]byte(nil), buf[:n]...))
	}
}

// perform handles what the device sends, in order.
func (s *session) perform() {
	for {
		select {
		case f := <-s.work:
			if s.ctx.Err() != nil { // both were ready
				return
			}
			s.works(1)
			f()
			s.works(-1)
		case <-s.ctx.Done():
			return
		}
	}
}

// works counts what is handled.
func (s *session) works(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.working += n
}

// close ends the session; the device is told. It returns once the alert is written, whoever writes it: the library ends the reading of a session before, and
// what the reader closes then must not come between.
func (s *session) close() {
	s.end()
	if s.closing.CompareAndSwap(false, true) {
		_ = s.conn.Close()
		close(s.closed)
	}
	<-s.closed
}

// receive takes one message of the device.
func (s *session) receive(b []byte) {
	m, err := coap.Parse(b)
	if err != nil {
		s.count("malformed")
		if len(b) >= 4 && b[0]>>6 == 1 && coap.Type(b[0]>>4&3) == coap.Confirmable { // RFC 7252 section 4.2
			s.reset(binary.BigEndian.Uint16(b[2:]))
		}
		return
	}
	switch {
	case m.Code == coap.Empty:
		s.empty(&m)
	case m.Code.IsRequest() && (m.Type == coap.Confirmable || m.Type == coap.NonConfirmable):
		s.request(&m)
	case m.Code.IsResponse():
		s.response(&m, b)
	default:
		s.count("malformed")
	}
	s.heard(s)
}

// empty takes an acknowledgement without an answer, a reset, or a ping.
func (s *session) empty(m *coap.Message) {
	if m.Type == coap.Confirmable { // CoAP ping
		s.reset(m.ID)
		return
	}
	s.mu.Lock()
	x := s.byID[m.ID]
	s.mu.Unlock()
	if x == nil {
		return
	}
	if m.Type == coap.Reset {
		x.deliver(nil)
		return
	}
	x.once.Do(func() { close(x.acked) })
}

func (x *exchange) deliver(m *coap.Message) {
	select {
	case x.answer <- m:
	default: // a repeat
	}
}

// repeated answers a message that came before, and notes one that did not.
func (s *session) repeated(m *coap.Message) bool {
	now := s.now()
	s.mu.Lock()
	for i := range s.answered {
		if a := &s.answered[i]; a.id == m.ID && now.Sub(a.at) < exchangeLifetime {
			b := a.bytes
			s.mu.Unlock()
			if b != nil {
				s.write(b)
			}
			s.count("repeated")
			return true
		}
	}
	if len(s.answered) == maxAnswered {
		s.answered = append(s.answered[:0], s.answered[1:]...)
	}
	s.answered = append(s.answered, answered{id: m.ID, at: now})
	s.mu.Unlock()
	return false
}

// forget makes a message one that has not come: it was not handled, and its repeat will be.
func (s *session) forget(id uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.answered {
		if s.answered[i].id == id && s.answered[i].bytes == nil {
			s.answered = append(s.answered[:i], s.answered[i+1:]...)
			return
		}
	}
}

// remember keeps the answer to a message for its repeats.
func (s *session) remember(id uint16, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.answered {
		if s.answered[i].id == id {
			s.answered[i].bytes = b
		}
	}
}

// queue hands work to the session's worker; what has no room is lost, and the device sends it again.
func (s *session) queue(id uint16, f func()) {
	select {
	case s.work <- f:
	default:
		s.forget(id)
		s.count("busy")
	}
}

// request takes a request of the device.
func (s *session) request(m *coap.Message) {
	if s.repeated(m) {
		return
	}
	if !s.unbound(s, m) && !s.mayAsk(costOf(m)) {
		s.count("rate")
		s.reply(m, &coap.Message{Code: coap.TooManyRequests, Options: []coap.Option{{Number: coap.MaxAge, Value: []byte{1}}}})
		return
	}
	s.queue(m.ID, func() {
		if answer := s.assemble(m); answer != nil {
			s.reply(m, answer)
		}
	})
}

// laterBlock is what a block behind the first costs of a request: a body is one request, whatever the size of its blocks.
const laterBlock = 1.0 / 16

// costOf is what a request costs.
func costOf(m *coap.Message) float64 {
	if block, has := m.Block(coap.Block1); has && block.Number > 0 {
		return laterBlock
	}
	return 1
}

// mayAsk draws on what a device may ask for.
func (s *session) mayAsk(cost float64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.budget = math.Min(requestBurst, s.budget+now.Sub(s.budgetAt).Seconds()*requestsPerSecond)
	if s.budgetAt = now; s.budget < cost {
		return false
	}
	s.budget -= cost
	return true
}

// reply sends the answer to a request: with its acknowledgement, or non-confirmable to one that was not confirmable.
func (s *session) reply(m, answer *coap.Message) {
	answer.Token, answer.ID, answer.Type = m.Token, m.ID, coap.Acknowledgement
	if m.Type == coap.NonConfirmable {
		answer.Type, answer.ID = coap.NonConfirmable, s.id()
	}
	b := coap.Append(nil, answer)
	s.remember(m.ID, b)
	s.write(b)
}

// assemble puts the blocks of a body together (RFC 7959 section 2.5) and handles the request once it is whole.
func (s *session) assemble(m *coap.Message) *coap.Message {
	block, has := m.Block(coap.Block1)
	if !has {
		if _, given := m.Get(coap.Block1); given {
			return &coap.Message{Code: coap.BadOption}
		}
		s.upload = nil
		return s.handle(s, m)
	}
	refuse := func(code coap.Code) *coap.Message {
		s.upload = nil
		return &coap.Message{Code: code}
	}
	var what strings.Builder
	for _, o := range m.Options {
		if o.Number == coap.URIPath || o.Number == coap.URIQuery {
			what.WriteString(string(rune(o.Number)))
			what.Write(o.Value)
		}
	}
	key := what.String()
	if block.Number == 0 {
		s.upload = &upload{key: key}
	}
	u := s.upload
	switch {
	case u == nil || u.key != key || len(u.body) != int(block.Number)*block.Size:
		return refuse(coap.Incomplete)
	case len(u.body)+len(m.Payload) > s.maxBody:
		return refuse(coap.TooLarge)
	case block.More && len(m.Payload) != block.Size:
		return refuse(coap.BadRequest)
	}
	u.body = append(u.body, m.Payload...)
	if block.More {
		answer := &coap.Message{Code: coap.Continue}
		answer.AddBlock(coap.Block1, block)
		return answer
	}
	whole := *m
	whole.Payload = u.body
	s.upload = nil
	answer := s.handle(s, &whole)
	if answer != nil {
		answer.AddBlock(coap.Block1, block)
	}
	return answer
}

// response takes an answer to a request of ours, or a notification.
func (s *session) response(m *coap.Message, raw []byte) {
	s.mu.Lock()
	x := s.exchanges[string(m.Token)]
	if x != nil && m.Type == coap.Acknowledgement && m.ID != x.id {
		x = nil
	}
	if x != nil { // what comes next with the token is a notification: the first may be right behind the answer
		delete(s.exchanges, string(m.Token))
	}
	s.mu.Unlock()
	if _, notifies := m.Uint(coap.Observe); x != nil && x.begins && notifies && m.Type != coap.Acknowledgement {
		// The answer comes by itself, or a notification has overtaken it. Either is a notification, which is acknowledged once it is stored.
		x.once.Do(func() { close(x.acked) })
		x.deliver(m)
		x = nil
	}
	switch {
	case x != nil:
		x.once.Do(func() { close(x.acked) })
		if m.Type == coap.Confirmable && !s.repeated(m) {
			s.acknowledge(m.ID)
		}
		x.deliver(m)
	case m.Type == coap.Acknowledgement:
		s.count("stray")
	case s.repeated(m):
	case !s.knows(s, string(m.Token)):
		s.count("unknown_token")
		s.forget(m.ID)
		s.reset(m.ID) // the device ends the observation (RFC 7641 section 3.6)
	default:
		s.queue(m.ID, func() {
			s.notified(s, m, func(ack bool) {
				switch {
				case !ack:
					s.forget(m.ID)
				case m.Type == coap.Confirmable:
					s.acknowledge(m.ID)
				}
			})
		})
	}
	_ = raw
}

func (s *session) acknowledge(id uint16) {
	b := coap.Append(nil, &coap.Message{Type: coap.Acknowledgement, ID: id})
	s.remember(id, b)
	s.write(b)
}

func (s *session) reset(id uint16) {
	s.write(coap.Append(nil, &coap.Message{Type: coap.Reset, ID: id}))
}

func (s *session) write(b []byte) {
	if _, err := s.conn.Write(b); err != nil {
		s.count("unwritten") // the session ends when it is read
	}
}

func (s *session) id() uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextID++
	return s.nextID
}

// newToken returns a token that no exchange and no observation has.
func newToken() []byte {
	b := make([]byte, 8)
	_, _ = rand.Read(b)
	return b
}

// exchange sends one request and waits for its answer: errNoAnswer when ctx ends first, errEnded with the session. A reset is errReset.
func (s *session) exchange(ctx context.Context, m *coap.Message) (*coap.Message, error) {
	select {
	case s.slot <- struct{}{}:
		defer func() { <-s.slot }()
	case <-ctx.Done():
		return nil, errNoAnswer
	case <-s.ctx.Done():
		return nil, errEnded
	}
	observe, asks := m.Uint(coap.Observe)
	x := &exchange{id: s.id(), begins: asks && observe == 0, acked: make(chan struct{}), answer: make(chan *coap.Message, 1)}
	m.Type, m.ID = coap.Confirmable, x.id
	s.mu.Lock()
	s.exchanges[string(m.Token)], s.byID[x.id] = x, x
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.exchanges, string(m.Token))
		delete(s.byID, x.id)
		s.mu.Unlock()
	}()
	b := coap.Append(nil, m)
	s.write(b)
	wait := ackTimeout + time.Duration(randomHalf())
	timer := time.NewTimer(wait)
	defer timer.Stop()
	acked := x.acked
	for sent := 0; ; {
		select {
		case answer := <-x.answer:
			if answer == nil {
				return nil, errReset
			}
			return answer, nil
		case <-acked: // the answer comes by itself
			acked = nil
			timer.Stop()
		case <-timer.C:
			if acked == nil || sent == maxRetransmit {
				continue
			}
			sent++
			s.count("retransmission")
			s.write(b)
			wait *= 2
			timer.Reset(wait)
		case <-ctx.Done():
			return nil, errNoAnswer
		case <-s.ctx.Done():
			return nil, errEnded
		}
	}
}

// errReset says that a device has reset a request: it does not know what to do with it.
var errReset = errors.New("the device has reset the request")

// randomHalf is up to half of ackTimeout.
func randomHalf() int64 {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return int64(binary.BigEndian.Uint32(b[:])) * int64(ackTimeout/2) >> 32
}

// errTooLarge says that an answer is larger than may be read.
type errTooLarge struct{ size, limit int }

func (e errTooLarge) Error() string { return "the answer is larger than the maximum that is read" }

// ask sends a request, in blocks where its body is large, and returns the whole answer, of at most limit bytes.
func (s *session) ask(ctx context.Context, m *coap.Message, limit int) (*coap.Message, error) {
	if m.Token == nil {
		m.Token = newToken()
	}
	answer, err := s.send(ctx, m)
	if err != nil {
		return nil, err
	}
	block, has := answer.Block(coap.Block2)
	if !has {
		if len(answer.Payload) > limit {
			return nil, errTooLarge{len(answer.Payload), limit}
		}
		return answer, nil
	}
	if size, ok := answer.Uint(coap.Size2); ok && int(size) > limit {
		return nil, errTooLarge{int(size), limit}
	}
	whole := *answer
	whole.Payload = append([]byte(nil), answer.Payload...)
	etag, _ := answer.Get(coap.ETag)
	for block.More {
		if len(whole.Payload) > limit {
			return nil, errTooLarge{len(whole.Payload), limit}
		}
		next := &coap.Message{Code: m.Code, Token: newToken()}
		for _, o := range m.Options {
			if o.Number != coap.Observe && o.Number != coap.Block2 && o.Number != coap.Block1 {
				next.Add(o.Number, o.Value)
			}
		}
		if m.Code == coap.FETCH {
			next.Payload = m.Payload
		}
		next.AddBlock(coap.Block2, coap.Block{Number: uint32(len(whole.Payload) / block.Size), Size: block.Size})
		part, err := s.exchange(ctx, next)
		if err != nil {
			return nil, err
		}
		now, ok := part.Block(coap.Block2)
		if tag, _ := part.Get(coap.ETag); !part.Code.Success() || !ok || int(now.Number)*now.Size != len(whole.Payload) || string(tag) != string(etag) {
			return nil, errors.New("the blocks of the answer do not fit together")
		}
		whole.Payload = append(whole.Payload, part.Payload...)
		block = now
	}
	if len(whole.Payload) > limit {
		return nil, errTooLarge{len(whole.Payload), limit}
	}
	return &whole, nil
}

// send sends a request in blocks of blockSize, or less where the device wants it.
func (s *session) send(ctx context.Context, m *coap.Message) (*coap.Message, error) {
	if len(m.Payload) <= blockSize {
		return s.exchange(ctx, m)
	}
	body, size := m.Payload, blockSize
	for at := 0; ; {
		part := *m
		part.Options = append([]coap.Option(nil), m.Options...)
		end := min(at+size, len(body))
		part.Payload = body[at:end]
		part.AddBlock(coap.Block1, coap.Block{Number: uint32(at / size), More: end < len(body), Size: size})
		if at == 0 {
			part.AddUint(coap.Size1, uint32(len(body)))
		}
		answer, err := s.exchange(ctx, &part)
		if err != nil || end == len(body) || answer.Code != coap.Continue {
			return answer, err
		}
		at = end
		if b, ok := answer.Block(coap.Block1); ok && b.Size < size {
			at, size = b.Size*(end/b.Size), b.Size // what came is a multiple of the smaller size
		}
	}
}
