package ingest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/model"
	"weir/store"
)

// edgesSince are the edges from the n-th on, in short.
func (w *world) edgesSince(n int) string {
	var all []string
	for _, e := range w.edges[n:] {
		all = append(all, fmt.Sprintf("%s %s %s", e.Series, e.Rule, e.Signal))
	}
	return strings.Join(all, ", ")
}

// near counts members of the group hot.
var near = model.RuleView{Token: "near", Definition: `{"name":"n","type":"correlation","anchorType":"group","count":2,"window":"10m","lateness":"0s","when":{"metric":"temp","op":"gt","threshold":50}}`}

// TestDevicesLeaveADynamicGroupAtWhichACorrelationCounts: nobody says which devices leave when an attribute or the group changes. Those
// that are counted there count no more from that record on, and no device leaves between two rows of one change.
func TestDevicesLeaveADynamicGroupAtWhichACorrelationCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(3, near)
	const limited = `attr["limit"] > 2`
	hot := func(devices ...int) {
		for _, d := range devices {
			w.stored(w.arrival(d, temp(60)))
		}
	}
	for i, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"no member", func() { w.change(published("hot", 1, limited, true)); hot(1, 2) }, ""},
		{"two members", func() {
			w.change(attribute(1, "SHARED", "limit", 70.0), attribute(2, "SHARED", "limit", 70.0))
			hot(1, 2)
		}, "hot near raised"},
		{"an attribute changes, the device stays", func() { w.change(attribute(2, "SHARED", "limit", 3.0)) }, ""},
		{"an attribute of a device that was not counted", func() { w.change(attribute(3, "SHARED", "limit", 1.0)) }, ""},
		{"the attribute lets one leave", func() { w.change(attribute(2, "SHARED", "limit", 1.0)) }, "hot near resolved"},
		{"it is back", func() { w.change(attribute(2, "SHARED", "limit", 5.0)); hot(2) }, "hot near raised"},
		{"another version that selects them, too: between the two rows nobody is a member", func() {
			w.change(published("hot", 1, limited, false), published("hot", 2, `attr["limit"] > 1`, true))
		}, ""},
		{"another version that selects one", func() {
			w.change(published("hot", 2, `attr["limit"] > 1`, false), published("hot", 3, `attr["limit"] > 10`, true))
		}, "hot near resolved"},
		{"both again", func() { w.change(attribute(2, "SHARED", "limit", 50.0)); hot(2) }, "hot near raised"},
		{"a static membership holds what the selector lets go", func() {
			w.change(inGroups(2, "hot"))
			w.change(attribute(2, "SHARED", "limit", 0.0))
		}, ""},
		{"the group is no more in use", func() { w.change(model.ViewChange{Kind: model.ViewGroup, Key: "1/3"}) }, "hot near resolved"},
	} {
		before := len(w.edges)
		step.do()
		w.apply()
		if got := w.edgesSince(before); got != step.want {
			t.Errorf("%s: %q, want %q", step.what, got, step.want)
		}
		if w.finishHead(w.applier); i%2 == 0 {
			w.restart()
		}
	}
}

// TestAGapOfTheLogLetsDevicesLeaveTheirAnchors: what the records of the gap said of groups and relationships is effective after it.
func TestAGapOfTheLogLetsDevicesLeaveTheirAnchors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := near
	at.Token, at.Definition = "at", strings.Replace(near.Definition, `"group"`, `"area"`, 1)
	w.furnish(2, near, at)
	w.change(published("hot", 1, `attr["limit"] > 2`, true), attribute(1, "SHARED", "limit", 70.0), attribute(2, "SHARED", "limit", 70.0), anchored(1, hall), anchored(2, hall, roof))
	w.stored(w.arrival(1, temp(60)))
	w.stored(w.arrival(2, temp(60)))
	w.apply()
	if got := w.edgesSince(0); got != "hall at raised, hot near raised" {
		t.Fatalf("%q", got)
	}
	left := anchored(2, roof)
	w.must(w.db.Write(t.Context(), store.Durable, func(tx store.Tx) error {
		at := w.applier.Applied() + 1
		if err := store.SetView(tx, left.Kind, left.Key, left.Body, at, 0); err != nil {
			return err
		}
		return store.SetView(tx, model.ViewGroup, "1/1", nil, at, 0)
	}))
	before := len(w.edges)
	w.must(w.applier.reloadMetadata(t.Context(), w.applier.Applied()+1))
	if got := w.edgesSince(before); got != "hot near resolved, hall at resolved" {
		t.Errorf("%q", got)
	}
}

// moving is a registry in which a new relationship of a device takes the device out of its group.
type moving struct {
	Registrar
	st store.Store
}

func (m moving) Relate(ctx context.Context, by *model.Principal, device int64, _ string, _ *model.Relationship) error {
	return store.Direct{Store: m.st}.Mutate(ctx, by, func(c *store.Change) error {
		c.View(attribute(int(device), "SHARED", "limit", removed))
		return nil
	})
}

// TestWhatARecordFiresIsStoredTogether: a message that changes the registry is committed in two steps. Timers fire before it and devices
// leave groups after it, at the same record: none of these edges may be taken for one that is known.
func TestWhatARecordFiresIsStoredTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.registrar = func(st store.Store) Registrar { return moving{st: st} } })
	scoped := doing(thresholdRule("hot", "temp", "gt", 50), raise)
	scoped.Group, scoped.GroupVersion = "hot", 1
	w.furnish(1, scoped, doing(model.RuleView{Token: "silent", Definition: `{"name":"n","type":"absence","severity":"minor","timeout":"1m","lateness":"0s"}`}, raise))
	w.change(published("hot", 1, `attr["limit"] > 2`, true), attribute(1, "SHARED", "limit", 70.0))
	w.measures(1, 60)
	w.sees("d1 boiler/hot RAISED MAJOR")
	w.clock.advance(2 * time.Minute)
	before := len(w.edges)
	w.stored(w.arrival(1, relation("stands-in", "area", "roof", "")))
	w.apply()
	for range 2 { // and once more, as after a kill
		var stored []string
		w.must(w.db.Read(t.Context(), func(tx store.Tx) error {
			return store.Edges(tx, 1, func(e *model.Edge) error {
				stored = append(stored, fmt.Sprintf("%s %s %s", e.Series, e.Rule, e.Signal))
				return nil
			})
		}))
		if want := []string{"d1 hot raised", "d1 silent raised", "d1 hot resolved"}; !slices.Equal(stored, want) {
			t.Errorf("stored are %q, want %q", stored, want)
		}
		var alarms []string
		for _, a := range w.listed() {
			alarms = append(alarms, a.Key+" "+string(a.State))
		}
		if slices.Sort(alarms); !slices.Equal(alarms, []string{"boiler/hot CLEARED", "boiler/silent ACTIVE"}) {
			t.Errorf("alarms %q", alarms)
		}
		w.restart()
		w.apply()
	}
	if got, want := w.edgesSince(before), "d1 silent raised, d1 hot resolved"; got != want {
		t.Errorf("watchers got %q, want %q", got, want)
	}
	w.sees("d1 boiler/silent RAISED MINOR", "d1 boiler/hot CLEARED MAJOR")
}

// TestADeviceOfAnotherTypeBeginsAnew: what a device has raised resolves when it gets another type, whatever the kind, its alarms clear, and
// nothing is left of its keys; the rules of the new type judge it. A start on the way changes nothing.
func TestADeviceOfAnotherTypeBeginsAnew(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		w := newWorld(t)
		var rs []model.RuleView
		for i, body := range append([]string{`"type":"threshold","when":{"metric":"temp","op":"gt","threshold":50}`,
			`"type":"aggregate","windowMode":"count","count":2,"agg":"max","metric":"temp","op":"gt","threshold":50`}, waitingKinds...) {
			r := model.RuleView{Token: fmt.Sprintf("w%02d", i), Definition: `{"name":"n","severity":"major",` + body + `}`}
			if !strings.Contains(body, "correlation") {
				r = doing(r, raise)
			}
			rs = append(rs, r)
		}
		w.furnish(2, rs...)
		w.change(anchored(1, hall), anchored(2, hall), row(model.ViewDeviceType, "11", model.DeviceTypeView{V: 1, Profile: 21}),
			row(model.ViewProfile, "21", model.ProfileView{V: 1, Tenant: "acme", Token: "other", Version: 1,
				Rules: []model.RuleView{doing(thresholdRule("new", "temp", "gt", 50), raise)}}))
		for i := range 12 {
			for _, d := range []int{1, 2} {
				w.stored(w.arrival(d, temp([]float64{10, 90, 95, 98}[i%4])))
			}
		}
		for range 2 { // a session
			w.stored(w.arrival(1, temp(98)))
		}
		w.apply()
		w.clock.advance(20 * time.Second) // both are silent, and what waits fires
		w.must(appendClock(t.Context(), w.log, w.time.Stamp(), func(model.Offset, error) {}))
		w.must(w.log.Sync(t.Context()))
		w.apply()
		w.intake.Presence(t.Context(), TransportMQTT, "mqtt1", *w.arrival(1, "").Conn, model.Presence{State: model.Disconnected, Session: 7, Occurred: w.clock.stamp().Wall}, func(Answer) {})
		w.must(w.log.Sync(t.Context()))
		w.apply()
		raised := map[string]bool{}
		note := func() {
			clear(raised)
			for _, e := range w.edges {
				if e.Device == 1 || e.Device == 0 {
					raised[e.Rule] = e.Signal == model.Raised
				}
			}
		}
		note()
		ever := map[string]bool{}
		for _, e := range w.edges {
			ever[e.Rule] = true
		}
		if len(ever) != len(rs) {
			t.Fatalf("of %d rules %d have fired: %v", len(rs), len(ever), ever)
		}
		if w.finishHead(w.applier); again {
			w.restart()
		}
		w.change(row(model.ViewDevice, "acme/d1", model.DeviceView{V: 1, ID: 1, Type: 11}))
		w.apply()
		note()
		for rule, is := range raised {
			if is {
				t.Errorf("%s is still raised (again %v)", rule, again)
			}
		}
		for _, a := range w.listed() {
			if a.Device == "d1" && a.State == model.AlarmActive {
				t.Errorf("the alarm %s is active (again %v)", a.Key, again)
			}
		}
		keys := w.applier.RuleStats().Keys
		before := len(w.edges)
		w.change(row(model.ViewDevice, "acme/d2", model.DeviceView{V: 1, ID: 2, Type: 11}))
		w.apply()
		// The key of the hall remembers when its last edge was.
		if is := w.applier.RuleStats(); is.Keys != 1 || is.Samples != 0 || is.Devices != 0 || keys <= 1 {
			t.Errorf("both have gone: %+v; with one %d keys", is, keys)
		}
		if got := w.edgesSince(before); strings.Contains(got, "raised") {
			t.Errorf("leaving raises %q", got)
		}
		before = len(w.edges)
		w.stored(w.arrival(1, temp(90)))
		w.apply()
		if got := w.edgesSince(before); got != "d1 new raised" {
			t.Errorf("under its new type: %q", got)
		}
	}
}
