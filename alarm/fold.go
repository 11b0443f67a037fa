package alarm

import (
	"slices"
	"strings"

	"weir/model"
	"weir/store/alarms"
)

// alarm is an alarm and what contributes to it. Its methods are a function of both and of their arguments; each returns the
// move, "" for none, and the severity before a move of severity.
type alarm struct {
	model.Alarm
	by []alarms.Contributor // sorted by rule

	stored  []alarms.Contributor // as the database has them
	touched bool                 // it differs from its row
}

// raise lets a rule contribute.
func (x *alarm) raise(c *model.Contribution) (move model.AlarmMove, before string) {
	x.put(c)
	x.touch(c)
	if x.State != model.AlarmActive {
		x.State, x.RaisedAt, x.ClearedAt, x.Metric = model.AlarmActive, c.Occurred, nil, c.Metric
		x.AcknowledgedAt, x.AcknowledgedBy, x.LastValue = nil, "", nil
		x.Severity = x.gravest()
		move = model.AlarmRaised
	} else {
		move, before = x.shift()
	}
	if c.HasValue {
		x.LastValue = new(c.Value)
	}
	return move, before
}

// drop ends what a rule contributes.
func (x *alarm) drop(c *model.Contribution) (move model.AlarmMove, before string) {
	at, known := x.find(c.Rule)
	if !known {
		return "", ""
	}
	x.by = slices.Delete(slices.Clone(x.by), at, at+1)
	return x.settle(c)
}

// reweigh gives what a rule contributes another severity.
func (x *alarm) reweigh(c *model.Contribution) (move model.AlarmMove, before string) {
	if at, known := x.find(c.Rule); !known || x.by[at].Severity == c.Severity {
		return "", ""
	}
	x.put(c)
	return x.settle(c)
}

// end ends everything that contributes.
func (x *alarm) end(c *model.Contribution) (move model.AlarmMove, before string) {
	x.by = nil
	return x.settle(c)
}

// settle is what the contributors that are left make of the alarm. What an operator has cleared stays so.
func (x *alarm) settle(c *model.Contribution) (move model.AlarmMove, before string) {
	x.touch(c)
	switch {
	case x.State != model.AlarmActive:
		return "", ""
	case len(x.by) == 0:
		x.State, x.ClearedAt = model.AlarmCleared, new(c.Occurred)
		return model.AlarmWasCleared, ""
	}
	return x.shift()
}

// shift shows the gravest severity of the contributors.
func (x *alarm) shift() (move model.AlarmMove, before string) {
	before, x.Severity = x.Severity, x.gravest()
	switch was, is := rank(before), rank(x.Severity); {
	case is < was:
		return model.AlarmEscalated, before
	case is > was:
		return model.AlarmDeescalated, before
	}
	return "", ""
}

// gravest is the gravest severity that is known; an unknown one does not count.
func (x *alarm) gravest() string {
	severity := model.AlarmIndeterminate
	for i := range x.by {
		if rank(x.by[i].Severity) < rank(severity) {
			severity = x.by[i].Severity
		}
	}
	return severity
}

// rank is the position of a severity, the gravest first. An unknown one comes last.
func rank(severity string) int {
	all := model.AlarmSeverities()
	if at := slices.Index(all, severity); at >= 0 {
		return at
	}
	return len(all)
}

func (x *alarm) find(rule string) (at int, known bool) {
	return slices.BinarySearchFunc(x.by, rule, func(c alarms.Contributor, rule string) int { return strings.Compare(c.Rule, rule) })
}

func (x *alarm) put(c *model.Contribution) {
	n := alarms.Contributor{Rule: c.Rule, Severity: c.Severity, Edge: model.EdgeID{Epoch: c.Edge.Epoch, Offset: c.Edge.Offset, Index: c.Edge.Index}}
	x.by = slices.Clone(x.by)
	if at, known := x.find(c.Rule); known {
		x.by[at] = n
	} else {
		x.by = slices.Insert(x.by, at, n)
	}
}

// touch notes that a contribution has reached the alarm.
func (x *alarm) touch(c *model.Contribution) {
	x.touched, x.UpdatedAt, x.Device = true, max(x.UpdatedAt, c.Received.Micros()), nonEmpty(c.Device, x.Device)
	x.Offset = max(x.Offset, c.Edge.Offset)
}

func nonEmpty(s, or string) string {
	if s == "" {
		return or
	}
	return s
}
