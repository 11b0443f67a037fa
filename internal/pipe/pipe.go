// Package pipe connects two parts of the program as a network would: each direction has a buffer, so that a side that writes does not wait until the
// other one reads, as with net.Pipe.
package pipe

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// New returns the two ends of a connection. A direction holds up to size bytes; a Write waits for room beyond it. Bytes that were written before Close are
// read before io.EOF.
func New(size int) (net.Conn, net.Conn) {
	there, back := newDirection(size), newDirection(size)
	return &end{in: back, out: there, read: newDeadline(), write: newDeadline()}, &end{in: there, out: back, read: newDeadline(), write: newDeadline()}
}

// direction is what was written and not yet read.
type direction struct {
	size int

	mu      sync.Mutex
	bytes   []byte
	ended   bool          // nothing more is written
	unread  bool          // nothing more is read
	changed chan struct{} // closed at each change
}

func newDirection(size int) *direction {
	return &direction{size: size, changed: make(chan struct{})}
}

// change wakes both sides. It needs the lock.
func (d *direction) change() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// take moves bytes into p. ok is false when there are none yet, and then wait is closed at the next change.
func (d *direction) take(p []byte) (n int, wait <-chan struct{}, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.unread:
		return 0, nil, net.ErrClosed
	case len(d.bytes) > 0:
		n = copy(p, d.bytes)
		if d.bytes = d.bytes[n:]; len(d.bytes) == 0 {
			d.bytes = nil
		}
		d.change()
		return n, nil, nil
	case d.ended:
		return 0, nil, io.EOF
	}
	return 0, d.changed, nil
}

// put takes as much of p as there is room for.
func (d *direction) put(p []byte) (n int, wait <-chan struct{}, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.ended:
		return 0, nil, net.ErrClosed
	case d.unread:
		return 0, nil, io.ErrClosedPipe
	}
	if n = min(d.size-len(d.bytes), len(p)); n > 0 {
		d.bytes = append(d.bytes, p[:n]...)
		d.change()
		return n, nil, nil
	}
	return 0, d.changed, nil
}

func (d *direction) end(reader bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if reader {
		d.unread, d.bytes = true, nil
	} else {
		d.ended = true
	}
	d.change()
}

// end is one end of a connection.
type end struct {
	in, out     *direction
	read, write *deadline
	writing     sync.Mutex // a Write is in one piece
}

// Read implements net.Conn.
func (e *end) Read(p []byte) (int, error) {
	for {
		if e.read.passed() {
			return 0, os.ErrDeadlineExceeded
		}
		n, wait, err := e.in.take(p)
		if wait == nil || len(p) == 0 {
			return n, err
		}
		select {
		case <-wait:
		case <-e.read.wait():
		}
	}
}

// Write implements net.Conn.
func (e *end) Write(p []byte) (written int, err error) {
	e.writing.Lock()
	defer e.writing.Unlock()
	for len(p) > 0 {
		if e.write.passed() {
			return written, os.ErrDeadlineExceeded
		}
		n, wait, err := e.out.put(p)
		written, p = written+n, p[n:]
		if err != nil {
			return written, err
		}
		if wait == nil {
			continue
		}
		select {
		case <-wait:
		case <-e.write.wait():
		}
	}
	return written, nil
}

// Close implements net.Conn.
func (e *end) Close() error {
	e.in.end(true)
	e.out.end(false)
	return nil
}

// address is that of both ends.
type address struct{}

func (address) Network() string { return "pipe" }
func (address) String() string  { return "local" }

// LocalAddr implements net.Conn.
func (*end) LocalAddr() net.Addr { return address{} }

// RemoteAddr implements net.Conn.
func (*end) RemoteAddr() net.Addr { return address{} }

// SetDeadline implements net.Conn.
func (e *end) SetDeadline(t time.Time) error {
	e.read.set(t)
	e.write.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (e *end) SetReadDeadline(t time.Time) error {
	e.read.set(t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (e *end) SetWriteDeadline(t time.Time) error {
	e.write.set(t)
	return nil
}

// deadline is a point in time that can be moved, also while someone waits for it.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	moved chan struct{} // closed when it passes, and when it is moved
	over  bool
}

func newDeadline() *deadline { return &deadline{moved: make(chan struct{})} }

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	close(d.moved)
	d.moved, d.over = make(chan struct{}), false
	left := time.Until(t)
	switch {
	case t.IsZero():
	case left <= 0:
		d.over = true
		close(d.moved)
		d.moved = make(chan struct{})
	default:
		moved := d.moved
		d.timer = time.AfterFunc(left, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.moved == moved { // else it was moved meanwhile
				d.over = true
				close(d.moved)
				d.moved = make(chan struct{})
			}
		})
	}
}

func (d *deadline) passed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.over
}

func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over { // it has passed since it was asked
		c := make(chan struct{})
		close(c)
		return c
	}
	return d.moved
}
