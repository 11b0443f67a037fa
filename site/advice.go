package site

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"weir/model"
	"weir/registry"
	"weir/rules"
	"weir/rules/vocabulary"
)

// newCompiler compiles rules without an instance, which may allow any duration.
func newCompiler() (*rules.Compiler, error) {
	return rules.NewCompiler(rules.Limits{Settings: rules.Settings{MaxDuration: math.MaxInt64}, Actions: rules.Performed()})
}

// advise warns, in a plan, of rules that do not fit the metrics of their profile as they would be after an apply.
func (l *level) advise() error {
	k := l.format.of(tableProfiles)
	if l.kind != l.format.tenant || k == nil || len(l.refusals) > 0 {
		return nil
	}
	compiler, err := l.site.compiler()
	if err != nil {
		return err
	}
	for _, d := range l.declared(k) {
		if err := l.adviseProfile(d.Entity, compiler); err != nil {
			return err
		}
	}
	return nil
}

func (l *level) adviseProfile(profile *Entity, compiler *rules.Compiler) error {
	rows, err := l.parts.Registry.Profiles.ByToken(l.ctx, l.by, []string{profile.Name})
	if err != nil || len(rows) == 0 {
		return err
	}
	definitions, err := l.parts.Registry.Metrics.By(l.ctx, l.by, "profile_id", rows[0].ID)
	if err != nil {
		return err
	}
	all, err := l.parts.Registry.Rules.By(l.ctx, l.by, "profile_id", rows[0].ID)
	if err != nil {
		return err
	}
	commands, err := l.parts.Registry.Commands.By(l.ctx, l.by, "profile_id", rows[0].ID)
	if err != nil {
		return err
	}
	there := rules.Vocabulary{Commands: []string{}}
	for _, c := range commands {
		there.Commands = append(there.Commands, c.CommandKey)
	}
	if there.Fences, err = l.parts.Registry.GeoFences.Tokens(l.ctx, l.by); err != nil {
		return err
	}
	if l.parts.Connectors != nil {
		if there.Connectors, err = l.parts.Connectors(l.ctx, l.by.TenantID); err != nil {
			return err
		}
	}
	for _, m := range definitions {
		addMetric(&there, m.MetricKey, m.MinValue, m.MaxValue, m.OutOfRange, m.SourceNames)
	}
	slices.SortFunc(all, func(a, b *registry.DetectionRule) int { return strings.Compare(a.Token, b.Token) })
	for _, rule := range all {
		program, _, _ := compiler.Inspect(rule.Definition, rules.Options{GroupScoped: rule.GroupToken != nil})
		if program == nil || !rule.Enabled { // it does not run
			continue
		}
		for _, a := range adviceOn(program, there) {
			l.plan.Warnings = append(l.plan.Warnings, warningAt(profile, rule.Token, a))
		}
	}
	return nil
}

// warningAt is a remark on a rule of a profile, at the rule's position where the files declare it.
func warningAt(profile *Entity, rule string, a remark) string {
	at := profile.At
	if i := slices.IndexFunc(profile.Lists["detectionRules"], func(e *Entity) bool { return e.Name == rule }); i >= 0 {
		at = profile.Lists["detectionRules"][i].field("definition")
	}
	return fmt.Sprintf("%s: detection rule %s/%s: %s: %s", at, profile.Name, rule, a.field, a.message)
}

// declaredVocabulary is what a profile declares in the files that rules may speak of: its metrics.
func declaredVocabulary(profile *Entity) (there rules.Vocabulary) {
	for _, e := range profile.Lists["metricDefinitions"] {
		key, ok := e.Fields["metricKey"].(string)
		if !ok {
			continue
		}
		outOfRange, ok := e.Fields["outOfRange"].(string)
		if !ok {
			outOfRange = model.OutOfRangeFlag // that of a new definition
		}
		addMetric(&there, key, bound(e.Fields["minValue"]), bound(e.Fields["maxValue"]), outOfRange, texts(e.Fields["sourceNames"]))
	}
	return there
}

// addMetric adds a declared metric to what there is.
func addMetric(there *rules.Vocabulary, key string, low, high *float64, outOfRange string, sourceNames []string) {
	there.Metrics = append(there.Metrics, key)
	for _, name := range sourceNames {
		if there.SourceNames == nil {
			there.SourceNames = map[string]string{}
		}
		there.SourceNames[name] = key
	}
	if low == nil && high == nil {
		return
	}
	if there.Ranges == nil {
		there.Ranges = map[string]vocabulary.Range{}
	}
	there.Ranges[key] = vocabulary.Range{Min: low, Max: high, OutOfRange: outOfRange}
}

func bound(v any) *float64 {
	if x, ok := v.(float64); ok {
		return &x
	}
	return nil
}

// remark is what is probably not meant in a rule that can run.
type remark struct{ field, message string }

// adviceOn holds a rule against what there is. A profile that declares no metric takes any.
func adviceOn(p *rules.Program, there rules.Vocabulary) (out []remark) {
	when := p.Definition().When
	for _, w := range p.Against(there) {
		field := "when"
		switch {
		case w.Code == vocabulary.UnknownCommand || w.Code == vocabulary.UnknownConnector:
			field = "actions"
		case w.Code == vocabulary.UnknownMetric && when.Metric == w.Params[0]:
			field = "when.metric"
		case w.Code == vocabulary.ThresholdOutside:
			field = "when.threshold"
		}
		out = append(out, remark{field, w.Message})
	}
	return out
}
