package soak_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"weir/internal/test/testweir"
)

// hostile is who behaves badly. Each kind gets the ending that it deserves, again and again, and nobody else feels it.
func hostile() []actor {
	again := func(pace time.Duration, one func(ctx context.Context, p *plant, device string) error, role string) func(context.Context, *plant, int) error {
		return func(ctx context.Context, p *plant, i int) error {
			return every(ctx, pace, func(int) error {
				if err := one(ctx, p, device(role, i)); err != nil && ctx.Err() == nil {
					return err
				}
				return nil
			})
		}
	}
	return []actor{
		{"CONNECT byte by byte", 4, again(time.Second, dripConnect, "bad")},
		{"packet that never ends", 2, again(time.Second, dripPublish, "drip")},
		{"TLS that stops", 2, again(time.Second, stopTLS, "bad")},
		{"WebSocket byte by byte", 2, again(time.Second, dripWebSocket, "bad")},
		{"HTTP header byte by byte", 2, again(time.Second, dripHeader, "bad")},
		{"HTTP body that stops", 2, again(time.Second, stopBody, "bad")},
		{"reads no answer", 1, again(time.Second, neverReads, "deaf")},
		{"Receive Maximum ignored", 1, again(500*time.Millisecond, overruns, "flood")},
		{"3.1.1 without waiting", 1, again(500*time.Millisecond, pipelines, "rush")},
		{"cut at every byte", 2, again(200*time.Millisecond, cutAtEveryByte, "cut")},
		{"garbage", 2, again(50*time.Millisecond, garbage, "noise")},
		{"QoS 2", 1, again(100*time.Millisecond, twice, "twice")},
		{"foreign topic", 1, again(100*time.Millisecond, foreign, "foreign")},
		{"subscription that stops reading", 1, again(time.Second, slowSubscriber, "old")},
	}
}

// drip writes a byte at a time until the other side has ended the connection, and waits for that.
func drip(ctx context.Context, c *peer, b []byte, pace, within time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := c.Write(b[i%len(b) : i%len(b)+1]); err != nil {
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(pace):
			}
		}
	}()
	_, err := c.ended(within)
	return err
}

// withContext closes the connection when the context ends, so that nobody waits for an ending that takes long.
func withContext(ctx context.Context, c net.Conn) func() {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	return func() {
		stop()
		_ = c.Close()
	}
}

func dripConnect(ctx context.Context, p *plant, device string) error {
	c, err := p.dial(ctx, overTCP)
	if err != nil {
		return err
	}
	defer withContext(ctx, c)()
	connect := p.connect(v311, device+strings.Repeat("x", 200), secret(device), 30) // longer than the time
	if err := drip(ctx, c, connect, 100*time.Millisecond, patience); err != nil {
		return fmt.Errorf("CONNECT byte by byte: %w", err)
	}
	return nil
}

// dripPublish announces a large packet and sends a byte now and then: the keep-alive is that of packets, not of bytes.
func dripPublish(ctx context.Context, p *plant, device string) error {
	c, err := p.join(ctx, overTCP, v311, device, 2)
	if err != nil {
		return err
	}
	defer withContext(ctx, c)()
	if _, err := c.Write([]byte{0x32, 0xFF, 0xFF, 0x3F}); err != nil { // almost 1 MiB
		return err
	}
	if err := drip(ctx, c, []byte{0}, 100*time.Millisecond, patience); err != nil {
		return fmt.Errorf("a packet that never ends: %w", err)
	}
	return nil
}

func stopTLS(ctx context.Context, p *plant, _ string) error {
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.mqtts)
	c, err := newPeer(nc, err)
	if err != nil {
		return err
	}
	defer withContext(ctx, c)()
	if _, err := c.Write([]byte{22, 3, 1, 2, 0, 1, 0}); err != nil { // the head of a ClientHello
		return err
	}
	_, err = c.ended(patience)
	return err
}

// dripWebSocket sends its CONNECT in frames of one byte.
func dripWebSocket(ctx context.Context, p *plant, device string) error {
	c, err := p.dial(ctx, overWebSocket)
	if err != nil {
		return err
	}
	defer withContext(ctx, c)()
	connect := p.connect(v5, device+strings.Repeat("x", 200), secret(device), 30)
	return drip(ctx, c, connect, 100*time.Millisecond, patience)
}

func dripHeader(ctx context.Context, p *plant, _ string) error {
	c, err := dialHTTP(ctx, p)
	if err != nil {
		return err
	}
	defer withContext(ctx, c)()
	return drip(ctx, c, []byte("POST /weir/acme/events HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 1000)), 100*time.Millisecond, patience)
}

func dialHTTP(ctx context.Context, p *plant) (*peer, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(p.Ingest, "http://"))
	return newPeer(nc, err)
}

func stopBody(ctx context.Context, p *plant, _ string) error {
	c, err := dialHTTP(ctx, p)
	if err != nil {
		return err
	}
	defer withContext(ctx, c)()
	if _, err := io.WriteString(c, "POST /weir/acme/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"even"); err != nil {
		return err
	}
	_, err = c.ended(patience)
	return err
}

// neverReads asks for answers and reads none. When nothing more goes into the connection the server has to give it up.
func neverReads(ctx context.Context, p *plant, device string) error {
	small := net.Dialer{Control: func(_, _ string, rc syscall.RawConn) error {
		var failed error
		err := rc.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10)
		})
		return errors.Join(err, failed)
	}}
	nc, err := small.DialContext(ctx, "tcp", p.MQTT)
	c, err := newPeer(nc, err)
	if err != nil {
		return err
	}
	defer withContext(ctx, c)()
	if code, err := c.login(p.connect(v311, device, secret(device), 60)); err != nil || code != 0 {
		return fmt.Errorf("CONNACK %#x: %w", code, err)
	}
	pings := bytes.Repeat([]byte{0xC0, 0}, 4<<10)
	for ctx.Err() == nil {
		// While nothing goes in, the kernel asks more and more rarely, and learns as late that nobody is there any more.
		if err := c.SetWriteDeadline(time.Now().Add(4 * patience)); err != nil {
			return err
		}
		if _, err := c.Write(pings); err != nil {
			var e net.Error
			if errors.As(err, &e) && e.Timeout() && ctx.Err() == nil {
				return fmt.Errorf("who reads nothing was not given up: %w", err)
			}
			return nil // given up
		}
	}
	return nil
}

// overruns sends ten thousand publishes without waiting. It is either told 0x93 or was answered quickly enough each time.
func overruns(ctx context.Context, p *plant, device string) error {
	c, err := p.join(ctx, overTCP, v5, device, 60)
	if err != nil {
		return err
	}
	defer withContext(ctx, c)()
	return p.rush(c, v5, device, 10_000, func(kind byte, body []byte) error {
		if kind == 14 && len(body) > 0 && body[0] == 0x93 {
			return nil
		}
		return fmt.Errorf("packet %d % x for one who ignores Receive Maximum", kind, body)
	})
}

// pipelines does the same with 3.1.1, which knows no such limit: it is slowed down and all is kept.
func pipelines(ctx context.Context, p *plant, device string) error {
	c, err := p.join(ctx, overTCP, v311, device, 60)
	if err != nil {
		return err
	}
	defer withContext(ctx, c)()
	return p.rush(c, v311, device, 5_000, func(kind byte, body []byte) error {
		return fmt.Errorf("packet %d % x for one who does not wait", kind, body)
	})
}

// rush writes n publishes while it reads their acknowledgements. What else comes is shown to other, and is the last.
func (p *plant) rush(c *peer, version byte, device string, n int, other func(kind byte, body []byte) error) error {
	l := p.ledgers[device]
	go func() {
		for i := range n {
			if _, err := c.Write(publish(version, topic(device), 1, uint16(i)+1, l.reading(1, ""))); err != nil {
				return // the reader learns why
			}
		}
	}()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	for range n {
		kind, body, err := c.packet()
		switch {
		case err != nil:
			if version == v5 { // the last word may be lost in a reset: much was still on its way
				return nil
			}
			return err
		case kind != 4:
			return other(kind, body)
		}
		l.certain.Add(1)
	}
	return nil
}

// cutAtEveryByte says all that a device may say, each byte in a segment of its own.
func cutAtEveryByte(ctx context.Context, p *plant, device string) error {
	c, err := p.dial(ctx, overTCP)
	if err != nil {
		return err
	}
	defer withContext(ctx, c)()
	version := byte(v311 + p.chance().IntN(2))
	l := p.ledgers[device]
	commands := "weir/" + tenant + "/device-commands/" + device
	var script []byte
	for _, packet := range [][]byte{
		p.connect(version, device, secret(device), 60),
		subscribe(version, commands, 1),
		publish(version, topic(device), 1, 2, l.reading(1, "")),
		publish(version, topic(device), 0, 0, []byte(`{"eventType":"Nonsense"}`)),
		{0xC0, 0},
		publish(version, topic(device), 1, 3, l.reading(3, "")),
	} {
		script = append(script, packet...)
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	for i := range script {
		if _, err := c.Write(script[i : i+1]); err != nil {
			return err
		}
	}
	for _, kind := range []byte{2, 9} {
		if _, err := c.expect(kind); err != nil {
			return err
		}
	}
	pubacks := 0
	for range 3 { // the PINGRESP may come before a PUBACK, which waits for the disk
		kind, _, err := c.packet()
		switch {
		case err != nil:
			return err
		case kind == 4:
			pubacks++
		case kind != 13:
			return fmt.Errorf("packet %d for a script cut at every byte", kind)
		}
	}
	l.certain.Add(4)
	if pubacks != 2 {
		return fmt.Errorf("%d PUBACKs for 2 publishes", pubacks)
	}
	return nil
}

// garbage sends bytes that mean nothing once it is connected. A stream of them soon breaks a rule.
func garbage(ctx context.Context, p *plant, device string) error {
	r := p.chance()
	c, err := p.join(ctx, overTCP, v311+byte(r.IntN(2)), device, 2)
	if err != nil {
		return err
	}
	defer withContext(ctx, c)()
	b := make([]byte, 64)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	_, err = c.ended(patience)
	return err
}

func twice(ctx context.Context, p *plant, device string) error {
	c, err := p.join(ctx, overTCP, v5, device, 60)
	if err != nil {
		return err
	}
	defer withContext(ctx, c)()
	if _, err := c.Write(publish(v5, topic(device), 2, 1, []byte("{}"))); err != nil {
		return err
	}
	body, err := c.expect(14)
	if err == nil && (len(body) == 0 || body[0] != 0x9B) {
		err = fmt.Errorf("DISCONNECT % x for QoS 2", body)
	}
	return err
}

func foreign(ctx context.Context, p *plant, device string) error {
	c, err := p.join(ctx, overTCP, v311, device, 60)
	if err != nil {
		return err
	}
	defer withContext(ctx, c)()
	if _, err := c.Write(publish(v311, topic("old-0"), 0, 0, []byte("{}"))); err != nil {
		return err
	}
	_, err = c.ended(patience)
	return err
}

// slowSubscriber follows the readings of a busy device and reads none of them, until it is told off or has waited long enough.
func slowSubscriber(ctx context.Context, p *plant, device string) error {
	c, resp, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(p.API, "http")+"/api/event-management/graphql",
		&websocket.DialOptions{Subprotocols: []string{"graphql-transport-ws"}})
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("upgrade: %s", resp.Status)
	}
	defer func() { _ = c.CloseNow() }()
	query := fmt.Sprintf(`subscription{measurementStream(deviceToken:%q){id name value occurredTime}}`, device)
	for _, m := range []testweir.Message{
		{Type: "connection_init", Payload: fmt.Appendf(nil, `{"Authorization":"Bearer %s"}`, p.reader)},
		{Type: "subscribe", ID: "1", Payload: fmt.Appendf(nil, `{"query":%q}`, query)},
	} {
		b, err := json.Marshal(m)
		if err != nil {
			return err
		}
		if err := c.Write(ctx, websocket.MessageText, b); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
	case <-time.After(30 * time.Second):
	}
	return nil
}
