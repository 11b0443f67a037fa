package rules_test

import (
	"strings"
	"testing"

	"weir/model"
	"weir/rules"
)

// TestARuleThatASiteJudges: what the site has judged is not judged here, what is raised resolves when the site begins, and what the site fires becomes an edge
// of the rule. Another device, and another rule, are judged here.
func TestARuleThatASiteJudges(t *testing.T) {
	t.Parallel()
	s := newScene(t, "", `"type":"threshold","when":{"metric":"v","op":"gt","threshold":5}`, `"type":"threshold","when":{"metric":"v","op":"gt","threshold":6}`)
	s.rule[0].Placement = model.PlacementEdge
	s.install(0, s.rule...)
	atSite := func(in *rules.Input) { in.AtSite = true }
	s.hear(1, 1, 9)
	s.fired("before the site judges", "raised@1=9 raised@1=9")
	s.hear(2, 1, 9, atSite)
	s.fired("the site begins", "resolved@2")
	s.hear(3, 1, 1, atSite)
	s.fired("the other rule is judged here", "resolved@3")
	s.hear(4, 2, 9)
	s.fired("a device behind no site", "d2:raised@4=9 d2:raised@4=9")
	f := &model.Firing{Profile: "p", Rule: "r0", Signal: model.Raised, Occurred: 5e6, Value: 9, HasValue: true}
	if !s.e.Foreign(s.at(5), pump.ProfileKey, testDevice(1), f, s.emit) {
		t.Error("the edge of the site is not taken")
	}
	s.fired("the site fires", "raised@5=9")
	f.Rule = "r9"
	if s.e.Foreign(s.at(6), pump.ProfileKey, testDevice(1), f, s.emit) {
		t.Error("an edge of no rule is taken")
	}
	s.hear(7, 1, 9)
	s.fired("it comes another way", "raised@7=9 raised@7=9")
}

// TestWhatASiteCannotJudge does not compile with that placement.
func TestWhatASiteCannotJudge(t *testing.T) {
	t.Parallel()
	c, err := rules.NewCompiler(rules.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		definition string
		grouped    bool
		want       string
	}{
		"a threshold":   {definition: `{"name":"n","type":"threshold","when":{"metric":"v","op":"gt","threshold":5}}`},
		"a group":       {definition: `{"name":"n","type":"threshold","when":{"metric":"v","op":"gt","threshold":5}}`, grouped: true, want: "group"},
		"other devices": {definition: `{"name":"n","type":"correlation","when":{"metric":"v","op":"gt","threshold":5},"anchorType":"area","count":2,"window":"1m"}`, want: "correlation"},
		"anchors":       {definition: `{"name":"n","type":"threshold","when":{"cel":"\"area\" in anchors && \"v\" in m && m[\"v\"] > 5.0"}}`, want: "anchors"},
	} {
		def, err := c.Decode([]byte(x.definition))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, _, err := c.Compile(def, rules.Options{GroupScoped: x.grouped}); err != nil && name != "a group" {
			t.Fatalf("%s: %v", name, err)
		}
		_, _, err = c.Compile(def, rules.Options{GroupScoped: x.grouped, AtSite: true})
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
