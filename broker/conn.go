package broker

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"weir/model"
	"weir/provision"
)

// cause is why a connection ended, and what follows from it.
type cause struct {
	word string // the label of the metric, and the reason of the presence transition
	code byte   // reason code of the DISCONNECT that an MQTT 5 client is sent; 0 for none
	ours bool   // Weir itself ended it: no transition of the device, which has the grace to return
	kind endKind
	text string // reason string for an MQTT 5 client, if any
}

type endKind uint8

const (
	abnormal  endKind = iota
	clean             // the client sent a DISCONNECT that removes its will
	takenOver         // by a connection with the same client id
	revoked           // by a change of credential, device or tenant: the session ends too
)

var (
	causeGoodbye         = &cause{word: "disconnected", kind: clean}
	causeGoodbyeWill     = &cause{word: "disconnected-with-will"}
	causeLost            = &cause{word: "connection-lost"}
	causeKeepAlive       = &cause{word: "keep-alive-timeout", code: codeKeepAliveTimeout}
	causeMalformed       = &cause{word: "malformed-packet", code: codeMalformed}
	causeProtocol        = &cause{word: "protocol-error", code: codeProtocolError}
	causeSubscriptionID  = &cause{word: "protocol-error", code: codeSubIDNotSupported}
	causeTopicName       = &cause{word: "protocol-error", code: codeTopicNameInvalid}
	causeTopicAlias      = &cause{word: "protocol-error", code: codeTopicAliasInvalid}
	causeAnswerTooLarge  = &cause{word: "protocol-error", code: codePacketTooLarge}
	causeReceiveMaximum  = &cause{word: "receive-maximum-exceeded", code: codeReceiveMaximum}
	causeTooLarge        = &cause{word: "packet-too-large", code: codePacketTooLarge}
	causeQoS2            = &cause{word: "qos-2", code: codeQoSNotSupported}
	causeForbidden       = &cause{word: "forbidden-publish", code: codeNotAuthorized}
	causeForbiddenFilter = &cause{word: "forbidden-subscribe", code: codeNotAuthorized}
	causeRefused         = &cause{word: "refused-publish", code: codeUnspecified}
	causeTakenOver       = &cause{word: "taken-over", code: codeSessionTakenOver, kind: takenOver}
	causeWithheld        = &cause{word: "not-stored", code: codeServerBusy, ours: true}
	causeStalled         = &cause{word: "stalled", code: codeServerBusy, ours: true}
	causeStalledPacket   = &cause{word: "stalled-packet", code: codeServerBusy, ours: true}
	causeSlowReader      = &cause{word: "slow-reader", ours: true}
	causeUnacknowledged  = &cause{word: "unacknowledged", code: codeImplementation, ours: true, text: "a command is not acknowledged, and leaves room for no other"}
	causeExpired         = &cause{word: "session-expired", code: codeMaximumConnectTime, ours: true}
	causeDropped         = &cause{word: "dropped", code: codeNotAuthorized, ours: true, kind: revoked}
	causeShutdown        = &cause{word: "shutdown", code: codeShuttingDown, ours: true}
	causePanic           = &cause{word: "panic", code: codeUnspecified}

	// causeQueued says that the end is already in the acknowledgement queue.
	causeQueued = &cause{}
)

// service is what a connection is for: devices, provisioning, or the open topics. It decides what connections and sessions leave open.
type service interface {
	// claims reads the identity that the CONNECT claims and refuses what the service never accepts.
	claims(p *connect) (identity, *refusal)
	// verify verifies the credential and completes the identity with what it proves.
	verify(ctx context.Context, p *connect, id *identity) (Proof, *refusal)
	// offers sets the properties of the CONNACK, except for those that every service has.
	offers(c *conn, p *packets.Properties)
	// begin is called after the CONNACK and before the first packet is read, ended once the connection is gone.
	begin(c *conn)
	ended(c *conn, why *cause)
	// publish handles a PUBLISH, release a PUBREL. A cause ends the connection after what was accepted is acknowledged.
	publish(c *conn, header byte, body []byte) *cause
	release(c *conn, id uint16) *cause
	// countRefused counts a publish that is turned away before it is decoded.
	countRefused(c *conn, bytes int, why *cause)
	// permit is the code that refuses a topic filter, or codeSuccess.
	permit(c *conn, filter string) byte
	// changed is called with the lock of the sessions when the subscriptions of a connection have changed, once they are known at its
	// beginning, and when it has left its session. idle is called without it when everything that waited for a connection is written.
	changed(c *conn)
	idle(c *conn)
	// publishWill publishes a will. sayWill does so for a caller that holds the lock of the sessions, and does not block.
	publishWill(w *lastWill)
	sayWill(w *lastWill)
}

// conn is one connection, from the verified CONNECT to its end. One goroutine reads it; answers and deliveries are written by
// others through write.
type conn struct {
	b        *Broker
	service  service
	pubsub   *pubsub // the sessions of the service
	nc       net.Conn
	from     netip.Addr
	listener string
	in       *bufio.Reader
	binding  model.Binding

	clientID    string // of the session; see identity
	assigned    string // the client id that the server chose, "" if the client has its own
	version     byte
	clean       bool
	published   int      // at QoS 1 and 2, up to resendPhase
	begun       []uint16 // packet identifiers of the first of them, see mayRepeat
	problemInfo bool
	keepAlive   time.Duration // 0: none
	maxPacket   uint32
	expiry      uint32 // seconds that the session outlives the connection
	asked       uint32 // what the client asked for
	will        *will
	proofEnds   model.Micros

	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	cause  atomic.Pointer[cause]
	done   chan struct{} // closed when nothing of it is left in the broker
	acks   acks
	wmu    sync.Mutex // of the socket
	stall  stall
	expire *time.Timer

	heard       time.Time // when the last packet was handled
	deadline    time.Time // what heard was when the read deadline was last set
	established bool
	allowQoS2   bool // as the CONNACK said
	since       time.Time
	session     *session
	present     bool // there was a session before

	// Of a device.
	topics   topics
	suffixed bool   // its client id has a suffix: it shares the device with others and asserts no presence
	unkept   bool   // it leaves no session: a device may have any number of suffixes and of client ids of a free form
	number   uint64 // of the presence session
	edge     bool   // it may publish for others
	secure   bool   // over TLS
	talk     talking
	uplinks  []string

	admitted *provision.Grant // of a provisioning connection

	// Of the open topics.
	bridge  bool // it gets nothing back that it sent, and retained messages as such
	aliases map[uint16]string

	outbox
	taking
	shared sharing
}

func (b *Broker) newConn(s service, p *pubsub, nc net.Conn, in *bufio.Reader, hello *connect, id identity, proof Proof) *conn {
	c := &conn{b: b, service: s, pubsub: p, nc: nc, in: in, binding: proof.Binding, edge: proof.edge, topics: id.topics, clientID: id.client, version: hello.version,
		suffixed: id.suffixed, unkept: id.suffixed || id.free, admitted: id.admitted, bridge: hello.bridge, clean: hello.clean, problemInfo: hello.problemInfo,
		maxPacket: hello.maxPacket, will: hello.will, proofEnds: proof.Expires, from: hello.from, asked: hello.expiry, done: make(chan struct{})}
	if id.assigned {
		c.assigned = hello.clientID
	}
	c.allowQoS2 = p.qos2() // before anything of the connection is judged
	c.keepAlive = keepAlive(hello.version, time.Duration(hello.keepAlive)*time.Second, b.cfg.MaxKeepAlive)
	c.expiry = c.grant(hello.expiry)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.stall.init(c.patience(), func() { c.end(causeStalled) })
	c.acks.init(c)
	c.outbox.init(p, hello)
	return c
}

// grant is the session expiry that the client gets for what it asks, in seconds. Of a device only the connection whose client id
// is the device's name may leave a session.
func (c *conn) grant(asked uint32) uint32 {
	if c.unkept {
		return 0
	}
	return min(asked, uint32(c.b.cfg.MaxSession/time.Second))
}

// keepAlive is what holds for a client that asked for one, 0 for none. MQTT 5 announces the server's maximum (3.2.2.3.14). In 3.1.1 nothing
// can: the client's own value holds, and where it has none TCP's keep-alive finds the connection whose other end has gone (3.1.2.10).
func keepAlive(version byte, asked, most time.Duration) time.Duration {
	switch {
	case version < mqtt5:
		return asked
	case asked == 0:
		return most
	}
	return min(asked, most)
}

// silence is how long the client may send nothing: one and a half of its keep-alive (MQTT-3.1.2-22), 0 for ever.
func (c *conn) silence() time.Duration { return c.keepAlive + c.keepAlive/2 }

// patience is silence with an end: how long a packet that has begun, or the work on one, may take.
func (c *conn) patience() time.Duration {
	most := c.b.cfg.MaxKeepAlive + c.b.cfg.MaxKeepAlive/2
	if c.keepAlive == 0 {
		return most
	}
	return min(c.silence(), most)
}

// run serves the connection until it ends: it reads packets and handles each of them.
func (c *conn) run() {
	defer c.recovered("a connection panicked")
	if c.write(c.connack()) != nil {
		return
	}
	c.established, c.since = true, time.Now()
	c.b.metrics.connects.Inc()
	c.b.log.Debug("an MQTT connection began", "listener", c.listener, "client", c.clientID, "version", c.version, "resumed", c.present)
	c.service.begin(c)
	c.openOutbox()
	for c.next() {
	}
}

// recovered ends a connection whose handling has panicked; other connections are not affected.
func (c *conn) recovered(what string) {
	if p := recover(); p != nil {
		c.b.metrics.panics.Inc()
		c.b.log.Error(what, "listener", c.listener, "panic", p, "stack", string(debug.Stack()))
		c.end(causePanic)
	}
}

// connack encodes the CONNACK (MQTT 5.0 section 3.2).
func (c *conn) connack() []byte {
	pk := packets.Packet{ProtocolVersion: c.version, SessionPresent: c.present}
	if c.version == mqtt5 {
		c.service.offers(c, &pk.Properties)
		pk.Properties.ReceiveMaximum, pk.Properties.MaximumPacketSize = uint16(c.receiveMaximum()), uint32(c.b.cfg.MaxPacket)
		pk.Properties.ServerKeepAlive, pk.Properties.ServerKeepAliveFlag = uint16(c.keepAlive/time.Second), true
		if c.expiry != c.asked {
			pk.Properties.SessionExpiryInterval, pk.Properties.SessionExpiryIntervalFlag = c.expiry, true
		}
	}
	return encoded(pktConnack, &pk)
}

// expireAfter ends the connection after d.
func (c *conn) expireAfter(d time.Duration) {
	c.expire = time.AfterFunc(max(d, 0), func() { c.end(causeExpired) })
}

// proofLeft is how long the credential is still valid, or limit where that is less.
func (c *conn) proofLeft(limit time.Duration) time.Duration {
	if c.proofEnds == 0 {
		return limit
	}
	return min(limit, c.proofEnds.Time().Sub(c.b.deps.Now()))
}

// end ends the connection; only the first cause counts. It does not block: the goroutine that runs the connection writes the
// DISCONNECT and cleans up.
func (c *conn) end(why *cause) bool {
	if !c.cause.CompareAndSwap(nil, why) {
		return false
	}
	c.cancel()
	c.interrupt()
	return true
}

// interrupt wakes the reader and gives a writer that is stuck a second.
func (c *conn) interrupt() {
	_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	_ = c.nc.SetWriteDeadline(time.Now().Add(lastWordTimeout))
}

const lastWordTimeout = time.Second

var errEnded = errors.New("broker: the connection has ended")

// write puts whole packets on the wire, one writer at a time. A client that does not read them within the write timeout is
// too slow, and its connection ends: it must not hold up others.
func (c *conn) write(p []byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	_ = c.nc.SetWriteDeadline(time.Now().Add(c.b.cfg.WriteTimeout))
	if why := c.cause.Load(); why != nil && why != causeShutdown { // at a shutdown the answers are still owed
		return errEnded
	}
	_, err := c.nc.Write(p)
	switch {
	case err == nil:
		return nil
	case isTimeout(err):
		c.end(causeSlowReader)
	default:
		c.end(causeLost)
	}
	return err
}

func isTimeout(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}

// reason is the reason string for an MQTT 5 client, unless it asked for no problem information.
func (c *conn) reason(text string) string {
	if !c.problemInfo {
		return ""
	}
	return text
}

// abandon releases a connection that was never served.
func (c *conn) abandon() {
	c.cancel()
	c.stall.stop()
	close(c.done)
}

// finish writes the DISCONNECT, closes the connection and does what follows from the cause.
func (c *conn) finish() {
	c.end(causeLost)
	why := c.cause.Load()
	c.stall.stop()
	if c.expire != nil {
		c.expire.Stop()
	}
	if why == causeShutdown {
		select { // messages handed to the log are answered before the client is disconnected
		case <-c.acks.drain():
		case <-c.b.closing.Done():
		}
	}
	c.acks.stop()
	c.lastWord(why, c.shutOutbox())
	c.b.metrics.disconnects.WithLabelValues(why.word).Inc()
	c.b.log.Debug("an MQTT connection ended", "listener", c.listener, "client", c.clientID, "cause", why.word)
	due := c.pubsub.leave(c, why) // before the client id is free: the next connection asks for the session
	close(c.done)
	if due != nil {
		c.service.publishWill(due)
	}
	c.service.ended(c, why)
	linger(c.nc)
}

// lastWord writes the answers that are left and the DISCONNECT.
func (c *conn) lastWord(why *cause, rest []byte) {
	if c.version == mqtt5 && why.code != 0 && c.established {
		rest = append(rest, disconnectText(why.code, c.reason(why.text), c.maxPacket)...)
	}
	c.interrupt()
	if len(rest) == 0 || why == causeSlowReader || why == causeLost {
		return
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.interrupt()
	_, _ = c.nc.Write(rest) // the client may be gone already; the connection ends either way
}

// linger closes a connection so that the last written bytes arrive: closing it with unread bytes would reset it.
func linger(conn net.Conn) {
	defer conn.Close()
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(lastWordTimeout))
	_, _ = io.CopyN(io.Discard, conn, largePacket)
}
