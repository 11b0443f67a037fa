package mqttclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"weir/internal/test/mqttpeer"
	"weir/internal/test/testcerts"
)

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// TestAMessageByEveryWay: each scheme at each QoS, and the connection is made by the function that was handed in.
func TestAMessageByEveryWay(t *testing.T) {
	t.Parallel()
	ca, err := testcerts.NewCA("a CA")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server(time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for scheme, secure := range Schemes() {
		var security *tls.Config
		if secure {
			security = &tls.Config{Certificates: []tls.Certificate{pair.TLS()}}
		}
		ws := scheme == "ws" || scheme == "wss"
		b := mqttpeer.Start(t, &mqttpeer.Broker{}, security, ws)
		dials := 0
		o := Options{URL: scheme + "://localhost:" + b.Port(), ClientID: "c", Username: "u", Password: "p", TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: ca.Pool()},
			Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
				dials++
				return dial(ctx, network, "127.0.0.1:"+b.Port())
			}}
		c, err := Connect(t.Context(), o)
		if err != nil {
			t.Errorf("%s: %v", scheme, err)
			continue
		}
		for qos := range byte(3) {
			if err := c.Publish(t.Context(), Message{Topic: "a/b", Payload: []byte{'0' + qos}, QoS: qos, Properties: [][2]string{{"idempotency_key", "k"}}}); err != nil {
				t.Errorf("%s at QoS %d: %v", scheme, qos, err)
			}
		}
		want := []mqttpeer.Message{{Topic: "a/b", Payload: "0", QoS: 0, Key: "k"}, {Topic: "a/b", Payload: "1", QoS: 1, Key: "k"}, {Topic: "a/b", Payload: "2", QoS: 2, Key: "k"}}
		if got := b.Messages(); !slices.Equal(got, want) || dials != 1 {
			t.Errorf("%s: %v after %d dials", scheme, got, dials)
		}
		_ = c.Close()
		<-c.Done()
		if err := c.Publish(t.Context(), Message{Topic: "a", QoS: 1}); err == nil {
			t.Errorf("%s: a closed client publishes", scheme)
		}
		if secure {
			o.TLS = nil // the roots of the system do not have the CA
			if _, err := Connect(t.Context(), o); err == nil {
				t.Errorf("%s: a certificate of an unknown CA is taken", scheme)
			}
		}
	}
}

// TestPublishesDoNotWaitForOneAnother: the broker answers none before it has all.
func TestPublishesDoNotWaitForOneAnother(t *testing.T) {
	t.Parallel()
	const n = 64
	server, client := net.Pipe()
	go func() {
		var held []*packets.ControlPacket
		for {
			p, err := packets.ReadPacket(server)
			if err != nil {
				return
			}
			switch c := p.Content.(type) {
			case *packets.Connect:
				_, _ = packets.NewControlPacket(packets.CONNACK).WriteTo(server)
			case *packets.Publish:
				ack := packets.NewControlPacket(packets.PUBACK)
				ack.Content.(*packets.Puback).PacketID = c.PacketID
				if held = append(held, ack); len(held) == n {
					for _, a := range slices.Backward(held) {
						_, _ = a.WriteTo(server)
					}
				}
			case *packets.Pingreq:
				_, _ = packets.NewControlPacket(packets.PINGRESP).WriteTo(server)
			}
		}
	}()
	c, err := Connect(t.Context(), Options{URL: "tcp://h:1", Dial: func(context.Context, string, string) (net.Conn, error) { return client, nil }})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if err := c.Publish(t.Context(), Message{Topic: "t", QoS: 1}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	_ = c.Close()
}

// TestAConnectionThatBreaks: whatever is under way at that moment returns at once, and does not wait for an acknowledgement.
func TestAConnectionThatBreaks(t *testing.T) {
	t.Parallel()
	for range 20 {
		b := mqttpeer.Start(t, &mqttpeer.Broker{OnPublish: func(mqttpeer.Message) (byte, bool) { return 0, false }}, nil, false)
		conns := make(chan net.Conn, 1)
		c, err := Connect(t.Context(), Options{URL: "tcp://127.0.0.1:" + b.Port(), Timeout: time.Hour, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			conns <- conn
			return conn, err
		}})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() {
				if i == 32 {
					_ = (<-conns).Close()
				} else if err := c.Publish(t.Context(), Message{Topic: "t", QoS: 1}); !errors.Is(err, ErrLost) {
					t.Errorf("%v, want ErrLost", err)
				}
			})
		}
		all.Wait()
		_ = c.Close()
	}
}

func TestWhatABrokerRefuses(t *testing.T) {
	t.Parallel()
	b := mqttpeer.Start(t, &mqttpeer.Broker{MaximumQoS: new(byte(1)), OnConnect: func(c *packets.Connect) byte {
		if string(c.Password) != "right" {
			return 0x86
		}
		return 0
	}, OnPublish: func(m mqttpeer.Message) (byte, bool) {
		if m.Topic == "no" {
			return 0x87, true
		}
		return 0, true
	}}, nil, false)
	o := Options{URL: "mqtt://127.0.0.1:" + b.Port(), Dial: dial, Username: "u", Password: "wrong"}
	_, err := Connect(t.Context(), o)
	if r, ok := errors.AsType[*Refused](err); !ok || *r != (Refused{Packet: "CONNACK", Code: 0x86}) {
		t.Fatal(err)
	}
	o.Password = "right"
	c, err := Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Publish(t.Context(), Message{Topic: "yes", QoS: 2}); !errors.Is(err, ErrQoS) {
		t.Error(err)
	}
	err = c.Publish(t.Context(), Message{Topic: "no", QoS: 1})
	if r, ok := errors.AsType[*Refused](err); !ok || *r != (Refused{Packet: "PUBACK", Code: 0x87}) {
		t.Error(err)
	}
	b.Cut()
	<-c.Done()
	if err := c.Publish(t.Context(), Message{Topic: "yes", QoS: 1}); err == nil {
		t.Error("a message over a connection that is lost")
	}
}

// script is the other side of a connection: it says what it says, whatever it is sent.
type script struct {
	io.Reader
	closed chan struct{}
	once   sync.Once
}

func (s *script) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if err != nil {
		<-s.closed
	}
	return n, err
}

func (s *script) Write(b []byte) (int, error) { return len(b), nil }
func (s *script) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}
func (s *script) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// play connects to a script and publishes twice.
func play(t testing.TB, says []byte) error {
	conn := &script{Reader: bytes.NewReader(says), closed: make(chan struct{})}
	defer conn.Close()
	c, err := Connect(t.Context(), Options{URL: "tcp://h:1", Timeout: 20 * time.Millisecond, Dial: func(context.Context, string, string) (net.Conn, error) { return conn, nil }})
	if err != nil {
		return err
	}
	defer c.Close()
	return cmpErr(c.Publish(t.Context(), Message{Topic: "t", QoS: 1}), c.Publish(t.Context(), Message{Topic: "t", QoS: 2}))
}

func cmpErr(errs ...error) error { return errors.Join(errs...) }

// hostile are what brokers may say, as they must not harm: lengths without an end, packets that a publisher is not sent.
var hostile = map[string][]byte{
	"nothing":                      {},
	"no CONNACK":                   {0x40, 2, 0, 1},
	"256 MiB":                      {0x20, 0xff, 0xff, 0xff, 0x7f},
	"a length of five bytes":       {0x20, 0xff, 0xff, 0xff, 0xff, 0x7f},
	"an authentication method":     {0x20, 6, 0, 0, 3, 0x15, 0, 0},
	"AUTH":                         {0xf0, 2, 0x18, 0},
	"AUTH after CONNACK":           {0x20, 3, 0, 0, 0, 0xf0, 2, 0x18, 0},
	"a message":                    {0x20, 3, 0, 0, 0, 0x30, 4, 0, 1, 't', 0},
	"SUBACK":                       {0x20, 3, 0, 0, 0, 0x90, 4, 0, 1, 0, 0},
	"an answer to what none asked": {0x20, 3, 0, 0, 0, 0x40, 2, 0, 99, 0x50, 2, 0, 98, 0x70, 2, 0, 97},
	"PUBREC for PUBACK":            {0x20, 3, 0, 0, 0, 0x50, 2, 0, 1},
	"two CONNACKs":                 {0x20, 3, 0, 0, 0, 0x20, 3, 0, 0, 0},
	"properties that lie":          {0x20, 5, 0, 0, 0xff, 0xff, 0x7f},
	"half a packet":                {0x20, 3, 0},
	"DISCONNECT":                   {0x20, 3, 0, 0, 0, 0xe0, 1, 0x8b},
	"HTTP":                         []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
	"a receive maximum of nothing": {0x20, 6, 0, 0, 3, 0x21, 0, 0},
}

func TestABrokerThatSaysAnything(t *testing.T) {
	t.Parallel()
	for name, says := range hostile {
		if err := play(t, says); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	err := play(t, hostile["256 MiB"])
	if !errors.Is(err, ErrMalformed) {
		t.Error(fmt.Errorf("a packet of 256 MiB: %w", err))
	}
}

func FuzzABrokerThatSaysAnything(f *testing.F) {
	for _, says := range hostile {
		f.Add(says)
	}
	f.Fuzz(func(t *testing.T, says []byte) { _ = play(t, says) })
}
