package canvas

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"weir/internal/test/made"
	"weir/rules"
	"weir/rules/strict"
)

// TestTheRuleReferenceHasTheNodeTypes holds the tables of the chapter against the list of node types; -update writes them.
func TestTheRuleReferenceHasTheNodeTypes(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("\n| `type` | inputs | outputs | fields of `config` |\n|---|---|---|---|\n")
	for _, kind := range newCompiler(t).Types() {
		fields := codes(kind.Fields())
		if kind.Name == typeAction {
			fields += " and the fields of that type"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", kind.Name, ports(kind.In), ports(kind.Out), fields)
	}
	b.WriteString("\n| `action` | its fields |\n|---|---|\n")
	for _, action := range rules.ActionTypes() {
		n := &node{config: []byte(`{"action":"` + string(action) + `"}`)}
		var names []string
		for _, f := range actionFields(n, strict.New(nil))[1:] {
			names = append(names, f.name)
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", action, codes(names))
	}
	fmt.Fprintf(&b, "\nA canvas has at most %d KiB, %d nodes and %d edges. Its expressions, each with the computes that flow into it, have\nat most %d KiB.\n\n",
		MaxText>>10, MaxNodes, MaxEdges, MaxExpressions>>10)
	made.Part(t, "../../docs/rules.md", "canvas", b.String(), "make generate")
}

func ports(list []Port) string {
	var words []string
	for _, p := range list {
		words = append(words, fmt.Sprintf("`%s` (%s)", p.Name, p.Carries))
	}
	if len(words) == 0 {
		return "–"
	}
	return strings.Join(words, ", ")
}

func codes(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }

// TestTheFieldsOfAnActionAreThoseOfItsType: what a definition takes, a canvas takes flat.
func TestTheFieldsOfAnActionAreThoseOfItsType(t *testing.T) {
	t.Parallel()
	properties := func(s any) map[string]any { return s.(map[string]any)["properties"].(map[string]any) }
	action := properties(properties(rules.Schema())["actions"].(map[string]any)["items"])
	for _, kind := range rules.ActionTypes() {
		want := append(slices.Collect(maps.Keys(properties(action[string(kind)]))), "action")
		if kind != rules.ActionRaiseAlarm {
			want = append(want, "maxAgeMs")
		}
		var got []string
		for _, f := range actionFields(&node{config: []byte(`{"action":"` + string(kind) + `"}`)}, strict.New(nil)) {
			got = append(got, f.name)
		}
		slices.Sort(want)
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: a canvas takes %v, a definition %v", kind, got, want)
		}
	}
}
