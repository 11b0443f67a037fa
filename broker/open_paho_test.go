package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
)

// The client library that the world uses agrees with the open topics over a real socket: many publishers, one reader that
// takes little at a time, and every message once and in the order of its publisher.
func TestPahoAgreesWithTheOpenTopics(t *testing.T) {
	b, err := New(Config{InstanceID: "weir", Open: &OpenConfig{OpenSettings: OpenSettings{OpenTopicsTenant: "acme"}}}, Deps{Intake: &fakeIntake{}, Verifier: knownDevices()})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- b.ServeListener(context.Background(), ln, Listener{Name: "open_topics", Open: true}) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := errors.Join(b.Close(ctx), <-served); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()

	const publishers, each = 5, 60
	got := make(chan [2]int, publishers*each)
	ended := make(chan byte, 1)
	reader := pahoClient(t, ln.Addr().String(), func(p paho.PublishReceived) (bool, error) {
		var m [2]int
		_, err := fmt.Sscanf(p.Packet.Topic+" "+string(p.Packet.Payload), "from/%d %d", &m[0], &m[1])
		got <- m
		return err == nil, err
	}, ended)
	enter := func(c *paho.Client, id string) {
		t.Helper()
		h := hello5("acme:user1", "s3cret")
		h.ClientID, h.Properties = id, &paho.ConnectProperties{ReceiveMaximum: new(uint16(4))}
		if ack, err := c.Connect(ctx, h); err != nil || !ack.Properties.RetainAvailable || !ack.Properties.SharedSubAvailable {
			t.Fatalf("CONNACK %+v, %v", ack, err)
		}
	}
	enter(reader, "reader")
	if _, err := reader.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "from/+", QoS: 2}}}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for p := range publishers {
		all.Go(func() {
			c := pahoClient(t, ln.Addr().String(), nil, make(chan byte, 1))
			enter(c, fmt.Sprint("publisher-", p))
			for i := range each {
				if _, err := c.Publish(ctx, &paho.Publish{QoS: byte(1 + p%2), Topic: fmt.Sprint("from/", p), Payload: fmt.Append(nil, i)}); err != nil {
					t.Errorf("publish: %v", err)
					return
				}
			}
			_ = c.Disconnect(&paho.Disconnect{})
		})
	}
	all.Wait()
	var next [publishers]int
	for range publishers * each {
		select {
		case m := <-got:
			if m[1] != next[m[0]] {
				t.Fatalf("publisher %d: got %d, want %d", m[0], m[1], next[m[0]])
			}
			next[m[0]]++
		case <-ctx.Done():
			t.Fatalf("not all came: %v", next)
		}
	}
}
