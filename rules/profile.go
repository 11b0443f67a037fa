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
	tenant      *tenant
	tenantToken string
	token       string
	version     int
	rules       []*rule           // sorted by token
	wanting     map[string][]want // by metric, of the rules that run; in the order of rules
	always      []int32           // rules that run and look at every sample
	presence    []int32           // rules that run and judge transitions of presence
	enrolls     []int32           // rules that run and are shown the roster
	members     []int32           // rules that run and have a state per anchor, which devices leave
	scoped      bool              // a rule watches the members of a group only
	gapped      bool              // a rule that runs asks for gaps
	parts       [buckets]bucket
	shared      *device // holds the keys without a device
	sharedPart  *part   // of the snapshot that is under way, while they are not encoded
	rulesDirty  bool
	sharedDirty bool
}

func (e *Engine) newProfile(k ProfileKey) *profile {
	p := &profile{key: k, tenant: e.tenant(k.Tenant)}
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

// want is an entry of the index by metric: the rule names the metric as its metric-th, and judges samples that carry it or not.
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
	ceiling
	seen uint64 // last sample that it judged
}

// counters are results: they belong to the rule's stable id and are stored with the state.
type counters struct {
	EvalErrors  int64
	LateSamples int64
	RefusedKeys int64
	Lacking     int64       // samples of devices without the attribute that the rule compares with
	LastInputAt model.Nanos // receive time of the last sample in scope, 0 when there was none
}

// bucket holds a part of a profile's devices, sorted by id.
type bucket struct {
	devices      []*device
	part         *part // of the snapshot that is under way, while the bucket is not encoded; devices is its list then, too
	devicesDirty bool
	keysDirty    bool

	segments []segment // in which samples of windows are stored, oldest first
	first    uint64    // number of the first of them
	whole    bool      // the next snapshot writes the windows anew
}

func (p *profile) bucket(deviceID int64) *bucket { return &p.parts[bucketOf(deviceID)] }

// bucketOf distributes row ids, which are dense, evenly. It is part of the page format.
func bucketOf(deviceID int64) int {
	return int(uint64(deviceID) * 0x9E3779B97F4A7C15 >> (64 - 6))
}

func (b *bucket) find(id int64) (int, bool) { return findDevice(b.devices, id) }

func findDevice(devices []*device, id int64) (int, bool) {
	return slices.BinarySearchFunc(devices, id, func(d *device, id int64) int { return cmp.Compare(d.id, id) })
}

// own makes the list of devices the bucket's alone.
func (b *bucket) own() {
	if b.part != nil && !b.part.copied {
		b.devices, b.part.copied = slices.Clone(b.devices), true
	}
}

func (b *bucket) insert(d *device) {
	b.own()
	at, _ := b.find(d.id)
	b.devices = slices.Insert(b.devices, at, d)
}

func (b *bucket) remove(d *device) {
	b.own()
	if at, ok := b.find(d.id); ok {
		b.devices = slices.Delete(b.devices, at, at+1)
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

// index builds the lists that Apply looks up.
func (p *profile) index() {
	p.wanting, p.always, p.presence = map[string][]want{}, nil, nil
	p.enrolls, p.members, p.gapped, p.scoped = nil, nil, false, false
	for i, r := range p.rules {
		p.scoped = p.scoped || r.view.Group != ""
		if r.program == nil {
			continue
		}
		for j, name := range r.wants {
			judges := slices.Contains(r.program.carries, name)
			p.wanting[name] = append(p.wanting[name], want{int32(i), int32(j), judges})
		}
		u := r.program.uses
		p.gapped = p.gapped || u.Gaps
		if u.Enrolls {
			p.enrolls = append(p.enrolls, int32(i))
		}
		if u.Keys == ByAnchor {
			p.members = append(p.members, int32(i))
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
