package rules

import "strconv"

// compileActions checks the expressions of the actions.
func (c *Compiler) compileActions(d *Definition) ([]Warning, error) {
	var warnings []Warning
	for i := range d.Actions {
		a := &d.Actions[i]
		readsValue := false
		for _, x := range a.expressions(c.envs, actionPath(i)) {
			if x.text == "" {
				continue
			}
			checked, _, err := x.env.check(x.text, c.limits.MaxCost)
			if err != nil {
				return nil, refuse(x.field, "%v", err)
			}
			r := readsOf(checked.NativeRep().Expr())
			readsValue = readsValue || r.vars[varValue] && !r.vars[varHasValue]
		}
		if readsValue && !d.hasValue() {
			warnings = append(warnings, Warning{WarnValueNeverSet, []string{strconv.Itoa(i)},
				"action " + strconv.Itoa(i) + " reads value, but no detection of this rule has one: it is always 0"})
		}
	}
	return warnings, nil
}

type expression struct {
	field, text string
	env         *environment
}

// expressions lists the expressions of an action in the order in which they are checked.
func (a *Action) expressions(envs *environments, path string) []expression {
	var xs []expression
	at := join(path, string(a.Type))
	switch {
	case a.RaiseAlarm != nil:
		xs = append(xs, expression{join(at, "alarmKeyTemplate"), a.RaiseAlarm.AlarmKeyTemplate, &envs.alarmKey})
	case a.HTTPCall != nil:
		xs = append(xs, expression{join(at, "bodyTemplate"), a.HTTPCall.BodyTemplate, &envs.template})
	case a.Publish != nil:
		xs = append(xs, expression{join(at, "payloadTemplate"), a.Publish.PayloadTemplate, &envs.template})
	}
	return append(xs, expression{join(path, "guard"), a.Guard, &envs.guard})
}

// hasValue reports whether any edge of the rule has a value.
func (d *Definition) hasValue() bool {
	switch d.Type {
	case DeltaRate, Aggregate:
		return true
	case Threshold, Repeating:
		return d.When.Metric != ""
	}
	return false
}
