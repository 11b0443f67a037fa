package e2e_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"weir/internal/test/conformance"
	"weir/internal/test/mqttpeer"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// proto builds messages of Protocol Buffers.
type proto []byte

func (p proto) number(field int, v uint64) proto {
	return binary.AppendUvarint(binary.AppendUvarint(p, uint64(field)<<3), v)
}

func (p proto) bytes(field int, b []byte) proto {
	return append(binary.AppendUvarint(binary.AppendUvarint(p, uint64(field)<<3|2), uint64(len(b))), b...)
}

func (p proto) double(field int, v float64) proto {
	return binary.LittleEndian.AppendUint64(binary.AppendUvarint(p, uint64(field)<<3|1), math.Float64bits(v))
}

// nodeSays begins a payload of Sparkplug B with its time and its sequence number.
func nodeSays(seq int) proto {
	return proto{}.number(1, uint64(time.Now().UnixMilli())).number(3, uint64(seq))
}

// metric adds a metric to a payload. One without a name has an alias only.
func (p proto) metric(name string, alias int, more proto) proto {
	m := proto{}
	if name != "" {
		m = m.bytes(1, []byte(name))
	}
	return p.bytes(2, append(m.number(2, uint64(alias)), more...))
}

func double(v float64) proto { return proto{}.number(4, 10).double(13, v) }
func bdSeq(n int) proto {
	return proto{}.bytes(1, []byte("bdSeq")).number(4, 4).number(11, uint64(n))
}

// sparkplugBroker is a broker that delivers STATE to whoever subscribes, unless it denies that.
type sparkplugBroker struct {
	*mqttpeer.Broker
	mu     sync.Mutex
	wills  []*packets.Connect
	before []string // filters that were subscribed to when the first message came
	denies bool
}

func startSparkplugBroker(t *testing.T, denies bool) *sparkplugBroker {
	b := &sparkplugBroker{denies: denies}
	b.Broker = &mqttpeer.Broker{
		OnConnect: func(c *packets.Connect) byte {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.wills = append(b.wills, c)
			return 0
		},
		OnPublish: func(m mqttpeer.Message) (byte, bool) {
			b.mu.Lock()
			if len(b.before) == 0 {
				for _, s := range b.Subscribed() {
					b.before = append(b.before, s.Filter)
				}
			}
			b.mu.Unlock()
			if strings.Contains(m.Topic, "/STATE/") && !b.denies {
				go b.Deliver(mqttpeer.Delivery{Topic: m.Topic, Payload: m.Payload})
			}
			return 0, true
		}}
	mqttpeer.Start(t, b.Broker, nil, false)
	return b
}

func (b *sparkplugBroker) send(topic string, p proto) {
	b.Deliver(mqttpeer.Delivery{Topic: "spBv1.0/" + topic, Payload: string(p)})
}

// states are the STATE messages that were published.
func (b *sparkplugBroker) states(t testing.TB) (out []hostState) {
	for _, m := range b.Messages() {
		if m.Topic != "spBv1.0/STATE/weir" {
			continue
		}
		var s hostState
		if err := json.Unmarshal([]byte(m.Payload), &s); err != nil || m.QoS != 1 || !m.Retain {
			t.Errorf("%+v: %v", m, err)
		}
		out = append(out, s)
	}
	return out
}

type hostState struct {
	Online    bool
	Timestamp int64
}

// rebirths are the requests for a rebirth that a node got.
func (b *sparkplugBroker) rebirths(node string) (n int) {
	for _, m := range b.Messages() {
		if m.Topic == "spBv1.0/g/NCMD/"+node && strings.Contains(m.Payload, "Node Control/Rebirth") && m.QoS == 0 && !m.Retain {
			n++
		}
	}
	return n
}

// presenceOf is what is known of the presence of a device, by its external id.
func (tn *tenant) presenceOf(external string) (s struct {
	DeviceToken, State, PresenceSource string
	Active                             bool
}, known bool) {
	var out struct {
		DeviceStatesByExternalId []struct {
			DeviceToken, State, PresenceSource string
			Active                             bool
		}
	}
	tn.states(`query($e:[String!]!){deviceStatesByExternalId(externalIds:$e){deviceToken active presenceSource}}`, map[string]any{"e": []string{external}}).into(tn.t, &out)
	if len(out.DeviceStatesByExternalId) == 0 {
		return s, false
	}
	return out.DeviceStatesByExternalId[0], true
}

// asserted waits until a device is present, or absent, by assertion.
func (tn *tenant) asserted(external string, active bool) {
	tn.t.Helper()
	poll.Until(tn.t, fmt.Sprintf("%s active %v", external, active), func() error {
		if s, known := tn.presenceOf(external); !known || s.Active != active || s.PresenceSource != "ASSERTED" {
			return fmt.Errorf("%v %+v", known, s)
		}
		return nil
	})
}

// holds waits until exactly these readings are stored, as name=value.
func (tn *tenant) holds(want ...string) {
	tn.t.Helper()
	var got []string
	for _, m := range tn.arrived(len(want)) {
		got = append(got, fmt.Sprintf("%s=%v", m.Name, m.Value))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		tn.t.Errorf("readings %q, want %q", got, want)
	}
}

// TestAHostApplicationOfSparkplug: two brokers, each of a tenant; births, data, gaps and deaths; a kill, and a stop.
func TestAHostApplicationOfSparkplug(t *testing.T) {
	t.Parallel()
	one, two := startSparkplugBroker(t, false), startSparkplugBroker(t, false)
	const source = "    - {tenant: %s, broker: {url: \"tcp://127.0.0.1:%s\"}, device_type_token: node, auto_register: true, host_id: %s, resume_within: 0s}\n"
	config := generous + "presence: {inactivity_timeout: 1s}\nsparkplug:\n  sources:\n" +
		fmt.Sprintf(source, "plant", one.Port(), "weir") + fmt.Sprintf(source, "hall", two.Port(), "weir2")
	dir := t.TempDir()
	w := start(t, testweir.Options{Dir: dir, Config: config})
	plant, hall := w.tenant(t, "plant"), w.tenant(t, "hall")
	for _, tn := range []*tenant{plant, hall} {
		tn.devices(`mutation($r:DeviceTypeCreateRequest){createDeviceType(request:$r){token}}`, map[string]any{"r": map[string]any{"token": "node"}})
	}

	// tck-id-host-topic-phid-birth-message, -birth-topic, -birth-qos, -birth-retain, -birth-payload, -birth-payload-timestamp, -death-topic, -death-qos,
	// -death-retain, -death-payload, tck-id-message-flow-phid-sparkplug-clean-session-50, -subscription
	poll.Until(t, "STATE", func() error {
		if len(one.states(t)) == 0 || len(two.Messages()) == 0 {
			return fmt.Errorf("%d", len(one.states(t)))
		}
		return nil
	})
	born := one.states(t)[0]
	one.mu.Lock()
	hello, before := one.wills[0], one.before
	one.mu.Unlock()
	if want := fmt.Sprintf(`{"online":false,"timestamp":%d}`, born.Timestamp); !born.Online || !hello.WillFlag || hello.WillTopic != "spBv1.0/STATE/weir" || hello.WillQOS != 1 ||
		!hello.WillRetain || string(hello.WillMessage) != want || !hello.CleanStart || hello.Properties.SessionExpiryInterval != nil && *hello.Properties.SessionExpiryInterval != 0 {
		t.Errorf("%+v %s", hello, hello.WillMessage)
	}
	if !slices.Equal(before, []string{"spBv1.0/#", "spBv1.0/STATE/weir"}) {
		t.Errorf("subscribed before the first message: %q", before)
	}
	if first := one.Messages()[0]; first.Topic != "spBv1.0/STATE/weir" {
		t.Errorf("the first message is %+v", first)
	}
	conformance.Shown(t, "S2-067")

	// Births and data.
	one.send("g/NBIRTH/n", nodeSays(0).bytes(2, bdSeq(4)).metric("temp", 1, double(20)).metric("on", 2, proto{}.number(4, 11).number(14, 1)).
		metric("mode", 3, proto{}.number(4, 12).bytes(15, []byte("auto"))).metric("raw", 4, proto{}.number(4, 17).bytes(16, []byte{1})))
	one.send("g/DBIRTH/n/d", nodeSays(1).metric("speed", 9, double(5)))
	one.send("g/NDATA/n", nodeSays(2).metric("", 1, proto{}.double(13, 21)))
	one.send("g/DDATA/n/d", nodeSays(3).metric("", 9, proto{}.double(13, 6)))
	plant.asserted("g/n", true)
	plant.asserted("g/n/d", true)
	conformance.Shown(t, "S2-061")
	plant.holds("temp=20", "on=1", "temp=21", "speed=5", "speed=6") // device_auth_mode is required, and no message has a credential
	conformance.Shown(t, "S2-058", "S2-059", "S2-063", "S2-064", "S2-073")
	if s, _ := plant.presenceOf("g/n/d"); !strings.HasPrefix(s.DeviceToken, "sp-g-n-d-") {
		t.Errorf("the token is %q", s.DeviceToken)
	}
	conformance.Shown(t, "S2-070")

	// Another broker with the same ids is another tenant's. Inside a tenant whoever publishes on the topic of a device is taken for it.
	two.send("g/NBIRTH/n", nodeSays(0).bytes(2, bdSeq(0)).metric("temp", 1, double(99)))
	hall.asserted("g/n", true)
	hall.holds("temp=99")
	plant.holds("temp=20", "on=1", "temp=21", "speed=5", "speed=6")
	conformance.Shown(t, "S2-071", "S2-072")

	// A gap.
	one.send("g/NDATA/n", nodeSays(5).metric("", 1, proto{}.double(13, 22)))
	poll.Until(t, "a request for a rebirth", func() error {
		if n := one.rebirths("n"); n != 1 {
			return fmt.Errorf("%d requests", n)
		}
		return nil
	})
	for _, m := range one.Messages() {
		if !strings.HasPrefix(m.Topic, "spBv1.0/") || strings.Contains(m.Topic, "/DCMD/") {
			t.Errorf("published: %+v", m)
		}
	}
	conformance.Shown(t, "S2-060", "S2-124")
	one.send("g/NBIRTH/n", nodeSays(0).bytes(2, bdSeq(4)).metric("temp", 1, double(23)).metric("on", 2, proto{}.number(4, 11).number(14, 0)).
		metric("mode", 3, proto{}.number(4, 12).bytes(15, []byte("auto"))).metric("raw", 4, proto{}.number(4, 17).bytes(16, []byte{1})))
	one.send("g/DBIRTH/n/d", nodeSays(1).metric("speed", 9, double(7)))
	plant.holds("temp=20", "on=1", "temp=21", "speed=5", "speed=6", "temp=22", "temp=23", "on=0", "speed=7")

	// Nothing comes for longer than the time after which a device is inactive that asserts nothing.
	idle := time.Now()
	poll.Until(t, "time", func() error {
		if d := time.Since(idle); d < 4*time.Second {
			return fmt.Errorf("%s", d)
		}
		return nil
	})
	plant.asserted("g/n/d", true)
	conformance.Shown(t, "S2-062")

	// Seeing itself offline it says online again, with the same time (tck-id-message-flow-hid-sparkplug-state-message-delivered).
	one.Deliver(mqttpeer.Delivery{Topic: "spBv1.0/STATE/weir", Payload: `{"online":false,"timestamp":5}`})
	poll.Until(t, "STATE again", func() error {
		if s := one.states(t); len(s) != 2 || s[1] != born {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})

	// Deaths: of a device, of another session, of the node.
	one.send("g/DDEATH/n/d", nodeSays(2))
	plant.asserted("g/n/d", false)
	stale := func(external string, want bool) {
		t.Helper()
		var out struct{ LatestMeasurements []struct{ Stale bool } }
		s, _ := plant.presenceOf(external)
		a := plant.states(`query($d:String!){latestMeasurements(deviceToken:$d){stale}}`, map[string]any{"d": s.DeviceToken})
		a.into(t, &out)
		if len(out.LatestMeasurements) == 0 || out.LatestMeasurements[0].Stale != want {
			t.Errorf("the latest values of %s %q: %s, want stale %v", external, s.DeviceToken, a.raw, want)
		}
	}
	stale("g/n/d", true)
	stale("g/n", false)
	one.send("g/DBIRTH/n/d", nodeSays(3).metric("speed", 9, double(8)))
	plant.asserted("g/n/d", true)
	one.send("g/NDEATH/n", proto{}.bytes(2, bdSeq(3)))
	one.send("g/NDEATH/n", proto{}.bytes(2, bdSeq(4)))
	plant.asserted("g/n", false)
	plant.asserted("g/n/d", false)
	if l := plant.ledger("sparkplug"); l.Refused+l.Dropped+l.DeadLetter != 0 || l.Readings != 10 {
		t.Errorf("%+v", l)
	}

	// Killed with a node online: what was said before is there, and the node is asked for its births.
	one.send("g/NBIRTH/n", nodeSays(0).bytes(2, bdSeq(5)).metric("temp", 1, double(30)))
	plant.asserted("g/n", true)
	plant.arrived(11)
	asked := one.rebirths("n")
	w.Kill()
	w = &world{Proc: testweir.Start(t, testweir.Options{Dir: dir, Config: config})}
	w.login()
	plant = w.enter(t, "plant")
	poll.Until(t, "a request for a rebirth", func() error {
		if one.rebirths("n") == asked {
			return fmt.Errorf("none")
		}
		return nil
	})
	one.send("g/NBIRTH/n", nodeSays(0).bytes(2, bdSeq(5)).metric("temp", 1, double(31)))
	plant.arrived(12)
	plant.asserted("g/n", true)

	// A stop.
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	all := one.states(t)
	if last := all[len(all)-1]; last.Online || last.Timestamp <= all[len(all)-2].Timestamp {
		t.Errorf("after a stop: %+v", all)
	}
	conformance.Shown(t, "S2-068")
}

// TestSparkplugOverTheOpenTopics: a node speaks to the open topics of the instance, which the host reads without a socket, before and after a kill.
func TestSparkplugOverTheOpenTopics(t *testing.T) {
	t.Parallel()
	const config = generous + `broker: {open_topics: "127.0.0.1:0", open_topics_tenant: plant}
sparkplug: {sources: [{tenant: plant, broker: {url: local}, device_type_token: node, auto_register: true}]}
`
	dir := t.TempDir()
	w := start(t, testweir.Options{Dir: dir, Config: config})
	plant := w.tenant(t, "plant")
	plant.devices(`mutation($r:DeviceTypeCreateRequest){createDeviceType(request:$r){token}}`, map[string]any{"r": map[string]any{"token": "node"}})
	plant.plain("gateway")
	secret := plant.secret("gateway")
	publish := func(messages ...[2]string) {
		t.Helper()
		poll.True(t, "the source is up", func() bool { return w.metric(t, `weir_source_connected{source="sparkplug:weir"}`) == 1 })
		var at struct{ Listeners struct{ OpenTopics string } }
		if err := json.Unmarshal([]byte(w.Run("", "status", "--json")), &at); err != nil {
			t.Fatal(err)
		}
		m, code, err := testweir.ConnectMQTT(at.Listeners.OpenTopics, "node", "plant:"+secret, "")
		if err != nil || code != 0 {
			t.Fatal(code, err)
		}
		defer m.Close()
		for i, p := range messages {
			if err := m.Publish("spBv1.0/g/"+p[0], uint16(i+1), false, []byte(p[1])); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Puback(); err != nil {
				t.Fatal(err)
			}
		}
	}
	birth := [2]string{"NBIRTH/n", string(nodeSays(0).bytes(2, bdSeq(1)).metric("temp", 1, double(20)))}
	publish(birth, [2]string{"NDATA/n", string(nodeSays(1).metric("", 1, proto{}.double(13, 21)))})
	plant.holds("temp=20", "temp=21")
	plant.asserted("g/n", true)
	w.Kill()
	w = &world{Proc: testweir.Start(t, testweir.Options{Dir: dir, Config: config})}
	w.login()
	plant = w.enter(t, "plant")
	publish(birth, [2]string{"NDEATH/n", string(proto{}.bytes(2, bdSeq(1)))})
	plant.holds("temp=20", "temp=21", "temp=20")
	plant.asserted("g/n", false)
}

// TestABrokerThatDeniesSTATE acknowledges what it does not deliver, as brokers of MQTT 3.1.1 do. The source is down, and says why.
func TestABrokerThatDeniesSTATE(t *testing.T) {
	t.Parallel()
	b := startSparkplugBroker(t, true)
	w := start(t, testweir.Options{Config: "sparkplug:\n  sources:\n" +
		fmt.Sprintf("    - {tenant: first, broker: {url: \"tcp://127.0.0.1:%s\"}, device_type_token: node, auto_register: true}\n", b.Port())})
	poll.Until(t, "the denial", func() error {
		if log := w.Stderr(); !strings.Contains(log, "spBv1.0/STATE/weir does not come back within 10s") {
			return fmt.Errorf("%d bytes of log", len(log))
		}
		m, err := w.Scrape(t.Context())
		if err != nil || m["weir_sparkplug_state_denied"] != 1 {
			return fmt.Errorf("%v, %v", m["weir_sparkplug_state_denied"], err)
		}
		return nil
	})
	conformance.Shown(t, "S2-069")
}
