package rules_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/model"
	"weir/rules"
)

// silentKind is a kind of rule that Weir does not have: it raises when no sample of a key arrived for timeout, with the
// number of silences so far as the value. keys makes four kinds of it, one for each key space.
type silentKind struct {
	name     rules.Type
	keys     rules.KeySpace
	presence bool
}

var silentKinds = []rules.Kind{
	silentKind{name: "silent", keys: rules.ByDevice},
	silentKind{name: "silentAtAnchor", keys: rules.ByDevice | rules.ByAnchor},
	silentKind{name: "silentAnchor", keys: rules.ByAnchor},
	silentKind{name: "silentRule"},
	silentKind{name: "silentPresence", keys: rules.ByDevice, presence: true},
}

func (k silentKind) Type() rules.Type { return k.name }

func (k silentKind) Uses(*rules.Definition) (rules.Uses, *rules.Error) {
	u := rules.Uses{Needs: []string{"timeout"}, May: []string{"when"}, Value: true, Keys: k.keys, Presence: k.presence}
	if k.keys&rules.ByAnchor != 0 {
		u.Needs = append(u.Needs, "anchorType")
	}
	return u, nil
}

func (k silentKind) Check(d *rules.Definition) *rules.Error {
	if d.Timeout < time.Millisecond {
		return &rules.Error{Field: "timeout", Reason: "shorter than a millisecond"}
	}
	return nil
}

func (k silentKind) Compile(d *rules.Definition, when *rules.Predicate) (rules.Judge, *rules.Error) {
	return &silentJudge{rules.Listening(d.Timeout), when}, nil
}

func (k silentKind) Decode(b []byte) (rules.Memory, error) {
	m := new(silentMemory)
	v, n := binary.Varint(b)
	c, o := binary.Uvarint(b[max(n, 0):])
	if n <= 0 || o <= 0 || n+o != len(b) {
		return nil, errors.New("no memory of a silence")
	}
	m.heard, m.silences = rules.Listening(v), c
	return m, nil
}

type silentMemory struct {
	heard    rules.Listening
	silences uint64
}

func (m *silentMemory) Append(b []byte) []byte {
	return binary.AppendUvarint(binary.AppendVarint(b, int64(m.heard)), m.silences)
}

type silentJudge struct {
	timeout rules.Listening
	when    *rules.Predicate
}

func (j *silentJudge) Judge(st *rules.State, s *rules.Sample, out *rules.Verdict) {
	if s.Kind == rules.Timer {
		m := st.Own.(*silentMemory)
		if st.Due = m.heard + j.timeout; st.Due > s.Clock.Now {
			return
		}
		st.Due = 0
		m.silences++
		st.Latch(true, rules.Firing{At: max(st.LastEdge, s.Occurred), Value: float64(m.silences), HasValue: true}, out)
		return
	}
	if !j.when.Test(s).Holds {
		return
	}
	m, ok := st.Own.(*silentMemory)
	if !ok {
		m = new(silentMemory)
		st.Own = m
	}
	m.heard = s.Clock.Now
	if st.Due == 0 { // a timer that runs finds out by itself that it is too early
		st.Due = m.heard + j.timeout
	}
	st.Latch(false, rules.Firing{At: max(st.LastEdge, s.Occurred)}, out)
}

func silent(kind, timeout, more string) string {
	return fmt.Sprintf(`{"name":"n","type":%q,"severity":"major","timeout":%q%s}`, kind, timeout, more)
}

const atArea = `,"anchorType":"area"`

var pump = rules.ProfileRef{ProfileKey: rules.ProfileKey{Tenant: 1, Profile: 10}, TenantToken: "acme", Token: "pump", Version: 1}

// plant is an engine with the bookkeeping of a log around it.
type plant struct {
	t      rapid.TB
	c      *rules.Compiler
	e      *rules.Engine
	offset model.Offset
	last   rules.Listening // of a timeline
	edges  []model.Edge
}

func newPlant(t rapid.TB, kinds []rules.Kind) *plant {
	c, err := rules.NewCompiler(rules.Limits{Kinds: kinds})
	if err != nil {
		t.Fatal(err)
	}
	return &plant{t: t, c: c, e: rules.NewEngine(c, nil)}
}

func (p *plant) emit(e model.Edge) { p.edges = append(p.edges, e) }

// next is the position of the next record, at a listening time in seconds. The engine has advanced to it.
func (p *plant) next(seconds int64) rules.Position {
	p.offset++
	at := rules.Position{Epoch: 1, Offset: p.offset, Received: model.Nanos(p.offset), Listening: rules.Listening(seconds) * 1e9}
	p.e.Advance(at, p.emit)
	return at
}

func (p *plant) install(seconds int64, views ...model.RuleView) {
	p.e.Install(p.next(seconds), pump, views, p.emit)
}

// hear applies a sample whose event time is the listening time.
func (p *plant) hear(seconds, device int64, anchors ...string) {
	in := &rules.Input{Position: p.next(seconds), Profile: pump.ProfileKey, Device: testDevice(device), Kind: rules.Bare,
		Occurred: model.Micros(seconds * 1e6)}
	for _, a := range anchors {
		in.Anchors = append(in.Anchors, model.Anchor{Type: "area", Token: a}, model.Anchor{Type: "line", Token: a})
	}
	p.e.Apply(in, p.emit)
}

func testDevice(id int64) rules.Device {
	return rules.Device{ID: id, Type: id % 2, Token: fmt.Sprintf("d%d", id)}
}

// want compares the edges since the last call: offset, key, series, signal, stamp in seconds and value.
func (p *plant) want(what string, want ...string) {
	var got []string
	for _, e := range p.edges {
		s := fmt.Sprintf("%d %s[%s].%d %s %s@%d", e.ID.Offset, e.Rule, e.ID.Key, e.ID.N, e.Series, e.Signal, e.Occurred/1e6)
		if e.HasValue {
			s += fmt.Sprintf("=%g", e.Value)
		}
		got = append(got, s)
	}
	if p.edges = nil; !slices.Equal(got, want) {
		p.t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// reload replaces the engine by one that knows the pages of the store and the active rules.
func (p *plant) reload(store map[string]rules.Page, views []model.RuleView) {
	for _, pg := range append(p.e.Freeze(), p.e.FreezeClocks()...) {
		if store[pg.ID] = pg; pg.Data == nil {
			delete(store, pg.ID)
		}
	}
	p.e = rules.NewEngine(p.c, nil)
	if err := p.e.Load(slices.Collect(maps.Values(store))); err != nil {
		p.t.Fatal(err)
	}
	if views != nil {
		p.e.Install(rules.Position{Offset: p.offset, Listening: p.last}, pump, views, func(e model.Edge) { p.t.Fatalf("a start emitted %+v", e) })
	}
}

func view(token, definition string) model.RuleView {
	return model.RuleView{Token: token, Definition: definition}
}

func TestKindFromOutsideIsDecodedCheckedAndRun(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{ // without the kind, and with it
		silent("silent", "10s", ""):                                           {`type: "silent" is not one of threshold, deltaRate, repeating, duration, absence, aggregate, correlation, connectivity`, ""},
		silent("silent", "1us", ""):                                           {`type: "silent" is not`, "timeout: shorter than a millisecond"},
		`{"name":"n","type":"silent"}`:                                        {`type: "silent" is not`, "timeout: required by type silent"},
		silent("silent", "10s", `,"hold":"1s"`):                               {`type: "silent" is not`, "hold: not used by type silent"},
		silent("other", "10s", ""):                                            {`type: "other" is not`, `type: "other" is not one of threshold`},
		`{"name":"n","type":"duration","hold":"1s","when":{"cel":"m.a>1.0"}}`: {"", ""},
	} {
		for i, kinds := range [][]rules.Kind{nil, silentKinds} {
			errs, _ := newPlant(t, kinds).c.Validate([]rules.Candidate{{Token: "r", Definition: text}})
			switch {
			case want[i] == "" && len(errs) > 0:
				t.Errorf("%s: %v", text, errs)
			case want[i] != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Message, want[i])):
				t.Errorf("%s: %v, want %s", text, errs, want[i])
			}
		}
	}
}

func TestTimerFiresBeforeTheFirstRecordThatReachesItsTime(t *testing.T) {
	t.Parallel()
	p := newPlant(t, silentKinds)
	p.install(0, view("gone", silent("silent", "10s", "")), view("still", silent("silent", "5s", "")))
	p.hear(100, 1)
	p.hear(101, 2)
	p.hear(104, 3)
	p.want("before any is due")
	p.hear(106, 3) // both timers of 5 s are due; they fire in the order of their times, before the record
	p.want("two of three", "5 still[1].0 d1 raised@105=1", "5 still[2].0 d2 raised@106=1")
	p.hear(110, 1) // due here as well: raised before the record, resolved by it
	p.want("at the very time", "6 gone[1].0 d1 raised@110=1", "6 gone[1].1 d1 resolved@110", "6 still[1].0 d1 resolved@110")
	p.next(500) // any record will do
	p.want("all", "7 gone[2].0 d2 raised@111=1", "7 still[3].0 d3 raised@111=1", "7 still[1].0 d1 raised@115=2", "7 gone[3].0 d3 raised@116=1",
		"7 gone[1].0 d1 raised@120=2")
	p.next(900)
	p.want("no timer is left")
}

func TestRuleThatGoesTakesItsTimers(t *testing.T) {
	t.Parallel()
	p := newPlant(t, silentKinds)
	gone, still := view("gone", silent("silent", "10s", "")), view("still", silent("silent", "5s", ""))
	p.install(0, gone, still)
	p.hear(100, 1)
	p.hear(100, 2)
	p.install(101, gone)
	p.e.RemoveDevice(p.next(102), 2, p.emit)
	p.next(200)
	p.want("one rule, one device", "6 gone[1].0 d1 raised@110=1")
	p.install(201, view("gone", silent("silent", "11s", "")))
	p.want("another body resolves", "7 gone[1].0 d1 resolved@201")
	p.next(300)
	p.want("and has no timer")
	if s := p.e.Stats(); s.Keys != 0 || s.Devices != 1 {
		t.Errorf("kept %+v", s)
	}
}

func TestKeySpaces(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string][]string{
		"silent":         {"6 r[1].0 d1 raised@11=1", "6 r[2].0 d2 raised@13=1", "6 r[3].0 d3 raised@14=1"},
		"silentAtAnchor": {"6 r[1/a].0 d1 raised@11=1", "6 r[1/b].0 d1 raised@11=1", "6 r[2/a].0 d2 raised@13=1"},
		"silentAnchor":   {"6 r[b].0 b raised@11=1", "6 r[a].0 a raised@13=1"},
		"silentRule":     {"6 r[].0 r raised@14=1"},
	} {
		p, more := newPlant(t, silentKinds), ""
		if strings.Contains(kind, "Anchor") {
			more = atArea
		}
		rule := view("r", silent(kind, "10s", more))
		p.install(0, rule)
		p.hear(1, 1, "a", "b")
		p.hear(3, 2, "a")
		p.hear(4, 3)
		if len(p.edges) > 0 {
			t.Errorf("%s: %+v", kind, p.edges)
		}
		p.reload(map[string]rules.Page{}, []model.RuleView{rule})
		p.next(5)
		p.next(99)
		p.want(kind, want...)
		if keys := p.e.Stats().Keys; keys != len(want) {
			t.Errorf("%s: %d keys", kind, keys)
		}
		p.e.Remove(p.next(100), pump.ProfileKey, p.emit)
		if s := p.e.Stats(); len(p.edges) != len(want) || s != (rules.Stats{}) {
			t.Errorf("%s: at the end %+v and %+v", kind, s, p.edges)
		}
	}
}

func TestClockOfKeysWithoutADeviceIsKept(t *testing.T) {
	t.Parallel()
	p, store := newPlant(t, silentKinds), map[string]rules.Page{}
	rule := []model.RuleView{view("r", silent("silentAnchor", "10s", atArea))}
	p.install(0, rule...)
	p.hear(1, 1, "a")
	p.reload(store, rule)
	p.e.Apply(&rules.Input{Position: p.next(4), Profile: pump.ProfileKey, Device: testDevice(2), Kind: rules.Bare, Occurred: 100e6}, p.emit)
	p.reload(store, rule)
	p.next(99)
	p.want("the clock moved with a sample that judged no key", "4 r[a].0 a raised@107=1")
}

func TestTransitionReachesRulesOfPresenceOnly(t *testing.T) {
	t.Parallel()
	p := newPlant(t, silentKinds)
	p.install(0, view("samples", silent("silent", "10s", "")), view("transitions", silent("silentPresence", "10s", "")))
	p.hear(1, 1)
	p.e.Apply(&rules.Input{Position: p.next(2), Profile: pump.ProfileKey, Device: testDevice(1), Kind: rules.Transition,
		Occurred: 2e6, Presence: model.Disconnected}, p.emit)
	p.next(99)
	p.want("a sample at 1, a transition at 2", "4 samples[1].0 d1 raised@11=1", "4 transitions[1].0 d1 raised@12=1")
}

func TestStateOfAKindThatWeirDoesNotHaveIsKept(t *testing.T) {
	t.Parallel()
	p := newPlant(t, silentKinds)
	rule := []model.RuleView{view("r", silent("silent", "10s", ""))}
	p.install(0, rule...)
	p.hear(1, 1)
	store := map[string]rules.Page{}
	p.reload(store, rule)
	with := p.c
	p.c = newPlant(t, nil).c
	p.reload(store, rule)
	p.hear(50, 1)
	p.want("the rule does not run")
	if h := p.e.Health(pump.ProfileKey); len(h) != 1 || h[0].Status != rules.CompileError {
		t.Errorf("health %+v", h)
	}
	p.reload(store, rule) // writes every page that changed
	p.c = with
	p.reload(store, rule)
	p.next(60)
	p.want("it runs again, and its timer", "4 r[1].0 d1 raised@50=1") // at its due time the device had been heard at 50
}

func TestDamagedMemoryIsAnError(t *testing.T) {
	t.Parallel()
	p := newPlant(t, silentKinds)
	p.install(0, view("r", silent("silent", "10s", "")))
	p.hear(1, 1)
	pages := p.e.Freeze()
	strict := newPlant(t, []rules.Kind{refusing{silentKind{name: "silent", keys: rules.ByDevice}}})
	if err := strict.e.Load(pages); !errors.Is(err, rules.ErrDamaged) {
		t.Errorf("a kind that cannot read its memory: %v", err)
	}
}

type refusing struct{ silentKind }

func (refusing) Decode([]byte) (rules.Memory, error) { return nil, errors.New("unreadable") }

// an event of a made-up log.
type event struct {
	kind    string // hear, any, install, remove
	gap     int64  // seconds of listening time before it
	device  int64
	anchors []string
	rules   []model.RuleView
}

func drawEvents(t *rapid.T) []event {
	bodies := []string{silent("silent", "3s", ""), silent("silent", "7s", ""), silent("silentAtAnchor", "4s", atArea), silent("silentAnchor", "5s", atArea),
		silent("silentRule", "2s", ""), silent("silentRule", "6s", ""), `{"name":"n","type":"threshold","when":{"metric":"temp","op":"gt","threshold":1}}`}
	events := make([]event, rapid.IntRange(1, 60).Draw(t, "length"))
	for i := range events {
		ev := event{gap: rapid.Int64Range(0, 4).Draw(t, "gap"), device: rapid.Int64Range(1, 5).Draw(t, "device")}
		ev.kind = rapid.SampledFrom([]string{"hear", "hear", "hear", "hear", "any", "install", "remove"}).Draw(t, "kind")
		if i == 0 {
			ev.kind = "install"
		}
		switch ev.kind {
		case "hear":
			ev.anchors = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID).Draw(t, "anchors")
		case "install":
			ev.rules = []model.RuleView{}
			for _, token := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"r1", "r2", "r3", "r4"}), 0, 4, rapid.ID).Draw(t, "rules") {
				ev.rules = append(ev.rules, view(token, rapid.SampledFrom(bodies).Draw(t, "body")))
			}
		}
		events[i] = ev
	}
	return events
}

func (p *plant) run(now int64, ev event) {
	switch ev.kind {
	case "hear":
		p.hear(now, ev.device, ev.anchors...)
	case "any":
		p.next(now)
	case "install":
		p.install(now, ev.rules...)
	case "remove":
		p.e.RemoveDevice(p.next(now), ev.device, p.emit)
	}
}

// TestTimersFireAtTheSamePlacesWhereverTheEngineIsLoadedAgain runs a log in one go, and once more with the engine thrown
// away and loaded from its pages at random places.
func TestTimersFireAtTheSamePlacesWhereverTheEngineIsLoadedAgain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		whole, cut := newPlant(t, silentKinds), newPlant(t, silentKinds)
		store, active, now := map[string]rules.Page{}, []model.RuleView(nil), int64(0)
		for _, ev := range drawEvents(t) {
			now += ev.gap
			whole.run(now, ev)
			cut.run(now, ev)
			if ev.kind == "install" {
				active = ev.rules
			}
			if rapid.IntRange(0, 5).Draw(t, "cut") == 0 {
				cut.reload(store, active)
			}
		}
		if !slices.Equal(cut.edges, whole.edges) {
			t.Fatalf("edges differ:\n got %v\nwant %v", cut.edges, whole.edges)
		}
		all := map[string]rules.Page{}
		cut.reload(store, active)
		whole.reload(all, active)
		if !reflect.DeepEqual(store, all) {
			t.Fatalf("pages differ:\n got %v\nwant %v", store, all)
		}
		if cut.e.Stats() != whole.e.Stats() {
			t.Fatalf("stats %+v, want %+v", cut.e.Stats(), whole.e.Stats())
		}
	})
}

// TestTimersAgreeWithALinearSearch compares the heap with a model that looks through all keys before each record.
func TestTimersAgreeWithALinearSearch(t *testing.T) {
	t.Parallel()
	timeouts := []int64{3, 5, 5, 8} // of rules r0 to r3
	rapid.Check(t, func(t *rapid.T) {
		p := newPlant(t, silentKinds)
		var views []model.RuleView
		for i, s := range timeouts {
			views = append(views, view(fmt.Sprintf("r%d", i), silent("silent", fmt.Sprintf("%ds", s), "")))
		}
		p.install(0, views...)
		heard, raised := map[int64]int64{}, map[[2]int64]bool{}
		var now int64
		var want []string
		for range rapid.IntRange(1, 40).Draw(t, "length") {
			now += rapid.Int64Range(0, 6).Draw(t, "gap")
			type due struct{ at, rule, device int64 }
			var fire []due
			for d, at := range heard {
				for r, s := range timeouts {
					if k := [2]int64{int64(r), d}; at+s <= now && !raised[k] {
						fire, raised[k] = append(fire, due{at + s, int64(r), d}), true
					}
				}
			}
			slices.SortFunc(fire, func(a, b due) int {
				return slices.Compare([]int64{a.at, a.rule, a.device}, []int64{b.at, b.rule, b.device})
			})
			for _, f := range fire {
				want = append(want, fmt.Sprintf("r%d d%d raised@%d", f.rule, f.device, f.at))
			}
			d := rapid.Int64Range(1, 6).Draw(t, "device")
			p.hear(now, d)
			for r := range timeouts {
				if k := [2]int64{int64(r), d}; raised[k] {
					want, raised[k] = append(want, fmt.Sprintf("r%d d%d resolved@%d", r, d, now)), false
				}
			}
			heard[d] = now
		}
		var got []string
		for _, e := range p.edges {
			got = append(got, fmt.Sprintf("%s %s %s@%d", e.Rule, e.Series, e.Signal, e.Occurred/1e6))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("edges differ:\n got %q\nwant %q", got, want)
		}
	})
}

// TestPageFormatOfMemoriesIsFrozen compares pages of version 2 byte by byte. Pages of latches alone stay version 1.
func TestPageFormatOfMemoriesIsFrozen(t *testing.T) {
	t.Parallel()
	p := newPlant(t, silentKinds)
	p.install(0, view("a", silent("silentAtAnchor", "10s", atArea)), view("r", silent("silentRule", "10s", "")),
		view("t", `{"name":"n","type":"threshold","when":{"cel":"device == \"d2\""}}`))
	p.hear(1, 1, "x")
	p.hear(1, 2)
	want := map[string]string{
		"1/10/k15": "016b" + "010174" + "010401" + "00" + "05" + "0101" + "80897a",
		"1/10/k39": "026b" + "010161" + "010201" + "00" + "10" + "0204" + "00" + "80b8b5fa51" + "0178" + "80a8d6b90700",
		"1/10/s00": "0273" + "010172" + "80897a" + "80a8d6b907" + "01" + "00" + "0f" + "0204" + "00" + "80b8b5fa51" + "00" + "80a8d6b90700",
	}
	got := map[string]string{}
	for _, pg := range p.e.Freeze() {
		if kind := pg.Data[1]; kind == 'k' || kind == 's' {
			got[pg.ID] = fmt.Sprintf("%x", pg.Data[:len(pg.Data)-4])
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("pages are\n%v, not\n%v: add a page version and read the old ones too", got, want)
	}
}
