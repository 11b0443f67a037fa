package broker

import (
	"bufio"
	"errors"
	"os"
	"time"
)

// next reads one packet and handles it. It returns false when the connection is over. A packet that ends it is answered
// after the acknowledgements that are due; nothing is read after it.
func (c *conn) next() bool {
	if c.ctx.Err() != nil {
		return false
	}
	header, size, err := c.header()
	if err != nil {
		return c.readFailed(err)
	}
	c.b.received(header>>4, c.heard)
	ends := c.judge(header, size)
	if ends == nil {
		body, release, err := c.body(size)
		if err != nil {
			return c.readFailed(err)
		}
		ends = c.packet(header, body)
		release()
	}
	if ends != nil {
		c.finalPacket(ends)
		return false
	}
	return true
}

// packet handles one packet.
func (c *conn) packet(header byte, body []byte) *cause {
	kind := header >> 4
	switch kind {
	case pktPublish:
		return c.service.publish(c, header, body)
	case pktDisconnect:
		return c.goodbye(body)
	}
	if ends := checkForm(c.version, kind, body); ends != nil {
		return ends
	}
	b := cursor{b: body}
	switch kind {
	case pktPingreq:
		c.answer([]byte{pktPingresp << 4, 0})
	case pktSubscribe:
		return c.subscribe(body)
	case pktUnsubscribe:
		return c.unsubscribe(body)
	case pktPubrel:
		return c.service.release(c, b.uint16())
	default:
		id := b.uint16()
		return c.acknowledged(kind, id, b.byte())
	}
	return nil
}

// finalPacket queues the end of the connection and waits for it, at most as long as the client may be silent.
func (c *conn) finalPacket(ends *cause) {
	if ends != causeQueued {
		c.acks.close(ends)
	}
	c.stall.begin(time.Now())
	<-c.ctx.Done()
}

// header waits for the next packet and reads its fixed header.
func (c *conn) header() (header byte, size int, err error) {
	if err := c.await(); err != nil {
		return 0, 0, err
	}
	c.buffered(maxFixedHeader)
	return fixedHeader(c.in)
}

// largePacket is the size from which on a packet needs one of a few slots to be read: memory for the rest of it is taken from all
// connections together. One tenant has a quarter of the slots, and so have all clients of the open topics; a packet that stalls while
// others wait ends its connection.
const largePacket = 64 << 10

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

// judge judges a packet by its fixed header. size is -1 when the remaining length is malformed.
func (c *conn) judge(header byte, size int) *cause {
	kind, flags := header>>4, header&15
	switch {
	case size < 0:
		return causeMalformed
	case kind == pktPublish:
		return c.judgePublish(flags, size)
	case kind == 0, flags != reservedFlags(kind): // MQTT-2.1.3-1
		return causeMalformed
	case packetSize(size) > min(c.b.cfg.MaxPacket, largePacket):
		return causeTooLarge
	}
	switch kind {
	case pktPuback, pktSubscribe, pktUnsubscribe, pktPingreq, pktDisconnect:
		return nil
	case pktPubrel:
		if c.allowQoS2 {
			return nil
		}
	case pktPubrec, pktPubcomp:
		if c.pubsub.limits.MaxQoS == 2 {
			return nil
		}
	}
	// A second CONNECT, packets that only a server sends, those of QoS 2 and of an authentication that was not begun.
	return causeProtocol
}

func (c *conn) judgePublish(flags byte, size int) (ends *cause) {
	switch qos := flags >> 1 & 3; {
	case qos == 3: // MQTT-3.3.1-4
		return causeMalformed
	case qos == 2 && !c.allowQoS2:
		ends = causeQoS2
	case packetSize(size) > c.b.cfg.MaxPacket:
		ends = causeTooLarge
	default:
		return nil
	}
	c.service.countRefused(c, size, ends)
	return ends
}

func reservedFlags(kind byte) byte {
	if kind == pktPubrel || kind == pktSubscribe || kind == pktUnsubscribe {
		return 2
	}
	return 0
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
func (c *conn) body(size int) (body []byte, release func(), err error) {
	c.buffered(size)
	if size <= c.in.Size() {
		if body, err = c.in.Peek(size); err != nil {
			return nil, nil, err
		}
		return body, func() { _, _ = c.in.Discard(size) }, nil
	}
	// The client is believed only as far as it has sent: memory grows with what arrives.
	body = make([]byte, 0, min(size, 8<<10))
	if size <= largePacket {
		body, err = c.readTo(body, size, nil)
		return body, func() {}, err
	}
	c.limitLarge(size)
	if body, err = c.readTo(body, largePacket, nil); err == nil {
		body, err = c.readLarge(body, size)
	}
	return body, func() {}, err
}

// readLarge reads the rest of a large packet, in a slot of the client's tenant or of the open topics.
func (c *conn) readLarge(body []byte, size int) ([]byte, error) {
	stop := func() { c.end(causeStalledPacket) }
	slot := c.b.large.TryEnter(c.binding.Tenant, stop)
	if slot == nil {
		c.b.metrics.largeWaits.Inc()
		if slot = c.b.large.Enter(c.ctx, c.binding.Tenant, stop); slot == nil {
			return nil, errEnded
		}
		c.limitLarge(size)
	}
	defer slot.Leave()
	body, err := c.readTo(body, size, slot.Arrived)
	if !slot.Complete() {
		return nil, errEnded
	}
	return body, err
}

// readTo appends to body until it has size bytes. arrived, if any, is called with the size of each part.
func (c *conn) readTo(body []byte, size int, arrived func(int)) ([]byte, error) {
	for len(body) < size {
		if len(body) == cap(body) {
			body = append(make([]byte, 0, min(size, 2*cap(body))), body...)
		}
		n, err := c.in.Read(body[len(body):min(cap(body), size)])
		body = body[:len(body)+n]
		if arrived != nil {
			arrived(n)
		}
		if err != nil {
			return nil, err
		}
	}
	return body, nil
}

// A large packet has to arrive within largeGrace and at largeRate bytes a second, or
// within the silence that its client is allowed where that is less.
const (
	largeGrace = 30 * time.Second
	largeRate  = 8 << 10
)

// limitLarge sets the deadline of a large packet. Its time begins now, however long the packet has waited for its slot.
func (c *conn) limitLarge(size int) {
	_ = c.nc.SetReadDeadline(time.Now().Add(min(c.patience(), largeGrace+time.Duration(size)*time.Second/largeRate)))
	c.deadline = time.Time{} // the next packet has its own
	if c.cause.Load() != nil {
		c.interrupt()
	}
}

// readFailed ends the connection with why reading failed. It returns false: there is no next packet.
func (c *conn) readFailed(err error) bool {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.end(causeKeepAlive)
	case errors.Is(err, errFrame):
		c.end(causeMalformed)
	default:
		c.end(causeLost)
	}
	return false
}

// await waits for the first byte of the next packet, as long as the client may be silent. Setting a deadline is not free, so
// it is moved on only when it has passed: a client that keeps sending costs none. In a WebSocket it is always exact, because
// the part of a frame's header that was read when it passes is lost.
func (c *conn) await() error {
	c.heard = time.Now()
	if c.in.Buffered() > 0 {
		return nil
	}
	if _, framed := c.nc.(*wsConn); framed || c.deadline.IsZero() {
		c.allowSilence()
	}
	for {
		_, err := c.in.Peek(1)
		if err == nil || !isTimeout(err) || c.keepAlive > 0 && c.deadline.Equal(c.heard) || c.cause.Load() != nil {
			return err
		}
		c.allowSilence()
	}
}

// buffered sets the deadline of a packet that is not all in the buffer: the rest may take no longer than silence, or than
// patience where silence has no end.
func (c *conn) buffered(size int) {
	switch {
	case c.in.Buffered() >= size:
	case c.keepAlive == 0: // its silence may have been long: the time of the packet begins now
		c.endReading(time.Now().Add(c.patience()))
	case !c.deadline.Equal(c.heard):
		c.allowSilence()
	}
}

func (c *conn) allowSilence() {
	if c.keepAlive == 0 {
		c.endReading(time.Time{})
		return
	}
	c.endReading(c.heard.Add(c.silence()))
}

// endReading sets the read deadline of the present packet, or of the silence before it; zero: none.
func (c *conn) endReading(at time.Time) {
	c.deadline = c.heard
	_ = c.nc.SetReadDeadline(at)
	if c.cause.Load() != nil {
		c.interrupt()
	}
}

// goodbye reads a DISCONNECT, section 3.14. With a reason other than 0 the client asks for its will.
func (c *conn) goodbye(body []byte) *cause {
	if c.version < mqtt5 || len(body) == 0 {
		if len(body) > 0 {
			return causeMalformed
		}
		return causeGoodbye
	}
	b := cursor{b: body}
	reason := b.byte()
	if len(b.b) > 0 {
		expiry, given := uint32(0), false
		code := properties(&b, pktDisconnect, func(id, v uint32) byte {
			if id == propSessionExpiry {
				expiry, given = v, true
			}
			return codeSuccess
		})
		switch {
		case code == codeMalformed || len(b.b) > 0:
			return causeMalformed
		case code != codeSuccess, given && expiry > 0 && c.asked == 0: // section 3.14.2.2.2
			return causeProtocol
		case given:
			c.expiry = c.grant(expiry)
		}
	}
	if reason != codeSuccess {
		return causeGoodbyeWill
	}
	return causeGoodbye
}
