package broker

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"weir/model"
)

// cause is why a session ended, and what follows from it.
type cause struct {
	word string // the label of the metric, and the reason of the presence transition
	code byte   // reason code of the DISCONNECT that an MQTT 5 client is sent; 0 for none
	ours bool   // Weir itself ended it: no transition of the device, which has the grace to return
	kind endKind
	text string // what an MQTT 5 client is told beside the code, if anything
}

type endKind uint8

const (
	abnormal  endKind = iota
	clean             // the client said goodbye and takes its will back
	takenOver         // by a connection with the same client id
	revoked           // by a change of credential, device or tenant: nothing of it lives on
)

var (
	causeGoodbye        = &cause{word: "disconnected", kind: clean}
	causeGoodbyeWill    = &cause{word: "disconnected-with-will"}
	causeLost           = &cause{word: "connection-lost"}
	causeKeepAlive      = &cause{word: "keep-alive-timeout", code: codeKeepAliveTimeout}
	causeMalformed      = &cause{word: "malformed-packet", code: codeMalformed}
	causeProtocol       = &cause{word: "protocol-error", code: codeProtocolError}
	causeSubscriptionID = &cause{word: "protocol-error", code: codeSubIDNotSupported}
	causeTopicName      = &cause{word: "protocol-error", code: codeTopicNameInvalid}
	causeTopicAlias     = &cause{word: "protocol-error", code: codeTopicAliasInvalid}
	causeReceiveMaximum = &cause{word: "receive-maximum-exceeded", code: codeReceiveMaximum}
	causeTooLarge       = &cause{word: "packet-too-large", code: codePacketTooLarge}
	causeQoS2           = &cause{word: "qos-2", code: codeQoSNotSupported}
	causeForbidden      = &cause{word: "forbidden-publish", code: codeNotAuthorized}
	causeNoConsumer     = &cause{word: "no-consumer", code: codeImplementation}
	causeRefused        = &cause{word: "refused-publish", code: codeUnspecified}
	causeTakenOver      = &cause{word: "taken-over", code: codeSessionTakenOver, kind: takenOver}
	causeWithheld       = &cause{word: "not-stored", code: codeServerBusy, ours: true}
	causeStalled        = &cause{word: "stalled", code: codeServerBusy, ours: true}
	causeSlowReader     = &cause{word: "slow-reader", ours: true}
	causeExpired        = &cause{word: "session-expired", code: codeMaximumConnectTime, ours: true}
	causeDropped        = &cause{word: "dropped", code: codeNotAuthorized, ours: true, kind: revoked}
	causeShutdown       = &cause{word: "shutdown", code: codeShuttingDown, ours: true}
	causePanic          = &cause{word: "panic", code: codeUnspecified}

	// causeQueued says that the end is already in the acknowledgement queue.
	causeQueued = &cause{}
)

// session is one connection of a device, from the verified CONNECT to its end. One goroutine reads it; answers and
// downlinks are written by others through write.
type session struct {
	b       *Broker
	conn    net.Conn
	door    string // name of the listener that it came through
	in      *bufio.Reader
	binding model.Binding
	topics  topics

	clientID    string
	version     byte
	suffixed    bool // its client id has a suffix: it shares the device with others and asserts no presence
	clean       bool
	problemInfo bool
	keepAlive   time.Duration
	maxPacket   uint32
	expiry      uint32 // seconds that the session outlives the connection
	asked       uint32 // what the client asked for
	will        *will
	proofEnds   model.Micros

	ctx    context.Context // ends with the session
	cancel context.CancelFunc
	cause  atomic.Pointer[cause]
	done   chan struct{} // closed when nothing of it is left in the broker
	acks   acks
	wmu    sync.Mutex // the writer
	stall  stall
	expire *time.Timer

	heard       time.Time // when the last packet was done with
	deadline    time.Time // what heard was when the read deadline was last set
	established bool
	allowQoS2   bool      // as the client was told
	since       time.Time // of being established
	resumed     *keptSession
	number      uint64       // of the presence session
	subscribed  atomic.Int32 // QoS of the subscription to its commands + 1; 0 for none
	packetID    uint16       // of the SUBSCRIBE or UNSUBSCRIBE that mochi is handling
	handled     publish      // by mochi, on the hook path
}

func newSession(b *Broker, conn net.Conn, in *bufio.Reader, p *connect, id identity, proof Proof) *session {
	s := &session{b: b, conn: conn, in: in, binding: proof.Binding, topics: topicsOf(b.cfg.InstanceID, id.tenant, id.device),
		clientID: p.clientID, version: p.version, suffixed: id.suffixed, clean: p.clean, problemInfo: p.problemInfo,
		maxPacket: p.maxPacket, will: p.will, proofEnds: proof.Expires, asked: p.expiry, done: make(chan struct{})}
	s.allowQoS2 = b.settings.Load().AllowQoS2
	s.keepAlive = b.cfg.MaxKeepAlive
	if p.keepAlive > 0 {
		s.keepAlive = min(s.keepAlive, time.Duration(p.keepAlive)*time.Second)
	}
	s.expiry = s.grant(p.expiry)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.stall.init(s.silence(), func() { s.end(causeStalled) })
	s.acks.init(s)
	return s
}

// grant is the session expiry that the client gets for what it asks, in seconds. Only the connection without a suffix may
// leave a session behind: a device may have any number of suffixes.
func (s *session) grant(asked uint32) uint32 {
	if s.suffixed {
		return 0
	}
	return min(asked, uint32(s.b.cfg.MaxSession/time.Second))
}

// silence is how long nothing may be heard of the client: one and a half of its keep-alive (MQTT-3.1.2-22).
func (s *session) silence() time.Duration { return s.keepAlive + s.keepAlive/2 }

// run serves the session until it ends. A device that only publishes and pings is served without mochi, whose share of a
// connection is three quarters of its memory; it is called in for the first packet that needs it, or for a subscription that
// has outlived the connection before.
func (s *session) run() {
	defer func() {
		if p := recover(); p != nil {
			s.b.metrics.panics.Inc()
			s.b.log.Error("a connection panicked", "panic", p, "stack", string(debug.Stack()))
			s.end(causePanic)
		}
	}()
	if err := s.welcome(); err != nil {
		s.end(causeProtocol)
		return
	}
	g := &guard{s: s}
	if s.resumed == nil || s.resumed.subscribed == 0 {
		s.begin()
		for len(g.pass) == 0 {
			if err := g.next(); err != nil {
				s.end(causeLost)
				return
			}
		}
	}
	s.callIn(g)
}

// callIn lets mochi serve the session on. The CONNECT that it sees is our own wording of it: no will, no receive maximum, no
// state to keep, which is how the faults around those are avoided. Its CONNACK goes nowhere.
func (s *session) callIn(g *guard) {
	hello, err := s.connectForMochi()
	if err != nil {
		s.end(causePanic)
		return
	}
	g.pass = append(hello, g.pass...)
	err = s.b.server.EstablishConnection("mqtt", g)
	if code, ok := errors.AsType[packets.Code](err); ok && code.Code >= codeUnspecified {
		s.end(&cause{word: causeProtocol.word, code: code.Code})
		return
	}
	s.end(causeLost)
}

// begin is called when the CONNACK is written and before the first packet is read.
func (s *session) begin() {
	s.established, s.since = true, time.Now()
	s.expire = time.AfterFunc(s.lifetime(), func() { s.end(causeExpired) })
	s.b.metrics.connects.Inc()
	s.b.log.Debug("an MQTT session began", "client", s.clientID, "version", s.version, "resumed", s.resumed != nil)
	s.resumed = nil
	s.stall.begin(s.since)
	defer s.stall.over()
	s.b.keeper.arrived(s)
}

// lifetime is how long the session may last: at most the longest session, and not longer than its credential.
func (s *session) lifetime() time.Duration {
	d := s.b.cfg.MaxSession
	if s.proofEnds != 0 {
		d = min(d, s.proofEnds.Time().Sub(s.b.deps.Now()))
	}
	return max(d, 0)
}

// end ends the session; only the first cause counts. It does not block: the goroutine that runs the session says the last
// word and cleans up.
func (s *session) end(c *cause) bool {
	if !s.cause.CompareAndSwap(nil, c) {
		return false
	}
	s.cancel()
	s.hurryUp()
	return true
}

// hurryUp wakes the reader and gives a writer that is stuck a second.
func (s *session) hurryUp() {
	_ = s.conn.SetReadDeadline(time.Unix(1, 0))
	_ = s.conn.SetWriteDeadline(time.Now().Add(lastWordTimeout))
}

const lastWordTimeout = time.Second

// await waits for the first byte of the next packet, as long as the client may be silent. Setting a deadline is not free, so
// it is moved on only when it has passed: who keeps sending costs none. In a WebSocket it is always exact, for what was read
// of a frame's head when it passes is lost.
func (s *session) await() error {
	s.heard = time.Now()
	if s.in.Buffered() > 0 {
		return nil
	}
	if _, framed := s.conn.(*wsConn); framed || s.deadline.IsZero() {
		s.allowSilence()
	}
	for {
		_, err := s.in.Peek(1)
		if err == nil || !isTimeout(err) || s.deadline.Equal(s.heard) || s.cause.Load() != nil {
			return err
		}
		s.allowSilence()
	}
}

// buffered sees to it that what is missing of a packet may take no longer than silence.
func (s *session) buffered(size int) {
	if s.in.Buffered() < size && !s.deadline.Equal(s.heard) {
		s.allowSilence()
	}
}

func (s *session) allowSilence() {
	s.deadline = s.heard
	_ = s.conn.SetReadDeadline(s.heard.Add(s.silence()))
	if s.cause.Load() != nil {
		s.hurryUp()
	}
}

// write puts whole packets on the wire, one writer at a time. A reader that does not take them within the write timeout
// is too slow, and its connection ends: it must not hold up others.
func (s *session) write(p []byte) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	timeout := s.b.cfg.WriteTimeout
	_ = s.conn.SetWriteDeadline(time.Now().Add(timeout))
	if c := s.cause.Load(); c != nil {
		if c != causeShutdown { // whose answers are still owed
			return errEnded
		}
	}
	_, err := s.conn.Write(p)
	switch {
	case err == nil:
		return nil
	case isTimeout(err):
		s.end(causeSlowReader)
	default:
		s.end(causeLost)
	}
	return err
}

func isTimeout(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}

// reason is what an MQTT 5 client is told beside a code, unless it asked for no problem information.
func (s *session) reason(text string) string {
	if !s.problemInfo {
		return ""
	}
	return text
}

// finish says the last word, closes the connection and does what follows from the cause.
func (s *session) finish() {
	c := s.cause.Load()
	s.stall.stop()
	if s.expire != nil {
		s.expire.Stop()
	}
	if c == causeShutdown {
		select { // what was handed to the log is answered before the client is sent away
		case <-s.acks.drain():
		case <-s.b.closing.Done():
		}
	}
	s.acks.stop()
	s.lastWord(c)
	s.acks.writers.Wait()
	s.b.metrics.disconnects.WithLabelValues(c.word).Inc()
	s.b.log.Debug("an MQTT session ended", "client", s.clientID, "cause", c.word)
	will := s.b.kept.leave(s, c) // before the place is free: the next connection asks for what is kept
	s.b.forget(s)
	close(s.done)
	if will != nil {
		s.b.publishWill(will)
	}
	if s.established {
		s.b.keeper.gone(s, c)
	}
	linger(s.conn)
}

// lastWord sends the DISCONNECT.
func (s *session) lastWord(c *cause) {
	if s.version < mqtt5 || c.code == 0 || !s.established {
		s.hurryUp()
		return
	}
	s.wmu.Lock()
	defer s.wmu.Unlock()
	s.hurryUp()
	_, _ = s.conn.Write(disconnect(c.code)) // it may be gone already; the connection ends either way
}

// linger closes a connection such that what was written last arrives: closing over unread bytes would reset it.
func linger(conn net.Conn) {
	defer conn.Close()
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(lastWordTimeout))
	_, _ = io.CopyN(io.Discard, conn, largePacket)
}
