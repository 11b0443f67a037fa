package rules

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"weir/model"
	"weir/rules/window"
)

// device holds the clock of a device that has a profile with rules, and its keys. profile.shared is the device of the
// keys without one: its id is 0, and its clock is that of the samples that its rules judged since the first key.
type device struct {
	profile  *profile
	link     *link // through which it was last heard; nil: the transports together
	newest   model.Micros
	arrived  Listening
	lag      Listening // of its own listening time after its tenant's
	keys     []key     // sorted by rule, then by anchor; only keys that remember something
	first    [1]key    // memory of keys while there is one: a reading finds it where the clock is
	id, kind int64
	token    string
	cut      uint32       // number of the snapshot that has it already
	asleep   bool         // not heard since the start
	gaps     *window.Gaps // between its arrivals; nil while no rule asks for them
}

// devices are all devices that the engine knows, by id. Ids are dense, so an array of arrays costs less memory than a map, and what leads to
// a device stays in the processor's caches, whatever device comes next.
type devices struct {
	regions map[int64]*region // few: a million devices have 31
	n       int
}

// region has the chunks of the devices whose ids begin alike.
type region struct {
	n  int
	by [1 << regionBits]*chunk
}

// chunk has the devices whose ids differ in their last bits.
type chunk struct {
	n  int
	by [1 << chunkBits]*device
}

const chunkBits, regionBits = 5, 10

// chunk returns the chunk of an id, nil for none.
func (ds *devices) chunk(id int64) *chunk {
	if p := ds.regions[id>>(chunkBits+regionBits)]; p != nil {
		return p.by[id>>chunkBits&(1<<regionBits-1)]
	}
	return nil
}

func (c *chunk) get(id int64) *device { return c.by[id&(1<<chunkBits-1)] }

func (ds *devices) get(id int64) *device {
	if c := ds.chunk(id); c != nil {
		return c.get(id)
	}
	return nil
}

// put adds a device that is not there.
func (ds *devices) put(d *device) {
	p := ds.regions[d.id>>(chunkBits+regionBits)]
	if p == nil {
		p = new(region)
		ds.regions[d.id>>(chunkBits+regionBits)] = p
	}
	c := &p.by[d.id>>chunkBits&(1<<regionBits-1)]
	if *c == nil {
		*c = new(chunk)
		p.n++
	}
	(*c).by[d.id&(1<<chunkBits-1)] = d
	(*c).n++
	ds.n++
}

// remove removes a device that is there.
func (ds *devices) remove(id int64) {
	p := ds.regions[id>>(chunkBits+regionBits)]
	c := &p.by[id>>chunkBits&(1<<regionBits-1)]
	(*c).by[id&(1<<chunkBits-1)] = nil
	ds.n--
	if (*c).n--; (*c).n > 0 {
		return
	}
	*c = nil
	if p.n--; p.n == 0 {
		delete(ds.regions, id>>(chunkBits+regionBits))
	}
}

// key is the state of one rule for one device, or device and anchor. Keys that only latch fill 40 bytes.
type key struct {
	last     edgePosition
	lastEdge model.Micros // stamp of the last edge
	extra    *extra       // nil for a key that only latches
	rule     int32        // index into the profile's rules
	raised   bool
	edged    bool
}

// extra is what keys of some kinds have besides the latch: 48 bytes. There may be as many as there are devices, so the rule is an
// index and the anchor, which few keys have, is elsewhere.
type extra struct {
	own    Memory
	due    Listening // 0: the key waits for nothing
	device *device
	at     *string // token of the anchor, nil for a key without one
	rule   int32   // index into the profile's rules
	slot   int32   // 1 + index in the heap of timers, 0 outside it
}

// newExtra returns what a key has besides the latch.
func newExtra(d *device, rule int32, anchor string) *extra {
	x := &extra{device: d, rule: rule}
	if anchor != "" {
		x.at = &anchor
	}
	return x
}

func (x *extra) anchor() string {
	if x.at == nil {
		return ""
	}
	return *x.at
}

// edgePosition numbers the edges of a key at one position. It is not stored: no position is applied twice.
type edgePosition struct {
	n      uint16
	index  uint32
	offset model.Offset
}

// next returns the number of one more edge at the position.
func (l *edgePosition) next(at Position) uint16 {
	if l.offset == at.Offset && l.index == at.Index {
		l.n++
	} else {
		*l = edgePosition{offset: at.Offset, index: at.Index}
	}
	return l.n
}

// find returns the index of a key, or the index at which it would be inserted.
func (d *device) find(rule int32, anchor string) (at int, ok bool) {
	if len(d.keys) == 0 { // the common case, in which no rule fired
		return 0, false
	}
	// Often every rule has a key, without an anchor: then it is where its rule is.
	if at := int(rule); anchor == "" && at < len(d.keys) && d.keys[at].rule == rule && d.keys[at].anchor() == "" {
		return at, true
	}
	return slices.BinarySearchFunc(d.keys, rule, func(k key, r int32) int {
		if k.rule != r {
			return cmp.Compare(k.rule, r)
		}
		return strings.Compare(k.anchor(), anchor)
	})
}

// insert adds a key at its place. The keys grow by an eighth: few devices get many, and none has spare room for long.
func (d *device) insert(at int, k key) {
	if n := len(d.keys); n == 0 {
		d.keys = d.first[:0]
	} else if n == cap(d.keys) {
		grown := make([]key, n, n+1+n/8)
		copy(grown, d.keys)
		d.keys, d.first[0] = grown, key{}
	}
	d.keys = slices.Insert(d.keys, at, k)
}

func (k *key) anchor() string {
	if k.extra == nil {
		return ""
	}
	return k.extra.anchor()
}

func (k *key) state() State {
	st := State{Raised: k.raised, Edged: k.edged, LastEdge: k.lastEdge}
	if k.extra != nil {
		st.Due, st.Own = k.extra.due, k.extra.own
	}
	return st
}

// remember stores the state of a key and sets its timer.
func (e *Engine) remember(k *key, st State, d *device, anchor string) {
	k.raised, k.edged, k.lastEdge = st.Raised, st.Edged, st.LastEdge
	if st.Own == nil && st.Due == 0 && anchor == "" {
		e.schedule(k.extra, 0)
		k.extra = nil
		return
	}
	if k.extra == nil {
		k.extra = newExtra(d, k.rule, anchor)
	}
	k.extra.own = st.Own
	e.schedule(k.extra, st.Due)
}

// let stops the timer of a key and takes its samples out of the budget.
func (e *Engine) let(k *key) {
	if x := k.extra; x != nil {
		e.schedule(x, 0)
		e.retain(x.device.profile, -retained(x.own))
	}
}

// retain counts so many more samples of a tenant.
func (e *Engine) retain(p *profile, more int) {
	if more != 0 {
		p.tenant.samples += more
		e.samples += more
	}
}

func (e *Engine) dropKey(p *profile, d *device, at int) {
	e.let(&d.keys[at])
	d.keys = slices.Delete(d.keys, at, at+1)
	e.release(p, 1)
	p.keysChanged(d)
}

// edge numbers an edge of a key and completes it. The series of a key without a device is its anchor, or its rule.
func (p *profile) edge(d *device, k *key, at Position, f Firing) model.Edge {
	r, anchor := p.rules[k.rule], k.anchor()
	id, series := anchor, cmp.Or(anchor, r.token)
	if d != p.shared {
		id, series = strconv.FormatInt(d.id, 10), d.token
		if anchor != "" {
			id += "/" + anchor
		}
	}
	return model.Edge{
		ID:     model.EdgeID{Epoch: at.Epoch, Offset: at.Offset, Index: at.Index, Rule: r.stable, Key: id, N: k.last.next(at)},
		Tenant: p.tenantToken, TenantID: p.key.Tenant, Profile: p.token, Version: p.version,
		Rule: r.token, Kind: string(r.kind), Signal: f.Signal,
		Series: series, Device: d.id,
		Occurred: f.At, Received: at.Received,
		Severity: r.severity, Value: f.Value, HasValue: f.HasValue, AtSite: r.atSite(),
	}
}

// judge evaluates one rule over the bound sample, for each key that the sample concerns. r is the reading for which
// the index found the rule, nil for a rule that looks at every sample.
func (e *Engine) judge(p *profile, d *device, i int32, r *model.Reading) {
	rule := p.rules[i]
	if rule.seen == e.seq {
		return
	}
	rule.seen = e.seq
	e.worked.Judged++
	e.sample.at = r
	if rule.view.Group != "" && !e.inScope(p, d, rule) || e.sample.AtSite && rule.atSite() {
		return
	}
	switch rule.program.uses.Keys {
	case ByDevice:
		e.judgeKey(p, d, i, "")
	case ByDevice | ByAnchor:
		e.judgeAnchors(p, d, i)
	default:
		e.judgeShared(p, i)
	}
}

func (e *Engine) judgeAnchors(p *profile, d *device, i int32) {
	for _, a := range e.sample.Anchors {
		if a.Type == p.rules[i].program.def.AnchorType {
			e.sample.Anchor, e.sample.anchorType = a.Token, a.Type
			e.judgeKey(p, d, i, a.Token)
		}
	}
	e.sample.Anchor, e.sample.anchorType = "", ""
}

// judgeShared evaluates a rule whose keys belong to no device, and then moves the clock of these keys.
func (e *Engine) judgeShared(p *profile, i int32) {
	first := len(p.shared.keys) == 0
	if first {
		p.shared.lag, p.shared.asleep = 0, false
	}
	e.heard(p.shared, e.sample.Listening)
	now, own := e.sample.Clock.Now, p.shared.own(e.sample.Listening)
	e.sample.Clock.Now = own // as the timers of these keys have it
	if p.rules[i].program.uses.Keys == ByAnchor {
		e.judgeAnchors(p, p.shared, i)
	} else {
		e.judgeKey(p, p.shared, i, "")
	}
	e.sample.Clock.Now = now
	if len(p.shared.keys) == 0 {
		return
	}
	if first {
		p.shared.newest = e.sample.Occurred
	}
	p.shared.newest = max(p.shared.newest, e.sample.Occurred)
	p.shared.arrived = own
	p.sharedDirty = true
}

// judgeKey evaluates a rule for one key. e.state is empty before and after it.
func (e *Engine) judgeKey(p *profile, d *device, i int32, anchor string) {
	rule, st, out := p.rules[i], &e.state, &e.verdict
	at, known := d.find(i, anchor)
	if known {
		if d == p.shared {
			p.touchKey(&d.keys[at])
		}
		*st = d.keys[at].state()
	}
	due, own, held := st.Due, st.Own != nil, 0
	if own {
		held = retained(st.Own) // now: the judge changes its memory in place
	}
	out.Fired, out.Note, out.skipped = out.Fired[:0], Note{}, 0
	e.sample.Full = rule.program.uses.Retains && e.full(p)
	rule.program.eval(st, &e.sample, out)
	e.count(p, rule, &out.Note)
	if len(out.Fired) > 0 || st.Due != due || own || st.Own != nil { // the latch changes with edges only
		e.keep(p, d, i, anchor, held)
		*st = State{}
	} else if known {
		*st = State{}
	}
}

// keep stores the state and the edges of an evaluation, before which the key retained so many samples. A key without state
// takes no memory.
func (e *Engine) keep(p *profile, d *device, i int32, anchor string, held int) {
	at, known := d.find(i, anchor)
	switch {
	case e.state.empty() && known:
		e.retain(p, -held)
		if x := d.keys[at].extra; x != nil {
			x.own = nil
		}
		e.dropKey(p, d, at)
		return
	case e.state.empty() || !known && !e.room(p, p.rules[i]):
		return
	case !known:
		d.insert(at, key{rule: i})
	}
	e.retain(p, retained(e.state.Own)-held)
	e.remember(&d.keys[at], e.state, d, anchor)
	p.keysChanged(d)
	for _, f := range e.verdict.Fired {
		e.batch = append(e.batch, firedKey{i, d, anchor, f})
	}
}

// full reports whether the tenant, or the instance, retains as many samples as it may.
func (e *Engine) full(p *profile) bool {
	return e.samples >= e.limits.MaxSamplesInAll || e.tenant(p.key.Tenant).samples >= e.limits.MaxSamples
}

// room reserves a key in the tenant's budget, or counts the refusal.
func (e *Engine) room(p *profile, r *rule) bool {
	t := e.tenant(p.key.Tenant)
	if t.keys >= e.limits.MaxKeys || e.held >= e.limits.MaxKeysInAll {
		r.RefusedKeys++
		p.rulesDirty = true
		e.metrics.refused.Inc()
		return false
	}
	t.keys++
	e.held++
	e.metrics.keys.Inc()
	return true
}
