package rules

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"weir/model"
)

// Load fills a new engine with the pages of the store. Install then makes the versions active that were so at the
// pages' offset; equal bodies find their state, so that nothing is emitted. After an error the engine is of no use.
func (e *Engine) Load(pages []Page) error {
	keyed, err := keyPages(pages)
	if err != nil {
		return err
	}
	for _, kind := range []byte{pageRules, pageDevices, pageKeys} { // each refers to what the one before holds
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
	default:
		e.loadKeys(k, r)
	}
	return r.end()
}

func (e *Engine) loadRules(k pageKey, r *pageReader) {
	p := &profile{key: k.profile}
	p.tenantToken, p.token, p.version = r.text(), r.text(), int(r.signed())
	for range r.count() {
		x := &rule{token: r.text(), kind: Kind(r.text()), severity: r.text()}
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
	var names []int32
	for range r.count() {
		at, ok := findRule(p.rules, r.text())
		r.must(ok)
		names = append(names, int32(at))
	}
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
		for range r.count() {
			d.load(r, names)
		}
		r.must(len(d.keys) > 0)
		e.tenant(k.profile.Tenant).keys += len(d.keys)
	}
}

func (d *device) load(r *pageReader, names []int32) {
	n := r.unsigned()
	if n >= uint64(len(names)) {
		r.must(false)
		return
	}
	k := key{rule: names[n], state: r.state()}
	r.must(len(d.keys) == 0 || d.keys[len(d.keys)-1].rule < k.rule)
	d.keys = append(d.keys, k)
}

// pageReader reads a page. After the first offence it yields zeros, and end reports the offence.
type pageReader struct {
	b   []byte
	bad bool
}

func openPage(data []byte, kind byte) (*pageReader, error) {
	if len(data) > 0 && data[0] > pageVersion {
		return nil, ErrVersion
	}
	if len(data) < 6 || data[0] != pageVersion || data[1] != kind {
		return nil, ErrDamaged
	}
	body, sum := data[:len(data)-4], data[len(data)-4:]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(sum) {
		return nil, ErrDamaged
	}
	return &pageReader{b: body[2:]}, nil
}

func (r *pageReader) must(ok bool) {
	if !ok {
		r.bad, r.b = true, nil
	}
}

func (r *pageReader) end() error {
	if r.bad || len(r.b) > 0 {
		return ErrDamaged
	}
	return nil
}

func (r *pageReader) unsigned() uint64 {
	v, n := binary.Uvarint(r.b)
	if r.must(n > 0); n <= 0 {
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *pageReader) signed() int64 {
	v, n := binary.Varint(r.b)
	if r.must(n > 0); n <= 0 {
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads the number of things that follow; each takes at least a byte, so no damage makes it huge.
func (r *pageReader) count() int {
	n := r.unsigned()
	if n > uint64(len(r.b)) {
		r.must(false)
		return 0
	}
	return int(n)
}

// take returns the next n bytes, or nil.
func (r *pageReader) take(n int) []byte {
	if n > len(r.b) {
		r.must(false)
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *pageReader) text() string { return string(r.take(r.count())) }

func (r *pageReader) flag() bool {
	b := r.take(1)
	r.must(len(b) == 1 && b[0] <= 1)
	return len(b) == 1 && b[0] == 1
}

func (r *pageReader) state() State {
	blob := pageReader{b: r.take(r.count())}
	layout := blob.take(1)
	s := State{Edged: true, Raised: blob.flag(), LastEdge: model.Micros(blob.signed())}
	r.must(len(layout) == 1 && layout[0] == layoutLatch && blob.end() == nil)
	return s
}
