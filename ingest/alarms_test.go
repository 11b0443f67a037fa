package ingest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
	"weir/store/alarms"
)

const raise = `{"type":"raiseAlarm","raiseAlarm":{}}`

// moved is what subscribers have got of alarms, in short, since it was asked before.
func (w *world) moved() (out []string) {
	for _, e := range w.alarms.moves {
		text := fmt.Sprintf("%s %s %s %s", e.Device, e.Key, e.Move, e.Severity)
		if e.Before != "" {
			text += " from " + e.Before
		}
		out = append(out, text)
	}
	w.alarms.moves = nil
	return out
}

// listed are the alarms of the tenant.
func (w *world) listed() (found []*model.Alarm) {
	w.t.Helper()
	w.must(w.db.Read(context.Background(), func(tx store.Tx) (err error) {
		found, err = alarms.Find(tx, 1, &alarms.Filter{})
		return err
	}))
	return found
}

// measures sends readings of a device, a second apart, and applies them.
func (w *world) measures(device int, vs ...float64) {
	w.t.Helper()
	for _, v := range vs {
		w.clock.advance(time.Second)
		if an := w.send(w.arrival(device, temp(v))); an.Outcome != Stored {
			w.t.Fatalf("%v: %+v", v, an)
		}
	}
	w.apply()
}

func (w *world) sees(want ...string) {
	w.t.Helper()
	if got := w.moved(); !slices.Equal(got, want) {
		w.t.Errorf("moves %q, want %q", got, want)
	}
}

func TestAnEdgeRaisesAnAlarmAndItsResolvingClearsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(2, doing(thresholdRule("hot", "temp", "gt", 60), raise))
	w.measures(1, 20, 70, 80)
	w.sees("d1 boiler/hot RAISED MAJOR")
	as := w.listed()
	if len(as) != 1 || as[0].State != model.AlarmActive || *as[0].LastValue != 70 || as[0].Metric != "temp" || as[0].RaisedAt != w.edges[0].Occurred || !model.ValidToken(as[0].Token) {
		t.Fatalf("%+v", as)
	}
	w.measures(1, 30)
	w.sees("d1 boiler/hot CLEARED MAJOR")
	if as = w.listed(); as[0].State != model.AlarmCleared || *as[0].ClearedAt != w.edges[1].Occurred {
		t.Errorf("%+v", as[0])
	}
	w.measures(1, 90)
	w.sees("d1 boiler/hot RAISED MAJOR")
	if again := w.listed(); len(again) != 1 || again[0].Token != as[0].Token || again[0].ClearedAt != nil || again[0].Moves != 3 {
		t.Errorf("%+v", again[0])
	}
	w.restart() // what is known is not folded again
	w.apply()
	w.sees()
	w.measures(2, 90)
	w.sees("d2 boiler/hot RAISED MAJOR")
}

func TestTheOutboxHasEachActionOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1, doing(thresholdRule("hot", "temp", "gt", 60), raise+`,{"type":"httpCall","httpCall":{"url":"http://h","bodyTemplate":"series + ' ' + string(value)"}},
		{"type":"publish","publish":{"connectorRef":"bus"},"guard":"value > 75.0"},{"type":"publish","publish":{"connectorRef":"old"},"maxAge":"1h"},{"type":"sendCommand","sendCommand":{"command":"stop"}}`))
	at := func(v float64, when time.Time) {
		w.clock.advance(time.Second)
		w.send(w.arrival(1, measurement("temp", v, fmt.Sprintf(`,"occurredTime":%q`, when.Format(time.RFC3339Nano)))))
		w.apply()
	}
	now := w.clock.stamp().Wall.Time()
	at(70, now.Add(-2*time.Hour)) // too old for a command, and for the connector old
	at(10, now.Add(-time.Hour))
	at(80, now)
	want := []string{"httpCall d1 70", "httpCall d1 80", "publish bus", "publish old", "sendCommand stop"}
	outbox := func() (out []string) {
		fixture.EachRow(t, w.db, func(columns []string, values []any) {
			kind, body := values[0].(string), values[1].(string)
			for _, part := range []string{"d1 70", "d1 80", "stop", "bus", "old"} {
				if strings.Contains(body, `"`+part+`"`) {
					out = append(out, kind+" "+part)
				}
			}
		}, `SELECT kind, body FROM outbox ORDER BY id`)
		slices.Sort(out)
		return out
	}
	if got := outbox(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	h, err := w.applier.RuleHealth(context.Background(), "acme", "boiler")
	if err != nil || h[0].StaleActions != 2 || h[0].EvalErrors != 0 {
		t.Errorf("%+v, %v", h, err)
	}
	w.restart()
	w.apply()
	if got := outbox(); !slices.Equal(got, want) {
		t.Errorf("after a restart %q, want %q", got, want)
	}
	if h, _ := w.applier.RuleHealth(context.Background(), "acme", "boiler"); h[0].StaleActions != 2 {
		t.Errorf("after a restart %+v", h)
	}
}

// TestAPublishMovesWhatARaisedRuleContributes: with an equal body, nothing is raised again that stands.
func TestAPublishMovesWhatARaisedRuleContributes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rule := func(severity, actions string) model.RuleView {
		r := doing(thresholdRule("hot", "temp", "gt", 60), actions)
		r.Definition = strings.Replace(r.Definition, `"major"`, `"`+severity+`"`, 1)
		return r
	}
	version := 1
	publish := func(r model.RuleView) {
		version++
		w.change(w.profile(version, r))
		w.apply()
	}
	w.furnish(2, rule("major", raise))
	w.measures(1, 70)
	w.moved()
	publish(rule("critical", raise))
	w.sees("d1 boiler/hot ESCALATED CRITICAL from MAJOR")
	publish(rule("minor", raise))
	w.sees("d1 boiler/hot DEESCALATED MINOR from CRITICAL")
	publish(rule("minor", raise+`,{"type":"raiseAlarm","raiseAlarm":{"alarmKey":"more"}}`))
	w.sees("d1 more RAISED MINOR")
	publish(rule("minor", `{"type":"raiseAlarm","raiseAlarm":{"alarmKey":"more"}}`))
	w.sees("d1 boiler/hot CLEARED MINOR")
	w.restart()
	w.apply()
	publish(rule("minor", `{"type":"raiseAlarm","raiseAlarm":{"alarmKey":"other"},"guard":"value > 50.0"}`))
	w.sees("d1 other RAISED MINOR", "d1 more CLEARED MINOR")
	publish(rule("minor", `{"type":"publish","publish":{"connectorRef":"bus"}}`))
	w.sees("d1 other CLEARED MINOR")
	publish(rule("minor", `{"type":"raiseAlarm","raiseAlarm":{"alarmKey":"other"},"guard":"value > 50.0"}`))
	w.sees() // it contributed to nothing: its guard was not asked
	w.measures(1, 10, 70)
	w.sees("d1 other RAISED MINOR")
	publish(thresholdRule("hot", "temp", "gt", 65)) // another body: it resolves
	w.sees("d1 other CLEARED MINOR")
}

func TestTheAlarmsOfADeviceGoWithItAndTheirHistoryStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(2, doing(thresholdRule("hot", "temp", "gt", 60), raise))
	w.measures(1, 70)
	w.measures(2, 70)
	token := w.listed()[0].Token
	of := w.listed()[0].Device
	w.moved()
	w.change(model.ViewChange{Kind: model.ViewDevice, Key: "acme/" + of})
	w.apply()
	w.sees(of + " boiler/hot CLEARED MAJOR")
	if as := w.listed(); len(as) != 1 || as[0].Device == of {
		t.Errorf("%+v", as)
	}
	events, total, err := w.alarms.History(context.Background(), &model.Principal{TenantID: 1}, token, store.Page{})
	if err != nil || total != 2 || events[0].Move != model.AlarmWasCleared || events[1].Move != model.AlarmRaised {
		t.Errorf("%+v, %v", events, err)
	}
}

// TestAfterAStormAlarmsAreRight: a rule that flaps meets the ceiling of its tenant, and what is folded of it is bounded like its
// edges; once there is room, each alarm is what its device is.
func TestAfterAStormAlarmsAreRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.maxEdges = 1 })
	w.furnish(21, doing(thresholdRule("hot", "temp", "gt", 60), raise))
	r := rand.New(rand.NewPCG(3, 3))
	last := map[string]bool{}
	for i := range 1500 {
		device, hot := 1+r.IntN(20), r.IntN(2) == 0
		w.clock.advance(time.Millisecond)
		w.send(w.arrival(device, temp(map[bool]float64{true: 90, false: 20}[hot])))
		last[fmt.Sprint("d", device)] = hot
		if i%400 == 0 {
			w.apply()
		}
		if i == 1200 {
			w.restart()
		}
	}
	w.apply()
	if n := len(w.alarms.moves); n > 200 {
		t.Errorf("%d moves of alarms in two seconds", n)
	}
	wrong := func() (n int) {
		for _, a := range w.listed() {
			if last[a.Device] != (a.State == model.AlarmActive) {
				n++
			}
		}
		return n
	}
	before := wrong()
	for range 5 {
		w.clock.advance(time.Minute)
		w.send(w.arrival(21, temp(20)))
		w.apply()
	}
	if after := wrong(); after != 0 || before == 0 {
		t.Errorf("%d alarms are wrong after the storm, %d at its end", after, before)
	}
	h, err := w.applier.RuleHealth(context.Background(), "acme", "boiler")
	if err != nil || h[0].HeldEdges < 100 || h[0].Fires != int64(len(w.edges)) {
		t.Errorf("%+v, %v; %d edges", h, err, len(w.edges))
	}
}

// TestAnAlarmCostsItsTenantMoreThanAnEdge: alarms are rows, which the tenant pays for in its own rate, and which bound a batch.
func TestAnAlarmCostsItsTenantMoreThanAnEdge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1, doing(thresholdRule("hot", "temp", "gt", 60), raise+`,{"type":"publish","publish":{"connectorRef":"bus"}}`), thresholdRule("warm", "temp", "gt", 40))
	w.measures(1, 10)
	p := w.applier.results.rules
	spent := func(v float64) int64 {
		before := p.cost()
		w.measures(1, v)
		return p.cost() - before
	}
	if got, want := spent(50), int64(2*costJudgement+costEdge); got != want {
		t.Errorf("an edge costs %d, want %d", got, want)
	}
	if got, want := spent(70), int64(2*costJudgement+costEdge+costFold+costOrder); got != want {
		t.Errorf("an alarm and an order cost %d, want %d", got, want)
	}
}
