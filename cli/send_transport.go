package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/eclipse/paho.golang/paho"

	"weir/model"
	"weir/operate"
)

// sender sends events over a transport. An error says that the transport did not answer.
type sender interface {
	send(ctx context.Context, event []byte) (transportAnswer, error)
	close()
}

// open opens the way to the listener.
func (s *sending) open(ctx context.Context, at operate.Listeners) (sender, error) {
	closed := func(key, other string) error {
		return &model.Error{Code: model.CodeUnsupported, Message: fmt.Sprintf("the transport %s is not open on this instance", s.transport),
			Hint: fmt.Sprintf("open it with listeners.%s, or send with --door %s", key, other)}
	}
	if s.transport == "http" {
		ingest := at.At(operate.IngestListener)
		if ingest == "" {
			return nil, closed("ingest", "mqtt")
		}
		// No proxy: the instance is on this machine.
		return httpSender{operate.IngestURL(ingest, "", s.instance, s.tenant), &http.Client{Transport: &http.Transport{}}}, nil
	}
	mqtt := at.At(operate.MQTTListener)
	if mqtt == "" {
		return nil, closed("mqtt", "http")
	}
	return s.connect(ctx, operate.Reachable(mqtt))
}

// httpSender posts events.
type httpSender struct {
	url    string
	client *http.Client
}

func (h httpSender) close() { h.client.CloseIdleConnections() }

func (h httpSender) send(ctx context.Context, event []byte) (transportAnswer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(event))
	if err != nil {
		return transportAnswer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.client.Do(req)
	if err != nil {
		return transportAnswer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return transportAnswer{}, err
	}
	a := transportAnswer{OK: resp.StatusCode == http.StatusAccepted, Code: resp.StatusCode, Text: resp.Status}
	if line := strings.TrimSpace(string(text)); line != "" {
		a.Text += ": " + line
	}
	return a, nil
}

// mqttSender publishes events over one connection.
type mqttSender struct {
	client *paho.Client
	topic  string
	reject *transportAnswer // the connection was refused
}

// connect connects besides the device: a client id with a suffix takes over no connection and asserts no presence.
func (s *sending) connect(ctx context.Context, addr string) (sender, error) {
	ctx, cancel := context.WithTimeout(ctx, sendWait)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	id := fmt.Sprintf("%s:%s:%s:send-%s", s.instance, s.tenant, s.device, rand.Text()[:8])
	m := &mqttSender{client: paho.NewClient(paho.ClientConfig{ClientID: id, Conn: conn}),
		topic: fmt.Sprintf("%s/%s/devices/%s/events", s.instance, s.tenant, s.device)}
	// The client ends its own goroutines with this context, which must outlive the connecting.
	ack, err := m.client.Connect(context.WithoutCancel(ctx), &paho.Connect{ClientID: id, CleanStart: true, KeepAlive: 30,
		Username: s.tenant + ":" + s.token, UsernameFlag: true})
	if err == nil {
		return m, nil
	}
	_ = conn.Close() // the client may have closed it
	if ack == nil || ack.ReasonCode < 0x80 {
		return nil, err
	}
	m.client, m.reject = nil, &transportAnswer{Code: int(ack.ReasonCode), Text: fmt.Sprintf("CONNACK 0x%02x", ack.ReasonCode)}
	return m, nil
}

func (m *mqttSender) close() {
	if m.client != nil {
		_ = m.client.Disconnect(&paho.Disconnect{}) // a connection that is lost needs no goodbye
	}
}

func (m *mqttSender) send(ctx context.Context, event []byte) (transportAnswer, error) {
	if m.reject != nil {
		return *m.reject, nil
	}
	ack, err := m.client.Publish(ctx, &paho.Publish{QoS: 1, Topic: m.topic, Payload: event})
	if ack == nil {
		return transportAnswer{}, err
	}
	a := transportAnswer{OK: ack.ReasonCode < 0x80, Code: int(ack.ReasonCode), Text: fmt.Sprintf("PUBACK 0x%02x", ack.ReasonCode)}
	if p := ack.Properties; p != nil && p.ReasonString != "" {
		a.Text += ": " + p.ReasonString
	}
	return a, nil
}
