package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"time"
)

// sink is a target of deliveries. It answers each at once, or as badly as it is told, and says whose it was.
type sink struct {
	net.Listener
	came   func(device []byte, at time.Time) // the body of a delivery
	manner atomic.Int32
}

// target is what deliveries are sent to. Close ends it.
type target interface {
	port() int
	io.Closer
}

// sinkOf makes targets that talk so.
func sinkOf(talk func(*sink, net.Conn, *bufio.ReadWriter) error) func(context.Context, func([]byte, time.Time)) (target, error) {
	return func(_ context.Context, came func([]byte, time.Time)) (target, error) { return newSink(talk, came) }
}

// The manners of a sink of webhooks.
const (
	answers int32 = iota
	refuses       // 503
	hangs         // it takes the request and answers nothing
)

// serve takes connections until the listener is closed.
func (s *sink) serve(talk func(*sink, net.Conn, *bufio.ReadWriter) error) {
	for {
		nc, err := s.Accept()
		if err != nil {
			return
		}
		go func() {
			defer nc.Close()
			rw := bufio.NewReadWriter(bufio.NewReaderSize(nc, 16<<10), bufio.NewWriterSize(nc, 16<<10))
			for talk(s, nc, rw) == nil { // the other side ends a connection whenever it likes
			}
		}()
	}
}

// newSink listens on a port of its own. talk reads one message and answers it.
func newSink(talk func(*sink, net.Conn, *bufio.ReadWriter) error, came func([]byte, time.Time)) (*sink, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sink{Listener: l, came: came}
	go s.serve(talk)
	return s, nil
}

func (s *sink) port() int { return s.Addr().(*net.TCPAddr).Port }

// webhook reads a request of HTTP 1.1 and answers it.
func webhook(s *sink, _ net.Conn, rw *bufio.ReadWriter) error {
	length := 0
	for {
		line, err := rw.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) <= 2 {
			break
		}
		if name, value, ok := bytes.Cut(line, []byte(":")); ok && bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(rw, body); err != nil {
		return err
	}
	answer := "HTTP/1.1 204 No Content\r\n\r\n"
	switch s.manner.Load() {
	case hangs:
		_, err := rw.ReadByte() // until the other side gives up
		return err
	case refuses:
		answer = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
	default:
		s.came(body, time.Now())
	}
	if _, err := rw.WriteString(answer); err != nil {
		return err
	}
	return rw.Flush()
}

// broker5 reads a packet of MQTT 5 and answers it. What has come together is answered together.
func broker5(s *sink, _ net.Conn, rw *bufio.ReadWriter) error {
	header, err := rw.ReadByte()
	if err != nil {
		return err
	}
	n, err := binary.ReadUvarint(rw)
	if err != nil {
		return err
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(rw, body); err != nil {
		return err
	}
	var answer []byte
	switch header >> 4 {
	case 1:
		answer = []byte{0x20, 3, 0, 0, 0}
	case 3:
		at := 2 + int(binary.BigEndian.Uint16(body))
		properties, width := binary.Uvarint(body[at+2:])
		s.came(body[at+2+width+int(properties):], time.Now())
		answer = []byte{0x40, 2, body[at], body[at+1]}
	case 12:
		answer = []byte{0xd0, 0}
	default:
		return fmt.Errorf("unexpected packet %x", header)
	}
	if _, err := rw.Write(answer); err != nil || rw.Reader.Buffered() > 0 {
		return err
	}
	return rw.Flush()
}
