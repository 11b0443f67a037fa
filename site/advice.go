package site

import (
	"fmt"
	"math"
	"slices"
	"strconv"
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
	if there.Fences, err = l.parts.Registry.FenceTokens(l.ctx, l.by); err != nil {
		return err
	}
	if l.parts.Connectors != nil {
		if there.Connectors, err = l.parts.Connectors(l.ctx, l.by.TenantID); err != nil {
			return err
		}
	}
	metrics := make([]metric, len(definitions))
	for i, m := range definitions {
		metrics[i] = metric{m.MetricKey, m.MinValue, m.MaxValue, m.OutOfRange, m.SourceNames}
	}
	slices.SortFunc(all, func(a, b *registry.DetectionRule) int { return strings.Compare(a.Token, b.Token) })
	for _, rule := range all {
		program, _, _ := compiler.Inspect(rule.Definition, rules.Options{GroupScoped: rule.GroupToken != nil})
		if program == nil || !rule.Enabled { // it does not run
			continue
		}
		for _, a := range adviceOn(program, metrics, there) {
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

// declaredMetrics are the metrics that a profile declares in the files.
func declaredMetrics(profile *Entity) (metrics []metric) {
	for _, e := range profile.Lists["metricDefinitions"] {
		key, ok := e.Fields["metricKey"].(string)
		if !ok {
			continue
		}
		outOfRange, ok := e.Fields["outOfRange"].(string)
		if !ok {
			outOfRange = model.OutOfRangeFlag // that of a new definition
		}
		metrics = append(metrics, metric{key, bound(e.Fields["minValue"]), bound(e.Fields["maxValue"]), outOfRange, texts(e.Fields["sourceNames"])})
	}
	return metrics
}

func bound(v any) *float64 {
	if x, ok := v.(float64); ok {
		return &x
	}
	return nil
}

// metric is a declared metric with the bounds of its values, nil for none, what becomes of a value outside them, and its other names.
type metric struct {
	key        string
	min, max   *float64
	outOfRange string
	sources    []string // other names under which it is sent
}

// beyond says what a rule sees of a value outside the range.
func (m *metric) beyond() string {
	switch m.outOfRange {
	case model.OutOfRangeFlag:
		return "only a value outside the range crosses it; outOfRange: FLAG keeps such a value and lets rules judge it"
	case model.OutOfRangeClamp:
		return "no value crosses it, because outOfRange: CLAMP replaces a value outside the range by the bound"
	}
	return "no value crosses it, because outOfRange: REFUSE makes a value outside the range a dead letter; FLAG would keep it"
}

// remark is what is probably not meant in a rule that can run.
type remark struct{ field, message string }

// adviceOn holds a rule against the metrics of its profile, and against what else there is. A profile that declares no metric takes any.
func adviceOn(p *rules.Program, metrics []metric, there rules.Vocabulary) (out []remark) {
	for _, m := range metrics {
		there.Metrics = append(there.Metrics, m.key)
		for _, name := range m.sources {
			if there.SourceNames == nil {
				there.SourceNames = map[string]string{}
			}
			there.SourceNames[name] = m.key
		}
	}
	when := p.Definition().When
	for _, w := range there.Missing(p.Names()) {
		field := "when"
		switch {
		case w.Code == vocabulary.UnknownCommand || w.Code == vocabulary.UnknownConnector:
			field = "actions"
		case w.Code == vocabulary.UnknownMetric && when.Metric == w.Params[0]:
			field = "when.metric"
		}
		out = append(out, remark{field, w.Message})
	}
	i := slices.Index(there.Metrics, when.Metric)
	if i < 0 || when.Threshold == nil {
		return out
	}
	if m := metrics[i]; m.min != nil && *when.Threshold < *m.min || m.max != nil && *when.Threshold > *m.max {
		out = append(out, remark{"when.threshold", fmt.Sprintf("%v lies outside of the range of the metric %q, %s..%s: %s", *when.Threshold, m.key, limit(m.min), limit(m.max),
			m.beyond())})
	}
	return out
}

func limit(x *float64) string {
	if x == nil {
		return ""
	}
	return strconv.FormatFloat(*x, 'g', -1, 64)
}
