package rules

import (
	"reflect"
	"strings"
	"testing"

	"weir/internal/test/conformance"
)

func TestValidateGoesThroughTheListInOrder(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t, Limits{Actions: performed})
	list := []Candidate{
		{Token: "good", Definition: hot(80)},
		{Token: "broken", Definition: `{`},
		{Token: "warned", Definition: `{"name":"n","type":"threshold","severity":"major","when":{"cel":"\"t\" in m"},"actions":[{"type":"raiseAlarm","raiseAlarm":{},"guard":"value > 1.0"}]}`},
		{Token: "good", Definition: `{"name":"n","type":"threshold"}`},
		{Token: "dear", Definition: celThreshold(`m.all(k, k == "a")`)},
		{Token: "scoped", Definition: `{"name":"n","type":"absence","timeout":"1m"}`, GroupScoped: true},
		{Token: "later", Definition: `{"name":"n","type":"threshold","when":{"metric":"t","op":"gt","threshold":1},"actions":[{"type":"publish","publish":{"connectorRef":"c"}}]}`},
	}
	for range 2 {
		errs, warns := c.Validate(list)
		wantErrs := []ValidationError{
			{1, "broken", "the definition is not valid JSON: unexpected end of JSON input (at byte 1)"},
			{3, "good", "when: required by type threshold"},
			{4, "dear", "when: the expression may cost 322, at most 100 is allowed"},
			{5, "scoped", "a rule of type absence cannot be scoped to a device group"},
			{6, "later", "actions[0]: publish is not available yet"},
		}
		if !reflect.DeepEqual(errs, wantErrs) {
			t.Errorf("errors %+v", errs)
		}
		wantWarns := []ValidationWarning{{2, "warned", warn(WarnValueNeverSet, "action 0 reads value, but no detection of this rule has one: it is always 0", "0")}}
		if !reflect.DeepEqual(warns, wantWarns) {
			t.Errorf("warnings %+v", warns)
		}
	}
	if errs, warns := c.Validate(nil); len(errs)+len(warns) > 0 {
		t.Errorf("an empty list: %v %v", errs, warns)
	}
}

func TestDurationAboveTheMaximumDoesNotCompile(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t, Limits{Settings: Settings{MaxDuration: 60e9}})
	for _, text := range []string{
		`{"name":"n","type":"absence","timeout":"61s"}`,
		`{"name":"n","type":"duration","hold":"61s","when":{"metric":"t","op":"gt","threshold":1}}`,
		`{"name":"n","type":"repeating","count":1,"window":"61s"}`,
		`{"name":"n","type":"aggregate","windowMode":"session","agg":"count","op":"gt","threshold":1,"gap":"61s"}`,
		`{"name":"n","type":"connectivity","lateness":"61s"}`,
		`{"name":"n","type":"connectivity","actions":[{"type":"publish","publish":{"connectorRef":"c"},"maxAge":"61s"}]}`,
	} {
		_, _, err := c.Compile(mustDecode(t, text), Options{})
		if err == nil || !strings.Contains(err.Error(), "1m1s is longer than the maximum rule duration of 1m") {
			t.Errorf("%s: %v", text, err)
		}
		if _, _, err := c.Compile(mustDecode(t, strings.Replace(text, "61s", "60s", 1)), Options{}); err != nil {
			t.Errorf("%s at the maximum: %v", text, err)
		}
	}
	conformance.Shown(t, "S1-109")
}
