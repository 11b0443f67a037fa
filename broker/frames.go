package broker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"sync"
	"time"
)

// Frames of RFC 6455, section 5.2.
const (
	frameContinuation = 0
	frameText         = 1
	frameBinary       = 2
	frameClose        = 8
	framePing         = 9
	framePong         = 10
	frameFin          = 0x80
	frameReserved     = 0x70
	frameMasked       = 0x80
	maxControl        = 125
)

// Why a WebSocket is closed, RFC 6455, section 7.4.1.
const (
	closeNormal      = 1000
	closeProtocol    = 1002
	closeUnsupported = 1003
)

// errFrame is a frame that the client must not send.
var errFrame = errors.New("broker: a WebSocket frame of bad form")

// wsConn is a WebSocket as a net.Conn: Read gives the bytes of the binary frames one after the other, for packets and
// frames have nothing to do with each other (MQTT-6.0.0-2), Write puts what it is given into one frame. Nothing is
// gathered: a frame may be of any size. Pings are answered while it is read.
type wsConn struct {
	net.Conn
	in     *bufio.Reader
	left   uint64 // of the frame's payload
	mask   [4]byte
	at     int  // in mask
	within bool // a message of several frames
	status uint16

	wmu    sync.Mutex
	closed bool // the close frame is written
	out    []byte
	dmu    sync.Mutex
	by     time.Time // the deadline of writes
}

func (c *wsConn) Read(p []byte) (int, error) {
	if c.status != 0 { // what follows a frame of bad form means nothing; it is read so that closing does not reset
		return c.in.Read(p)
	}
	for c.left == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n, err := c.in.Read(p[:min(uint64(len(p)), c.left)])
	c.unmask(p[:n])
	c.left -= uint64(n)
	return n, err
}

func (c *wsConn) unmask(p []byte) {
	for i := range p {
		p[i] ^= c.mask[c.at&3]
		c.at++
	}
}

// next reads the head of the next frame that carries data.
func (c *wsConn) next() error {
	opcode, fin, err := c.head()
	if err != nil {
		return err
	}
	switch opcode {
	case frameBinary, frameContinuation:
		if (opcode == frameContinuation) != c.within {
			return c.bad(closeProtocol)
		}
		c.within = !fin
		return nil
	case frameText: // MQTT-6.0.0-1
		return c.bad(closeUnsupported)
	case frameClose, framePing, framePong:
		if !fin || c.left > maxControl {
			return c.bad(closeProtocol)
		}
		return c.control(opcode)
	}
	return c.bad(closeProtocol)
}

// head reads the header of a frame. A client masks every payload.
func (c *wsConn) head() (opcode byte, fin bool, err error) {
	var b [8]byte
	if _, err = io.ReadFull(c.in, b[:2]); err != nil {
		return 0, false, err
	}
	first, second := b[0], b[1]
	if first&frameReserved != 0 || second&frameMasked == 0 {
		return 0, false, c.bad(closeProtocol)
	}
	switch size := second &^ frameMasked; size {
	case 126:
		_, err = io.ReadFull(c.in, b[:2])
		c.left = uint64(binary.BigEndian.Uint16(b[:2]))
	case 127:
		_, err = io.ReadFull(c.in, b[:8])
		c.left = binary.BigEndian.Uint64(b[:8])
	default:
		c.left = uint64(size)
	}
	if err != nil {
		return 0, false, err
	}
	if c.left > math.MaxInt64 {
		return 0, false, c.bad(closeProtocol)
	}
	_, err = io.ReadFull(c.in, c.mask[:])
	c.at = 0
	return first & 15, first&frameFin != 0, err
}

// control reads a control frame and does what it asks for.
func (c *wsConn) control(opcode byte) error {
	var b [maxControl]byte
	payload := b[:c.left]
	if _, err := io.ReadFull(c.in, payload); err != nil {
		return err
	}
	c.unmask(payload)
	c.left = 0
	switch opcode {
	case framePing:
		return c.pong(payload)
	case frameClose:
		return io.EOF
	}
	return nil
}

// bad notes with which status the connection is to be closed.
func (c *wsConn) bad(status uint16) error {
	c.left, c.status = 0, status
	return errFrame
}

// pong answers a ping with its own deadline: the last write may be long ago.
func (c *wsConn) pong(payload []byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	_ = c.Conn.SetWriteDeadline(time.Now().Add(lastWordTimeout))
	defer func() {
		c.dmu.Lock()
		defer c.dmu.Unlock()
		_ = c.Conn.SetWriteDeadline(c.by)
	}()
	return c.frame(framePong, payload)
}

func (c *wsConn) Write(p []byte) (int, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if err := c.frame(frameBinary, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// frame writes one frame at once. It needs the lock of the writer.
func (c *wsConn) frame(opcode byte, payload []byte) error {
	if c.closed {
		return net.ErrClosed
	}
	b := append(c.out[:0], frameFin|opcode)
	switch n := len(payload); {
	case n <= maxControl:
		b = append(b, byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	b = append(b, payload...)
	if cap(b) <= readBuffer { // a large one is not held for a connection that may be idle from now on
		c.out = b
	}
	_, err := c.Conn.Write(b)
	return err
}

// CloseWrite sends the close frame and then closes the write side of the underlying connection.
func (c *wsConn) CloseWrite() error {
	c.wmu.Lock()
	status := c.status
	if status == 0 {
		status = closeNormal
	}
	err := c.frame(frameClose, binary.BigEndian.AppendUint16(nil, status))
	c.closed = true
	c.wmu.Unlock()
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && err == nil {
		err = half.CloseWrite()
	}
	return err
}

func (c *wsConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *wsConn) SetWriteDeadline(t time.Time) error {
	c.dmu.Lock()
	defer c.dmu.Unlock()
	c.by = t
	return c.Conn.SetWriteDeadline(t)
}
