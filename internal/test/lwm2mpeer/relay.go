package lwm2mpeer

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync"
)

// Relay stands between devices and a server, as a NAT does: the server sees an address of the relay for each device. It notes the numbers of the
// records that the server sends.
type Relay struct {
	front *net.UDPConn

	mu     sync.Mutex
	server *net.UDPAddr
	backs  map[string]*back // by the address of the device
	twice  []string
	hellos int
	high   uint64
	closed bool
	last   []byte // datagram of a device
}

// back is the side of a device towards the server.
type back struct {
	device *net.UDPAddr
	conn   *net.UDPConn
	run    int                 // of handshakes
	sent   map[string]struct{} // numbers of records of the run
}

// NewRelay returns a relay to a server.
func NewRelay(server string) (*Relay, error) {
	front, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	r := &Relay{front: front, backs: map[string]*back{}}
	if err := r.Target(server); err != nil {
		return nil, err
	}
	go r.forward()
	return r, nil
}

// Address is where devices reach the server.
func (r *Relay) Address() string { return r.front.LocalAddr().String() }

// Target changes the server.
func (r *Relay) Target(server string) error {
	to, err := net.ResolveUDPAddr("udp", server)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server = to
	return nil
}

// Rebind gives all devices other addresses.
func (r *Relay) Rebind() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, b := range r.backs {
		_ = b.conn.Close()
		delete(r.backs, key)
	}
}

// Close ends the relay.
func (r *Relay) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.Rebind()
	_ = r.front.Close()
}

// Twice are the records of the server whose number was used before in their session.
func (r *Relay) Twice() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.twice...)
}

// Hellos is how many handshakes the server has answered with keys of its own.
func (r *Relay) Hellos() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hellos
}

// Highest is the highest number of a record with keys.
func (r *Relay) Highest() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.high
}

// Last is the last datagram of a device.
func (r *Relay) Last() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]byte(nil), r.last...)
}

func (r *Relay) forward() {
	buf := make([]byte, 16<<10)
	for {
		n, from, err := r.front.ReadFromUDP(buf)
		if err != nil {
			return
		}
		b, to := r.backOf(from)
		r.mu.Lock()
		r.last = append(r.last[:0], buf[:n]...)
		r.mu.Unlock()
		if b != nil {
			_, _ = b.conn.WriteToUDP(buf[:n], to)
		}
	}
}

func (r *Relay) backOf(device *net.UDPAddr) (*back, *net.UDPAddr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := device.String()
	b := r.backs[key]
	if b == nil && !r.closed {
		conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return nil, nil
		}
		b = &back{device: device, conn: conn, sent: map[string]struct{}{}}
		r.backs[key] = b
		go r.back(b)
	}
	return b, r.server
}

func (r *Relay) back(b *back) {
	buf := make([]byte, 16<<10)
	for {
		n, err := b.conn.Read(buf)
		if err != nil {
			return
		}
		r.note(b, buf[:n])
		_, _ = r.front.WriteToUDP(buf[:n], b.device)
	}
}

// note notes the records of a datagram of the server, in which no record has a connection id.
func (r *Relay) note(b *back, d []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(d) >= 13 {
		size := 13 + int(d[11])<<8 + int(d[12])
		if size > len(d) {
			return
		}
		epoch, number := d[3:5], fmt.Sprintf("%x", d[3:11])
		switch {
		case epoch[0] == 0 && epoch[1] == 0:
			if d[0] == 22 && size > 13 && d[13] == 2 { // ServerHello
				r.hellos++
				b.run++
				b.sent = map[string]struct{}{}
			}
		default:
			if _, known := b.sent[number]; known {
				r.twice = append(r.twice, fmt.Sprintf("%s, handshake %d: %s", b.device, b.run, number))
			}
			b.sent[number] = struct{}{}
			r.high = max(r.high, binary.BigEndian.Uint64(d[3:11])&(1<<48-1))
		}
		d = d[size:]
	}
}
