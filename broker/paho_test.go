package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"weir/ingest"
	"weir/internal/test/conformance"
	"weir/model"
)

// overTCP serves a broker on a real socket.
func overTCP(t testing.TB, gate Intake) (*Broker, string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(Config{InstanceID: "weir"}, Deps{Intake: gate, Verifier: knownDevices()})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- b.Serve(context.Background(), ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := errors.Join(b.Close(ctx), <-served); err != nil {
			t.Error(err)
		}
	})
	return b, ln.Addr().String()
}

func pahoClient(t *testing.T, addr string, on func(paho.PublishReceived) (bool, error), ended chan<- byte) *paho.Client {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return paho.NewClient(paho.ClientConfig{Conn: conn, PacketTimeout: 20 * time.Second,
		OnPublishReceived:  []func(paho.PublishReceived) (bool, error){on},
		OnServerDisconnect: func(d *paho.Disconnect) { ended <- d.ReasonCode },
	})
}

func hello5(user, password string) *paho.Connect {
	return &paho.Connect{ClientID: theClient, KeepAlive: 60, CleanStart: true, Username: user, UsernameFlag: true,
		Password: []byte(password), PasswordFlag: password != ""}
}

// The client library that the world uses agrees with the door on the whole exchange.
func TestPahoAgrees(t *testing.T) {
	gate := &fakeIntake{}
	gate.answer = func(a *ingest.Arrival) ingest.Answer {
		if strings.Contains(string(a.Body), "bad") {
			return ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonUndecodable, Text: "no payload"}
		}
		return ingest.Answer{}
	}
	b, addr := overTCP(t, gate)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	wrong := pahoClient(t, addr, nil, nil)
	ack, err := wrong.Connect(ctx, hello5("acme:user1", "wrong"))
	if err == nil || ack == nil || ack.ReasonCode != codeNotAuthorized {
		t.Fatalf("wrong password: %v, %v", ack, err)
	}
	conformance.Shown(t, "S2-024")

	commands, ended := make(chan string, 10), make(chan byte, 1)
	c := pahoClient(t, addr, func(p paho.PublishReceived) (bool, error) {
		commands <- string(p.Packet.Payload)
		return true, nil
	}, ended)
	ack, err = c.Connect(ctx, hello5("acme:user1", "s3cret"))
	if err != nil || ack.Properties.MaximumQoS == nil || *ack.Properties.MaximumQoS != 1 || ack.Properties.RetainAvailable ||
		*ack.Properties.ReceiveMaximum != 256 {
		t.Fatalf("CONNACK %+v, %v", ack, err)
	}

	var publishers sync.WaitGroup
	for i := range 500 { // more than the window: the library must hold back by itself
		publishers.Go(func() {
			r, err := c.Publish(ctx, &paho.Publish{QoS: 1, Topic: theEvents, Payload: fmt.Appendf(nil, `{"i":%d}`, i)})
			if err != nil || r.ReasonCode != 0 {
				t.Errorf("publish %d: %v, %v", i, r, err)
			}
		})
	}
	publishers.Wait()
	if n := len(gate.bodies()); n != 500 {
		t.Errorf("%d messages at the intake", n)
	}
	r, _ := c.Publish(ctx, &paho.Publish{QoS: 1, Topic: theEvents, Payload: []byte("bad")})
	if r == nil || r.ReasonCode != codePayloadInvalid || r.Properties.ReasonString != "no payload" {
		t.Errorf("undecodable: %+v", r)
	}
	r, _ = c.Publish(ctx, &paho.Publish{QoS: 1, Topic: "weir/acme/devices/dev2/events", Payload: []byte("{}")})
	if r == nil || r.ReasonCode != codeNotAuthorized {
		t.Errorf("another device's topic: %+v", r)
	}

	sub, err := c.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: theCommands, QoS: 1}}})
	if err != nil || sub.Reasons[0] != 1 {
		t.Fatalf("SUBACK %+v, %v", sub, err)
	}
	if sub, err = c.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "weir/acme/device-commands/dev2", QoS: 1}}}); err == nil || sub.Reasons[0] < 0x80 {
		t.Errorf("a foreign filter: %+v, %v", sub, err)
	}
	conformance.Shown(t, "S2-025")
	x := &bench{t: t, broker: b}
	x.command("reboot")
	select {
	case got := <-commands:
		if got != "reboot" {
			t.Errorf("command %q", got)
		}
	case <-ctx.Done():
		t.Error("no command")
	}
	b.Drop(func(model.Binding) bool { return true })
	select {
	case code := <-ended:
		if code != codeNotAuthorized {
			t.Errorf("ended with %#x", code)
		}
	case <-ctx.Done():
		t.Error("not told about the end")
	}
}
