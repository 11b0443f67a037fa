package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/made"
	"weir/rules/strict"
	"weir/rules/vocabulary"

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
	for _, k := range builtin() {
		for _, d := range variants(k.Type()) {
			name := string(k.Type())
			if d.WindowMode != "" {
				name += "-" + d.WindowMode
			}
			made.Part(t, referencePage, "times-"+name, timesList(t, k, d), "make generate")
		}
	}
}

func kindTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("\n| `type` | raises when | resolves | needs | may have | edges carry a value |\n|---|---|---|---|---|---|\n")
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
			if judge, err := k.Compile(d, &Predicate{}); err != nil || judge == nil {
				t.Errorf("kind %s does not run: %v", k.Type(), err)
			}
			name := "`" + string(k.Type()) + "`"
			if d.WindowMode != "" {
				name += ", `windowMode: " + d.WindowMode + "`"
			}
			value := word(u.Value)
			if with, err := k.Uses(&Definition{Type: d.Type, When: Condition{Metric: "m"}, WindowMode: d.WindowMode, Agg: d.Agg}); err == nil && with.Value != u.Value {
				value = "if `when` compares a metric"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", name, note[0], note[1], codes(u.Needs), codes(u.May), value)
		}
	}
	return b.String() + "\n"
}

// timesList is what a kind says of its times, with example durations.
func timesList(t *testing.T, k Kind, d *Definition) string {
	t.Helper()
	e, ok := k.(explainer)
	if !ok {
		t.Errorf("kind %s does not explain itself", k.Type())
		return ""
	}
	d.Window, d.Hold, d.Timeout, d.Gap, d.Count, d.Lateness = 10*time.Minute, 10*time.Minute, 10*time.Minute, 10*time.Minute, 3, new(5*time.Second)
	says := e.explain(d)
	u, err := k.Uses(d)
	if err != nil {
		t.Fatal(err)
	}
	takes := (&Program{def: d, uses: u}).footprint()
	memory := fmt.Sprintf("%d bytes a key", takes.Key)
	if takes.Member > 0 {
		memory += fmt.Sprintf(", %d a device", takes.Member)
	}
	if takes.Sample > 0 {
		memory += fmt.Sprintf(", at most %d a sample", takes.Sample)
	}
	var b strings.Builder
	b.WriteString("\n")
	for _, line := range [][2]string{{"Judges", says.Judged}, {"Late data", says.Late}, {"Silence", says.Missing}, {"Keeps", says.Keeps + " (" + memory + ")"}} {
		if line[1] == "" {
			t.Errorf("kind %s leaves something out: %+v", k.Type(), says)
		}
		fmt.Fprintf(&b, "- **%s:** %s.\n", line[0], line[1])
	}
	return b.String() + "\n"
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
		fmt.Fprintf(&b, "| `%s` | %d | %s |\n", cell(when), p.Cost(), p.LooksAt())
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
		also := "`guard`, `maxAge`"
		if a == ActionRaiseAlarm {
			also = "`guard`" // alarms fold whatever their age
		}
		fmt.Fprintf(&b, "| `%s` | %s; %s |\n", a, actionNotes[a], also)
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
		{"names of metrics, attributes, keys", fmt.Sprintf("%d bytes", strict.MaxIdentifier)},
		{"text of an expression", fmt.Sprintf("%d characters", MaxExpression)},
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
		"| `%s` | the action's position | an action reads `value`, but no edge of the rule has one |\n"+
		"| `%s` | lateness, window | the rule's own lateness is longer than the window, hold or gap that it looks at |\n"+
		"| `%s` | lateness | the rule has a lateness, and its kind judges samples when they arrive |\n"+
		"| `%s` | the metric, the nearest one | at publish: the profile declares metrics, and none of this name |\n"+
		"| `%s` | the command, the nearest one | at publish: the profile declares no command of this name |\n"+
		"| `%s` | the geofence, the nearest one | at publish: the tenant has no geofence of this name |\n"+
		"| `%s` | the connector, the nearest one | at publish: the tenant has no connector of this name |\n"+
		"| `%s` | the metric, the threshold, the range | at publish: the threshold lies outside the metric's declared range, so that no value, or only one outside it, crosses it |\n\n",
		WarnNegatedAttributeGuard, WarnNegatedAttributeGuardDisjunct, WarnValueNeverSet, WarnLongLateness, WarnIdleLateness, vocabulary.UnknownMetric, vocabulary.UnknownCommand,
		vocabulary.UnknownFence, vocabulary.UnknownConnector, vocabulary.ThresholdOutside)
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
