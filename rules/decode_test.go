package rules

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"weir/rules/celmap"

	"pgregory.net/rapid"
)

func TestOversizedAndIllFormedText(t *testing.T) {
	t.Parallel()
	big := `{"name":"` + strings.Repeat("n", MaxDefinition) + `"}`
	for text, want := range map[string]string{
		big:                       fmt.Sprintf("the definition is %d bytes long, at most 65536 are allowed", len(big)),
		"{\"name\":\"\xff\"}":     "the definition is not valid UTF-8",
		strings.Repeat("[", 20e3): "the definition is not valid JSON: invalid character '[' exceeded max depth (at byte 10001)",
		`{"type":"` + strings.Repeat("x", 200) + `"}`: `type: "` + strings.Repeat("x", 40) + `…" is not one of threshold, deltaRate, repeating, duration, absence, aggregate, correlation, connectivity`,
	} {
		t.Run(text, func(t *testing.T) {
			if _, err := Decode([]byte(text)); err == nil || err.Error() != want {
				t.Errorf("%.40q: %v", text, err)
			}
		})
	}
}

func TestFormatDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", 10 * time.Minute: "10m", time.Hour: "1h", 24 * time.Hour: "24h",
		90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s", 1500 * time.Millisecond: "1.5s",
		20 * time.Minute: "20m", 100 * time.Hour: "100h", time.Hour + 10*time.Minute: "1h10m", 100 * time.Millisecond: "100ms",
	} {
		got := FormatDuration(d)
		if back, err := time.ParseDuration(got); got != want || err != nil || back != d {
			t.Errorf("%v is written %q, want %q", d, got, want)
		}
	}
}

// TestDecodeIsTheInverseOfCanonical draws definitions, sensible or not, and sends them round.
func TestDecodeIsTheInverseOfCanonical(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		def := drawDefinition(t)
		text := def.Canonical()
		got, err := Decode(text)
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if !reflect.DeepEqual(normal(*got), normal(*def)) {
			t.Fatalf("%s\n got %+v\nwant %+v", text, got, def)
		}
		if got.BodyHash("g", 1) != def.BodyHash("g", 1) {
			t.Fatal("another body")
		}
	})
}

func drawDefinition(t *rapid.T) *Definition {
	text := rapid.StringOf(rapid.RuneFrom([]rune("ab <>&\"\\é\u2028\t"))) // no NUL
	name := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_-]{0,8}`)
	some := func(g *rapid.Generator[string]) string { return rapid.OneOf(rapid.Just(""), g).Draw(t, "text") }
	span := func() time.Duration { return time.Duration(rapid.Int64Range(0, 1e15).Draw(t, "span")) }
	number := func() *float64 {
		return rapid.Ptr(rapid.Float64().Filter(celmap.Finite), true).Draw(t, "number")
	}
	def := &Definition{
		Name: "x" + text.Draw(t, "name"), Description: some(text),
		Type: rapid.SampledFrom(typesOf(builtin())).Draw(t, "type"), Severity: some(rapid.SampledFrom(severities[:])),
		When:   Condition{some(name), Op(some(rapid.SampledFrom([]string{"gt", "eq"}))), number(), number(), some(name), some(text)},
		Metric: some(name), Window: span(), Hold: span(), Timeout: span(), Gap: span(),
		Count: rapid.Int32Min(0).Draw(t, "count"), Rate: rapid.Bool().Draw(t, "rate"),
		WindowMode: some(rapid.SampledFrom(windowModes[:])), Agg: some(rapid.SampledFrom(aggregates[:])),
		Op: Op(some(rapid.SampledFrom([]string{"lt", "ne"}))), Threshold: number(), Clear: number(),
		AnchorType: some(name), MemberCap: rapid.Int32Min(0).Draw(t, "cap"),
	}
	age := func() *time.Duration {
		if rapid.Bool().Draw(t, "aged") {
			return new(span())
		}
		return nil
	}
	def.Lateness = age()
	for range rapid.IntRange(0, MaxActions).Draw(t, "actions") {
		a := Action{Type: rapid.SampledFrom(actionTypes[:]).Draw(t, "action"), Guard: some(text), MaxAge: age()}
		timeout := rapid.Int32Range(0, maxTimeoutMs).Draw(t, "timeout")
		switch a.Type {
		case ActionRaiseAlarm:
			a.RaiseAlarm = &RaiseAlarm{AlarmKey: some(name)}
		case ActionSendCommand:
			a.SendCommand = &SendCommand{name.Draw(t, "command"), some(rapid.Just(`{"a": "<"}`))}
		case ActionHTTPCall:
			a.HTTPCall = &HTTPCall{URL: "https://h/?a=1&b=2", BodyTemplate: some(text), SecretRef: some(rapid.Just("http/a")), TimeoutMs: timeout}
			if rapid.Bool().Draw(t, "headers") {
				a.HTTPCall.Headers = []Header{{"A", ""}, {"X-B", "1 <"}}
			}
		case ActionPublish:
			a.Publish = &Publish{name.Draw(t, "connector"), some(text), timeout}
		}
		def.Actions = append(def.Actions, a)
	}
	return def
}

// FuzzDecode decodes and compiles what a stranger wrote.
func FuzzDecode(f *testing.F) {
	for _, file := range []string{"testdata/rules.txt", "testdata/refused.txt"} {
		for _, g := range readGolden(f, file) {
			f.Add(g.source)
		}
	}
	c := newTestCompiler(f, Limits{Actions: actionTypes[:]})
	f.Fuzz(func(t *testing.T, text string) {
		def, err := Decode([]byte(text))
		if err != nil {
			return
		}
		checkCanonical(t, def)
		p, _, err := c.Compile(def, Options{})
		if err != nil || p.Evaluable() != nil {
			return
		}
		if p.Cost() > DefaultMaxCost {
			t.Fatalf("cost %d", p.Cost())
		}
		again := mustDecode(t, string(def.Canonical()))
		if def.BodyHash("", 0) != again.BodyHash("", 0) {
			t.Fatal("another body")
		}
		in := &Input{Device: Device{Token: "d"}, Readings: readings("a", 1.0, "t", 100.0)}
		st, fired, note := p.Eval(State{}, in, Clock{}, nil)
		if st.Raised != (len(fired) == 1) || note.Failed && st.Raised {
			t.Fatalf("%+v %v %+v", st, fired, note)
		}
	})
}
