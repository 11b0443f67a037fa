package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"weir/internal/mqttclient"
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
			Hint: fmt.Sprintf("open it with listeners.%s, or send with --transport %s", key, other)}
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
	client *mqttclient.Client // nil: the connection was refused
	topic  string
	reject *transportAnswer // the connection was refused
}

// connect connects besides the device: a client id with a suffix takes over no connection and asserts no presence.
func (s *sending) connect(ctx context.Context, addr string) (sender, error) {
	id := fmt.Sprintf("%s:%s:%s:send-%s", s.instance, s.tenant, s.device, rand.Text()[:8])
	m := &mqttSender{topic: fmt.Sprintf("%s/%s/devices/%s/events", s.instance, s.tenant, s.device)}
	client, err := mqttclient.Connect(ctx, mqttclient.Options{URL: "mqtt://" + addr, Dial: (&net.Dialer{}).DialContext, ClientID: id, Username: s.tenant + ":" + s.token, Timeout: sendWait})
	if refused, ok := errors.AsType[*mqttclient.Refused](err); ok {
		m.reject = mqttAnswer(refused)
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	m.client = client
	return m, nil
}

func (m *mqttSender) close() {
	if m.client != nil {
		_ = m.client.Close() // a connection that is lost needs no goodbye
	}
}

func (m *mqttSender) send(ctx context.Context, event []byte) (transportAnswer, error) {
	if m.reject != nil {
		return *m.reject, nil
	}
	err := m.client.Publish(ctx, mqttclient.Message{QoS: 1, Topic: m.topic, Payload: event})
	if refused, ok := errors.AsType[*mqttclient.Refused](err); ok {
		return *mqttAnswer(refused), nil
	}
	if err != nil {
		return transportAnswer{}, err
	}
	return transportAnswer{OK: true, Text: "PUBACK 0x00"}, nil
}

// mqttAnswer is what a broker has refused, in its words.
func mqttAnswer(r *mqttclient.Refused) *transportAnswer {
	a := &transportAnswer{Code: int(r.Code), Text: r.Error()}
	if r.Packet != "CONNACK" && r.Reason != "" {
		a.Text += ": " + r.Reason
	}
	return a
}
