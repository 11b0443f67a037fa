package e2e_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/conformance"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
	"weir/model"
	"weir/store"
	"weir/store/sqlite"
)

// previewOf is the answer of previewRule.
type previewOf struct {
	OK      bool
	Firings []struct {
		OccurredAt, Series, Signal string
		Trace                      []traceStep
	}
	Stats       struct{ EventsScanned, FiringCount, EvalErrors, WallMs int }
	Degraded    *string
	Diagnostics []struct {
		NodeID, Code *string
		Severity     string
		Message      string
	}
}

// traceStep is what a node did at a firing.
type traceStep struct {
	NodeID, Kind, Disposition string
	Detail                    *string
}

func (s traceStep) String() string {
	text := s.NodeID + " " + s.Kind + " " + s.Disposition
	if s.Detail != nil {
		text += " (" + *s.Detail + ")"
	}
	return text
}

func (tn *tenant) preview(input map[string]any) (p previewOf) {
	tn.t.Helper()
	var out struct{ PreviewRule previewOf }
	tn.rules(`query($i:PreviewRuleInput!){previewRule(input:$i){ok firings{occurredAt series signal trace{nodeId kind disposition detail}}
		stats{eventsScanned firingCount evalErrors wallMs} degraded diagnostics{nodeId severity code params message}}}`, map[string]any{"i": input}).into(tn.t, &out)
	return out.PreviewRule
}

// firings are the edges as text.
func (p *previewOf) firings() (all []string) {
	for _, f := range p.Firings {
		at, _ := time.Parse(time.RFC3339Nano, f.OccurredAt)
		all = append(all, fmt.Sprintf("%s %s %s", at.UTC().Format("15:04"), f.Series, f.Signal))
	}
	return all
}

// previews run drafts over what two devices have sent.
func previews(t *testing.T, w *world) {
	tn := w.tenant(t, "previews")
	tn.profile("p", map[string]string{"hot": above("Too hot", "temp", 30, "")})
	tn.devices(`mutation{createDeviceProfile(request:{token:"draft"}){id}}`, nil)
	base := time.Now().UTC().Add(-2 * time.Hour).Truncate(time.Hour)
	for _, d := range []string{"b", "a"} {
		tn.device(d, "p")
		c := tn.connect(d)
		for i, v := range []string{"20", "60", "20", "60"} {
			c.send(measured("temp", v, at(base.Add(time.Duration(i)*time.Minute))))
		}
	}
	poll.Until(t, "everything is applied", func() error {
		if h := tn.health("p"); h[0].FireCount != 6 {
			return fmt.Errorf("%+v", h)
		}
		return nil
	})
	live := func() string {
		return tn.rules(`{ruleHealth(profileToken:"p"){ruleToken fireCount lastFiredAt lastSignal evalErrors lastInputAt}}`, nil).raw
	}
	health, alarms := live(), fmt.Sprint(tn.alarms(""))
	stamp := func(minute int) string { return base.Add(time.Duration(minute) * time.Minute).Format(time.RFC3339) }
	draft := func(definition string, more ...any) map[string]any {
		in := map[string]any{"ruleDefinition": definition, "profileToken": "p", "start": stamp(0), "end": stamp(60)}
		for i := 0; i < len(more); i += 2 {
			if in[more[i].(string)] = more[i+1]; more[i+1] == nil {
				delete(in, more[i].(string))
			}
		}
		return in
	}
	over50 := above("Hotter", "temp", 50, "")
	hour := base.Format("15:")
	want := []string{hour + "01 a raised", hour + "01 b raised", hour + "02 a resolved", hour + "02 b resolved", hour + "03 a raised", hour + "03 b raised"}
	p := tn.preview(draft(over50))
	if !p.OK || !slices.Equal(p.firings(), want) || p.Degraded != nil || p.Stats.EventsScanned != 8 || p.Stats.FiringCount != 6 || p.Stats.EvalErrors != 0 || p.Stats.WallMs < 0 {
		t.Errorf("%+v, want %q", p, want)
	}
	for _, f := range p.Firings {
		if len(f.Trace) > 0 {
			t.Errorf("a trace that nobody asked for: %v", f)
		}
	}
	conformance.Shown(t, "S1-071", "S1-072", "S1-075", "S1-077")
	if p := tn.preview(draft(over50, "start", stamp(2), "end", stamp(2))); p.OK {
		t.Errorf("an empty window: %+v", p)
	}
	if p := tn.preview(draft(over50, "start", stamp(2))); !slices.Equal(p.firings(), want[2:]) {
		t.Errorf("a part of the window: %q", p.firings())
	}
	conformance.Shown(t, "S1-074")
	if p := tn.preview(draft(above("Never", "temp", 500, ""))); !p.OK || len(p.Firings) != 0 || p.Degraded != nil {
		t.Errorf("nothing fires: %+v", p)
	}
	conformance.Shown(t, "S1-070")
	for what, in := range map[string]map[string]any{
		"neither draft":    draft(over50, "ruleDefinition", nil),
		"both":             draft(over50, "graph", "{}"),
		"end before start": draft(over50, "start", stamp(9), "end", stamp(8)),
		"no time":          draft(over50, "start", "yesterday"),
		"no rule":          draft(`{"name":"n","type":"threshold","when":{"cel":"1 +"}}`),
		"half a scope":     draft(over50, "entityGroupToken", "g"),
		"no such group":    draft(over50, "entityGroupToken", "g", "entityGroupVersion", 1),
		"no such profile":  draft(over50, "profileToken", "nobody"),
	} {
		if p := tn.preview(in); p.OK || len(p.Diagnostics) == 0 || p.Diagnostics[0].Severity != "error" || p.Diagnostics[0].NodeID != nil || len(p.Firings) != 0 {
			t.Errorf("%s: %+v", what, p)
		}
	}
	conformance.Shown(t, "S1-060", "S1-061")
	degraded := func(p previewOf, what string) {
		t.Helper()
		if !p.OK || p.Degraded == nil || !strings.Contains(*p.Degraded, what) {
			t.Errorf("%s: %+v", what, p)
		}
	}
	p = tn.preview(draft(over50, "start", base.Add(-72*time.Hour).Format(time.RFC3339)))
	if degraded(p, "window shortened"); !slices.Equal(p.firings(), want) {
		t.Errorf("shortened: %q", p.firings())
	}
	conformance.Shown(t, "S1-063")
	degraded(tn.preview(draft(over50, "profileToken", "draft")), "unpublished profile")
	conformance.Shown(t, "S1-064")
	p = tn.preview(draft(`{"name":"n","type":"threshold","when":{"cel":"m.temp > 50.0 && m.other > 1.0"}}`))
	if p.Stats.EvalErrors == 0 {
		t.Errorf("no evaluation has failed: %+v", p)
	}
	degraded(p, "evaluation errors")
	conformance.Shown(t, "S1-069")
	if now := live(); now != health {
		t.Errorf("previews changed the live rules: %s, before %s", now, health)
	}
	if now := fmt.Sprint(tn.alarms("")); now != alarms {
		t.Errorf("previews changed alarms: %s, before %s", now, alarms)
	}
	if got, n := tn.measurements(nil); n != 8 {
		t.Errorf("%d measurements: %v", n, got)
	}
	conformance.Shown(t, "S1-079")
	previewShapes(t, w)
	previewsOfCanvases(t, tn, draft)
	previewAuthorities(t, tn, draft)
}

// previewShapes: the types of previews are those of the contract, and what they have besides is optional.
func previewShapes(t *testing.T, w *world) {
	_, sdl := w.get(t, "/schema/event-processing.graphql")
	for name, want := range map[string][]string{
		"input PreviewRuleInput": {"graph: String", "ruleDefinition: String", "profileToken: String!", "start: String!", "end: String!", "trace: Boolean"},
		"type PreviewResult":     {"ok: Boolean!", "firings: [PreviewFiring!]!", "stats: PreviewStats!", "degraded: String", "diagnostics: [CanvasDiagnostic!]!"},
		"type PreviewFiring":     {"occurredAt: String!", "series: String!", "signal: String!", "trace: [NodeTraceStep!]!"},
		"type NodeTraceStep":     {"nodeId: String!", "kind: String!", "disposition: String!", "detail: String"},
		"type PreviewStats":      {"eventsScanned: Int!", "firingCount: Int!", "evalErrors: Int!", "wallMs: Int!"},
	} {
		kind, typ, _ := strings.Cut(name, " ")
		got := fieldsOf(t, sdl, kind, typ)
		for _, f := range want {
			if !slices.Contains(got, f) {
				t.Errorf("%s has %q, not %s", name, got, f)
			}
		}
		for _, f := range got {
			if kind == "input" && !slices.Contains(want, f) && strings.HasSuffix(f, "!") {
				t.Errorf("%s asks for %s", name, f)
			}
		}
	}
	if got := fieldsOf(t, sdl, "type", "Query"); !slices.Contains(got, "previewRule(input: PreviewRuleInput!): PreviewResult!") {
		t.Errorf("%q", got)
	}
	conformance.Shown(t, "S1-005")
}

// previewsOfCanvases: a canvas fires as its rule does, and each firing says what the nodes did.
func previewsOfCanvases(t *testing.T, tn *tenant, draft func(string, ...any) map[string]any) {
	const nodes = `{"id":"c","type":"duration","config":{"name":"Hot","severity":"major","holdMs":30000,"when":{"metric":"temp","op":"gt","threshold":{"kind":"literal","value":50}}}},
		{"id":"open","type":"branch","config":{"when":"series == 'a'"}},{"id":"next","type":"branch","config":{"when":"!hasValue"}},{"id":"idle","type":"branch","config":{"when":"true"}},
		{"id":"alarm","type":"action","config":{"action":"raiseAlarm","alarmKey":"hot"}},{"id":"guarded","type":"action","config":{"action":"raiseAlarm","alarmKey":"very-hot"}}`
	graph := graphOf(nodes, "s:out c:in", "c:signal open:in", "open:out next:in", "c:signal idle:in", "c:signal alarm:in", "next:out guarded:in")
	p := tn.preview(draft("", "ruleDefinition", nil, "graph", graph, "trace", true))
	if !p.OK || len(p.Firings) < 4 {
		t.Fatalf("%+v", p)
	}
	conformance.Shown(t, "S1-059") // the definition alone is accepted above
	if len(p.Diagnostics) != 1 || p.Diagnostics[0].Severity != "warning" || *p.Diagnostics[0].NodeID != "idle" {
		t.Errorf("the advice: %+v", p.Diagnostics)
	}
	conformance.Shown(t, "S1-080")
	kinds := map[string][]string{"source": {"delivered"}, "condition": {"raised", "resolved"}, "branch": {"passed", "blocked", "skipped"},
		"action": {"raised", "sent", "cleared", "inert", "skipped"}}
	timers := 0
	for _, f := range p.Firings {
		var steps []string
		for _, s := range f.Trace {
			steps = append(steps, s.String())
			if !strings.Contains(graph, fmt.Sprintf(`"id":%q`, s.NodeID)) || !slices.Contains(kinds[s.Kind], s.Disposition) {
				t.Errorf("%s %s: %s", f.Series, f.Signal, s)
			}
		}
		got := strings.Join(steps, "; ")
		if strings.HasPrefix(got, "s source delivered (timer); ") {
			timers++
		}
		want := map[string]string{
			"a raised":   "c condition raised; alarm action raised; open branch passed; next branch passed; guarded action raised",
			"b raised":   "c condition raised; alarm action raised; open branch blocked; next branch skipped (branch open did not pass); guarded action skipped (branch open did not pass)",
			"a resolved": "c condition resolved; alarm action cleared; open branch skipped; next branch skipped; guarded action cleared",
			"b resolved": "c condition resolved; alarm action cleared; open branch skipped; next branch skipped; guarded action cleared",
		}[f.Series+" "+f.Signal]
		if _, nodes, _ := strings.Cut(got, "; "); nodes != want {
			t.Errorf("%s %s: %s, want %s", f.Series, f.Signal, nodes, want)
		}
	}
	conformance.Shown(t, "S1-076", "S1-078")
	form := tn.preview(draft(`{"name":"Hot","severity":"major","type":"duration","hold":"30s","when":{"metric":"temp","op":"gt","threshold":50}}`, "trace", true))
	if !slices.Equal(form.firings(), p.firings()) {
		t.Errorf("the form fires %q, the canvas %q", form.firings(), p.firings())
	}
	for _, f := range append(form.Firings, tn.preview(draft("", "ruleDefinition", nil, "graph", graph)).Firings...) {
		if len(f.Trace) > 0 {
			t.Errorf("a trace of what is no canvas, or was not asked for: %v", f)
		}
	}
	bad := tn.preview(draft("", "ruleDefinition", nil, "graph", strings.ReplaceAll(graph, "!hasValue", "!nothing")))
	if bad.OK || len(bad.Diagnostics) == 0 || bad.Diagnostics[0].NodeID == nil || *bad.Diagnostics[0].NodeID != "next" {
		t.Errorf("%+v", bad)
	}
	conformance.Shown(t, "S1-062") // the node of what is no canvas is null above
}

// previewAuthorities: who may preview a draft that tests a geofence, and one that tests none.
func previewAuthorities(t *testing.T, tn *tenant, draft func(string, ...any) map[string]any) {
	as := func(who string, authorities ...string) *tenant {
		t.Helper()
		tn.must(t, "user-management/admin", tn.identity, fmt.Sprintf(`mutation{a:createRole(request:{scope:"tenant",token:%[1]q,authorities:["%[2]s"]}){id}
			b:createIdentity(request:{email:"%[1]s@example.org",password:"correct horse",enabled:true,systemRoles:[]}){id} c:addMembership(email:"%[1]s@example.org",tenant:%[3]q,roleTokens:[%[1]q]){id}}`,
			who, strings.Join(authorities, `","`), tn.name), nil)
		var in struct {
			Login struct{ IdentityToken string }
		}
		tn.must(t, "user-management", "", fmt.Sprintf(`mutation{login(email:"%s@example.org",password:"correct horse"){identityToken}}`, who), nil).into(t, &in)
		return (&world{Proc: tn.Proc, identity: in.Login.IdentityToken}).enter(t, tn.name)
	}
	const run = `query($i:PreviewRuleInput!){previewRule(input:$i){ok}}`
	over := draft(above("n", "temp", 50, ""))
	reader, finder := as("preview-reader", "device:read"), as("preview-finder", "device:read", "location:read")
	fenced := draft(`{"name":"n","type":"threshold","when":{"cel":"geo.inFence(\"yard\")"}}`)
	if a := tn.ask(t, "event-processing", reader.token, run, map[string]any{"i": fenced}); !strings.HasPrefix(a.refusal(), "FORBIDDEN forbidden: location:read") {
		t.Errorf("a fence, without location:read: %s", a.raw)
	}
	if a := tn.ask(t, "event-processing", finder.token, run, map[string]any{"i": fenced}); len(a.Errors) != 0 {
		t.Errorf("a fence, with location:read: %s", a.raw)
	}
	conformance.Shown(t, "S1-013")
	if a := tn.ask(t, "event-processing", reader.token, run, map[string]any{"i": over}); a.raw != `{"data":{"previewRule":{"ok":true}}}` {
		t.Errorf("without a fence: %s", a.raw)
	}
	conformance.Shown(t, "S1-014")
}

// TestPreviewsAreBounded: what a preview reads is limited, and how many run at a time; another tenant is not affected by either.
func TestPreviewsAreBounded(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: generous + "history: {event_retention_days: 2}\ndetection: {preview_max_events: 5000, preview_max_scanned: 9000}\n"})
	base := time.Now().UTC().Add(-time.Hour).Truncate(time.Minute)
	in := map[string]any{"ruleDefinition": above("Hot", "temp", 50, ""), "profileToken": "p", "start": base.Format(time.RFC3339), "end": base.Add(time.Hour).Format(time.RFC3339)}
	send := func(c *client, metric string, messages int) { // of 100 readings each
		for i := range messages {
			values := make([]string, 100)
			for j := range values {
				values[j] = fmt.Sprintf(`{"measurements":{%q:"%d"},%s}`, metric, j, at(base.Add(time.Duration(100*i+j)*time.Millisecond)))
			}
			c.send(`{"eventType":"Measurement","payload":{"entries":[` + strings.Join(values, ",") + `]}}`)
		}
	}
	tenants := []*tenant{w.tenant(t, "busy"), w.tenant(t, "quiet")}
	for _, tn := range tenants {
		tn.profile("p", map[string]string{"hot": above("Too hot", "temp", 30, "")})
		tn.device("d", "p")
		send(tn.connect("d"), "temp", 40)
		poll.Until(t, "everything is applied", func() error {
			if p := tn.preview(in); p.Stats.EventsScanned != 4000 {
				return fmt.Errorf("%+v", p.Stats)
			}
			return nil
		})
	}
	busy, quiet := tenants[0], tenants[1]
	refused := func(p *previewOf) bool {
		return p.Degraded != nil && strings.Contains(*p.Degraded, "too many previews")
	}
	poll.Until(t, "too many previews at a time", func() error {
		all := make(chan previewOf, 12)
		for range cap(all) {
			go func() { all <- busy.preview(in) }()
		}
		if p := quiet.preview(in); !p.OK || refused(&p) || p.Stats.EventsScanned != 4000 {
			t.Errorf("another tenant: %+v", p)
		}
		n := 0
		for range cap(all) {
			p := <-all
			if !p.OK {
				t.Errorf("%+v", p)
			}
			if refused(&p) {
				n++
			}
		}
		if n == 0 {
			return errors.New("all were run")
		}
		return nil
	})
	conformance.Shown(t, "S1-068", "S1-110")
	degraded := func(in map[string]any, what string) {
		t.Helper()
		if p := busy.preview(in); !p.OK || p.Degraded == nil || !strings.Contains(*p.Degraded, what) {
			t.Errorf("%s: %+v", what, p)
		}
	}
	old := maps.Clone(in)
	old["start"], old["end"] = base.Add(-96*time.Hour).Format(time.RFC3339), base.Add(-73*time.Hour).Format(time.RFC3339)
	degraded(old, "history aged out")
	conformance.Shown(t, "S1-065")
	c := busy.connect("d")
	for _, more := range []struct {
		metric   string
		messages int
		want     string
	}{{"temp", 20, "read cap: 5000 events in scope were judged, up to "}, {"other", 40, "scan cap: "}} {
		send(c, more.metric, more.messages)
		poll.Until(t, more.want, func() error {
			if p := busy.preview(in); !p.OK || p.Degraded == nil || !strings.Contains(*p.Degraded, more.want) {
				return fmt.Errorf("%+v %v", p.Stats, p.Degraded)
			}
			return nil
		})
	}
	conformance.Shown(t, "S1-066")
}

// TestAPreviewWithoutItsGeofences: the geofence as it was during the window is damaged in the store. The preview says so: no position counts as within it.
func TestAPreviewWithoutItsGeofences(t *testing.T) {
	t.Parallel()
	tn := paired(t).again()
	tn.profile("p", map[string]string{"hot": above("Too hot", "temp", 30, "")})
	tn.device("e", "p")
	fence := func(verb, args string) {
		tn.devices(fmt.Sprintf(`mutation($g:String!){%sGeoFence(%s){id}}`, verb, args),
			map[string]any{"g": `{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[[[8,47],[9,47],[9,48],[8,48],[8,47]]]}}`})
	}
	fence("create", `request:{token:"yard",geometry:$g}`)
	fence("create", `request:{token:"gate",geometry:$g}`)
	tn.kept(fmt.Sprintf(`{"eventType":"Location","payload":{"entries":[{"latitude":"47.5","longitude":"8.5"}]},%s}`, tn.as("e")))
	now := time.Now().UTC()
	in := map[string]any{"ruleDefinition": `{"name":"n","type":"threshold","when":{"cel":"geo.inFence(\"yard\")"}}`, "profileToken": "p",
		"start": now.Add(-time.Hour).Format(time.RFC3339), "end": now.Add(time.Hour).Format(time.RFC3339)}
	judged := func() (p previewOf) {
		t.Helper()
		poll.Until(t, "everything is applied", func() error {
			if p = tn.preview(in); !p.OK || p.Stats.EventsScanned == 0 {
				return fmt.Errorf("%+v %v", p, p.Degraded)
			}
			return nil
		})
		return p
	}
	const lost = "geofence archive unreachable"
	if p := judged(); p.Stats.FiringCount != 1 || p.Degraded != nil && strings.Contains(*p.Degraded, lost) {
		t.Errorf("before: %+v %v", p, p.Degraded)
	}
	tn.devices(`mutation{a:deleteGeoFence(token:"yard") b:deleteGeoFence(token:"gate")}`, nil) // what is in force is read at the start, which it would end
	if err := tn.Stop(); err != nil {
		t.Fatal(err)
	}
	db, err := sqlite.Open(t.Context(), tn.path("weir.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Write(t.Context(), store.Durable, func(tx store.Tx) error {
		n, err := tx.Exec(`UPDATE view_rows SET body = x'00ff' WHERE kind = ? AND body IS NOT NULL AND to_offset IS NOT NULL`, string(model.ViewFence))
		if n == 0 && err == nil {
			err = errors.New("no geofence is kept")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	tn = tn.again()
	if p := judged(); p.Degraded == nil || !strings.Contains(*p.Degraded, lost) || !strings.Contains(*p.Degraded, `"yard"`) || !strings.Contains(*p.Degraded, `"gate"`) || p.Stats.FiringCount != 0 {
		t.Errorf("%+v %v", p, p.Degraded)
	}
	conformance.Shown(t, "S1-067")
}
