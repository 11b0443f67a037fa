package mqttclient

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// SessionOptions are how a session is opened.
type SessionOptions struct {
	Options
	Version        byte          // MQTT5 or MQTT311
	Clean          bool          // an earlier session of the client identifier is discarded
	Expiry         time.Duration // how long the broker keeps the session after the connection; MQTT 3.1.1: for ever unless it is 0
	KeepAlive      time.Duration // default 30 s
	ReceiveMaximum uint16        // messages at QoS 1 that may be unacknowledged; MQTT 5 only
	MaxPacket      int           // bytes of a packet that is received; default 1 MiB
	Will           *Message
	// OnMessage is called with each message in the order of arrival. Nothing more is read until it returns. d.Ack is called, from
	// anywhere, when the message needs no redelivery.
	OnMessage func(d *Delivery)
}

// Defaults of sessions.
const (
	defaultKeepAlive = 30 * time.Second
	defaultMaxPacket = 1 << 20
	maxWaiting       = 64 // publishes without an acknowledgement
	// maxPending is how many packet identifiers there are. The Receive Maximum is no reason to end a session: mosquitto 2.0 exceeds it when it
	// resumes one, and OnMessage bounds what is read.
	maxPending = 65535
)

// Session is a connection to a broker over which messages come in. It speaks MQTT 5.0 and 3.1.1 and is safe for concurrent use.
type Session struct {
	o       SessionOptions
	conn    net.Conn
	ack     connack
	done    chan struct{}
	ends    sync.Once
	err     error // why it ended; guarded by done
	running sync.WaitGroup

	write sync.Mutex

	mu      sync.Mutex
	nextID  uint16
	waiting map[uint16]chan reply // subscriptions and publishes

	acks acks
}

// reply is the answer to a SUBSCRIBE or a PUBLISH.
type reply struct {
	codes  []byte
	reason string
}

// ErrEnded says that the session ended before the answer.
var ErrEnded = errors.New("mqttclient: the session has ended")

// Open connects and returns once the broker has accepted the connection. Errors are those of Connect. A broker that closes the connection
// before its CONNACK gives ErrNoConnack.
func Open(ctx context.Context, o SessionOptions) (*Session, error) {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.KeepAlive <= 0 {
		o.KeepAlive = defaultKeepAlive
	}
	if o.MaxPacket <= 0 {
		o.MaxPacket = defaultMaxPacket
	}
	if o.ReceiveMaximum == 0 {
		o.ReceiveMaximum = 0xffff
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	conn, err := open(ctx, &o.Options)
	if err != nil {
		return nil, err
	}
	s := &Session{o: o, conn: conn, done: make(chan struct{}), waiting: map[uint16]chan reply{}}
	s.acks.send = s.sendAck
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends the reading below
	read := bufio.NewReaderSize(conn, 32<<10)
	if s.ack, err = s.greet(read); err == nil && !stop() {
		err = ctx.Err()
	}
	if err != nil {
		stop()
		_ = conn.Close() // the library of TLS may have closed it
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	if s.ack.keepAlive > 0 {
		s.o.KeepAlive = min(s.o.KeepAlive, time.Duration(s.ack.keepAlive)*time.Second)
	}
	s.running.Go(func() { s.end(s.read(read)) })
	s.running.Go(s.ping)
	return s, nil
}

// ErrNoConnack says that the broker closed the connection without an answer to CONNECT: brokers of MQTT 3.1.1 do so with MQTT 5.
var ErrNoConnack = errors.New("mqttclient: the broker closed the connection without an answer to CONNECT")

// greet sends CONNECT and reads CONNACK.
func (s *Session) greet(read *bufio.Reader) (connack, error) {
	o := &s.o
	h := hello{version: o.Version, clientID: o.ClientID, clean: o.Clean, keepAlive: uint16(min(o.KeepAlive/time.Second, 0xffff)), expiry: uint32(min(o.Expiry/time.Second, 0xfffffffe)),
		receiveMaximum: o.ReceiveMaximum, maximumPacket: uint32(o.MaxPacket), username: o.Username, password: o.Password, will: o.Will}
	if o.Version != MQTT5 {
		h.clean = o.Clean || o.Expiry == 0 // a session that the broker keeps for ever is not what 0 says
	}
	if err := s.send(h.encode()); err != nil {
		return connack{}, err
	}
	first, body, err := readFrame(read, func(b []byte) error { _, err := io.ReadFull(read, b); return err }, maxPacket)
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isReset(err):
		return connack{}, ErrNoConnack
	case err != nil:
		return connack{}, err
	case first != pktConnack<<4:
		return connack{}, fmt.Errorf("%w: a packet of the type %d instead of CONNACK", ErrMalformed, first>>4)
	}
	// A broker of MQTT 3.1.1 answers MQTT 5 with a CONNACK of its own version.
	version := o.Version
	if len(body) == 2 {
		version = MQTT311
	}
	a, err := decodeConnack(version, body)
	switch {
	case err != nil:
		return a, fmt.Errorf("%w: CONNACK: %w", ErrMalformed, err)
	case a.code != 0:
		return a, &Refused{Packet: "CONNACK", Code: a.code, Reason: a.reason, Version: version}
	}
	return a, nil
}

// Version is that of the protocol.
func (s *Session) Version() byte { return s.o.Version }

// Present reports whether the broker had the session of an earlier connection.
func (s *Session) Present() bool { return s.ack.present }

// MaximumQoS is the highest QoS that the broker takes.
func (s *Session) MaximumQoS() byte { return s.ack.maximumQoS }

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns why the session has ended; nil while it has not, and after Close.
func (s *Session) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// end ends the session for a reason, once.
func (s *Session) end(why error) {
	s.ends.Do(func() {
		s.err = why
		close(s.done)
		s.acks.end()
		_ = s.conn.Close() // the session is over whatever this says
	})
}

// Close disconnects and waits until OnMessage is not running any more. A broker keeps the session as long as its expiry says.
func (s *Session) Close() error {
	select {
	case <-s.done:
	default:
		_ = s.send(encodeDisconnect(s.o.Version)) // a connection that is lost needs no goodbye
	}
	s.end(nil)
	s.running.Wait()
	return nil
}

// Break ends the connection without DISCONNECT, so that the broker publishes the will.
func (s *Session) Break() {
	s.end(ErrEnded)
	s.running.Wait()
}

// send writes a packet within the timeout.
func (s *Session) send(b []byte) error {
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.o.Timeout)); err != nil {
		return err
	}
	_, err := s.conn.Write(b)
	return err
}

func (s *Session) sendAck(ids []uint16) {
	b := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		b = append(b, encodePuback(id)...)
	}
	if err := s.send(b); err != nil {
		s.end(err)
	}
}

// ping sends PINGREQ so often that the broker takes the client for alive. That the broker is, is seen by the reading.
func (s *Session) ping() {
	t := time.NewTicker(max(s.o.KeepAlive*3/4, time.Second))
	defer t.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-t.C:
			if err := s.send([]byte{pktPingreq << 4, 0}); err != nil {
				s.end(err)
				return
			}
		}
	}
}

// read reads packets until the connection ends, and returns why.
func (s *Session) read(r *bufio.Reader) error {
	for {
		// While OnMessage waits nothing is read, and nothing is awaited.
		if err := s.conn.SetReadDeadline(time.Now().Add(2 * s.o.KeepAlive)); err != nil {
			return err
		}
		first, body, err := readFrame(r, func(b []byte) error { _, err := io.ReadFull(r, b); return err }, s.o.MaxPacket)
		if err != nil {
			if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
				return errors.New("mqttclient: the broker is silent for longer than the keep-alive")
			}
			return err
		}
		if err := s.handle(first, body); err != nil {
			return err
		}
	}
}

// handle handles a packet.
func (s *Session) handle(first byte, body []byte) error {
	version, kind := s.o.Version, first>>4
	if kind != pktPublish && first&0x0f != 0 {
		return fmt.Errorf("%w: a packet of the type %d with flags", ErrMalformed, kind)
	}
	switch kind {
	case pktPublish:
		m, err := decodePublish(version, first, body)
		if err != nil {
			return fmt.Errorf("%w: PUBLISH: %w", ErrMalformed, err)
		}
		d := &Delivery{Incoming: m, Session: s}
		if m.QoS > 0 {
			if d.ack = s.acks.expect(m.PacketID); d.ack == nil {
				return fmt.Errorf("%w: more than %d messages are not acknowledged", ErrMalformed, maxPending)
			}
		}
		s.o.OnMessage(d)
	case pktPuback:
		id, code, err := decodeAck(body)
		if err != nil {
			return fmt.Errorf("%w: PUBACK: %w", ErrMalformed, err)
		}
		s.answered(id, reply{codes: []byte{code}})
	case pktSuback:
		id, codes, reason, err := decodeSuback(version, body)
		if err != nil {
			return fmt.Errorf("%w: SUBACK: %w", ErrMalformed, err)
		}
		s.answered(id, reply{codes: slices.Clone(codes), reason: reason})
	case pktPingresp:
	case pktDisconnect:
		code, reason := decodeDisconnect(body)
		return &Refused{Packet: "DISCONNECT", Code: code, Reason: reason, Version: version}
	default:
		return fmt.Errorf("%w: a packet of the type %d", ErrMalformed, kind)
	}
	return nil
}

// answered hands an answer to whoever waits for it. One that nobody waits for is of a call that has given up.
func (s *Session) answered(id uint16, r reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.waiting[id]; ok {
		delete(s.waiting, id)
		c <- r
	}
}

// ask sends a packet and waits for the answer.
func (s *Session) ask(ctx context.Context, encode func(id uint16) []byte) (reply, error) {
	c := make(chan reply, 1)
	s.mu.Lock()
	if len(s.waiting) >= maxWaiting {
		s.mu.Unlock()
		return reply{}, fmt.Errorf("mqttclient: %d packets wait for an answer", maxWaiting)
	}
	for {
		if s.nextID++; s.nextID != 0 && s.waiting[s.nextID] == nil {
			break
		}
	}
	id := s.nextID
	s.waiting[id] = c
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.waiting[id] == c {
			delete(s.waiting, id)
		}
	}()
	if err := s.send(encode(id)); err != nil {
		return reply{}, err
	}
	select {
	case r := <-c:
		return r, nil
	case <-s.done:
		return reply{}, errors.Join(ErrEnded, s.err)
	case <-ctx.Done():
		return reply{}, ctx.Err()
	}
}

// Subscribe subscribes and returns the QoS that is granted for each filter. The error is a *RefusedFilter when one is refused.
func (s *Session) Subscribe(ctx context.Context, subs ...Subscription) (granted []byte, err error) {
	r, err := s.ask(ctx, func(id uint16) []byte { return encodeSubscribe(s.o.Version, id, subs) })
	if err != nil {
		return nil, err
	}
	if len(r.codes) != len(subs) {
		return nil, fmt.Errorf("%w: a SUBACK of %d filters for %d", ErrMalformed, len(r.codes), len(subs))
	}
	for i, code := range r.codes {
		if code >= 0x80 {
			return r.codes, &RefusedFilter{Filter: subs[i].Filter, Code: code, Reason: r.reason}
		}
	}
	return r.codes, nil
}

// Publish publishes a message and returns once it is acknowledged; at QoS 0 once it was written. QoS 2 is not supported.
func (s *Session) Publish(ctx context.Context, m Message) error {
	switch {
	case m.QoS > 1 || m.QoS > s.ack.maximumQoS:
		return ErrQoS
	case s.ack.maximumPacket > 0 && len(m.Topic)+len(m.Payload)+publishOverhead > int(s.ack.maximumPacket):
		return ErrTooLarge
	case m.QoS == 0:
		return s.send(encodePublish(s.o.Version, 0, &m))
	}
	r, err := s.ask(ctx, func(id uint16) []byte { return encodePublish(s.o.Version, id, &m) })
	if err == nil && r.codes[0] >= 0x80 {
		return &Refused{Packet: "PUBACK", Code: r.codes[0], Version: s.o.Version}
	}
	return err
}

// RefusedFilter is a subscription that the broker does not grant.
type RefusedFilter struct {
	Filter string
	Code   byte
	Reason string // of the broker, "" for none
}

func (r *RefusedFilter) Error() string {
	text := fmt.Sprintf("the broker refuses the subscription to %s: SUBACK 0x%02x", r.Filter, r.Code)
	if name := reasonName(r.Code); name != "" && r.Code != 0x80 {
		text += " " + name
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return text
}

// Delivery is a message that came over a session.
type Delivery struct {
	Incoming
	Session *Session
	ack     func()
}

// Ack acknowledges the message. Acknowledgements leave in the order in which the messages came. It may be called more than once.
func (d *Delivery) Ack() {
	if d.ack != nil {
		d.ack()
	}
}

// acks sends acknowledgements in the order of the messages, as MQTT 5.0 section 4.6 demands.
type acks struct {
	send func(ids []uint16)

	mu      sync.Mutex
	pending []*pendingAck
	sending bool
	ended   bool
}

type pendingAck struct {
	id    uint16
	ready bool
}

// expect returns what acknowledges a message; nil when as many as may be are not acknowledged.
func (a *acks) expect(id uint16) func() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.pending) >= maxPending {
		return nil
	}
	p := &pendingAck{id: id}
	a.pending = append(a.pending, p)
	return func() { a.ready(p) }
}

// ready marks a message and sends what can leave. One of several callers sends for all.
func (a *acks) ready(p *pendingAck) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.ready = true; a.sending {
		return
	}
	a.sending = true
	for {
		n := 0
		for n < len(a.pending) && a.pending[n].ready {
			n++
		}
		if n == 0 || a.ended {
			break
		}
		ids := make([]uint16, n)
		for i, q := range a.pending[:n] {
			ids[i] = q.id
		}
		a.pending = slices.Delete(a.pending, 0, n)
		a.mu.Unlock()
		a.send(ids)
		a.mu.Lock()
	}
	a.sending = false
}

func (a *acks) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
}

// Unacknowledged is how many messages have no acknowledgement yet.
func (s *Session) Unacknowledged() int {
	s.acks.mu.Lock()
	defer s.acks.mu.Unlock()
	return len(s.acks.pending)
}
