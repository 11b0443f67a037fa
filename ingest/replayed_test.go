package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/ingest"
	"weir/ingest/replay"
	"weir/internal/test/draws"
	"weir/model"
	"weir/rules"
	"weir/rules/preview"
)

// witness is a kind of rule that notes each sample that it is shown, and what is known of time there.
type witness struct {
	presence bool
	mu       *sync.Mutex
	seen     map[string]string // by place
	order    *[]string
}

func newWitness(presence bool) witness {
	return witness{presence, &sync.Mutex{}, map[string]string{}, &[]string{}}
}

func (k witness) Type() rules.Type {
	if k.presence {
		return "witnessOfPresence"
	}
	return "witness"
}

func (k witness) Uses(*rules.Definition) (rules.Uses, *rules.Error) {
	return rules.Uses{Keys: rules.ByDevice, Gaps: !k.presence, Presence: k.presence}, nil
}

func (witness) Check(*rules.Definition) *rules.Error { return nil }
func (k witness) Compile(*rules.Definition, *rules.Predicate) (rules.Judge, *rules.Error) {
	return k, nil
}
func (witness) Decode([]byte) (rules.Memory, error) { return nil, errors.New("nothing is kept") }

func (k witness) Judge(_ *rules.State, s *rules.Sample, _ *rules.Verdict) {
	k.mu.Lock()
	defer k.mu.Unlock()
	place := fmt.Sprintf("%d.%d", s.Offset, s.Index)
	var b strings.Builder
	fmt.Fprintf(&b, "kind %d device %d of %d at %s", s.Kind, s.Device.ID, s.Device.Type, s.Occurred)
	if s.Kind == rules.Measurement {
		for _, r := range s.Readings {
			fmt.Fprintf(&b, " %s=%v", r.Metric, r.Value)
		}
	}
	if s.Where != nil {
		fmt.Fprintf(&b, " %v/%v", s.Where.Latitude, s.Where.Longitude)
		inside, known := s.Facts.Inside(1, "yard", s.Where.Longitude, s.Where.Latitude)
		fmt.Fprintf(&b, " inside %v %v", inside, known)
	}
	fmt.Fprintf(&b, " %v%s", s.Presence, s.Reason)
	names := []string{}
	for _, a := range s.Anchors {
		names = append(names, a.Type+":"+a.Token)
	}
	slices.Sort(names)
	limit, has := s.Facts.Number(s.Device.ID, "limit")
	hot, known := s.Facts.InGroup(1, s.Device.ID, "hot", 1)
	fmt.Fprintf(&b, " anchors %v limit %v %v hot %v %v newest %s", names, limit, has, hot, known, s.Clock.Newest)
	fmt.Fprintf(&b, " silent for %v", time.Duration(s.Clock.Now-s.Clock.Arrived).Round(10*time.Microsecond))
	if !k.presence { // no rule but the other one asks for gaps
		fmt.Fprintf(&b, " gap %v", time.Duration(s.Clock.Gap).Round(time.Millisecond))
	}
	if _, again := k.seen[place]; !again {
		*k.order = append(*k.order, place)
	}
	k.seen[place] = b.String()
}

func compilerOf(t testing.TB, kinds ...rules.Kind) *rules.Compiler {
	t.Helper()
	c, err := rules.NewCompiler(rules.Limits{Kinds: kinds, Settings: rules.Settings{MaxEdges: 1e9}, Actions: []rules.ActionType{rules.ActionRaiseAlarm}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// previewed runs a rule over all that has happened.
func previewed(t testing.TB, w *ingest.World, c *rules.Compiler, rule model.RuleView) *preview.Result {
	t.Helper()
	q := replay.Query{TenantID: 1, Tenant: "acme", Profile: 20, Rule: rule, Lead: time.Hour,
		Window: wholeWindow(w)}
	got, err := replay.Run(context.Background(), replay.Deps{Series: w.Series(), Applied: w.Applied, Heard: w.Heard, Compiler: c, Grace: w.Grace()}, q)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestAReplayGivesWhatTheApplierGave: whatever happened, what is stored is judged as it was judged: the same samples in the same order, at the same
// time, over the same registry.
func TestAReplayGivesWhatTheApplierGave(t *testing.T) {
	t.Parallel()
	for seed := range draws.Seeds(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			live := []witness{newWitness(false), newWitness(true)}
			rs := []model.RuleView{{Token: "a", Definition: `{"name":"n","type":"witness"}`}, {Token: "b", Definition: `{"name":"n","type":"witnessOfPresence"}`}}
			w := ingest.NewPast(t, live[0], live[1])
			w.Live(rand.New(rand.NewPCG(seed, 11)), ingest.Life{Steps: 250, Rules: rs, Walls: seed%2 == 1, Registry: seed%4 > 1, Time: seed%8 > 3})
			for i, rule := range rs {
				again := []witness{newWitness(false), newWitness(true)}
				previewed(t, w, compilerOf(t, again[0], again[1]), rule)
				want, got := live[i], again[i]
				if !slices.Equal(*want.order, *got.order) {
					t.Errorf("%s: %d samples, want %d:\n%v\n%v", rule.Token, len(*got.order), len(*want.order), *got.order, *want.order)
				}
				for _, place := range *want.order {
					if want.seen[place] != got.seen[place] {
						t.Fatalf("%s at %s:\n     %s\nwant %s", rule.Token, place, got.seen[place], want.seen[place])
					}
				}
				if i == 0 && len(*want.order) < 80 {
					t.Errorf("%d samples", len(*want.order))
				}
			}
		})
	}
}

// everyKind are rules of every kind, and of everything that they may read. Their times are short, so that much fires.
func everyKind() (rs []model.RuleView) {
	add := func(token, definition string) {
		rs = append(rs, model.RuleView{Token: token, Definition: `{"name":"n","severity":"major",` + definition + `}`})
	}
	const hot = `"when":{"metric":"temp","op":"gt","threshold":50}`
	add("a-threshold", `"type":"threshold",`+hot)
	add("b-attribute", `"type":"threshold","when":{"metric":"temp","op":"gt","thresholdAttr":"limit"}`)
	add("c-cel", `"type":"threshold","when":{"cel":"'temp' in m && 'n' in m && m.temp > m.n && (!('area' in anchors) || anchors.area != 'roof')"}`)
	add("d-fence", `"type":"threshold","when":{"cel":"geo.inFence('yard')"}`)
	add("e-delta", `"type":"deltaRate","metric":"temp","op":"gt","threshold":10`)
	add("f-repeating", `"type":"repeating","count":3,"window":"30s",`+hot)
	add("g-duration", `"type":"duration","hold":"8s",`+hot)
	add("h-absence", `"type":"absence","timeout":"12s"`)
	add("i-tumbling", `"type":"aggregate","agg":"avg","windowMode":"tumbling","metric":"temp","window":"15s","op":"gt","threshold":50`)
	add("j-sliding", `"type":"aggregate","agg":"max","windowMode":"sliding","metric":"n","window":"20s","op":"gt","threshold":80`)
	add("k-session", `"type":"aggregate","agg":"sum","windowMode":"session","metric":"temp","gap":"6s","op":"gt","threshold":100`)
	add("l-count", `"type":"aggregate","agg":"avg","windowMode":"count","metric":"temp","count":3,"op":"gt","threshold":50`)
	add("m-correlation", `"type":"correlation","anchorType":"area","count":2,"window":"30s",`+hot)
	add("n-group", `"type":"correlation","anchorType":"group","count":2,"window":"60s",`+hot)
	add("o-connectivity", `"type":"connectivity"`)
	add("p-prompt", `"type":"duration","hold":"5s","lateness":"0s",`+hot)
	for _, token := range []string{"q-scoped", "r-scoped"} {
		add(token, map[string]string{"q-scoped": `"type":"threshold",` + hot, "r-scoped": `"type":"duration","hold":"3s",` + hot}[token])
		rs[len(rs)-1].Group, rs[len(rs)-1].GroupVersion = "hot", 1
	}
	return rs
}

// TestPreviewEqualsLive: whatever happened, a rule of any kind that is previewed over what was live yields the edges that live had.
func TestPreviewEqualsLive(t *testing.T) {
	t.Parallel()
	fired := map[string]int{}
	var mu sync.Mutex
	t.Run("lives", func(t *testing.T) {
		for seed := range draws.Seeds(24) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				rs := everyKind()
				w := ingest.NewPast(t)
				w.Live(rand.New(rand.NewPCG(seed, 23)), ingest.Life{Steps: 250, Rules: rs, Walls: seed%2 == 1, Registry: seed%4 > 1, Time: seed%8 > 3})
				c := compilerOf(t)
				for _, rule := range rs {
					var want []string
					live := preview.Collector{Window: wholeWindow(w)}
					for _, e := range w.Edges() {
						if e.Rule == rule.Token {
							live.Emit(e)
						}
					}
					live.Sort()
					for _, f := range live.Result.Firings {
						want = append(want, firingText(f))
					}
					var got []string
					for _, f := range previewed(t, w, c, rule).Firings {
						got = append(got, firingText(f))
					}
					if !slices.Equal(got, want) {
						t.Errorf("%s: %d edges, live had %d: more %q, less %q", rule.Token, len(got), len(want), without(got, want), without(want, got))
					}
					mu.Lock()
					fired[rule.Token] += len(want)
					mu.Unlock()
				}
			})
		}
	})
	for _, rule := range everyKind() {
		if draws.All() && fired[rule.Token] < 20 {
			t.Errorf("%s fired %d times", rule.Token, fired[rule.Token])
		}
	}
}

// anyRules are some rules of any kind, with other numbers.
func anyRules(r *rand.Rand) (rs []model.RuleView) {
	all := everyKind()
	for _, i := range r.Perm(len(all))[:6] {
		for _, n := range []string{"50", "3", "12s", "8s", "20s"} {
			if r.IntN(3) == 0 {
				all[i].Definition = strings.ReplaceAll(all[i].Definition, ":"+n, ":"+map[string]string{"50": "35", "3": "2", "12s": "20s", "8s": "4s", "20s": "45s"}[n])
			}
		}
		rs = append(rs, all[i])
	}
	return rs
}

// liveIn reports whether a rule was live throughout a window but where the profile was not published at all; without an end in the hour before it,
// and for a day more, because its end ends what is still open, and stamps follow the clocks of devices.
func liveIn(versions []ingest.Version, rule model.RuleView, window preview.Window) bool {
	at := window.From - 3600e6 // until when it has been live without an end
	for _, v := range versions {
		if v.From > window.To+24*3600e6 || v.To != 0 && v.To <= window.From-3600e6 {
			continue
		}
		if !slices.Contains(v.Rules, rule) {
			return false
		}
		switch {
		case v.From > at:
		case v.To == 0:
			return true
		default:
			at = max(at, v.To)
		}
	}
	return at > window.From
}

// edgesIn are the edges that live had of a rule in a window.
func edgesIn(w *ingest.World, rule model.RuleView, window preview.Window) []string {
	live := preview.Collector{Window: window}
	for _, e := range w.Edges() {
		if e.Rule == rule.Token {
			live.Emit(e)
		}
	}
	live.Sort()
	return firingTexts(live.Result.Firings)
}

func firingTexts(fs []preview.Firing) (texts []string) {
	for _, f := range fs {
		texts = append(texts, firingText(f))
	}
	return texts
}

// on is a preview of a window of a day.
func on(t testing.TB, w *ingest.World, c *rules.Compiler, rule model.RuleView, window preview.Window, damaged func()) *preview.Result {
	t.Helper()
	rule.Token = "preview"
	got, err := replay.Run(context.Background(), replay.Deps{Series: w.Series(), Applied: w.Applied, Heard: w.Heard, Compiler: c, Grace: w.Grace(), Damaged: damaged},
		replay.Query{TenantID: 1, Tenant: "acme", Profile: 20, Rule: rule, Lead: 24 * time.Hour, Window: window})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// days are windows of a day that begin at some time of each day after the first.
func days(w *ingest.World, n int, begin time.Duration) (windows []preview.Window) {
	first := w.Noon().Truncate(24 * time.Hour).Add(begin)
	for i := 1; i <= n; i++ {
		windows = append(windows, preview.Window{From: model.MicrosOf(first.AddDate(0, 0, i)), To: model.MicrosOf(first.AddDate(0, 0, i+1)) - 1})
	}
	return windows
}

// TestPreviewEqualsLiveOnEachOfSevenDays: a rule that is live is previewed from the kept snapshot before its window on, whatever happened, and yields
// exactly the edges that live had.
func TestPreviewEqualsLiveOnEachOfSevenDays(t *testing.T) {
	t.Parallel()
	var compared, fromKept, fired atomic.Int64
	t.Run("lives", func(t *testing.T) {
		for seed := range draws.Seeds(24) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(seed, 31))
				rs := anyRules(r)
				w := ingest.NewPast(t)
				w.Live(r, ingest.Life{Steps: 50, Days: 7, Rules: rs, Walls: seed%2 == 1, Registry: seed%4 > 1, Time: seed%8 > 3, Publish: seed%3 > 0})
				c, versions, kept := compilerOf(t), w.Versions(), w.Kept()
				for day, window := range append(days(w, 7, 0), days(w, 7, time.Duration(r.IntN(20))*time.Hour)...) {
					for _, rule := range rs {
						if !liveIn(versions, rule, window) {
							continue
						}
						got := on(t, w, c, rule, window, nil)
						if strings.Contains(got.Why(), "cold start") {
							t.Errorf("day %d: %s begins at %s, %q", day, rule.Token, got.Reads.From, got.Why())
						}
						if slices.Contains(kept, got.Reads.From) {
							fromKept.Add(1)
						}
						was, is := edgesIn(w, rule, window), firingTexts(got.Firings)
						if !slices.Equal(is, was) {
							t.Errorf("day %d: %s: %d edges, live had %d: more %q, less %q", day, rule.Token, len(is), len(was), without(is, was), without(was, is))
						}
						compared.Add(1)
						fired.Add(int64(len(was)))
					}
				}
			})
		}
	})
	t.Logf("%d windows, %d of them from kept snapshots, %d edges", compared.Load(), fromKept.Load(), fired.Load())
	if compared.Load() < int64(draws.Of(800)) || fromKept.Load() < int64(draws.Of(700)) || fired.Load() < int64(draws.Of(5000)) {
		t.Errorf("%d windows with %d edges were compared", compared.Load(), fired.Load())
	}
}

// TestADamagedSnapshotIsNotUsed: the preview that would begin with it says so and starts cold, whatever the damage is; others are as before.
func TestADamagedSnapshotIsNotUsed(t *testing.T) {
	t.Parallel()
	rs := everyKind()
	rule := rs[6] // a hold, whose samples lie in pages of keys
	w := ingest.NewPast(t)
	w.Live(rand.New(rand.NewPCG(3, 37)), ingest.Life{Steps: 60, Days: 3, Rules: rs})
	c, windows, kept := compilerOf(t), days(w, 3, 0), w.Kept()
	if len(kept) != 3 {
		t.Fatalf("%d snapshots", len(kept))
	}
	n := 0
	run := func(day int) *preview.Result { return on(t, w, c, rule, windows[day], func() { n++ }) }
	was := []*preview.Result{run(0), run(1), run(2)}
	const upTo = ` AND gen <= (SELECT gen FROM rule_snapshots ORDER BY gen LIMIT 1 OFFSET 1)`
	for name, damage := range map[string]string{
		"a page is missing": `DELETE FROM rule_pages WHERE (page, gen) IN (SELECT page, max(gen) FROM rule_pages WHERE page LIKE '1/20/%'` + upTo + ` GROUP BY page LIMIT 1)`,
		"bytes of a page":   `UPDATE rule_pages SET body = substr(body, 1, length(body) - 5) || x'01' || substr(body, length(body) - 3) WHERE page LIKE '1/20/d%'` + upTo,
		"the clocks":        `UPDATE rule_pages SET body = x'0163' WHERE page = 'clocks'` + upTo,
	} {
		w.Exec(`CREATE TABLE whole AS SELECT * FROM rule_pages`)
		w.Exec(damage)
		n = 0
		got := run(1)
		if want := "snapshot of " + kept[1].Time().UTC().Format(time.DateOnly) + " is damaged"; n != 1 || !strings.Contains(got.Why(), want) || !strings.Contains(got.Why(), "cold start: ") {
			t.Errorf("%s: %q, %d times; want %q and a cold start", name, got.Why(), n, want)
		}
		w.Exec(`DELETE FROM rule_pages`)
		w.Exec(`INSERT INTO rule_pages SELECT * FROM whole`)
		w.Exec(`DROP TABLE whole`)
		for day := range windows {
			if got := run(day); got.Why() != was[day].Why() || !slices.Equal(got.Firings, was[day].Firings) || strings.Contains(got.Why(), "cold") {
				t.Errorf("%s: day %d is another one afterwards: %q, %q before", name, day, got.Why(), was[day].Why())
			}
		}
	}
	other := rule
	other.Definition = strings.Replace(other.Definition, "8s", "9s", 1)
	if got := on(t, w, c, other, windows[1], nil); !strings.Contains(got.Why(), "cold start: ") || strings.Contains(got.Why(), "damaged") {
		t.Errorf("a rule that is not live: %q", got.Why())
	}
}

func firingText(f preview.Firing) string {
	return fmt.Sprintf("%s %s %s %v %v", f.Occurred, f.Series, f.Signal, f.Value, f.HasValue)
}

func wholeWindow(w *ingest.World) preview.Window {
	return preview.Window{From: model.MicrosOf(w.Noon().Add(-6 * time.Hour)), To: model.MicrosOf(w.Noon().Add(12 * time.Hour))}
}

// without are those of the first list that the second lacks.
func without(a, b []string) (more []string) {
	for _, s := range a {
		if !slices.Contains(b, s) {
			more = append(more, s)
		}
	}
	return more
}

// TestAPreviewEndsAtItsBounds: each says how far it came, and what it has found until then is a part of the whole.
func TestAPreviewEndsAtItsBounds(t *testing.T) {
	t.Parallel()
	rule := everyKind()[0]
	w := ingest.NewPast(t)
	w.Live(rand.New(rand.NewPCG(1, 5)), ingest.Life{Steps: 200, Rules: []model.RuleView{rule}})
	c := compilerOf(t)
	all := previewed(t, w, c, rule)
	if len(all.Firings) < 10 || !strings.HasPrefix(all.Why(), "late readings set aside: ") || all.Reads == nil || all.Reads.Devices != 4 || all.Reads.Readings == 0 {
		t.Fatalf("%d edges, %q, %+v", len(all.Firings), all.Why(), all.Reads)
	}
	for want, change := range map[string]func(*replay.Query){
		"read cap: 20 events in scope were judged, up to what was received at 2026-03-01T12:": func(q *replay.Query) { q.Bounds.Events = 20 },
		"scan cap: ": func(q *replay.Query) { q.Bounds.Scanned = 1 },
		"firings cap: the draft fires more than 5 times, up to what": func(q *replay.Query) { q.Bounds.Firings = 5 },
		"time cap: ": func(q *replay.Query) { q.Bounds.Time = 1 },
		"":           func(q *replay.Query) { q.Explain = true },
	} {
		q := replay.Query{TenantID: 1, Tenant: "acme", Profile: 20, Rule: rule, Lead: time.Hour, Window: wholeWindow(w)}
		change(&q)
		got, err := replay.Run(t.Context(), replay.Deps{Series: w.Series(), Applied: w.Applied, Heard: w.Heard, Compiler: c, Grace: w.Grace()}, q)
		if err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		if !strings.HasPrefix(got.Why(), want) || want == "" && (got.Why() != "" || got.Events != 0 || got.Reads == nil || *got.Reads != *all.Reads) {
			t.Errorf("%q, want %q; %+v", got.Why(), want, got.Stats)
		}
		if len(got.Firings) >= len(all.Firings) {
			t.Errorf("%s: %d edges of %d", want, len(got.Firings), len(all.Firings))
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := replay.Run(gone, replay.Deps{Series: w.Series(), Applied: w.Applied, Heard: w.Heard, Compiler: c}, replay.Query{TenantID: 1, Tenant: "acme", Profile: 20, Rule: rule, Window: wholeWindow(w)}); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that has gone: %v", err)
	}
}
