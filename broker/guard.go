package broker

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"weir/ingest"
)

// guard is the connection that mochi is shown. Its Read frames what the client sends and judges every packet: publishes
// go to the gate, DISCONNECT and whatever is out of order end the session, a PINGREQ is answered, and only SUBSCRIBE,
// UNSUBSCRIBE and PUBACK that are sound in form reach the library. On the hook path publishes that are sound do so as well.
// Deadlines and closing are the session's business.
type guard struct {
	s    *session
	pass []byte // bytes for mochi
	buf  []byte // what pass is cut from
}

var errEnded = errors.New("broker: session ended")

// largePacket is the size from which on a packet needs one of a few places to be read: memory for it is taken from all
// connections together.
const largePacket = 64 << 10

func (g *guard) Read(p []byte) (int, error) {
	for len(g.pass) == 0 {
		if err := g.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, g.pass)
	g.pass = g.pass[n:]
	if len(g.pass) == 0 {
		g.pass = nil
		if cap(g.buf) > readBuffer { // a large one is not held for a connection that may be idle from now on
			g.buf = nil
		}
	}
	return n, nil
}

// Write takes one packet from mochi. The CONNACK is left out, for the session has written it, and a DISCONNECT: the session
// says its last word itself, once, and never to a 3.1.1 client, which knows none from a server.
func (g *guard) Write(p []byte) (int, error) {
	if len(p) > 0 && (p[0]>>4 == pktConnack || p[0]>>4 == pktDisconnect) {
		return len(p), nil
	}
	if err := g.s.write(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (g *guard) Close() error                     { return nil }
func (g *guard) LocalAddr() net.Addr              { return g.s.conn.LocalAddr() }
func (g *guard) RemoteAddr() net.Addr             { return g.s.conn.RemoteAddr() }
func (g *guard) SetDeadline(time.Time) error      { return nil }
func (g *guard) SetReadDeadline(time.Time) error  { return nil }
func (g *guard) SetWriteDeadline(time.Time) error { return nil }

// next reads one packet. What ends the session takes its place behind the acknowledgements that are due; nothing is read
// after it.
func (g *guard) next() error {
	s := g.s
	if s.ctx.Err() != nil {
		return errEnded
	}
	header, size, err := s.header()
	if err != nil {
		return s.readFailed(err)
	}
	s.b.metrics.packets[header>>4].Inc()
	if ends := s.admit(header, size); ends != nil {
		return s.finalPacket(ends)
	}
	body, release, err := s.body(size)
	if err != nil {
		return s.readFailed(err)
	}
	defer release()
	if header>>4 == pktSubscribe && identified(s.version, body) {
		return s.finalPacket(causeSubscriptionID)
	}
	var ends *cause
	switch header >> 4 {
	case pktPublish:
		ends = g.publish(header, body)
	case pktDisconnect:
		ends = s.goodbye(body)
	case pktPubrel:
		if ends = checkForm(s.version, pktPubrel, body); ends == nil {
			ends = s.acks.release(uint16(body[0])<<8 | uint16(body[1]))
		}
	case pktPingreq:
		if ends = checkForm(s.version, pktPingreq, body); ends == nil && s.write([]byte{pktPingresp << 4, 0}) != nil {
			return errEnded
		}
	default:
		if ends = checkForm(s.version, header>>4, body); ends == nil {
			g.hand(header, body)
		}
	}
	if ends != nil {
		return s.finalPacket(ends)
	}
	return nil
}

// publish takes a PUBLISH to the gate, or lets mochi do it. Its form is checked on either path: mochi would take the
// packet for something else, or drop it without a word.
func (g *guard) publish(header byte, body []byte) *cause {
	p, ends := decodePublish(g.s.version, header, body, g.s.topics.events)
	switch {
	case ends != nil:
		return ends
	case g.s.b.cfg.HookPath:
		g.hand(header, body)
		return nil
	}
	return g.s.publish(p)
}

// hand gives mochi a packet.
func (g *guard) hand(header byte, body []byte) {
	g.buf = append(appendVarint(append(g.buf[:0], header), len(body)), body...)
	g.pass = g.buf
}

// finalPacket queues the end of the session and waits for it, at most as long as the client may be silent.
func (s *session) finalPacket(ends *cause) error {
	if ends != causeQueued {
		s.acks.close(ends)
	}
	s.stall.begin(time.Now())
	<-s.ctx.Done()
	return errEnded
}

// header waits for the next packet and reads its fixed header.
func (s *session) header() (header byte, size int, err error) {
	if err := s.await(); err != nil {
		return 0, 0, err
	}
	s.buffered(maxFixedHeader)
	return fixedHeader(s.in)
}

// maxFixedHeader is the length of the longest fixed header.
const maxFixedHeader = 5

// fixedHeader reads the first byte and the remaining length, section 2.1; size is -1 when that is malformed. No memory is
// taken for the packet yet.
func fixedHeader(in *bufio.Reader) (header byte, size int, err error) {
	if header, err = in.ReadByte(); err != nil {
		return 0, 0, err
	}
	for shift := 0; ; shift += 7 {
		d, err := in.ReadByte()
		if err != nil {
			return 0, 0, err
		}
		size |= int(d&0x7f) << shift
		if d < 0x80 {
			if shift > 0 && d == 0 {
				size = -1
			}
			return header, size, nil
		}
		if shift == 21 {
			return header, -1, nil
		}
	}
}

// admit judges a packet by its fixed header. size is -1 when the remaining length is malformed.
func (s *session) admit(header byte, size int) *cause {
	kind, flags := header>>4, header&15
	switch {
	case size < 0:
		return causeMalformed
	case kind == pktPublish:
		return s.admitPublish(flags, size)
	case kind == 0, flags != reservedFlags(kind): // MQTT-2.1.3-1
		return causeMalformed
	case packetSize(size) > min(s.b.cfg.MaxPacket, largePacket):
		return causeTooLarge
	}
	switch kind {
	case pktPuback, pktSubscribe, pktUnsubscribe, pktPingreq, pktDisconnect:
		return nil
	case pktPubrel:
		if s.allowQoS2 {
			return nil
		}
	}
	// A second CONNECT, packets that only a server sends, those of QoS 2 and of an authentication that was not begun.
	return causeProtocol
}

func reservedFlags(kind byte) byte {
	if kind == pktPubrel || kind == pktSubscribe || kind == pktUnsubscribe {
		return 2
	}
	return 0
}

func (s *session) admitPublish(flags byte, size int) *cause {
	switch qos := flags >> 1 & 3; {
	case qos == 3: // MQTT-3.3.1-4
		return causeMalformed
	case qos == 2 && !s.allowQoS2:
		s.countRefused(size, ReasonQoS2)
		return causeQoS2
	case packetSize(size) > s.b.cfg.MaxPacket:
		s.countRefused(size, ingest.ReasonTooLarge)
		return causeTooLarge
	}
	return nil
}

// packetSize is the size of a whole packet, fixed header included.
func packetSize(size int) int {
	n := 2 + size
	for v := size >> 7; v > 0; v >>= 7 {
		n++
	}
	return n
}

// body returns the rest of the packet; it is valid until release is called. What fits into the read buffer is not copied.
func (s *session) body(size int) (body []byte, release func(), err error) {
	s.buffered(size)
	if size <= s.in.Size() {
		if body, err = s.in.Peek(size); err != nil {
			return nil, nil, err
		}
		return body, func() { _, _ = s.in.Discard(size) }, nil
	}
	if size > largePacket {
		select {
		case s.b.large <- struct{}{}:
		default:
			s.b.metrics.largeWaits.Inc()
			select {
			case s.b.large <- struct{}{}:
			case <-s.ctx.Done():
				return nil, nil, errEnded
			}
		}
		defer func() { <-s.b.large }()
	}
	// The client is believed only as far as it has sent: memory grows with what arrives.
	body = make([]byte, 0, min(size, 8<<10))
	if size > largePacket {
		s.hasten(size)
	}
	for len(body) < size {
		if len(body) == cap(body) {
			body = append(make([]byte, 0, min(size, 2*cap(body))), body...)
		}
		n, err := io.ReadFull(s.in, body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err != nil {
			return nil, nil, err
		}
	}
	return body, func() {}, nil
}

// A packet that holds one of the places of large ones has to come within largeGrace and at largeRate bytes a second, or
// within the silence that its client is allowed where that is less: who drips it keeps the place from others.
const (
	largeGrace = 30 * time.Second
	largeRate  = 8 << 10
)

// hasten allows a large packet its time from now on, however long it has waited for its place.
func (s *session) hasten(size int) {
	_ = s.conn.SetReadDeadline(time.Now().Add(min(s.silence(), largeGrace+time.Duration(size)*time.Second/largeRate)))
	s.deadline = time.Time{} // the next packet has its own
	if s.cause.Load() != nil {
		s.hurryUp()
	}
}

// readFailed says why reading failed and ends the session with it.
func (s *session) readFailed(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.end(causeKeepAlive)
	case errors.Is(err, errFrame):
		s.end(causeMalformed)
	default:
		s.end(causeLost)
	}
	return err
}

// goodbye reads a DISCONNECT, section 3.14. With a reason other than 0 the client asks for its will.
func (s *session) goodbye(body []byte) *cause {
	if s.version < mqtt5 || len(body) == 0 {
		if len(body) > 0 {
			return causeMalformed
		}
		return causeGoodbye
	}
	c := cursor{b: body}
	reason := c.byte()
	if len(c.b) > 0 {
		expiry, given := uint32(0), false
		code := properties(&c, pktDisconnect, func(id, v uint32) byte {
			if id == propSessionExpiry {
				expiry, given = v, true
			}
			return codeSuccess
		})
		switch {
		case code == codeMalformed || len(c.b) > 0:
			return causeMalformed
		case code != codeSuccess, given && expiry > 0 && s.asked == 0: // section 3.14.2.2.2
			return causeProtocol
		case given:
			s.expiry = s.grant(expiry)
		}
	}
	if reason != codeSuccess {
		return causeGoodbyeWill
	}
	return causeGoodbye
}

// checkForm checks a packet that goes on to mochi, or one of QoS 2. Its decoder reads past the end of some SUBSCRIBEs, so none of doubtful
// form reaches it.
func checkForm(version, kind byte, body []byte) *cause {
	c := cursor{b: body}
	if kind == pktPingreq {
		if len(body) > 0 {
			return causeMalformed
		}
		return nil
	}
	if id := c.uint16(); id == 0 && !c.bad {
		return causeProtocol // MQTT-2.2.1-3
	}
	if kind >= pktPuback && kind <= pktPubcomp {
		return checkAck(version, kind, &c)
	}
	if version == mqtt5 && !c.bad {
		if ends := causeOf(properties(&c, kind, nonZeroSubscriptionID)); ends != nil {
			return ends
		}
	}
	if len(c.b) == 0 && !c.bad {
		return causeProtocol // MQTT-3.8.3-2, -3.10.3-2
	}
	for len(c.b) > 0 && !c.bad {
		filter := c.text()
		if len(filter) == 0 {
			return causeMalformed // MQTT-4.7.3-1
		}
		if kind == pktUnsubscribe {
			continue
		}
		switch o := c.byte(); {
		case !soundOptions(version, o):
			return causeMalformed
		case o&noLocal != 0 && bytes.HasPrefix(filter, []byte(sharePrefix)): // MQTT-3.8.3-4
			return causeProtocol
		}
	}
	if c.bad {
		return causeMalformed
	}
	return nil
}

func nonZeroSubscriptionID(id, v uint32) byte {
	if id == propSubscriptionID && v == 0 { // section 3.8.2.1.2
		return codeProtocolError
	}
	return codeSuccess
}

// identified reports whether a SUBSCRIBE has a subscription identifier, which the CONNACK said are not available (section
// 3.2.2.3.12).
func identified(version byte, body []byte) bool {
	c, found := cursor{b: body}, false
	c.uint16()
	return version == mqtt5 && properties(&c, pktSubscribe, func(id, v uint32) byte {
		found = found || id == propSubscriptionID && v > 0
		return codeSuccess
	}) == codeSuccess && found
}

const noLocal = 1 << 2 // of the subscription options

// soundOptions checks the subscription options, section 3.8.3.1; 3.1.1 has only the QoS.
func soundOptions(version, o byte) bool {
	if o&3 == 3 {
		return false
	}
	if version == mqtt5 {
		return o&0xC0 == 0 && o>>4&3 != 3
	}
	return o&0xFC == 0
}

func checkAck(version, kind byte, c *cursor) *cause {
	if version == mqtt5 && len(c.b) > 0 {
		c.byte()
		if len(c.b) > 0 && properties(c, kind, nil) != codeSuccess {
			return causeMalformed
		}
	}
	if c.bad || len(c.b) > 0 {
		return causeMalformed
	}
	return nil
}
