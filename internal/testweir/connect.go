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
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
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
