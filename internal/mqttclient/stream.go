package mqttclient

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// maxPacket is the largest packet of a broker: acknowledgements with a reason.
const maxPacket = 16 << 10

// ErrMalformed says that the broker sent what a publisher is never sent.
var ErrMalformed = errors.New("mqttclient: the other side does not speak MQTT 5 to a publisher")

// stream is a connection of a Client. It passes on packets only that a publisher may be sent, none larger than maxPacket, and lets no write wait
// without an end. Packets that are written while another one is on its way leave together.
type stream struct {
	net.Conn
	read    *bufio.Reader
	timeout time.Duration
	why     atomic.Pointer[error]

	write    sync.Mutex // the library takes it, too: see Lock
	gathered []byte     // packets that have not left; guarded by write

	flush sync.Mutex // of those who wait for it, one writes for all
	spare []byte     // an empty buffer, or nil; guarded by flush

	begun bool // CONNACK was read; the reader's alone
}

func newStream(conn net.Conn, timeout time.Duration) *stream {
	return &stream{Conn: conn, read: bufio.NewReaderSize(conn, readBuffer), timeout: timeout}
}

// readBuffer holds many acknowledgements.
const readBuffer = 4 << 10

// Lock lets one packet at a time be put together, in pieces.
func (s *stream) Lock() { s.write.Lock() }

// Unlock is the other half of Lock. It returns once the packet was written to the connection, or could not be: broken says so then.
func (s *stream) Unlock() {
	s.write.Unlock()
	runtime.Gosched() // whoever is about to publish, too, comes along
	s.flush.Lock()
	defer s.flush.Unlock()
	s.write.Lock()
	out := s.gathered
	s.gathered, s.spare = s.spare, nil
	s.write.Unlock()
	if len(out) == 0 {
		return // another one wrote it
	}
	if err := s.send(out); err != nil {
		s.why.CompareAndSwap(nil, &err)
		_ = s.Close() // the reader learns of it
	}
	if cap(out) <= maxSpare {
		s.spare = out[:0]
	}
}

// maxSpare is the largest buffer that is kept for further packets.
const maxSpare = 64 << 10

// send writes within the timeout.
func (s *stream) send(b []byte) error {
	if err := s.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
		return err
	}
	_, err := s.Conn.Write(b)
	return err
}

// Write adds to a packet that leaves with Unlock.
func (s *stream) Write(b []byte) (int, error) {
	if err := s.broken(); err != nil {
		return 0, err
	}
	s.gathered = append(s.gathered, b...)
	return len(b), nil
}

// broken is what was wrong with what the broker sent, or why nothing can be written any more; nil for neither.
func (s *stream) broken() error {
	if err := s.why.Load(); err != nil {
		return *err
	}
	return nil
}

// put writes a packet, together with those that others write at the same time. It returns once the packet was written to the connection, or
// could not be: broken says so then.
func (s *stream) put(b []byte) {
	s.Lock()
	_, _ = s.Write(b) // broken says it
	s.Unlock()
}

// packet reads a packet: its first byte, and the body, which belongs to the caller.
func (s *stream) packet() (first byte, body []byte, err error) {
	if first, err = s.read.ReadByte(); err != nil {
		return 0, nil, err
	}
	length := 0
	for i := 0; ; i++ {
		one, err := s.read.ReadByte()
		if err != nil {
			return 0, nil, noEOF(err)
		}
		length |= int(one&0x7f) << (7 * i)
		if one < 0x80 {
			break
		}
		if i == 3 {
			return 0, nil, s.refuse("a length of more than four bytes")
		}
	}
	if why := s.check(first, length); why != "" {
		return 0, nil, s.refuse(why)
	}
	s.begun = true
	body = make([]byte, length)
	_, err = io.ReadFull(s.read, body)
	return first, body, noEOF(err)
}

// check returns what is wrong with the head of a packet, "" for nothing.
func (s *stream) check(first byte, length int) string {
	kind := first >> 4
	switch {
	case length > maxPacket:
		return fmt.Sprintf("a packet of %d bytes", length)
	case first&0x0f != 0:
		return fmt.Sprintf("a packet of the type %d with flags", kind)
	case !s.begun && kind != pktConnack, s.begun && kind == pktConnack:
		return fmt.Sprintf("a packet of the type %d in the wrong place", kind)
	}
	least := map[byte]int{pktConnack: 3, pktPuback: 2, pktPubrec: 2, pktPubcomp: 2, pktPingresp: 0, pktDisconnect: 0}
	n, expected := least[kind]
	if !expected || length < n || kind == pktPingresp && length != 0 {
		return fmt.Sprintf("a packet of the type %d with %d bytes", kind, length)
	}
	return ""
}

func (s *stream) refuse(why string) error {
	err := fmt.Errorf("%w: %s", ErrMalformed, why)
	s.why.Store(&err)
	return err
}
