package testweir

import (
	"bufio"
	"fmt"
	"net"
	"time"
)

// ConnectMQTT sends a CONNECT of MQTT 3.1.1 with a user name and a password ("" sends none) and returns the return code
// of the CONNACK; the connection is open when that is 0.
func ConnectMQTT(addr, clientID, user, password string) (*MQTT, byte, error) {
	return ConnectMQTTAlive(addr, clientID, user, password, 60)
}

// ConnectMQTTAlive is ConnectMQTT with a keep-alive in seconds.
func ConnectMQTTAlive(addr, clientID, user, password string, keepAlive byte) (*MQTT, byte, error) {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, 0, err
	}
	return ConnectMQTTOver(c, clientID, user, password, keepAlive)
}

// ConnectMQTTOver is ConnectMQTTAlive on a connection that is there; it is closed unless the client is accepted.
func ConnectMQTTOver(c net.Conn, clientID, user, password string, keepAlive byte) (*MQTT, byte, error) {
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		_ = c.Close()
		return nil, 0, err
	}
	m := &MQTT{Conn: c, r: bufio.NewReaderSize(c, 16<<10)}
	flags := byte(0x82) // user name, clean session
	if password != "" {
		flags |= 0x40
	}
	body := append([]byte("\x00\x04MQTT\x04"), flags, 0, keepAlive)
	body = appendText(appendText(body, clientID), user)
	if password != "" {
		body = appendText(body, password)
	}
	if err := m.send(0x10, body); err != nil {
		_ = c.Close()
		return nil, 0, err
	}
	kind, ack, err := m.read()
	if err == nil && (kind != 2 || len(ack) != 2) {
		err = fmt.Errorf("expected a CONNACK, got packet %d %v", kind, ack)
	}
	if err != nil || ack[1] != 0 {
		_ = c.Close()
		if err != nil {
			return nil, 0, err
		}
		return nil, ack[1], nil
	}
	return m, 0, nil
}

// Subscribe subscribes one filter with QoS 1 and returns the return code of the SUBACK, 0x80 for a refusal.
func (m *MQTT) Subscribe(filter string, id uint16) (byte, error) {
	body := append([]byte{byte(id >> 8), byte(id)}, appendText(nil, filter)...)
	if err := m.send(0x82, append(body, 1)); err != nil {
		return 0, err
	}
	kind, ack, err := m.read()
	if err != nil {
		return 0, err
	}
	if kind != 9 || len(ack) != 3 {
		return 0, fmt.Errorf("expected a SUBACK, got packet %d", kind)
	}
	return ack[2], nil
}

// ConnectMQTT5 connects with MQTT 5.0. What it publishes needs an empty property length before its payload.
func ConnectMQTT5(addr, clientID, user string) (*MQTT, error) {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	m := &MQTT{Conn: c, r: bufio.NewReaderSize(c, 16<<10)}
	body := []byte("\x00\x04MQTT\x05\x82\x00\x3c\x00") // level 5, user name, clean start, keep-alive 60 s, no properties
	err = m.send(0x10, appendText(appendText(body, clientID), user))
	if err == nil {
		var kind byte
		var ack []byte
		if kind, ack, err = m.read(); err == nil && (kind != 2 || len(ack) < 2 || ack[1] != 0) {
			err = fmt.Errorf("CONNACK: kind %d, %v", kind, ack)
		}
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return m, nil
}

// PublishQoS0 sends a PUBLISH that nobody acknowledges.
func (m *MQTT) PublishQoS0(topic string, payload []byte) error {
	return m.send(0x30, append(appendText(nil, topic), payload...))
}

// Puback5 waits for the next PUBACK of MQTT 5.0 and returns its packet id and reason code.
func (m *MQTT) Puback5() (id uint16, code byte, err error) {
	kind, body, err := m.read()
	if err != nil {
		return 0, 0, err
	}
	if kind != 4 || len(body) < 2 {
		return 0, 0, fmt.Errorf("expected a PUBACK, got packet %d", kind)
	}
	if len(body) > 2 {
		code = body[2]
	}
	return uint16(body[0])<<8 | uint16(body[1]), code, nil
}

// Message waits for a PUBLISH of MQTT 3.1.1 at QoS 0 or 1, acknowledges it, and returns topic and payload. Acknowledgements of what
// the client has published are passed over.
func (m *MQTT) Message() (topic string, payload []byte, err error) {
	for {
		kind, body, err := m.read()
		switch {
		case err != nil:
			return "", nil, err
		case kind == 4:
			continue
		case kind != 3 || len(body) < 2:
			return "", nil, fmt.Errorf("expected a PUBLISH, got packet %d", kind)
		}
		n := int(body[0])<<8 | int(body[1])
		if len(body) < 2+n+2 {
			return "", nil, fmt.Errorf("a PUBLISH of %d bytes", len(body))
		}
		topic, payload = string(body[2:2+n]), body[2+n:]
		// The platform answers at QoS 1: a packet identifier precedes the payload.
		id := payload[:2]
		return topic, payload[2:], m.send(0x40, id)
	}
}

// Closed waits until the other side has closed the connection, and returns what else it has sent as an error.
func (m *MQTT) Closed() error {
	for {
		kind, _, err := m.read()
		if err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				return err
			}
			return nil
		}
		if kind != 4 && kind != 9 {
			return fmt.Errorf("packet %d", kind)
		}
	}
}
