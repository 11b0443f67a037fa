package rules

import (
	"cmp"
	"slices"
	"strings"

	"weir/model"
)

// buckets is the number of parts into which the devices of a profile are hashed. Each part has a page of clocks and a
// page of keys. A profile of 100,000 devices has pages of about 50 KB; one of a few devices has as many pages as devices.
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
	presence    []int32           // rules that run and judge transitions of presence
	parts       [buckets]bucket
	shared      *device // holds the keys without a device
	rulesDirty  bool
	sharedDirty bool
}

func newProfile(k ProfileKey) *profile {
	p := &profile{key: k}
	p.shared = &device{profile: p}
	return p
}

// keysChanged marks the page of the device's keys as changed.
func (p *profile) keysChanged(d *device) {
	if d == p.shared {
		p.sharedDirty = true
		return
	}
	p.bucket(d.id).keysDirty = true
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
	kind     Type
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

// counters are results: they belong to the rule's stable id and are stored with the state.
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

// bucketOf distributes row ids, which are dense, evenly. It is part of the page format.
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

// Install makes a version the active one from the position on. A rule of the same token with an equal body keeps its
// state and counters. The state of another body, and of a rule that the version lacks, is dropped; its raised keys
// resolve at the position, in the order of rule tokens and device ids, under the version that raised them. A rule that
// does not compile under the present limits, or exceeds the tenant's limit, is kept with its state and does not run; the
// same holds for a rule that no longer decodes, which happens only after an upgrade, since publish refuses it.
func (e *Engine) Install(at Position, ref ProfileRef, views []model.RuleView, emit Emit) {
	p := e.profiles[ref.ProfileKey]
	if p == nil {
		p = newProfile(ref.ProfileKey)
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
		n.counters = o.counters
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

// endKeys resolves and drops the keys of rules whose state is dropped, and renumbers the others.
func (e *Engine) endKeys(p *profile, moved []int32, at Position, emit Emit) {
	for _, x := range p.raised(moved) {
		e.end(p, x.device, &x.device.keys[x.key], at, emit)
	}
	for d := range p.holders {
		before := len(d.keys)
		e.moveKeys(d, moved)
		if gone := before - len(d.keys); gone > 0 {
			p.keysChanged(d)
			e.release(p, gone)
		}
	}
}

// moveKeys renumbers the keys of a device and drops those of dropped rules. Rules keep their order, so keys do.
func (e *Engine) moveKeys(d *device, moved []int32) {
	d.keys = slices.DeleteFunc(d.keys, func(k key) bool {
		if moved[k.rule] < 0 {
			e.timers.set(k.extra, 0)
			return true
		}
		return false
	})
	for i := range d.keys {
		d.keys[i].rule = moved[d.keys[i].rule]
	}
	if len(d.keys) == 0 {
		d.keys = nil
	}
}

// armTimers starts the timers of the rules that run and stops those of the others, whose keys keep their due times.
func (e *Engine) armTimers(p *profile) {
	for d := range p.holders {
		for i := range d.keys {
			e.timers.arm(d.keys[i].extra, p.rules[d.keys[i].rule].program != nil)
		}
	}
}

// holders yields everything that holds keys: the shared keys and the devices, in no order that means anything.
func (p *profile) holders(yield func(*device) bool) {
	if !yield(p.shared) {
		return
	}
	for i := range p.parts {
		for _, d := range p.parts[i].devices {
			if !yield(d) {
				return
			}
		}
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

// index builds the lists that Apply looks up.
func (p *profile) index() {
	p.wanting, p.always, p.presence = map[string][]want{}, nil, nil
	for i, r := range p.rules {
		if r.program == nil {
			continue
		}
		for j, name := range r.wants {
			judges := slices.Contains(r.program.carries, name)
			p.wanting[name] = append(p.wanting[name], want{int32(i), int32(j), judges})
		}
		switch r.program.scope {
		case scopeMetrics:
		case scopePresence:
			p.presence = append(p.presence, int32(i))
		default:
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
	return slices.BinarySearchFunc(rs, token, (*rule).compareToken)
}

func (r *rule) compareToken(token string) int { return strings.Compare(r.token, token) }
