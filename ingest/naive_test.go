package ingest_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/ingest"
	"weir/ingest/replay"
	"weir/internal/test/draws"
	"weir/model"
	"weir/rules/preview"
)

// naive says what a threshold fires over values, in the order in which they were received: a value that changes what a device stands at is an
// edge, unless it is older than the last one.
func naive(all []ingest.Told, from model.Micros, holds, stays func(float64) bool) (edges []preview.Firing) {
	type key struct {
		raised, edged bool
		last          model.Micros
	}
	keys := map[string]key{}
	for _, v := range all {
		k := keys[v.Device]
		raise := holds(v.Value) || k.raised && stays(v.Value)
		if v.Received < from || raise == k.raised || k.edged && v.Occurred < k.last {
			continue
		}
		keys[v.Device] = key{raise, true, v.Occurred}
		f := preview.Firing{Occurred: v.Occurred, Series: v.Device, Signal: model.Resolved}
		if raise {
			f.Signal = model.Raised
		}
		edges = append(edges, f)
	}
	return edges
}

// TestAColdPreviewAgreesWithANaiveReference: a preview that begins in the middle of the history gives the edges that a plain loop over what was
// sent gives, of a rule that was not live.
func TestAColdPreviewAgreesWithANaiveReference(t *testing.T) {
	t.Parallel()
	above := func(limit float64) func(float64) bool { return func(v float64) bool { return v > limit } }
	rules := []struct {
		definition   string
		holds, stays func(float64) bool
	}{
		{`{"name":"n","type":"threshold","when":{"metric":"temp","op":"gt","threshold":50}}`, above(50), above(50)},
		{`{"name":"n","type":"threshold","when":{"metric":"temp","op":"gt","threshold":70,"clear":30}}`, above(70), above(30)},
		{`{"name":"n","type":"threshold","when":{"cel":"m.temp > 20.0 && m.temp < 60.0"}}`,
			func(v float64) bool { return v > 20 && v < 60 }, func(v float64) bool { return v > 20 && v < 60 }},
	}
	for seed := range draws.Seeds(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 41))
			w := ingest.NewPast(t)
			w.Live(r, ingest.Life{})
			all := w.Tell(r, 400)
			c := compilerOf(t)
			for i, rule := range rules {
				const lead = 2 * time.Minute
				window := preview.Window{From: all[100+r.IntN(100)].Occurred, To: all[300].Occurred}
				want := preview.Collector{Window: window}
				for _, f := range naive(all, window.From-model.Micros(lead/time.Microsecond), rule.holds, rule.stays) {
					want.Emit(f.Edge())
				}
				want.Sort()
				got, err := replay.Run(context.Background(), replay.Deps{Series: w.Series(), Applied: w.Applied, Heard: w.Heard, Compiler: c, Grace: w.Grace()},
					replay.Query{TenantID: 1, Tenant: "acme", Profile: 20, Rule: model.RuleView{Token: "draft", Definition: rule.definition}, Lead: lead, Window: window})
				if err != nil {
					t.Fatal(err)
				}
				if a, b := shown(got.Firings), shown(want.Result.Firings); !slices.Equal(a, b) || len(b) < 20 {
					t.Errorf("rule %d: %d edges, want %d: more %q, less %q", i, len(a), len(b), without(a, b), without(b, a))
				}
				if !strings.Contains(got.Why(), "cold start") {
					t.Errorf("rule %d: %q", i, got.Why())
				}
			}
		})
	}
}

func shown(all []preview.Firing) (texts []string) {
	for _, f := range all {
		texts = append(texts, fmt.Sprintf("%s %s %s", f.Occurred, f.Series, f.Signal))
	}
	slices.SortFunc(texts, cmp.Compare[string])
	return texts
}
