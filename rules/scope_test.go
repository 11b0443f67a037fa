package rules_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"weir/model"
	"weir/rules"
)

// known are facts as a test sets them.
type known struct {
	numbers map[string]float64
	members map[int64]bool
	groups  bool // the view has the group
	inside  map[string]bool
}

func (k *known) Number(_ int64, key string) (float64, bool) { n, ok := k.numbers[key]; return n, ok }

func (k *known) Numbers(int64) map[string]float64 { return k.numbers }

func (k *known) InGroup(tenant, device int64, token string, version int) (member, ok bool) {
	return k.members[device] && tenant == pump.Tenant && token == "g" && version == 1, k.groups
}

func (k *known) Inside(_ int64, fence string, lon, _ float64) (bool, bool) {
	_, ok := k.inside[fence]
	return k.inside[fence] && lon > 0, ok
}

// scene is a plant whose rules look at facts.
type scene struct {
	*timeline
	*known
}

func newScene(t *testing.T, group string, definitions ...string) *scene {
	s := &scene{newTimeline(t, rules.Limits{}), &known{numbers: map[string]float64{}, members: map[int64]bool{}, groups: true, inside: map[string]bool{}}}
	for i, d := range definitions {
		s.rule = append(s.rule, model.RuleView{Token: fmt.Sprintf("r%d", i), Definition: `{"name":"n",` + d + `}`, Group: group, GroupVersion: len(group)})
	}
	s.install(0, s.rule...)
	for _, h := range s.e.Health(pump.ProfileKey) {
		if h.Status != rules.Active {
			t.Fatalf("%s: %s", h.Token, h.Message)
		}
	}
	return s
}

// hear applies a reading of v, whose event time is the listening time.
func (s *scene) hear(seconds float64, device int64, v float64, change ...func(*rules.Input)) {
	in := &rules.Input{Position: s.at(seconds), Profile: pump.ProfileKey, Device: testDevice(device), Occurred: model.Micros(seconds * 1e6),
		Readings: []model.Reading{{Metric: "v", Value: v}}, Facts: s.known}
	for _, f := range change {
		f(in)
	}
	s.e.Apply(in, s.emit)
}

func (s *scene) fired(what, want string) {
	s.t.Helper()
	if got := s.took(); got != want {
		s.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestEachKindLeavesItsScope: what a device has raised resolves at the record at which it leaves the group of a rule, its state is dropped,
// another device keeps its own, and a start on the way changes nothing.
func TestEachKindLeavesItsScope(t *testing.T) {
	t.Parallel()
	const above = `,"op":"gt","threshold":5`
	const when = `"when":{"metric":"v"` + above + `}`
	for name, c := range map[string]string{
		"threshold":    `"type":"threshold",` + when,
		"deltaRate":    `"type":"deltaRate","metric":"v","lateness":"0s"` + above,
		"repeating":    `"type":"repeating","count":1,"window":"1m","lateness":"0s",` + when,
		"duration":     `"type":"duration","hold":"1s","lateness":"0s",` + when,
		"tumbling":     `"type":"aggregate","windowMode":"tumbling","window":"1s","agg":"max","metric":"v","lateness":"0s"` + above,
		"sliding":      `"type":"aggregate","windowMode":"sliding","window":"1m","agg":"max","metric":"v","lateness":"0s"` + above,
		"session":      `"type":"aggregate","windowMode":"session","gap":"1s","agg":"max","metric":"v","lateness":"0s"` + above,
		"count":        `"type":"aggregate","windowMode":"count","count":2,"agg":"max","metric":"v"` + above,
		"connectivity": `"type":"connectivity"`,
	} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %v", name, again), func(t *testing.T) {
				t.Parallel()
				s := newScene(t, "g", c)
				gone := func(in *rules.Input) {}
				if name == "connectivity" {
					gone = func(in *rules.Input) { in.Kind, in.Presence = rules.Transition, model.Disconnected }
				}
				raise := func(at float64, devices ...int64) {
					for i, v := range []float64{0, 9, 20, 40} {
						for _, d := range devices {
							s.hear(at+float64(i)*1.25, d, v, gone)
						}
					}
				}
				raise(10, 1, 2)
				s.fired("nobody is a member", "")
				if st := s.e.Stats(); st.Keys != 0 {
					t.Errorf("%d keys", st.Keys)
				}
				s.members[1], s.members[2] = true, true
				raise(20, 1, 2)
				if got := s.took(); strings.Count(got, "raised") != 2 || strings.Contains(got, "resolved") {
					t.Fatalf("members: %q", got)
				}
				if again {
					s.reload(s.store, s.rule)
				}
				s.groups, s.members[1] = false, false
				s.e.Rescope(s.at(24), 1, s.known, s.emit)
				s.fired("where it cannot be told nothing ends", "")
				s.groups = true
				s.e.Rescope(s.at(24.1), 2, s.known, s.emit)
				s.fired("the other is a member", "")
				s.e.Rescope(s.at(24.2), 1, s.known, s.emit)
				if got := s.took(); !strings.HasPrefix(got, "resolved@") || strings.Contains(got, " ") {
					t.Fatalf("left: %q", got)
				}
				s.e.Rescope(s.at(24.3), 1, s.known, s.emit)
				s.fired("left before", "")
				if st := s.e.Stats(); st.Keys != 1 {
					t.Errorf("%d keys, want that of the other", st.Keys)
				}
				s.hear(25, 1, 99, gone)
				s.at(60)
				if got := s.took(); strings.Contains(got, "d1") || strings.HasPrefix(got, "raised") {
					t.Errorf("no member: %q", got)
				}
				s.members[1] = true
				raise(70, 1)
				if got := s.took(); !strings.Contains(got, "raised") {
					t.Errorf("a member again: %q", got)
				}
				s.members = map[int64]bool{}
				s.e.RescopeAll(s.at(80), s.known, s.emit)
				s.took()
				if st := s.e.Stats(); st.Keys != 0 || st.Samples != 0 {
					t.Errorf("all have left, %+v", st)
				}
			})
		}
	}
}

// TestAGroupThatIsNotKnownIsAFailedEvaluation: the rule is not judged, and its state stands.
func TestAGroupThatIsNotKnownIsAFailedEvaluation(t *testing.T) {
	t.Parallel()
	s := newScene(t, "g", `"type":"threshold",`+over5)
	s.members[1] = true
	s.hear(1, 1, 6)
	s.groups = false
	s.hear(2, 1, 1)
	s.fired("unknown", "raised@1=6")
	s.groups = true
	s.hear(3, 1, 1)
	s.fired("known again", "resolved@3")
	if h := s.e.Health(pump.ProfileKey)[0]; h.EvalErrors != 1 {
		t.Errorf("%+v", h)
	}
}

// TestAttributesAreThoseOfTheSamplesPlace: a held sample is judged by what held when it arrived.
func TestAttributesAreThoseOfTheSamplesPlace(t *testing.T) {
	t.Parallel()
	s := newScene(t, "", `"type":"threshold","when":{"metric":"v","op":"gt","thresholdAttr":"limit"}`,
		`"type":"repeating","count":1,"window":"10m","when":{"metric":"v","op":"gt","thresholdAttr":"limit"}`)
	s.numbers["limit"] = 5
	s.hear(1, 1, 6)
	s.fired("judged at its arrival", "raised@1=6")
	s.numbers["limit"] = 7 // it waits for the lateness of 5 s
	s.at(20)
	s.fired("judged by its own place", "raised@1=6")
	s.hear(21, 1, 6)
	s.fired("changed while raised, at the next reading", "resolved@21")
	s.numbers["limit"] = 6
	s.hear(22, 1, 6)
	s.fired("equal", "")
	s.numbers["limit"] = 5.999
	s.hear(23, 1, 6)
	s.fired("just over", "raised@23=6")
	delete(s.numbers, "limit")
	s.hear(24, 1, 6)
	s.fired("gone", "resolved@24")
	s.reload(s.store, s.rule)
	s.hear(25, 2, 6)
	for i, h := range s.e.Health(pump.ProfileKey) {
		if h.Lacking != 2 || h.EvalErrors != 0 {
			t.Errorf("rule %d: %d samples without the attribute, %d errors", i, h.Lacking, h.EvalErrors)
		}
	}
}

// TestAGroupThatIsLeftDuringASnapshotIsLeftAfterIt: the snapshot has the key that was there when it began.
func TestAGroupThatIsLeftDuringASnapshotIsLeftAfterIt(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*scene){
		"one":        func(s *scene) { s.e.Rescope(s.at(2), 1, s.known, s.emit) },
		"any device": func(s *scene) { s.e.RescopeAll(s.at(2), s.known, s.emit) },
	} {
		s := newScene(t, "g", `"type":"threshold",`+over5)
		s.members[1] = true
		s.hear(1, 1, 9)
		snapshot := s.e.Cut()
		s.members[1] = false
		leave(s)
		s.fired(name, "raised@1=9 resolved@2")
		pages, more := snapshot.Next()
		for more {
			var others []rules.Page
			others, more = snapshot.Next()
			pages = append(pages, others...)
		}
		then, now := rules.NewEngine(s.c, nil), rules.NewEngine(s.c, nil)
		if err := then.Load(pages); err != nil {
			t.Fatal(err)
		}
		for _, pg := range pages {
			s.store[pg.ID] = pg
		}
		s.reload(s.store, s.rule)
		if err := now.Load(slices.Collect(maps.Values(s.store))); err != nil {
			t.Fatal(err)
		}
		if a, b := then.Stats().Keys, now.Stats().Keys; a != 1 || b != 0 || len(s.store) == 0 {
			t.Errorf("%s: %d keys in the snapshot, %d in the next one", name, a, b)
		}
	}
}

// TestRulePagesStayReadableWhereNoAttributeLacks: an older Weir reads the pages of rules whose devices have what they are compared with.
func TestRulePagesStayReadableWhereNoAttributeLacks(t *testing.T) {
	t.Parallel()
	s := newScene(t, "", `"type":"threshold","when":{"metric":"v","op":"gt","thresholdAttr":"limit"}`)
	version := func() byte {
		s.hear(float64(s.offset)+1, 1, 6)
		i := 0
		pages := s.e.Freeze()
		for !strings.Contains(pages[i].ID, "/r") {
			i++
		}
		return pages[i].Data[0]
	}
	s.numbers["limit"] = 1
	if v := version(); v != 1 {
		t.Errorf("version %d", v)
	}
	delete(s.numbers, "limit")
	if v := version(); v != 2 {
		t.Errorf("version %d", v)
	}
}

// TestExpressionsReadWhatTheRegistryKnows evaluates conditions over a device with attributes, anchors and a position.
func TestExpressionsReadWhatTheRegistryKnows(t *testing.T) {
	t.Parallel()
	many := map[string]float64{}
	for i := range 200 {
		many[fmt.Sprint("k", i)] = 1
	}
	anchors := func(in *rules.Input) {
		in.Anchors = []model.Anchor{{Type: "area", Token: "roof"}, {Type: "area", Token: "hall"}, {Type: "customer", Token: "acme"}}
	}
	place := func(lon float64) func(*rules.Input) {
		return func(in *rules.Input) {
			in.Kind, in.Readings, in.Where = rules.Location, nil, &model.Location{Longitude: lon}
		}
	}
	for _, c := range []struct {
		expr  string
		facts map[string]float64
		input func(*rules.Input)
		want  string // holds, not, failed
	}{
		{`attr.limit < m.v`, map[string]float64{"limit": 5}, anchors, "holds"},
		{`attr["limit"] > m.v`, map[string]float64{"limit": 5}, anchors, "not"},
		{`attr.limit < m.v`, nil, anchors, "failed"},
		{`has(attr.limit) && attr.limit < m.v`, nil, anchors, "not"},
		{`m.v > 0.0 && size(attr) == 2`, map[string]float64{"a": 1, "b": 2}, anchors, "holds"},
		{`m.v > 0.0 && attr == {"a": 1.0}`, map[string]float64{"a": 1}, anchors, "holds"},
		{`m.v > 0.0 && size(attr) == 200`, many, anchors, "holds"},
		{`m.v > 0.0 && anchors.area == "hall"`, nil, anchors, "holds"},
		{`m.v > 0.0 && anchors["area"] == "roof"`, nil, anchors, "not"},
		{`m.v > 0.0 && size(anchors) == 2 && anchors == {"area": "hall", "customer": "acme"}`, nil, anchors, "holds"},
		{`m.v > 0.0 && "asset" in anchors`, nil, anchors, "not"},
		{`m.v > 0.0 && anchors.asset == "x"`, nil, anchors, "failed"},
		{`geo.inFence("yard")`, nil, place(1), "holds"},
		{`geo.inFence("yard")`, nil, place(-1), "not"},
		{`!geo.inFence("yard")`, nil, place(-1), "holds"},
		{`geo.inFence("other")`, nil, place(1), "failed"},
		{`geo.inFence("yard") && has(attr.limit)`, map[string]float64{"limit": 5}, place(1), "holds"},
	} {
		s := newScene(t, "", fmt.Sprintf(`"type":"threshold","when":{"cel":%q}`, c.expr))
		s.inside["yard"] = true
		maps.Copy(s.numbers, c.facts)
		s.hear(1, 1, 6, c.input)
		got := "not"
		if s.took() != "" {
			got = "holds"
		} else if s.e.Health(pump.ProfileKey)[0].EvalErrors > 0 {
			got = "failed"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.expr, got, c.want)
		}
	}
}

// TestWithoutFactsNothingIsKnown: a caller without a registry judges devices without attributes and groups.
func TestWithoutFactsNothingIsKnown(t *testing.T) {
	t.Parallel()
	s := newScene(t, "g", `"type":"threshold",`+over5)
	s.members[1] = true
	s.hear(1, 1, 6, func(in *rules.Input) { in.Facts = nil })
	s.fired("a group", "")
}

// TestPublishIsToldWhatARuleNamesThatIsNotThere, and of a lateness over the window.
func TestPublishIsToldWhatARuleNamesThatIsNotThere(t *testing.T) {
	t.Parallel()
	c, err := rules.NewCompiler(rules.Limits{Actions: []rules.ActionType{rules.ActionSendCommand, rules.ActionPublish}})
	if err != nil {
		t.Fatal(err)
	}
	command := `,"severity":"major","actions":[{"type":"sendCommand","sendCommand":{"command":"stopp"}},{"type":"publish","publish":{"connectorRef":"bus"}}]`
	var long []string
	for i := range 100 {
		long = append(long, fmt.Sprint("metric-number-", i))
	}
	for _, c2 := range []struct {
		definition string
		there      rules.Vocabulary
		want       []string
	}{
		{`{"name":"n","type":"threshold",` + over5 + `}`, rules.Vocabulary{}, nil},
		{`{"name":"n","type":"threshold",` + over5 + `}`, rules.Vocabulary{Metrics: []string{"v"}}, nil},
		{`{"name":"n","type":"threshold",` + over5 + `}`, rules.Vocabulary{Metrics: []string{"w", "volume"}}, []string{`unknownMetric [v w] the profile declares no metric "v" (did you mean w?)`}},
		{`{"name":"n","type":"threshold",` + over5 + `}`, rules.Vocabulary{Metrics: []string{"volume"}}, []string{`unknownMetric [v ] the profile declares no metric "v" (there are volume)`}},
		{`{"name":"n","type":"threshold",` + over5 + command + `}`, rules.Vocabulary{Commands: []string{"start", "stop"}, Connectors: []string{}},
			[]string{`unknownCommand [stopp stop] the profile declares no command "stopp" (did you mean stop?)`, `unknownConnector [bus ] there is no connector "bus"`}},
		{`{"name":"n","type":"threshold","when":{"cel":"geo.inFence('b') || geo.inFence('yard') || geo.inFence('b')"}}`, rules.Vocabulary{Fences: []string{"yard"}},
			[]string{`unknownFence [b ] there is no geofence "b" (there are yard)`}},
		{`{"name":"n","type":"repeating","count":2,"window":"5s","lateness":"5001ms",` + over5 + `}`, rules.Vocabulary{}, []string{`latenessOverWindow [5.001s 5s] the lateness of 5.001s is longer than the 5s that ` +
			`the rule looks at: its edges come up to 5.001s after the readings that cause them`}},
		{`{"name":"n","type":"repeating","count":2,"window":"5s","lateness":"5s",` + over5 + `}`, rules.Vocabulary{}, nil},
	} {
		if strings.Contains(c2.definition, "repeating") {
			c, _ = rules.NewCompiler(rules.Limits{})
		}
		errs, warns := c.ValidateAgainst(c2.there, []rules.Candidate{{Token: "r", Definition: c2.definition}})
		var got []string
		for _, w := range warns {
			got = append(got, fmt.Sprintf("%s %s %s", w.Code, w.Params, w.Message))
		}
		if len(errs) > 0 || !slices.Equal(got, c2.want) {
			t.Errorf("%s: %v %q, want %q", c2.definition, errs, got, c2.want)
		}
	}
	_, warns := c.ValidateAgainst(rules.Vocabulary{Metrics: long}, []rules.Candidate{{Token: "r", Definition: `{"name":"n","type":"threshold",` + over5 + `}`}})
	if len(warns) != 1 || len(warns[0].Message) > 300 {
		t.Errorf("a long list: %+v", warns)
	}
}
