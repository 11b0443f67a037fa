package rules

import (
	"strconv"

	"weir/model"
)

// A rule with placement EDGE is judged by the edge behind which a device is, once that runs it. Here its state of such a device ends, and what the edge
// fires is acted on like an edge of its own.

// FollowSites sets what reports whether the site of a link judges what comes next by the rules of a profile (token) with placement EDGE.
func (e *Engine) FollowSites(judged func(tenant int64, link, profile string) bool) {
	e.judgedAtSite = judged
}

// atSite reports whether the rule is judged at the sites that run it.
func (r *rule) atSite() bool { return r.view.Placement == model.PlacementEdge }

// isAtSite reports whether the site through which a device was last heard judges the rules of its profile.
func (e *Engine) isAtSite(p *profile, d *device) bool {
	return e.judgedAtSite != nil && d.link != nil && e.judgedAtSite(p.key.Tenant, d.link.name, p.token)
}

// leaveToSite ends what a device has in rules that its site judges. What is raised resolves at the position.
func (e *Engine) leaveToSite(p *profile, d *device, at Position, emit Emit) {
	touched := false
	for i := 0; i < len(d.keys); {
		if !p.rules[d.keys[i].rule].atSite() {
			i++
			continue
		}
		if !touched {
			e.touch(d)
			touched = true
		}
		e.end(p, d, &d.keys[i], at, emit)
		e.dropKey(p, d, i)
	}
}

// LeaveToSites ends what devices have in rules that their sites have come to judge, from this record on.
func (e *Engine) LeaveToSites(at Position, tenant int64, emit Emit) {
	for _, p := range e.sortedProfiles() {
		if p.key.Tenant != tenant {
			continue
		}
		for _, d := range p.sorted() {
			if e.isAtSite(p, d) {
				e.leaveToSite(p, d, at, emit)
			}
		}
	}
}

// Foreign takes in an edge of a rule that a site has judged. It reports false where the active version of the profile has no such rule that runs: nothing is
// emitted then.
func (e *Engine) Foreign(at Position, k ProfileKey, dev Device, f *model.Firing, emit Emit) bool {
	p := e.profiles[k]
	if p == nil {
		return false
	}
	r := p.rule(f.Rule)
	if r == nil || r.program == nil {
		return false
	}
	edge := model.Edge{
		ID:     model.EdgeID{Epoch: at.Epoch, Offset: at.Offset, Index: at.Index, Rule: r.stable, Key: strconv.FormatInt(dev.ID, 10)},
		Tenant: p.tenantToken, TenantID: p.key.Tenant, Profile: p.token, Version: p.version,
		Rule: r.token, Kind: string(r.kind), Signal: f.Signal,
		Series: dev.Token, Device: dev.ID,
		Occurred: f.Occurred, Received: at.Received,
		Severity: r.severity, Value: f.Value, HasValue: f.HasValue,
	}
	emit(edge)
	e.foreign = true
	e.act(p, r, &edge)
	e.foreign = false
	return true
}
