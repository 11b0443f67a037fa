package canvas

import (
	"strconv"

	"weir/model"
	"weir/rules"
	"weir/rules/trace"
)

// Tracer returns what says of an edge of a compiled canvas what its nodes did: source and condition, and then each action in the order of the
// ids, with the branches before it. Nodes on which no action depends take no part. It is not safe for concurrent use.
func (c *Compiler) Tracer(r *Result) func(model.Edge) []trace.Step {
	t := &tracer{rules: c.rules, wiring: r.Wiring, program: r.Program}
	return t.trace
}

// tracer evaluates the branches of a canvas each by itself. Whether an action is performed is asked of the compiled rule.
type tracer struct {
	rules   *rules.Compiler
	wiring  Wiring
	program *rules.Program
	guards  map[string]*rules.Guard // by node, each compiled once
}

func (t *tracer) trace(f model.Edge) []trace.Step {
	raised := f.Signal == model.Raised
	source := trace.Step{Node: t.wiring.Source, Kind: trace.KindSource, Disposition: trace.Delivered}
	if f.Timer {
		source.Detail = trace.ByTimer
	}
	condition := trace.Step{Node: t.wiring.Condition, Kind: trace.KindCondition, Disposition: f.Signal.String()}
	if f.HasValue {
		condition.Detail = "value " + strconv.FormatFloat(f.Value, 'g', -1, 64)
	}
	steps := []trace.Step{source, condition}
	passed := map[string]bool{} // of the branches whose step stands
	for i, a := range t.wiring.Actions {
		stopped := ""
		for _, b := range a.Branches {
			passes, stands := passed[b.Node]
			if !stands {
				step := t.branch(b, &f, stopped)
				passes = step.Disposition == trace.Passed
				passed[b.Node], steps = passes, append(steps, step)
			}
			if !passes && stopped == "" {
				stopped = b.Node
			}
		}
		step := trace.Step{Node: a.Node, Kind: trace.KindAction}
		if raised {
			step.Disposition, step.Detail = trace.Skipped, behind(stopped)
		} else {
			step.Disposition = t.resolved(i)
		}
		steps = append(steps, step)
	}
	if raised {
		t.perform(&f, steps)
	}
	return steps
}

// behind is why a node is skipped that comes after a branch, "" for none.
func behind(branch string) string {
	if branch == "" {
		return ""
	}
	return "branch " + branch + " did not pass"
}

// branch is the step of a branch, of which one before it may have stopped the edge. No guard is asked about a resolved edge.
func (t *tracer) branch(b WiredBranch, f *model.Edge, stopped string) trace.Step {
	step := trace.Step{Node: b.Node, Kind: trace.KindBranch, Disposition: trace.Skipped}
	if f.Signal != model.Raised {
		return step
	}
	if stopped != "" {
		step.Detail = behind(stopped)
		return step
	}
	holds, err := false, error(nil)
	if guard, refused := t.guard(b); refused != nil {
		err = refused
	} else {
		holds, err = guard.Holds(f)
	}
	switch {
	case err != nil:
		step.Disposition, step.Detail = trace.Blocked, err.Error()
	case holds:
		step.Disposition = trace.Passed
	default:
		step.Disposition = trace.Blocked
	}
	return step
}

func (t *tracer) guard(b WiredBranch) (*rules.Guard, error) {
	if g := t.guards[b.Node]; g != nil {
		return g, nil
	}
	g, err := t.rules.CompileGuard(b.Guard)
	if err != nil {
		return nil, err
	}
	if t.guards == nil {
		t.guards = map[string]*rules.Guard{}
	}
	t.guards[b.Node] = g
	return g, nil
}

// resolved is what an action does at a resolved edge.
func (t *tracer) resolved(i int) string {
	if t.program.Definition().Actions[i].Type == rules.ActionRaiseAlarm {
		return trace.Cleared
	}
	return trace.Inert
}

// perform enters what the actions do at a raised edge.
func (t *tracer) perform(f *model.Edge, steps []trace.Step) {
	byNode := map[string]*trace.Step{}
	for i := range steps {
		byNode[steps[i].Node] = &steps[i]
	}
	t.program.WouldPerform(f, func(i int, performed bool, why error) {
		step := byNode[t.wiring.Actions[i].Node]
		switch {
		case performed && t.program.Definition().Actions[i].Type == rules.ActionRaiseAlarm:
			step.Disposition, step.Detail = trace.Raised, ""
		case performed:
			step.Disposition, step.Detail = trace.Sent, ""
		case why != nil && step.Detail == "":
			step.Detail = why.Error()
		}
	})
}
