package main

import (
	"context"
	"encoding/json"
	"math"
	"testing"
	"time"

	"weir/rules"
)

func TestTheMixedSetIsAHundredRulesOfAllKinds(t *testing.T) {
	t.Parallel()
	c, err := rules.NewCompiler(rules.Limits{Actions: []rules.ActionType{"raiseAlarm"}})
	if err != nil {
		t.Fatal(err)
	}
	kinds, all := map[rules.Type]int{}, 0
	for p := range mixedProfiles {
		judging := 0
		for _, text := range mixedDefinitions(p) {
			d, err := rules.Decode([]byte(text))
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if _, _, err := c.Compile(d, rules.Options{}); err != nil {
				t.Errorf("%s: %v", text, err)
			}
			kinds[d.Type]++
			if all++; d.Type != rules.Connectivity {
				judging++
			}
		}
		if judging != rulesOfEach {
			t.Errorf("%d rules of profile %d judge readings", judging, p)
		}
	}
	if all != 100 || len(kinds) != 8 {
		t.Errorf("%d rules of %d kinds", all, len(kinds))
	}
	for k, n := range kinds {
		if n < 8 {
			t.Errorf("%d rules of kind %s", n, k)
		}
	}
}

// TestAMixedBodyIsOutOfOrderAndFires reads a body as a threshold does.
func TestAMixedBodyIsOutOfOrderAndFires(t *testing.T) {
	t.Parallel()
	const readings = 200_000
	b := newBody(mixed, 1)
	values, times, _ := decoded(t, b, readings)
	edges, late, over, newest, last, sum := int64(0), 0, false, times[0], time.Time{}, 0.0
	for i, v := range values {
		sum += v
		if hit := v > ruleThreshold; hit != over {
			over = hit
			edges++
			if !last.IsZero() && times[i].Before(last) {
				t.Fatalf("edge %d is older than the one before", edges)
			}
			last = times[i]
		}
		if times[i].Before(newest) {
			late++
			if newest.Sub(times[i]) != lateBy {
				t.Fatalf("reading %d is late by %v", i, newest.Sub(times[i]))
			}
		}
		if times[i].After(newest) {
			newest = times[i]
		}
	}
	if edges != b.edges || edges < 80 || edges > 160 || math.Abs(sum-b.sum) > 1e-3 {
		t.Errorf("%d edges and the sum %v, the body says %d and %v", edges, sum, b.edges, b.sum)
	}
	if late < readings/lateEvery*8/10 || late > readings/lateEvery*12/10 {
		t.Errorf("%d of %d readings are late", late, readings)
	}
}

func TestAllOfACrowdAreShared(t *testing.T) {
	t.Parallel()
	c := newCrowded(1000, flap)
	seen := map[*body]bool{}
	for i := range 64 {
		for _, d := range c.share(&sender{index: i, of: 64}) {
			if seen[d] {
				t.Fatal("a device has two posters")
			}
			seen[d] = true
		}
	}
	for i, d := range c.bodies {
		d.level = int64(i % 2)
		for range 3 {
			d.append(nil)
		}
	}
	want, raised := c.kept()
	if len(seen) != 1000 || want.readings != 3000 || want.sum != 75_000 || want.edges != 2500 || raised != 500 {
		t.Errorf("%d devices have a poster; %+v, %d are raised", len(seen), want, raised)
	}
}

// TestEveryKindOfTheHeapHasKeys runs the parts that call the engine alone, over few keys.
func TestEveryKindOfTheHeapHasKeys(t *testing.T) {
	tokens := manyTokens(300)
	names := map[string]bool{}
	for _, k := range heapKinds() {
		var d struct{ Type string }
		if err := json.Unmarshal([]byte(k.rule), &d); err != nil {
			t.Fatal(err)
		}
		names[d.Type] = true
		if _, _, err := heapOf(k, tokens, 0); err != nil {
			t.Errorf("%s: %v", k.name, err)
		}
		if s, err := snapshotOf(k, tokens); err != nil || s.each < 10 || s.steps < 2 || s.held < max(s.cut, s.longest) || s.work < s.held {
			t.Errorf("%s: %+v, %v", k.name, s, err)
		}
	}
	if len(names) != 8 {
		t.Errorf("%d kinds: %v", len(names), names)
	}
	if each, err := heapOfSamples(t.Context(), 300, 20); err != nil || each < 0.9*sampleSize {
		t.Errorf("%.1f bytes of a sample, %v", each, err)
	}
}

func TestReadingsAtRandomAreJudgedOnce(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{comparison, expression} {
		j, err := newJudging(10, rule)
		if err != nil {
			t.Fatal(err)
		}
		tokens := manyTokens(10)
		for i, token := range tokens {
			j.apply(i, token, 1, judgedMetric, 90)
		}
		before := j.Worked().Judged
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if _, _, err := randomReadings(stopped, j, tokens, time.Hour); err != nil {
			t.Fatal(err)
		}
		if got := j.Worked().Judged - before; got != 1_000_000 || j.edges != 10 {
			t.Errorf("%d readings judged, %d edges", got, j.edges)
		}
	}
	if _, err := newJudging(1, `{"name":"n","type":"threshold"}`); err == nil {
		t.Error("a rule that does not run is measured")
	}
}
