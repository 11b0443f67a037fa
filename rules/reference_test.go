package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/internal/test/made"

	"cel.dev/cel-go/cel"

	"weir/internal/setting"
)

const referencePage = "../docs/rules.md"

// TestTheRuleReferenceSaysWhatThePackageDoes holds the tables of docs/rules.md against the package; -update writes them.
func TestTheRuleReferenceSaysWhatThePackageDoes(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"kinds": kindTable(t), "operators": operatorTable(), "environments": environmentTable(t),
		"functions": functionList(t), "examples": exampleTable(t), "actions": actionTable(), "limits": limitTable(), "warnings": warningTable()} {
		made.Part(t, referencePage, name, text, "make generate")
	}
}

// kindNotes are what the tables cannot read from a kind: when it raises. A kind without one fails the test.
var kindNotes = map[Type]string{
	Threshold:    "a sample satisfies `when`; resolves at the next sample in scope that does not",
	DeltaRate:    "the change of `metric` between two samples (with `rate`: per second) satisfies `op` and `threshold`",
	Repeating:    "`count` samples within the trailing `window` satisfy `when`",
	Duration:     "`when` held without a break for `hold`",
	Absence:      "no event of the device arrived for `timeout`",
	Aggregate:    "`agg` of `metric` over a window satisfies `op` and `threshold`",
	Correlation:  "`count` distinct devices under one anchor satisfy `when` within `window`",
	Connectivity: "the device disconnects; resolves when it connects",
}

func kindTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("\n| `type` | today | raises when | needs | may have | edges carry a value |\n|---|---|---|---|---|---|\n")
	for _, k := range builtin() {
		note, ok := kindNotes[k.Type()]
		if !ok {
			t.Errorf("kind %s has no note", k.Type())
		}
		for _, d := range variants(k.Type()) {
			u, err := k.Uses(d)
			if err != nil {
				t.Fatal(err)
			}
			when := Predicate{}
			judge, err := k.Compile(d, &when)
			if err != nil {
				t.Fatal(err)
			}
			today := "decoded and checked, refused at publish"
			if judge != nil {
				today = "**runs**"
			}
			name := "`" + string(k.Type()) + "`"
			if d.WindowMode != "" {
				name += ", `windowMode: " + d.WindowMode + "`"
			}
			value := word(u.Value)
			if with, err := k.Uses(&Definition{Type: d.Type, When: Condition{Metric: "m"}, WindowMode: d.WindowMode, Agg: d.Agg}); err == nil && with.Value != u.Value {
				value = "if `when` compares a metric"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", name, today, note, codes(u.Needs), codes(u.May), value)
		}
	}
	return b.String() + "\n"
}

// variants are definitions that show every set of fields of a kind.
func variants(t Type) []*Definition {
	if t != Aggregate {
		return []*Definition{{Type: t}}
	}
	var out []*Definition
	for _, mode := range windowModes {
		out = append(out, &Definition{Type: t, WindowMode: mode, Agg: AggAvg})
	}
	return out
}

func operatorTable() string {
	var b strings.Builder
	b.WriteString("\n| `op` | in an expression | in `when` | in a rule of type `deltaRate` or `aggregate` |\n|---|---|---|---|\n")
	for _, op := range ops {
		fmt.Fprintf(&b, "| `%s` | `%s` | yes | %s |\n", op, celOps[op], word(op != Equal && op != NotEqual))
	}
	fmt.Fprintf(&b, "\nSeverities, the gravest first: %s.\n\n", codes(severities[:]))
	return b.String()
}

// variableNotes are what the variables hold.
var variableNotes = map[string]string{
	varDevice:   "token of the device",
	varOccurred: "event time of the sample, in UTC",
	varMetrics:  "readings of the sample, by metric; every value is a double",
	varAttr:     "attributes of the device: **not available yet**, a rule that reads them is refused at publish",
	varAnchors:  "anchors of the device, by type: **not available yet**",
	varGeo:      "position: only `geo.inFence(\"<fence token>\")`: **not available yet**",
	varSeries:   "device token, or the anchor's token of a correlation",
	varValue:    "value that raised the edge; 0 when there is none",
	varHasValue: "whether there is a value",
}

func environmentTable(t *testing.T) string {
	t.Helper()
	envs, err := newEnvironments()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("\n| expression | gives | variable | type | what it holds |\n|---|---|---|---|---|\n")
	for _, e := range []struct {
		where string
		env   *environment
	}{{"`when.cel`", &envs.leaf}, {"`guard` of an action", &envs.guard}, {"`bodyTemplate`, `payloadTemplate`", &envs.template}, {"`alarmKeyTemplate`", &envs.alarmKey}} {
		for _, v := range e.env.env.Variables() {
			note, ok := variableNotes[v.Name()]
			if !ok {
				if strings.HasPrefix(cel.FormatCELType(v.Type()), "type") { // the name of a type, which every expression knows
					continue
				}
				t.Errorf("variable %s has no note", v.Name())
			}
			fmt.Fprintf(&b, "| %s | %s | `%s` | `%s` | %s |\n", e.where, cel.FormatCELType(e.env.result), v.Name(), cel.FormatCELType(v.Type()), note)
		}
	}
	return b.String() + "\n"
}

// functionList names the functions of a condition; operators have names of their own in the library.
func functionList(t *testing.T) string {
	t.Helper()
	envs, err := newEnvironments()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range envs.leaf.env.Functions() {
		if !strings.ContainsAny(name, "_@!-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var macros []string
	for _, m := range envs.leaf.env.Macros() {
		macros = append(macros, m.Function())
	}
	slices.Sort(macros)
	return "\nFunctions: " + codes(names) + ".\n\nMacros: " + codes(slices.Compact(macros)) + ".\n\n"
}

// shownConditions are compiled for the page: what each costs and which samples it looks at.
var shownConditions = []string{
	`{"metric": "temp", "op": "gt", "threshold": 80}`,
	`{"cel": "m.temp > 80.0"}`,
	`{"cel": "has(m.temp) && m.temp > 80.0"}`,
	`{"cel": "has(m.supply) && has(m.return) && m.supply - m.return > 20.0"}`,
	`{"cel": "has(m.temp) && m.temp > 30.0 && occurred.getHours() >= 22"}`,
	`{"cel": "device.startsWith(\"pump-\") && has(m.rpm) && m.rpm == 0.0"}`,
	`{"cel": "m.exists(k, m[k] > 100.0)"}`,
	`{"cel": "m.temp > 80"}`,
	`{"cel": "temp > 80.0"}`,
}

func exampleTable(t *testing.T) string {
	t.Helper()
	c := newTestCompiler(t, Limits{})
	var b strings.Builder
	b.WriteString("\n| `when` | cost | looks at |\n|---|---|---|\n")
	for _, when := range shownConditions {
		def, err := c.Decode([]byte(`{"name": "n", "type": "threshold", "when": ` + when + `}`))
		if err != nil {
			t.Fatal(err)
		}
		p, _, err := c.Compile(def, Options{})
		if err != nil {
			fmt.Fprintf(&b, "| `%s` | – | refused: %s |\n", cell(when), cell(err.Error()))
			continue
		}
		fmt.Fprintf(&b, "| `%s` | %d | %s |\n", cell(when), p.Cost(), describeScope(p))
	}
	return b.String() + "\n"
}

var actionNotes = map[ActionType]string{
	ActionRaiseAlarm:  "`alarmKey` or `alarmKeyTemplate`; the rule needs a severity",
	ActionSendCommand: "`command`, `payload`",
	ActionHTTPCall:    "`url`, `headers`, `bodyTemplate`, `secretRef`, `timeoutMs`",
	ActionPublish:     "`connectorRef`, `payloadTemplate`, `timeoutMs`",
}

func actionTable() string {
	var b strings.Builder
	b.WriteString("\n| `type` of the action | fields |\n|---|---|\n")
	for _, a := range actionTypes {
		fmt.Fprintf(&b, "| `%s` | %s; `guard`, `maxAge` |\n", a, actionNotes[a])
	}
	return b.String() + "\n"
}

func limitTable() string {
	var s Settings
	setting.FillDefaults(&s)
	var b strings.Builder
	b.WriteString("\n| what | maximum |\n|---|---|\n")
	for _, l := range []struct{ what, max string }{
		{"definition", fmt.Sprintf("%d KiB", MaxDefinition>>10)},
		{"names of metrics, attributes, keys", fmt.Sprintf("%d bytes", maxIdentifier)},
		{"text of an expression", fmt.Sprintf("%d characters", maxExpression)},
		{"static cost of an expression", fmt.Sprint(DefaultMaxCost)},
		{"actions of a rule", fmt.Sprint(MaxActions)},
		{"`window`, `hold`, `timeout`, `gap`, `lateness`, `maxAge`", FormatDuration(s.MaxDuration) + " (`detection.max_rule_duration`)"},
		{"rules of a tenant that run", fmt.Sprintf("%d (`detection.max_rules_per_tenant`)", s.MaxRules)},
		{"pairs of rule and device with state, of a tenant", fmt.Sprintf("%d (`detection.max_keys_per_tenant`)", s.MaxKeys)},
		{"detections a second of a tenant, over two minutes", fmt.Sprintf("%d (`detection.max_edges_per_second`)", s.MaxEdges)},
	} {
		fmt.Fprintf(&b, "| %s | %s |\n", l.what, l.max)
	}
	return b.String() + "\n"
}

func warningTable() string {
	return fmt.Sprintf("\n| code | parameters | when |\n|---|---|---|\n"+
		"| `%s` | the attribute | the condition asks that an attribute is missing: it holds for every device without it |\n"+
		"| `%s` | the attribute | a missing attribute is enough for one side of an `\\|\\|` |\n"+
		"| `%s` | the action's position | an action reads `value`, but no edge of the rule has one |\n\n",
		WarnNegatedAttributeGuard, WarnNegatedAttributeGuardDisjunct, WarnValueNeverSet)
}

func codes(names []string) string {
	if len(names) == 0 {
		return "–"
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

func word(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
