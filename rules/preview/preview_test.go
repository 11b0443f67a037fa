package preview_test

import (
	"strings"
	"testing"
	"time"

	"weir/model"
	"weir/rules"
	"weir/rules/preview"
)

func compiler(t testing.TB) *rules.Compiler {
	t.Helper()
	c, err := rules.NewCompiler(rules.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const hot = `{"name":"n","type":"threshold","when":{"metric":"temp","op":"gt","threshold":50}}`

// requests are what is asked for, and whether it is refused.
var requests = []struct {
	definition, graph, start, end, group string
	version                              int
	refused                              bool
}{
	{definition: hot, start: "2026-03-01T00:00:00Z", end: "2026-03-01T01:00:00Z"},
	{definition: hot, start: "2026-03-01T00:00:00.5+02:00", end: "2026-03-05T01:00:00Z"},
	{definition: hot, start: "2026-03-01T00:00:00Z", end: "2026-03-01T00:00:00Z", refused: true},
	{definition: hot, start: "yesterday", end: "2026-03-01T00:00:00Z", refused: true},
	{definition: hot, graph: "{}", refused: true},
	{refused: true},
	{graph: "{}", refused: true},
	{definition: hot, group: "g", refused: true},
	{definition: hot, group: "g", version: 1, start: "2026-03-01T00:00:00Z", end: "2026-03-01T01:00:00Z"},
	{definition: `{"name":"n","type":"absence","timeout":"5m"}`, group: "g", version: 1, refused: true},
	{definition: "{", refused: true},
}

func requestOf(definition, graph, start, end, group string, version int) *preview.Request {
	r := &preview.Request{Start: start, End: end, Profile: "p"}
	for _, f := range []struct {
		to   **string
		text string
	}{{&r.Definition, definition}, {&r.Graph, graph}, {&r.Group, group}} {
		if f.text != "" {
			*f.to = &f.text
		}
	}
	if version != 0 {
		r.GroupVersion = &version
	}
	return r
}

func TestRequestsAreChecked(t *testing.T) {
	t.Parallel()
	c := compiler(t)
	for i, q := range requests {
		r := requestOf(q.definition, q.graph, q.start, q.end, q.group, q.version)
		draft, found := r.Draft(c, nil)
		var refused []preview.Diagnostic
		if draft != nil {
			_, _, refused = r.Window()
		}
		if got := draft == nil || refused != nil; got != q.refused || draft == nil && len(found) == 0 {
			t.Errorf("request %d: draft %v, %v, window %v", i, draft != nil, found, refused)
		}
	}
}

// FuzzRequest: whatever is asked for is refused with a diagnostic or has a window of at most a day.
func FuzzRequest(f *testing.F) {
	for _, q := range requests {
		f.Add(q.definition, q.graph, q.start, q.end, q.group, q.version)
	}
	c := compiler(f)
	f.Fuzz(func(t *testing.T, definition, graph, start, end, group string, version int) {
		r := requestOf(definition, graph, start, end, group, version)
		draft, found := r.Draft(c, nil)
		if draft == nil {
			if len(found) == 0 || found[0].Message == "" {
				t.Fatal("refused without a reason")
			}
			return
		}
		w, _, refused := r.Window()
		if refused == nil && (w.To < w.From || w.To-w.From > model.Micros(preview.MaxWindow/time.Microsecond)) {
			t.Fatalf("window %+v", w)
		}
	})
}

func TestEdgesAreOrderedAndBounded(t *testing.T) {
	t.Parallel()
	c := preview.Collector{Window: preview.Window{From: 10, To: 20}, Max: 4}
	for _, e := range []model.Edge{{Occurred: 9}, {Occurred: 20, Series: "b", Signal: model.Resolved}, {Occurred: 20, Series: "b", Signal: model.Raised}, {Occurred: 20, Series: "a", Signal: model.Resolved},
		{Occurred: 10, Series: "z", Signal: model.Raised}, {Occurred: 21}} {
		c.Emit(e)
	}
	if c.Full {
		t.Error("edges outside the window took room")
	}
	c.Emit(model.Edge{Occurred: 11})
	c.Sort()
	var got strings.Builder
	for _, f := range c.Result.Firings {
		got.WriteString(f.Series + f.Signal.String() + " ")
	}
	if got.String() != "zraised aresolved braised bresolved " || !c.Full {
		t.Errorf("%s, full %v", got.String(), c.Full)
	}
}

// TestTracesAreBounded: firings have their steps until those of all together are too many.
func TestTracesAreBounded(t *testing.T) {
	t.Parallel()
	r := preview.Result{Firings: make([]preview.Firing, 2001)}
	steps := func(model.Edge) []preview.Step { return make([]preview.Step, preview.MaxSteps/2000) }
	if all := r.Trace(nil); len(all) != 2001 || all[0] != nil || r.Why() != "" {
		t.Errorf("nobody asked for traces: %d, %s", len(all), r.Why())
	}
	all := r.Trace(steps)
	if len(all[1999]) != preview.MaxSteps/2000 || all[2000] != nil || !strings.Contains(r.Why(), "trace cap") {
		t.Errorf("%d and %d steps, %q", len(all[1999]), len(all[2000]), r.Why())
	}
	r = preview.Result{Firings: make([]preview.Firing, 1)}
	all = r.Trace(func(model.Edge) []preview.Step { return []preview.Step{{Detail: strings.Repeat("ä", 300)}} })
	if n := len([]rune(all[0][0].Detail)); n != preview.MaxDetail {
		t.Errorf("a detail of %d characters", n)
	}
}
