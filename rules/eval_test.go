package rules

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"cel.dev/cel-go/cel"
	"pgregory.net/rapid"

	"weir/model"
	"weir/rules/celmap"
	"weir/rules/strict"
	"weir/rules/window"
)

func mustCompile(t testing.TB, c *Compiler, text string) *Program {
	t.Helper()
	p, _, err := c.Compile(mustDecode(t, text), Options{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if err := p.Evaluable(); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

func threshold(when string) string {
	return fmt.Sprintf(`{"name":"n","type":"threshold","when":%s}`, when)
}

func celThreshold(expr string) string {
	return threshold(fmt.Sprintf(`{"cel":%q}`, expr))
}

func readings(pairs ...any) []model.Reading {
	var rs []model.Reading
	for i := 0; i < len(pairs); i += 2 {
		rs = append(rs, model.Reading{Metric: pairs[i].(string), Value: pairs[i+1].(float64)})
	}
	return rs
}

func TestThresholdRaisesOnceAndResolvesOnce(t *testing.T) {
	t.Parallel()
	p := mustCompile(t, newTestCompiler(t, Limits{}), threshold(`{"metric":"temp","op":"gt","threshold":80}`))
	var st State
	for _, step := range []struct {
		at    model.Micros
		in    Input
		want  string
		scope bool
		late  bool
	}{
		{1, Input{Readings: readings("temp", 80.0)}, "", true, false},
		{2, Input{Readings: readings("temp", 81.0)}, "raised at 2 value 81", true, false},
		{3, Input{Readings: readings("temp", 90.0)}, "", true, false},
		{4, Input{Readings: readings("other", 1.0)}, "", false, false}, // off-metric telemetry does not resolve
		{4, Input{Kind: Bare}, "", false, false},
		{4, Input{Kind: Location}, "", false, false},
		{4, Input{Kind: Transition, Readings: readings("temp", 1.0)}, "", false, false},
		{4, Input{Readings: readings("temp", math.NaN())}, "", false, false},
		{4, Input{Readings: readings("temp", math.Inf(-1))}, "", false, false},
		{1, Input{Readings: readings("temp", 10.0)}, "", true, true}, // older than the raise: not emitted, latch stays
		{5, Input{Readings: readings("other", 1.0, "temp", 79.0)}, "resolved at 5", true, false},
		{4, Input{Readings: readings("temp", 99.0)}, "", true, true},
		{5, Input{Readings: readings("temp", 99.0)}, "raised at 5 value 99", true, false}, // as old as the last edge is not older
	} {
		step.in.Occurred = step.at
		next, fired, note := p.Eval(st, &step.in, Clock{}, nil)
		st = next
		if got := describe(fired); got != step.want || note.InScope != step.scope || note.Late != step.late {
			t.Errorf("at %d %v: %q %+v, want %q, in scope %t, late %t", step.at, step.in.Readings, got, note, step.want, step.scope, step.late)
		}
	}
}

func describe(fired []Firing) string {
	var s strings.Builder
	for _, f := range fired {
		fmt.Fprintf(&s, "%s at %d", f.Signal, f.At)
		if f.HasValue {
			fmt.Fprintf(&s, " value %g", f.Value)
		}
	}
	return s.String()
}

func TestExpressionSeesTheSample(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t, Limits{})
	in := &Input{Device: Device{Token: "pump-1"}, Occurred: 3_600_000_000, Readings: readings("a", 5.0, "b", 2.0, "c", math.NaN())}
	for expr, want := range map[string]bool{
		`"a" in m && m["a"] - m.b > 2.5`:                 true,
		`has(m.a) && m.a == 5.0`:                         true,
		`"c" in m || "a" in m && m.a > 6.0`:              false, // what is not finite is not there
		`device == "pump-1" && occurred.getHours() == 1`: true,
		`occurred == timestamp("1970-01-01T01:00:00Z")`:  true,
		`size(m) == 2`:                                          true,
		`m == {"a": 5.0, "b": 2.0}`:                             true,
		`{"a": 5.0} == m`:                                       false,
		`type(m) == map && m != {}`:                             true,
		`cel.bind(x, m["a"], x > 1.0 && x < 6.0)`:               true,
		`dyn(m)["a"] == 5.0 && !(1 in [2, 3]) && device != ""`:  true,
		`device.matches("^pump-[0-9]$")`:                        true,
		`"a" in m ? m["a"] > 4.0 : device == "x"`:               true,
		`"x" in m && m["x"] > 1.0 || "b" in m && m["b"] == 2.0`: true,
	} {
		p := mustCompile(t, c, celThreshold(expr))
		st, fired, note := p.Eval(State{}, in, Clock{}, nil)
		if st.Raised != want || note.Failed || (len(fired) == 1) != want {
			t.Errorf("%s: %+v %+v", expr, st, note)
		}
		if want && fired[0].HasValue {
			t.Errorf("%s: a condition in CEL gives no value, got %v", expr, fired)
		}
	}
}

func TestTransitionsReachOnlyConnectivity(t *testing.T) {
	t.Parallel()
	p := mustCompile(t, newTestCompiler(t, Limits{}), celThreshold(`device != "x"`))
	for kind, want := range map[InputKind]bool{Measurement: true, Location: true, Bare: true, Transition: false} {
		st, _, note := p.Eval(State{}, &Input{Kind: kind}, Clock{}, nil)
		if st.Raised != want || note.InScope != want {
			t.Errorf("input kind %d: %+v %+v", kind, st, note)
		}
	}
}

func TestExpressionIteratesInTheOrderOfTheMessage(t *testing.T) {
	t.Parallel()
	p := mustCompile(t, newTestCompiler(t, Limits{MaxCost: 10_000}), celThreshold(`m.map(k, k) == ["z", "a", "k"]`))
	for range 20 {
		st, _, _ := p.Eval(State{}, &Input{Readings: readings("z", 1.0, "a", 1.0, "k", 1.0)}, Clock{}, nil)
		if !st.Raised {
			t.Fatal("another order")
		}
	}
}

func TestExpressionThatFailsSkipsTheSample(t *testing.T) {
	t.Parallel()
	p := mustCompile(t, newTestCompiler(t, Limits{}), celThreshold(`m["a"] > 1.0`))
	st, _, _ := p.Eval(State{}, &Input{Occurred: 1, Readings: readings("a", 5.0)}, Clock{}, nil)
	if !st.Raised {
		t.Fatal("did not raise")
	}
	after, fired, note := p.Eval(st, &Input{Occurred: 2, Readings: readings("b", 5.0)}, Clock{}, nil)
	if after != st || len(fired) > 0 || !note.Failed || !note.InScope {
		t.Errorf("a failure was taken for a verdict: %+v %v %+v", after, fired, note)
	}
}

func TestExpressionIsStoppedAtItsCost(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t, Limits{MaxCost: 400})
	p := mustCompile(t, c, celThreshold(`m.exists(k, k == "none") || device == "x"`))
	var many []any
	for i := range 256 {
		many = append(many, fmt.Sprintf("metric%d", i), 1.0)
	}
	_, _, note := p.Eval(State{}, &Input{Readings: readings(many...)}, Clock{}, nil)
	if !note.Failed {
		t.Error("an expression over more metrics than assumed ran past its cost")
	}
}

func TestScopeOfAnExpression(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t, Limits{MaxCost: 1000}) // comprehensions over m are beyond the default
	for expr, want := range map[string]bool{
		`"a" in m && m["a"] > 1.0`:                  false,
		`has(m.a) && has(m.b) && m.a > m.b`:         false,
		`("a" in m && m.a > 1.0) || ("b" in m)`:     false,
		`"a" in m && m.a > 1.0 || device == "d"`:    true,
		`m["a"] > 1.0`:                              true,
		`!("a" in m) && device == "d"`:              true,
		`"a" in m && m.exists_one(k, k == "a")`:     true,
		`[1].exists(m, m == 1) && device == "d"`:    true,
		`[1].exists(m, "a" in .m && m == 1)`:        false,
		`[1].exists(m, m == 1) && "a" in m`:         false,
		`device == "d" && ("a" in m) == true`:       false,
		`"a" in m ? true : false`:                   false,
		`occurred.getSeconds() == 0 && m.a > 100.0`: true,
	} {
		p, _, err := c.Compile(mustDecode(t, celThreshold(expr)), Options{})
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		_, _, note := p.Eval(State{}, &Input{Device: Device{Token: "x"}, Readings: readings("other", 1.0)}, Clock{}, nil)
		if note.InScope != want {
			t.Errorf("%s: looks at off-metric samples is %t", expr, note.InScope)
		}
	}
}

// TestComparisonEqualsItsDocumentedForm holds the native comparison against the CEL form that documents it and that
// its cost is taken from.
func TestComparisonEqualsItsDocumentedForm(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t, Limits{})
	value := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, 1, -1, 1e21, -1e-7, math.MaxFloat64}))
	rapid.Check(t, func(t *rapid.T) {
		limit := value.Filter(celmap.Finite).Draw(t, "threshold")
		when := Condition{Metric: "k", Op: rapid.SampledFrom(ops[:]).Draw(t, "op"), Threshold: &limit}
		native, _, err := c.Compile(&Definition{Name: "n", Type: Threshold, When: when}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		expr, _, err := c.Compile(&Definition{Name: "n", Type: Threshold, When: Condition{CEL: when.celForm()}}, Options{})
		if err != nil {
			t.Fatalf("%s: %v", when.celForm(), err)
		}
		if native.Cost() != expr.Cost() {
			t.Fatalf("cost %d natively, %d as %s", native.Cost(), expr.Cost(), when.celForm())
		}
		metric := rapid.SampledFrom([]string{"k", "other"}).Draw(t, "metric")
		in := &Input{Readings: readings(metric, rapid.OneOf(value, rapid.Just(limit)).Draw(t, "value"))}
		a, _, noteA := native.Eval(State{}, in, Clock{}, nil)
		b, _, noteB := expr.Eval(State{}, in, Clock{}, nil)
		if a != b || noteA != noteB {
			t.Fatalf("%s over %v: natively %+v %+v, as CEL %+v %+v", when.celForm(), in.Readings, a, noteA, b, noteB)
		}
	})
}

// TestStaticCostHoldsAtRunTime looks at the reason why a sample of assumed size is not counted while it is evaluated.
func TestStaticCostHoldsAtRunTime(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t, Limits{MaxCost: 10_000})
	var full []any
	for i := range assumedEntries {
		full = append(full, fmt.Sprintf("%0*d", strict.MaxIdentifier, i), float64(i))
	}
	in := &Input{Device: Device{Token: fmt.Sprintf("%0*d", strict.MaxIdentifier, 1)}, Readings: readings(full...)}
	for _, expr := range []string{
		`"a" in m || m.exists(k, k.endsWith("x") && m[k] > 3.0)`,
		`m.all(k, k != device)`,
		`m.filter(k, m[k] > 3.0).size() > 100 || device == "x"`,
		`device.contains("11") || device.matches("^(0|1|2)+x$")`,
		`string(size(m)).matches("^[0-9]+$") && device != "" && occurred.getHours() == 0`,
		`cel.bind(n, size(m), n > 3 && n < 100) && m != {"a": 1.0}`,
	} {
		leaf, static, err := c.envs.leaf.check(expr, c.limits.MaxCost)
		if err != nil {
			t.Fatal(err)
		}
		prg, err := c.envs.leaf.env.Program(leaf, cel.CostTracking(nil))
		if err != nil {
			t.Fatal(err)
		}
		var s Sample
		s.bind(in)
		_, details, err := prg.Eval(&s)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		if actual := *details.ActualCost(); actual > static {
			t.Errorf("%s: cost %d, at most %d was foreseen", expr, actual, static)
		}
	}
}

// TestSum: however many samples there are, each counts once; a sum that no number can be is the largest one.
func TestSum(t *testing.T) {
	t.Parallel()
	of := func(vs ...float64) (kept []window.Sample) {
		for i, v := range vs {
			kept = append(kept, window.NewSample(model.Micros(i), window.Valued, v))
		}
		return kept
	}
	for n := 1; n < 20; n++ {
		var vs []float64
		want := 0.0
		for i := range n {
			vs = append(vs, float64(i*i)+0.5)
			want += float64(i*i) + 0.5
		}
		if got := sum(of(vs...)); got != want {
			t.Errorf("%d samples: %v, want %v", n, got, want)
		}
	}
	for _, c := range []struct {
		vs   []float64
		want float64
	}{
		{[]float64{math.MaxFloat64, 1e300, 1e300, 1e300, math.MaxFloat64}, math.MaxFloat64},
		{[]float64{-math.MaxFloat64, -math.MaxFloat64}, -math.MaxFloat64},
		{[]float64{math.MaxFloat64, -math.MaxFloat64, 0, 0, math.MaxFloat64, -math.MaxFloat64}, 0},
	} {
		if got := sum(of(c.vs...)); got != c.want {
			t.Errorf("%v: %v, want %v", c.vs, got, c.want)
		}
	}
}
