package rules

import (
	"cmp"
	"slices"
	"strings"

	"weir/model"
)

// buckets is the number of parts that the devices of a profile are hashed into; each has a page for its clocks and one
// for its keys. A profile of 100,000 devices then has pages of some 50 KB, and one of a few devices as many rows as it
// has devices.
const buckets = 64

// profile is the active version of a profile and the state of its devices.
type profile struct {
	key         ProfileKey
	tenantToken string
	token       string
	version     int
	rules       []*rule           // sorted by token
	wanting     map[string][]want // by metric, of the rules that run; in the order of rules
	always      []int32           // rules that run and look at every sample
	parts       [buckets]bucket
	rulesDirty  bool
}

// want says that a rule names a metric, the metric-th of its wants, and whether a sample that carries it is judged.
type want struct {
	rule   int32
	metric int32
	judges bool
}

// rule is a rule of the active version.
type rule struct {
	token    string
	stable   string
	name     string
	kind     Kind
	severity string
	body     BodyHash
	view     model.RuleView
	program  *Program // nil when it does not run
	problem  string   // why it does not run
	wants    []string // metrics that the body names, sorted
	came     []bool   // which of wants came since this body has been live
	counters
	seen uint64 // last sample that it judged
}

// counters are results: they belong to the rule's stable id and are kept with the state.
type counters struct {
	EvalErrors  int64
	LateSamples int64
	RefusedKeys int64
	LastInputAt model.Nanos // receive time of the last sample in scope, 0 when there was none
}

// bucket holds a part of a profile's devices, sorted by id.
type bucket struct {
	devices      []*device
	devicesDirty bool
	keysDirty    bool
}

func (p *profile) bucket(deviceID int64) *bucket { return &p.parts[bucketOf(deviceID)] }

// bucketOf spreads row ids, which are dense, evenly. It is part of the page format.
func bucketOf(deviceID int64) int {
	return int(uint64(deviceID) * 0x9E3779B97F4A7C15 >> (64 - 6))
}

func (b *bucket) find(id int64) (int, bool) {
	return slices.BinarySearchFunc(b.devices, id, func(d *device, id int64) int { return cmp.Compare(d.id, id) })
}

func (b *bucket) insert(d *device) {
	at, _ := b.find(d.id)
	b.devices = slices.Insert(b.devices, at, d)
}

func (b *bucket) remove(d *device) {
	if at, ok := b.find(d.id); ok {
		b.devices = slices.Delete(b.devices, at, at+1)
	}
}

// Install makes a version the active one from the place on. A rule of the same token with an equal body keeps its
// state and counters; the state of another body, and of a rule that is gone, is dropped and its raised keys resolve at
// the place, in the order of rule tokens and device ids, under the version that raised them. A rule that does not
// compile under the present limits, or is beyond the tenant's bound, is kept and not run, and its state with it;
// so is one that no longer decodes, which only a newer Weir can bring about, since publish refuses it.
func (e *Engine) Install(at Position, ref ProfileRef, views []model.RuleView, emit Emit) {
	p := e.profiles[ref.ProfileKey]
	if p == nil {
		p = &profile{key: ref.ProfileKey}
		e.profiles[ref.ProfileKey] = p
	}
	e.activate(p, -1)
	next := e.compileAll(p, ref, views)
	moved := matchRules(p.rules, next)
	e.endKeys(p, moved, at, emit)
	p.tenantToken, p.token, p.version = ref.TenantToken, ref.Token, ref.Version
	p.rules = next
	p.rulesDirty = true
	p.index()
	e.activate(p, 1)
	if len(next) == 0 {
		e.forgetAll(p, at, emit)
	}
}

// Remove ends a profile that was deleted or has no active version any more. Raised keys resolve at the place.
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

// Detach ends the rules of a profile for the devices of one type: the type was given another profile or none.
func (e *Engine) Detach(at Position, k ProfileKey, deviceType int64, emit Emit) {
	if p := e.profiles[k]; p != nil {
		for _, d := range p.sorted() {
			if d.kind == deviceType {
				e.RemoveDevice(at, d.id, emit)
			}
		}
	}
}

// forgetAll lets go of every device of a profile without rules: nothing asks for their clocks.
func (e *Engine) forgetAll(p *profile, at Position, emit Emit) {
	for _, d := range p.sorted() {
		e.RemoveDevice(at, d.id, emit)
	}
}

// activate adds (1) or takes away (-1) the profile's running rules from the figures.
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

// compileAll compiles the rules of a version, sorted by token. What did not change is not compiled again.
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
			r.body = old.body // a newer Weir reads more strictly; the state waits for an author
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

// matchRules carries over what outlives a version and returns, for each old rule, its index among the new ones, or -1
// when its state goes.
func matchRules(old, next []*rule) []int32 {
	moved := make([]int32, len(old))
	for i, o := range old {
		moved[i] = -1
		j, ok := findRule(next, o.token)
		if !ok {
			continue
		}
		n := next[j]
		n.counters = o.counters
		if n.body == o.body {
			moved[i] = int32(j)
			n.inherit(o)
		}
	}
	return moved
}

// inherit takes over which metrics came. A rule that does not run keeps what its body has seen for the day it does.
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

// endKeys resolves and drops the keys of rules whose state goes, and gives the others their new index.
func (e *Engine) endKeys(p *profile, moved []int32, at Position, emit Emit) {
	for _, x := range p.raised(moved) {
		k, _ := x.device.find(x.rule)
		e.end(p, x.device, &x.device.keys[k], at, emit)
	}
	for i := range p.parts {
		b := &p.parts[i]
		for _, d := range b.devices {
			before := len(d.keys)
			d.move(moved)
			if gone := before - len(d.keys); gone > 0 {
				b.keysDirty = true
				e.release(p, gone)
			}
		}
	}
}

// move renumbers the keys of a device and drops those whose rule goes. Rules keep their order, so keys do.
func (d *device) move(moved []int32) {
	d.keys = slices.DeleteFunc(d.keys, func(k key) bool { return moved[k.rule] < 0 })
	for i := range d.keys {
		d.keys[i].rule = moved[d.keys[i].rule]
	}
	if len(d.keys) == 0 {
		d.keys = nil
	}
}

type raisedKey struct {
	rule   int32
	device *device
}

// raised lists the raised keys of the rules whose state goes, by rule and device id.
func (p *profile) raised(moved []int32) []raisedKey {
	var found []raisedKey
	for i := range p.parts {
		for _, d := range p.parts[i].devices {
			for _, k := range d.keys {
				if moved[k.rule] < 0 && k.state.Raised {
					found = append(found, raisedKey{k.rule, d})
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b raisedKey) int {
		return cmp.Or(cmp.Compare(a.rule, b.rule), cmp.Compare(a.device.id, b.device.id))
	})
	return found
}

// index prepares what Apply looks up.
func (p *profile) index() {
	p.wanting, p.always = map[string][]want{}, nil
	for i, r := range p.rules {
		if r.program == nil {
			continue
		}
		for j, name := range r.wants {
			judges := slices.Contains(r.program.carries, name)
			p.wanting[name] = append(p.wanting[name], want{int32(i), int32(j), judges})
		}
		if r.program.scope != scopeMetrics {
			p.always = append(p.always, int32(i))
		}
	}
}

// sorted lists the devices by id.
func (p *profile) sorted() []*device {
	var all []*device
	for i := range p.parts {
		all = append(all, p.parts[i].devices...)
	}
	slices.SortFunc(all, func(a, b *device) int { return cmp.Compare(a.id, b.id) })
	return all
}

func (p *profile) rule(token string) *rule {
	if i, ok := findRule(p.rules, token); ok {
		return p.rules[i]
	}
	return nil
}

func findRule(rs []*rule, token string) (int, bool) {
	return slices.BinarySearchFunc(rs, token, func(r *rule, t string) int { return strings.Compare(r.token, t) })
}
