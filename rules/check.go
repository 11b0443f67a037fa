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

// check checks what the fields mean together, apart from expressions, and returns what the rule uses. The error is the
// first in the order of the documentation.
func (d *Definition) check(k Kind, l Limits) (Uses, *Error) {
	u, err := k.Uses(d)
	if u.As == "" {
		u.As = "type " + string(d.Type)
	}
	switch {
	case u.NoActions && len(d.Actions) > 0:
		return u, refuse("actions", "%s has no actions", u.As)
	case err != nil:
		return u, err
	}
	if err := d.checkFields(u); err != nil {
		return u, err
	}
	if err := d.When.checkForm(); err != nil {
		return u, err
	}
	if d.Op == Equal || d.Op == NotEqual {
		return u, refuse("op", "%s is allowed only in a condition", d.Op)
	}
	if err := k.Check(d); err != nil {
		return u, err
	}
	if err := d.checkDurations(l.MaxDuration); err != nil {
		return u, err
	}
	return u, d.checkActions(l.MaxDuration)
}

// checkFields compares the fields that are set with those that the kind uses.
func (d *Definition) checkFields(u Uses) *Error {
	for _, f := range bodyFields {
		if f.set(d) && !slices.Contains(u.Needs, f.name) && !slices.Contains(u.May, f.name) {
			return refuse(f.name, "not used by %s", u.As)
		}
	}
	for _, f := range bodyFields {
		if !f.set(d) && slices.Contains(u.Needs, f.name) {
			return refuse(f.name, "required by %s", u.As)
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

func (d *Definition) checkDurations(limit time.Duration) *Error {
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"window", d.Window}, {"hold", d.Hold}, {"timeout", d.Timeout}, {"gap", d.Gap}} {
		if err := checkPeriod(f.name, f.d, limit); err != nil {
			return err
		}
	}
	if d.Lateness != nil {
		return checkPeriod("lateness", *d.Lateness, limit)
	}
	return nil
}

func checkPeriod(field string, d, limit time.Duration) *Error {
	if d > limit {
		return refuse(field, "%s is longer than the maximum rule duration of %s", FormatDuration(d), FormatDuration(limit))
	}
	return nil
}

// checkActions checks the actions apart from their expressions.
func (d *Definition) checkActions(limit time.Duration) *Error {
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
			if err := checkPeriod(join(path, "maxAge"), *a.MaxAge, limit); err != nil {
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
