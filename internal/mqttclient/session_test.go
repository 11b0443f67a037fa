package mqttclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"weir/internal/test/mqttpeer"
	"weir/internal/test/poll"
)

func sessionOptions(b *mqttpeer.Broker, on func(*Delivery)) SessionOptions {
	return SessionOptions{Options: Options{URL: "mqtt://127.0.0.1:" + b.Port(), Dial: dial, ClientID: "c"}, Version: MQTT5, OnMessage: on}
}

// TestAcknowledgementsLeaveInTheOrderOfTheMessages: whatever the order in which they are handed over, and none before its own.
func TestAcknowledgementsLeaveInTheOrderOfTheMessages(t *testing.T) {
	t.Parallel()
	b := mqttpeer.Start(t, &mqttpeer.Broker{}, nil, false)
	var mu sync.Mutex
	var got []*Delivery
	s, err := Open(t.Context(), sessionOptions(b, func(d *Delivery) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, d)
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	granted, err := s.Subscribe(t.Context(), Subscription{"a/#", 1}, Subscription{"b/+", 0})
	if err != nil || !slices.Equal(granted, []byte{1, 0}) {
		t.Fatal(granted, err)
	}
	for id := range uint16(4) {
		b.Deliver(mqttpeer.Delivery{Topic: "a/b", Payload: "x", QoS: 1, PacketID: id + 1, Dup: id == 2, Retain: id == 3})
	}
	b.Deliver(mqttpeer.Delivery{Topic: "a/c", Payload: "y"})
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(got)
	}
	poll.True(t, "the state", func() bool { return count() == 5 })
	if n := s.Unacknowledged(); n != 4 || !got[2].Dup || !got[3].Retained || got[4].QoS != 0 || string(got[4].Payload) != "y" {
		t.Errorf("%d are open, received %+v", n, got)
	}
	got[2].Ack()
	got[1].Ack()
	got[4].Ack()
	if n := s.Unacknowledged(); n != 4 || len(b.Acked()) > 0 {
		t.Errorf("%v are acknowledged before the first", b.Acked())
	}
	got[0].Ack()
	got[0].Ack()
	poll.True(t, "the state", func() bool { return len(b.Acked()) == 3 })
	got[3].Ack()
	poll.True(t, "the state", func() bool { return len(b.Acked()) == 4 })
	if !slices.Equal(b.Acked(), []uint16{1, 2, 3, 4}) {
		t.Errorf("acknowledged %v", b.Acked())
	}
}

func TestASessionPublishesAndIsRefused(t *testing.T) {
	t.Parallel()
	b := mqttpeer.Start(t, &mqttpeer.Broker{OnSubscribe: func(filter string, qos byte) byte {
		if filter == "no/#" {
			return 0x87
		}
		return qos
	}, OnPublish: func(m mqttpeer.Message) (byte, bool) {
		if m.Topic == "no" {
			return 0x97, true
		}
		return 0, true
	}}, nil, false)
	s, err := Open(t.Context(), sessionOptions(b, func(*Delivery) {}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Subscribe(t.Context(), Subscription{"yes", 1}, Subscription{"no/#", 1})
	if r, ok := errors.AsType[*RefusedFilter](err); !ok || r.Filter != "no/#" || err.Error() != "the broker refuses the subscription to no/#: SUBACK 0x87 not authorized" {
		t.Error(err)
	}
	if err := s.Publish(t.Context(), Message{Topic: "yes", Payload: []byte("1"), QoS: 1}); err != nil {
		t.Error(err)
	}
	if err := s.Publish(t.Context(), Message{Topic: "yes", Payload: []byte("2")}); err != nil {
		t.Error(err)
	}
	if err := s.Publish(t.Context(), Message{Topic: "no", QoS: 1}); err == nil || err.Error() != "PUBACK 0x97 quota exceeded" {
		t.Error(err)
	}
	if err := s.Publish(t.Context(), Message{Topic: "yes", QoS: 2}); !errors.Is(err, ErrQoS) {
		t.Error(err)
	}
	b.Cut()
	<-s.Done()
	if err := s.Publish(t.Context(), Message{Topic: "yes", QoS: 1}); err == nil {
		t.Error("a message over a session that has ended")
	}
	_ = s.Close()
}

// old is a broker of MQTT 3.1.1: how it answers MQTT 5 is what brokers differ in.
func old(t *testing.T, answer []byte) (address string, versions func() []byte) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var seen []byte
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				head := make([]byte, 9)
				if _, err := io.ReadFull(conn, head); err != nil {
					return
				}
				mu.Lock()
				seen = append(seen, head[8])
				mu.Unlock()
				if head[8] == MQTT5 {
					_, _ = conn.Write(answer)
					return
				}
				rest := make([]byte, 512)
				_, _ = conn.Read(rest)
				_, _ = conn.Write([]byte{0x20, 2, 1, 0})
				_, _ = conn.Read(rest) // SUBSCRIBE
				_, _ = conn.Write([]byte{0x90, 3, 0, 1, 1, 0x32, 6, 0, 1, 't', 0, 7, 'x'})
				_, _ = conn.Read(rest) // PUBACK
				_, _ = conn.Read(rest)
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); running.Wait() })
	return ln.Addr().String(), func() []byte {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

// TestALinkFindsTheVersionOfTheBroker: whatever a broker of MQTT 3.1.1 says to MQTT 5.
func TestALinkFindsTheVersionOfTheBroker(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer []byte
		want   []byte
	}{
		"return code 1":    {[]byte{0x20, 2, 0, 1}, []byte{5, 4}},
		"reason code 0x84": {[]byte{0x20, 3, 0, 0x84, 0}, []byte{5, 4}},
		"no CONNACK":       {nil, []byte{5, 5, 4}},
	} {
		address, versions := old(t, c.answer)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan *Delivery, 1)
		l := &Link{Auto: true, MinWait: time.Millisecond, MaxWait: time.Millisecond, Options: func() (SessionOptions, error) {
			return SessionOptions{Options: Options{URL: "mqtt://" + address, Dial: dial, ClientID: "c"}, OnMessage: func(d *Delivery) { got <- d }}, nil
		}, Up: func(ctx context.Context, s *Session) error {
			if s.Version() != MQTT311 || !s.Present() {
				t.Errorf("%s: version %d", name, s.Version())
			}
			_, err := s.Subscribe(ctx, Subscription{"t", 1})
			return err
		}}
		var running sync.WaitGroup
		running.Go(func() { _ = l.Run(ctx) })
		d := <-got
		if d.Ack(); d.Topic != "t" || string(d.Payload) != "x" || d.PacketID != 7 {
			t.Errorf("%s: got %+v", name, d.Incoming)
		}
		cancel()
		running.Wait()
		if !bytes.Equal(versions(), c.want) {
			t.Errorf("%s: tried %v, want %v", name, versions(), c.want)
		}
	}
}

// TestALinkWaitsLongerWithEachFailure: from one second to thirty, at most a half less.
func TestALinkWaitsLongerWithEachFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var waits []time.Duration
		l := &Link{Options: func() (SessionOptions, error) { return SessionOptions{}, errors.New("no file") },
			Down: func(_ error, wait time.Duration) {
				if waits = append(waits, wait); len(waits) == 7 {
					cancel()
				}
			}}
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
		for i, most := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			if w := waits[i]; w > most*time.Second || w < most*time.Second/2-1 {
				t.Errorf("the wait %d is %v", i, w)
			}
		}
	})
}

// TestARefusedConnectionSaysWhy: in the words of the version that the broker speaks.
func TestARefusedConnectionSaysWhy(t *testing.T) {
	t.Parallel()
	b := mqttpeer.Start(t, &mqttpeer.Broker{OnConnect: func(*packets.Connect) byte { return 0x86 }}, nil, false)
	if _, err := Open(t.Context(), sessionOptions(b, func(*Delivery) {})); err == nil || err.Error() != "CONNACK 0x86 bad user name or password" {
		t.Error(err)
	}
	conn := &script{Reader: bytes.NewReader([]byte{0x20, 2, 0, 4}), closed: make(chan struct{})}
	_, err := Open(t.Context(), SessionOptions{Options: Options{URL: "tcp://h:1", Dial: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}, Version: MQTT311})
	if err == nil || err.Error() != "CONNACK 0x04 bad user name or password" {
		t.Error(err)
	}
}

// TestASilentBrokerEndsTheSession: twice the keep-alive without a packet.
func TestASilentBrokerEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		go func() {
			p := make([]byte, 256)
			_, _ = server.Read(p)
			_, _ = server.Write([]byte{0x20, 3, 0, 0, 0})
			_, _ = io.Copy(io.Discard, server)
		}()
		s, err := Open(t.Context(), SessionOptions{Options: Options{URL: "tcp://h:1", Dial: func(context.Context, string, string) (net.Conn, error) { return client, nil }}, Version: MQTT5,
			KeepAlive: 10 * time.Second, OnMessage: func(*Delivery) {}})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		<-s.Done()
		if err := s.Err(); err == nil || !strings.Contains(err.Error(), "silent") || time.Since(begun) != 20*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		_ = s.Close()
		_ = server.Close()
	})
}

// greeting lets a script be read as a session: CONNACK comes first.
var greeting = []byte{0x20, 3, 0, 0, 0}

// hear opens a session to a script and returns why it ended.
func hear(t testing.TB, version byte, says []byte) error {
	conn := &script{Reader: bytes.NewReader(says), closed: make(chan struct{})}
	time.AfterFunc(20*time.Millisecond, func() { conn.Close() })
	s, err := Open(t.Context(), SessionOptions{Options: Options{URL: "tcp://h:1", Timeout: time.Second, Dial: func(context.Context, string, string) (net.Conn, error) { return conn, nil }},
		Version: version, ReceiveMaximum: 2, MaxPacket: 4 << 10, OnMessage: func(d *Delivery) { d.Ack(); d.Ack() }})
	if err != nil {
		return err
	}
	<-s.Done()
	err = s.Err()
	_ = s.Close()
	return err
}

var hostileToSessions = map[string][]byte{
	"a message at QoS 2":        {0x34, 6, 0, 1, 't', 0, 1, 0},
	"a message without a topic": {0x30, 3, 0, 0, 0},
	"a topic with a wildcard":   {0x30, 4, 0, 1, '#', 0},
	"a topic that ends early":   {0x30, 3, 0, 9, 't'},
	"packet identifier 0":       {0x32, 6, 0, 1, 't', 0, 0, 0},
	"properties that lie":       {0x30, 4, 0, 1, 't', 9},
	"an unknown property":       {0x30, 6, 0, 1, 't', 2, 0x7f, 0},
	"a large packet":            {0x30, 0xff, 0xff, 0x7f},
	"a SUBACK nobody awaits":    {0x90, 4, 0, 1, 0, 0},
	"a short SUBACK":            {0x90, 1, 0},
	"a short PUBACK":            {0x40, 1, 0},
	"DISCONNECT":                {0xe0, 2, 0x8b, 0},
	"CONNECT":                   {0x10, 0},
	"flags":                     {0x41, 2, 0, 1},
	"a good message":            {0x32, 7, 0, 1, 't', 0, 1, 0, 'x'},
}

func TestABrokerThatSaysAnythingToASession(t *testing.T) {
	t.Parallel()
	for name, says := range hostileToSessions {
		err := hear(t, MQTT5, append(slices.Clone(greeting), says...))
		if malformed := errors.Is(err, ErrMalformed); malformed == slices.Contains([]string{"a SUBACK nobody awaits", "DISCONNECT", "a good message"}, name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzSession(f *testing.F) {
	for _, says := range hostileToSessions {
		f.Add(true, says)
		f.Add(false, says)
	}
	f.Fuzz(func(t *testing.T, five bool, says []byte) {
		version, hello := MQTT311, []byte{0x20, 2, 0, 0}
		if five {
			version, hello = MQTT5, greeting
		}
		_ = hear(t, version, append(slices.Clone(hello), says...))
	})
}
