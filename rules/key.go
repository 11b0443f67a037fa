package rules

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"weir/model"
)

// device holds the clock of a device that has a profile with rules, and its keys. profile.shared is the device of the
// keys without one: its id is 0, and its clock is that of the samples that its rules judged since the first key.
type device struct {
	id, kind int64
	token    string
	profile  *profile
	newest   model.Micros
	arrived  Listening
	keys     []key // sorted by rule, then by anchor; only keys that remember something
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

// extra is what keys of some kinds have besides the latch.
type extra struct {
	anchor string
	own    Memory
	due    Listening // 0: the key waits for nothing
	slot   int       // 1 + index in the heap of timers, 0 outside it
	device *device
	rule   string // token: an index would change with versions
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
	// In a storm every rule has a key, without an anchor: then it is where its rule is.
	if at := int(rule); anchor == "" && at < len(d.keys) && d.keys[at].rule == rule && d.keys[at].extra == nil {
		return at, true
	}
	return slices.BinarySearchFunc(d.keys, rule, func(k key, r int32) int {
		if k.rule != r {
			return cmp.Compare(k.rule, r)
		}
		return strings.Compare(k.anchor(), anchor)
	})
}

func (k *key) anchor() string {
	if k.extra == nil {
		return ""
	}
	return k.extra.anchor
}

func (k *key) state() State {
	st := State{Raised: k.raised, Edged: k.edged, LastEdge: k.lastEdge}
	if k.extra != nil {
		st.Due, st.Own = k.extra.due, k.extra.own
	}
	return st
}

// remember stores the state of a key and sets its timer.
func (e *Engine) remember(k *key, st State, d *device, rule, anchor string) {
	k.raised, k.edged, k.lastEdge = st.Raised, st.Edged, st.LastEdge
	if st.Own == nil && st.Due == 0 && anchor == "" {
		e.timers.set(k.extra, 0)
		k.extra = nil
		return
	}
	if k.extra == nil {
		k.extra = &extra{anchor: anchor, device: d, rule: rule}
	}
	k.extra.own = st.Own
	e.timers.set(k.extra, st.Due)
}

func (e *Engine) dropKey(p *profile, d *device, at int) {
	e.timers.set(d.keys[at].extra, 0)
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
		Severity: r.severity, Value: f.Value, HasValue: f.HasValue,
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
			e.sample.Anchor = a.Token
			e.judgeKey(p, d, i, a.Token)
		}
	}
	e.sample.Anchor = ""
}

// judgeShared evaluates a rule whose keys belong to no device, and then moves the clock of these keys.
func (e *Engine) judgeShared(p *profile, i int32) {
	first := len(p.shared.keys) == 0
	if p.rules[i].program.uses.Keys == ByAnchor {
		e.judgeAnchors(p, p.shared, i)
	} else {
		e.judgeKey(p, p.shared, i, "")
	}
	if len(p.shared.keys) == 0 {
		return
	}
	if first {
		p.shared.newest = e.sample.Occurred
	}
	p.shared.newest = max(p.shared.newest, e.sample.Occurred)
	p.shared.arrived = e.sample.Listening
	p.sharedDirty = true
}

// judgeKey evaluates a rule for one key. e.state is empty before and after it.
func (e *Engine) judgeKey(p *profile, d *device, i int32, anchor string) {
	rule, st, out := p.rules[i], &e.state, &e.verdict
	at, known := d.find(i, anchor)
	if known {
		*st = d.keys[at].state()
	}
	due, own := st.Due, st.Own != nil
	out.Fired, out.Note = out.Fired[:0], Note{}
	rule.program.eval(st, &e.sample, out)
	e.count(p, rule, out.Note)
	if len(out.Fired) > 0 || st.Due != due || own || st.Own != nil { // the latch changes with edges only
		e.keep(p, d, i, anchor)
		*st = State{}
	} else if known {
		*st = State{}
	}
}

// keep stores the state and the edges of an evaluation. A key without state takes no memory.
func (e *Engine) keep(p *profile, d *device, i int32, anchor string) {
	at, known := d.find(i, anchor)
	switch {
	case e.state.empty() && known:
		e.dropKey(p, d, at)
		return
	case e.state.empty() || !known && !e.room(p, p.rules[i]):
		return
	case !known:
		d.keys = slices.Insert(d.keys, at, key{rule: i})
	}
	e.remember(&d.keys[at], e.state, d, p.rules[i].token, anchor)
	p.keysChanged(d)
	for _, f := range e.verdict.Fired {
		e.batch = append(e.batch, firedKey{i, d, anchor, f})
	}
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
