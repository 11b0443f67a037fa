package preview

import (
	"weir/model"
	"weir/rules/trace"
)

// Step is what one node of a graph did at an edge.
type Step = trace.Step

// MaxDetail is the maximum length of a detail, in characters.
const MaxDetail = 200

// Trace gives the steps of each firing, the first ones up to MaxSteps steps of all together; where there are more it degrades the result.
// Without a function there are none.
func (r *Result) Trace(steps func(model.Edge) []Step) [][]Step {
	all := make([][]Step, len(r.Firings))
	if steps == nil {
		return all
	}
	n := 0
	for i, f := range r.Firings {
		all[i] = steps(f.Edge())
		if n += len(all[i]); n > MaxSteps {
			all[i] = nil
			r.Degrade("trace cap: firings from %s on have no trace", f.Occurred.Time().UTC().Format("2006-01-02T15:04:05.000Z"))
			break
		}
		for j := range all[i] {
			if d := []rune(all[i][j].Detail); len(d) > MaxDetail {
				all[i][j].Detail = string(d[:MaxDetail-1]) + "…"
			}
		}
	}
	return all
}
