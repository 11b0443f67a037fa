package mqttsource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/ingest"
	"weir/ingest/links"
	"weir/internal/setting"
	"weir/internal/test/conformance"
	"weir/internal/test/mqttpeer"
	"weir/internal/test/poll"
	"weir/model"
	"weir/presence"
	"weir/registry"

	"net"
)

// world is what stands around a source: an intake that answers as a test says, a registry with one device.
type world struct {
	*testing.T
	broker *mqttpeer.Broker
	reg    *prometheus.Registry

	answer    func(a *ingest.Arrival) (ingest.Answer, bool) // false: not now; nil: stored
	suspended atomic.Pointer[string]
	suspends  atomic.Int64

	mu       sync.Mutex
	got      []string
	waiting  []func(ingest.Answer)
	dropped  []ingest.Reason
	presence []string
	made     int
	answers  []model.Response
	desk     *desk // nil: there is none
}

func (w *world) note(a *ingest.Arrival) {
	if a.Answer != nil {
		w.mu.Lock()
		w.answers = append(w.answers, *a.Answer)
		w.mu.Unlock()
		return
	}
	var text strings.Builder
	text.WriteString(a.Tenant + " " + a.Topic)
	switch {
	case a.Fault != "":
		text.WriteString(" fault " + a.Fault)
	case a.Answers:
		text.WriteString(" answers " + string(a.Body))
	case a.Message != nil:
		for _, r := range a.Message.Measurements {
			text.WriteString(fmt.Sprintf(" %s=%v", r.Metric, r.Value))
		}
	case a.Report != nil:
		for _, r := range a.Report.Attributes {
			text.WriteString(fmt.Sprintf(" %s:%s", r.Key, r.Value))
		}
	default:
		text.WriteString(" " + string(a.Body))
	}
	if a.Conn != nil {
		text.WriteString(fmt.Sprintf(" as %d", a.Conn.DeviceID))
	}
	if a.Dup {
		text.WriteString(" dup")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got = append(w.got, text.String())
}

func (w *world) Accept(ctx context.Context, a *ingest.Arrival, done func(ingest.Answer)) {
	w.note(a)
	if w.answer == nil {
		done(ingest.Answer{Outcome: ingest.Stored})
		return
	}
	if answer, now := w.answer(a); now {
		done(answer)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = append(w.waiting, done)
}

func (w *world) AcceptAll(ctx context.Context, as []*ingest.Arrival, done func(ingest.Answer, int)) {
	for _, a := range as[1:] {
		w.note(a)
	}
	w.Accept(ctx, as[0], func(a ingest.Answer) { done(a, -1) })
}

func (w *world) Received(string, string, string, int) ingest.Packet { return ingest.Packet{} }

func (w *world) Drop(_ ingest.Packet, reason ingest.Reason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropped = append(w.dropped, reason)
}

func (w *world) Presence(_ context.Context, _, _ string, b model.Binding, p model.Presence, done func(ingest.Answer)) {
	w.mu.Lock()
	w.presence = append(w.presence, b.Device+" "+p.State.String())
	w.mu.Unlock()
	done(ingest.Answer{Outcome: ingest.Stored})
}

func (w *world) Suspended() string {
	if s := w.suspended.Load(); s != nil {
		return *s
	}
	return ""
}

func (w *world) Adopt(_ context.Context, a registry.Adoption) (model.Binding, bool, error) {
	b := model.Binding{Tenant: a.Tenant, TenantID: a.TenantID, Device: strings.ReplaceAll(a.ExternalID, "/", "-"), DeviceID: int64(len(a.ExternalID))}
	switch {
	case strings.HasPrefix(a.ExternalID, "d"):
		return b, false, nil
	case !a.Make:
		return model.Binding{}, false, registry.ErrNotAdopted
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made++
	return b, true, nil
}

func (w *world) messages() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.got)
}

func newWorld(t *testing.T, b *mqttpeer.Broker) *world {
	return &world{T: t, broker: mqttpeer.Start(t, b, nil, false), reg: prometheus.NewRegistry()}
}

// start runs a transport with one source until the test ends.
func (w *world) start(change func(*Settings)) *Transport {
	w.Helper()
	var cfg Settings
	setting.SetDefaults(&cfg)
	var s Source
	setting.SetDefaults(&s)
	s.ID, s.URL, s.Tenant = "plant", "mqtt://127.0.0.1:"+w.broker.Port(), "acme"
	cfg.Sources = []Source{s}
	change(&cfg)
	deps := Deps{Intake: w, Adopter: w,
		Tenant: func(token string) (int64, bool, bool) { return 7, token != "off", token != "none" },
		Link:   links.New(func() time.Duration { return 0 }).Link,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
		Suspend: func(reason string) func() {
			w.suspended.Store(&reason)
			w.suspends.Add(1)
			return func() { w.suspended.Store(nil) }
		}, Logger: slog.New(slog.DiscardHandler), Registerer: w.reg}
	if w.desk != nil {
		deps.Desk = w.desk
	}
	t, err := New(Config{InstanceID: "weir", Node: "n1", Settings: cfg, Timing: presence.Timing{Grace: time.Minute, Check: time.Hour}}, deps)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- t.Run(ctx) }()
	w.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
	return t
}

func (w *world) awaitUp(t *Transport) {
	w.Helper()
	poll.True(w, "the source is up", func() bool { return t.Sources()[0].State == ingest.SourceUp })
}

func (w *world) awaitMessages(want ...string) {
	w.Helper()
	poll.Until(w, "the messages", func() error {
		if got := w.messages(); !slices.Equal(got, want) {
			return fmt.Errorf("got %q, want %q", got, want)
		}
		return nil
	})
}

func mapped(ms ...Mapping) func(*Settings) {
	return func(s *Settings) {
		for _, m := range ms {
			if m.TimeFormat == "" {
				m.TimeFormat = "rfc3339"
			}
			if m.Commands.Complete == "" {
				m.Commands.Complete = byResponse
			}
			s.Sources[0].Map = append(s.Sources[0].Map, m)
		}
	}
}

// TestAMessageIsAcknowledgedOnceItIsSynced, and not before; what comes later waits for it.
func TestAMessageIsAcknowledgedOnceItIsSynced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &mqttpeer.Broker{})
	w.answer = func(a *ingest.Arrival) (ingest.Answer, bool) {
		return ingest.Answer{Outcome: ingest.Stored}, !strings.Contains(string(a.Body), "held")
	}
	tr := w.start(func(*Settings) {})
	w.awaitUp(tr)
	w.broker.Deliver(mqttpeer.Delivery{Topic: "x/acme/devices/d1/events", Payload: "held", QoS: 1, PacketID: 1})
	w.broker.Deliver(mqttpeer.Delivery{Topic: "x/acme/devices/d1/events", Payload: "stored", QoS: 1, PacketID: 2, Dup: true})
	w.broker.Deliver(mqttpeer.Delivery{Topic: "x/acme/device-commands/d1", Payload: "no event", QoS: 1, PacketID: 3})
	w.awaitMessages("acme d1 held", "acme d1 stored dup")
	poll.True(t, "three wait for their acknowledgement", func() bool {
		s := tr.Sources()[0]
		return s.Counts.Unacknowledged == 3 && s.Ignored[ignoredTopic] == 1
	})
	if acked := w.broker.Acked(); len(acked) > 0 {
		t.Errorf("%v are acknowledged before the sync", acked)
	}
	w.mu.Lock()
	release := w.waiting[0]
	w.mu.Unlock()
	release(ingest.Answer{Outcome: ingest.Stored})
	poll.True(t, "all are acknowledged in order", func() bool { return slices.Equal(w.broker.Acked(), []uint16{1, 2, 3}) })
}

// TestMappedMessages: readings with the device of the topic, attributes beside them, and what is ignored or dropped is acknowledged and counted.
func TestMappedMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &mqttpeer.Broker{})
	tr := w.start(func(s *Settings) {
		mapped(Mapping{Topic: "n/{device}/{metric}", Decode: "number"}, Mapping{Topic: "j/{device}", Decode: "json"}, Mapping{Topic: "e/{tenant}/{device}", Decode: "event"})(s)
		s.Sources[0].Attributes = true
	})
	w.awaitUp(tr)
	id := uint16(0)
	send := func(d mqttpeer.Delivery) {
		id++
		d.QoS, d.PacketID = 1, id
		w.broker.Deliver(d)
	}
	send(mqttpeer.Delivery{Topic: "n/d1/t", Payload: "21.5"})
	w.awaitMessages("acme d1 t=21.5 as 2")
	send(mqttpeer.Delivery{Topic: "n/d1/t", Payload: "warm"})
	w.awaitMessages("acme d1 t=21.5 as 2", "acme d1 fault external_mqtt.sources[0].map[0]: the payload is neither a number nor one of the words")
	send(mqttpeer.Delivery{Topic: "n/other/t", Payload: "1"})
	send(mqttpeer.Delivery{Topic: "n/other/u", Payload: "1"})
	send(mqttpeer.Delivery{Topic: "n/d1/t", Payload: "1", Retain: true})
	send(mqttpeer.Delivery{Topic: "unmapped", Payload: "1"})
	send(mqttpeer.Delivery{Topic: "e/off/d1", Payload: "{}"})
	send(mqttpeer.Delivery{Topic: "e/none/d1", Payload: "{}"})
	poll.True(t, "eight acknowledgements", func() bool { return len(w.broker.Acked()) == 8 })
	s := tr.Sources()[0]
	if s.Dropped["unknown-device"] != 2 || s.Dropped["tenant-disabled"] != 1 || s.Dropped["unknown-tenant"] != 1 || s.Ignored["retained"] != 1 || s.Ignored["topic"] != 1 ||
		!slices.Equal(s.Unknown, []string{"other"}) || s.Counts.Received != 8 {
		t.Errorf("%+v", s)
	}
	send(mqttpeer.Delivery{Topic: "j/d2", Payload: `{"a":1,"mode":"auto"}`})
	send(mqttpeer.Delivery{Topic: "e/globex/d3", Payload: `{"x":1}`})
	poll.True(t, "ten acknowledgements", func() bool { return len(w.broker.Acked()) == 10 })
	got := w.messages()[2:]
	slices.Sort(got)
	if want := []string{"acme d2 a=1 as 2", "acme d2 mode:auto as 2", `globex d3 {"x":1} as 2`}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if err := testutil.GatherAndCompare(w.reg, strings.NewReader(`
# HELP weir_eventsources_external_mqtt_owner 1 on the node that reads the source, else 0.
# TYPE weir_eventsources_external_mqtt_owner gauge
weir_eventsources_external_mqtt_owner{source="plant"} 1
# HELP weir_source_connected 1 while the source is connected to its broker and subscribed, else 0.
# TYPE weir_source_connected gauge
weir_source_connected{source="plant"} 1
`), "weir_eventsources_external_mqtt_owner", "weir_source_connected"); err != nil {
		t.Error(err)
	}
}

// TestDevicesAreMadeFromMessages when the source says so.
func TestDevicesAreMadeFromMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &mqttpeer.Broker{})
	tr := w.start(func(s *Settings) {
		mapped(Mapping{Topic: "{device...}", Decode: "json"})(s)
		s.Sources[0].AutoRegister, s.Sources[0].DeviceType = true, "t"
	})
	w.awaitUp(tr)
	w.broker.Deliver(mqttpeer.Delivery{Topic: "hall/lamp", Payload: `{"v":1}`})
	w.awaitMessages("acme hall-lamp v=1 as 9")
	if s := tr.Sources()[0]; s.Counts.DevicesMade != 1 {
		t.Errorf("%+v", s)
	}
}

// TestWhatIsDroppedIsAcknowledged and what the log does not take is not: the session ends, and the broker delivers it again.
func TestWhatIsDroppedIsAcknowledged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &mqttpeer.Broker{})
	var broken atomic.Bool
	w.answer = func(a *ingest.Arrival) (ingest.Answer, bool) {
		switch string(a.Body) {
		case "over":
			return ingest.Answer{Outcome: ingest.Dropped, Reason: ingest.ReasonCeiling}, true
		case "broken":
			if broken.CompareAndSwap(false, true) {
				return ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonUnavailable}, true
			}
		}
		return ingest.Answer{Outcome: ingest.Stored}, true
	}
	tr := w.start(func(*Settings) {})
	w.awaitUp(tr)
	w.broker.Deliver(mqttpeer.Delivery{Topic: "x/acme/devices/d1/events", Payload: "over", QoS: 1, PacketID: 1})
	poll.True(t, "it is acknowledged", func() bool { return slices.Equal(w.broker.Acked(), []uint16{1}) })
	w.broker.Deliver(mqttpeer.Delivery{Topic: "x/acme/devices/d1/events", Payload: "broken", QoS: 1, PacketID: 2})
	poll.True(t, "the session begins again", func() bool { s := tr.Sources()[0]; return s.Counts.Reconnects == 1 && s.State == ingest.SourceUp })
	w.broker.Deliver(mqttpeer.Delivery{Topic: "x/acme/devices/d1/events", Payload: "broken", QoS: 1, PacketID: 2, Dup: true})
	poll.True(t, "it is acknowledged the second time", func() bool { return slices.Equal(w.broker.Acked(), []uint16{1, 2}) })
	if n := testutil.ToFloat64(tr.metrics.failed.WithLabelValues("plant")); n != 1 || tr.Sources()[0].Dropped["ceiling"] != 1 {
		t.Errorf("%v failed, %+v", n, tr.Sources()[0])
	}
}

// TestARefusedSubscriptionClosesAllTransports until it is granted; on_refused: wait leaves them open.
func TestARefusedSubscriptionClosesAllTransports(t *testing.T) {
	t.Parallel()
	for _, onRefused := range []string{"stop", "wait"} {
		var granted atomic.Bool
		w := newWorld(t, &mqttpeer.Broker{OnSubscribe: func(string, byte) byte {
			if granted.Load() {
				return 1
			}
			return 0x87
		}})
		tr := w.start(func(s *Settings) { s.OnRefused = onRefused })
		poll.True(t, "the source says why it is down", func() bool {
			return tr.Sources()[0].LastError == "the broker refuses the subscription to +/#: SUBACK 0x87 not authorized"
		})
		if closed := strings.HasPrefix(w.Suspended(), "event source plant: the broker refuses the subscription to +/#"); closed != (onRefused == "stop") {
			t.Errorf("%s: closed because of %q", onRefused, w.Suspended())
		}
		granted.Store(true)
		w.awaitUp(tr)
		if why := w.Suspended(); why != "" || w.suspends.Load() > 1 {
			t.Errorf("%s: still closed: %s", onRefused, why)
		}
	}
}

// TestASuspendedSourceDoesNotConnect: another one has closed all transports.
func TestASuspendedSourceDoesNotConnect(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &mqttpeer.Broker{})
	w.suspended.Store(new("another"))
	tr := w.start(func(*Settings) {})
	poll.True(t, "it says so", func() bool { return tr.Sources()[0].LastError == "all transports are closed: another" })
	if n := w.broker.Connects(); n != 0 {
		t.Errorf("%d connections", n)
	}
	w.suspended.Store(nil)
	w.awaitUp(tr)
}

// TestAStopStoresWhatWasTaken and acknowledges it before it disconnects.
func TestAStopStoresWhatWasTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &mqttpeer.Broker{})
	var held atomic.Bool
	held.Store(true)
	w.answer = func(*ingest.Arrival) (ingest.Answer, bool) {
		return ingest.Answer{Outcome: ingest.Stored}, !held.Load()
	}
	tr := w.start(func(*Settings) {})
	w.awaitUp(tr)
	for id := range uint16(50) {
		w.broker.Deliver(mqttpeer.Delivery{Topic: fmt.Sprintf("x/acme/devices/d%d/events", id), Payload: "x", QoS: 1, PacketID: id + 1})
	}
	poll.True(t, "all are with the intake", func() bool { return len(w.messages()) == 50 })
	closed := make(chan error, 1)
	go func() { closed <- tr.Close(context.Background()) }()
	poll.True(t, "the stop has begun", func() bool { return tr.sources[0].ending.Load() })
	w.mu.Lock()
	waiting := w.waiting
	w.mu.Unlock()
	for _, release := range waiting {
		release(ingest.Answer{Outcome: ingest.Stored})
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	poll.True(t, "all are acknowledged", func() bool { return len(w.broker.Acked()) == 50 })
	if s := tr.Sources()[0]; s.State != ingest.SourceShut {
		t.Errorf("%+v", s)
	}
	conformance.Shown(t, "S2-043")
}

// TestPresenceByAvailability: of devices, and of all with the bridge. What a device is already is no transition.
func TestPresenceByAvailability(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &mqttpeer.Broker{})
	tr := w.start(func(s *Settings) { mapped(Mapping{Decode: "zigbee2mqtt"})(s) })
	w.awaitUp(tr)
	say := func(topic, state string, want ...string) {
		t.Helper()
		w.broker.Deliver(mqttpeer.Delivery{Topic: "zigbee2mqtt/" + topic, Payload: `{"state":"` + state + `"}`, Retain: true})
		poll.Until(t, topic+" "+state, func() error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if got := slices.Clone(w.presence); !slices.Equal(got, want) {
				return fmt.Errorf("got %q, want %q", got, want)
			}
			return nil
		})
	}
	say("d1/availability", "online", "d1 CONNECTED")
	say("d1/availability", "online", "d1 CONNECTED")
	say("bridge/state", "offline", "d1 CONNECTED", "d1 DISCONNECTED")
	say("bridge/state", "online", "d1 CONNECTED", "d1 DISCONNECTED", "d1 CONNECTED")
	say("d1/availability", "offline", "d1 CONNECTED", "d1 DISCONNECTED", "d1 CONNECTED", "d1 DISCONNECTED")
}

// TestTheConnectionIsWhatTheSettingsSay: client identifier, credentials, session, Receive Maximum.
func TestTheConnectionIsWhatTheSettingsSay(t *testing.T) {
	t.Parallel()
	var hello atomic.Pointer[packets.Connect]
	w := newWorld(t, &mqttpeer.Broker{OnConnect: func(c *packets.Connect) byte { hello.Store(c); return 0 }})
	tr := w.start(func(s *Settings) {
		s.PublishWindow = 50
		s.Sources[0].Username, s.Sources[0].Password, s.Sources[0].SessionExpiry = "u", setting.NewSecret("p"), time.Hour
	})
	w.awaitUp(tr)
	c := hello.Load()
	if c.ClientID != "weir:weir:plant:n1" || c.Username != "u" || string(c.Password) != "p" || c.CleanStart || *c.Properties.SessionExpiryInterval != 3600 ||
		*c.Properties.ReceiveMaximum != 155 || c.KeepAlive != 30 {
		t.Errorf("%+v %+v", c, c.Properties)
	}
	if got := w.broker.Subscribed(); len(got) != 1 || got[0].Filter != "+/#" || got[0].QoS != 1 {
		t.Errorf("subscribed to %+v", got)
	}
}

func TestASourceThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(*Source)
		key    string
	}{
		{func(s *Source) { s.ID = "" }, "id"},
		{func(s *Source) { s.ID = "a b" }, "id"},
		{func(s *Source) { s.ID = "lwm2m:x" }, "id"},
		{func(s *Source) { s.URL = "" }, "url"},
		{func(s *Source) { s.Host = "h" }, "url"},
		{func(s *Source) { s.URL = "http://h:1" }, "url"},
		{func(s *Source) { s.URL = "mqtt://h" }, "url"},
		{func(s *Source) { s.URL = "mqtt://u:p@h:1" }, "url"},
		{func(s *Source) { s.TLS.CA = "ca.pem" }, "tls"},
		{func(s *Source) { s.URL, s.Username = "local", "u" }, "username"},
		{func(s *Source) { s.Password = setting.NewSecret("x") }, "password"},
		{func(s *Source) { s.AutoRegister = true }, "auto_register"},
		{func(s *Source) { s.Topic = "a/#/b" }, "topic"},
		{func(s *Source) { s.Map = []Mapping{{Topic: "{device}/+", Decode: "number"}} }, "map[0].metric"},
	} {
		var s Source
		setting.SetDefaults(&s)
		s.ID, s.URL, s.Tenant = "plant", "mqtt://h:1883", "acme"
		if faults := s.Check(); len(faults) > 0 {
			t.Fatal(faults)
		}
		c.change(&s)
		if faults := s.Check(); len(faults) == 0 || faults[0].Key != c.key {
			t.Errorf("%s: %v", c.key, errors.Join(asErrors(faults)...))
		}
	}
}

func asErrors(faults []*Fault) (all []error) {
	for _, f := range faults {
		all = append(all, f)
	}
	return all
}
