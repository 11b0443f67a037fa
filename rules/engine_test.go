package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/model"
)

// bench is an engine with the log's bookkeeping around it.
type bench struct {
	t      testing.TB
	e      *Engine
	offset model.Offset
	edges  []model.Edge
}

var plant = ProfileRef{ProfileKey: ProfileKey{7, 70}, TenantToken: "acme", Token: "pump", Version: 1}

func newBench(t testing.TB, l Limits) *bench {
	t.Helper()
	return &bench{t: t, e: NewEngine(newTestCompiler(t, l), nil)}
}

// place is the next place in the log; listening time is that many seconds.
func (b *bench) place(listening int64) Position {
	b.offset++
	return Position{Epoch: 3, Offset: b.offset, Received: model.Nanos(b.offset) * 1000, Listening: Listening(listening) * 1e9}
}

func (b *bench) emit(e model.Edge) { b.edges = append(b.edges, e) }

func (b *bench) install(version int, rules ...model.RuleView) {
	ref := plant
	ref.Version = version
	b.e.Install(b.place(0), ref, rules, b.emit)
}

func (b *bench) apply(device int64, at model.Micros, rs []model.Reading) {
	b.e.Apply(&Input{Position: b.place(0), Profile: plant.ProfileKey, Device: testDevice(device), Occurred: at, Readings: rs}, b.emit)
}

func testDevice(id int64) Device {
	return Device{ID: id, Type: id % 2, Token: fmt.Sprintf("dev-%d", id)}
}

// took returns the edges since the last call, one word each.
func (b *bench) took() string {
	var words []string
	for _, e := range b.edges {
		w := fmt.Sprintf("%s/%s:%s@%d", e.Series, e.RuntimeID(), e.Signal, e.Occurred)
		if e.HasValue {
			w += fmt.Sprintf("=%g", e.Value)
		}
		words = append(words, w)
	}
	b.edges = nil
	return strings.Join(words, " ")
}

func (b *bench) want(what, edges string) {
	b.t.Helper()
	if got := b.took(); got != edges {
		b.t.Errorf("%s:\n got %q\nwant %q", what, got, edges)
	}
}

func view(token, definition string) model.RuleView {
	return model.RuleView{Token: token, Definition: definition}
}

func hot(limit float64) string {
	return threshold(fmt.Sprintf(`{"metric":"temp","op":"gt","threshold":%g}`, limit))
}

func TestEdgeSaysWhereItComesFrom(t *testing.T) {
	t.Parallel()
	b := newBench(t, Limits{})
	b.install(4, view("hot", `{"name":"n","type":"threshold","severity":"major","when":{"metric":"temp","op":"gt","threshold":80}}`))
	place := b.place(5)
	place.Index = 2
	b.e.Apply(&Input{Position: place, Profile: plant.ProfileKey, Device: Device{ID: 9, Token: "dev-9"}, Occurred: 1000, Readings: readings("temp", 81.0)}, b.emit)
	want := model.Edge{
		ID:     model.EdgeID{Epoch: 3, Offset: 2, Index: 2, Rule: "pump/hot", Key: "9", N: 0},
		Tenant: "acme", TenantID: 7, Profile: "pump", Version: 4, Rule: "hot", Kind: "threshold", Signal: model.Raised,
		Series: "dev-9", Device: 9, Occurred: 1000, Received: 2000, Severity: "major", Value: 81, HasValue: true,
	}
	if len(b.edges) != 1 || b.edges[0] != want {
		t.Errorf("got %+v\nwant %+v", b.edges, want)
	}
}

func TestEdgesOfASampleComeByRuleToken(t *testing.T) {
	t.Parallel()
	b := newBench(t, Limits{})
	b.install(1, view("c", hot(1)), view("a", celThreshold(`device != ""`)), view("b", celThreshold(`"temp" in m && "hum" in m`)), view("d", hot(99)))
	b.apply(1, 10, readings("hum", 5.0, "temp", 5.0))
	b.want("one sample", "dev-1/acme/pump@1/a:raised@10 dev-1/acme/pump@1/b:raised@10 dev-1/acme/pump@1/c:raised@10=5")
}

func TestDevicesAreKeysOfTheirOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t, Limits{})
	b.install(1, view("hot", hot(80)))
	b.apply(1, 10, readings("temp", 81.0))
	b.apply(2, 5, readings("temp", 82.0)) // its own clock
	b.apply(1, 11, readings("temp", 80.0))
	b.want("two devices", "dev-1/acme/pump@1/hot:raised@10=81 dev-2/acme/pump@1/hot:raised@5=82 dev-1/acme/pump@1/hot:resolved@11")
}

func TestAnotherVersionKeepsTheStateOfEqualBodies(t *testing.T) {
	t.Parallel()
	b := newBench(t, Limits{})
	b.install(1, view("gone", hot(10)), view("hot", hot(80)), view("other", hot(20)))
	b.apply(1, 10, readings("temp", 81.0))
	b.apply(2, 12, readings("temp", 15.0))
	b.took()
	b.install(2, view("another", hot(1)), view("hot", `{"name":"renamed","type":"threshold","severity":"minor","when":{"metric":"temp","threshold":80.0,"op":"gt"}}`), view("other", hot(21)))
	b.want("publish", "dev-1/acme/pump@1/gone:resolved@10 dev-2/acme/pump@1/gone:resolved@12 dev-1/acme/pump@1/other:resolved@10")
	b.apply(1, 13, readings("temp", 82.0))
	b.want("still latched", "dev-1/acme/pump@2/another:raised@13=82 dev-1/acme/pump@2/other:raised@13=82")
	b.apply(1, 14, readings("temp", 2.0))
	b.want("and resolves", "dev-1/acme/pump@2/hot:resolved@14 dev-1/acme/pump@2/other:resolved@14")
	b.e.Remove(b.place(0), plant.ProfileKey, b.emit)
	b.want("removed", "dev-1/acme/pump@2/another:resolved@14")
	b.install(3, view("hot", hot(80)))
	b.apply(1, 1, readings("temp", 90.0))
	b.want("everything was dropped", "dev-1/acme/pump@3/hot:raised@1=90")
}

func TestStateGoesWithAnotherBody(t *testing.T) {
	t.Parallel()
	b := newBench(t, Limits{})
	b.install(1, view("hot", hot(80)))
	b.apply(1, 10, readings("temp", 81.0))
	b.install(2, view("hot", hot(79)))
	b.install(3, view("hot", hot(80)))
	b.apply(1, 5, readings("temp", 81.0)) // older than the last edge of the dropped state
	b.want("edges", "dev-1/acme/pump@1/hot:raised@10=81 dev-1/acme/pump@1/hot:resolved@10 dev-1/acme/pump@3/hot:raised@5=81")
}

func TestWhatWeirCausesIsStampedByTheDevicesOwnTime(t *testing.T) {
	t.Parallel()
	const second = 1_000_000
	b := newBench(t, Limits{})
	b.install(1, view("hot", hot(80)))
	apply := func(at model.Micros, listening int64, v float64) {
		b.e.Apply(&Input{Position: b.place(listening), Profile: plant.ProfileKey, Device: testDevice(1), Occurred: at, Readings: readings("temp", v)}, b.emit)
	}
	apply(100*second, 1000, 81)
	apply(90*second, 1001, 81) // late: newest stays, the clock starts again
	b.took()
	b.e.RemoveDevice(b.place(1005), 1, b.emit)
	b.want("deleted", "dev-1/acme/pump@1/hot:resolved@104000000")
	apply(100*second, 2000, 81)
	apply(120*second, 2000, 81)
	b.took()
	ref := plant
	b.e.Install(b.place(1990), ref, nil, b.emit) // listening time of another link may be lower
	b.want("unpublished", "dev-1/acme/pump@1/hot:resolved@120000000")
	if s := b.e.Stats(); s.Devices != 0 || s.Keys != 0 || s.Rules != 0 {
		t.Errorf("a profile without rules keeps %+v", s)
	}
}

func TestEdgesOfAKeyAtOnePlaceAreNumbered(t *testing.T) {
	t.Parallel()
	b := newBench(t, Limits{})
	b.install(1, view("hot", hot(80)))
	place := b.place(0)
	b.e.Apply(&Input{Position: place, Profile: plant.ProfileKey, Device: testDevice(1), Readings: readings("temp", 81.0)}, b.emit)
	b.e.RemoveDevice(place, 1, b.emit)
	if len(b.edges) != 2 || b.edges[0].ID.N != 0 || b.edges[1].ID.N != 1 {
		t.Errorf("edges %+v", b.edges)
	}
}

func TestRuleOfSeveralMetricsJudgesASampleOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, Limits{})
	b.install(1, view("fails", celThreshold(`"a" in m && "b" in m && [true][int(m.a)]`)))
	b.apply(1, 10, readings("a", 5.0, "b", 5.0))
	if h := b.e.Health(plant.ProfileKey); h[0].EvalErrors != 1 {
		t.Errorf("one sample failed %d times", h[0].EvalErrors)
	}
}

func TestDeviceOfAnotherProfileIsForgottenFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t, Limits{})
	other := ProfileRef{ProfileKey: ProfileKey{7, 71}, TenantToken: "acme", Token: "valve", Version: 1}
	b.install(1, view("hot", hot(80)))
	b.e.Install(b.place(0), other, []model.RuleView{view("hot", hot(80))}, b.emit)
	b.apply(1, 10, readings("temp", 81.0))
	b.e.Apply(&Input{Position: b.place(0), Profile: other.ProfileKey, Device: testDevice(1), Occurred: 9, Readings: readings("temp", 81.0)}, b.emit)
	b.want("edges", "dev-1/acme/pump@1/hot:raised@10=81 dev-1/acme/pump@1/hot:resolved@10 dev-1/acme/valve@1/hot:raised@9=81")
}

func TestDetachEndsTheDevicesOfOneType(t *testing.T) {
	t.Parallel()
	b := newBench(t, Limits{})
	b.install(1, view("hot", hot(80)), view("warm", hot(70)))
	for id := int64(5); id > 0; id-- {
		b.apply(id, 10, readings("temp", 81.0))
	}
	b.took()
	b.e.Detach(b.place(0), plant.ProfileKey, 1, b.emit)
	b.want("odd ones", "dev-1/acme/pump@1/hot:resolved@10 dev-1/acme/pump@1/warm:resolved@10 "+
		"dev-3/acme/pump@1/hot:resolved@10 dev-3/acme/pump@1/warm:resolved@10 "+
		"dev-5/acme/pump@1/hot:resolved@10 dev-5/acme/pump@1/warm:resolved@10")
	if s := b.e.Stats(); s.Devices != 2 || s.Keys != 4 {
		t.Errorf("kept %+v", s)
	}
}

func TestRenamedDeviceResolvesUnderItsNewToken(t *testing.T) {
	t.Parallel()
	b := newBench(t, Limits{})
	b.install(1, view("hot", hot(80)))
	b.apply(1, 10, readings("temp", 81.0))
	b.took()
	b.e.Rename(1, "new")
	b.e.Rename(2, "unknown")
	b.install(2)
	b.want("unpublished", "new/acme/pump@1/hot:resolved@10")
}

func TestRuleThatNoLongerCompilesIsKeptAndNotRun(t *testing.T) {
	t.Parallel()
	long := `{"name":"Long","type":"threshold","lateness":"2h","when":{"metric":"temp","op":"gt","threshold":80}}`
	b := newBench(t, Limits{})
	b.install(1, view("hot", long))
	b.apply(1, 10, readings("temp", 81.0))
	b.took()
	pages := b.e.Freeze()

	b.e = NewEngine(newTestCompiler(t, Limits{Settings: Settings{MaxDuration: 3600e9}}), nil)
	if err := b.e.Load(pages); err != nil {
		t.Fatal(err)
	}
	b.install(1, view("hot", long))
	b.apply(1, 11, readings("temp", 1.0))
	b.want("does not run", "")
	h := b.e.Health(plant.ProfileKey)[0]
	if h.Status != CompileError || h.Message != "lateness: 2h is longer than the maximum rule duration of 1h" || h.Name != "Long" || len(h.MissingMetrics) > 0 {
		t.Errorf("health %+v", h)
	}
	pages = append(pages, b.e.Freeze()...)

	b.e = NewEngine(newTestCompiler(t, Limits{}), nil)
	if err := b.e.Load(lastPages(pages)); err != nil {
		t.Fatal(err)
	}
	b.install(1, view("hot", long))
	b.apply(1, 12, readings("temp", 1.0))
	b.want("runs again, with its state", "dev-1/acme/pump@1/hot:resolved@12")
	b.apply(1, 13, readings("temp", 81.0))
	b.took()
	b.install(2, view("hot", "{"))
	b.apply(1, 14, readings("temp", 1.0))
	b.want("no longer decodes", "")
	if h := b.e.Health(plant.ProfileKey)[0]; h.Status != CompileError || h.Name != "hot" {
		t.Errorf("health %+v", h)
	}
	if ailing := b.e.Unhealthy(); len(ailing) != 1 || ailing[0].RuntimeID != "acme/pump@2/hot" {
		t.Errorf("ailing %+v", ailing)
	}
}

// lastPages is what a store holds after it was given the pages in turn.
func lastPages(pages []Page) []Page {
	var kept []Page
	at := map[string]int{}
	for _, p := range pages {
		if i, ok := at[p.ID]; ok {
			kept[i] = p
			continue
		}
		at[p.ID] = len(kept)
		kept = append(kept, p)
	}
	return slices.DeleteFunc(kept, func(p Page) bool { return p.Data == nil })
}

func TestHealthCountsWhatARuleMissed(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	b := newBench(t, Limits{})
	b.e = NewEngine(b.e.compiler, reg)
	b.install(3, view("failing", `{"name":"Fails","type":"threshold","when":{"cel":"m[\"a\"] > 1.0 || m[\"b\"] > 1.0"}}`), view("hot", hot(80)))
	b.apply(1, 10, readings("temp", 81.0))
	b.apply(1, 9, readings("temp", 1.0))
	b.apply(1, 11, readings("b", 0.0))
	got := b.e.Health(plant.ProfileKey)
	want := []Health{
		{RuntimeID: "acme/pump@3/failing", StableID: "pump/failing", Token: "failing", Name: "Fails", Status: Active,
			EvalErrors: 3, LastInputAt: 4000, MissingMetrics: []string{"a"}},
		{RuntimeID: "acme/pump@3/hot", StableID: "pump/hot", Token: "hot", Name: "n", Status: Active,
			LateSamples: 1, LastInputAt: 3000},
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if ailing := b.e.Unhealthy(); len(ailing) != 1 || ailing[0].Token != "failing" {
		t.Errorf("ailing %+v", ailing)
	}
	if rows := b.e.Health(ProfileKey{7, 99}); rows != nil {
		t.Errorf("an unknown profile has %v", rows)
	}
	const metrics = `
# HELP weir_eventprocessing_detect_clocks_set_back_total Keys that began again because the clock of their device was set back.
# TYPE weir_eventprocessing_detect_clocks_set_back_total counter
weir_eventprocessing_detect_clocks_set_back_total 0
# HELP weir_eventprocessing_detect_edges_over_ceiling_total Detections not kept because the tenant had more than detection.max_edges_per_second.
# TYPE weir_eventprocessing_detect_edges_over_ceiling_total counter
weir_eventprocessing_detect_edges_over_ceiling_total 0
# HELP weir_eventprocessing_detect_edges_owed Detections over a ceiling that are emitted once their tenant has room: each is the last of its key.
# TYPE weir_eventprocessing_detect_edges_owed gauge
weir_eventprocessing_detect_edges_owed 0
# HELP weir_eventprocessing_detect_eval_errors_total Samples for which the evaluation of a rule failed.
# TYPE weir_eventprocessing_detect_eval_errors_total counter
weir_eventprocessing_detect_eval_errors_total 3
# HELP weir_eventprocessing_detect_events_applied_total Samples of devices whose profile has rules.
# TYPE weir_eventprocessing_detect_events_applied_total counter
weir_eventprocessing_detect_events_applied_total 3
# HELP weir_eventprocessing_detect_keys_refused_total Samples refused because the tenant or the instance had its maximum of keys.
# TYPE weir_eventprocessing_detect_keys_refused_total counter
weir_eventprocessing_detect_keys_refused_total 0
# HELP weir_eventprocessing_detect_late_samples_total Samples and edges discarded because they were too old.
# TYPE weir_eventprocessing_detect_late_samples_total counter
weir_eventprocessing_detect_late_samples_total 1
# HELP weir_eventprocessing_detect_live_keys Keys with state.
# TYPE weir_eventprocessing_detect_live_keys gauge
weir_eventprocessing_detect_live_keys 1
# HELP weir_eventprocessing_detect_rules_active Active rules.
# TYPE weir_eventprocessing_detect_rules_active gauge
weir_eventprocessing_detect_rules_active 2
# HELP weir_eventprocessing_detect_tenants_held Tenants whose listening time stands still because messages of them are turned away.
# TYPE weir_eventprocessing_detect_tenants_held gauge
weir_eventprocessing_detect_tenants_held 0
# HELP weir_eventprocessing_detect_windows_rewritten_total Times that a checkpoint wrote all windows of a 64th of a profile's devices again, because what was stored of them held too many samples that no window has.
# TYPE weir_eventprocessing_detect_windows_rewritten_total counter
weir_eventprocessing_detect_windows_rewritten_total 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(metrics)); err != nil {
		t.Error(err)
	}
}

func TestKeysAndDevicesOfAllTenantsTogetherAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t, Limits{MaxKeysInAll: 4})
	b.install(1, view("hot", hot(80)))
	b.apply(1, 10, readings("temp", 90.0)) // a device and a key
	b.apply(2, 10, readings("temp", 90.0))
	b.apply(3, 10, readings("temp", 90.0))
	b.want("two devices with a key each", "dev-1/acme/pump@1/hot:raised@10=90 dev-2/acme/pump@1/hot:raised@10=90")
	if s := b.e.Stats(); s.Devices != 2 || s.Keys != 2 {
		t.Errorf("%+v", s)
	}
	b.e.RemoveDevice(Position{}, 1, func(model.Edge) {})
	b.apply(3, 11, readings("temp", 90.0))
	b.want("the place of one that is gone is free", "dev-3/acme/pump@1/hot:raised@11=90")
}

func TestKeysBeyondTheBudgetAreRefusedAndCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t, Limits{Settings: Settings{MaxKeys: 3}})
	b.install(1, view("hot", hot(80)), view("warm", hot(70)))
	b.apply(1, 10, readings("temp", 90.0))
	b.apply(2, 10, readings("temp", 90.0))
	b.want("three keys", "dev-1/acme/pump@1/hot:raised@10=90 dev-1/acme/pump@1/warm:raised@10=90 dev-2/acme/pump@1/hot:raised@10=90")
	b.apply(2, 11, readings("temp", 75.0))
	b.want("a key that is there goes on", "dev-2/acme/pump@1/hot:resolved@11")
	if h := b.e.Health(plant.ProfileKey); h[0].RefusedKeys != 0 || h[1].RefusedKeys != 2 {
		t.Errorf("counted %+v", h)
	}
	b.apply(3, 10, readings("temp", 1.0))
	b.apply(4, 10, readings("temp", 1.0))
	if s := b.e.Stats(); s.Devices != 3 || s.Keys != 3 {
		t.Errorf("holds %+v", s)
	}
	b.e.RemoveDevice(b.place(0), 1, b.emit)
	b.took()
	b.apply(4, 10, readings("temp", 90.0))
	b.want("room again", "dev-4/acme/pump@1/hot:raised@10=90 dev-4/acme/pump@1/warm:raised@10=90")
}

func TestRulesBeyondTheTenantsLimitDoNotRun(t *testing.T) {
	t.Parallel()
	b := newBench(t, Limits{Settings: Settings{MaxRules: 2}})
	other := ProfileRef{ProfileKey: ProfileKey{7, 71}, TenantToken: "acme", Token: "valve", Version: 1}
	b.e.Install(b.place(0), other, []model.RuleView{view("x", hot(1))}, b.emit)
	b.install(1, view("b", hot(1)), view("a", hot(1)))
	h := b.e.Health(plant.ProfileKey)
	if h[0].Status != Active || h[1].Status != CompileError || h[1].Message != "the tenant has more rules than its limit allows" {
		t.Errorf("health %+v", h)
	}
	foreign := ProfileRef{ProfileKey: ProfileKey{8, 80}, TenantToken: "other", Token: "p", Version: 1}
	b.e.Install(b.place(0), foreign, []model.RuleView{view("x", hot(1))}, b.emit)
	if h := b.e.Health(foreign.ProfileKey); h[0].Status != Active {
		t.Errorf("another tenant's rules count: %+v", h)
	}
	b.e.Remove(b.place(0), other.ProfileKey, b.emit)
	b.install(2, view("b", hot(1)), view("a", hot(1)))
	if h := b.e.Health(plant.ProfileKey); h[1].Status != Active {
		t.Errorf("no room again: %+v", h)
	}
}

func TestNothingIsKeptOfDevicesWithoutRules(t *testing.T) {
	t.Parallel()
	b := newBench(t, Limits{})
	b.apply(1, 1, readings("temp", 90.0)) // no such profile
	b.install(1)
	b.apply(1, 1, readings("temp", 90.0)) // no rules
	b.install(2, view("hot", hot(80)))
	b.e.Apply(&Input{Position: b.place(0), Profile: plant.ProfileKey, Device: testDevice(1), Kind: Transition}, b.emit)
	if s := b.e.Stats(); s.Devices != 0 || len(b.edges) > 0 {
		t.Errorf("kept %+v, emitted %v", s, b.edges)
	}
	if b.e.Detach(b.place(0), ProfileKey{1, 1}, 1, b.emit); len(b.e.profiles) != 1 {
		t.Error("a profile came from nowhere")
	}
}
