package testweir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Socket is a client of the subprotocol graphql-transport-ws. It reads no further than one message ahead of Next, so that
// a test which takes none is a slow subscriber. One goroutine uses it at a time.
type Socket struct {
	conn  *websocket.Conn
	inbox chan read
	done  chan struct{}
	once  sync.Once
}

type read struct {
	m   Message
	err error
}

// Message is what travels over a Socket.
type Message struct {
	ID      string          `json:"id,omitempty"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// patience is how long a Socket waits for the next message where the test names no time.
const patience = 20 * time.Second

// Dial connects to the area and initialises with the token, "" for none.
func (p *Proc) Dial(area, token string) (*Socket, error) {
	s, err := DialSocket(p.API, area, token)
	if err == nil {
		p.t.Cleanup(s.Close)
	}
	return s, err
}

// DialSocket is Dial for a program that listens at a URL and was not started by a test. The caller closes the socket.
func DialSocket(api, area, token string) (_ *Socket, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	url := "ws" + strings.TrimPrefix(api, "http") + "/api/" + area + "/graphql"
	conn, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{Subprotocols: []string{"graphql-transport-ws"}})
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, fmt.Errorf("upgrade: %s", resp.Status)
	}
	conn.SetReadLimit(4 << 20)
	s := &Socket{conn: conn, inbox: make(chan read), done: make(chan struct{})}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	go s.receive()
	init := Message{Type: "connection_init"}
	if token != "" {
		if init.Payload, err = json.Marshal(map[string]string{"Authorization": "Bearer " + token}); err != nil {
			return nil, err
		}
	}
	if err := s.Send(init); err != nil {
		return nil, err
	}
	m, err := s.Next(patience)
	if err != nil {
		return nil, err
	}
	if m.Type != "connection_ack" {
		return nil, fmt.Errorf("expected connection_ack, got %+v", m)
	}
	return s, nil
}

// Close ends the connection without ceremony.
func (s *Socket) Close() {
	s.once.Do(func() {
		close(s.done)
		_ = s.conn.CloseNow()
	})
}

// receive reads until the connection ends; pings of the server are answered on the way.
func (s *Socket) receive() {
	for {
		var r read
		_, b, err := s.conn.Read(context.Background())
		if r.err = err; err == nil {
			r.err = json.Unmarshal(b, &r.m)
		}
		if r.err == nil && r.m.Type == "ping" {
			if r.err = s.Send(Message{Type: "pong"}); r.err == nil {
				continue
			}
		}
		select {
		case s.inbox <- r:
		case <-s.done:
			return
		}
		if r.err != nil {
			return
		}
	}
}

// Send sends a message.
func (s *Socket) Send(m Message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, b)
}

// Subscribe starts an operation. Nothing tells when a subscription stands: a test makes something happen until it sees
// the first of it.
func (s *Socket) Subscribe(id, query string, vars map[string]any) error {
	payload, err := json.Marshal(map[string]any{"query": query, "variables": vars})
	if err != nil {
		return err
	}
	return s.Send(Message{ID: id, Type: "subscribe", Payload: payload})
}

// ErrQuiet is returned when no message came within the time.
var ErrQuiet = errors.New("nothing came")

// Next returns the next message within the time.
func (s *Socket) Next(within time.Duration) (Message, error) {
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case r := <-s.inbox:
		return r.m, r.err
	case <-t.C:
		return Message{}, ErrQuiet
	}
}

// CloseCode returns the code with which the server ended the connection, -1 when err is nothing of the kind.
func CloseCode(err error) int { return int(websocket.CloseStatus(err)) }
