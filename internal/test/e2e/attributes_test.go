package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
)

// shared is a set of attributes as a device gets it.
type shared struct {
	Revision   string
	Attributes json.RawMessage
}

// reading connects a device over MQTT 5 and subscribes to its attributes. stop ends the connection; gone is closed when it ends.
func (tn *tenant) reading(device string) (came chan shared, gone chan struct{}, stop func()) {
	tn.t.Helper()
	came, gone = make(chan shared, 10), make(chan struct{})
	conn, err := net.Dial("tcp", tn.MQTT)
	if err != nil {
		tn.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(tn.t.Context(), time.Minute)
	defer cancel()
	c := paho.NewClient(paho.ClientConfig{Conn: conn, PacketTimeout: 20 * time.Second,
		OnServerDisconnect: func(*paho.Disconnect) { close(gone) },
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(r paho.PublishReceived) (bool, error) {
			var s shared
			if err := json.Unmarshal(r.Packet.Payload, &s); err != nil || r.Packet.Retain || r.Packet.QoS != 1 {
				tn.t.Errorf("%s: %v, QoS %d, retain %v", r.Packet.Payload, err, r.Packet.QoS, r.Packet.Retain)
			}
			came <- s
			return true, nil
		}}})
	if _, err := c.Connect(ctx, &paho.Connect{ClientID: "weir:" + tn.name + ":" + device, KeepAlive: 60, CleanStart: true, Username: tn.name + ":" + tn.secret(device), UsernameFlag: true}); err != nil {
		tn.t.Fatal(err)
	}
	if _, err := c.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "weir/" + tn.name + "/device-attributes/" + device, QoS: 1}}}); err != nil {
		tn.t.Fatal(err)
	}
	return came, gone, func() { _ = c.Disconnect(&paho.Disconnect{}) }
}

// attributesOfADevice: what the API, a site file and a delete make of the SHARED attributes reaches the device over MQTT at
// once. The devices of a disabled tenant read nothing more.
func attributesOfADevice(t *testing.T, w *world) {
	tn := w.tenant(t, "attributed")
	tn.plain("d")
	set := func(scope, key, typ, value string) {
		tn.must(t, "device-management", tn.token, fmt.Sprintf(`mutation{setEntityAttribute(request:{entityType:"device",entity:"d",scope:%q,attrKey:%q,valueType:%q,value:%q}){attrKey}}`,
			scope, key, typ, value), nil)
	}
	set("SHARED", "setpoint", "DOUBLE", "21.5")
	set("SERVER", "secret", "STRING", "not yours")
	came, gone, stop := tn.reading("d")
	defer stop()
	var last shared
	comes := func(what, want string) {
		t.Helper()
		select {
		case last = <-came:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: nothing comes", what)
		}
		if string(last.Attributes) != want || last.Revision == "" {
			t.Errorf("%s: %s, want %s", what, last.Attributes, want)
		}
	}
	comes("subscribed", `{"setpoint":21.5}`)
	first := last.Revision
	set("SHARED", "on", "BOOLEAN", "true")
	comes("another attribute", `{"on":true,"setpoint":21.5}`)
	set("SERVER", "secret", "STRING", "still not yours")
	tn.must(t, "device-management", tn.token, `mutation{deleteEntityAttribute(entityType:"device",entity:"d",scope:"SHARED",attrKey:"on")}`, nil)
	if comes("a delete", `{"setpoint":21.5}`); last.Revision != first {
		t.Errorf("the same set has the revisions %s and %s", first, last.Revision)
	}
	site := filepath.Join(t.TempDir(), "site.yaml")
	if err := os.WriteFile(site, []byte("version: 1\ntenants: [{token: attributed, devices: [{token: d, sharedAttributes: {}}]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tn.Run("", "site", "apply", site)
	comes("a site file", `{}`)
	tn.Run("", "tenant", "disable", "attributed", "--yes")
	select {
	case <-gone:
	case <-time.After(20 * time.Second):
		t.Error("the connection of a disabled tenant's device stays")
	}
}
