package rules_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weir/rules"
)

// A reading of a made-up stream: metric v, in seconds. gate is metric g; match says whether it satisfies the rule's condition.
type reading struct {
	at, heard float64
	device    int
	v, g      float64
	anchor    string
}

// naiveRule is a rule, and what it says of the whole stream of one device, sorted by event time. There is no state: each
// verdict looks at everything before it.
type naiveRule struct {
	definition string
	edges      func(rs []reading) []string
}

// latch is the naive latch.
type latch struct {
	raised bool
	edges  []string
}

func (l *latch) to(raise bool, at, v float64, hasValue bool) {
	if raise == l.raised {
		return
	}
	l.raised = raise
	switch {
	case raise && hasValue:
		l.edges = append(l.edges, fmt.Sprintf("raised@%g=%g", at, v))
	case raise:
		l.edges = append(l.edges, fmt.Sprintf("raised@%g", at))
	default:
		l.edges = append(l.edges, fmt.Sprintf("resolved@%g", at))
	}
}

// limit draws op, threshold and sometimes clear.
type limit struct {
	text         string
	holds, stays func(v float64) bool
}

func drawLimit(t *rapid.T) limit {
	threshold := float64(rapid.IntRange(-4, 12).Draw(t, "threshold"))
	release, sign := threshold, float64(1)
	op := rapid.SampledFrom([]string{"gt", "ge", "lt", "le"}).Draw(t, "op")
	if op[0] == 'l' {
		sign = -1
	}
	text := fmt.Sprintf(`"op":%q,"threshold":%g`, op, threshold)
	if rapid.Bool().Draw(t, "clears") {
		release -= sign * float64(rapid.IntRange(1, 4).Draw(t, "clear"))
		text += fmt.Sprintf(`,"clear":%g`, release)
	}
	than := func(limit float64) func(float64) bool {
		return func(v float64) bool { return v*sign > limit*sign || op[1] == 'e' && v == limit }
	}
	return limit{text, than(threshold), than(release)}
}

func (l *limit) latch(k *latch, at, v float64) {
	k.to(l.holds(v) || k.raised && l.stays(v), at, v, true)
}

const gate = `"when":{"metric":"g","op":"gt","threshold":0}`

func drawRule(t *rapid.T) naiveRule {
	window := float64(rapid.IntRange(1, 30).Draw(t, "window"))
	count := rapid.IntRange(1, 4).Draw(t, "count")
	agg := rapid.SampledFrom([]string{"count", "sum", "avg", "min", "max"}).Draw(t, "agg")
	lim := drawLimit(t)
	head := func(mode string) string {
		s := fmt.Sprintf(`"type":"aggregate","windowMode":%q,"agg":%q,%s,%s`, mode, agg, lim.text, gate)
		if agg != "count" {
			s += `,"metric":"v"`
		}
		return s
	}
	switch rapid.SampledFrom([]string{"deltaRate", "rate", "repeating", "duration", "tumbling", "sliding", "session"}).Draw(t, "kind") {
	case "deltaRate":
		return naiveRule{fmt.Sprintf(`"type":"deltaRate","metric":"v",%s,%s`, lim.text, gate), naiveDelta(lim, false)}
	case "rate":
		return naiveRule{fmt.Sprintf(`"type":"deltaRate","rate":true,"metric":"v",%s,%s`, lim.text, gate), naiveDelta(lim, true)}
	case "repeating":
		return naiveRule{fmt.Sprintf(`"type":"repeating","count":%d,"window":"%gs",%s`, count, window, gate), naiveRepeating(count, window)}
	case "duration":
		return naiveRule{fmt.Sprintf(`"type":"duration","hold":"%gs","when":{"metric":"v",%s}`, window, lim.text), naiveDuration(lim, window)}
	case "tumbling":
		return naiveRule{head("tumbling") + fmt.Sprintf(`,"window":"%gs"`, window), naiveTumbling(lim, agg, window)}
	case "sliding":
		return naiveRule{head("sliding") + fmt.Sprintf(`,"window":"%gs"`, window), naiveSliding(lim, agg, window)}
	default:
		return naiveRule{head("session") + fmt.Sprintf(`,"gap":"%gs"`, window), naiveSession(lim, agg, window)}
	}
}

// matches are the values of the samples in (after, through] that satisfy the gate.
func matches(rs []reading, after, through float64) (vs []float64) {
	for _, r := range rs {
		if r.g > 0 && r.at > after && r.at <= through {
			vs = append(vs, r.v)
		}
	}
	return vs
}

func aggregateOf(agg string, vs []float64) float64 {
	sum := 0.0
	for _, v := range vs {
		sum += v
	}
	switch agg {
	case "count":
		return float64(len(vs))
	case "sum":
		return sum
	case "avg":
		return sum / float64(len(vs))
	case "min":
		return slices.Min(vs)
	}
	return slices.Max(vs)
}

func naiveDelta(lim limit, rate bool) func([]reading) []string {
	return func(rs []reading) []string {
		var k latch
		for i, r := range rs {
			if r.g <= 0 {
				k.to(false, r.at, 0, false)
				continue
			}
			for j := i - 1; j >= 0; j-- {
				if before := rs[j]; before.g > 0 {
					change := r.v - before.v
					if rate {
						change /= r.at - before.at
					}
					lim.latch(&k, r.at, change)
					break
				}
			}
		}
		return k.edges
	}
}

func naiveRepeating(count int, window float64) func([]reading) []string {
	return func(rs []reading) []string {
		var k latch
		for _, r := range rs {
			k.to(len(matches(rs, r.at-window, r.at)) >= count, r.at, r.g, true)
		}
		return k.edges
	}
}

func naiveDuration(lim limit, hold float64) func([]reading) []string {
	return func(rs []reading) []string {
		var k latch
		start := math.Inf(1)
		for _, r := range append(slices.Clone(rs), reading{at: 1e9, v: math.NaN()}) {
			if start+hold <= r.at {
				k.to(true, start+hold, 0, false)
				start = math.Inf(1)
			}
			switch {
			case r.at == 1e9:
			case k.raised && !lim.stays(r.v):
				k.to(false, r.at, 0, false)
			case k.raised:
			case !lim.holds(r.v):
				start = math.Inf(1)
			default:
				start = min(start, r.at)
			}
		}
		return k.edges
	}
}

func naiveTumbling(lim limit, agg string, length float64) func([]reading) []string {
	return func(rs []reading) []string {
		var k latch
		for pane := 0.0; pane < 2000; pane += length {
			var vs []float64
			for _, r := range rs {
				if r.g > 0 && r.at >= pane && r.at < pane+length {
					vs = append(vs, r.v)
				}
			}
			if len(vs) == 0 {
				k.to(false, pane+length, 0, false)
				continue
			}
			lim.latch(&k, pane+length, aggregateOf(agg, vs))
		}
		return k.edges
	}
}

func naiveSliding(lim limit, agg string, length float64) func([]reading) []string {
	return func(rs []reading) []string {
		var k latch
		for _, r := range rs {
			vs := matches(rs, r.at-length, r.at)
			switch {
			case len(vs) == 0:
				k.to(false, r.at, 0, false)
			case k.raised || r.g > 0:
				lim.latch(&k, r.at, aggregateOf(agg, vs))
			}
		}
		return k.edges
	}
}

func naiveSession(lim limit, agg string, gap float64) func([]reading) []string {
	return func(rs []reading) []string {
		var k latch
		var vs []float64
		last := 0.0
		for _, r := range append(slices.Clone(rs), reading{at: 1e9, g: 1}) {
			if r.g <= 0 {
				continue
			}
			if len(vs) > 0 && r.at >= last+gap {
				lim.latch(&k, last+gap, aggregateOf(agg, vs))
				vs = nil
			}
			vs, last = append(vs, r.v), r.at
		}
		return k.edges
	}
}

// drawStream draws readings of two devices that arrive less than the lateness after their event time, in any order: each
// shuffle within the lateness is one of them.
func drawStream(t *rapid.T, lateness float64) []reading {
	var rs []reading
	for device := 1; device <= 2; device++ {
		at := 100.0
		for range rapid.IntRange(0, 25).Draw(t, "readings") {
			at += float64(rapid.SampledFrom([]int{1, 1, 1, 2, 3, 5, 10, 40}).Draw(t, "step"))
			r := reading{at: at, device: device, v: float64(rapid.IntRange(-3, 9).Draw(t, "v")), g: float64(rapid.IntRange(-1, 3).Draw(t, "g"))}
			r.heard = at + float64(rapid.IntRange(0, 10*int(lateness)-1).Draw(t, "delay"))/10
			rs = append(rs, r)
		}
	}
	slices.SortStableFunc(rs, func(a, b reading) int { return cmp.Compare(a.heard, b.heard) })
	return rs
}

func (tl *timeline) hearAll(rs []reading, after func()) {
	for _, r := range rs {
		tl.record(strings.Fields(fmt.Sprintf("%g d%d %g v=%g g=%g %s", r.heard, r.device, r.at, r.v, r.g, r.anchor)))
		after()
	}
	tl.at(5000)
}

// byDevice are the edges of each device, without their positions.
func (tl *timeline) byDevice() map[string][]string {
	edges := map[string][]string{}
	for _, e := range tl.edges {
		word := tl.edge(e)
		if _, rest, ok := strings.Cut(word, ":"); ok {
			word = rest
		}
		edges[e.Series] = append(edges[e.Series], word)
	}
	return edges
}

// TestKindsAgreeWithTheirPlainDefinition holds the engine against the naive rules: over readings that arrive in any order
// inside the lateness, with the engine thrown away and loaded from its pages anywhere.
func TestKindsAgreeWithTheirPlainDefinition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rule := drawRule(t)
		lateness := rapid.SampledFrom([]float64{1, 5}).Draw(t, "lateness")
		rs := drawStream(t, lateness)
		tl := newTimeline(t, rules.Limits{}, fmt.Sprintf(`{"name":"n",%s,"lateness":"%gs"}`, rule.definition, lateness))
		tl.hearAll(rs, func() {
			if rapid.IntRange(0, 7).Draw(t, "cut") == 0 {
				tl.reload(tl.store, tl.rule)
			}
		})
		want := map[string][]string{}
		slices.SortStableFunc(rs, func(a, b reading) int { return cmp.Compare(a.at, b.at) })
		for device := 1; device <= 2; device++ {
			own := slices.DeleteFunc(slices.Clone(rs), func(r reading) bool { return r.device != device })
			if edges := rule.edges(own); len(edges) > 0 {
				want[fmt.Sprintf("d%d", device)] = edges
			}
		}
		if got := tl.byDevice(); !maps.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("%s\n got %q\nwant %q", rule.definition, got, want)
		}
		if late := tl.e.Health(pump.ProfileKey)[0].LateSamples; late > 0 {
			t.Fatalf("%s: %d samples late", rule.definition, late)
		}
	})
}
