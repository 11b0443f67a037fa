package rules_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"weir/internal/test/fences"
	"weir/model"
	"weir/rules"
)

// registered is what the registry of a random log knows: a number of each device, the members of a group, and a geofence.
type registered struct {
	limit   map[int64]float64
	members map[int64]bool
	yard    int // index into yards
}

func newRegistered() *registered {
	return &registered{limit: map[int64]float64{}, members: map[int64]bool{}}
}

// copy is what the registry knows now, whatever it learns later.
func (k *registered) copy() *registered {
	return &registered{limit: maps.Clone(k.limit), members: maps.Clone(k.members), yard: k.yard}
}

// yards are geometries of the fence "yard", and which longitudes of the parallel of 5° are inside; the first one is none. Their edges that
// matter are meridians, so the plain definition is exact on them.
var yards = []struct {
	rings  string
	inside func(lon float64) bool
}{
	{},
	{`[[[0,0],[10,0],[10,10],[0,10],[0,0]]]`, func(lon float64) bool { return lon >= 0 && lon <= 10 }},
	{`[[[0,0],[10,0],[10,10],[0,10],[0,0]],[[4,4],[6,4],[6,6],[4,6],[4,4]]]`, func(lon float64) bool { return lon >= 0 && lon <= 4 || lon >= 6 && lon <= 10 }},
	{`[[[20,0],[30,0],[30,10],[20,10],[20,0]]]`, func(lon float64) bool { return lon >= 20 && lon <= 30 }},
}

var yardShapes = func() (all []interface{ Contains(lon, lat float64) bool }) {
	for _, y := range yards {
		p, err := fences.Area(`{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":` + cmp.Or(y.rings, yards[1].rings) + `}}`)
		if err != nil {
			panic(err)
		}
		all = append(all, p)
	}
	return all
}()

// longitudes of positions: inside, outside, on edges, in the hole.
var longitudes = []float64{-1, 0, 2, 4, 5, 6, 9, 10, 20, 25, 31}

func (k *registered) Number(device int64, key string) (float64, bool) {
	n, ok := k.limit[device]
	return n, ok && key == "limit"
}

func (k *registered) Numbers(device int64) map[string]float64 {
	if n, ok := k.limit[device]; ok {
		return map[string]float64{"limit": n}
	}
	return nil
}

func (k *registered) InGroup(_, device int64, token string, _ int) (member, known bool) {
	return k.members[device] && token == "g", true
}

func (k *registered) Inside(_ int64, fence string, lon, lat float64) (inside, known bool) {
	if k.yard == 0 || fence != "yard" {
		return false, false
	}
	return yardShapes[k.yard].Contains(lon, lat), true
}

// said is what a condition says of a sample.
type said struct{ inScope, failed, holds bool }

// condition is a condition that reads facts, and what it says by its plain definition.
type condition struct {
	when string
	says func(k *registered, s *knownSample) said
}

// knownSample is a sample of a random log: a reading, or a position.
type knownSample struct {
	at, heard float64
	device    int64
	v, lon    float64
	position  bool
	areas     []string
}

func ofReading(says func(k *registered, s *knownSample) said) func(*registered, *knownSample) said {
	return func(k *registered, s *knownSample) said {
		if s.position {
			return said{}
		}
		return says(k, s)
	}
}

func ofPosition(says func(k *registered, lon float64) bool) func(*registered, *knownSample) said {
	return func(k *registered, s *knownSample) said {
		switch {
		case !s.position:
			return said{}
		case k.yard == 0:
			return said{inScope: true, failed: true}
		}
		return said{inScope: true, holds: says(k, s.lon)}
	}
}

var outside = ofPosition(func(k *registered, lon float64) bool { return !yards[k.yard].inside(lon) })

// conditions read everything that the registry knows.
var conditions = []condition{
	{`{"metric":"v","op":"gt","thresholdAttr":"limit"}`, ofReading(func(k *registered, s *knownSample) said {
		n, ok := k.limit[s.device]
		return said{inScope: true, holds: ok && s.v > n}
	})},
	{`{"cel":"has(m.v) && m.v > attr.limit"}`, ofReading(func(k *registered, s *knownSample) said {
		n, ok := k.limit[s.device]
		return said{inScope: true, failed: !ok, holds: s.v > n}
	})},
	{`{"cel":"has(m.v) && (!has(attr.limit) || m.v > attr.limit) && m.v > 0.0"}`, ofReading(func(k *registered, s *knownSample) said {
		n, ok := k.limit[s.device]
		return said{inScope: true, holds: (!ok || s.v > n) && s.v > 0}
	})},
	{`{"cel":"has(m.v) && \"area\" in anchors && anchors.area == \"a\" && size(attr) == 1"}`, ofReading(func(k *registered, s *knownSample) said {
		_, ok := k.limit[s.device]
		return said{inScope: true, holds: len(s.areas) > 0 && slices.Min(s.areas) == "a" && ok}
	})},
	{`{"cel":"geo.inFence(\"yard\")"}`, ofPosition(func(k *registered, lon float64) bool { return yards[k.yard].inside(lon) })},
	{`{"cel":"!geo.inFence(\"yard\") && has(attr.limit)"}`, func(k *registered, s *knownSample) said {
		if _, ok := k.limit[s.device]; !ok && s.position {
			return said{inScope: true} // false, whatever the other side: it may even fail
		}
		return outside(k, s)
	}},
}

// knownKind is a kind over a condition, and what it says of judged samples as readings: g is 1 for a match, else -1, and so is v.
type knownKind struct {
	definition string
	arrival    bool // it judges at arrival
	closes     bool // its windows end by silence, later than the clock
	edges      func(rs []reading) []string
}

// drawKind draws one of the kinds that which selects.
func drawKind(t *rapid.T, which func(knownKind) bool) knownKind {
	window, n := float64(rapid.IntRange(1, 30).Draw(t, "window")), rapid.IntRange(1, 3).Draw(t, "count")
	matches := limit{holds: func(v float64) bool { return v > 0 }, stays: func(v float64) bool { return v > 0 }}
	least := func(v float64) bool { return v >= float64(n) }
	atLeast := limit{text: fmt.Sprintf(`"agg":"count","op":"ge","threshold":%d`, n), holds: least, stays: least}
	kinds := []knownKind{
		{`"type":"threshold"`, true, false, naiveThreshold},
		{fmt.Sprintf(`"type":"repeating","count":%d,"window":"%gs"`, n, window), false, false, naiveRepeating(n, window)},
		{fmt.Sprintf(`"type":"duration","hold":"%gs"`, window), false, false, naiveDuration(matches, window)},
		{fmt.Sprintf(`"type":"aggregate","windowMode":"sliding","window":"%gs",%s`, window, atLeast.text), false, false, naiveSliding(atLeast, "count", window)},
		{fmt.Sprintf(`"type":"aggregate","windowMode":"tumbling","window":"%gs",%s`, window, atLeast.text), false, true, naiveTumbling(atLeast, "count", window)},
		{fmt.Sprintf(`"type":"aggregate","windowMode":"session","gap":"%gs",%s`, window, atLeast.text), false, true, naiveSession(atLeast, "count", window)},
	}
	return rapid.SampledFrom(slices.DeleteFunc(kinds, func(k knownKind) bool { return !which(k) })).Draw(t, "kind")
}

// naiveThreshold judges samples in the order in which they were heard; an edge that would be older than the last one is none.
func naiveThreshold(rs []reading) []string {
	var k latch
	last := -1e9
	for _, r := range rs {
		if (r.g > 0) != k.raised && r.at >= last {
			k.to(r.g > 0, r.at, 0, false)
			last = r.at
		}
	}
	return k.edges
}

// drawSamples draws samples of two devices, in the order in which they are heard. delay is how much later than taken, at most.
func drawSamples(t *rapid.T, delay float64) (ss []*knownSample) {
	for _, r := range drawStream(t, max(delay, 1)) {
		s := &knownSample{at: r.at, heard: r.heard, device: int64(r.device), v: r.v, position: rapid.Bool().Draw(t, "position"),
			lon: rapid.SampledFrom(longitudes).Draw(t, "lon"), areas: rapid.SampledFrom([][]string{nil, {"a"}, {"b"}, {"b", "a"}}).Draw(t, "areas")}
		if delay == 0 {
			s.heard = s.at
		}
		ss = append(ss, s)
	}
	slices.SortStableFunc(ss, func(a, b *knownSample) int { return cmp.Compare(a.heard, b.heard) })
	return ss
}

// change draws what changes before a sample.
func (k *registered) change(t *rapid.T) {
	switch d := rapid.Int64Range(1, 2).Draw(t, "of"); rapid.SampledFrom([]string{"", "", "", "limit", "no limit", "yard"}).Draw(t, "change") {
	case "limit":
		k.limit[d] = float64(rapid.IntRange(-3, 9).Draw(t, "limit"))
	case "no limit":
		delete(k.limit, d)
	case "yard":
		k.yard = rapid.IntRange(0, len(yards)-1).Draw(t, "yard")
	}
}

func (tl *timeline) hears(k *registered, s *knownSample) {
	in := &rules.Input{Position: tl.at(s.heard), Profile: pump.ProfileKey, Device: testDevice(s.device), Occurred: model.Micros(s.at * 1e6), Facts: k}
	for _, a := range s.areas {
		in.Anchors = append(in.Anchors, model.Anchor{Type: "area", Token: a})
	}
	if s.position {
		in.Kind, in.Where = rules.Location, &model.Location{Longitude: s.lon, Latitude: 5}
	} else {
		in.Readings = []model.Reading{{Metric: "v", Value: s.v}}
	}
	tl.e.Apply(in, tl.emit)
}

// bare are the edges of each device without their values.
func (tl *timeline) bare() map[string][]string {
	edges := tl.byDevice()
	for d, es := range edges {
		edges[d] = withoutValues(es)
	}
	return edges
}

func withoutValues(edges []string) (out []string) {
	for _, e := range edges {
		e, _, _ = strings.Cut(e, "=")
		out = append(out, e)
	}
	return out
}

// read is a sample as its condition has judged it.
func (s *knownSample) read(says said) reading {
	r := reading{at: s.at, heard: s.heard, device: int(s.device), v: -1, g: -1}
	if says.holds {
		r.v, r.g = 1, 1
	}
	return r
}

// TestRulesAgreeWithTheirPlainDefinitionWhileWhatTheyReadChanges: attributes, anchors, positions and geofences are those of a sample's
// arrival, whenever it is judged, for any order inside the lateness, with the engine loaded again anywhere.
func TestRulesAgreeWithTheirPlainDefinitionWhileWhatTheyReadChanges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		kind, c := drawKind(t, func(knownKind) bool { return true }), rapid.SampledFrom(conditions).Draw(t, "condition")
		definition := fmt.Sprintf(`{"name":"n",%s,"when":%s,"lateness":"5s"}`, kind.definition, c.when)
		tl, k := newTimeline(t, rules.Limits{}, definition), newRegistered()
		judged, failed := map[string][]reading{}, int64(0)
		for _, s := range drawSamples(t, 5) {
			k.change(t)
			tl.hears(k, s)
			if rapid.IntRange(0, 7).Draw(t, "cut") == 0 {
				tl.reload(tl.store, tl.rule)
			}
			says := c.says(k, s)
			if says.failed {
				failed++
			} else if says.inScope {
				d := testDevice(s.device).Token
				judged[d] = append(judged[d], s.read(says))
			}
		}
		tl.at(5000)
		want := map[string][]string{}
		for d, rs := range judged {
			if !kind.arrival {
				slices.SortStableFunc(rs, func(a, b reading) int { return cmp.Compare(a.at, b.at) })
			}
			if edges := withoutValues(kind.edges(rs)); len(edges) > 0 {
				want[d] = edges
			}
		}
		if got := tl.bare(); !maps.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("%s\n got %q\nwant %q", definition, got, want)
		}
		if h := tl.e.Health(pump.ProfileKey)[0]; h.EvalErrors != failed {
			t.Fatalf("%s: %d failed, not %d", definition, h.EvalErrors, failed)
		}
	})
}

// TestScopesAgreeWithTheirPlainDefinition: a rule with a group judges members only. What a device has raised resolves when it leaves, and
// nothing is left of what it sent before.
func TestScopesAgreeWithTheirPlainDefinition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// Whether a window was over when its device left depends on the device's gaps.
		kind, c := drawKind(t, func(k knownKind) bool { return !k.closes }), rapid.SampledFrom(conditions).Draw(t, "condition")
		definition := fmt.Sprintf(`{"name":"n",%s,"when":%s,"lateness":"0s"}`, kind.definition, c.when)
		tl, k := newTimeline(t, rules.Limits{}), newRegistered()
		tl.rule = []model.RuleView{{Token: "r", Definition: definition, Group: "g", GroupVersion: 1}}
		tl.install(0, tl.rule...)
		want, since := map[string][]string{}, map[int64][]reading{}
		// leaves settles what a device did as a member, up to a time.
		leaves := func(device int64, at float64, gone bool) {
			d, raised := testDevice(device).Token, false
			for _, e := range withoutValues(kind.edges(since[device])) {
				var when float64
				if _, err := fmt.Sscanf(e[strings.IndexByte(e, '@')+1:], "%g", &when); err != nil {
					t.Fatal(err)
				}
				if when <= at {
					raised = strings.HasPrefix(e, "raised")
					want[d] = append(want[d], e)
				}
			}
			if since[device] = nil; gone && raised {
				want[d] = append(want[d], fmt.Sprintf("resolved@%g", at))
			}
		}
		for _, s := range drawSamples(t, 0) {
			k.change(t)
			switch member := k.members[s.device]; {
			case !member && rapid.IntRange(0, 2).Draw(t, "joins") == 0:
				k.members[s.device] = true
			case member && rapid.IntRange(0, 5).Draw(t, "leaves") == 0:
				delete(k.members, s.device)
				tl.e.Rescope(tl.at(s.heard), testDevice(s.device).ID, k, tl.emit)
				leaves(s.device, s.heard, true)
			}
			tl.hears(k, s)
			if rapid.IntRange(0, 7).Draw(t, "cut") == 0 {
				tl.reload(tl.store, tl.rule)
			}
			if says := c.says(k, s); says.inScope && !says.failed && k.members[s.device] {
				since[s.device] = append(since[s.device], s.read(says))
			}
		}
		tl.at(5000)
		leaves(1, 5000, false)
		leaves(2, 5000, false)
		maps.DeleteFunc(want, func(_ string, edges []string) bool { return len(edges) == 0 })
		if got := tl.bare(); !maps.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("%s\n got %q\nwant %q", definition, got, want)
		}
	})
}

// figuresOf are the values of an engine's metrics by their names, without what all of them begin with.
func figuresOf(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	figures := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		figures[strings.TrimPrefix(f.GetName(), "weir_eventprocessing_detect_")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	return figures
}

// TestWhatIsNotJudgedIsCountedForTheOperator: tenants that are held, budgets that are used up, clocks that were set back.
func TestWhatIsNotJudgedIsCountedForTheOperator(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	tl := newTimeline(t, rules.Limits{Settings: rules.Settings{MaxKeys: 2, MaxSamples: 3}})
	tl.e = rules.NewEngine(tl.c, reg)
	tl.publish(0, `{"name":"n","type":"repeating","count":9,"window":"24h","lateness":"0s",`+over5+`}`)
	tl.run("1 d1 9000 v=9\n5 hold")
	if f := figuresOf(t, reg); f["tenants_held"] != 1 || len(tl.e.UsedUp()) != 0 {
		t.Errorf("held: %v, %v", f, tl.e.UsedUp())
	}
	tl.run("6 release")
	for i := range 8 {
		tl.run(fmt.Sprintf("%d d1 %d v=1", 10+10*i, 1000+10*i))
	}
	if f := figuresOf(t, reg); f["tenants_held"] != 0 || f["clocks_set_back_total"] != 1 || f["late_samples_total"] != 7 {
		t.Errorf("released, and set back: %v", f)
	}
	tl.run("100 d1 1080 v=9\n101 d1 1081 v=9\n102 d1 1082 v=9\n103 d1 1083 v=9\n104 d2 1084 v=9\n105 d3 1085 v=9")
	want := []rules.Budget{{Tenant: pump.Tenant, Key: "detection.max_keys_per_tenant"}, {Tenant: pump.Tenant, Key: "detection.max_samples_per_tenant"}}
	if got := tl.e.UsedUp(); !slices.Equal(got, want) {
		t.Errorf("used up are %v", got)
	}
	few := newTimeline(t, rules.Limits{MaxKeysInAll: 1})
	few.publish(0, `{"name":"n","type":"threshold",`+over5+`}`)
	few.run("1 d1 1 v=1")
	if got := few.e.UsedUp(); !slices.Equal(got, []rules.Budget{{Key: "limits.memory"}}) {
		t.Errorf("used up in all are %v", got)
	}
	if f := figuresOf(t, reg); f["keys_refused_total"] != 3 {
		t.Errorf("refused: %v", f)
	}
	if h := tl.e.Health(pump.ProfileKey)[0]; h.RefusedKeys != 2 { // the third device has no place at all
		t.Errorf("%+v", h)
	}
}
