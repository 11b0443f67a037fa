package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/conformance"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// above is a threshold rule.
func above(name, metric string, limit float64, more string) string {
	return fmt.Sprintf(`{"name":%q,"type":"threshold","when":{"metric":%q,"op":"gt","threshold":%g}%s}`, name, metric, limit, more)
}

func processingArea(t *testing.T, w *world) {
	a := w.must(t, "event-processing", "", `{eventProcessingInfo{functionalArea}}`, nil)
	if string(a.Data) != `{"eventProcessingInfo":{"functionalArea":"event-processing"}}` || a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.raw)
	}
	conformance.Shown(t, "S1-009", "S1-010", "S1-011")
	for _, q := range []string{`{__schema{types{name}}}`, `{__type(name:"Query"){name}}`} {
		if a := w.ask(t, "event-processing", "", q, nil); !strings.HasPrefix(a.refusal(), "INTROSPECTION_DISABLED ") {
			t.Errorf("%s: %s", q, a.raw)
		}
	}
	conformance.Shown(t, "S1-018")
}

// fieldsOf reads the fields of a type out of schema text, arguments and defaults included.
func fieldsOf(t testing.TB, sdl, kind, name string) []string {
	t.Helper()
	m := regexp.MustCompile(`(?ms)^` + kind + ` ` + name + `( implements [^{]*)? \{\n(.*?)^\}`).FindStringSubmatch(sdl)
	if m == nil {
		t.Fatalf("no %s %s in the schema", kind, name)
	}
	var fields []string
	block := false // within a description of several lines
	for line := range strings.Lines(m[2]) {
		switch line = strings.TrimSpace(line); {
		case line == `"""`:
			block = !block
		case line != "" && !block && !strings.HasPrefix(line, `"`):
			fields = append(fields, line)
		}
	}
	return fields
}

func processingShapes(t *testing.T, w *world) {
	_, sdl := w.get(t, "/schema/event-processing.graphql")
	has := func(kind, name string, want ...string) {
		t.Helper()
		got := fieldsOf(t, sdl, kind, name)
		for _, f := range want {
			if !slices.Contains(got, f) {
				t.Errorf("%s %s lacks %q; it has %q", kind, name, f, got)
			}
		}
	}
	has("type", "EventProcessingInfo", "functionalArea: String!")
	has("type", "DetectionEvent", "ruleId: String!", "ruleToken: String!", "kind: String!", "edge: String!", "series: String!",
		"occurredTime: String!", "severity: String", "value: Float")
	conformance.Shown(t, "S1-001")
	has("input", "DetectionRuleInput", "token: String!", "definition: String!", "groupScoped: Boolean = false")
	has("type", "DetectionRuleValidationResult", "valid: Boolean!", "errors: [DetectionRuleValidationError!]!", "warnings: [DetectionRuleValidationWarning!]!")
	has("type", "DetectionRuleValidationError", "index: Int!", "token: String!", "message: String!")
	has("type", "DetectionRuleValidationWarning", "index: Int!", "token: String!", "code: String!", "params: [String!]!", "message: String!")
	conformance.Shown(t, "S1-002")
	has("type", "RuleHealth", "ruleId: String!", "ruleToken: String!", "name: String!", "status: RuleStatus!", "lastFiredAt: String", "fireCount: Int!",
		"lastSignal: String", "message: String")
	if got := fieldsOf(t, sdl, "enum", "RuleStatus"); !reflect.DeepEqual(got, []string{"ACTIVE", "COMPILE_ERROR"}) {
		t.Errorf("RuleStatus: %q", got)
	}
	conformance.Shown(t, "S1-004", "S1-056")
	has("type", "Query", "eventProcessingInfo: EventProcessingInfo!", "validateDetectionRules(rules: [DetectionRuleInput!]!): DetectionRuleValidationResult!",
		"ruleHealth(profileToken: String!): [RuleHealth!]!", "compileCanvas(graph: String!, profileToken: String!): CanvasCompileResult!",
		"previewRule(input: PreviewRuleInput!): PreviewResult!")
	has("type", "Mutation", "draftDetectionRuleFromText(input: DraftRuleFromTextInput!): DraftRuleResult!")
	has("type", "Subscription", "detectionStream(profileToken: String!): DetectionEvent!")
	conformance.Shown(t, "S1-007")
}

// verdict is the answer of validateDetectionRules.
type verdict struct {
	Valid  bool
	Errors []struct {
		Index          int
		Token, Message string
	}
	Warnings []struct {
		Index                int
		Token, Code, Message string
		Params               []string
	}
}

type draft struct {
	Token       string `json:"token"`
	Definition  string `json:"definition"`
	GroupScoped bool   `json:"groupScoped,omitempty"`
}

func (tn *tenant) validate(drafts ...draft) (verdict, string) {
	tn.t.Helper()
	a := tn.rules(`query($r:[DetectionRuleInput!]!){validateDetectionRules(rules:$r){valid errors{index token message} warnings{index token code params message}}}`,
		map[string]any{"r": drafts})
	var out struct{ ValidateDetectionRules verdict }
	a.into(tn.t, &out)
	return out.ValidateDetectionRules, a.raw
}

// expression is a condition in CEL; attribute reads an attribute, too.
const (
	expression = `{"name":"w","type":"threshold","when":{"cel":"has(m.temp) && m.temp > 30.0"}}`
	attribute  = `{"name":"w","type":"threshold","when":{"cel":"!(\"site\" in attr) && has(m.temp) && m.temp > 30.0"}}`
)

func validation(t *testing.T, w *world) {
	tn := w.tenant(t, "validation")
	costly := `{"name":"c","type":"threshold","when":{"cel":"[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, m[\"t\"] > double(a * b)))"}}`
	mixed := []draft{{Token: "good", Definition: above("g", "temp", 30, "")}, {Token: "undecodable", Definition: `{"name":`},
		{Token: "expression", Definition: expression}, {Token: "uncompilable", Definition: `{"name":"u","type":"threshold","when":{"cel":"m.temp >"}}`},
		{Token: "costly", Definition: costly}, {Token: "good", Definition: above("g", "temp", 0, `,"severity":"minor"`)}}
	v, raw := tn.validate(mixed...)
	want := []struct {
		index       int
		token, text string
	}{{1, "undecodable", "JSON"}, {3, "uncompilable", "when"}, {4, "costly", "cost"}}
	if v.Valid || len(v.Errors) != len(want) {
		t.Fatalf("%s", raw)
	}
	for i, e := range v.Errors {
		if e.Index != want[i].index || e.Token != want[i].token || !strings.Contains(e.Message, want[i].text) {
			t.Errorf("error %d is %+v, want %+v", i, e, want[i])
		}
	}
	conformance.Shown(t, "S1-019", "S1-022", "S1-023")
	for _, drafts := range [][]draft{{}, {mixed[0]}, {mixed[2]}, {mixed[0], mixed[2], mixed[5]}} {
		if v, raw := tn.validate(drafts...); !v.Valid || len(v.Errors) != 0 {
			t.Errorf("%v: %s", drafts, raw)
		}
	}
	for _, d := range []draft{mixed[1], mixed[3], mixed[4]} {
		if v, raw := tn.validate(d, mixed[0]); v.Valid || len(v.Errors) != 1 {
			t.Errorf("%v: %s", d, raw)
		}
	}
	conformance.Shown(t, "S1-021")
	if again, r := tn.validate(mixed...); !reflect.DeepEqual(again, v) || r != raw {
		t.Errorf("asked again: %s, before %s", r, raw)
	}
	if a := tn.devices(`{detectionRules(criteria:{pageNumber:1,pageSize:1}){pagination{totalRecords}}}`, nil); !strings.Contains(a.raw, `"totalRecords":0`) {
		t.Errorf("something was stored: %s", a.raw)
	}
	conformance.Shown(t, "S1-030")
	for id, definition := range map[string]string{
		"S1-027": `{"name":"a","type":"absence","timeout":"5m"}`,
		"S1-028": `{"name":"c","type":"correlation","anchorType":"area","count":2,"window":"5m"}`,
	} {
		v, raw := tn.validate(draft{"scoped", definition, true})
		if v.Valid || len(v.Errors) != 1 || !strings.Contains(v.Errors[0].Message, "cannot be scoped to a device group") {
			t.Errorf("%s: %s", definition, raw)
		}
		conformance.Shown(t, id)
	}
}

func publishGate(t *testing.T, w *world) {
	tn := w.tenant(t, "publish-gate")
	tn.profile("p", nil)
	broken := `{"name":"b","type":"threshold","when":{"metric":"temp","op":"gt"}}`
	tn.rule("p", "good", above("g", "temp", 30, ""), true)
	tn.rule("p", "bad", broken, false)
	tn.publish("p")
	conformance.Shown(t, "S1-031")
	tn.devices(`mutation{updateDetectionRule(token:"bad",request:{enabled:true}){id}}`, nil)
	const state = `{deviceProfileVersions(token:"p"){version label} deviceProfilesByToken(tokens:["p"]){activeVersion updatedAt}}`
	before := tn.devices(state, nil).raw
	tn.refused(`mutation{publishDeviceProfile(token:"p"){version}}`, nil, "INVALID_INPUT", `"bad": `)
	if after := tn.devices(state, nil).raw; after != before {
		t.Errorf("a refused publish wrote: %s, before %s", after, before)
	}
	conformance.Shown(t, "S1-032")
	var tokens []string
	for _, h := range tn.health("p") {
		tokens = append(tokens, h.RuleToken)
	}
	if !reflect.DeepEqual(tokens, []string{"good"}) {
		t.Errorf("rule health shows %q", tokens)
	}
	conformance.Shown(t, "S1-058")
}

// health is an item of ruleHealth.
type health struct {
	RuleID, RuleToken, Name, Status  string
	LastFiredAt, LastSignal, Message *string
	FireCount                        int
}

func (tn *tenant) health(profile string) []health {
	tn.t.Helper()
	var out struct{ RuleHealth []health }
	tn.rules(`query($p:String!){ruleHealth(profileToken:$p){ruleId ruleToken name status lastFiredAt fireCount lastSignal message}}`,
		map[string]any{"p": profile}).into(tn.t, &out)
	return out.RuleHealth
}

func ruleHealth(t *testing.T, w *world) {
	tn := w.tenant(t, "rule-health")
	tn.devices(`mutation{createDeviceProfile(request:{token:"draft"}){id}}`, nil)
	tn.rule("draft", "draft", above("d", "temp", 1, ""), true)
	for _, p := range []string{"draft", "nobody", ""} {
		if got := tn.rules(`query($p:String!){ruleHealth(profileToken:$p){ruleId}}`, map[string]any{"p": p}).raw; got != `{"data":{"ruleHealth":[]}}` {
			t.Errorf("%q: %s", p, got)
		}
	}
	conformance.Shown(t, "S1-047")
	tn.profile("p", map[string]string{"hot": above("Too hot", "temp", 30, ""), "cold": above("Not cold", "temp", -5, ""), "idle": above("x", "other", 0, "")})
	tn.rule("p", "later", above("later", "temp", 1, ""), true) // in the draft only
	fresh := tn.health("p")
	want := []health{{RuleID: "rule-health/p@1/cold", RuleToken: "cold", Name: "Not cold", Status: "ACTIVE"},
		{RuleID: "rule-health/p@1/hot", RuleToken: "hot", Name: "Too hot", Status: "ACTIVE"},
		{RuleID: "rule-health/p@1/idle", RuleToken: "idle", Name: "x", Status: "ACTIVE"}}
	if !reflect.DeepEqual(fresh, want) {
		t.Fatalf("%+v, want %+v", fresh, want)
	}
	conformance.Shown(t, "S1-046", "S1-048", "S1-050", "S1-052")
	tn.device("d", "p")
	c := tn.connect("d")
	base := time.Now().Add(-time.Hour).Truncate(time.Second)
	values := []string{"31", "33", "12", "35", "-9"} // hot: raised, -, resolved, raised, resolved; cold: raised once, resolved at the end
	for i, v := range values {
		c.send(measured("temp", v, at(base.Add(time.Duration(i)*time.Minute))))
		if i != 0 {
			continue
		}
		poll.Until(t, "the first fire", func() error {
			if h := tn.health("p")[1]; h.FireCount != 1 || h.LastSignal == nil || *h.LastSignal != "raised" || !sameTime(h.LastFiredAt, base) {
				return fmt.Errorf("%+v", h)
			}
			return nil
		})
	}
	last := base.Add(4 * time.Minute)
	poll.Until(t, "the last edge", func() error {
		h := tn.health("p")
		hot, cold := h[1], h[0]
		if hot.FireCount != 4 || *hot.LastSignal != "resolved" || !sameTime(hot.LastFiredAt, last) || cold.FireCount != 2 || *cold.LastSignal != "resolved" {
			return fmt.Errorf("%+v", h)
		}
		return nil
	})
	if idle := tn.health("p")[2]; !reflect.DeepEqual(idle, want[2]) {
		t.Errorf("%+v, want %+v", idle, want[2])
	}
	conformance.Shown(t, "S1-053")
	graph := `{"nodes":[],"edges":[]}`
	tn.devices(`mutation($g:String!){updateDetectionRule(token:"hot",request:{authoringGraph:$g}){id}}`, map[string]any{"g": graph})
	var out struct {
		DetectionRulesByToken []struct{ Definition, AuthoringGraph string }
	}
	tn.devices(`{detectionRulesByToken(tokens:["hot"]){definition authoringGraph}}`, nil).into(t, &out)
	if r := out.DetectionRulesByToken; len(r) != 1 || r[0].Definition != above("Too hot", "temp", 30, "") || r[0].AuthoringGraph != graph {
		t.Errorf("%+v", r)
	}
	conformance.Shown(t, "S1-008")
	other := w.tenant(t, "rule-health-other")
	if got := other.health("p"); len(got) != 0 {
		t.Errorf("another tenant sees %+v", got)
	}
	if a, b := tn.health("p"), tn.health("p"); !reflect.DeepEqual(a, b) {
		t.Errorf("asking changes the answer: %+v, %+v", a, b)
	}
	conformance.Shown(t, "S1-057")
}

func sameTime(got *string, want time.Time) bool {
	if got == nil {
		return false
	}
	at, err := time.Parse(time.RFC3339Nano, *got)
	return err == nil && at.Equal(want)
}

// detection is an item of detectionStream.
type detection struct {
	RuleID, RuleToken, Kind, Edge, Series, OccurredTime string
	Severity                                            *string
	Value                                               *float64
}

const detectionQuery = `subscription($p:String!){detectionStream(profileToken:$p){ruleId ruleToken kind edge series occurredTime severity value}}`

// listen subscribes to the detections of a profile and waits until the subscription stands: the metric "prime" of the
// device is sent, on which a rule "prime" of the profile fires, until the first edge is heard.
func (tn *tenant) listen(profile string, c *client) *testweir.Socket {
	tn.t.Helper()
	s, err := tn.Dial("event-processing", tn.token)
	if err == nil {
		err = s.Subscribe("1", detectionQuery, map[string]any{"p": profile})
	}
	if err != nil {
		tn.t.Fatal(err)
	}
	last := ""
	for range 200 {
		for _, v := range []string{"1", "0"} {
			c.send(measured("prime", v))
		}
		if m, err := s.Next(50 * time.Millisecond); err == nil {
			last = detectionOf(tn.t, m).Edge
			break
		} else if !errors.Is(err, testweir.ErrQuiet) {
			tn.t.Fatal(err)
		}
	}
	if last == "" {
		tn.t.Fatal("the subscription never stood")
	}
	// What was sent before is heard to its end: an edge that is known to be the last.
	mark := time.Now().Add(time.Minute).UTC().Truncate(time.Second)
	c.send(measured("prime", "1", at(mark)))
	for {
		if d := tn.next(s); sameTime(&d.OccurredTime, mark) {
			return s
		}
	}
}

const primeRule = `{"name":"prime","type":"threshold","when":{"metric":"prime","op":"gt","threshold":0.5}}`

func detectionOf(t testing.TB, m testweir.Message) detection {
	t.Helper()
	var out struct {
		Data struct{ DetectionStream detection }
	}
	if err := json.Unmarshal(m.Payload, &out); m.Type != "next" || err != nil {
		t.Fatalf("%+v %s %v", m, m.Payload, err)
	}
	return out.Data.DetectionStream
}

// next is the next detection.
func (tn *tenant) next(s *testweir.Socket) detection {
	tn.t.Helper()
	m, err := s.Next(20 * time.Second)
	if err != nil {
		tn.t.Fatal(err)
	}
	return detectionOf(tn.t, m)
}

func detections(t *testing.T, w *world) {
	tn := w.tenant(t, "detections")
	tn.profile("p", map[string]string{"prime": primeRule, "hot": above("Too hot", "temp", 30, `,"severity":"critical"`), "warm": above("Warm", "temp", 20, "")})
	tn.device("d", "p")
	c := tn.connect("d")
	c.send(measured("temp", "99")) // raises both before anybody listens
	s := tn.listen("p", c)
	base := time.Now().Add(2 * time.Minute).Truncate(time.Millisecond) // behind the edges so far
	for i, v := range []string{"5", "25", "31.5", "5"} {
		c.send(measured("temp", v, at(base.Add(time.Duration(i)*time.Second))))
	}
	critical := "critical"
	edge := func(rule, signal string, i int, value float64) detection {
		d := detection{RuleID: "detections/p@1/" + rule, RuleToken: rule, Kind: "threshold", Edge: signal, Series: "d",
			OccurredTime: base.Add(time.Duration(i) * time.Second).UTC().Format(time.RFC3339Nano)}
		if rule == "hot" {
			d.Severity = &critical
		}
		if signal == "raised" {
			d.Value = &value
		}
		return d
	}
	want := []detection{edge("hot", "resolved", 0, 0), edge("warm", "resolved", 0, 0), edge("warm", "raised", 1, 25), edge("hot", "raised", 2, 31.5),
		edge("hot", "resolved", 3, 0), edge("warm", "resolved", 3, 0)}
	for i, d := range want {
		got := tn.next(s)
		if sameInstant(got.OccurredTime, d.OccurredTime) { // however it is written
			got.OccurredTime = d.OccurredTime
		}
		if !reflect.DeepEqual(got, d) {
			t.Errorf("edge %d: %s, want %s", i, show(got), show(d))
		}
	}
	conformance.Shown(t, "S1-094", "S1-095", "S1-096", "S1-097", "S1-098")
	byID := map[string]health{}
	for _, h := range tn.health("p") {
		byID[h.RuleID] = h
	}
	for _, d := range want {
		if byID[d.RuleID].RuleToken != d.RuleToken {
			t.Errorf("%s is not in rule health as %s", d.RuleID, d.RuleToken)
		}
	}
	conformance.Shown(t, "S1-106")
	old := time.Now().Add(-48 * time.Hour).UTC().Truncate(time.Second)
	tn.device("e", "p") // its own clock
	e := tn.connect("e")
	e.send(measured("temp", "40", at(old)))
	for range 2 {
		if d := tn.next(s); d.Series != "e" || !sameTime(&d.OccurredTime, old) {
			t.Errorf("%s, want %v of e", show(d), old)
		}
	}
	conformance.Shown(t, "S1-105")
	for profile, want := range map[string]string{"": "profileToken", "nope": `device profile \"nope\" does not exist`} {
		refused, err := tn.Dial("event-processing", tn.token)
		if err == nil {
			err = refused.Subscribe("7", detectionQuery, map[string]any{"p": profile})
		}
		if err != nil {
			t.Fatal(err)
		}
		if m, err := refused.Next(20 * time.Second); err != nil || m.Type != "error" || m.ID != "7" || !strings.Contains(string(m.Payload), want) {
			t.Errorf("%q: %+v %s %v", profile, m, m.Payload, err)
		}
	}
	conformance.Shown(t, "S1-100")
}

func sameInstant(a, b string) bool {
	x, errX := time.Parse(time.RFC3339Nano, a)
	y, errY := time.Parse(time.RFC3339Nano, b)
	return errX == nil && errY == nil && x.Equal(y)
}

func show(d detection) string {
	b, _ := json.Marshal(d)
	return string(b)
}

func severities(t *testing.T, w *world) {
	tn := w.tenant(t, "severities")
	rules := map[string]string{"prime": primeRule, "none": above("none", "temp", 30, "")}
	for _, s := range []string{"critical", "major", "minor", "warning", "indeterminate"} {
		rules[s] = above(s, "temp", 30, fmt.Sprintf(`,"severity":%q`, s))
	}
	tn.profile("p", rules)
	tn.device("d", "p")
	c := tn.connect("d")
	s := tn.listen("p", c)
	c.send(measured("temp", "31"))
	for range 6 {
		d := tn.next(s)
		switch {
		case d.RuleToken == "none" && d.Severity != nil, d.RuleToken != "none" && (d.Severity == nil || *d.Severity != d.RuleToken):
			t.Errorf("%s", show(d))
		}
		delete(rules, d.RuleToken)
	}
	if len(rules) != 1 {
		t.Errorf("not heard: %v", rules)
	}
	if v, raw := tn.validate(draft{"s", above("s", "temp", 1, `,"severity":"fatal"`), false}, draft{"s", above("s", "temp", 1, `,"severity":"Major"`), false}); len(v.Errors) != 2 {
		t.Errorf("another severity is accepted: %s", raw)
	}
	conformance.Shown(t, "S1-102")
}

// A rule in CEL judges as it is written; value is what triggered only where one comparison did.
func expressions(t *testing.T, w *world) {
	tn := w.tenant(t, "expressions")
	tn.profile("p", map[string]string{"prime": primeRule, "cel": expression})
	tn.device("d", "p")
	c := tn.connect("d")
	s := tn.listen("p", c)
	for _, v := range []string{"29", "31", "30"} {
		c.send(measured("temp", v))
	}
	for _, edge := range []string{"raised", "resolved"} {
		if d := tn.next(s); d.RuleToken != "cel" || d.Edge != edge || d.Value != nil {
			t.Errorf("%s, want %s", show(d), edge)
		}
	}
}

// The edges of another profile of the tenant do not arrive.
func profilesApart(t *testing.T, w *world) {
	tn := w.tenant(t, "profiles-apart")
	rules := map[string]string{"prime": primeRule, "hot": above("hot", "temp", 30, "")}
	tn.profile("p", rules)
	tn.devices(`mutation{createDeviceProfile(request:{token:"q"}){id}}`, nil)
	tn.rule("q", "hot-q", rules["hot"], true)
	tn.devices(`mutation{createDeviceType(request:{token:"q",profileToken:"q"}){id}}`, nil)
	tn.publish("q")
	tn.device("d", "p")
	tn.device("e", "q")
	c, other := tn.connect("d"), tn.connect("e")
	s := tn.listen("p", c)
	for _, v := range []string{"31", "1", "31"} {
		other.send(measured("temp", v))
	}
	c.send(measured("temp", "31"))
	if d := tn.next(s); d.Series != "d" || d.RuleToken != "hot" {
		t.Errorf("%s", show(d))
	}
	poll.Until(t, "the edges of the other profile", func() error {
		if h := tn.health("q"); h[0].FireCount != 3 {
			return fmt.Errorf("%+v", h)
		}
		return nil
	})
	conformance.Shown(t, "S1-099")
}

// A subscriber that takes nothing is told so, after everything that it was still owed, and its subscription ends.
func slowSubscriber(t *testing.T, w *world) {
	tn := w.tenant(t, "slow-subscriber")
	tn.plain("d")
	c := tn.connect("d")
	metric := strings.Repeat("m", 128)
	var aliases strings.Builder
	for i := range 50 {
		fmt.Fprintf(&aliases, " n%d: name", i)
	}
	s, err := tn.Dial("event-management", tn.token)
	if err == nil {
		err = s.Subscribe("slow", `subscription{measurementStream(deviceToken:"d"){value`+aliases.String()+`}}`, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	heard := func(within time.Duration) (value float64, ended string, err error) {
		m, err := s.Next(within)
		if err != nil || m.Type != "next" {
			return 0, m.Type + string(m.Payload), err
		}
		var out struct {
			Data struct{ MeasurementStream struct{ Value float64 } }
		}
		return out.Data.MeasurementStream.Value, "", json.Unmarshal(m.Payload, &out)
	}
	n := 0
	for ; ; n++ {
		c.send(measured(metric, "0"))
		if _, _, err := heard(50 * time.Millisecond); err == nil {
			break
		} else if !errors.Is(err, testweir.ErrQuiet) || n > 200 {
			t.Fatal(err)
		}
	}
	const messages = 24
	for i := range messages {
		c.send(many(metric, 1+256*i, 256))
	}
	var last float64
	for {
		value, ended, err := heard(20 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if ended != "" {
			if !strings.HasPrefix(ended, "error") || !strings.Contains(ended, "too slow") || !strings.Contains(ended, "LIMIT_EXCEEDED") {
				t.Errorf("%s", ended)
			}
			break
		}
		if value != 0 && value != last+1 {
			t.Fatalf("%v follows %v: a gap in silence", value, last)
		}
		if last = value; last == messages*256 {
			t.Fatal("the subscriber was never too slow")
		}
	}
	// The connection lives, and the id is free.
	if err := s.Subscribe("slow", `{ingestLedger(criteria:{}){transport}}`, nil); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Next(20 * time.Second); err != nil || m.Type != "next" {
		t.Errorf("%+v %v", m, err)
	}
}

// pastDetections asks for what fired before anybody listened.
func pastDetections(t *testing.T, w *world) {
	tn := w.tenant(t, "past-detections")
	tn.profile("p", map[string]string{"hot": above("Too hot", "temp", 30, `,"severity":"critical"`), "warm": above("Warm", "temp", 20, "")})
	tn.profile("idle", map[string]string{"never": above("Never", "temp", 20, "")})
	tn.device("d", "p")
	tn.device("e", "p")
	d, e := tn.connect("d"), tn.connect("e")
	base := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i, v := range []string{"25", "31", "5"} { // warm raised; hot raised; both resolved
		d.send(measured("temp", v, at(base.Add(time.Duration(i)*time.Minute))))
	}
	e.send(measured("temp", "26", at(base.Add(10*time.Minute))))

	type row struct {
		ID, RuleID, RuleToken, ProfileToken, Kind, Edge, Series, DeviceToken, OccurredTime string
		ProfileVersion                                                                     int
		Severity                                                                           *string
		Value                                                                              *float64
	}
	type list struct {
		Results    []row
		Pagination struct{ PageStart, PageEnd, TotalRecords int }
	}
	const fields = `{results{id ruleId ruleToken profileToken profileVersion kind edge series deviceToken occurredTime severity value} pagination{pageStart pageEnd totalRecords}}`
	ask := func(criteria string) list {
		t.Helper()
		var out struct{ Detections list }
		tn.rules(`{detections(criteria:{`+criteria+`})`+fields+`}`, nil).into(t, &out)
		return out.Detections
	}
	short := func(l list) string {
		var out []string
		for _, r := range l.Results {
			out = append(out, r.Series+" "+r.RuleToken+" "+r.Edge)
		}
		return strings.Join(out, ", ")
	}
	poll.Until(t, "all edges", func() error {
		if l := ask("pageNumber:1,pageSize:100"); l.Pagination.TotalRecords != 5 {
			return fmt.Errorf("%+v", l)
		}
		return nil
	})
	all := ask("pageNumber:1,pageSize:100")
	if p := all.Pagination; p.PageStart != 1 || p.PageEnd != 5 {
		t.Errorf("%+v", p)
	}
	first := all.Results[3] // hot, raised
	if first.RuleID != "past-detections/p@1/hot" || first.ProfileToken != "p" || first.ProfileVersion != 1 || first.Kind != "threshold" || first.DeviceToken != "d" ||
		!sameInstant(first.OccurredTime, base.Add(time.Minute).UTC().Format(time.RFC3339Nano)) || *first.Severity != "critical" || *first.Value != 31 {
		t.Errorf("%+v", first)
	}
	at := func(minute int) string {
		return base.Add(time.Duration(minute) * time.Minute).UTC().Format(time.RFC3339)
	}
	for criteria, want := range map[string]string{
		"":                                  "e warm raised, d warm resolved, d hot resolved, d hot raised, d warm raised",
		`,deviceToken:"e"`:                  "e warm raised",
		`,profileToken:"p",ruleToken:"hot"`: "d hot resolved, d hot raised",
		`,severity:"critical"`:              "d hot resolved, d hot raised",
		`,edge:"raised"`:                    "e warm raised, d hot raised, d warm raised",
		`,startTime:"` + at(1) + `",endTime:"` + at(2) + `"`: "d warm resolved, d hot resolved, d hot raised",
		`,before:"` + first.ID + `"`:                         "d warm raised",
		`,profileToken:"idle"`:                               "",
		`,severity:"minor"`:                                  "",
	} {
		got := short(ask("pageNumber:1,pageSize:100" + criteria))
		if got = strings.Replace(got, "d hot resolved, d warm resolved", "d warm resolved, d hot resolved", 1); got != want { // at one instant
			t.Errorf("%s: %s, want %s", criteria, got, want)
		}
	}
	var pages []string
	for n := 1; n <= 3; n++ {
		l := ask(fmt.Sprintf("pageNumber:%d,pageSize:2", n))
		pages = append(pages, short(l))
		if l.Pagination.TotalRecords != 5 {
			t.Errorf("page %d: %+v", n, l.Pagination)
		}
	}
	if got, want := strings.Join(pages, ", "), short(all); got != want {
		t.Errorf("page by page %s, at once %s", got, want)
	}
	refused := func(tn *tenant, criteria, code string) {
		t.Helper()
		a := w.ask(t, "event-processing", tn.token, `{detections(criteria:{pageNumber:1,pageSize:10`+criteria+`}){pagination{totalRecords}}}`, nil)
		if !strings.HasPrefix(a.refusal(), code+" ") {
			t.Errorf("%s: %s, want %s", criteria, a.raw, code)
		}
	}
	for criteria, want := range map[string]string{
		`,deviceToken:"nobody"`:  `NOT_FOUND`,
		`,profileToken:"nobody"`: `NOT_FOUND`,
		`,ruleToken:"nobody"`:    `NOT_FOUND`,
		`,severity:"loud"`:       `INVALID_INPUT`,
		`,edge:"both"`:           `INVALID_INPUT`,
		`,startTime:"noon"`:      `INVALID_INPUT`,
		`,before:"x"`:            `INVALID_INPUT`,
		`,before:"999999999"`:    `NOT_FOUND`,
	} {
		refused(tn, criteria, want)
	}
	other := w.tenant(t, "past-detections-other")
	refused(other, `,before:"`+first.ID+`"`, "NOT_FOUND")
	if a := other.rules(`{detections(criteria:{pageNumber:1,pageSize:10}){results{id}}}`, nil); a.raw != `{"data":{"detections":{"results":[]}}}` {
		t.Errorf("another tenant sees %s", a.raw)
	}
}
