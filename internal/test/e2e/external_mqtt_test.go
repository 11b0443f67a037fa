package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"weir/internal/test/conformance"
	"weir/internal/test/mqttpeer"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// foreign is a broker of somebody else that Weir reads.
type foreign struct {
	*mqttpeer.Broker
	mu      sync.Mutex
	hellos  []*packets.Connect
	refuses atomic.Bool
	id      uint16
}

func startForeign(t *testing.T) *foreign {
	b := &foreign{}
	b.Broker = &mqttpeer.Broker{
		OnConnect: func(c *packets.Connect) byte {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.hellos = append(b.hellos, c)
			return 0
		},
		OnSubscribe: func(_ string, qos byte) byte {
			if b.refuses.Load() {
				return 0x87
			}
			return qos
		},
	}
	mqttpeer.Start(t, b.Broker, nil, false)
	return b
}

// source is the configuration of an instance that reads the broker.
func (b *foreign) source(more string) string {
	return fmt.Sprintf("%sinstance: {node: gateway-north}\nexternal_mqtt:\n  %s\n  sources:\n    - {id: plant, url: \"mqtt://127.0.0.1:%s\"}\n", generous, more, b.Port())
}

// hello is the newest CONNECT.
func (b *foreign) hello() *packets.Connect {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.hellos) == 0 {
		return nil
	}
	return b.hellos[len(b.hellos)-1]
}

// send delivers an event of a device at QoS 1 and returns the packet's identifier.
func (b *foreign) send(tn *tenant, device, body string) uint16 {
	b.id++
	b.Deliver(mqttpeer.Delivery{Topic: "site/" + tn.name + "/devices/" + device + "/events", Payload: strings.TrimSuffix(body, "}") + "," + tn.as(device) + "}", QoS: 1, PacketID: b.id})
	return b.id
}

// read waits until the source is subscribed on one of so many connections.
func (b *foreign) read(t testing.TB, times int) {
	t.Helper()
	poll.Until(t, "the source is subscribed", func() error {
		if s := b.Subscribed(); len(s) == 0 || b.Connects() < times {
			return fmt.Errorf("%+v, %d connections", s, b.Connects())
		}
		return nil
	})
}

func (b *foreign) acked(t testing.TB, id uint16) {
	t.Helper()
	poll.True(t, fmt.Sprintf("message %d is acknowledged", id), func() bool { return slices.Contains(b.Acked(), id) })
}

// TestABrokerThatIsRead: what a broker of somebody else delivers is stored as what Weir's own listeners take, over cuts, a kill and a stop.
func TestABrokerThatIsRead(t *testing.T) {
	t.Parallel()
	b := startForeign(t)
	dir := t.TempDir()
	w := start(t, testweir.Options{Dir: dir, Config: b.source("")})
	tn := w.tenant(t, "site")
	tn.plain("d", "http", "mqtt")
	b.read(t, 1)
	hello := b.hello()
	if s := b.Subscribed()[0]; s.QoS != 1 || hello.UsernameFlag || hello.PasswordFlag {
		t.Errorf("%+v %+v", s, hello)
	}
	conformance.Shown(t, "S2-041")
	if id := hello.ClientID; !strings.HasPrefix(id, "weir:weir:plant:") || len(id) <= 23 {
		t.Errorf("the client identifier is %q", id)
	}
	conformance.Shown(t, "S2-051")
	if m := hello.Properties.ReceiveMaximum; m == nil || *m != 105+128 {
		t.Errorf("the Receive Maximum is %v", m)
	}

	alerts := w.Run("", "alerts")
	for _, name := range []string{"DurableStalledBehindStream", "DurableLostUnread", "CaptureLeaderChanged", "ExternalMqttSourceNotReadByOnePod"} {
		if !strings.Contains(alerts, name) {
			t.Errorf("there is no alert %s", name)
		}
	}
	if w.metric(t, `weir_eventsources_external_mqtt_owner{source="plant"}`) != 1 || w.metric(t, `weir_eventsources_total_msg_not_owner{source="plant"}`) != 0 ||
		w.metric(t, `weir_eventsources_total_msg_publish_failed{source="plant"}`) != 0 {
		t.Error("the metrics of a source")
	}
	conformance.Shown(t, "S2-123")

	// One body, three ways in.
	when := time.Now().Add(-time.Minute).UTC().Truncate(time.Millisecond)
	body := measured("temp", "21.5", at(when))
	b.acked(t, b.send(tn, "d", body))
	tn.connect("mqtt").send(strings.TrimSuffix(body, "}") + "," + tn.as("mqtt") + "}")
	tn.kept(strings.TrimSuffix(body, "}") + "," + tn.as("http") + "}")
	all := tn.arrived(3)
	for _, m := range all[1:] {
		if m.Name != all[0].Name || m.Value != all[0].Value || m.OccurredTime != all[0].OccurredTime || m.Value != 21.5 {
			t.Errorf("%+v and %+v", all[0], m)
		}
	}
	conformance.Shown(t, "S2-012")

	// The broker restarts.
	b.Cut()
	b.read(t, 2)
	b.acked(t, b.send(tn, "d", measured("temp", "22")))
	tn.arrived(4)
	conformance.Shown(t, "S2-047")

	// A kill: what was acknowledged to the broker is there.
	first := b.id + 1
	for i := range 100 {
		b.send(tn, "d", measured("temp", fmt.Sprint(i)))
	}
	w.Kill()
	acked := 0
	for _, id := range b.Acked() {
		if id >= first {
			acked++
		}
	}
	w = &world{Proc: testweir.Start(t, testweir.Options{Dir: dir, Config: b.source("publish_window: 7")})}
	w.login()
	tn = w.enter(t, "site")
	b.read(t, 3)
	if _, n := tn.measurements(map[string]any{"pageSize": 1}); n < 4+acked {
		t.Errorf("%d readings, %d were acknowledged", n, 4+acked)
	}
	conformance.Shown(t, "S2-044")
	if m := b.hello().Properties.ReceiveMaximum; m == nil || *m != 105+7 {
		t.Errorf("with publish_window 7 the Receive Maximum is %v", m)
	}
	conformance.Shown(t, "S2-045")
}

// TestABrokerThatRefusesASubscription: no other way in is open until it is granted.
func TestABrokerThatRefusesASubscription(t *testing.T) {
	t.Parallel()
	b := startForeign(t)
	b.refuses.Store(true)
	w := &world{Proc: testweir.Start(t, testweir.Options{Config: b.source(""), Serving: true})} // /readyz may never say yes
	poll.True(t, "the instance answers queries", func() bool { return strings.Contains(w.Stderr(), `"msg":"ready"`) })
	w.admin()
	tn := w.tenant(t, "site")
	tn.plain("d")
	event := func() string { return strings.TrimSuffix(measured("temp", "1"), "}") + "," + tn.as("d") + "}" }
	closed := func() error {
		if resp := tn.post(event()); resp.StatusCode != http.StatusServiceUnavailable {
			return errors.New(resp.Status)
		}
		if m, err := testweir.DialMQTT(tn.MQTT, "weir", tn.name, "d", tn.secret("d")); err == nil {
			_ = m.Close()
			return errors.New("MQTT is open")
		}
		resp, text := w.get(t, "/readyz")
		if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "plant") || !strings.Contains(text, "SUBACK 0x87") {
			return fmt.Errorf("/readyz: %s %s", resp.Status, text)
		}
		return nil
	}
	open := func() error {
		if resp := tn.post(event()); resp.StatusCode != http.StatusAccepted {
			return errors.New(resp.Status)
		}
		m, err := testweir.DialMQTT(tn.MQTT, "weir", tn.name, "d", tn.secret("d"))
		if err != nil {
			return err
		}
		return m.Close()
	}
	poll.Until(t, "refused at the start", closed)
	conformance.Shown(t, "S2-049")
	tries := b.Connects()
	poll.True(t, "it is tried again and refused again", func() bool { return b.Connects() > tries })
	b.refuses.Store(false)
	poll.Until(t, "granted", open)
	conformance.Shown(t, "S2-050")
	b.refuses.Store(true)
	b.Cut()
	poll.Until(t, "refused after a reconnect", closed)
	b.refuses.Store(false)
	poll.Until(t, "granted again", open)
	conformance.Shown(t, "S2-048")
}

// TestABrokerThatSendsTooMuch: what is over the ceiling is acknowledged, dropped and counted; the broker is told nothing.
func TestABrokerThatSendsTooMuch(t *testing.T) {
	t.Parallel()
	b := startForeign(t)
	w := start(t, testweir.Options{Config: strings.Replace(b.source(""), generous, tight, 1)})
	tn := w.tenant(t, "site")
	tn.plain("d")
	b.read(t, 1)
	b.acked(t, b.send(tn, "d", many("temp", 0, 250)))
	b.acked(t, b.send(tn, "d", many("temp", 1000, 200)))
	if n := w.metric(t, `weir_source_dropped_total{reason="ceiling",source="plant"}`); n != 1 {
		t.Errorf("%v dropped", n)
	}
	if l := tn.ledger("external-mqtt"); l.Dropped != 1 || l.Received != 2 {
		t.Errorf("%+v", l)
	}
	if b.Connects() != 1 || len(b.Messages()) > 0 {
		t.Errorf("%d connections, %d messages of ours", b.Connects(), len(b.Messages()))
	}
	if _, n := tn.measurements(map[string]any{"pageSize": 1}); n != 250 {
		t.Errorf("%d readings", n)
	}
	conformance.Shown(t, "S2-042")
}

// TestACommandForADeviceThatIsOnlyHeard: a device that sends over HTTP, or by another broker, has no connection of its own. Its commands leave, and end
// without an answer.
func TestACommandForADeviceThatIsOnlyHeard(t *testing.T) {
	t.Parallel()
	b := startForeign(t)
	w := start(t, testweir.Options{Config: b.source("") + fmt.Sprintf("auth: {service_secret: %q}\n", serviceSecret)})
	c := w.commander(t, "site", "d", "http")
	b.read(t, 1)
	b.acked(t, b.send(c.tenant, "d", measured("temp", "1")))
	c.kept(strings.TrimSuffix(measured("temp", "1"), "}") + "," + c.as("http") + "}")
	c.arrived(2)
	soon := time.Now().Add(65 * time.Second).UTC().Format(time.RFC3339)
	for _, device := range []string{"d", "http"} {
		c.must(fmt.Sprintf(`mutation{createCommand(request:{token:%q,deviceToken:%q,name:"open",expiresAt:%q}){command{token}}}`, "for-"+device, device, soon))
		c.becomes("for-"+device, "SENT")
	}
	for _, device := range []string{"d", "http"} {
		if row := c.becomes("for-"+device, "TIMEOUT"); row.SentTime == nil {
			t.Errorf("%+v", row)
		}
	}
	conformance.Shown(t, "S2-095")
}

// TestACommandForADeviceBehindABroker: it is held until the device is heard, published there, and completed by what the mapping names.
func TestACommandForADeviceBehindABroker(t *testing.T) {
	t.Parallel()
	b := startForeign(t)
	const form = `%sauth: {service_secret: %q}
external_mqtt:
  sources:
    - id: plant
      url: "mqtt://127.0.0.1:%s"
      tenant: site
      map:
        - {topic: "asked/{device}/{metric}", decode: number, commands: {topic: "asked/{device}/command", response: "asked/{device}/response"}}
        - {topic: "plain/{device}/{metric}", decode: number, commands: {topic: "plain/{device}/set", payload: $.payload.value, complete: published}}
        - {decode: zigbee2mqtt}
`
	w := start(t, testweir.Options{Config: fmt.Sprintf(form, generous, serviceSecret, b.Port())})
	c := w.commander(t, "site", "asked", "plain", "lamp")
	b.read(t, 1)
	order := func(token, device, name, payload string) {
		c.must(fmt.Sprintf(`mutation{createCommand(request:{token:%q,deviceToken:%q,name:%q,payload:%q}){command{token}}}`, token, device, name, payload))
	}
	heard := func(topic, payload string) {
		b.id++
		b.Deliver(mqttpeer.Delivery{Topic: topic, Payload: payload, QoS: 1, PacketID: b.id})
		b.acked(t, b.id)
	}
	published := func(topic string) (got mqttpeer.Message) {
		poll.True(t, "a message on "+topic, func() bool {
			i := slices.IndexFunc(b.Messages(), func(m mqttpeer.Message) bool { return m.Topic == topic })
			if i >= 0 {
				got = b.Messages()[i]
			}
			return i >= 0
		})
		return got
	}

	order("c1", "asked", "open", `{"n":1}`)
	c.becomes("c1", "HELD")
	heard("asked/asked/t", "1")
	var sent struct{ Token, DispatchNonce string }
	m := published("asked/asked/command")
	if err := json.Unmarshal([]byte(m.Payload), &sent); err != nil || sent.Token != "c1" || m.QoS != 1 || m.Retain {
		t.Fatalf("%+v, %v", m, err)
	}
	c.becomes("c1", "SENT")
	heard("asked/asked/response", fmt.Sprintf(`{"commandToken":"c1","success":false,"error":"stuck","dispatchNonce":%q}`, sent.DispatchNonce))
	c.becomes("c1", "FAILED")

	heard("plain/plain/t", "1")
	order("c2", "plain", "set", `{"value":17.5}`)
	if m := published("plain/plain/set"); m.Payload != "17.5" {
		t.Errorf("%+v", m)
	}
	if row := c.becomes("c2", "SUCCESSFUL"); row.SentTime == nil {
		t.Errorf("%+v", row)
	}

	heard("zigbee2mqtt/lamp", `{"state":"OFF"}`)
	order("c3", "lamp", "set", `{"state":"ON"}`)
	if m := published("zigbee2mqtt/lamp/set"); m.Payload != `{"state":"ON"}` {
		t.Errorf("%+v", m)
	}
	c.becomes("c3", "SENT")
	heard("zigbee2mqtt/lamp", `{"state":"ON"}`)
	c.becomes("c3", "SUCCESSFUL")
}

// TestTheOpenTopicsOfTheInstanceAreRead without a socket and a credential, whatever their clients need.
func TestTheOpenTopicsOfTheInstanceAreRead(t *testing.T) {
	t.Parallel()
	const form = `%sbroker: {open_topics: "127.0.0.1:0", open_topics_tenant: site}
external_mqtt:
  sources:
    - {id: inside, url: local, tenant: site, map: [{topic: "hall/{device}/{metric}", decode: number}]}
`
	dir := t.TempDir()
	w := start(t, testweir.Options{Dir: dir, Config: fmt.Sprintf(form, generous)})
	tn := w.tenant(t, "site")
	tn.plain("d")
	publish := func(value string) {
		t.Helper()
		var at struct{ Listeners struct{ OpenTopics string } }
		if err := json.Unmarshal([]byte(w.Run("", "status", "--json")), &at); err != nil {
			t.Fatal(err)
		}
		m, code, err := testweir.ConnectMQTT(at.Listeners.OpenTopics, "node", "site:"+tn.secret("d"), "")
		if err != nil || code != 0 {
			t.Fatal(code, err)
		}
		defer m.Close()
		if err := m.Publish("hall/d/temp", 1, false, []byte(value)); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Puback(); err != nil {
			t.Fatal(err)
		}
	}
	up := func() bool {
		return strings.Contains(w.Run("", "source", "show", "inside"), "inside reads local") && w.metric(t, `weir_source_connected{source="inside"}`) == 1
	}
	poll.True(t, "the source is up", up)
	publish("21.5")
	tn.arrived(1)
	w.Kill()
	w = &world{Proc: testweir.Start(t, testweir.Options{Dir: dir, Config: fmt.Sprintf(form, generous)})}
	w.login()
	tn = w.enter(t, "site")
	poll.True(t, "the source is up again", up)
	publish("22")
	tn.arrived(2)
}
