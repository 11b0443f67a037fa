package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/rules"
	"weir/series"
	"weir/store"
)

// NewPast returns a world whose history is replayed: in a minute a device is no longer waited for after a start.
func NewPast(t testing.TB, kinds ...rules.Kind) *World {
	return &World{world: newWorld(t, func(w *world) {
		w.built = noon.AddDate(-1, 0, 0)
		w.cfg.RestartGrace = time.Minute
		w.cfg.ReplayBytes = 4 << 10
		w.kinds = kinds
	})}
}

// Series are the readings, Applied and Heard what is applied of the log, Grace that of a start.
func (w *World) Series() *series.Series { return w.applier.deps.Series }
func (w *World) Applied() model.Offset  { return w.applier.Applied() }
func (w *World) Heard() int64           { return w.applier.ListeningTime() }
func (w *World) Grace() time.Duration   { return w.cfg.RestartGrace }
func (w *World) Edges() []model.Edge    { return w.edges }
func (w *World) Noon() time.Time        { return noon }
func (w *World) Checkpoint()            { w.finishHead(w.applier) }

// Life is what may happen in a life of an instance, besides messages.
type Life struct {
	Steps    int // a day
	Days     int // after the first; each begins and ends around midnight
	Rules    []model.RuleView
	Walls    bool // the wall clock is set, back and forth
	Registry bool // attributes, groups, anchors, types, devices and versions change
	Publish  bool // versions lack rules, the profile is published no longer for a while, devices are deleted and made again
	Time     bool // refusals, closed transports, links, a tenant that is disabled, restarts
}

// Live lets an instance live at random.
func (w *World) Live(r *rand.Rand, l Life) {
	w.t.Helper()
	w.furnish(4, l.Rules...)
	w.change(row(model.ViewTenant, "other", model.TenantView{V: 1, ID: 2, Enabled: true}), row(model.ViewDevice, "other/d1", model.DeviceView{V: 1, ID: 91, Type: 12}),
		row(model.ViewDeviceType, "11", model.DeviceTypeView{V: 1}), row(model.ViewDeviceType, "12", model.DeviceTypeView{V: 1}))
	w.begin()
	if l.Registry {
		w.change(published("hot", 1, `attr["limit"] > 40`, true), attribute(1, "SHARED", "limit", 50.0), attribute(2, "SHARED", "limit", 60.0))
	}
	w.lives = l
	w.version, w.ids = 1, map[int]int64{}
	for day := range l.Days + 1 {
		for range l.Steps {
			w.step(r)
		}
		if day == l.Days {
			break
		}
		wall, _ := w.clock.now()
		midnight := wall.Truncate(24 * time.Hour).Add(24 * time.Hour)
		w.clock.advance(midnight.Sub(wall) - time.Duration(1+r.IntN(120))*time.Second)
		for range l.Steps {
			w.step(r)
		}
		w.clock.advance(time.Duration(1+r.IntN(20)) * time.Hour)
	}
	if l.Publish { // all are live in the end
		w.version++
		w.change(w.profile(w.version, l.Rules...))
	}
	w.apply()
}

// step is what happens next.
func (w *World) step(r *rand.Rand) {
	w.t.Helper()
	l := w.lives
	w.clock.advance(time.Duration(r.IntN(20_000)) * time.Millisecond / time.Duration(1+r.IntN(50)))
	wall, _ := w.clock.now()
	switch n := r.IntN(40); {
	case n == 0 && l.Walls:
		w.clock.step(wall.Add(time.Duration(r.IntN(240)-120) * time.Second))
	case n < 5 && l.Time:
		w.pauses(r, n)
	case n < 10 && l.Registry:
		w.moves(r)
	case n == 10:
		w.apply()
	case n == 11:
		w.apply()
		w.finishHead(w.applier)
	case n == 12 && l.Publish:
		w.publishes(r)
	default:
		w.says(r, wall)
	}
}

// publishes is a version that lacks rules, or none, or that a device is deleted or made again.
func (w *World) publishes(r *rand.Rand) {
	w.t.Helper()
	switch device := 1 + r.IntN(4); r.IntN(5) {
	case 0:
		w.version++
		w.change(w.profile(w.version, slices.DeleteFunc(slices.Clone(w.lives.Rules), func(model.RuleView) bool { return r.IntN(3) == 0 })...))
	case 1:
		w.change(model.ViewChange{Kind: model.ViewProfile, Key: "20"})
	case 2:
		w.version++
		w.change(w.profile(w.version, w.lives.Rules...))
	default:
		key := fmt.Sprintf("acme/d%d", device)
		if id := w.id(device); id > 0 {
			w.change(model.ViewChange{Kind: model.ViewDevice, Key: key})
			w.ids[device] = -id
			return
		}
		w.ids[device] = 100 - w.id(device) // another one of the same name
		w.change(row(model.ViewDevice, key, model.DeviceView{V: 1, ID: w.id(device), Type: 10}))
	}
}

// id is the row id of a device, below 0 while it is deleted.
func (w *World) id(device int) int64 {
	if id, made := w.ids[device]; made {
		return id
	}
	return int64(device)
}

// Version is a version of the profile, by the receive times between which it was published; without rules it was none. An end of 0 is not over.
type Version struct {
	From, To model.Micros
	Rules    []model.RuleView
}

// Versions are those that were published.
func (w *World) Versions() (all []Version) {
	w.t.Helper()
	fixture.EachRow(w.t, w.db, func(_ []string, v []any) {
		var p model.ProfileView
		w.must(json.Unmarshal(v[2].([]byte), &p))
		to, _ := v[1].(int64)
		all = append(all, Version{model.Micros(v[0].(int64)), model.Micros(to), p.Rules})
	}, `SELECT began_at, ended_at, body FROM view_rows WHERE kind = 'profile' ORDER BY from_offset`)
	return all
}

// Kept are the receive times of the kept snapshots.
func (w *World) Kept() (all []model.Micros) {
	w.t.Helper()
	fixture.EachRow(w.t, w.db, func(_ []string, v []any) { all = append(all, model.Micros(v[0].(int64))) }, `SELECT received FROM rule_snapshots ORDER BY gen`)
	return all
}

// Exec changes the store behind everyone's back.
func (w *World) Exec(query string, args ...any) {
	w.t.Helper()
	w.must(w.db.Write(context.Background(), store.Durable, func(tx store.Tx) error { _, err := tx.Exec(query, args...); return err }))
}

// pauses is one of the things that stop listening time.
func (w *World) pauses(r *rand.Rand, n int) {
	w.t.Helper()
	switch n {
	case 0:
		w.counts.links.Shut()
		w.clock.advance(time.Duration(r.IntN(30)) * time.Second)
		w.counts.links.Open()
	case 1:
		w.counts.links.Refused("acme")
	case 2:
		if r.IntN(2) == 0 {
			w.counts.links.Link("plant").Up()
		} else {
			w.counts.links.Link("plant").Down()
		}
	case 3:
		w.change(row(model.ViewTenant, "acme", model.TenantView{V: 1, ID: 1}))
		for range r.IntN(3) {
			w.clock.advance(time.Duration(r.IntN(20)) * time.Second)
			w.tick()
		}
		w.change(row(model.ViewTenant, "acme", model.TenantView{V: 1, ID: 1, Enabled: true}))
	case 4:
		w.startAgain(r)
	}
}

// moves is a change of the registry.
func (w *World) moves(r *rand.Rand) {
	w.t.Helper()
	device := 1 + r.IntN(4)
	for w.id(device) < 0 {
		if device = device%4 + 1; w.id(1) < 0 && w.id(2) < 0 && w.id(3) < 0 && w.id(4) < 0 {
			return
		}
	}
	name := device
	device = int(w.id(device))
	switch r.IntN(9) {
	case 0:
		w.change(attribute(device, "SERVER", "limit", float64(20+r.IntN(60))))
	case 1:
		w.change(attribute(device, "SHARED", "limit", float64(20+r.IntN(60))))
	case 2:
		w.change(attribute(device, "SHARED", "zone", float64(r.IntN(2))))
	case 3:
		w.change(anchored(device, [][]model.Anchor{nil, {hall}, {roof}, {hall, roof}}[r.IntN(4)]...))
	case 4:
		w.change(published("hot", 1, `attr["limit"] > 40`, r.IntN(2) == 0))
	case 5:
		w.version++
		w.change(w.profile(w.version, w.lives.Rules...))
	case 6: // another type, and back
		typ := int64(10 + r.IntN(2))
		w.change(row(model.ViewDevice, fmt.Sprintf("acme/d%d", name), model.DeviceView{V: 1, ID: int64(device), Type: typ}))
	case 7: // the type has no profile for a moment
		w.change(row(model.ViewDeviceType, "10", model.DeviceTypeView{V: 1}))
		w.change(row(model.ViewDeviceType, "10", model.DeviceTypeView{V: 1, Profile: 20}))
	case 8:
		w.change(fenced(1, int64(w.version), "yard", []string{"", square, withHole}[r.IntN(3)])...)
	}
}

// says is a message of a device.
func (w *World) says(r *rand.Rand, wall time.Time) {
	w.t.Helper()
	device := 1 + r.IntN(4)
	a := w.arrival(device, "")
	a.Conn.DeviceID = max(w.id(device), -w.id(device))
	if r.IntN(3) == 0 {
		a.Source = "plant"
	}
	stamp := func(s string) string {
		if r.IntN(4) == 0 {
			return s
		}
		at := wall.Add(-time.Duration(r.IntN(6)) * time.Second)
		if r.IntN(8) == 0 {
			at = at.Add(-time.Duration(r.IntN(120)) * time.Second)
		}
		return s + fmt.Sprintf(`,"occurredTime":%q`, at.UTC().Format(time.RFC3339Nano))
	}
	switch r.IntN(12) {
	case 0:
		a.Body = fmt.Appendf(nil, `{"eventType":"Location","payload":{"entries":[{"latitude":"%v","longitude":"%v"},{"latitude":"47.5","longitude":"8.5"}]}%s}`,
			46.9+r.Float64()*1.2, 7.9+r.Float64()*1.2, stamp(""))
	case 1:
		a.Body = fmt.Appendf(nil, `{"eventType":"Alert","payload":{"entries":[{"type":"door","level":2},{"type":"door","level":3}]}%s}`, stamp(""))
	case 2:
		state := model.Connected
		if r.IntN(2) == 0 {
			state = model.Disconnected
		}
		w.intake.Presence(w.t.Context(), TransportMQTT, "mqtt1", *a.Conn, model.Presence{State: state, Session: uint64(w.clock.stamp().Wall), Occurred: w.clock.stamp().Wall}, func(Answer) {})
		w.must(w.log.Sync(w.t.Context()))
		return
	case 3: // another tenant
		a.Tenant, a.Topic, a.Conn = "other", "d1", &model.Binding{Tenant: "other", TenantID: 2, Device: "d1", DeviceID: 91, Credential: 1}
		a.Body = []byte(temp(1))
	default:
		var entries []string
		for range 1 + r.IntN(4) {
			var ms []string
			for _, m := range [...]string{"temp", "n", "hum"} {
				if r.IntN(2) == 0 {
					ms = append(ms, fmt.Sprintf(`%q:"%d"`, m, r.IntN(100)))
				}
			}
			if len(ms) == 0 {
				continue
			}
			entries = append(entries, stamp(`{"measurements":{`+strings.Join(ms, ",")+`}`)+"}")
		}
		if len(entries) == 0 {
			return
		}
		a.Body = fmt.Appendf(nil, `{"eventType":"Measurement","payload":{"entries":[%s]}%s}`, strings.Join(entries, ","), stamp(""))
	}
	w.send(a)
}

// Told is a value of temp as a device sent it, alone in its message.
type Told struct {
	Device             string
	Occurred, Received model.Micros
	Value              float64
}

// Tell lets devices send values of temp, one a message, in order and late. Parts of them are applied and written as they come.
func (w *World) Tell(r *rand.Rand, n int) (all []Told) {
	w.t.Helper()
	for i := range n {
		w.clock.advance(time.Duration(1+r.IntN(9000)) * time.Millisecond)
		wall, _ := w.clock.now()
		at := wall.Add(-time.Duration(r.IntN(20)*r.IntN(2)) * time.Second).Truncate(time.Microsecond)
		told := Told{fmt.Sprintf("d%d", 1+r.IntN(4)), model.MicrosOf(at), model.MicrosOf(wall), float64(r.IntN(100))}
		a := w.arrival(int(told.Device[1]-'0'), measurement("temp", told.Value, fmt.Sprintf(`,"occurredTime":%q`, at.UTC().Format(time.RFC3339Nano))))
		if answer := w.send(a); answer.Outcome != Stored {
			w.t.Fatalf("%+v", answer)
		}
		all = append(all, told)
		if i%37 == 0 {
			w.apply()
		}
		if i%101 == 0 {
			w.finishHead(w.applier)
		}
	}
	w.apply()
	return all
}
