package rules

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestTheSchemaHasTheFieldsOfTheDecoder holds every object of the schema against the fields that the decoder names.
func TestTheSchemaHasTheFieldsOfTheDecoder(t *testing.T) {
	t.Parallel()
	properties := func(s any) map[string]any { return s.(map[string]any)["properties"].(map[string]any) }
	top := properties(Schema())
	action := properties(top["actions"].(map[string]any)["items"])
	for text, schema := range map[string]map[string]any{
		`{"?":1}`:                               top,
		`{"when":{"?":1}}`:                      properties(top["when"]),
		`{"actions":[{"?":1}]}`:                 action,
		`{"actions":[{"raiseAlarm":{"?":1}}]}`:  properties(action["raiseAlarm"]),
		`{"actions":[{"sendCommand":{"?":1}}]}`: properties(action["sendCommand"]),
		`{"actions":[{"httpCall":{"?":1}}]}`:    properties(action["httpCall"]),
		`{"actions":[{"publish":{"?":1}}]}`:     properties(action["publish"]),
	} {
		_, faults := decodeAll([]byte(text), builtin())
		if want := slices.Sorted(maps.Keys(schema)); len(faults) == 0 || !slices.Equal(faults[0].Fields, want) {
			t.Errorf("%s: the decoder knows %v, the schema %v", text, faults, want)
		}
	}
}

// TestEveryOffenceOfADefinitionIsNamed: what does not depend on another field is found in one pass.
func TestEveryOffenceOfADefinitionIsNamed(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t, Limits{Actions: performed})
	_, _, faults := c.Inspect(`{"nam":"n","type":"treshold","severity":["x",{"y":1}],"when":{"metrc":"t","op":"gte","threshold":"80"},"hold":"5",
		"actions":[{"type":"mail"},5,{"type":"raiseAlarm","raiseAlarm":{"key":{}}}],"when":{},"count":0}`, Options{})
	var got []string
	for _, f := range faults {
		got = append(got, f.Field)
	}
	want := "nam type severity when.metrc when.op when.threshold hold actions[0].type actions[1] actions[2].raiseAlarm.key when count name"
	if strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
	_, _, faults = c.Inspect(`{"name":"n","typ":"threshold","when":{"cel":"temp > 1.0"}}`, Options{})
	if len(faults) != 3 || faults[2].Field != "when" || faults[2].Hint == "" {
		t.Error(faults)
	}
	p, _, faults := c.Inspect(hot(80), Options{})
	if p == nil || len(faults) > 0 {
		t.Error(faults)
	}
	if _, _, faults := c.Inspect(`{"name":"n","type":"threshold","when":{"metric":"t","op":"gt","threshold":1},"actions":[{"type":"publish","publish":{"connectorRef":"c"}}]}`, Options{}); len(faults) != 1 || faults[0].Field != "actions[0]" {
		t.Error(faults)
	}
}
