package canvas

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"weir/rules"
)

// ruleGallery are the definitions of a golden file of package rules, by title.
func ruleGallery(t testing.TB, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for block := range strings.SplitSeq(strings.TrimPrefix(string(text), "=== "), "\n=== ") {
		title, rest, _ := strings.Cut(block, "\n")
		source, _, _ := strings.Cut("\n"+rest+"\n", "\n--\n")
		var lines []string
		for line := range strings.SplitSeq(strings.TrimPrefix(source, "\n"), "\n") {
			if line != "group" && !strings.HasPrefix(line, "there ") { // what the gallery says about the definition
				lines = append(lines, line)
			}
		}
		found[title] = strings.Join(lines, "\n")
	}
	if len(found) < 20 {
		t.Fatalf("%s: only %d rules", file, len(found))
	}
	return found
}

// TestRulesAndTheirCanvases: every rule that compiles goes there and back; what does not compile has no canvas, and the reason says why.
func TestRulesAndTheirCanvases(t *testing.T) {
	t.Parallel()
	c := newCompiler(t)
	for _, file := range []string{"rules.txt", "refused.txt"} {
		for title, definition := range ruleGallery(t, file) {
			graph, reason := c.Show(definition, profile)
			program, _, faults := c.rules.Inspect(definition, rules.Options{})
			if (graph == "") == (reason == "") || (graph == "") != (program == nil) {
				t.Errorf("%s: %s: canvas %q, reason %q, faults %v", file, title, graph, reason, faults)
				continue
			}
			if program == nil {
				if reason != faults[0].Error() {
					t.Errorf("%s: %s: the reason is %q, the rule is refused with %q", file, title, reason, faults[0])
				}
				continue
			}
			back := c.Compile(graph, profile)
			if !back.OK || back.Definition != string(program.Definition().Canonical()) || back.Cost != program.Cost() {
				t.Errorf("%s: %s:\n%s\ngives %s", file, title, graph, outcome(back))
			} else if back.Program.Definition().BodyHash("", 0) != program.Definition().BodyHash("", 0) {
				t.Errorf("%s: %s: another body", file, title)
			}
		}
	}
}

// TestRulesWithoutACanvas: what a canvas cannot say it does not show, and says why.
func TestRulesWithoutACanvas(t *testing.T) {
	t.Parallel()
	c := newCompiler(t)
	for definition, want := range map[string]string{
		`{"name":"n","type":"absence","timeout":"1.0005s"}`:                                                                            "timeout: a canvas counts whole milliseconds, 1.0005s is none",
		`{"name":"n","type":"absence","timeout":"5s","lateness":"1ns"}`:                                                                "lateness: a canvas counts whole milliseconds, 1ns is none",
		`{"name":"n","type":"absence","timeout":"5s","actions":[{"type":"publish","publish":{"connectorRef":"c"},"maxAge":"1500µs"}]}`: "actions[0].maxAge: a canvas counts whole milliseconds, 1.5ms is none",
		`{"name":"n","type":"absence"}`:                                                                                                "timeout: required by type absence",
		`{"name":`:                                                                                                                     "the definition is not valid JSON: unexpected end of JSON input (at byte 8)",
	} {
		if graph, reason := c.Show(definition, profile); graph != "" || reason != want {
			t.Errorf("%s: %q %q", definition, graph, reason)
		}
	}
	if graph, reason := c.Show(`{"name":"n","type":"absence","timeout":"5s"}`, " "); graph != "" || !strings.HasPrefix(reason, "a profile is required") {
		t.Errorf("without a profile: %q %q", graph, reason)
	}
	if graph, reason := c.Show(`{"name":"n","type":"absence","timeout":"5s"}`, "no token"); graph != "" || !strings.Contains(reason, "must match") {
		t.Errorf("with a profile that is no token: %q %q", graph, reason)
	}
	// What the instance does not perform has no canvas yet: it would not compile.
	few := newCompiler(t, rules.ActionRaiseAlarm)
	publishes := `{"name":"n","type":"absence","timeout":"5s","actions":[{"type":"publish","publish":{"connectorRef":"c"}}]}`
	if graph, reason := few.Show(publishes, profile); graph != "" || reason != "actions[0]: publish is not available yet" {
		t.Errorf("%q %q", graph, reason)
	}
}

// TestTheLayout: from left to right, one row for each action, and one branch for all actions with its guard.
func TestTheLayout(t *testing.T) {
	t.Parallel()
	graph, reason := newCompiler(t).Show(`{"name":"n","type":"threshold","severity":"major","when":{"metric":"t","op":"gt","threshold":1,"clear":0},"lateness":"0s","actions":[
		{"type":"raiseAlarm","raiseAlarm":{},"guard":"value > 1.0"},{"type":"sendCommand","sendCommand":{"command":"c"},"maxAge":"0s"},
		{"type":"raiseAlarm","raiseAlarm":{"alarmKey":"k"},"guard":"value > 1.0"}]}`, profile)
	if reason != "" {
		t.Fatal(reason)
	}
	const want = `{"schemaVersion":1,"nodes":[` +
		`{"id":"source","type":"source","config":{"scope":{"kind":"profile","profileToken":"boiler"}},"ui":{"x":0,"y":0}},` +
		`{"id":"condition","type":"threshold","config":{"name":"n","severity":"major","when":{"metric":"t","op":"gt","threshold":{"kind":"literal","value":1},"clear":0},"latenessMs":0},"ui":{"x":1,"y":0}},` +
		`{"id":"branch-1","type":"branch","config":{"when":"value > 1.0"},"ui":{"x":2,"y":0}},` +
		`{"id":"action-1","type":"action","config":{"action":"raiseAlarm"},"ui":{"x":3,"y":0}},` +
		`{"id":"action-2","type":"action","config":{"action":"sendCommand","command":"c","maxAgeMs":0},"ui":{"x":3,"y":1}},` +
		`{"id":"action-3","type":"action","config":{"action":"raiseAlarm","alarmKey":"k"},"ui":{"x":3,"y":2}}],"edges":[` +
		`{"from":"source:out","to":"condition:in"},{"from":"condition:signal","to":"branch-1:in"},{"from":"branch-1:out","to":"action-1:in"},` +
		`{"from":"condition:signal","to":"action-2:in"},{"from":"branch-1:out","to":"action-3:in"}]}`
	if graph != want {
		t.Errorf("got  %s\nwant %s", graph, want)
	}
	if !json.Valid([]byte(graph)) {
		t.Error("no JSON")
	}
}

// TestTheWiring says of which nodes a rule is made.
func TestTheWiring(t *testing.T) {
	t.Parallel()
	for _, d := range readGallery(t, galleries[0]) {
		if d.title != "branches on the way become the guard, the one next to the condition first" {
			continue
		}
		w := newCompiler(t).Compile(document(t, d.source), profile).Wiring
		if w.Source != "s" || w.Condition != "c" || len(w.Actions) != 2 || w.Actions[1].Node != "a2" || len(w.Actions[0].Branches) != 1 ||
			len(w.Actions[1].Branches) != 2 || w.Actions[1].Branches[0] != (WiredBranch{"b1", "value > 90.0"}) || w.Actions[1].Branches[1].Node != "b2" {
			t.Errorf("%+v", w)
		}
		return
	}
	t.Error("the gallery lost the canvas")
}
