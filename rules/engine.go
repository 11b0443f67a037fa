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
	devices  devices
	tenants  map[int64]*tenant
	timers   timers
	held     int              // keys and devices of all tenants
	samples  int              // retained samples of all tenants
	stored   map[pageKey]bool // pages that the store has
	dropped  map[pageKey]bool // pages of profiles that were removed
	taking   *Snapshot        // that is under way
	cuts     uint32           // snapshots so far
	partly   bool             // LoadRule: pages hold rules that are left out

	seq     uint64 // number of the sample, so that a rule that names several metrics judges it once
	sample  Sample
	timer   Input // the sample of a timer
	state   State // of the key that is judged
	verdict Verdict
	batch   []firedKey // edges of the sample
	worked  Worked
	fetched uint32 // Expect leaves something here, so that it is not optimized away
	acts    Acts   // nil: no action is performed

	setBack       int64  // clocks of devices that were set back, since they were asked for
	setBackDevice string // one of them

	boots

	// judgedAtSite reports whether the site of a link judges the rules of a profile with placement EDGE; nil: none does.
	judgedAtSite func(tenant int64, link, profile string) bool
	foreign      bool // the edge that is acted on is that of a site

	flapping       flappingRule // a rule of the newest edge over a ceiling
	flapped        int64        // edges over a ceiling since they were asked for
	owing          int          // edges that are owed, of all tenants
	ceilingsStored bool
	owedStored     bool
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
	rules, keys, devices, samples int

	edges allowance
	owed  owed
	pause
	links map[string]*link // through which its devices were heard, by name
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
		devices:  devices{regions: map[int64]*region{}},
		tenants:  map[int64]*tenant{},
		stored:   map[pageKey]bool{},
		dropped:  map[pageKey]bool{},
	}
}

// Stats are figures for status.
type Stats struct {
	Profiles, Rules, Devices, Keys int
	Samples                        int // that rules retain
}

// Stats returns the figures of all tenants together. Only rules that run are counted.
func (e *Engine) Stats() Stats {
	s := Stats{Profiles: len(e.profiles), Devices: e.devices.n, Samples: e.samples}
	for _, t := range e.tenants {
		s.Rules += t.rules
		s.Keys += t.keys
	}
	return s
}

// Group is how many devices Expect takes at once, and manyDevices how many there must be: the state of fewer is in the processor's
// caches anyway.
const (
	Group       = 16
	manyDevices = 1 << 14
)

// Expects reports whether Expect is of any use.
func (e *Engine) Expects() bool { return e.devices.n >= manyDevices }

// Expect fetches the state of the devices that are judged next from memory, by row id: all of it at once. Waiting for it one device after
// the other takes most of the time where there are very many. It changes nothing, and what is not expected is judged as well.
func (e *Engine) Expect(ids *[Group]int64) {
	var chunks [Group]*chunk
	for i, id := range ids {
		chunks[i] = e.devices.chunk(id)
	}
	var next [Group]*device
	for i, c := range chunks {
		if c != nil {
			next[i] = c.get(ids[i])
		}
	}
	n := uint32(0)
	for _, d := range next {
		if d != nil {
			n += uint32(d.newest) + d.cut // the first and the last that a reading needs of a device
		}
	}
	e.fetched = n
}

// Worked is what the engine has done so far.
type Worked struct {
	Judged  int64 // rules that looked at a sample
	InScope int64 // samples that were in the scope of a rule, once for each such rule
	Edges   int64 // what they brought about, those over a ceiling included
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
	if in.AtSite {
		e.leaveToSite(p, d, in.Position, emit)
	}
	e.begin(in, d.clock(d.own(in.Listening)))
	if in.Kind == Transition {
		e.judgeAll(p, d, p.presence)
	} else {
		e.judgeAll(p, d, p.always)
		e.wake(p, d)
	}
	for i := range e.sample.metrics.Readings {
		r := &e.sample.metrics.Readings[i]
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
	d := e.devices.get(in.Device.ID)
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
		d = &device{id: in.Device.ID, profile: p} // newest is that of its events: what a rule says follows from no other rule that made it known
		d.arrived = d.own(in.Listening)
		e.devices.put(d)
		p.bucket(d.id).insert(d)
		t.devices++
		e.held++
	}
	e.touch(d)
	d.kind = in.Device.Type
	if d.token != in.Device.Token {
		d.token = in.Device.Token
	}
	if in.Kind < Transition {
		e.heard(d, in.Listening)
		if e.links != nil {
			e.through(d, in.Link, in.Listening)
		}
		now := d.own(in.Listening)
		if p.gapped {
			d.gaps = d.gaps.Arrive(now - d.arrived)
		}
		d.newest = max(d.newest, in.Occurred)
		d.arrived = now
	}
	p.bucket(d.id).devicesDirty = true
	return d
}

// wake shows a sample to the rules of presence that wait for a sign of the device.
func (e *Engine) wake(p *profile, d *device) {
	for _, i := range p.presence {
		if at, known := d.find(i, ""); known && p.rules[i].program.uses.Wakes && d.keys[at].extra != nil {
			e.judge(p, d, i, nil)
		}
	}
}

func (e *Engine) judgeAll(p *profile, d *device, rules []int32) {
	for _, i := range rules {
		e.judge(p, d, i, nil)
	}
}

func (e *Engine) count(p *profile, r *rule, note *Note) {
	if note.InScope {
		e.worked.InScope++
		r.LastInputAt = max(r.LastInputAt, e.sample.Received)
		p.rulesDirty = true
	}
	if e.sample.lacking {
		r.Lacking++
		e.sample.lacking = false
		p.rulesDirty = true
	}
	if !note.Failed && !note.Late && !note.Refused && !note.SetBack {
		return
	}
	p.rulesDirty = true
	if note.Failed {
		r.EvalErrors++
		e.metrics.evalErrors.Inc()
	}
	if note.Late { // a kind from outside sets Late alone
		n := max(1, e.verdict.skipped)
		r.LateSamples += int64(n)
		e.metrics.late.Add(float64(n))
	}
	if note.Refused {
		r.RefusedKeys++
		e.metrics.refused.Inc()
	}
	if note.SetBack {
		e.setBack++
		e.metrics.setBack.Inc()
		e.setBackDevice = e.sample.Input.Device.Token
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
		r, owed := p.rules[f.rule], owedKey{p.key, p.rules[f.rule].token, f.device.id, f.anchor}
		if !e.mayEmit(p, r, e.sample.Position) {
			e.owe(owed, r, f)
			continue
		}
		e.paid(owed)
		at, _ := f.device.find(f.rule, f.anchor)
		edge := p.edge(f.device, &f.device.keys[at], e.sample.Position, f.Firing)
		edge.Timer = e.sample.Kind == Timer
		emit(edge)
		e.act(p, r, &edge)
	}
}

// Rename sets the token of a device, so that an edge that no sample causes bears it.
func (e *Engine) Rename(deviceID int64, token string) {
	if d := e.devices.get(deviceID); d != nil && d.token != token {
		e.touch(d)
		d.token = token
		d.profile.bucket(d.id).devicesDirty = true
	}
}

// RemoveDevice removes a device that was deleted or changed its type. Its raised keys resolve at the position.
func (e *Engine) RemoveDevice(at Position, deviceID int64, emit Emit) {
	d := e.devices.get(deviceID)
	if d == nil {
		return
	}
	e.touch(d)
	p := d.profile
	for i := range d.keys {
		e.end(p, d, &d.keys[i], at, emit)
		e.let(&d.keys[i])
	}
	b := p.bucket(d.id)
	b.remove(d)
	b.devicesDirty = true
	b.keysDirty = b.keysDirty || len(d.keys) > 0
	e.release(p, len(d.keys))
	e.tenant(p.key.Tenant).devices--
	e.held--
	e.devices.remove(d.id)
	e.leaveAll(p, d, at, emit)
}

// Enroll makes a device known to the rules that miss devices: it is in the roster of a profile from this record on. The
// applier calls it when a device is created or comes to the profile, and after an Install for each device of the profile.
// A key that stands is left as it is, so calling it again, or after Load, does nothing. Missing begins at the record.
func (e *Engine) Enroll(at Position, k ProfileKey, dev Device, emit Emit) {
	p := e.profiles[k]
	if p == nil || len(p.enrolls) == 0 {
		return
	}
	e.timer = Input{Position: at, Profile: k, Device: dev, Kind: Enrolled, Occurred: at.Received.Micros()}
	known := e.devices.get(dev.ID)
	d := e.arrive(p, &e.timer, emit)
	if d == nil {
		return
	}
	if known == d {
		e.timer.Occurred, e.timer.AtSite = max(e.timer.Occurred, d.newest), e.isAtSite(p, d)
	}
	e.begin(&e.timer, d.clock(d.own(at.Listening)))
	e.judgeAll(p, d, p.enrolls)
	e.emitBatch(p, emit)
}

// Enrolls reports whether a rule of the profile is shown its roster.
func (e *Engine) Enrolls(k ProfileKey) bool {
	p := e.profiles[k]
	return p != nil && len(p.enrolls) > 0
}

// Leave says that a device is no longer at an anchor, from this record on. A device that the engine does not know is at none.
func (e *Engine) Leave(at Position, deviceID int64, anchor model.Anchor, emit Emit) {
	d := e.devices.get(deviceID)
	if d == nil || len(d.profile.members) == 0 {
		return
	}
	p, dev := d.profile, Device{d.id, d.kind, d.token}
	e.beginLeave(p, dev, at)
	for _, i := range p.members {
		if _, known := p.shared.find(i, anchor.Token); known && p.rules[i].program.def.AnchorType == anchor.Type {
			e.leave(p, i, anchor.Token)
		}
	}
	e.emitBatch(p, emit)
}

// leaveAll takes a device that leaves the profile from all anchors.
func (e *Engine) leaveAll(p *profile, d *device, at Position, emit Emit) {
	if len(p.members) == 0 || len(p.shared.keys) == 0 {
		return
	}
	e.beginLeave(p, Device{d.id, d.kind, d.token}, at)
	for i := 0; i < len(p.shared.keys); {
		k, before := &p.shared.keys[i], len(p.shared.keys)
		if program := p.rules[k.rule].program; program != nil && program.uses.Keys == ByAnchor {
			e.leave(p, k.rule, k.anchor())
		}
		if len(p.shared.keys) == before { // a key that remembers nothing is gone
			i++
		}
	}
	e.emitBatch(p, emit)
}

// Bears reports whether a device is at an anchor.
type Bears func(tenant, device int64, anchor model.Anchor) bool

// Regroup is Leave for the dynamic groups that a device may have left: something has changed that they select by.
func (e *Engine) Regroup(at Position, deviceID int64, bears Bears, emit Emit) {
	if d := e.devices.get(deviceID); d != nil && len(d.profile.members) > 0 {
		e.regroup(d, model.Anchor{Type: model.GroupAnchor}, at, bears, emit)
	}
}

// RegroupAll is Regroup for every device of a tenant that is remembered at an anchor; an empty token stands for every anchor of the
// type, an empty type for every anchor, a tenant of 0 for every tenant.
func (e *Engine) RegroupAll(at Position, tenant int64, of model.Anchor, bears Bears, emit Emit) {
	for _, p := range e.sortedProfiles() {
		if len(p.members) == 0 || tenant != 0 && tenant != p.key.Tenant {
			continue
		}
		var ids []int64
		for i := range p.shared.keys {
			if g := p.gathering(&p.shared.keys[i], of); g != nil {
				ids = append(ids, g.Devices()...)
			}
		}
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			if d := e.devices.get(id); d != nil && d.profile == p {
				e.regroup(d, of, at, bears, emit)
			}
		}
	}
}

// gathering is what a key remembers of devices at one of these anchors, nil when it is another key.
func (p *profile) gathering(k *key, of model.Anchor) Gathering {
	program := p.rules[k.rule].program
	if k.extra == nil || program == nil || program.uses.Keys != ByAnchor || of.Type != "" && of.Type != program.def.AnchorType ||
		of.Token != "" && of.Token != k.extra.anchor() {
		return nil
	}
	g, _ := k.extra.own.(Gathering)
	return g
}

// regroup takes a device from the anchors at which it is remembered and is no more.
func (e *Engine) regroup(d *device, of model.Anchor, at Position, bears Bears, emit Emit) {
	p := d.profile
	e.beginLeave(p, Device{d.id, d.kind, d.token}, at)
	for i := 0; i < len(p.shared.keys); {
		k, before := &p.shared.keys[i], len(p.shared.keys)
		if g := p.gathering(k, of); g != nil && g.Has(d.id) &&
			!bears(p.key.Tenant, d.id, model.Anchor{Type: p.rules[k.rule].program.def.AnchorType, Token: k.extra.anchor()}) {
			e.leave(p, k.rule, k.extra.anchor())
		}
		if len(p.shared.keys) == before { // a key that remembers nothing is gone
			i++
		}
	}
	e.emitBatch(p, emit)
}

func (e *Engine) beginLeave(p *profile, dev Device, at Position) {
	e.timer = Input{Position: at, Profile: p.key, Device: dev, Kind: Left, Occurred: at.Received.Micros()}
	e.begin(&e.timer, p.shared.clock(p.shared.own(at.Listening)))
}

func (e *Engine) leave(p *profile, i int32, anchor string) {
	e.sample.Anchor = anchor
	e.judgeKey(p, p.shared, i, anchor)
	e.sample.Anchor = ""
}

// SetBack returns how many keys began again since the last call because the clock of their device was set back, and the
// token of one such device.
func (e *Engine) SetBack() (n int64, device string) {
	n, device = e.setBack, e.setBackDevice
	e.setBack, e.setBackDevice = 0, ""
	return n, device
}

// clock is the time of a device when its own listening time is now.
func (d *device) clock(now Listening) Clock {
	return Clock{Newest: d.newest, Arrived: d.arrived, Now: now, Gap: d.gaps.Longest()}
}

// end resolves a raised key that no sample resolves. An edge over the ceiling is not kept, and its alarms clear all the same:
// nothing else would clear them.
func (e *Engine) end(p *profile, d *device, k *key, at Position, emit Emit) {
	if !k.raised {
		return
	}
	r, kept := p.rules[k.rule], e.mayEmit(p, p.rules[k.rule], at)
	e.paid(owedKey{p.key, r.token, d.id, k.anchor()})
	edge := p.edge(d, k, at, e.ending(d, k, at))
	if kept {
		emit(edge)
	}
	e.act(p, r, &edge)
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
