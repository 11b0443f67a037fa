package mqttsource

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/command"
	"weir/internal/setting"
	"weir/internal/test/mqttpeer"
	"weir/internal/test/poll"
	"weir/model"
)

// desk hands out the commands that a test gives it.
type desk struct {
	mu       sync.Mutex
	queue    map[int64][]command.Dispatch
	receipts []string
	reached  []int64
}

func (d *desk) Reachable(device int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reached = append(d.reached, device)
}

func (d *desk) Claim(device int64, carrier string, done func(command.Dispatch, bool)) {
	d.mu.Lock()
	var next command.Dispatch
	q := d.queue[device]
	ok := len(q) > 0 && carrier == "external-mqtt"
	if ok {
		next, d.queue[device] = q[0], q[1:]
	}
	d.mu.Unlock()
	done(next, ok)
}

func (d *desk) Progress(command.Progress) {}

func (d *desk) Ended(r command.Receipt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.receipts = append(d.receipts, strings.TrimSpace(fmt.Sprintf("%s %s %d %s", r.Token, r.Nonce, r.End, r.Text)))
}

func (d *desk) ended() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.receipts)
}

// dispatch is a command for the device d1, whose row id is 2.
func dispatch(token, name, payload string) command.Dispatch {
	d := command.Dispatch{TenantID: 7, DeviceID: 2, Device: "d1", Token: token, Name: name, Nonce: "n-" + token}
	if payload != "" {
		d.Payload = &payload
	}
	return d
}

// give gives the desk commands for d1 and offers the device.
func (w *world) give(t *Transport, all ...command.Dispatch) {
	w.Helper()
	w.desk.mu.Lock()
	w.desk.queue[2] = append(w.desk.queue[2], all...)
	w.desk.mu.Unlock()
	if !t.Commands().Offer(2) {
		w.Fatal("the device cannot be reached")
	}
}

func (w *world) awaitEnds(want ...string) {
	w.Helper()
	poll.Until(w, "the ends of dispatches", func() error {
		if got := w.desk.ended(); !slices.Equal(got, want) {
			return fmt.Errorf("got %q, want %q", got, want)
		}
		return nil
	})
}

func (w *world) awaitAnswers(want ...model.Response) {
	w.Helper()
	poll.Until(w, "the answers", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !reflect.DeepEqual(w.answers, want) {
			return fmt.Errorf("got %+v, want %+v", w.answers, want)
		}
		return nil
	})
}

// commanded starts a source of one mapping with commands, whose device d1 was heard.
func commanded(t *testing.T, b *mqttpeer.Broker, c Commands) (*world, *Transport) {
	w := newWorld(t, b)
	w.desk = &desk{queue: map[int64][]command.Dispatch{}}
	tr := w.start(mapped(Mapping{Topic: "n/{device}/{metric}", Decode: "number", Commands: c}, Mapping{Topic: "a/{device}", Decode: "presence", Commands: c}))
	w.awaitUp(tr)
	if r := tr.Commands().Reach(2); r != command.Unknown {
		t.Errorf("a device that was not heard is %v", r)
	}
	w.broker.Deliver(mqttpeer.Delivery{Topic: "n/d1/t", Payload: "1"})
	poll.True(t, "the device can be reached", func() bool {
		w.desk.mu.Lock()
		defer w.desk.mu.Unlock()
		return slices.Equal(w.desk.reached, []int64{2}) && tr.Commands().Reach(2) == command.Present
	})
	return w, tr
}

// TestACommandThatIsCompletedByAResponse: the device gets the message of Weir's own broker, and answers with the response of one.
func TestACommandThatIsCompletedByAResponse(t *testing.T) {
	t.Parallel()
	w, tr := commanded(t, &mqttpeer.Broker{}, Commands{Topic: "c/{device}", Response: "r/{device}"})
	w.give(tr, dispatch("c1", "open", `{"n":1}`))
	w.awaitEnds("c1 n-c1 0")
	if got := w.broker.Messages(); len(got) != 1 || got[0] != (mqttpeer.Message{Topic: "c/d1", Payload: `{"token":"c1","deviceToken":"d1","name":"open","dispatchNonce":"n-c1","payload":{"n":1}}`, QoS: 1}) {
		t.Errorf("%+v", got)
	}
	const answer = `{"commandToken":"c1","success":true,"dispatchNonce":"n-c1"}`
	w.broker.Deliver(mqttpeer.Delivery{Topic: "r/d1", Payload: answer, QoS: 1, PacketID: 9})
	w.broker.Deliver(mqttpeer.Delivery{Topic: "r/other", Payload: answer})
	w.broker.Deliver(mqttpeer.Delivery{Topic: "r/d1", Payload: answer, Retain: true})
	w.awaitMessages("acme d1 t=1 as 2", "acme d1 answers "+answer+" as 2")
	poll.True(t, "what is not of a device, and what was there before, is not taken", func() bool {
		s := tr.Sources()[0]
		return s.Dropped["unknown-device"] == 1 && s.Ignored["retained"] == 1 && slices.Contains(w.broker.Acked(), 9)
	})
	if n := testutil.ToFloat64(tr.metrics.commands.WithLabelValues("plant", "published")); n != 1 {
		t.Errorf("%v are published", n)
	}
}

// TestACommandThatIsCompletedByAValue: the next message on a topic, also while it is a reading.
func TestACommandThatIsCompletedByAValue(t *testing.T) {
	t.Parallel()
	w, tr := commanded(t, &mqttpeer.Broker{}, Commands{Topic: "c/{device}/{$.payload.id}", Payload: "$.payload.value", Response: "n/{device}/{$.payload.id}", Complete: byValue})
	w.give(tr, dispatch("c1", "set", `{"id":"valve","value":"open"}`))
	w.awaitEnds("c1 n-c1 0")
	if got := w.broker.Messages(); len(got) != 1 || got[0] != (mqttpeer.Message{Topic: "c/d1/valve", Payload: "open", QoS: 1}) {
		t.Errorf("%+v", got)
	}
	for _, d := range []mqttpeer.Delivery{{Topic: "n/d1/t", Payload: "2"}, {Topic: "n/d2/valve", Payload: "1"}, {Topic: "n/d1/valve", Payload: "0", Retain: true}} {
		w.broker.Deliver(d)
	}
	poll.True(t, "the others are taken", func() bool { return len(w.messages()) == 3 })
	w.awaitAnswers()
	w.broker.Deliver(mqttpeer.Delivery{Topic: "n/d1/valve", Payload: "open"})
	w.broker.Deliver(mqttpeer.Delivery{Topic: "n/d1/valve", Payload: "1"})
	poll.True(t, "it is a reading, too", func() bool { return len(w.messages()) == 5 })
	w.awaitAnswers(model.Response{Command: "c1", Nonce: "n-c1", Success: true, Payload: `"open"`})
	if n := testutil.ToFloat64(tr.metrics.waiting); n != 0 {
		t.Errorf("%v wait", n)
	}
}

// TestACommandThatIsCompletedByItsAcknowledgement, and one that cannot be published as it is.
func TestACommandThatIsCompletedByItsAcknowledgement(t *testing.T) {
	t.Parallel()
	w, tr := commanded(t, &mqttpeer.Broker{}, Commands{Topic: "c/{device}/{$.name}", Payload: "$.payload", Complete: byPublished})
	w.give(tr, dispatch("c1", "open", `{"n":1}`))
	w.awaitEnds("c1 n-c1 0")
	w.awaitAnswers(model.Response{Command: "c1", Nonce: "n-c1", Success: true})
	w.give(tr, dispatch("c2", "a/b", ""))
	w.awaitEnds("c1 n-c1 0", "c2 n-c2 5 the command needs a text or a number at $.name that can be a level of a topic")
	w.give(tr, dispatch("c3", "close", ""))
	poll.True(t, "one without a payload is published without one", func() bool {
		got := w.broker.Messages()
		return len(got) == 2 && got[0] == mqttpeer.Message{Topic: "c/d1/open", Payload: `{"n":1}`, QoS: 1} && got[1] == mqttpeer.Message{Topic: "c/d1/close", QoS: 1}
	})
	w.awaitEnds("c1 n-c1 0", "c2 n-c2 5 the command needs a text or a number at $.name that can be a level of a topic", "c3 n-c3 0")
	late := dispatch("c4", "open", "")
	late.Expires = 1
	w.give(tr, late)
	poll.True(t, "one whose life is over is not", func() bool { return slices.Contains(w.desk.ended(), "c4 n-c4 2") && len(w.broker.Messages()) == 2 })
}

// TestWhatTheBrokerSaysOfACommand: what it refuses cannot be delivered, what it says nothing of is sent again after the next connection.
func TestWhatTheBrokerSaysOfACommand(t *testing.T) {
	t.Parallel()
	var says atomic.Int32
	says.Store(0x87)
	w, tr := commanded(t, &mqttpeer.Broker{OnPublish: func(mqttpeer.Message) (byte, bool) { return byte(says.Load()), says.Load() >= 0 }},
		Commands{Topic: "c/{device}", Response: "r/{device}"})
	w.give(tr, dispatch("c1", "open", ""))
	w.awaitEnds("c1 n-c1 5 the broker does not take the command: PUBACK 0x87 not authorized")
	says.Store(-1)
	w.give(tr, dispatch("c2", "open", ""))
	poll.True(t, "it is under way", func() bool { return len(tr.sources[0].room) == 1 })
	w.broker.Cut()
	w.awaitEnds("c1 n-c1 5 the broker does not take the command: PUBACK 0x87 not authorized", "c2 n-c2 2")
	poll.True(t, "a device of a source that is down is absent", func() bool {
		return tr.Commands().Reach(2) == command.Absent || tr.Sources()[0].Counts.Reconnects > 0
	})
	w.awaitUp(tr)
	if r := tr.Commands().Reach(2); r != command.Present {
		t.Errorf("after the next connection it is %v", r)
	}
}

// TestTheCommandsOfAnAbsentDeviceWait until its availability says that it is back.
func TestTheCommandsOfAnAbsentDeviceWait(t *testing.T) {
	t.Parallel()
	w, tr := commanded(t, &mqttpeer.Broker{}, Commands{Topic: "c/{device}", Response: "r/{device}"})
	say := func(state string, reach command.Reach, woken int) {
		t.Helper()
		w.broker.Deliver(mqttpeer.Delivery{Topic: "a/d1", Payload: state})
		poll.True(t, state, func() bool {
			w.desk.mu.Lock()
			defer w.desk.mu.Unlock()
			return tr.Commands().Reach(2) == reach && len(w.desk.reached) == woken
		})
	}
	say("offline", command.Absent, 1)
	say("online", command.Present, 2)
	say("online", command.Present, 2)
}

func TestTheCommandsOfPresets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ preset, prefix, heard, name, payload, topic, body, value string }{
		{"zigbee2mqtt", "", "zigbee2mqtt/hall/lamp", "set", `{"state":"ON"}`, "zigbee2mqtt/hall/lamp/set", `{"state":"ON"}`, "zigbee2mqtt/hall/lamp"},
		{"zigbee2mqtt", "z", "z/lamp/availability", "set", `{"state":"ON"}`, "z/lamp/set", `{"state":"ON"}`, "z/lamp"},
		{"tasmota", "", "tele/plug/STATE", "POWER1", `{"value":"ON"}`, "cmnd/plug/POWER1", "ON", "stat/plug/RESULT"},
		{"tasmota", "", "tele/plug/LWT", "STATUS", "", "cmnd/plug/STATUS", "", "stat/plug/RESULT"},
		{"tasmota", "home/tele", "home/tele/plug/STATE", "DIMMER", `{"value":40}`, "home/cmnd/plug/DIMMER", "40", "home/stat/plug/RESULT"},
		{"esphome", "", "node/sensor/t/state", "set", `{"component":"switch","id":"relay","value":"ON"}`, "node/switch/relay/command", "ON", "node/switch/relay/state"},
		{"homie", "", "homie/dev/$state", "set", `{"node":"light","property":"power","value":true}`, "homie/dev/light/power/set", "true", "homie/dev/light/power"},
		{"homie", "", "homie/5/dev/light/power", "set", `{"node":"light","property":"power","value":false}`, "homie/5/dev/light/power/set", "false", "homie/5/dev/light/power"},
	} {
		s := Source{ID: "s", Tenant: "acme", Map: []Mapping{{Decode: c.preset, Prefix: c.prefix, Commands: Commands{Complete: byResponse}}}}
		all, faults := s.compile("")
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		m, levels := all.find(c.heard)
		topic, value, body, err := m.commands.message(dispatch("c1", c.name, c.payload), captured{levelDevice: m.deviceOf(levels)})
		if err != nil || topic != c.topic || string(body) != c.body || value != c.value {
			t.Errorf("%s: %s %q, completed by %s, %v", c.heard, topic, body, value, err)
		}
		if filters := s.filters(all); !slices.ContainsFunc(filters, func(f string) bool { return covers(f, m.commands.filter) }) {
			t.Errorf("%s: %q do not cover %s", c.heard, filters, m.commands.filter)
		}
	}
	s := Source{ID: "s", Tenant: "acme", Map: []Mapping{{Decode: "tasmota", Prefix: "plugs", Commands: Commands{Complete: byResponse}}}}
	if all, faults := s.compile(""); len(faults) > 0 || all[0].commands != nil {
		t.Errorf("a prefix that is not that of telemetry: %v", faults)
	}
	s.Map = []Mapping{{Decode: "zigbee2mqtt", Commands: Commands{Topic: "other/{device}", Complete: byPublished}}}
	if all, faults := s.compile(""); len(faults) > 0 || all[0].commands != nil || all[5].commands.complete != byPublished {
		t.Errorf("commands in place of those of a preset: %v", faults)
	}
}

func TestCommandsThatCannotBe(t *testing.T) {
	t.Parallel()
	var base Mapping
	setting.SetDefaults(&base)
	for _, c := range []struct {
		m     Mapping
		key   string
		fault string
	}{
		{Mapping{Commands: Commands{Payload: "$.payload"}}, "map[0].commands.topic", "must be set"},
		{Mapping{Commands: Commands{Topic: "c/{device}"}}, "map[0].commands.response", "complete must be published"},
		{Mapping{Commands: Commands{Topic: "c/{device}", Response: "r/{device}", Complete: byPublished}}, "map[0].commands.response", "no use"},
		{Mapping{Commands: Commands{Topic: "c/{hall}", Complete: byPublished}}, "map[0].commands.topic", "may have device in braces"},
		{Mapping{Commands: Commands{Topic: "c/{$.a[*]}", Complete: byPublished}}, "map[0].commands.topic", "singular path"},
		{Mapping{Commands: Commands{Topic: "c/+", Complete: byPublished}}, "map[0].commands.topic", "wildcards"},
		{Mapping{Commands: Commands{Topic: "c/{device}", Payload: "payload", Complete: byPublished}}, "map[0].commands.payload", "singular path"},
		{Mapping{Commands: Commands{Topic: "c/{device}", Response: "r/x"}}, "map[0].commands.response", "must have a level {device}"},
		{Mapping{Device: "{hall}-{device}", Commands: Commands{Topic: "c/{hall}/{device}", Response: "r/{device}"}}, "map[0].commands.response", "must have a level {hall}"},
		{Mapping{Decode: "presence", All: true, Commands: Commands{Topic: "c", Complete: byPublished}}, "map[0].commands.topic", "has no device"},
	} {
		m := base
		m.Topic, m.Device, m.All, m.Commands = "n/{hall}/{device}", c.m.Device, c.m.All, c.m.Commands
		if c.m.Decode != "" {
			m.Decode = c.m.Decode
		}
		if m.Commands.Complete == "" {
			m.Commands.Complete = byResponse
		}
		s := Source{ID: "s", Tenant: "acme", Map: []Mapping{m}}
		if _, faults := s.compile(""); len(faults) != 1 || faults[0].Key != c.key || !strings.Contains(faults[0].Reason, c.fault) {
			t.Errorf("%+v: %v", c.m.Commands, faults)
		}
	}
}

// TestCommandsThatWaitForAValueAreBounded: the lives that are over make room.
func TestCommandsThatWaitForAValueAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	c := &carrier{t: &Transport{metrics: newMetrics(nil), deps: Deps{Now: func() time.Time { return now }}}, waits: map[waitKey][]wait{}}
	for i := range maxWaits {
		d := dispatch(fmt.Sprint(i), "x", "")
		if i < 10 {
			d.Expires = model.MicrosOf(now.Add(time.Minute))
		}
		if !c.await(waitKey{"s", fmt.Sprint(i)}, wait{dispatch: d}) {
			t.Fatal(i)
		}
	}
	over := wait{dispatch: dispatch("more", "x", "")}
	if c.await(waitKey{"s", "more"}, over) {
		t.Error("one more than the maximum waits")
	}
	now = now.Add(time.Hour)
	if !c.await(waitKey{"s", "more"}, over) || c.waitN != maxWaits-9 || !c.await(waitKey{"s", "more"}, over) || c.waitN != maxWaits-9 {
		t.Errorf("%d wait", c.waitN)
	}
}
