package rules

import (
	"fmt"
	"slices"

	"weir/model"
)

// Load fills a new engine with the pages of the store. Install then makes the versions active that were active at the
// pages' offset; equal bodies find their state, so that no edge is emitted, and their timers run. After an error the
// engine must not be used.
func (e *Engine) Load(pages []Page) error {
	var ceilings []Page
	pages = slices.DeleteFunc(slices.Clone(pages), func(p Page) bool {
		if p.ID == ceilingsID {
			ceilings = append(ceilings, p)
		}
		return p.ID == ceilingsID
	})
	keyed, err := keyPages(pages)
	if err != nil {
		return err
	}
	for _, kind := range []byte{pageRules, pageDevices, pageKeys, pageShared} { // each refers to the one before
		for _, k := range keyed {
			if k.kind != kind {
				continue
			}
			if err := e.loadPage(k.pageKey, k.data); err != nil {
				return fmt.Errorf("%w (page %s)", err, k.id())
			}
			e.stored[k.pageKey] = true
		}
	}
	for _, p := range ceilings {
		if err := e.loadCeilings(p); err != nil {
			return err
		}
	}
	for _, t := range e.tenants {
		e.metrics.keys.Add(float64(t.keys))
		e.held += t.keys + t.devices
	}
	return nil
}

type keyedPage struct {
	pageKey
	data []byte
}

func keyPages(pages []Page) ([]keyedPage, error) {
	keyed := make([]keyedPage, 0, len(pages))
	seen := map[pageKey]bool{}
	for _, pg := range pages {
		k, ok := parsePageID(pg.ID)
		if !ok || k.profile.Tenant != pg.Tenant || seen[k] {
			return nil, fmt.Errorf("%w (page %q of tenant %d)", ErrDamaged, pg.ID, pg.Tenant)
		}
		seen[k] = true
		keyed = append(keyed, keyedPage{k, pg.Data})
	}
	return keyed, nil
}

func (e *Engine) loadPage(k pageKey, data []byte) error {
	r, err := openPage(data, k.kind)
	if err != nil {
		return err
	}
	switch k.kind {
	case pageRules:
		e.loadRules(k, r)
	case pageDevices:
		e.loadDevices(k, r)
	case pageKeys:
		e.loadKeys(k, r)
	default:
		e.loadShared(k, r)
	}
	return r.end()
}

func (e *Engine) loadRules(k pageKey, r *pageReader) {
	p := newProfile(k.profile)
	p.tenantToken, p.token, p.version = r.text(), r.text(), int(r.signed())
	for range r.count() {
		x := &rule{token: r.text(), kind: Type(r.text()), severity: r.text()}
		x.stable, x.name = model.RuleStableID(p.token, x.token), x.token
		copy(x.body[:], r.take(len(x.body)))
		x.EvalErrors, x.LateSamples, x.RefusedKeys = r.signed(), r.signed(), r.signed()
		x.LastInputAt = model.Nanos(r.signed())
		for range r.count() {
			x.wants = append(x.wants, r.text())
			x.came = append(x.came, r.flag())
		}
		r.must(len(p.rules) == 0 || p.rules[len(p.rules)-1].token < x.token)
		r.must(slices.IsSorted(x.wants))
		p.rules = append(p.rules, x)
	}
	e.profiles[k.profile] = p
}

func (e *Engine) loadDevices(k pageKey, r *pageReader) {
	p := e.profiles[k.profile]
	if r.must(p != nil); p == nil {
		return
	}
	b := &p.parts[k.bucket]
	var id int64
	for i := range r.count() {
		step := r.signed()
		r.must(i == 0 || step > 0)
		id += step
		d := &device{id: id, profile: p, kind: r.signed(), token: r.text()}
		d.newest, d.arrived = model.Micros(r.signed()), Listening(r.signed())
		r.text()
		r.must(bucketOf(id) == k.bucket && e.devices[id] == nil)
		b.devices = append(b.devices, d)
		e.devices[id] = d
	}
	e.tenant(k.profile.Tenant).devices += len(b.devices)
}

func (e *Engine) loadKeys(k pageKey, r *pageReader) {
	p := e.profiles[k.profile]
	if r.must(p != nil); p == nil {
		return
	}
	load, read := keyLoader{e, p, r, ruleNames(p, r)}, 0
	var id int64
	for i := range r.count() {
		step := r.signed()
		r.must(i == 0 || step > 0)
		id += step
		at, ok := p.parts[k.bucket].find(id)
		if r.must(ok); !ok {
			return
		}
		d := p.parts[k.bucket].devices[at]
		load.keys(d)
		read += len(d.keys)
	}
	e.tenant(k.profile.Tenant).keys += read
	r.must(r.version == keyHeader(pageKeys, p.parts[k.bucket].devices...)[0])
}

func (e *Engine) loadShared(k pageKey, r *pageReader) {
	p := e.profiles[k.profile]
	if r.must(p != nil); p == nil {
		return
	}
	load := keyLoader{e, p, r, ruleNames(p, r)}
	p.shared.newest, p.shared.arrived = model.Micros(r.signed()), Listening(r.signed())
	load.keys(p.shared)
	e.tenant(k.profile.Tenant).keys += len(p.shared.keys)
	r.must(r.version == keyHeader(pageShared, p.shared)[0])
}

// ruleNames reads the rules of a page of keys and returns their indexes.
func ruleNames(p *profile, r *pageReader) []int32 {
	var rules []int32
	for range r.count() {
		at, ok := findRule(p.rules, r.text())
		r.must(ok)
		rules = append(rules, int32(at))
	}
	return rules
}

// keyLoader reads the keys of a page.
type keyLoader struct {
	e     *Engine
	p     *profile
	r     *pageReader
	rules []int32
}

func (l *keyLoader) keys(d *device) {
	for range l.r.count() {
		n := l.r.unsigned()
		if n >= uint64(len(l.rules)) {
			l.r.must(false)
			return
		}
		k := key{rule: l.rules[n]}
		l.state(d, &k)
		if at, known := d.find(k.rule, k.anchor()); known || at < len(d.keys) {
			l.r.must(false)
			return
		}
		d.keys = append(d.keys, k)
	}
	l.r.must(len(d.keys) > 0)
}

// state reads the state of a key. Its timer runs from Install on, which knows whether the rule does.
func (l *keyLoader) state(d *device, k *key) {
	blob := pageReader{b: l.r.take(l.r.count())}
	switch layout := blob.byte(); {
	case layout == layoutLatch:
		k.edged, k.raised, k.lastEdge = true, blob.flag(), model.Micros(blob.signed())
	case layout == layoutMemory && l.r.version >= pageVersion:
		l.memory(d, k, &blob)
	default:
		blob.must(false)
	}
	l.r.must(blob.end() == nil)
}

func (l *keyLoader) memory(d *device, k *key, blob *pageReader) {
	flags := blob.byte()
	k.raised, k.edged, k.lastEdge = flags&flagRaised != 0, flags&flagEdged != 0, model.Micros(blob.signed())
	rule := l.p.rules[k.rule]
	x := &extra{due: Listening(blob.signed()), anchor: blob.text(), device: d, rule: rule.token}
	k.extra = x
	blob.must(flags <= flagsKnown && x.due >= 0 && (k.edged || !k.raised && k.lastEdge == 0))
	if flags&flagOwn == 0 {
		blob.must(x.due != 0 || k.edged && x.anchor != "") // else the key would latch only, or be empty
		return
	}
	encoded := blob.take(len(blob.b))
	kind, ok := findKind(l.e.compiler.kinds, rule.kind)
	if !ok {
		x.own = unread(encoded)
		return
	}
	var err error
	x.own, err = kind.Decode(encoded)
	blob.must(err == nil && x.own != nil)
}
