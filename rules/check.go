package rules

import (
	"slices"
	"time"
)

// field is one optional field of a definition, in the order of the documentation.
type field struct {
	name string
	set  func(*Definition) bool
}

var bodyFields = [...]field{
	{"when", func(d *Definition) bool { return !d.When.Empty() }},
	{"metric", func(d *Definition) bool { return d.Metric != "" }},
	{"window", func(d *Definition) bool { return d.Window != 0 }},
	{"hold", func(d *Definition) bool { return d.Hold != 0 }},
	{"timeout", func(d *Definition) bool { return d.Timeout != 0 }},
	{"gap", func(d *Definition) bool { return d.Gap != 0 }},
	{"count", func(d *Definition) bool { return d.Count != 0 }},
	{"rate", func(d *Definition) bool { return d.Rate }},
	{"windowMode", func(d *Definition) bool { return d.WindowMode != "" }},
	{"agg", func(d *Definition) bool { return d.Agg != "" }},
	{"op", func(d *Definition) bool { return d.Op != "" }},
	{"threshold", func(d *Definition) bool { return d.Threshold != nil }},
	{"anchorType", func(d *Definition) bool { return d.AnchorType != "" }},
	{"memberCap", func(d *Definition) bool { return d.MemberCap != 0 }},
}

// use says which fields a kind needs and which it may have besides. Lateness, severity and actions are not listed.
type use struct {
	needs, may []string
	of         string // how an error names the kind
}

// uses returns the use of the definition's kind, or what an aggregate lacks to have one.
func (d *Definition) uses() (use, *Error) {
	switch d.Type {
	case Threshold:
		return use{needs: []string{"when"}, of: "type threshold"}, nil
	case DeltaRate:
		return use{needs: []string{"metric", "op", "threshold"}, may: []string{"when", "rate"}, of: "type deltaRate"}, nil
	case Repeating:
		return use{needs: []string{"count", "window"}, may: []string{"when"}, of: "type repeating"}, nil
	case Duration:
		return use{needs: []string{"when", "hold"}, of: "type duration"}, nil
	case Absence:
		return use{needs: []string{"timeout"}, of: "type absence"}, nil
	case Aggregate:
		return d.aggregateUse()
	case Correlation:
		return use{needs: []string{"anchorType", "count", "window"}, may: []string{"when", "memberCap"}, of: "type correlation"}, nil
	default:
		return use{of: "type connectivity"}, nil
	}
}

func (d *Definition) aggregateUse() (use, *Error) {
	switch {
	case d.WindowMode == "":
		return use{}, refuse("windowMode", "required by type aggregate")
	case d.Agg == "":
		return use{}, refuse("agg", "required by type aggregate")
	case d.WindowMode == CountWindow && d.Agg == AggCount:
		return use{}, refuse("agg", "count cannot be aggregated over a window that is a count itself")
	}
	u := use{needs: []string{"windowMode", "agg", "op", "threshold"}, may: []string{"when"},
		of: "type aggregate with windowMode " + d.WindowMode + " and agg " + d.Agg}
	if d.Agg != AggCount {
		u.needs = append(u.needs, "metric")
	}
	switch d.WindowMode {
	case Session:
		u.needs = append(u.needs, "gap")
	case CountWindow:
		u.needs = append(u.needs, "count")
	default:
		u.needs = append(u.needs, "window")
	}
	return u, nil
}

// checkTogether checks what the fields mean together, apart from expressions: the first offence in the order of the
// documentation.
func (d *Definition) checkTogether(l Limits) *Error {
	if d.Type == Correlation && len(d.Actions) > 0 {
		return refuse("actions", "type correlation has no actions")
	}
	if err := d.checkUse(); err != nil {
		return err
	}
	if err := d.When.checkForm(); err != nil {
		return err
	}
	if d.Op == Equal || d.Op == NotEqual {
		return refuse("op", "%s is allowed only in a condition", d.Op)
	}
	if err := d.checkMemberCap(); err != nil {
		return err
	}
	if err := d.checkDurations(l.MaxDuration); err != nil {
		return err
	}
	return d.checkActions(l.MaxDuration)
}

func (d *Definition) checkUse() *Error {
	u, err := d.uses()
	if err != nil {
		return err
	}
	for _, f := range bodyFields {
		if f.set(d) && !slices.Contains(u.needs, f.name) && !slices.Contains(u.may, f.name) {
			return refuse(f.name, "not used by %s", u.of)
		}
	}
	for _, f := range bodyFields {
		if !f.set(d) && slices.Contains(u.needs, f.name) {
			return refuse(f.name, "required by %s", u.of)
		}
	}
	return nil
}

func (c *Condition) checkForm() *Error {
	switch {
	case !c.structured():
		return nil
	case c.CEL != "":
		return refuse("when", "a comparison and cel cannot stand together")
	case c.Threshold != nil && c.ThresholdAttr != "":
		return refuse("when", "threshold and thresholdAttr cannot stand together")
	case c.Metric == "":
		return refuse("when", "the comparison lacks its metric")
	case c.Op == "":
		return refuse("when", "the comparison lacks its op")
	case c.Threshold == nil && c.ThresholdAttr == "":
		return refuse("when", "the comparison lacks its threshold or thresholdAttr")
	}
	return nil
}

func (d *Definition) checkMemberCap() *Error {
	if d.Type != Correlation {
		return nil
	}
	most := d.MemberCap
	if most == 0 {
		most = DefaultMemberCap
	}
	if d.Count > most {
		return refuse("memberCap", "%d is below count, which is %d", most, d.Count)
	}
	return nil
}

func (d *Definition) checkDurations(most time.Duration) *Error {
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"window", d.Window}, {"hold", d.Hold}, {"timeout", d.Timeout}, {"gap", d.Gap}} {
		if err := checkPeriod(f.name, f.d, most); err != nil {
			return err
		}
	}
	if d.Lateness != nil {
		return checkPeriod("lateness", *d.Lateness, most)
	}
	return nil
}

func checkPeriod(field string, d, most time.Duration) *Error {
	if d > most {
		return refuse(field, "%s is longer than the maximum rule duration of %s", FormatDuration(d), FormatDuration(most))
	}
	return nil
}

// checkActions checks the actions but for their expressions.
func (d *Definition) checkActions(most time.Duration) *Error {
	seen := map[string]int{}
	for i := range d.Actions {
		a, path := &d.Actions[i], actionPath(i)
		if a.Type == ActionRaiseAlarm && d.Severity == "" {
			return refuse(path, "raiseAlarm needs a severity on the rule")
		}
		if a.MaxAge != nil {
			if a.Type == ActionRaiseAlarm {
				return refuse(join(path, "maxAge"), "not used by raiseAlarm")
			}
			if err := checkPeriod(join(path, "maxAge"), *a.MaxAge, most); err != nil {
				return err
			}
		}
		content := a.content()
		if first, ok := seen[content]; ok {
			return refuse(path, "the same as %s", actionPath(first))
		}
		seen[content] = i
	}
	return nil
}
