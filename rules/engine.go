package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
)

// Emit takes an edge. It must not call back into the engine.
type Emit func(model.Edge)

// Engine runs the rules of every active profile version over the log. One goroutine owns it: no method may be called
// while another runs. Its state is a function of the records it was fed, so the same log gives the same edges and the
// same pages, however it was cut into batches and wherever it was stopped and loaded again.
type Engine struct {
	compiler *Compiler
	limits   Limits
	metrics  *metrics
	profiles map[ProfileKey]*profile
	devices  map[int64]*device
	tenants  map[int64]*tenant
	held     int              // keys and devices of all tenants
	stored   map[pageKey]bool // pages that the store has
	dropped  map[pageKey]bool // pages of profiles that are gone

	sample sample
	seq    uint64 // number of the sample, so that a rule which wants several metrics judges it once
	fired  []Firing
	batch  []firedRule
}

// ProfileKey names a profile by row ids.
type ProfileKey struct{ Tenant, Profile int64 }

// ProfileRef is a published version as the engine installs it.
type ProfileRef struct {
	ProfileKey
	TenantToken string
	Token       string // of the profile
	Version     int
}

type tenant struct {
	rules, keys, devices int
}

// device is what is known of a device that has a profile with rules: its clock and the keys that ever fired.
type device struct {
	id, kind int64
	token    string
	profile  *profile
	newest   model.Micros
	arrived  Listening
	keys     []key // sorted by rule; only keys that ever fired
}

// key is the state of one rule for one device.
type key struct {
	rule  int32 // index into the profile's rules
	last  edgePlace
	state State
}

// edgePlace numbers the edges of a key at one place. It is not kept: no place is met twice.
type edgePlace struct {
	n      uint16
	index  uint32
	offset model.Offset
}

type firedRule struct {
	rule int32
	Firing
}

// NewEngine returns an engine without profiles. A nil registerer registers no metrics.
func NewEngine(c *Compiler, reg prometheus.Registerer) *Engine {
	return &Engine{
		compiler: c,
		limits:   c.limits,
		metrics:  newMetrics(reg),
		profiles: map[ProfileKey]*profile{},
		devices:  map[int64]*device{},
		tenants:  map[int64]*tenant{},
		stored:   map[pageKey]bool{},
		dropped:  map[pageKey]bool{},
	}
}

// Stats are figures for status.
type Stats struct {
	Profiles, Rules, Devices, Keys int
}

// Stats returns the figures of all tenants together. Rules are those that run.
func (e *Engine) Stats() Stats {
	s := Stats{Profiles: len(e.profiles), Devices: len(e.devices)}
	for _, t := range e.tenants {
		s.Rules += t.rules
		s.Keys += t.keys
	}
	return s
}

// Apply judges one sample by the rules of its profile and emits its edges in the order of their rules' tokens. A
// device that the engine knows under another profile is forgotten there first.
func (e *Engine) Apply(in *Input, emit Emit) {
	p := e.profiles[in.Profile]
	if p == nil || len(p.rules) == 0 || in.Kind == Transition {
		return // a transition is no sign of life and no kind that watches for it runs yet
	}
	d := e.arrive(p, in, emit)
	if d == nil {
		return
	}
	e.metrics.applied.Inc()
	e.sample.bind(in)
	e.seq++
	e.batch = e.batch[:0]
	for _, i := range p.always {
		e.judge(p, d, i, nil)
	}
	for i := range e.sample.metrics.readings {
		r := &e.sample.metrics.readings[i]
		for _, w := range p.wanting[r.Metric] {
			e.came(p, w)
			if w.judges {
				e.judge(p, d, w.rule, r)
			}
		}
	}
	e.emitBatch(p, d, in, emit)
}

// arrive finds the device of a sample and sets its clock. It returns nil when the tenant's budget has no room for it.
func (e *Engine) arrive(p *profile, in *Input, emit Emit) *device {
	d := e.devices[in.Device.ID]
	if d != nil && d.profile != p {
		e.RemoveDevice(in.Position, d.id, emit)
		d = nil
	}
	if d == nil {
		t := e.tenant(p.key.Tenant)
		if t.devices >= e.limits.MaxKeys || e.held >= e.limits.MaxKeysInAll {
			e.metrics.refused.Inc()
			return nil
		}
		d = &device{id: in.Device.ID, profile: p, newest: in.Occurred}
		e.devices[d.id] = d
		p.bucket(d.id).insert(d)
		t.devices++
		e.held++
	}
	d.kind = in.Device.Type
	if d.token != in.Device.Token {
		d.token = in.Device.Token
	}
	d.newest = max(d.newest, in.Occurred)
	d.arrived = in.Listening
	p.bucket(d.id).devicesDirty = true
	return d
}

// judge evaluates one rule over the bound sample. r is the reading that brought the rule up, nil for a rule that looks
// at every sample.
func (e *Engine) judge(p *profile, d *device, i int32, r *model.Reading) {
	rule := p.rules[i]
	if rule.seen == e.seq {
		return
	}
	rule.seen = e.seq
	var st State
	at, known := d.find(i)
	if known {
		st = d.keys[at].state
	}
	in := e.sample.in
	clock := Clock{Newest: d.newest, Arrived: d.arrived, Now: in.Listening}
	next, fired, note := rule.program.eval(st, &e.sample, r, clock, e.fired[:0])
	e.fired = fired
	e.count(p, rule, note, in)
	if len(fired) == 0 {
		return
	}
	if !known && !e.room(p, rule) {
		return
	}
	if !known {
		d.keys = slices.Insert(d.keys, at, key{rule: i})
	}
	d.keys[at].state = next
	p.bucket(d.id).keysDirty = true
	for _, f := range fired {
		e.batch = append(e.batch, firedRule{i, f})
	}
}

// room takes a place in the tenant's budget of keys, or counts that there is none.
func (e *Engine) room(p *profile, r *rule) bool {
	t := e.tenant(p.key.Tenant)
	if t.keys >= e.limits.MaxKeys || e.held >= e.limits.MaxKeysInAll {
		r.RefusedKeys++
		e.metrics.refused.Inc()
		return false
	}
	t.keys++
	e.held++
	e.metrics.keys.Inc()
	return true
}

func (e *Engine) count(p *profile, r *rule, note Note, in *Input) {
	if !note.InScope {
		return
	}
	r.LastInputAt = max(r.LastInputAt, in.Received)
	p.rulesDirty = true
	if note.Failed {
		r.EvalErrors++
		e.metrics.evalErrors.Inc()
	}
	if note.Late {
		r.LateSamples++
		e.metrics.late.Inc()
	}
}

func (e *Engine) came(p *profile, w want) {
	if came := p.rules[w.rule].came; !came[w.metric] {
		came[w.metric] = true
		p.rulesDirty = true
	}
}

// emitBatch emits what the bound sample brought about, by rule.
func (e *Engine) emitBatch(p *profile, d *device, in *Input, emit Emit) {
	if len(e.batch) == 0 {
		return
	}
	slices.SortStableFunc(e.batch, func(a, b firedRule) int { return cmp.Compare(a.rule, b.rule) })
	for i := range e.batch {
		f := &e.batch[i]
		at, _ := d.find(f.rule)
		n := d.keys[at].last.next(in.Position)
		emit(p.edge(p.rules[f.rule], d, in.Position, n, f.Firing))
	}
}

// next returns the number of one more edge at the place.
func (l *edgePlace) next(at Position) uint16 {
	if l.offset == at.Offset && l.index == at.Index {
		l.n++
	} else {
		*l = edgePlace{offset: at.Offset, index: at.Index}
	}
	return l.n
}

// Rename tells the engine another token of a device, so that an edge that no sample brings about bears it.
func (e *Engine) Rename(deviceID int64, token string) {
	if d := e.devices[deviceID]; d != nil && d.token != token {
		d.token = token
		d.profile.bucket(d.id).devicesDirty = true
	}
}

// Forget drops a device that was deleted or changed its type. Its raised keys resolve at the place.
func (e *Engine) RemoveDevice(at Position, deviceID int64, emit Emit) {
	d := e.devices[deviceID]
	if d == nil {
		return
	}
	p := d.profile
	for i := range d.keys {
		e.end(p, d, &d.keys[i], at, emit)
	}
	b := p.bucket(d.id)
	b.remove(d)
	b.devicesDirty = true
	b.keysDirty = b.keysDirty || len(d.keys) > 0
	e.release(p, len(d.keys))
	e.tenant(p.key.Tenant).devices--
	e.held--
	delete(e.devices, d.id)
}

// end resolves a raised key by Weir's own doing: the stamp is the device's own time, carried on by the time in which
// it could have been heard, never the wall.
func (e *Engine) end(p *profile, d *device, k *key, at Position, emit Emit) {
	if !k.state.Raised {
		return
	}
	since := max(0, at.Listening-d.arrived)
	stamp := max(k.state.LastEdge, d.newest+model.Micros(since/1000))
	emit(p.edge(p.rules[k.rule], d, at, k.last.next(at), Firing{Signal: model.Resolved, At: stamp}))
}

func (e *Engine) release(p *profile, keys int) {
	e.tenant(p.key.Tenant).keys -= keys
	e.held -= keys
	e.metrics.keys.Sub(float64(keys))
}

func (e *Engine) tenant(id int64) *tenant {
	t := e.tenants[id]
	if t == nil {
		t = &tenant{}
		e.tenants[id] = t
	}
	return t
}

// find returns where the key of a rule is, or would be.
func (d *device) find(rule int32) (at int, ok bool) {
	return slices.BinarySearchFunc(d.keys, rule, func(k key, r int32) int { return cmp.Compare(k.rule, r) })
}

func (p *profile) edge(r *rule, d *device, at Position, n uint16, f Firing) model.Edge {
	return model.Edge{
		ID: model.EdgeID{Epoch: at.Epoch, Offset: at.Offset, Index: at.Index,
			Rule: r.stable, Key: strconv.FormatInt(d.id, 10), N: n},
		Tenant: p.tenantToken, TenantID: p.key.Tenant, Profile: p.token, Version: p.version,
		Rule: r.token, Kind: string(r.kind), Signal: f.Signal,
		Series: d.token, Device: d.id,
		Occurred: f.At, Received: at.Received,
		Severity: r.severity, Value: f.Value, HasValue: f.HasValue,
	}
}

func (k ProfileKey) String() string { return fmt.Sprintf("%d/%d", k.Tenant, k.Profile) }

func (k ProfileKey) compare(o ProfileKey) int {
	return cmp.Or(cmp.Compare(k.Tenant, o.Tenant), cmp.Compare(k.Profile, o.Profile))
}
