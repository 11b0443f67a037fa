package canvas

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/internal/test/draws"
	"weir/rules"
)

// authored is one rule, written down twice: as the form writes it, and as a canvas. Neither is made from the other.
type authored struct {
	form, config map[string]any // the fields of the rule, and those of its condition node
	nodes        []map[string]any
	edges        []map[string]any
}

func (a *authored) node(id, kind string, config map[string]any) {
	a.nodes = append(a.nodes, map[string]any{"id": id, "type": kind, "config": config, "ui": map[string]any{"x": len(a.nodes), "y": -0.5}})
}

func (a *authored) edge(from, to string) {
	a.edges = append(a.edges, map[string]any{"from": from, "to": to})
}

// set sets a field in both.
func (a *authored) set(name string, value any) { a.form[name], a.config[name] = value, value }

// last sets a duration in both.
func (a *authored) last(name string, ms int64) {
	a.form[name], a.config[name+"Ms"] = (time.Duration(ms) * time.Millisecond).String(), ms
}

func text(t *rapid.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What is drawn, and what is drawn now and then: what does not compile, costs too much, or reads what is not bound.
var (
	goodConditions = []string{`has(m.t) && m.t > 1.0`, `"t" in m && m["t"] > 1.0 // a comment`, "has(m.t)\n&& m.t > 2.0", `!("k" in attr) && has(m.t)`}
	badConditions  = []string{`has(m.t) && m.t > v1`, `has(m.t) && v1 + v2 > 1.0`, `true`, `m.t > 1`, `v1 > 1.0) || (true`, `m.all(k, m[k] > 1.0)`}
	goodComputes   = []string{`2.0`, `"t" in m ? m.t : 0.0`, `double(size(device)) // c`}
	badComputes    = []string{`mm.t`, `m.filter(k, m[k] > 1.0).size()`}
	goodGuards     = []string{`value > 1.0`, `hasValue && value < 5.0`, `series == "a" // it`, `series != "a)"`, `value > g`}
	badGuards      = []string{`value`, `series.matches("x+")`, `value > 1`}
)

func seldom(t *rapid.T, label string) bool { return rapid.IntRange(0, 9).Draw(t, label) == 0 }

func sample(t *rapid.T, label string, good, bad []string) string {
	if seldom(t, label+" is bad") {
		good = bad
	}
	return rapid.SampledFrom(good).Draw(t, label)
}

func drawn(t *rapid.T) *authored {
	a := &authored{form: map[string]any{}, config: map[string]any{}}
	maybe := func(name string, do func()) {
		if rapid.IntRange(0, 19).Draw(t, name) > 0 {
			do()
		}
	}
	number := func(name string) float64 { return rapid.SampledFrom([]float64{-2, 0, 1, 2.5}).Draw(t, name) }
	millis := func(name string) int64 {
		return rapid.SampledFrom([]int64{0, 1, 1500, 60_000, 86_400_000, 86_400_001}).Draw(t, name)
	}
	kind := rapid.SampledFrom([]string{"threshold", "deltaRate", "repeating", "duration", "absence", "aggregate", "correlation", "connectivity"}).Draw(t, "kind")
	a.form["type"] = kind
	maybe("name", func() { a.set("name", "n <1>") })
	maybe("severity", func() {
		a.set("severity", sample(t, "which severity", []string{"major", "warning"}, []string{""}))
	})
	maybe("lateness", func() { a.last("lateness", millis("late")) })
	op := func(name string) string {
		return sample(t, name, []string{"gt", "ge", "lt", "le"}, []string{"eq", "ne"})
	}
	judge := func() {
		maybe("op", func() { a.set("op", op("which op")) })
		maybe("threshold", func() { a.set("threshold", number("threshold")) })
		if seldom(t, "clear") {
			a.set("clear", number("clears at"))
		}
		maybe("metric", func() { a.set("metric", "t") })
	}
	period := func(name string) {
		maybe(name, func() {
			if ms := millis(name); ms > 0 { // a canvas takes 0 for none, a form refuses "0s"
				a.last(name, ms)
			}
		})
	}
	count := func() { maybe("count", func() { a.set("count", rapid.IntRange(1, 5).Draw(t, "n")) }) }
	switch kind {
	case "deltaRate":
		judge()
		maybe("rate", func() { a.set("rate", rapid.Bool().Draw(t, "per second")) })
	case "repeating":
		count()
		period("window")
	case "duration":
		period("hold")
	case "absence":
		period("timeout")
	case "aggregate":
		judge()
		maybe("mode", func() {
			a.set("windowMode", rapid.SampledFrom([]string{"tumbling", "sliding", "session", "count"}).Draw(t, "which mode"))
		})
		maybe("agg", func() { a.set("agg", rapid.SampledFrom([]string{"count", "avg"}).Draw(t, "which agg")) })
		extent := a.form["windowMode"]
		if seldom(t, "another extent") {
			extent = "count"
		}
		switch extent {
		case "session":
			period("gap")
		case "count":
			count()
		default:
			period("window")
		}
	case "correlation":
		count()
		period("window")
		maybe("anchorType", func() { a.set("anchorType", "area") })
		if rapid.Bool().Draw(t, "cap") {
			a.set("memberCap", rapid.IntRange(1, 9).Draw(t, "members"))
		}
	}
	a.node("s", "source", map[string]any{"scope": map[string]any{"kind": "profile", "profileToken": profile}})
	a.edge("s:out", "c:in")
	if kind != "absence" && kind != "connectivity" {
		maybe("when", func() { a.when(t) })
	}
	a.node("c", kind, a.config)
	a.actions(t)
	return a
}

// closed is a text with its last comment ended.
func closed(s string) string {
	if strings.Contains(s, "//") {
		return s + "\n"
	}
	return s
}

func (a *authored) when(t *rapid.T) {
	if rapid.Bool().Draw(t, "expression") {
		body := sample(t, "cel", goodConditions, badConditions)
		a.config["when"] = map[string]any{"cel": body}
		bind, closing := "", ""
		for i := range rapid.IntRange(0, 2).Draw(t, "computes") {
			name, expr := fmt.Sprintf("v%d", i+1), sample(t, "expr", goodComputes, badComputes)
			a.node(fmt.Sprintf("n%d", 9-i), "compute", map[string]any{"name": name, "expr": expr})
			a.edge(fmt.Sprintf("n%d:value", 9-i), "c:value")
			if bind != "" {
				bind += " "
			}
			bind, closing = bind+"cel.bind("+name+", "+closed(expr)+",", closing+")"
		}
		if bind != "" {
			if strings.Contains(body, ") || (") {
				body = "#" // what reaches out of its place is refused, while in the form it would be a part of the whole
			}
			body = bind + "\n" + body + "\n" + closing
		}
		a.form["when"] = map[string]any{"cel": body}
		return
	}
	form := map[string]any{"metric": "t", "op": rapid.SampledFrom([]string{"gt", "le", "ne"}).Draw(t, "comparison")}
	config := map[string]any{"metric": form["metric"], "op": form["op"]}
	if rapid.Bool().Draw(t, "attribute") {
		form["thresholdAttr"], config["threshold"] = "limit", map[string]any{"kind": "attribute", "attribute": "limit"}
	} else {
		form["threshold"], config["threshold"] = 1.5, map[string]any{"kind": "literal", "value": 1.5}
	}
	if seldom(t, "clears") {
		form["clear"], config["clear"] = 1, 1
	}
	a.form["when"], a.config["when"] = form, config
}

// actions draws a tree of branches, and actions at its knots. The form's guard of an action is written from the way to it.
func (a *authored) actions(t *rapid.T) {
	type knot struct {
		port   string
		guards []string
	}
	knots := []knot{{"c:signal", nil}}
	for i := range rapid.IntRange(0, 3).Draw(t, "branches") {
		from := rapid.SampledFrom(knots).Draw(t, "from")
		id, guard := fmt.Sprintf("b%d", i), sample(t, "guard", goodGuards, badGuards)
		a.node(id, "branch", map[string]any{"name": "x", "when": guard})
		a.edge(from.port, id+":in")
		if strings.Contains(guard, "g") && strings.HasSuffix(guard, " g") {
			a.node("g"+id, "compute", map[string]any{"name": "g", "expr": "3.0"})
			a.edge("g"+id+":value", id+":value")
			guard = "cel.bind(g, 3.0,\n" + guard + "\n)"
		}
		// A branch without an action is checked, too: the form has no place for it, so each gets one.
		k := knot{id + ":out", append(append([]string{}, from.guards...), guard)}
		knots = append(knots, k)
		a.action(t, fmt.Sprintf("z%d", i), k.port, k.guards)
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "actions") {
		k := rapid.SampledFrom(knots).Draw(t, "knot")
		a.action(t, fmt.Sprintf("a%d", i), k.port, k.guards)
	}
	if list, ok := a.form["actions"].([]map[string]any); ok { // in the order of the ids: the a before the z
		first, last := []map[string]any{}, []map[string]any{}
		for _, x := range list {
			if strings.HasPrefix(x["id"].(string), "a") {
				first = append(first, x)
			} else {
				last = append(last, x)
			}
			delete(x, "id")
		}
		a.form["actions"] = append(first, last...)
	}
}

func (a *authored) action(t *rapid.T, id, port string, guards []string) {
	kind := rapid.SampledFrom([]string{"raiseAlarm", "sendCommand", "httpCall", "publish"}).Draw(t, "action")
	fields := map[string]map[string]any{
		"raiseAlarm":  {"alarmKey": sample(t, "key", []string{"k-" + id}, []string{"k", ""})},
		"sendCommand": {"command": "stop-" + id, "payload": sample(t, "payload", []string{"", "{}"}, []string{"5"})},
		"httpCall":    {"url": "https://h/" + id, "headers": map[string]any{"x-y": "1"}, "timeoutMs": 5},
		"publish":     {"connectorRef": "bus-" + id, "payloadTemplate": sample(t, "template", []string{"series", ""}, []string{"value"})},
	}[kind]
	form, config := map[string]any{"id": id, "type": kind, kind: fields}, map[string]any{"action": kind}
	maps.Copy(config, fields)
	if kind != "raiseAlarm" && rapid.Bool().Draw(t, "aged") {
		form["maxAge"], config["maxAgeMs"] = "1.5s", 1500
	}
	switch len(guards) {
	case 0:
	case 1:
		form["guard"] = guards[0]
	default:
		var parts []string
		for _, g := range guards {
			parts = append(parts, "("+closed(g)+")")
		}
		form["guard"] = strings.Join(parts, " && ")
	}
	a.node(id, "action", config)
	a.edge(port, id+":in")
	list, _ := a.form["actions"].([]map[string]any)
	a.form["actions"] = append(list, form)
}

// TestACanvasIsTheFormThatItDraws: both compile to one definition, or both are refused.
func TestACanvasIsTheFormThatItDraws(t *testing.T) {
	c := newCompiler(t)
	compiled, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		a := drawn(t)
		graph := text(t, map[string]any{"schemaVersion": 1, "nodes": rapid.Permutation(a.nodes).Draw(t, "nodes"), "edges": rapid.Permutation(a.edges).Draw(t, "edges")})
		form := text(t, a.form)
		r := c.Compile(graph, profile)
		consistent(t, r)
		program, _, faults := c.rules.Inspect(form, rules.Options{})
		errs, warnings := c.rules.Validate([]rules.Candidate{{Token: "form", Definition: form}})
		if r.OK != (program != nil) || r.OK != (len(errs) == 0) {
			t.Fatalf("the canvas %s\ngives %s\nthe form %s\ngives %v", graph, outcome(r), form, faults)
		}
		if program == nil {
			refused++
			return
		}
		compiled++
		coded := slices.DeleteFunc(slices.Clone(r.Diagnostics), func(d Diagnostic) bool { return d.Code == "" })
		if !slices.EqualFunc(coded, warnings, func(d Diagnostic, w rules.ValidationWarning) bool {
			return d.Code == w.Code && d.Message == w.Message && slices.Equal(d.Params, w.Params)
		}) {
			t.Fatalf("the canvas is warned of with %v, the form with %v", coded, warnings)
		}
		if want := string(program.Definition().Canonical()); r.Definition != want || r.Cost != program.Cost() {
			t.Fatalf("the canvas gives %s, cost %d\nthe form %s, cost %d", r.Definition, r.Cost, want, program.Cost())
		}
		if r.Program.Definition().BodyHash("", 0) != program.Definition().BodyHash("", 0) {
			t.Fatal("the bodies differ")
		}
	})
	if draws.All() && (compiled < 5 || refused < 5) {
		t.Errorf("%d compiled, %d refused: the draws say little", compiled, refused)
	}
}
