package rules

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"weir/model"
	"weir/rules/page"
)

const (
	// edgeBurst is for how long a tenant, or a rule, may save up what it does not fire.
	edgeBurst = Listening(2 * time.Minute)
	// ruleShare is the part of the ceiling that each rule has for itself besides: a rule that flaps silences no other.
	ruleShare = 1000
	// flapsFor is for how long a rule is reported as flapping after an edge that was not kept.
	flapsFor = model.Nanos(time.Hour)
)

// allowance limits a rate: it is the time by which everything that was taken is paid for. It follows from the log alone.
type allowance Listening

// take takes one, of which one is given in every interval, or returns false.
func (a *allowance) take(now, every Listening) bool {
	next := max(Listening(*a), now) + every
	if next-now > max(edgeBurst, every) {
		return false
	}
	*a = allowance(next)
	return true
}

// ceiling is what a rule has to do with the tenant's ceiling for edges. It outlives versions.
type ceiling struct {
	share     allowance
	HeldEdges int64       // edges over the ceiling, which were not emitted
	HeldAt    model.Nanos // receive time at the newest of them
}

// mayEmit reports whether an edge of a rule is within the tenant's ceiling. One that is not changes the latch like any other and
// is counted with the rule. It is not emitted, or once there is room, where it is still the key's last.
func (e *Engine) mayEmit(p *profile, r *rule, at Position) bool {
	every := Listening(time.Second) / Listening(e.limits.MaxEdges)
	if r.share.take(at.Listening, ruleShare*every) || e.tenant(p.key.Tenant).edges.take(at.Listening, every) {
		return true
	}
	r.HeldEdges++
	r.HeldAt = max(r.HeldAt, at.Received)
	e.metrics.heldEdges.Inc()
	e.flapping, e.flapped = flappingRule{p, r}, e.flapped+1
	return false
}

type flappingRule struct {
	p *profile
	r *rule
}

// Flapped returns how many edges were over a ceiling since the last call, and the runtime id of a rule that fired some of them.
func (e *Engine) Flapped() (n int64, rule string) {
	if e.flapped == 0 {
		return 0, ""
	}
	f := e.flapping
	n, rule = e.flapped, model.RuleRuntimeID(f.p.tenantToken, f.p.token, f.p.version, f.r.token)
	e.flapping, e.flapped = flappingRule{}, 0
	return n, rule
}

// flaps reports whether edges of a rule were over the ceiling lately.
func (e *Engine) flaps(r *rule) bool { return r.HeldEdges > 0 && e.sample.Received-r.HeldAt < flapsFor }

// flaps says what the author can do about a rule that flaps.
func (h *Health) flaps() string {
	return fmt.Sprintf("this rule flaps: %d of its detections were more than detection.max_edges_per_second allows, and are not kept; "+
		"move its threshold out of the noise", h.HeldEdges)
}

// ceilingsID is the id of the page of the ceilings of all tenants.
const ceilingsID = "edges"

// FreezeCeilings returns the page of the ceilings as of a listening time. It belongs to the pages of Freeze and is written with
// them.
func (e *Engine) FreezeCeilings(now Listening) []Page {
	tenants := slices.Sorted(maps.Keys(e.tenants))
	tenants = slices.DeleteFunc(tenants, func(id int64) bool { return Listening(e.tenants[id].edges) <= now })
	var rules []flappingRule
	for _, p := range e.sortedProfiles() {
		for _, r := range p.rules {
			if Listening(r.share) > now || r.HeldEdges > 0 {
				rules = append(rules, flappingRule{p, r})
			}
		}
	}
	if len(tenants)+len(rules) == 0 {
		if !e.ceilingsStored {
			return nil
		}
		e.ceilingsStored = false
		return []Page{{ID: ceilingsID}}
	}
	e.ceilingsStored = true
	b := binary.AppendUvarint(page.Header(pageCeilings), uint64(len(tenants)))
	for _, id := range tenants {
		b = binary.AppendVarint(b, id)
		b = binary.AppendVarint(b, int64(e.tenants[id].edges))
	}
	b = binary.AppendUvarint(b, uint64(len(rules)))
	for _, f := range rules {
		b = binary.AppendVarint(b, f.p.key.Tenant)
		b = binary.AppendVarint(b, f.p.key.Profile)
		b = page.AppendString(b, f.r.token)
		for _, n := range [...]int64{int64(f.r.share), f.r.HeldEdges, int64(f.r.HeldAt)} {
			b = binary.AppendVarint(b, n)
		}
	}
	return []Page{{ID: ceilingsID, Data: page.Seal(b)}}
}

// loadCeilings reads the page of the ceilings. The rules are loaded already.
func (e *Engine) loadCeilings(pg Page) error {
	r, err := page.Open(pg.Data, pageCeilings)
	if err != nil {
		return fmt.Errorf("%w (page %s)", err, pg.ID)
	}
	for range r.Count() {
		id := r.Signed()
		e.tenant(id).edges = allowance(r.Signed())
	}
	for range r.Count() {
		p, token := e.profiles[ProfileKey{r.Signed(), r.Signed()}], r.Text()
		c := ceiling{share: allowance(r.Signed()), HeldEdges: r.Signed(), HeldAt: model.Nanos(r.Signed())}
		if p == nil {
			r.Must(false)
			continue
		}
		x := p.rule(token)
		if r.Must(x != nil); x != nil {
			x.ceiling = c
		}
	}
	if err := r.End(); err != nil {
		return fmt.Errorf("%w (page %s)", err, pg.ID)
	}
	e.ceilingsStored = true
	return nil
}

// An edge over the ceiling is owed while it is its key's last: those who heard the edge before it, and the alarms, take the key for
// what it no longer is. It is emitted at the first record at which the tenant has room, so that after a storm all of them are right.
const (
	// maxOwed is the maximum of owed edges of a tenant. Beyond it, a key is right again at its next edge.
	maxOwed = 1 << 16
	// settledAtOnce is the maximum of owed edges that are emitted before a record.
	settledAtOnce = 1000
	// settleEvery is how soon edges that are owed are looked at where no record comes.
	settleEvery = Listening(100 * time.Millisecond)
)

// owedKey names a key.
type owedKey struct {
	profile ProfileKey
	rule    string // token
	device  int64
	anchor  string
}

// owedEdge is an edge that is owed.
type owedEdge struct {
	owedKey
	stable, series string
	Firing
	turn uint64
}

// owed are the edges that a tenant is owed, in the order in which they were held back.
type owed struct {
	edges map[owedKey]*owedEdge
	queue []owedEdge // one whose turn is not that of its key's edge was paid
	turn  uint64
}

func (o *owed) add(e owedEdge) {
	if o.edges == nil {
		o.edges = map[owedKey]*owedEdge{}
	}
	o.turn++
	e.turn = o.turn
	o.queue = append(o.queue, e)
	o.edges[e.owedKey] = &e
	if len(o.queue) > 2*len(o.edges)+64 {
		o.queue = slices.DeleteFunc(o.queue, func(e owedEdge) bool { return !o.stands(&e) })
	}
}

func (o *owed) stands(e *owedEdge) bool {
	now := o.edges[e.owedKey]
	return now != nil && now.turn == e.turn
}

// next returns the first of them, nil for none.
func (o *owed) next() *owedEdge {
	for len(o.queue) > 0 {
		if o.stands(&o.queue[0]) {
			return &o.queue[0]
		}
		o.queue = o.queue[1:]
	}
	return nil
}

// owe notes an edge that is held back. The second one in a row of a key owes nothing: the key is again what was heard of it.
func (e *Engine) owe(k owedKey, r *rule, f *firedKey) {
	o := &e.tenant(k.profile.Tenant).owed
	if _, known := o.edges[k]; known {
		e.paid(k)
	} else if len(o.edges) < maxOwed {
		o.add(owedEdge{owedKey: k, stable: r.stable, series: cmp.Or(f.anchor, f.device.token), Firing: f.Firing})
		e.owing++
		e.metrics.owed.Set(float64(e.owing))
	}
}

// paid removes what is owed of a key.
func (e *Engine) paid(k owedKey) {
	if e.owing == 0 {
		return
	}
	o := &e.tenant(k.profile.Tenant).owed
	if _, known := o.edges[k]; known {
		delete(o.edges, k)
		e.owing--
		e.metrics.owed.Set(float64(e.owing))
	}
}

// settle emits edges that are owed, as far as their tenants have room.
func (e *Engine) settle(at Position, emit Emit) {
	if e.owing == 0 {
		return
	}
	every := Listening(time.Second) / Listening(e.limits.MaxEdges)
	for _, id := range slices.Sorted(maps.Keys(e.tenants)) {
		t := e.tenants[id]
		for range settledAtOnce {
			o := t.owed.next()
			if o == nil || !t.edges.take(at.Listening, every) {
				break
			}
			held := *o
			e.paid(held.owedKey)
			e.pay(&held, at, emit)
		}
	}
}

// pay emits an edge that is owed, if its key still is what the edge says. Where the key is gone, alarms that the edge would have
// cleared are cleared all the same.
func (e *Engine) pay(o *owedEdge, at Position, emit Emit) {
	if p := e.profiles[o.profile]; p != nil {
		if i, ok := findRule(p.rules, o.rule); ok {
			d := p.shared
			if o.device != 0 {
				d = e.devices.get(o.device)
			}
			if d != nil && d.profile == p {
				if n, known := d.find(int32(i), o.anchor); known {
					if k, r := &d.keys[n], p.rules[i]; k.raised == (o.Signal == model.Raised) {
						r.HeldEdges = max(0, r.HeldEdges-1)
						e.flapped = max(0, e.flapped-1)
						e.worked.Edges++
						edge := p.edge(d, k, at, o.Firing)
						emit(edge)
						e.act(p, r, &edge)
					}
					return
				}
			}
		}
	}
	if e.acts != nil && o.Signal == model.Resolved && o.device != 0 {
		e.acts.Contribute(model.Contribution{Kind: model.ContributeResolve, Edge: model.EdgeID{Epoch: at.Epoch, Offset: at.Offset}, TenantID: o.profile.Tenant,
			DeviceID: o.device, Device: o.series, Rule: o.stable, Occurred: o.At, Received: at.Received})
	}
}

// owedEdges are those of all tenants: by tenant, in their order.
func (e *Engine) owedEdges() (all []*owedEdge) {
	if e.owing == 0 {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(e.tenants)) {
		o := &e.tenants[id].owed
		for i := range o.queue {
			if o.stands(&o.queue[i]) {
				all = append(all, &o.queue[i])
			}
		}
	}
	return all
}

// owedID is the id of the page of the edges that are owed to all tenants.
const owedID = "owed"

// FreezeOwed returns the page of the edges that are owed. It belongs to the pages of Freeze and is written with them.
func (e *Engine) FreezeOwed() []Page {
	all := e.owedEdges()
	if len(all) == 0 {
		if !e.owedStored {
			return nil
		}
		e.owedStored = false
		return []Page{{ID: owedID}}
	}
	e.owedStored = true
	b := binary.AppendUvarint(page.Header(pageOwed), uint64(len(all)))
	for _, o := range all {
		for _, n := range [...]int64{o.profile.Tenant, o.profile.Profile, o.device, int64(o.Signal), int64(o.At)} {
			b = binary.AppendVarint(b, n)
		}
		for _, s := range [...]string{o.rule, o.anchor, o.stable, o.series} {
			b = page.AppendString(b, s)
		}
		b = binary.AppendUvarint(b, math.Float64bits(o.Value))
		b = append(b, byteOf(o.HasValue))
	}
	return []Page{{ID: owedID, Data: page.Seal(b)}}
}

func (e *Engine) loadOwed(pg Page) error {
	r, err := page.Open(pg.Data, pageOwed)
	if err != nil {
		return fmt.Errorf("%w (page %s)", err, pg.ID)
	}
	for range r.Count() {
		o := owedEdge{owedKey: owedKey{profile: ProfileKey{r.Signed(), r.Signed()}, device: r.Signed()}}
		o.Signal, o.At = model.EdgeSignal(r.Signed()), model.Micros(r.Signed())
		o.rule, o.anchor, o.stable, o.series = r.Text(), r.Text(), r.Text(), r.Text()
		o.Value, o.HasValue = math.Float64frombits(r.Unsigned()), r.Flag()
		known := &e.tenant(o.profile.Tenant).owed
		r.Must(known.edges[o.owedKey] == nil && (o.Signal == model.Raised || o.Signal == model.Resolved))
		known.add(o)
		e.owing++
		e.metrics.owed.Set(float64(e.owing))
	}
	if err := r.End(); err != nil {
		return fmt.Errorf("%w (page %s)", err, pg.ID)
	}
	e.owedStored = true
	return nil
}
