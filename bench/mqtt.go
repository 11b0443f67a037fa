package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// client is a connection of MQTT 3.1.1 that publishes on one topic with QoS 1. Messages are numbered from 0; number n has
// packet id n mod 65535 + 1, and its PUBACKs must come in that order (MQTT-4.6.0-2).
type client struct {
	net.Conn
	r     *bufio.Reader
	topic string
}

// dialMQTT connects. An empty user sends none.
func dialMQTT(ctx context.Context, addr, clientID, user, topic string) (*client, error) {
	nc, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &client{Conn: nc, r: bufio.NewReaderSize(nc, 4<<10), topic: topic}
	if err := c.connect(clientID, user); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	return c, nil
}

func (c *client) connect(clientID, user string) error {
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write(connectPacket(clientID, user, true)); err != nil {
		return err
	}
	var ack [4]byte
	if _, err := io.ReadFull(c.r, ack[:]); err != nil {
		return fmt.Errorf("CONNACK: %w", err)
	}
	if ack[0] != 0x20 || ack[1] != 2 || ack[3] != 0 {
		return fmt.Errorf("%s: CONNACK % x", clientID, ack)
	}
	return c.SetDeadline(time.Time{})
}

// connectPacket is a CONNECT with a keep-alive of ten minutes (3.1), clean or with a session that is kept.
func connectPacket(clientID, user string, clean bool) []byte {
	flags := byte(0)
	if clean {
		flags = 0x02
	}
	if user != "" {
		flags |= 0x80
	}
	body := append([]byte("\x00\x04MQTT\x04"), flags, 0x02, 0x58)
	body = appendText(body, clientID)
	if user != "" {
		body = appendText(body, user)
	}
	return append(binary.AppendUvarint([]byte{0x10}, uint64(len(body))), body...)
}

func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

// subscribePacket is a SUBSCRIBE to one filter with QoS 1 (3.8).
func subscribePacket(filter string) []byte {
	body := append(appendText([]byte{0, 1}, filter), 1)
	return append(binary.AppendUvarint([]byte{0x82}, uint64(len(body))), body...)
}

func packetID(n int64) uint16 { return uint16(n%65535) + 1 }

// appendPublish appends PUBLISH number n with QoS 1 (3.3). The remaining length has the form of an unsigned varint.
func appendPublish(b []byte, topic string, n int64, payload []byte) []byte {
	b = append(b, 0x32)
	b = binary.AppendUvarint(b, uint64(2+len(topic)+2+len(payload)))
	b = appendText(b, topic)
	b = binary.BigEndian.AppendUint16(b, packetID(n))
	return append(b, payload...)
}

// countAcks reads the whole PUBACKs at the beginning of b and returns how many there are; the first is that of message
// next. Anything else, or another order, is an error.
func countAcks(b []byte, next int64) (int, error) {
	n := 0
	for ; len(b) >= 4; b = b[4:] {
		if b[0] != 0x40 || b[1] != 2 {
			return n, fmt.Errorf("expected a PUBACK, got % x", b[:4])
		}
		if id, want := binary.BigEndian.Uint16(b[2:]), packetID(next+int64(n)); id != want {
			return n, fmt.Errorf("PUBACK %d out of order, expected %d", id, want)
		}
		n++
	}
	return n, nil
}

// acks waits for the PUBACK of message next and also reads the later ones that have arrived.
func (c *client) acks(next int64) (int, error) {
	if _, err := c.r.Peek(4); err != nil {
		return 0, err
	}
	b, err := c.r.Peek(c.r.Buffered())
	if err != nil {
		return 0, err
	}
	n, err := countAcks(b, next)
	if err != nil {
		return n, err
	}
	_, err = c.r.Discard(4 * n)
	return n, err
}
