package soak_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/coder/websocket"
)

// Protocol levels of the CONNECT.
const (
	v311 = 4
	v5   = 5
)

// patience is how long a client waits for an answer that must come. It is no measure of speed.
const patience = 60 * time.Second

// peer is a raw MQTT client: what it sends, and in which pieces, is up to the caller.
type peer struct {
	net.Conn
	r *bufio.Reader
}

// carrier says what lies under MQTT.
type carrier uint8

const (
	overTCP carrier = iota
	overTLS
	overWebSocket
)

// dial opens a connection of that kind. On the way the handshakes of TLS and WebSocket are done.
func (p *plant) dial(ctx context.Context, by carrier) (*peer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch by {
	case overTLS:
		c, err := (&tls.Dialer{Config: p.trust}).DialContext(ctx, "tcp", p.mqtts)
		return newPeer(c, err)
	case overWebSocket:
		c, resp, err := websocket.Dial(ctx, "ws://"+p.mqttWS+"/mqtt", &websocket.DialOptions{Subprotocols: []string{"mqtt"}})
		if err != nil {
			return nil, err
		}
		_ = resp.Body
		return newPeer(websocket.NetConn(context.Background(), c, websocket.MessageBinary), nil)
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.MQTT)
	return newPeer(c, err)
}

func newPeer(c net.Conn, err error) (*peer, error) {
	if err != nil {
		return nil, err
	}
	return &peer{Conn: c, r: bufio.NewReaderSize(c, 512)}, nil
}

// join opens a connection and logs a device in. The keep-alive is in seconds.
func (p *plant) join(ctx context.Context, by carrier, version byte, device string, keepAlive uint16) (*peer, error) {
	c, err := p.dial(ctx, by)
	if err != nil {
		return nil, err
	}
	code, err := c.login(p.connect(version, device, secret(device), keepAlive))
	if err == nil && code != 0 {
		err = fmt.Errorf("CONNACK %#x", code)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", device, err), c.Close())
	}
	return c, nil
}

// login sends the CONNECT and returns the code of the CONNACK.
func (c *peer) login(connect []byte) (byte, error) {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := c.Write(connect); err != nil {
		return 0, err
	}
	kind, body, err := c.packet()
	if err != nil {
		return 0, err
	}
	if kind != 2 || len(body) < 2 {
		return 0, fmt.Errorf("packet %d in place of the CONNACK", kind)
	}
	return body[1], nil
}

// packet reads the next packet.
func (c *peer) packet() (kind byte, body []byte, err error) {
	first, err := c.r.ReadByte()
	if err != nil {
		return 0, nil, err
	}
	n, err := binary.ReadUvarint(c.r) // the remaining length has the same form
	if err != nil {
		return 0, nil, err
	}
	if n > 1<<20 {
		return 0, nil, fmt.Errorf("a packet of %d bytes", n)
	}
	body = make([]byte, n)
	_, err = io.ReadFull(c.r, body)
	return first >> 4, body, err
}

// expect reads the next packet, which must be of that kind.
func (c *peer) expect(kind byte) ([]byte, error) {
	got, body, err := c.packet()
	if err == nil && got != kind {
		err = fmt.Errorf("packet %d in place of %d: % x", got, kind, body)
	}
	return body, err
}

// send publishes at QoS 1 and waits for the PUBACK, which must say yes.
func (c *peer) send(version byte, topic string, id uint16, payload []byte) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := c.Write(publish(version, topic, 1, id, payload)); err != nil {
		return err
	}
	ack, err := c.expect(4)
	if err != nil {
		return err
	}
	if len(ack) < 2 || binary.BigEndian.Uint16(ack) != id || len(ack) > 2 && ack[2] != 0 {
		return fmt.Errorf("PUBACK % x for %d", ack, id)
	}
	return nil
}

// ended reads until the server has ended the connection and returns how long that took.
func (c *peer) ended(within time.Duration) (time.Duration, error) {
	began := time.Now()
	if err := c.SetReadDeadline(began.Add(within)); err != nil {
		return 0, err
	}
	_, err := io.Copy(io.Discard, c.r)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return 0, fmt.Errorf("the server has not ended the connection within %v", within)
	}
	return time.Since(began), nil // with or without an error: it is over
}

func frame(first byte, body []byte) []byte {
	return append(binary.AppendUvarint([]byte{first}, uint64(len(body))), body...)
}

func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

// connect is the CONNECT of a device with a clean session.
func (p *plant) connect(version byte, device, secret string, keepAlive uint16) []byte {
	body := append([]byte("\x00\x04MQTT"), version, 0x82)
	body = binary.BigEndian.AppendUint16(body, keepAlive)
	if version == v5 {
		body = append(body, 0)
	}
	body = appendText(body, "weir:"+tenant+":"+device)
	return frame(0x10, appendText(body, tenant+":"+secret))
}

func publish(version byte, topic string, qos byte, id uint16, payload []byte) []byte {
	body := appendText(nil, topic)
	if qos > 0 {
		body = binary.BigEndian.AppendUint16(body, id)
	}
	if version == v5 {
		body = append(body, 0)
	}
	return frame(0x30|qos<<1, append(body, payload...))
}

func subscribe(version byte, filter string, id uint16) []byte {
	body := binary.BigEndian.AppendUint16(nil, id)
	if version == v5 {
		body = append(body, 0)
	}
	return frame(0x82, append(appendText(body, filter), 1))
}
