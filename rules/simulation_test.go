package rules

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weir/model"
)

// An op is one record of a made-up log.
type op struct {
	place   Position
	kind    string // apply, install, remove, forget, detach, rename
	profile ProfileRef
	rules   []model.RuleView
	device  Device
	at      model.Micros
	input   InputKind
	samples []model.Reading
}

func (o op) run(e *Engine, emit Emit) {
	switch o.kind {
	case "apply":
		e.Apply(&Input{Position: o.place, Profile: o.profile.ProfileKey, Device: o.device, Occurred: o.at, Kind: o.input, Readings: o.samples}, emit)
	case "install":
		e.Install(o.place, o.profile, o.rules, emit)
	case "remove":
		e.Remove(o.place, o.profile.ProfileKey, emit)
	case "forget":
		e.RemoveDevice(o.place, o.device.ID, emit)
	case "detach":
		e.Detach(o.place, o.profile.ProfileKey, o.device.Type, emit)
	case "rename":
		e.Rename(o.device.ID, o.device.Token)
	}
}

var (
	simMetrics = []string{"a", "b", "c"}
	simBodies  = []string{
		threshold(`{"metric":"a","op":"gt","threshold":2}`),
		threshold(`{"metric":"a","op":"le","threshold":1}`),
		threshold(`{"metric":"b","op":"eq","threshold":3}`),
		threshold(`{"metric":"c","op":"ne","threshold":0}`),
		`{"name":"n","type":"threshold","severity":"major","when":{"metric":"a","op":"gt","threshold":2}}`,
		celThreshold(`"a" in m && "b" in m && m.a > m.b`),
		celThreshold(`m["c"] > 1.0`),
		celThreshold(`device == "d2" || size(m) == 2`),
		`{"name":"n","type":"threshold","lateness":"2h","when":{"metric":"b","op":"gt","threshold":1}}`, // over the limit
		`{`,
	}
)

func drawLog(t *rapid.T) []op {
	ops := make([]op, rapid.IntRange(1, 60).Draw(t, "length"))
	var listening Listening
	versions := map[ProfileKey]int{}
	for i := range ops {
		listening += Listening(rapid.Int64Range(0, 3e9).Draw(t, "listening"))
		o := op{place: Position{Epoch: 1, Offset: model.Offset(i/2 + 1), Index: uint32(i % 2), Received: model.Nanos(i), Listening: listening}}
		o.kind = rapid.SampledFrom([]string{"apply", "apply", "apply", "apply", "apply", "install", "install", "remove", "forget", "detach", "rename"}).Draw(t, "kind")
		n := rapid.Int64Range(1, 3).Draw(t, "profile")
		o.profile = ProfileRef{ProfileKey: ProfileKey{1 + n/3, n}, TenantToken: fmt.Sprintf("t%d", 1+n/3), Token: fmt.Sprintf("p%d", n)}
		id := rapid.Int64Range(1, 6).Draw(t, "device")
		o.device = Device{ID: id * 1000, Type: id % 2, Token: fmt.Sprintf("d%d", id)}
		switch o.kind {
		case "install":
			versions[o.profile.ProfileKey]++
			o.profile.Version = versions[o.profile.ProfileKey]
			for _, token := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"r1", "r2", "r3", "r4", "r5"}), 0, 5, rapid.ID).Draw(t, "rules") {
				o.rules = append(o.rules, view(token, rapid.SampledFrom(simBodies).Draw(t, "body")))
			}
		case "apply":
			o.at = model.Micros(rapid.Int64Range(0, 40).Draw(t, "at") * 100_000)
			o.input = rapid.SampledFrom([]InputKind{Measurement, Measurement, Measurement, Measurement, Bare, Location, Transition}).Draw(t, "input")
			for _, m := range rapid.SliceOfNDistinct(rapid.SampledFrom(simMetrics), 0, 3, rapid.ID).Draw(t, "metrics") {
				o.samples = append(o.samples, model.Reading{Metric: m, Value: float64(rapid.IntRange(0, 4).Draw(t, "value"))})
			}
		case "rename":
			o.device.Token += "x"
		}
		ops[i] = o
	}
	return ops
}

var simLimits = Limits{Settings: Settings{MaxDuration: 3600e9, MaxKeys: 3}}

// TestReplayFromAnySnapshotGivesTheSameEdges runs a log in one go, and once more with the engine thrown away and
// loaded from its pages at random places.
func TestReplayFromAnySnapshotGivesTheSameEdges(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t, simLimits)
	rapid.Check(t, func(t *rapid.T) {
		ops := drawLog(t)
		var want, got []model.Edge
		whole := NewEngine(c, nil)
		for _, o := range ops {
			o.run(whole, func(e model.Edge) { want = append(want, e) })
		}

		part, store, active := NewEngine(c, nil), map[string]Page{}, map[ProfileKey]op{}
		for _, o := range ops {
			o.run(part, func(e model.Edge) { got = append(got, e) })
			switch o.kind {
			case "install":
				active[o.profile.ProfileKey] = o
			case "remove":
				delete(active, o.profile.ProfileKey)
			}
			if rapid.IntRange(0, 11).Draw(t, "cut") == 0 {
				part = reload(t, c, part, store, active)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("edges differ:\n got %v\nwant %v", got, want)
		}
		keep(store, part.Freeze())
		wantStore := map[string]Page{}
		keep(wantStore, whole.Freeze())
		if !reflect.DeepEqual(store, wantStore) {
			t.Fatalf("pages differ:\n got %v\nwant %v", store, wantStore)
		}
		if part.Stats() != whole.Stats() {
			t.Fatalf("stats %+v, want %+v", part.Stats(), whole.Stats())
		}
		for k := range active {
			if !reflect.DeepEqual(part.Health(k), whole.Health(k)) {
				t.Fatalf("health of %v:\n got %+v\nwant %+v", k, part.Health(k), whole.Health(k))
			}
		}
	})
}

func keep(store map[string]Page, pages []Page) {
	for _, p := range pages {
		if p.Data == nil {
			delete(store, p.ID)
		} else {
			store[p.ID] = p
		}
	}
}

// reload replaces an engine by one that knows nothing but the pages and the active versions.
func reload(t *rapid.T, c *Compiler, e *Engine, store map[string]Page, active map[ProfileKey]op) *Engine {
	keep(store, e.Freeze())
	if again := e.Freeze(); len(again) > 0 {
		t.Fatalf("nothing changed, but %d pages", len(again))
	}
	fresh := NewEngine(c, nil)
	if err := fresh.Load(slices.Collect(maps.Values(store))); err != nil {
		t.Fatal(err)
	}
	for _, k := range slices.SortedFunc(maps.Keys(active), ProfileKey.compare) {
		o := active[k]
		fresh.Install(o.place, o.profile, o.rules, func(edge model.Edge) { t.Fatalf("a start emitted %+v", edge) })
	}
	return fresh
}

// TestEngineAgreesWithThePlainModel compares the engine with a few lines that have no index, no buckets and no pages.
func TestEngineAgreesWithThePlainModel(t *testing.T) {
	t.Parallel()
	c, compiled := newTestCompiler(t, Limits{Settings: Settings{MaxDuration: 3600e9}}), map[model.RuleView]*Program{}
	rapid.Check(t, func(t *rapid.T) {
		e, m := NewEngine(c, nil), newPlain(c, compiled)
		for i, o := range drawLog(t) {
			var got, want []model.Edge
			o.run(e, func(e model.Edge) { got = append(got, e) })
			m.run(o, func(e model.Edge) { want = append(want, e) })
			if !slices.Equal(got, want) {
				t.Fatalf("op %d %+v:\n got %v\nwant %v", i, o, got, want)
			}
		}
	})
}

type plain struct {
	c        *Compiler
	programs map[model.RuleView]*Program // nil for those that do not compile
	profiles map[ProfileKey]*plainProfile
	devices  map[int64]*plainDevice
}

type plainProfile struct {
	ref        ProfileRef
	rules      map[string]model.RuleView
	bodies     map[string]BodyHash
	severities map[string]string
}

type plainDevice struct {
	Device
	profile ProfileKey
	newest  model.Micros
	arrived Listening
	states  map[string]State
	numbers map[string]uint16 // edges at the place of the last op
	last    Position
}

func newPlain(c *Compiler, compiled map[model.RuleView]*Program) *plain {
	return &plain{c, compiled, map[ProfileKey]*plainProfile{}, map[int64]*plainDevice{}}
}

func (m *plain) run(o op, emit Emit) {
	p := m.profiles[o.profile.ProfileKey]
	d := m.devices[o.device.ID]
	switch o.kind {
	case "apply":
		m.apply(o, p, d, emit)
	case "install":
		next := m.version(o, p)
		m.change(o, p, next, emit)
		m.profiles[o.profile.ProfileKey] = next
		if len(o.rules) == 0 {
			m.dropAll(o, func(*plainDevice) bool { return true }, emit)
		}
	case "remove":
		m.change(o, p, &plainProfile{}, emit)
		m.dropAll(o, func(*plainDevice) bool { return true }, emit)
		delete(m.profiles, o.profile.ProfileKey)
	case "forget":
		m.drop(o.place, d, emit)
	case "detach":
		m.dropAll(o, func(d *plainDevice) bool { return d.Type == o.device.Type }, emit)
	case "rename":
		if d != nil {
			d.Token = o.device.Token
		}
	}
}

func (m *plain) apply(o op, p *plainProfile, d *plainDevice, emit Emit) {
	if p == nil || len(p.rules) == 0 || o.input == Transition {
		return
	}
	if d != nil && d.profile != o.profile.ProfileKey {
		m.drop(o.place, d, emit)
		d = nil
	}
	if d == nil {
		d = &plainDevice{profile: o.profile.ProfileKey, newest: o.at, states: map[string]State{}, numbers: map[string]uint16{}}
		m.devices[o.device.ID] = d
	}
	d.Device, d.newest, d.arrived = o.device, max(d.newest, o.at), o.place.Listening
	for _, token := range slices.Sorted(maps.Keys(p.rules)) {
		prg := m.program(p.rules[token])
		if prg == nil {
			continue
		}
		in := &Input{Device: o.device, Occurred: o.at, Kind: o.input, Readings: o.samples}
		st, fired, _ := prg.Eval(d.states[token], in, Clock{}, nil)
		for _, f := range fired {
			d.states[token] = st
			m.emit(o.place, p, d, token, f, emit)
		}
	}
}

func (m *plain) program(v model.RuleView) *Program {
	p, ok := m.programs[v]
	if !ok {
		_, p, _ = m.c.compileView(v)
		m.programs[v] = p
	}
	return p
}

// change ends the keys of rules that are gone or have another body, by rule, then by device.
func (m *plain) change(o op, p, next *plainProfile, emit Emit) {
	if p == nil {
		return
	}
	for _, token := range slices.Sorted(maps.Keys(p.rules)) {
		_, ok := next.rules[token]
		if ok && next.bodies[token] == p.bodies[token] {
			continue
		}
		for _, d := range m.of(o.profile.ProfileKey) {
			m.end(o.place, p, d, token, emit)
			delete(d.states, token)
		}
	}
}

func (m *plain) version(o op, before *plainProfile) *plainProfile {
	p := &plainProfile{o.profile, map[string]model.RuleView{}, map[string]BodyHash{}, map[string]string{}}
	for _, v := range o.rules {
		p.rules[v.Token] = v
		def, err := Decode([]byte(v.Definition))
		switch {
		case err == nil:
			p.bodies[v.Token], p.severities[v.Token] = def.BodyHash("", 0), def.Severity
		case before != nil: // keeps what there was
			p.bodies[v.Token], p.severities[v.Token] = before.bodies[v.Token], before.severities[v.Token]
		}
	}
	return p
}

func (m *plain) of(k ProfileKey) []*plainDevice {
	ds := slices.DeleteFunc(slices.Collect(maps.Values(m.devices)), func(d *plainDevice) bool { return d.profile != k })
	slices.SortFunc(ds, func(a, b *plainDevice) int { return cmp.Compare(a.ID, b.ID) })
	return ds
}

func (m *plain) dropAll(o op, which func(*plainDevice) bool, emit Emit) {
	for _, d := range m.of(o.profile.ProfileKey) {
		if which(d) {
			m.drop(o.place, d, emit)
		}
	}
}

func (m *plain) drop(at Position, d *plainDevice, emit Emit) {
	if d == nil {
		return
	}
	p := m.profiles[d.profile]
	for _, token := range slices.Sorted(maps.Keys(d.states)) {
		m.end(at, p, d, token, emit)
	}
	delete(m.devices, d.ID)
}

func (m *plain) end(at Position, p *plainProfile, d *plainDevice, token string, emit Emit) {
	st := d.states[token]
	if st.Raised {
		own := d.newest + model.Micros((at.Listening-d.arrived)/1000)
		m.emit(at, p, d, token, Firing{Signal: model.Resolved, At: max(st.LastEdge, own)}, emit)
	}
}

func (m *plain) emit(at Position, p *plainProfile, d *plainDevice, token string, f Firing, emit Emit) {
	if d.last != at {
		d.last, d.numbers = at, map[string]uint16{}
	}
	emit(model.Edge{
		ID: model.EdgeID{Epoch: at.Epoch, Offset: at.Offset, Index: at.Index, Rule: p.ref.Token + "/" + token,
			Key: fmt.Sprint(d.ID), N: d.numbers[token]},
		Tenant: p.ref.TenantToken, TenantID: p.ref.Tenant, Profile: p.ref.Token, Version: p.ref.Version, Rule: token,
		Kind: "threshold", Signal: f.Signal, Series: d.Token, Device: d.ID, Occurred: f.At, Received: at.Received,
		Severity: p.severities[token], Value: f.Value, HasValue: f.HasValue,
	})
	d.numbers[token]++
}
