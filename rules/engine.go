package rules

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
)

// Emit receives an edge. It must not call the engine.
type Emit func(model.Edge)

// Engine runs the rules of every active profile version over the log. One goroutine owns it: no method may be called
// while another runs. Its state is a function of the records that it was given, so the same log gives the same edges and
// the same pages, wherever the log was cut into batches and wherever the engine was stopped and loaded again.
type Engine struct {
	compiler *Compiler
	limits   Limits
	metrics  *metrics
	profiles map[ProfileKey]*profile
	devices  map[int64]*device
	tenants  map[int64]*tenant
	timers   timers
	held     int              // keys and devices of all tenants
	stored   map[pageKey]bool // pages that the store has
	dropped  map[pageKey]bool // pages of profiles that were removed

	seq     uint64 // number of the sample, so that a rule that names several metrics judges it once
	sample  Sample
	timer   Input // the sample of a timer
	state   State // of the key that is judged
	verdict Verdict
	batch   []firedKey // edges of the sample
	worked  Worked

	flapping       flappingRule // a rule of the newest edge over a ceiling
	flapped        int64        // edges over a ceiling since they were asked for
	ceilingsStored bool
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
	edges                allowance
}

// firedKey is an edge of a sample before it is emitted.
type firedKey struct {
	rule   int32
	device *device
	anchor string
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

// Stats returns the figures of all tenants together. Only rules that run are counted.
func (e *Engine) Stats() Stats {
	s := Stats{Profiles: len(e.profiles), Devices: len(e.devices)}
	for _, t := range e.tenants {
		s.Rules += t.rules
		s.Keys += t.keys
	}
	return s
}

// Worked is what the engine has done so far.
type Worked struct {
	Judged int64 // rules that looked at a sample
	Edges  int64 // what they brought about, those over a ceiling included
}

// Worked returns what the engine has done so far.
func (e *Engine) Worked() Worked { return e.worked }

// Apply judges one sample by the rules of its profile and emits its edges in the order of their rules' tokens. A
// device that the engine knows under another profile is removed there first.
func (e *Engine) Apply(in *Input, emit Emit) {
	p := e.profiles[in.Profile]
	if p == nil || len(p.rules) == 0 || in.Kind == Transition && len(p.presence) == 0 {
		return
	}
	d := e.arrive(p, in, emit)
	if d == nil {
		return
	}
	e.metrics.applied.Inc()
	e.begin(in, Clock{Newest: d.newest, Arrived: d.arrived, Now: in.Listening})
	if in.Kind == Transition {
		e.judgeAll(p, d, p.presence)
	} else {
		e.judgeAll(p, d, p.always)
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
	e.emitBatch(p, emit)
}

func (e *Engine) begin(in *Input, clock Clock) {
	e.sample.bind(in)
	e.sample.Clock = clock
	e.seq++
	e.batch = e.batch[:0]
}

// arrive finds the device of a sample and sets its clock, which a transition of presence does not move. It returns nil
// when the tenant's budget is exhausted.
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
		d = &device{id: in.Device.ID, profile: p, newest: in.Occurred, arrived: in.Listening}
		e.devices[d.id] = d
		p.bucket(d.id).insert(d)
		t.devices++
		e.held++
	}
	d.kind = in.Device.Type
	if d.token != in.Device.Token {
		d.token = in.Device.Token
	}
	if in.Kind != Transition {
		d.newest = max(d.newest, in.Occurred)
		d.arrived = in.Listening
	}
	p.bucket(d.id).devicesDirty = true
	return d
}

func (e *Engine) judgeAll(p *profile, d *device, rules []int32) {
	for _, i := range rules {
		e.judge(p, d, i, nil)
	}
}

func (e *Engine) count(p *profile, r *rule, note Note) {
	if note.InScope {
		r.LastInputAt = max(r.LastInputAt, e.sample.Received)
		p.rulesDirty = true
	}
	if !note.Failed && !note.Late {
		return
	}
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

// emitBatch emits the edges of the bound sample, by rule.
func (e *Engine) emitBatch(p *profile, emit Emit) {
	if len(e.batch) == 0 {
		return
	}
	e.worked.Edges += int64(len(e.batch))
	slices.SortStableFunc(e.batch, func(a, b firedKey) int { return cmp.Compare(a.rule, b.rule) })
	for i := range e.batch {
		f := &e.batch[i]
		if !e.mayEmit(p, p.rules[f.rule], e.sample.Position) {
			continue
		}
		at, _ := f.device.find(f.rule, f.anchor)
		emit(p.edge(f.device, &f.device.keys[at], e.sample.Position, f.Firing))
	}
}

// Rename sets the token of a device, so that an edge that no sample causes bears it.
func (e *Engine) Rename(deviceID int64, token string) {
	if d := e.devices[deviceID]; d != nil && d.token != token {
		d.token = token
		d.profile.bucket(d.id).devicesDirty = true
	}
}

// RemoveDevice removes a device that was deleted or changed its type. Its raised keys resolve at the position.
func (e *Engine) RemoveDevice(at Position, deviceID int64, emit Emit) {
	d := e.devices[deviceID]
	if d == nil {
		return
	}
	p := d.profile
	for i := range d.keys {
		e.end(p, d, &d.keys[i], at, emit)
		e.timers.set(d.keys[i].extra, 0)
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

// end resolves a raised key that no sample resolves, at the device's own time, never the wall clock's.
func (e *Engine) end(p *profile, d *device, k *key, at Position, emit Emit) {
	if !k.raised || !e.mayEmit(p, p.rules[k.rule], at) {
		return
	}
	own := Clock{Newest: d.newest, Arrived: d.arrived, Now: at.Listening}.Time()
	emit(p.edge(d, k, at, Firing{Signal: model.Resolved, At: max(k.lastEdge, own)}))
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

func (k ProfileKey) String() string { return fmt.Sprintf("%d/%d", k.Tenant, k.Profile) }

func (k ProfileKey) compare(o ProfileKey) int {
	return cmp.Or(cmp.Compare(k.Tenant, o.Tenant), cmp.Compare(k.Profile, o.Profile))
}
