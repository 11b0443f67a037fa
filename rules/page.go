package rules

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
)

// The first byte of a page is its version. Pages of latches have version 1; a page with a key that stores more has
// version 2.
const (
	pageVersion1 = 1
	pageVersion  = 2 // the newest
)

// Errors of Load. They are wrapped with the page's id.
var (
	// ErrDamaged: a page fails its checksum or its form, or does not agree with its siblings.
	ErrDamaged = errors.New("rules: damaged page")
	// ErrVersion: a page was written by a newer Weir.
	ErrVersion = errors.New("rules: newer page format")
)

// Page is a part of the engine's state as the store keeps it.
type Page struct {
	Tenant int64
	ID     string // unique over all tenants
	Data   []byte // nil: the page is removed
}

// The kinds of pages of a profile. Clocks move with every message and keys only with an edge, hence two pages.
const (
	pageRules   = 'r' // one: the rules whose state is stored, and their counters
	pageDevices = 'd' // per bucket: devices and their clocks
	pageKeys    = 'k' // per bucket: keys
	pageShared  = 's' // one: the keys without a device, and their clock
	// pageCeilings is one for all profiles, with an id of its own.
	pageCeilings = 'e'
)

type pageKey struct {
	profile ProfileKey
	kind    byte
	bucket  int // 0 for pageRules and pageShared
}

func (k pageKey) id() string {
	return fmt.Sprintf("%d/%d/%c%02d", k.profile.Tenant, k.profile.Profile, k.kind, k.bucket)
}

func parsePageID(id string) (pageKey, bool) {
	parts := strings.Split(id, "/")
	if len(parts) != 3 || len(parts[2]) != 3 {
		return pageKey{}, false
	}
	t, err1 := strconv.ParseInt(parts[0], 10, 64)
	p, err2 := strconv.ParseInt(parts[1], 10, 64)
	b, err3 := strconv.Atoi(parts[2][1:])
	k := pageKey{ProfileKey{t, p}, parts[2][0], b}
	ok := err1 == nil && err2 == nil && err3 == nil && b >= 0 && b < buckets && k.id() == id
	return k, ok && (k.kind == pageDevices || k.kind == pageKeys || (k.kind == pageRules || k.kind == pageShared) && b == 0)
}

func (k pageKey) compare(o pageKey) int {
	return cmp.Or(k.profile.compare(o.profile), cmp.Compare(k.kind, o.kind), cmp.Compare(k.bucket, o.bucket))
}

// Freeze returns the pages that changed since the last call, in a fixed order. It is called between two records; the
// pages then hold exactly the results of the records before. The caller writes all of them in the transaction that
// moves the offset, or discards the engine.
func (e *Engine) Freeze() []Page {
	var pages []Page
	put := func(k pageKey, data []byte) {
		delete(e.dropped, k)
		if data == nil && !e.stored[k] {
			return
		}
		pages = append(pages, Page{Tenant: k.profile.Tenant, ID: k.id(), Data: data})
		if data == nil {
			delete(e.stored, k)
		} else {
			e.stored[k] = true
		}
	}
	for _, p := range e.sortedProfiles() {
		p.freeze(put)
	}
	for _, k := range e.sortedDropped() {
		put(k, nil)
	}
	return pages
}

func (p *profile) freeze(put func(pageKey, []byte)) {
	for i := range p.parts {
		b := &p.parts[i]
		if b.devicesDirty {
			put(pageKey{p.key, pageDevices, i}, encodeDevices(b.devices))
		}
		if b.keysDirty {
			put(pageKey{p.key, pageKeys, i}, encodeKeys(b.devices, p.rules))
		}
		b.devicesDirty, b.keysDirty = false, false
	}
	if p.sharedDirty {
		put(pageKey{p.key, pageShared, 0}, encodeShared(p))
		p.sharedDirty = false
	}
	if p.rulesDirty {
		put(pageKey{p.key, pageRules, 0}, encodeRules(p))
		p.rulesDirty = false
	}
}

func (e *Engine) sortedProfiles() []*profile {
	ps := make([]*profile, 0, len(e.profiles))
	for _, p := range e.profiles {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b *profile) int { return a.key.compare(b.key) })
	return ps
}

func (e *Engine) sortedDropped() []pageKey {
	ks := make([]pageKey, 0, len(e.dropped))
	for k := range e.dropped {
		ks = append(ks, k)
	}
	slices.SortFunc(ks, pageKey.compare)
	return ks
}

// pageReader reads a page. After the first violation it returns zeros, and end reports the damage.
type pageReader struct {
	b       []byte
	version byte
	bad     bool
}

func openPage(data []byte, kind byte) (*pageReader, error) {
	if len(data) > 0 && data[0] > pageVersion {
		return nil, ErrVersion
	}
	if len(data) < 6 || data[0] < pageVersion1 || data[1] != kind {
		return nil, ErrDamaged
	}
	body, sum := data[:len(data)-4], data[len(data)-4:]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(sum) {
		return nil, ErrDamaged
	}
	return &pageReader{b: body[2:], version: data[0]}, nil
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

// count reads the number of things that follow; each takes at least a byte, so the number cannot exceed what is left.
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

func (r *pageReader) byte() byte {
	if b := r.take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (r *pageReader) flag() bool {
	b := r.byte()
	r.must(b <= 1)
	return b == 1
}
