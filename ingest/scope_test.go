package ingest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/model"
	"weir/rules"
	"weir/store"
)

// scopedRules are rules that look at what the registry knows: group scope, attributes by comparison and expression, anchors, fences.
func scopedRules() []model.RuleView {
	scoped := func(token, definition string) model.RuleView {
		return model.RuleView{Token: token, Definition: definition, Group: "hot", GroupVersion: 1}
	}
	return []model.RuleView{
		scoped("a-group", `{"name":"n","type":"threshold","when":{"metric":"temp","op":"gt","threshold":50}}`),
		{Token: "b-attribute", Definition: `{"name":"n","type":"threshold","when":{"metric":"temp","op":"gt","thresholdAttr":"limit"}}`},
		{Token: "c-cel", Definition: `{"name":"n","type":"threshold","when":{"cel":"m.temp > attr.limit && (!('area' in anchors) || anchors.area != 'roof')"}}`},
		{Token: "d-fence", Definition: `{"name":"n","type":"threshold","when":{"cel":"geo.inFence('yard')"}}`},
		scoped("e-line", `{"name":"n","type":"connectivity"}`),
	}
}

func position(lon, lat float64) string {
	return fmt.Sprintf(`{"eventType":"Location","payload":{"entries":[{"latitude":"%v","longitude":"%v"}]}}`, lat, lon)
}

// withHole is the square with a hole in its middle.
const withHole = `{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[[[8,47],[9,47],[9,48],[8,48],[8,47]],[[8.4,47.4],[8.6,47.4],[8.6,47.6],[8.4,47.6],[8.4,47.4]]]}}`

// TestRulesJudgeByWhatTheRegistryKnewAtThePlace changes attributes, groups, anchors and fences between readings: each is judged by what
// held at its place, leaving a group resolves at its record, and a start anywhere comes to the same.
func TestRulesJudgeByWhatTheRegistryKnewAtThePlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rs := scopedRules()
	w.furnish(2, rs...)
	steps := []struct {
		what string
		do   func()
		want string
	}{
		{"no group, no attribute", func() { w.stored(w.arrival(1, temp(60))) }, ""},
		{"in the group; the limit is over it", func() {
			w.change(published("hot", 1, `attr["limit"] > 2 && !(attr["site"] == "west")`, false), attribute(1, "SHARED", "limit", 70.0))
			w.stored(w.arrival(1, temp(60)))
		}, "d1 a-group raised"},
		{"the limit of the scope SERVER wins, at the next reading", func() { w.change(attribute(1, "SERVER", "limit", 55.0)) }, ""},
		{"that reading", func() { w.stored(w.arrival(1, temp(60))) }, "d1 b-attribute raised, d1 c-cel raised"},
		{"an anchor", func() {
			w.change(anchored(1, roof, hall))
			w.stored(w.arrival(1, temp(60)))
		}, ""},
		{"the smallest is another", func() {
			w.change(anchored(1, roof))
			w.stored(w.arrival(1, temp(60)))
		}, "d1 c-cel resolved"},
		{"it leaves the group at the record", func() { w.change(attribute(1, "SHARED", "site", "west")) }, "d1 a-group resolved"},
		{"and is not judged", func() { w.stored(w.arrival(1, temp(90))) }, ""},
		{"until it is back", func() {
			w.change(attribute(1, "SHARED", "site", "east"))
			w.stored(w.arrival(1, temp(90)))
		}, "d1 a-group raised"},
		{"the attribute goes, of both scopes: it leaves, and nothing compares", func() {
			w.change(attribute(1, "SERVER", "limit", removed), attribute(1, "SHARED", "limit", removed))
			w.stored(w.arrival(1, temp(90)))
		}, "d1 a-group resolved, d1 b-attribute resolved"},
		{"no fence: neither inside nor outside", func() { w.stored(w.arrival(1, position(8.5, 47.5))) }, ""},
		{"a fence", func() {
			w.change(fenced(1, 1, "yard", square)...)
			w.stored(w.arrival(1, position(8.5, 47.5)))
		}, "d1 d-fence raised"},
		{"on its edge is inside", func() { w.stored(w.arrival(1, position(8, 47.5))) }, ""},
		{"a reading has no position", func() { w.stored(w.arrival(1, temp(1))) }, ""},
		{"a new geometry, at the next position", func() { w.change(fenced(1, 2, "yard", withHole)...) }, ""},
		{"in the hole", func() { w.stored(w.arrival(1, position(8.5, 47.5))) }, "d1 d-fence resolved"},
		{"on the edge of the hole is inside", func() { w.stored(w.arrival(1, position(8.4, 47.5))) }, "d1 d-fence raised"},
		{"the fence goes: not outside", func() {
			w.change(fenced(1, 3, "yard", "")...)
			w.stored(w.arrival(1, position(1, 1)))
		}, ""},
		{"outside", func() {
			w.change(fenced(1, 4, "yard", square)...)
			w.stored(w.arrival(1, position(1, 1)))
		}, "d1 d-fence resolved"},
		{"published again while raised: an equal rule stays raised", func() {
			w.change(attribute(1, "SHARED", "limit", 3.0))
			w.stored(w.arrival(1, temp(90)))
			w.change(w.profile(2, rs...))
		}, "d1 a-group raised, d1 b-attribute raised"},
		{"another version of the group is another body", func() {
			other := slices.Clone(rs)
			other[0].GroupVersion = 2
			w.change(published("hot", 2, `attr["limit"] > 2`, false), w.profile(3, other...))
		}, "d1 a-group resolved"},
	}
	var all []string
	for _, step := range steps {
		w.clock.advance(1e9)
		before := len(w.edges)
		step.do()
		w.apply()
		var got strings.Builder
		for i, e := range w.edges[before:] {
			if i > 0 {
				got.WriteString(", ")
			}
			got.WriteString(fmt.Sprintf("%s %s %s", e.Series, e.Rule, e.Signal))
		}
		if got.String() != step.want {
			t.Errorf("%s: %q, want %q", step.what, got.String(), step.want)
		}
		if w.finishHead(w.applier); len(all)%2 == 0 {
			w.restart()
		}
		all = append(all, got.String())
	}
	health, err := w.applier.RuleHealth(t.Context(), "acme", "boiler")
	w.must(err)
	byToken := map[string]rules.Health{}
	for _, h := range health {
		byToken[h.Token] = h.Health
	}
	if h := byToken["b-attribute"]; h.Lacking != 3 || h.EvalErrors != 0 {
		t.Errorf("a comparison without its attribute: %+v", h)
	}
	if h := byToken["c-cel"]; h.EvalErrors == 0 || h.Lacking != 0 {
		t.Errorf("an expression without its attribute: %+v", h)
	}
	if h := byToken["d-fence"]; h.EvalErrors != 2 {
		t.Errorf("a position without its fence: %+v", h)
	}
}

// TestAGapOfTheLogLetsDevicesLeaveTheirGroups: what the records of the gap said of the groups is effective after it.
func TestAGapOfTheLogLetsDevicesLeaveTheirGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1, scopedRules()...)
	w.change(published("hot", 1, `attr["limit"] > 2`, false), attribute(1, "SHARED", "limit", 70.0))
	w.stored(w.arrival(1, temp(60)))
	w.apply()
	before := len(w.edges)
	if err := w.applier.reloadMetadata(t.Context(), w.applier.Applied()); err != nil {
		t.Fatal(err)
	}
	if len(w.edges) != before {
		t.Errorf("a view that says the same brings about %v", w.edges[before:])
	}
	end := attribute(1, "SHARED", "limit", removed)
	w.must(w.db.Write(t.Context(), store.Durable, func(tx store.Tx) error {
		return store.SetView(tx, end.Kind, end.Key, nil, w.applier.Applied()+1, 0)
	}))
	w.must(w.applier.reloadMetadata(t.Context(), w.applier.Applied()+1))
	if got := w.edges[before:]; len(got) != 1 || got[0].Rule != "a-group" || got[0].Signal != model.Resolved {
		t.Errorf("edges %v", got)
	}
}
