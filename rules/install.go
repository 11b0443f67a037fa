package rules

import (
	"cmp"
	"slices"
	"strings"

	"weir/model"
)

// Install makes a version the active one from the position on. A rule of the same token with an equal body keeps its
// state and counters. The state of another body, and of a rule that the version lacks, is dropped; its raised keys
// resolve at the position, in the order of rule tokens and device ids, under the version that raised them. A rule that
// does not compile under the present limits, or exceeds the tenant's limit, is kept with its state and does not run; the
// same holds for a rule that no longer decodes, which happens only after an upgrade, since publish refuses it.
func (e *Engine) Install(at Position, ref ProfileRef, views []model.RuleView, emit Emit) {
	e.reached = max(e.reached, at.Listening)
	p := e.profiles[ref.ProfileKey]
	if p == nil {
		p = e.newProfile(ref.ProfileKey)
		e.profiles[ref.ProfileKey] = p
	}
	e.taking.flush(p)
	e.activate(p, -1)
	next := e.compileAll(p, ref, views)
	moved := matchRules(p.rules, next)
	old := p.rules
	e.endKeys(p, moved, at, emit)
	p.rules = next
	p.tenantToken, p.token, p.version = ref.TenantToken, ref.Token, ref.Version
	e.replaceContributions(p, old, moved, at)
	p.rulesDirty = true
	p.index()
	e.armTimers(p)
	e.activate(p, 1)
	if len(next) == 0 {
		e.removeAll(p, at, emit)
	}
}

// Remove removes a profile that was deleted or has no active version any more. Raised keys resolve at the position.
func (e *Engine) Remove(at Position, k ProfileKey, emit Emit) {
	p := e.profiles[k]
	if p == nil {
		return
	}
	e.Install(at, ProfileRef{ProfileKey: k, TenantToken: p.tenantToken, Token: p.token, Version: p.version}, nil, emit)
	for pk := range e.stored {
		if pk.profile == k {
			e.dropped[pk] = true
		}
	}
	delete(e.profiles, k)
}

// Detach removes the devices of one type from a profile: the type was given another profile or none.
func (e *Engine) Detach(at Position, k ProfileKey, deviceType int64, emit Emit) {
	if p := e.profiles[k]; p != nil {
		for _, d := range p.sorted() {
			if d.kind == deviceType {
				e.RemoveDevice(at, d.id, emit)
			}
		}
	}
}

// inScope reports whether the device of the bound sample is a member of the group to which a rule is scoped. Where that cannot be told the
// evaluation has failed.
func (e *Engine) inScope(p *profile, d *device, r *rule) bool {
	member, known := e.sample.facts().InGroup(p.key.Tenant, d.id, r.view.Group, r.view.GroupVersion)
	if !known {
		e.count(p, r, &Note{InScope: true, Failed: true})
	}
	return member && known
}

// Rescope ends what a device has in rules that are scoped to groups which it has left, from this record on.
func (e *Engine) Rescope(at Position, deviceID int64, f Facts, emit Emit) {
	if d := e.devices.get(deviceID); d != nil && d.profile.scoped {
		e.rescope(d, at, f, emit)
	}
}

// RescopeAll is Rescope for every device: any may have left.
func (e *Engine) RescopeAll(at Position, f Facts, emit Emit) {
	for _, p := range e.sortedProfiles() {
		if p.scoped {
			for _, d := range p.sorted() {
				e.rescope(d, at, f, emit)
			}
		}
	}
}

func (e *Engine) rescope(d *device, at Position, f Facts, emit Emit) {
	e.touch(d)
	p := d.profile
	for i := 0; i < len(d.keys); {
		r := p.rules[d.keys[i].rule]
		if member, known := f.InGroup(p.key.Tenant, d.id, r.view.Group, r.view.GroupVersion); r.view.Group == "" || member || !known {
			i++
			continue
		}
		e.end(p, d, &d.keys[i], at, emit)
		e.dropKey(p, d, i)
	}
}

// removeAll lets go of every device of a profile without rules: nothing asks for their clocks.
func (e *Engine) removeAll(p *profile, at Position, emit Emit) {
	for _, d := range p.sorted() {
		e.RemoveDevice(at, d.id, emit)
	}
}

// activate adds (1) or subtracts (-1) the profile's running rules in the figures.
func (e *Engine) activate(p *profile, sign int) {
	n := 0
	for _, r := range p.rules {
		if r.program != nil {
			n++
		}
	}
	e.tenant(p.key.Tenant).rules += sign * n
	e.metrics.rules.Add(float64(sign * n))
}

// compileAll compiles the rules of a version, sorted by token. Unchanged rules are not compiled again.
func (e *Engine) compileAll(p *profile, ref ProfileRef, views []model.RuleView) []*rule {
	views = slices.Clone(views)
	slices.SortStableFunc(views, func(a, b model.RuleView) int { return strings.Compare(a.Token, b.Token) })
	views = slices.CompactFunc(views, func(a, b model.RuleView) bool { return a.Token == b.Token })
	room := e.limits.MaxRules - e.tenant(ref.Tenant).rules
	next := make([]*rule, 0, len(views))
	for _, v := range views {
		r := e.compileRule(p.rule(v.Token), ref, v)
		if r.program != nil {
			if room--; room < 0 {
				r.program, r.problem = nil, "the tenant has more rules than its limit allows"
			}
		}
		next = append(next, r)
	}
	return next
}

func (e *Engine) compileRule(old *rule, ref ProfileRef, v model.RuleView) *rule {
	r := &rule{token: v.Token, stable: model.RuleStableID(ref.Token, v.Token), name: v.Token, view: v}
	if old != nil && old.program != nil && old.view == v {
		r.describe(old.program.def)
		r.program = old.program
	} else {
		def, prg, err := e.compiler.compileView(v)
		switch {
		case def != nil:
			r.describe(def)
		case old != nil:
			r.body = old.body // a newer Weir decodes more strictly; the state is kept until the rule is corrected
		default:
			r.body = hashBody(v.Definition)
		}
		if r.program = prg; err != nil {
			r.problem = err.Error()
		}
	}
	if r.program != nil {
		r.wants = r.program.wants
	}
	r.came = make([]bool, len(r.wants))
	return r
}

func (r *rule) describe(d *Definition) {
	r.name, r.kind, r.severity = d.Name, d.Type, d.Severity
	r.body = d.BodyHash(r.view.Group, r.view.GroupVersion)
}

// matchRules copies what outlives a version and returns, for each old rule, its index among the new ones, or -1 when
// its state is dropped.
func matchRules(old, next []*rule) []int32 {
	moved := make([]int32, len(old))
	for i, o := range old {
		moved[i] = -1
		j, ok := findRule(next, o.token)
		if !ok {
			continue
		}
		n := next[j]
		n.counters, n.ceiling = o.counters, o.ceiling
		if n.body == o.body {
			moved[i] = int32(j)
			n.inherit(o)
		}
	}
	return moved
}

// inherit copies which metrics came. A rule that does not run keeps the list for the time when it runs again.
func (r *rule) inherit(o *rule) {
	if r.program == nil {
		r.wants, r.came = o.wants, o.came
		if r.kind == "" {
			r.kind, r.severity = o.kind, o.severity
		}
		return
	}
	for i, name := range r.wants {
		if j, ok := slices.BinarySearch(o.wants, name); ok {
			r.came[i] = o.came[j]
		}
	}
}

// endKeys resolves and drops the keys of rules whose state is dropped, and renumbers the others: the rules of the next version must
// follow at once.
func (e *Engine) endKeys(p *profile, moved []int32, at Position, emit Emit) {
	for _, x := range p.raised(moved) {
		e.end(p, x.device, &x.device.keys[x.key], at, emit)
	}
	for d := range p.holders {
		before := len(d.keys)
		e.dropKeys(d, moved)
		if gone := before - len(d.keys); gone > 0 {
			p.keysChanged(d)
			e.release(p, gone)
		}
	}
	for d := range p.holders {
		d.renumber(moved)
	}
}

// dropKeys drops the keys of dropped rules.
func (e *Engine) dropKeys(d *device, moved []int32) {
	d.keys = slices.DeleteFunc(d.keys, func(k key) bool {
		if moved[k.rule] < 0 {
			e.let(&k)
			return true
		}
		return false
	})
	if len(d.keys) == 0 {
		d.keys = nil
	}
}

// renumber gives the keys of a device the numbers of their rules in the next version. Rules keep their order, so keys do, and so does
// the heap of timers, which must not change between the first device and the last.
func (d *device) renumber(moved []int32) {
	for i := range d.keys {
		k := &d.keys[i]
		if k.rule = moved[k.rule]; k.extra != nil {
			k.extra.rule = k.rule
		}
	}
}

// armTimers starts the timers of the rules that run and stops those of the others, whose keys keep their due times.
func (e *Engine) armTimers(p *profile) {
	for d := range p.holders {
		e.arm(d)
	}
}

type raisedKey struct {
	rule   int32
	device *device
	key    int
}

// raised lists the raised keys of the rules whose state is dropped, by rule, device id and anchor.
func (p *profile) raised(moved []int32) []raisedKey {
	var found []raisedKey
	for d := range p.holders {
		for i, k := range d.keys {
			if moved[k.rule] < 0 && k.raised {
				found = append(found, raisedKey{k.rule, d, i})
			}
		}
	}
	slices.SortFunc(found, func(a, b raisedKey) int {
		return cmp.Or(cmp.Compare(a.rule, b.rule), cmp.Compare(a.device.id, b.device.id), cmp.Compare(a.key, b.key))
	})
	return found
}
