package e2e_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/conformance"
	"weir/internal/test/poll"
)

// compiled is the answer of compileCanvas.
type compiled struct {
	OK            bool
	Definition    *string
	EstimatedCost *int
	Diagnostics   []struct {
		NodeID, Code      *string
		Severity, Message string
		Params            []string
	}
}

// about lists the findings that are errors as the nodes that they concern, "-" for the canvas as a whole, and their messages.
func (c *compiled) about() string {
	var lines []string
	for _, d := range c.Diagnostics {
		node := "-"
		if d.NodeID != nil {
			node = *d.NodeID
		}
		if d.Severity == "error" {
			lines = append(lines, node+": "+d.Message)
		}
	}
	return strings.Join(lines, "; ")
}

func (tn *tenant) compileCanvas(graph, profile string) compiled {
	tn.t.Helper()
	a := tn.rules(`query($g:String!,$p:String!){compileCanvas(graph:$g,profileToken:$p){ok definition estimatedCost diagnostics{nodeId severity code params message}}}`,
		map[string]any{"g": graph, "p": profile})
	var out struct{ CompileCanvas compiled }
	a.into(tn.t, &out)
	c := out.CompileCanvas
	errors := 0
	for _, d := range c.Diagnostics {
		switch d.Severity {
		case "error":
			errors++
		case "warning":
		default:
			tn.t.Errorf("severity %q", d.Severity)
		}
		if d.Message == "" || d.Params == nil || d.Code == nil && len(d.Params) > 0 {
			tn.t.Errorf("%+v", d)
		}
	}
	if c.Diagnostics == nil || c.OK != (errors == 0) || c.OK != (c.Definition != nil) || c.OK != (c.EstimatedCost != nil) {
		tn.t.Errorf("%s: %s", graph, a.raw)
	}
	return c
}

// graphOf is a canvas of nodes and edges that follows a source s of the profile p.
func graphOf(nodes string, edges ...string) string {
	var drawn []string
	for _, e := range edges {
		from, to, _ := strings.Cut(e, " ")
		drawn = append(drawn, fmt.Sprintf(`{"from":%q,"to":%q}`, from, to))
	}
	return `{"schemaVersion":1,"nodes":[{"id":"s","type":"source","config":{"scope":{"kind":"profile","profileToken":"p"}},"ui":{"x":0,"y":0}},` + nodes +
		`],"edges":[` + strings.Join(drawn, ",") + `]}`
}

// hotCanvas is a canvas whose condition c raises an alarm a behind a branch b; hotForm is the same rule as the form writes it.
var hotCanvas = graphOf(`{"id":"c","type":"threshold","config":{"name":"Hot","severity":"major","when":{"metric":"temp","op":"gt","threshold":{"kind":"literal","value":80},"clear":70}}},
	{"id":"b","type":"branch","config":{"when":"value > 90.0"}},{"id":"a","type":"action","config":{"action":"raiseAlarm","alarmKey":"hot"}}`, "s:out c:in", "c:signal b:in", "b:out a:in")

const hotForm = `{"severity":"major","name":"Hot","actions":[{"guard":"value > 90.0","type":"raiseAlarm","raiseAlarm":{"alarmKey":"hot"}}],
	"when":{"clear":70,"threshold":80.0,"op":"gt","metric":"temp"},"type":"threshold"}`

func canvases(t *testing.T, w *world) {
	tn := w.tenant(t, "canvases")
	_, sdl := w.get(t, "/schema/event-processing.graphql")
	for kind, want := range map[string][]string{
		"CanvasCompileResult": {"ok: Boolean!", "definition: String", "estimatedCost: Int", "diagnostics: [CanvasDiagnostic!]!"},
		"CanvasDiagnostic":    {"nodeId: String", "severity: String!", "code: String", "params: [String!]!", "message: String!"},
	} {
		if got := fieldsOf(t, sdl, "type", kind); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q", kind, got)
		}
	}
	if got := fieldsOf(t, sdl, "type", "Query"); !slices.Contains(got, "compileCanvas(graph: String!, profileToken: String!): CanvasCompileResult!") {
		t.Errorf("%q", got)
	}
	conformance.Shown(t, "S1-003")

	good := tn.compileCanvas(hotCanvas, "p")
	if !good.OK || len(good.Diagnostics) != 0 || *good.EstimatedCost != 5 {
		t.Fatalf("%+v", good)
	}
	conformance.Shown(t, "S1-033")
	const absence = `{"id":"%s","type":"absence","config":{"name":"n","timeoutMs":60000}}`
	two := graphOf(fmt.Sprintf(absence+","+absence, "c1", "c2"), "s:out c1:in", "s:out c2:in")
	refused := func(what, graph, profile, want string) {
		t.Helper()
		if c := tn.compileCanvas(graph, profile); c.OK || !strings.Contains(c.about(), want) {
			t.Errorf("%s: %q, want %q", what, c.about(), want)
		}
	}
	refused("no condition", graphOf(`{"id":"a","type":"action","config":{"action":"raiseAlarm"}}`), "p", "-: the canvas has no condition")
	refused("several conditions", two, "p", "-: the canvas has 2 conditions, exactly one is allowed: c1, c2")
	conformance.Shown(t, "S1-034")
	refused("a source of another profile", hotCanvas, "q", `s: config.scope.profileToken: the source watches profile p`)
	conformance.Shown(t, "S1-035")
	branches := fmt.Sprintf(absence, "c") + `,{"id":"b1","type":"branch","config":{"when":"true"}},{"id":"b2","type":"branch","config":{"when":"true"}}`
	refused("a cycle", graphOf(branches, "s:out c:in", "b1:out b2:in", "b2:out b1:in"), "p", "-: the edges form a cycle: b1 → b2 → b1")
	refused("a dangling edge", graphOf(fmt.Sprintf(absence, "c"), "s:out c:in", "c:signal gone:in"), "p", `-: edges[1].to: the edge dangles: there is no node "gone"`)
	conformance.Shown(t, "S1-036")
	costly := func(cel string) string {
		return graphOf(fmt.Sprintf(`{"id":"c","type":"threshold","config":{"name":"n","when":{"cel":%q}}}`, cel), "s:out c:in")
	}
	refused("over the ceiling", costly("m.exists(k, m[k] > 100.0)"), "p", "c: config.when: the expression may cost 514, at most 100 is allowed")
	conformance.Shown(t, "S1-037")
	for what, graph := range map[string]string{"nothing": "", "no JSON": "{", "no object": "[]", "another version": `{"schemaVersion":2,"nodes":[],"edges":[]}`, "NUL": "\x00",
		"deep": strings.Repeat("[", 5000), "long": strings.Repeat(" ", 300_000), "a definition": hotForm} {
		refused(what, graph, "p", "-: ")
	}
	refused("no profile", hotCanvas, " ", "-: a profile is required")
	conformance.Shown(t, "S1-038", "S1-039")
	refused("a field of a node", costly("temp > 1.0"), "p", "c: config.when: line 1, column 1: undeclared reference to 'temp'")
	refused("an action", graphOf(fmt.Sprintf(absence, "c")+`,{"id":"a7","type":"action","config":{"action":"raiseAlarm"}}`, "s:out c:in", "c:signal a7:in"), "p",
		"a7: raiseAlarm needs a severity on the rule")
	conformance.Shown(t, "S1-042")

	warned := tn.compileCanvas(graphOf(`{"id":"c","type":"threshold","config":{"name":"n","when":{"cel":"!(\"site\" in attr) && has(m.t) && m.t > 1.0"}}},
		{"id":"b","type":"branch","config":{"when":"true"}}`, "s:out c:in", "c:signal b:in"), "p")
	if !warned.OK || len(warned.Diagnostics) != 2 {
		t.Fatalf("%+v", warned)
	}
	idle, guard := warned.Diagnostics[0], warned.Diagnostics[1]
	if *idle.NodeID != "b" || idle.Code != nil || len(idle.Params) != 0 || *guard.NodeID != "c" || guard.Code == nil || *guard.Code != "negatedAttributeGuard" ||
		!reflect.DeepEqual(guard.Params, []string{"site"}) {
		t.Errorf("%+v", warned.Diagnostics)
	}
	conformance.Shown(t, "S1-040", "S1-041")

	// What the form is refused for, the canvas is refused for, in the same words.
	for _, both := range []struct{ form, canvas string }{
		{`{"name":"n","type":"threshold","when":{"cel":"m.exists(k, m[k] > 100.0)"}}`, costly("m.exists(k, m[k] > 100.0)")},
		{`{"name":"n","type":"threshold","when":{"cel":"m.temp > 80"}}`, costly("m.temp > 80")},
		{`{"name":"n","type":"absence","timeout":"25h"}`, graphOf(`{"id":"c","type":"absence","config":{"name":"n","timeoutMs":90000000}}`, "s:out c:in")},
		{`{"name":"n","type":"absence","timeout":"1m","actions":[{"type":"publish","publish":{"connectorRef":""}}]}`,
			graphOf(fmt.Sprintf(absence, "c")+`,{"id":"a","type":"action","config":{"action":"publish","connectorRef":""}}`, "s:out c:in", "c:signal a:in")},
	} {
		v, raw := tn.validate(draft{Token: "r", Definition: both.form})
		if v.Valid {
			t.Fatal(raw)
		}
		_, reason, _ := strings.Cut(v.Errors[0].Message, ": ")
		refused(both.form, both.canvas, "p", reason)
	}
	conformance.Shown(t, "S1-045")

	if a := tn.devices(`{detectionRules(criteria:{pageNumber:1,pageSize:1}){pagination{totalRecords}}}`, nil); !strings.Contains(a.raw, `"totalRecords":0`) {
		t.Errorf("something was stored: %s", a.raw)
	}
	conformance.Shown(t, "S1-044")
	canvasForm(t, tn, *good.Definition)
	canvasBack(t, tn)
}

// canvasForm publishes a rule as the form writes it and as the canvas compiles to. It is the same rule: what it raised stays raised.
func canvasForm(t *testing.T, tn *tenant, definition string) {
	t.Helper()
	for _, d := range []string{definition, hotForm} {
		if v, raw := tn.validate(draft{Token: "hot", Definition: d}); !v.Valid || len(v.Warnings) != 0 {
			t.Errorf("%s: %s", d, raw)
		}
	}
	tn.profile("p", map[string]string{"hot": hotForm})
	tn.device("d", "p")
	base := time.Now().Add(-time.Hour).Truncate(time.Second)
	alarm := func() string {
		return tn.devices(`{alarms(criteria:{pageNumber:1,pageSize:10}){results{alarmKey state severity}}}`, nil).raw
	}
	fired := func(count int, signal string) {
		t.Helper()
		poll.Until(t, "the edge", func() error {
			if h := tn.health("p")[0]; h.FireCount != count || h.LastSignal == nil || *h.LastSignal != signal {
				return fmt.Errorf("%+v", h)
			}
			return nil
		})
	}
	tn.kept(measured("temp", "95", at(base), tn.as("d")))
	fired(1, "raised")
	raised := alarm()
	tn.devices(`mutation($r:DetectionRuleUpdateRequest!){updateDetectionRule(token:"hot",request:$r){id}}`,
		map[string]any{"r": map[string]any{"definition": definition, "authoringGraph": hotCanvas}})
	tn.publish("p")
	tn.kept(measured("temp", "75", at(base.Add(time.Minute)), tn.as("d"))) // not at or below clear
	fired(1, "raised")
	if after := alarm(); after != raised {
		t.Errorf("the alarm is %s, before %s", after, raised)
	}
	tn.kept(measured("temp", "70", at(base.Add(2*time.Minute)), tn.as("d")))
	fired(2, "resolved")
	conformance.Shown(t, "S1-043")

	// The canvas stands beside the draft: publishing neither freezes nor loses it, and a rule does without.
	graph := func() *string {
		var out struct {
			DetectionRulesByToken []struct{ AuthoringGraph *string }
		}
		tn.devices(`{detectionRulesByToken(tokens:["hot"]){authoringGraph}}`, nil).into(t, &out)
		return out.DetectionRulesByToken[0].AuthoringGraph
	}
	if got := graph(); got == nil || *got != hotCanvas {
		t.Errorf("the canvas beside the draft is %v", got)
	}
	tn.refused(`mutation{updateDetectionRule(token:"hot",request:{authoringGraph:"[]"}){id}}`, nil, "INVALID_INPUT", "authoringGraph")
	tn.devices(`mutation{updateDetectionRule(token:"hot",request:{authoringGraph:"{\"a\":1}"}){id}}`, nil)
	tn.devices(`mutation{rollbackDeviceProfile(token:"p",version:1){activeVersion}}`, nil)
	if got := graph(); got == nil || *got != `{"a":1}` {
		t.Errorf("after a rollback the canvas beside the draft is %v", got)
	}
	tn.devices(`mutation{updateDetectionRule(token:"hot",request:{authoringGraph:null}){id}}`, nil)
	if got := graph(); got != nil {
		t.Errorf("the canvas is still %s", *got)
	}
}

// canvasBack shows a rule as a canvas that compiles to it, or says why there is none.
func canvasBack(t *testing.T, tn *tenant) {
	t.Helper()
	show := func(definition string) (graph, reason *string) {
		var out struct {
			CanvasFromRule struct{ Graph, Reason *string }
		}
		tn.rules(`query($d:String!){canvasFromRule(definition:$d,profileToken:"p"){graph reason}}`, map[string]any{"d": definition}).into(t, &out)
		return out.CanvasFromRule.Graph, out.CanvasFromRule.Reason
	}
	graph, reason := show(hotForm)
	if graph == nil || reason != nil || !json.Valid([]byte(*graph)) {
		t.Fatalf("%v %v", graph, reason)
	}
	if again, first := tn.compileCanvas(*graph, "p"), tn.compileCanvas(hotCanvas, "p"); !again.OK || *again.Definition != *first.Definition {
		t.Errorf("%s gives %+v", *graph, again)
	}
	for definition, want := range map[string]string{`{"name":"n","type":"absence","timeout":"1.5µs"}`: "timeout: a canvas counts whole milliseconds, 1.5µs is none",
		`{"name":"n"}`: "type: required"} {
		if graph, reason := show(definition); graph != nil || reason == nil || *reason != want {
			t.Errorf("%s: %v %v", definition, graph, reason)
		}
	}
}
