package mqttclient

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"time"
)

// SenderOptions are how a Sender connects.
type SenderOptions struct {
	Options
	// KeepAlive is the longest time without a packet; the broker may shorten it. Default 60 s. A broker that does not answer a ping within
	// half of it, and within 10 s at least, is taken for lost.
	KeepAlive time.Duration
	// Window is how many messages may be unacknowledged, at most; the broker's Receive Maximum bounds it, too. Default 1,024.
	Window int
	// MaxPacket is how many bytes a packet from the broker may have. Default 16 KiB.
	MaxPacket int
	// V311 speaks MQTT 3.1.1, to a broker that refused MQTT 5.0 with ErrNoMQTT5.
	V311 bool
	// Receive is called for each message that the broker delivers, one after the other, by the goroutine that reads the connection: it must not
	// block. The message is acknowledged once it has returned. nil: a message ends the connection.
	Receive func(Incoming)
}

// ErrNoMQTT5 is returned by OpenSender when the broker does not speak MQTT 5.0.
var ErrNoMQTT5 = errors.New("mqttclient: the broker does not speak MQTT 5.0")

// Sender publishes to a broker at QoS 1 in the order of the calls, without waiting for acknowledgements: what Client.Publish is for a few
// messages at a time, a Sender is for a stream of them. Its methods are safe for concurrent use.
type Sender struct {
	conn    net.Conn
	o       SenderOptions
	window  int
	maximum uint32 // bytes of a packet; 0: none
	pinging time.Duration
	peer    time.Time // the time of day, as the broker said when it accepted the connection

	mu     sync.Mutex
	out    []byte // encoded, not yet taken by the writer
	spare  []byte
	id     uint16
	waits  map[uint16]func(code byte) // by packet identifier
	err    error                      // why the connection is over
	wake   chan struct{}              // a hint to the writer
	pinged time.Time                  // when an unanswered ping was written; zero: none is

	done chan struct{}
}

// OpenSender connects, and returns once the broker has accepted the connection. Errors are those of Connect, and ErrNoMQTT5.
func OpenSender(ctx context.Context, o SenderOptions) (*Sender, error) {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.KeepAlive <= 0 {
		o.KeepAlive = keepAlive * time.Second
	}
	if o.Window <= 0 {
		o.Window = 1024
	}
	if o.MaxPacket <= 0 {
		o.MaxPacket = maxPacket
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	conn, err := open(ctx, &o.Options)
	if err != nil {
		return nil, err
	}
	s := &Sender{conn: conn, o: o, window: min(o.Window, math.MaxUint16), pinging: o.KeepAlive, waits: map[uint16]func(byte){}, wake: make(chan struct{}, 1), done: make(chan struct{})}
	in := bufio.NewReaderSize(conn, readBuffer)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err = s.greet(in)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close() // nothing was sent that needs a goodbye
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	go s.read(in)
	go s.write()
	return s, nil
}

// greet writes the CONNECT and reads the CONNACK.
func (s *Sender) greet(in *bufio.Reader) error {
	asked := time.Now()
	if _, err := s.conn.Write(s.connect()); err != nil {
		return err
	}
	kind, flags, body, err := readPacket(in, s.o.MaxPacket)
	switch {
	case errors.Is(err, io.EOF) && !s.o.V311: // some brokers of 3.1.1 only close the connection
		return fmt.Errorf("%w: it closed the connection", ErrNoMQTT5)
	case err != nil:
		return err
	case kind != pktConnack || flags != 0 || len(body) < 2:
		return fmt.Errorf("%w: no CONNACK", ErrMalformed)
	case !s.o.V311 && (len(body) == 2 && body[1] == 1 || body[1] == 0x84):
		return ErrNoMQTT5
	case body[1] != 0:
		return &Refused{Packet: "CONNACK", Code: body[1]}
	case s.o.V311:
		return nil
	}
	if err := s.granted(body); err != nil {
		return err
	}
	if !s.peer.IsZero() {
		s.peer = s.peer.Add(time.Since(asked) / 2)
	}
	return nil
}

// granted takes over what the properties of a CONNACK allow.
func (s *Sender) granted(body []byte) error {
	ack, err := decodeConnack(MQTT5, body)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	case ack.maximumQoS < 1:
		return ErrQoS
	}
	s.window, s.maximum = min(s.window, int(ack.receiveMaximum)), ack.maximumPacket
	if at, err := time.Parse(time.RFC3339Nano, ack.time); err == nil {
		s.peer = at
	}
	if ack.keepAlive > 0 {
		s.pinging = min(s.pinging, time.Duration(ack.keepAlive)*time.Second)
	}
	return nil
}

// connect encodes the CONNECT.
func (s *Sender) connect() []byte {
	const clean, password, user = 0x02, 0x40, 0x80
	level, flags := byte(5), byte(clean)
	if s.o.V311 {
		level = 4
	}
	if s.o.Username != "" {
		flags |= user
		if s.o.Password != "" {
			flags |= password
		}
	}
	body := append(appendText(nil, "MQTT"), level, flags)
	body = binary.BigEndian.AppendUint16(body, uint16(min(s.o.KeepAlive/time.Second, math.MaxUint16)))
	if !s.o.V311 {
		const maximumPacketSize = 0x27
		body = append(body, 5, maximumPacketSize)
		body = binary.BigEndian.AppendUint32(body, uint32(s.o.MaxPacket))
	}
	body = appendText(body, s.o.ClientID)
	if flags&user != 0 {
		body = appendText(body, s.o.Username)
	}
	if flags&password != 0 {
		body = appendText(body, s.o.Password)
	}
	return append(appendLength([]byte{pktConnect << 4}, len(body)), body...)
}

// PeerTime is the time of day by the clock of a Weir above, as it accepted the connection; zero where it did not say.
func (s *Sender) PeerTime() time.Time { return s.peer }

// Window is how many messages may be unacknowledged.
func (s *Sender) Window() int { return s.window }

// V5 reports whether the broker is told user properties: whether MQTT 5.0 is spoken.
func (s *Sender) V5() bool { return !s.o.V311 }

// Send queues a message at QoS 1; Message.QoS does not matter. done is called once, from another goroutine, with the reason code of its
// PUBACK, and must not block; it is not called when the connection ends before. The caller keeps to Window. Errors are ErrTooLarge, and
// after the end of the connection what Err returns.
func (s *Sender) Send(m Message, done func(code byte)) error {
	const qos1 = 0x02
	size := 2 + len(m.Topic) + 2 + len(m.Payload)
	properties := 0
	if !s.o.V311 {
		for _, u := range m.Properties {
			properties += 5 + len(u[0]) + len(u[1])
		}
		size += properties + lengthOf(properties)
	}
	if size > maxLength || s.maximum > 0 && int64(1+lengthOf(size)+size) > int64(s.maximum) {
		return ErrTooLarge
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	id, ok := s.free()
	if !ok {
		return fmt.Errorf("mqttclient: %d messages are unacknowledged", len(s.waits))
	}
	s.waits[id] = done
	b := appendLength(append(s.out, pktPublish<<4|qos1), size)
	b = binary.BigEndian.AppendUint16(appendText(b, m.Topic), id)
	if !s.o.V311 {
		b = appendLength(b, properties)
		for _, u := range m.Properties {
			const userProperty = 0x26
			b = appendText(appendText(append(b, userProperty), u[0]), u[1])
		}
	}
	s.out = append(b, m.Payload...)
	s.signal()
	return nil
}

// Subscribe asks for the messages of a filter at QoS 1. done is called as that of Send, with the reason code of the SUBACK.
func (s *Sender) Subscribe(filter string, done func(code byte)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	id, ok := s.free()
	if !ok {
		return fmt.Errorf("mqttclient: %d messages are unacknowledged", len(s.waits))
	}
	s.waits[id] = done
	version := byte(MQTT5)
	if s.o.V311 {
		version = MQTT311
	}
	s.out = append(s.out, encodeSubscribe(version, id, []Subscription{{Filter: filter, QoS: 1}})...)
	s.signal()
	return nil
}

// free returns a packet identifier that is not in use.
func (s *Sender) free() (id uint16, ok bool) {
	if len(s.waits) >= math.MaxUint16 {
		return 0, false
	}
	for {
		if s.id++; s.id == 0 {
			s.id = 1
		}
		if _, used := s.waits[s.id]; !used {
			return s.id, true
		}
	}
}

func (s *Sender) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Done is closed when the connection has ended.
func (s *Sender) Done() <-chan struct{} { return s.done }

// Err is why the connection has ended, nil while it stands.
func (s *Sender) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close writes what was queued, disconnects, and returns when no done is called any more or timeout is over.
func (s *Sender) Close() error {
	s.mu.Lock()
	if s.err == nil {
		s.out = append(s.out, pktDisconnect<<4, 0)
	}
	s.mu.Unlock()
	s.signal()
	select {
	case <-s.done:
	case <-time.After(lastWords):
	}
	s.end(net.ErrClosed)
	<-s.done
	return nil
}

// lastWords bounds how long Close waits for the broker to close the connection.
const lastWords = 200 * time.Millisecond

// end ends the connection; only the first reason counts.
func (s *Sender) end(why error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = why
	}
	s.mu.Unlock()
	_ = s.conn.Close() // the reader learns of it
	s.signal()
}

// write writes what was queued, in one piece whatever has gathered, and pings.
func (s *Sender) write() {
	tick := time.NewTicker(max(s.pinging/2, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-s.wake:
		case now := <-tick.C:
			if !s.ping(now) {
				s.end(fmt.Errorf("%w: no answer to a ping", ErrLost))
				return
			}
		}
		s.mu.Lock()
		out, failed := s.out, s.err
		s.out, s.spare = s.spare, nil
		s.mu.Unlock()
		if failed != nil {
			return
		}
		if len(out) == 0 {
			continue
		}
		_ = s.conn.SetWriteDeadline(time.Now().Add(max(s.o.Timeout, defaultTimeout)))
		if _, err := s.conn.Write(out); err != nil {
			s.end(fmt.Errorf("%w: %w", ErrLost, err))
			return
		}
		if cap(out) <= maxSpare {
			s.mu.Lock()
			s.spare = out[:0]
			s.mu.Unlock()
		}
	}
}

// ping queues a ping unless one is unanswered. It reports whether the broker may still be there.
func (s *Sender) ping(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pinged.IsZero() {
		return now.Sub(s.pinged) < max(s.pinging/2, s.o.Timeout)
	}
	s.pinged = now
	s.out = append(s.out, pktPingreq<<4, 0)
	return true
}

// read reads acknowledgements until the connection ends.
func (s *Sender) read(in *bufio.Reader) {
	defer close(s.done)
	for {
		kind, flags, body, err := readPacket(in, s.o.MaxPacket)
		if err == nil {
			err = s.packet(kind, flags, body)
		}
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !isRefused(err) {
				err = fmt.Errorf("%w: %w", ErrLost, err)
			}
			s.end(err)
			return
		}
	}
}

func isRefused(err error) bool {
	_, ok := errors.AsType[*Refused](err)
	return ok
}

// packet handles a packet of the broker. Its error ends the connection.
func (s *Sender) packet(kind, flags byte, body []byte) error {
	switch {
	case kind == pktPublish && s.o.Receive != nil:
		return s.receive(flags, body)
	case flags != 0:
	case kind == pktPuback && len(body) >= 2:
		return s.acknowledged(body)
	case kind == pktSuback && len(body) > 2:
		return s.settle(binary.BigEndian.Uint16(body), body[len(body)-1])
	case kind == pktPingresp && len(body) == 0:
		s.mu.Lock()
		s.pinged = time.Time{}
		s.mu.Unlock()
		return nil
	case kind == pktDisconnect && !s.o.V311:
		code := byte(0)
		if len(body) > 0 {
			code = body[0]
		}
		return &Refused{Packet: "DISCONNECT", Code: code}
	}
	return fmt.Errorf("%w: a packet of the type %d with %d bytes", ErrMalformed, kind, len(body))
}

// acknowledged ends the message that a PUBACK names. Whatever follows its reason code is not looked at.
func (s *Sender) acknowledged(body []byte) error {
	id, code := binary.BigEndian.Uint16(body), byte(0)
	if len(body) > 2 && !s.o.V311 {
		code = body[2]
	}
	return s.settle(id, code)
}

// settle ends what waits for the answer with a packet identifier.
func (s *Sender) settle(id uint16, code byte) error {
	s.mu.Lock()
	done, ok := s.waits[id]
	delete(s.waits, id)
	s.mu.Unlock()
	if !ok {
		return fmt.Errorf("%w: an acknowledgement that none asked for", ErrMalformed)
	}
	done(code)
	return nil
}

// receive hands over a message and acknowledges it.
func (s *Sender) receive(flags byte, body []byte) error {
	version := byte(MQTT5)
	if s.o.V311 {
		version = MQTT311
	}
	m, err := decodePublish(version, flags, body)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	s.o.Receive(m)
	if m.QoS == 0 {
		return nil
	}
	s.mu.Lock()
	s.out = append(s.out, encodePuback(m.PacketID)...)
	s.mu.Unlock()
	s.signal()
	return nil
}

// maxLength is the largest remaining length, section 2.1.4.
const maxLength = 1<<28 - 1

// readPacket reads one packet of at most limit bytes.
func readPacket(in *bufio.Reader, limit int) (kind, flags byte, body []byte, err error) {
	first, err := in.ReadByte()
	if err != nil {
		return 0, 0, nil, err
	}
	length := 0
	for i := 0; ; i++ {
		one, err := in.ReadByte()
		switch {
		case err != nil:
			return 0, 0, nil, noEOF(err)
		case i == 3 && one >= 0x80:
			return 0, 0, nil, fmt.Errorf("%w: a length of more than four bytes", ErrMalformed)
		}
		length |= int(one&0x7f) << (7 * i)
		if one < 0x80 {
			break
		}
	}
	if length > limit {
		return 0, 0, nil, fmt.Errorf("%w: a packet of %d bytes", ErrMalformed, length)
	}
	body = make([]byte, length)
	_, err = io.ReadFull(in, body)
	return first >> 4, first & 15, body, noEOF(err)
}

// noEOF makes an end inside a packet an unexpected one.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendLength appends a variable byte integer (section 1.5.5).
func appendLength(b []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// lengthOf is how many bytes appendLength takes.
func lengthOf(n int) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}
