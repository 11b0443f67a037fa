package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"weir/internal/test/conformance"
	"weir/internal/test/poll"
)

// downlink is a command as its device gets it.
type downlink struct{ Token, DeviceToken, Name, DispatchNonce string }

// listening connects a device over MQTT 5 and subscribes to its commands. stop ends the connection.
func (tn *tenant) listening(device string) (c *paho.Client, came chan downlink, stop func()) {
	tn.t.Helper()
	return tn.listeningAt(tn.MQTT, device)
}

// listeningAt does so at another address.
func (tn *tenant) listeningAt(address, device string) (c *paho.Client, came chan downlink, stop func()) {
	tn.t.Helper()
	came = make(chan downlink, 10)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		tn.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(tn.t.Context(), time.Minute)
	defer cancel()
	c = paho.NewClient(paho.ClientConfig{Conn: conn, PacketTimeout: 20 * time.Second, OnPublishReceived: []func(paho.PublishReceived) (bool, error){
		func(r paho.PublishReceived) (bool, error) {
			var d downlink
			if err := json.Unmarshal(r.Packet.Payload, &d); err != nil {
				tn.t.Errorf("%s: %v", r.Packet.Payload, err)
			}
			came <- d
			return true, nil
		}}})
	if _, err := c.Connect(ctx, &paho.Connect{ClientID: "weir:" + tn.name + ":" + device, KeepAlive: 60, CleanStart: true, Username: tn.name + ":" + tn.secret(device), UsernameFlag: true}); err != nil {
		tn.t.Fatal(err)
	}
	if _, err := c.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "weir/" + tn.name + "/device-commands/" + device, QoS: 1}}}); err != nil {
		tn.t.Fatal(err)
	}
	return c, came, func() { _ = c.Disconnect(&paho.Disconnect{}) }
}

// commandsOverMQTT: a command for an absent device is HELD, reaches it when it is back, and its answer ends it with the value that was read.
func commandsOverMQTT(t *testing.T, w *world) {
	tn := w.tenant(t, "commanded")
	tn.plain("d")
	becomes := func(token, want string) {
		t.Helper()
		poll.Until(t, token, func() error {
			got := string(tn.must(t, "command-delivery", tn.token, fmt.Sprintf(`{commandsByToken(tokens:[%q]){status responsePayload error}}`, token), nil).Data)
			if got != `{"commandsByToken":[`+want+`]}` {
				return fmt.Errorf("%s, want %s", got, want)
			}
			return nil
		})
	}
	order := func(token string) {
		tn.must(t, "command-delivery", tn.token, fmt.Sprintf(`mutation{createCommand(request:{token:%q,deviceToken:"d",name:"read"}){command{token} rejection{code}}}`, token), nil)
	}
	order("r-1")
	becomes("r-1", `{"status":"HELD","responsePayload":null,"error":null}`)
	conformance.Shown(t, "S2-099")
	c, came, stop := tn.listening("d")
	defer stop()
	for _, token := range []string{"r-1", "r-2"} {
		if token == "r-2" {
			order(token)
		}
		var d downlink
		select {
		case d = <-came:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s does not come", token)
		}
		if d.Token != token || d.DeviceToken != "d" || d.Name != "read" || d.DispatchNonce == "" {
			t.Fatalf("%+v", d)
		}
		answer := fmt.Sprintf(`{"commandToken":%q,"dispatchNonce":%q,"success":true,"payload":21.5}`, d.Token, d.DispatchNonce)
		if _, err := c.Publish(t.Context(), &paho.Publish{Topic: "weir/commanded/command-responses/d", QoS: 1, Payload: []byte(answer)}); err != nil {
			t.Fatal(err)
		}
		becomes(token, `{"status":"SUCCESSFUL","responsePayload":"21.5","error":null}`)
	}
	conformance.Shown(t, "S2-094")
	conformance.Shown(t, "S2-100")
	conformance.Shown(t, "S2-030")
	if got := string(tn.must(t, "event-management", tn.token, `{events(criteria:{pageNumber:1,pageSize:10,deviceToken:"d",eventTypes:[6]}){results{eventType deviceToken source}}}`, nil).Data); got !=
		`{"events":{"results":[{"eventType":6,"deviceToken":"d","source":"mqtt1"},{"eventType":6,"deviceToken":"d","source":"mqtt1"}]}}` {
		t.Error(got)
	}
}
