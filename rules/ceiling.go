package rules

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"weir/model"
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

// mayEmit reports whether an edge of a rule is within the tenant's ceiling. One that is not changes the latch like any other:
// it is counted with the rule, and nobody sees it.
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
	b := binary.AppendUvarint(header(pageCeilings), uint64(len(tenants)))
	for _, id := range tenants {
		b = binary.AppendVarint(b, id)
		b = binary.AppendVarint(b, int64(e.tenants[id].edges))
	}
	b = binary.AppendUvarint(b, uint64(len(rules)))
	for _, f := range rules {
		b = binary.AppendVarint(b, f.p.key.Tenant)
		b = binary.AppendVarint(b, f.p.key.Profile)
		b = putString(b, f.r.token)
		for _, n := range [...]int64{int64(f.r.share), f.r.HeldEdges, int64(f.r.HeldAt)} {
			b = binary.AppendVarint(b, n)
		}
	}
	return []Page{{ID: ceilingsID, Data: seal(b)}}
}

// loadCeilings reads the page of the ceilings. The rules are loaded already.
func (e *Engine) loadCeilings(pg Page) error {
	r, err := openPage(pg.Data, pageCeilings)
	if err != nil {
		return fmt.Errorf("%w (page %s)", err, pg.ID)
	}
	for range r.count() {
		id := r.signed()
		e.tenant(id).edges = allowance(r.signed())
	}
	for range r.count() {
		p, token := e.profiles[ProfileKey{r.signed(), r.signed()}], r.text()
		c := ceiling{share: allowance(r.signed()), HeldEdges: r.signed(), HeldAt: model.Nanos(r.signed())}
		if p == nil {
			r.must(false)
			continue
		}
		x := p.rule(token)
		if r.must(x != nil); x != nil {
			x.ceiling = c
		}
	}
	if err := r.end(); err != nil {
		return fmt.Errorf("%w (page %s)", err, pg.ID)
	}
	e.ceilingsStored = true
	return nil
}
