package testweir

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// MQTT is a raw MQTT 3.1.1 client: what it sends is up to the test, packet ids and DUP flags included.
type MQTT struct {
	net.Conn
	r *bufio.Reader
}

// DialMQTT connects a device with its access token.
func DialMQTT(addr, instance, tenant, device, token string) (*MQTT, error) {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	m := &MQTT{Conn: c, r: bufio.NewReaderSize(c, 16<<10)}
	body := []byte("\x00\x04MQTT\x04\x82\x00\x3c") // level 4, user name, clean session, keep-alive 60 s
	for _, s := range []string{instance + ":" + tenant + ":" + device, tenant + ":" + token} {
		body = appendText(body, s)
	}
	if err := m.send(0x10, body); err != nil {
		_ = c.Close()
		return nil, err
	}
	kind, ack, err := m.read()
	if err != nil || kind != 2 || len(ack) != 2 || ack[1] != 0 {
		_ = c.Close()
		return nil, fmt.Errorf("CONNACK: kind %d, %v, %v", kind, ack, err)
	}
	return m, nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

func (m *MQTT) send(first byte, body []byte) error {
	b := []byte{first}
	for n := len(body); ; {
		d := byte(n % 128)
		if n /= 128; n > 0 {
			d |= 0x80
		}
		b = append(b, d)
		if n == 0 {
			break
		}
	}
	_, err := m.Write(append(b, body...))
	return err
}

func (m *MQTT) read() (kind byte, body []byte, err error) {
	first, err := m.r.ReadByte()
	if err != nil {
		return 0, nil, err
	}
	n, err := binary.ReadUvarint(m.r) // the remaining length has the same form
	if err != nil {
		return 0, nil, err
	}
	body = make([]byte, n)
	_, err = io.ReadFull(m.r, body)
	return first >> 4, body, err
}

// Publish sends a QoS 1 PUBLISH.
func (m *MQTT) Publish(topic string, id uint16, dup bool, payload []byte) error {
	first := byte(0x32)
	if dup {
		first |= 0x08
	}
	body := appendText(nil, topic)
	body = binary.BigEndian.AppendUint16(body, id)
	return m.send(first, append(body, payload...))
}

// Puback waits for the next PUBACK and returns its packet id.
func (m *MQTT) Puback() (uint16, error) {
	kind, body, err := m.read()
	if err != nil {
		return 0, err
	}
	if kind != 4 || len(body) != 2 {
		return 0, fmt.Errorf("expected a PUBACK, got packet %d", kind)
	}
	return binary.BigEndian.Uint16(body), nil
}

// Packet waits for the next packet and returns its type and what follows its fixed header.
func (m *MQTT) Packet() (kind byte, body []byte, err error) { return m.read() }

// Send sends a packet: the first byte of its fixed header, and what follows the header.
func (m *MQTT) Send(first byte, body []byte) error { return m.send(first, body) }
