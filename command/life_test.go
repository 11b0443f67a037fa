package command

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/test/conformance"
	"weir/model"
	"weir/store"
)

func TestACommandGoesToAConnectedDeviceAndIsAnswered(t *testing.T) {
	w := newWorld(t)
	pump := w.device("pump", "mqtt1")
	w.carrier.connect(pump)
	w.order(Order{Token: "c1", Device: "pump", Payload: new(`{"n":1}`)})
	w.order(Order{Token: "c2", Device: "pump"})
	w.settle()
	if c := w.expect("c1", sent); c.Nonce == "" || c.Sent == nil || c.Delivered != nil || c.Awaits != "mqtt" {
		t.Fatalf("sent: %+v", c)
	}
	w.expect("c2", queued) // in its turn
	d := w.carrier.ends(Acknowledged)
	if got, want := string(d.Body()), `{"token":"c1","deviceToken":"pump","name":"open","dispatchNonce":"`+d.Nonce+`","payload":{"n":1}}`; got != want {
		t.Fatalf("body %s, want %s", got, want)
	}
	if c := w.expect("c1", sent); c.Delivered == nil {
		t.Fatal("no deliveredTime")
	}
	w.expect("c2", sent)
	if got := w.answer(Response{DeviceID: pump, Token: "c1", Nonce: d.Nonce, Success: true, Payload: new("21")}); got != Moved {
		t.Fatal(got)
	}
	if c := w.expect("c1", successful); *c.Response != "21" || c.Responded == nil {
		t.Fatalf("%+v", c)
	}
	if got := w.answer(Response{DeviceID: pump, Token: "c1", Nonce: d.Nonce, Success: false}); got != TooLate {
		t.Fatal(got)
	}
	if got := w.answer(Response{DeviceID: pump, Token: "c2", Success: false, Error: new("jammed")}); got != Moved {
		t.Fatal(got)
	}
	if c := w.expect("c2", failed); *c.Error != "jammed" {
		t.Fatalf("%+v", c)
	}
}

func TestAnAnswerMovesOnlyItsOwnDispatch(t *testing.T) {
	w := newWorld(t)
	pump, other := w.device("pump", "mqtt1"), w.device("other", "mqtt1")
	w.order(Order{Token: "c1", Device: "pump"})
	w.settle()
	w.expect("c1", held)
	for _, c := range []struct {
		r    Response
		want Answered
	}{{Response{DeviceID: pump, Token: "none"}, NoSuch}, {Response{DeviceID: other, Token: "c1"}, NotOwner}, {Response{DeviceID: pump, Token: "c1"}, NotSent}} {
		if got := w.answer(c.r); got != c.want {
			t.Errorf("%+v: %s, want %s", c.r, got, c.want)
		}
	}
	w.carrier.connect(pump)
	first := w.carrier.flying[0]
	w.carrier.disconnect(pump)
	w.expect("c1", held)
	w.carrier.connect(pump)
	second := w.carrier.flying[0]
	if first.Nonce == second.Nonce || first.Token != second.Token {
		t.Fatal("the second dispatch is not the same command with a new nonce")
	}
	if got := w.answer(Response{DeviceID: pump, Token: "c1", Nonce: "0000", Success: true}); got != BadNonce {
		t.Fatal(got)
	}
	if got := w.answer(Response{DeviceID: pump, Token: "c1", Nonce: first.Nonce, Success: true}); got != Moved {
		t.Fatalf("the answer to an earlier dispatch: %s", got)
	}

	w.order(Order{Token: "c2", Device: "pump"})
	w.settle()
	first = w.carrier.all[len(w.carrier.all)-1]
	w.carrier.disconnect(pump)
	w.carrier.connect(pump)
	w.carrier.ends(Acknowledged)
	if got := w.answer(Response{DeviceID: pump, Token: "c2", Nonce: first.Nonce, Success: true}); got != BadNonce {
		t.Fatalf("the answer to a dispatch before one that was acknowledged: %s", got)
	}
	w.set.RequireNonce = true
	w.Set(w.set)
	if got := w.answer(Response{DeviceID: pump, Token: "c2", Success: true}); got != BadNonce {
		t.Fatal(got)
	}
}

func TestWhatBecomesOfACommandForADeviceThatNobodyReaches(t *testing.T) {
	asserted := func(w *world, device int64, source string, st model.PresenceState) {
		w.tx(func(tx store.Tx) error {
			return store.PutPresence(tx, &store.DeviceState{TenantID: tenant, DeviceID: device, Source: source, Asserted: true, State: st, Session: 1, PresenceTime: 1, HasPresence: true})
		})
	}
	for _, c := range []struct {
		name string
		gate bool
		set  func(w *world) // device d
		want State
	}{
		{"never seen", true, func(w *world) { w.device("d", "") }, held},
		{"never seen, gate off", false, func(w *world) { w.device("d", "") }, sent},
		{"HTTP", true, func(w *world) { w.device("d", "http1") }, sent},
		{"external MQTT", true, func(w *world) { w.device("d", "plant") }, sent},
		{"platform broker, no session", true, func(w *world) { w.device("d", "mqtt1") }, held},
		{"platform broker, gate off", false, func(w *world) { w.device("d", "mqtt1") }, sent},
		{"asserted absent by a source without a carrier", true, func(w *world) { asserted(w, w.device("d", ""), "plant", model.Disconnected) }, held},
		{"asserted present by a source without a carrier", true, func(w *world) { asserted(w, w.device("d", ""), "plant", model.Connected) }, sent},
		{"Sparkplug", true, func(w *world) { w.device("d", "sp1") }, failed},
		{"Sparkplug, gate off", false, func(w *world) { w.device("d", "sp1") }, sent},
		{"polls", false, func(w *world) { w.device("d", "poll1") }, held},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.set.PresenceGated = c.gate
			w.Set(w.set)
			w.Carry(&carrier{w: w, traits: Traits{Name: "sparkplug", Sources: []string{"sp1"}, Never: true}})
			w.Carry(&carrier{w: w, traits: Traits{Name: "http", Sources: []string{"poll1"}, Holds: true}})
			c.set(w)
			w.order(Order{Token: "c1", Device: "d"})
			w.settle()
			w.expect("c1", c.want)
			if c.want == sent {
				w.pass(8 * 24 * time.Hour / 100)
				w.clock.Step(7 * 24 * time.Hour)
				w.settle()
				w.expect("c1", timedOut)
			}
		})
	}
	conformance.Shown(t, "S2-099")
}

func TestAnUndeliverableCommandBehindOthersFailsAtTheNextSweep(t *testing.T) {
	w := newWorld(t)
	w.Carry(&carrier{w: w, traits: Traits{Name: "sparkplug", Sources: []string{"sp1"}, Never: true}})
	w.device("d", "sp1")
	w.settle()
	w.tx(func(tx store.Tx) error {
		for _, token := range []string{"c1", "c2"} {
			if _, _, err := w.Create(tx, Order{TenantID: tenant, Token: token, Device: "d", Name: "open"}); err != nil {
				return err
			}
		}
		return nil
	})
	w.settle()
	w.expect("c1", queued)
	w.pass(30 * time.Second)
	if c := w.expect("c1", failed); c.Error == nil {
		t.Fatal("no reason")
	}
	w.expect("c2", failed)
}

func TestAHeldCommandIsDeliveredWhenItsDeviceIsBack(t *testing.T) {
	w := newWorld(t)
	pump := w.device("pump", "mqtt1")
	for i := range 100 {
		w.order(Order{Token: name(i), Device: "pump"})
	}
	w.settle()
	w.expect("c99", held)
	if len(w.carrier.all) > 0 {
		t.Fatal("sent to an absent device")
	}
	w.carrier.connect(pump)
	for i := range 100 {
		if d := w.carrier.ends(Acknowledged); d.Token != name(i) {
			t.Fatalf("dispatch %d is %s", i, d.Token)
		}
	}
	conformance.Shown(t, "S2-100", "S2-029")
}

// A device may be back before the service has found out what the run before it left, and the clock may have been set back meanwhile: what
// was on its way leaves again at once, before what was made later.
func TestWhatWasOnItsWayAtACrashLeavesFirst(t *testing.T) {
	w := newWorld(t)
	pump := w.device("pump", "mqtt1")
	w.carrier.connect(pump)
	w.order(Order{Token: "c1", Device: "pump"})
	w.order(Order{Token: "c2", Device: "pump"})
	w.settle()
	first := w.carrier.flying[0]
	w.clock.Step(-time.Hour)
	w.start()
	w.carrier.connect(pump)
	for _, token := range []string{"c1", "c2"} {
		if len(w.carrier.flying) != 1 || w.carrier.flying[0].Token != token || w.carrier.flying[0].Nonce == first.Nonce {
			t.Fatalf("on the way: %+v, want %s", w.carrier.flying, token)
		}
		w.carrier.ends(Acknowledged)
		w.expect(token, sent)
	}
}

func TestADispatchWithoutAnAcknowledgementIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	pump := w.device("pump", "mqtt1")
	w.carrier.connect(pump)
	w.order(Order{Token: "c1", Device: "pump"})
	w.order(Order{Token: "c2", Device: "pump"})
	w.settle()
	w.pass(10 * time.Second)
	w.expect("c2", sent) // at most 5 s after the one before
	w.pass(60 * time.Second)
	w.expect("c1", held)
	w.pass(120 * time.Second)
	if n := len(w.carrier.all); n < 3 {
		t.Fatalf("%d dispatches: none was repeated", n)
	}
	w.carrier.end(w.carrier.all[len(w.carrier.all)-2], Acknowledged)
	w.settle()
}

func TestAPacketThatCannotBeWrittenFailsTheCommandAfterFive(t *testing.T) {
	w := newWorld(t)
	w.carrier.connect(w.device("pump", "mqtt1"))
	w.order(Order{Token: "c1", Device: "pump"})
	for i := range 5 {
		w.settle()
		w.carrier.ends(Unwritten)
		if i < 4 {
			w.expect("c1", queued)
			w.pass(30 * time.Second)
		}
	}
	w.expect("c1", failed)
}

func TestASleepingDeviceFindsItsCommandWhenItChecksIn(t *testing.T) {
	w := newWorld(t)
	meter := w.device("meter", "mqtt1")
	w.carrier.asleep = 20 * time.Hour
	w.carrier.connect(meter)
	w.order(Order{Token: "c1", Device: "meter", Expires: model.MicrosOf(w.clock.Now().Add(10 * time.Minute)), Sleeper: true, Exact: true})
	w.settle()
	w.carrier.ends(Slept)
	w.expect("c1", parked)
	w.carrier.live = map[int64]bool{}
	w.start()
	w.pass(time.Hour)
	w.expect("c1", parked)
	w.carrier.connect(meter)
	w.expect("c1", sent)
}

func TestLivesEnd(t *testing.T) {
	w := newWorld(t)
	pump := w.device("pump", "mqtt1")
	in := func(d time.Duration) *string { return new(w.clock.Now().Add(d).Format(time.RFC3339Nano)) }
	w.order(Order{Token: "held", Device: "pump", ExpiresAt: in(90 * time.Second)})
	w.settle()
	w.pass(80 * time.Second)
	w.expect("held", held)
	w.pass(20 * time.Second)
	w.expect("held", expired)
	w.carrier.connect(pump)
	w.order(Order{Token: "sent", Device: "pump", ExpiresAt: in(90 * time.Second)})
	w.settle()
	w.carrier.ends(Acknowledged)
	w.pass(100 * time.Second)
	w.expect("sent", timedOut)
	if n := len(w.carrier.all); n != 1 {
		t.Fatalf("%d dispatches", n)
	}
}

func TestACancelledCommandIsNotSent(t *testing.T) {
	w := newWorld(t)
	pump := w.device("pump", "mqtt1")
	w.order(Order{Token: "c1", Device: "pump"})
	w.settle()
	c, err := w.Cancel(t.Context(), caller(), "c1")
	if err != nil || c.State != cancelled {
		t.Fatal(c, err)
	}
	w.carrier.connect(pump)
	if len(w.carrier.all) > 0 {
		t.Fatal("sent after it was cancelled")
	}
	w.order(Order{Token: "c2", Device: "pump"})
	w.settle()
	if c, err := w.Cancel(t.Context(), caller(), "c2"); err != nil || c.State != sent {
		t.Fatal("a command that is sent is returned as it is", c, err)
	}
	if _, err := w.Cancel(t.Context(), caller(), "none"); err == nil {
		t.Fatal("an unknown command was cancelled")
	}
}

func TestADeletedDeviceEndsItsCommands(t *testing.T) {
	w := newWorld(t)
	pump := w.device("pump", "mqtt1")
	w.carrier.connect(pump)
	w.order(Order{Token: "c1", Device: "pump"})
	w.order(Order{Token: "c2", Device: "pump"})
	w.settle()
	w.tx(func(tx store.Tx) error { return w.RemoveDevice(tx, tenant, pump) })
	w.expect("c1", cancelled)
	w.expect("c2", cancelled)
}

func TestTheOrderOfTheChecks(t *testing.T) {
	w := newWorld(t)
	w.device("pump", "mqtt1")
	w.ceiling = 100
	w.order(Order{Token: "first", Device: "pump", Payload: new("{}")})
	bad := new("{")
	for _, c := range []struct {
		name string
		o    Order
		want string // "" accepted
	}{
		{"the same again", Order{Token: "first", Device: "pump", Payload: new("{}"), Metadata: bad, ExpiresAt: bad}, ""},
		{"another payload", Order{Token: "first", Device: "pump", Payload: new("[]"), Metadata: bad}, TokenInUse},
		{"another device", Order{Token: "first", Device: "none", Payload: new("{}")}, TokenInUse},
		{"another name", Order{Token: "first", Device: "pump", Payload: new("{}"), Name: "shut"}, TokenInUse},
		{"payload", Order{Token: "x", Device: "none", Payload: bad, Metadata: bad, ExpiresAt: bad}, NotJSON},
		{"metadata", Order{Token: "x", Device: "none", Metadata: bad, ExpiresAt: bad}, MetadataNotJSON},
		{"no time", Order{Token: "x", Device: "none", ExpiresAt: bad}, BadExpiry},
		{"past", Order{Token: "x", Device: "none", ExpiresAt: new("2029-12-31T23:59:59Z")}, BadExpiry},
		{"too soon", Order{Token: "x", Device: "none", ExpiresAt: new("2030-01-01T00:00:59Z")}, BadExpiry},
		{"soon, of a rule", Order{Token: "rule", Device: "pump", Expires: model.MicrosOf(w.clock.Now().Add(time.Second)), Exact: true}, ""},
		{"no device", Order{Token: "x", Device: "none", Name: "unknown"}, NoDevice},
		{"vocabulary", Order{Token: "x", Device: "pump", Name: "unknown"}, "COMMAND_NOT_IN_VOCABULARY"},
		{"too large", Order{Token: "x", Device: "pump", Payload: new(`"` + string(make([]byte, 0)) + pad(model.MaxCommandPayload) + `"`)}, Rejected},
	} {
		made, refused := w.order(c.o)
		switch {
		case c.want == "" && refused != nil, c.want != "" && refused == nil:
			t.Errorf("%s: %+v", c.name, refused)
		case c.want != "" && (refused.Code != c.want || made != nil):
			t.Errorf("%s: %s, want %s", c.name, refused.Code, c.want)
		}
	}
}

func pad(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'x'
	}
	return string(b)
}

func TestTheCeilingKeepsAReserveForServices(t *testing.T) {
	w := newWorld(t)
	w.ceiling = 10
	pump := w.device("pump", "mqtt1")
	for i := range 8 {
		if _, refused := w.order(Order{Token: name(i), Device: "pump"}); refused != nil {
			t.Fatal(refused)
		}
	}
	if _, refused := w.order(Order{Token: "ninth", Device: "pump"}); refused == nil || refused.Code != HeldCeiling {
		t.Fatal(refused)
	}
	for i := range 2 {
		if _, refused := w.order(Order{Token: "s" + name(i), Device: "pump", Service: true}); refused != nil {
			t.Fatal(refused)
		}
	}
	if _, refused := w.order(Order{Token: "eleventh", Device: "pump", Service: true}); refused == nil {
		t.Fatal("above the ceiling")
	}
	w.settle()
	w.carrier.connect(pump) // one is sent
	if _, refused := w.order(Order{Token: "eleventh", Device: "pump", Service: true}); refused != nil {
		t.Fatal(refused)
	}
}

// poll does what a device that polls does: it gives back what it does not name, and asks for the next command.
func (w *world) poll(device int64) (claims, found int) {
	w.Helper()
	w.Ended(Receipt{DeviceID: device, Carrier: "mqtt", End: Lost})
	w.Reachable(device)
	w.Claim(device, "mqtt", func(_ Dispatch, ok bool) {
		if claims++; ok {
			found++
		}
	})
	w.settle()
	return claims, found
}

func TestAPollWithNothingWaitingCommitsNothing(t *testing.T) {
	w := newWorld(t)
	d := w.device("d", "mqtt1")
	w.settle()
	before := w.db.Stats().Commits
	for range 3 {
		if claims, found := w.poll(d); claims != 1 || found != 0 {
			t.Fatalf("%d answers, %d commands", claims, found)
		}
	}
	if n := w.db.Stats().Commits - before; n != 0 {
		t.Errorf("three polls made %d commits", n)
	}
	if len(w.slots) != 0 {
		t.Errorf("%d devices are remembered", len(w.slots))
	}
}

func TestAPollThatDoesNotNameItsCommandGetsItAgain(t *testing.T) {
	w := newWorld(t)
	d := w.device("d", "mqtt1")
	w.order(Order{Token: "c", Device: "d"})
	w.settle()
	w.expect("c", held)
	for n := range 3 { // its end and its claim are one transaction, before which nothing waits
		if claims, found := w.poll(d); claims != 1 || found != 1 {
			t.Fatalf("poll %d: %d answers, %d commands", n, claims, found)
		}
		w.expect("c", sent)
	}
}

// Where the presence of devices cannot be read dispatch goes on without it, and that is counted: only what a carrier itself says holds a
// command back. Another tenant's devices are judged as ever, and what is HELD stays so until it can be read.
func TestWhereThePresenceCannotBeReadDispatchGoesOnWithoutIt(t *testing.T) {
	w := newWorld(t)
	away, here, near := w.device("away", "mqtt1"), w.device("here", "mqtt1"), w.device("near", "mqtt1")
	w.order(Order{Token: "before", Device: "away"})
	w.settle()
	w.expect("before", held)
	read := w.Service.deps.States
	broken := true
	w.Service.deps.States = func(ctx context.Context, tenant int64, devices []int64) (map[int64]*store.DeviceState, error) {
		if broken {
			return nil, errors.New("broken")
		}
		return read(ctx, tenant, devices)
	}
	w.carrier.connect(here)
	w.carrier.live[near] = false // connected, and not subscribed: the carrier knows it
	for _, device := range []string{"away", "here", "near"} {
		w.order(Order{Token: device, Device: device})
	}
	w.settle()
	if c := w.expect("away", sent); c.Awaits != "" {
		t.Errorf("it waits for %s", c.Awaits)
	}
	if c := w.expect("here", sent); c.Awaits != "mqtt" {
		t.Errorf("the connected device's waits for %q", c.Awaits)
	}
	w.expect("near", held)
	if n := testutil.ToFloat64(w.m.readErrors); n == 0 {
		t.Error("no error is counted")
	}
	w.pass(5 * time.Minute) // hold checks
	w.expect("before", held)
	broken = false
	w.order(Order{Token: "again", Device: "away"})
	w.settle()
	w.expect("again", held)
	w.carrier.connect(away)
	w.settle()
	w.expect("before", sent)
}
