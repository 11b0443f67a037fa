package rules

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"weir/model"
	"weir/rules/page"
	"weir/rules/window"
)

// Errors of Load. They are wrapped with the page's id.
var (
	ErrDamaged = page.ErrDamaged
	ErrVersion = page.ErrVersion
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
	pageSamples = 'w' // per bucket and segment: samples of windows that came between two snapshots
	// pageCeilings is one for all profiles, with an id of its own.
	pageCeilings = 'e'
	// pageOwed likewise.
	pageOwed   = 'o'
	pageClocks = 'c' // likewise
)

type pageKey struct {
	profile ProfileKey
	kind    byte
	bucket  int    // 0 for pageRules and pageShared
	segment uint64 // of pageSamples
}

func (k pageKey) id() string {
	if k.kind == pageSamples {
		return fmt.Sprintf("%d/%d/%c%02d.%d", k.profile.Tenant, k.profile.Profile, k.kind, k.bucket, k.segment)
	}
	return fmt.Sprintf("%d/%d/%c%02d", k.profile.Tenant, k.profile.Profile, k.kind, k.bucket)
}

func parsePageID(id string) (pageKey, bool) {
	parts := strings.Split(id, "/")
	if len(parts) != 3 || len(parts[2]) < 3 {
		return pageKey{}, false
	}
	t, err1 := strconv.ParseInt(parts[0], 10, 64)
	p, err2 := strconv.ParseInt(parts[1], 10, 64)
	bucket, segment, segmented := strings.Cut(parts[2][1:], ".")
	b, err3 := strconv.Atoi(bucket)
	k := pageKey{profile: ProfileKey{t, p}, kind: parts[2][0], bucket: b}
	var err4 error
	if segmented {
		k.segment, err4 = strconv.ParseUint(segment, 10, 64)
	}
	ok := err1 == nil && err2 == nil && err3 == nil && err4 == nil && b >= 0 && b < buckets && k.id() == id
	switch k.kind {
	case pageDevices, pageKeys, pageSamples:
	case pageRules, pageShared:
		ok = ok && b == 0
	default:
		ok = false
	}
	return k, ok
}

func (k pageKey) compare(o pageKey) int {
	return cmp.Or(k.profile.compare(o.profile), cmp.Compare(k.kind, o.kind), cmp.Compare(k.bucket, o.bucket), cmp.Compare(k.segment, o.segment))
}

// Freeze is a snapshot that is encoded at once: the pages that changed since the one before, in a fixed order.
func (e *Engine) Freeze() []Page {
	s := e.Cut()
	s.flush(nil)
	pages, _ := s.Next()
	return pages
}

// Snapshot is the state between two records, on its way into pages. The engine goes on meanwhile: what is about to change is
// encoded before. Like the engine it has no lock.
type Snapshot struct {
	e       *Engine
	number  uint32
	parts   []*part          // that are not encoded, in the order of their pages
	pages   []Page           // that were not fetched
	dropped map[pageKey]bool // pages of profiles that were removed before
	spare   []buffers        // of parts that are complete
	page    []byte           // that is being put together
	warmed  int              // what warm has read: the compiler would leave it out
}

// Cut begins a snapshot of what changed since the one before. It is called between two records; the pages then hold exactly the
// results of the records before. The caller fetches them with Next and writes all of them in the transaction that moves the
// offset, or discards the engine. A snapshot that is under way is encoded first.
func (e *Engine) Cut() *Snapshot {
	if s := e.taking; s != nil {
		s.flush(nil)
		s.end()
	}
	e.cuts++
	s := &Snapshot{e: e, number: e.cuts, dropped: e.dropped}
	e.taking, e.dropped = s, map[pageKey]bool{}
	for _, p := range e.sortedProfiles() {
		s.cut(p)
	}
	return s
}

// cut adds the parts of a profile that have changed.
func (s *Snapshot) cut(p *profile) {
	add := func(pt *part) *part {
		pt.s, pt.p, pt.rules = s, p, p.rules
		s.parts = append(s.parts, pt)
		return pt
	}
	for i := range p.parts {
		if b := &p.parts[i]; b.devicesDirty || b.keysDirty {
			b.part = add(&part{number: i, bucket: b, devices: b.devices, units: len(b.devices), clocks: b.devicesDirty, keys: b.keysDirty})
			b.devicesDirty, b.keysDirty = false, false
		}
	}
	if p.sharedDirty {
		p.sharedPart = add(&part{shared: slices.Clone(p.shared.keys), units: len(p.shared.keys), newest: p.shared.newest, arrived: p.shared.arrived, keys: true})
		p.sharedDirty = false
	}
	if p.rulesDirty {
		add(&part{counters: encodeRules(p)})
		p.rulesDirty = false
	}
}

// sliceUnits and sliceBytes bound what Next encodes at once, some hundredths of a millisecond.
const (
	sliceUnits = 64
	sliceBytes = 16 << 10
)

// Next encodes a little more and returns the pages that are complete; more says that there are others.
func (s *Snapshot) Next() (pages []Page, more bool) { return s.next(sliceUnits) }

func (s *Snapshot) next(most int) (pages []Page, more bool) {
	for units, size := 0, 0; len(s.parts) > 0 && units < most && size < sliceBytes; {
		if pt := s.parts[0]; pt.next < pt.units {
			if units == 0 && pt.bucket != nil {
				s.warm(pt.devices[pt.next:min(pt.next+most, pt.units)])
			}
			size += pt.take(pt.next)
			pt.next++
			units++
		} else {
			if pt.complete() {
				s.parts = s.parts[1:]
			}
			units = most // putting a page together takes as long
		}
	}
	if more = len(s.parts) > 0; !more {
		s.end()
		s.spare, s.page = nil, nil
	}
	pages, s.pages = s.pages, nil
	return pages, more
}

// warm reads what lies behind devices, of all of them one pointer after the other. Each read waits for memory in a large engine; the
// processor waits for several at once when none depends on the one before, which halves the time of a snapshot.
func (s *Snapshot) warm(devices []*device) {
	n := 0
	for _, d := range devices {
		n += len(d.token) + len(d.keys)
	}
	for _, d := range devices {
		if d.token != "" {
			n += int(d.token[0])
		}
		if len(d.keys) > 0 {
			n += int(d.keys[0].rule)
		}
	}
	for _, d := range devices {
		for i := range d.keys {
			if x := d.keys[i].extra; x != nil {
				n += int(x.rule)
			}
		}
	}
	for _, d := range devices {
		for i := range d.keys {
			if x := d.keys[i].extra; x != nil && x.own != nil {
				n += retained(x.own)
			}
		}
	}
	s.warmed = n
}

// flush encodes what is left of a profile that is about to change as a whole; nil is all of them.
func (s *Snapshot) flush(p *profile) {
	if s == nil {
		return
	}
	s.parts = slices.DeleteFunc(s.parts, func(pt *part) bool {
		if p != nil && pt.p != p {
			return false
		}
		pt.finish()
		return true
	})
}

// end comes after the last part.
func (s *Snapshot) end() {
	if s.e.taking == s {
		s.e.taking = nil
	}
	for _, k := range sortedKeys(s.dropped) {
		s.put(k, nil)
	}
}

// put adds a page; nil removes it from the store.
func (s *Snapshot) put(k pageKey, data []byte) {
	delete(s.dropped, k)
	if data == nil && !s.e.stored[k] {
		return
	}
	s.pages = append(s.pages, Page{Tenant: k.profile.Tenant, ID: k.id(), Data: data})
	if data == nil {
		delete(s.e.stored, k)
	} else {
		s.e.stored[k] = true
	}
}

// touch encodes a device, before it changes, for the snapshot that is under way.
func (e *Engine) touch(d *device) {
	if e.taking == nil || d.cut == e.taking.number {
		return
	}
	d.cut = e.taking.number
	if b := d.profile.bucket(d.id); b.part != nil && d != d.profile.shared {
		if at, ok := findDevice(b.part.devices, d.id); ok {
			b.part.take(at)
		}
	}
}

// touchKey likewise encodes a key without a device.
func (p *profile) touchKey(k *key) {
	if pt := p.sharedPart; pt != nil {
		if at, ok := (&device{keys: pt.shared}).find(k.rule, k.anchor()); ok {
			pt.take(at)
		}
	}
}

// part is what a snapshot has of a bucket, of the keys of a profile without a device, or of its rules. Its units, devices or
// keys, are encoded one after the other, or before they change. The lists are those of the cut: who changes one copies it.
type part struct {
	s      *Snapshot
	p      *profile
	number int // of the bucket
	rules  []*rule
	bucket *bucket // nil for keys without a device
	copied bool    // the bucket has a list of its own

	devices      []*device
	shared       []key
	newest       model.Micros // clock of the shared keys
	arrived      Listening
	counters     []byte // page of the rules
	clocks, keys bool   // what has changed

	units, next int
	buffers
	memories bool // a key has more than a latch
	samples  segment
	live     int          // samples of windows that lie in segments
	begins   model.Micros // first of these
}

// buffers have what is encoded of a part. They are used again, because growing them costs more than the encoding.
type buffers struct {
	spans        []span // by unit; none until the first is encoded
	clock        []byte
	states, runs page.Entries
}

// span says where what is encoded of a unit lies.
type span struct {
	clock, states, runs [2]int32
	taken               bool
}

// take encodes a unit, once, and returns about how many bytes that are.
func (pt *part) take(i int) int {
	if len(pt.spans) == 0 {
		if n := len(pt.s.spare); n > 0 {
			pt.buffers, pt.s.spare = pt.s.spare[n-1], pt.s.spare[:n-1]
		}
		pt.spans = slices.Grow(pt.spans, pt.units)[:pt.units]
		clear(pt.spans)
	}
	x := &pt.spans[i]
	if x.taken {
		return 0
	}
	x.taken = true
	before := len(pt.clock) + len(pt.states.Data) + len(pt.runs.Data)
	x.clock[0], x.states[0], x.runs[0] = int32(len(pt.clock)), pt.states.Len(), pt.runs.Len()
	if pt.bucket == nil {
		pt.state(&pt.shared[i])
	} else {
		pt.device(pt.devices[i])
	}
	x.clock[1], x.states[1], x.runs[1] = int32(len(pt.clock)), pt.states.Len(), pt.runs.Len()
	return len(pt.clock) + len(pt.states.Data) + len(pt.runs.Data) - before
}

func (pt *part) device(d *device) {
	if d.cut = pt.s.number; pt.clocks {
		pt.clock = appendClock(pt.clock, d)
	}
	if pt.keys {
		for i := range d.keys {
			pt.state(&d.keys[i])
		}
	}
}

func (pt *part) state(k *key) {
	pt.memories = pt.memories || k.extra != nil
	l := pt.line(k)
	pt.states.Data = putState(pt.states.Data, k, l)
	if pt.states.End(k.rule); l == nil {
		return
	}
	if at := l.Begins(); pt.live == 0 || at < pt.begins {
		pt.begins = at
	}
	pt.live += len(l.Kept())
	before := len(pt.runs.Data)
	b, n := l.AppendRun(page.AppendString(pt.runs.Data, k.anchor()))
	if n == 0 {
		pt.runs.Data = b[:before]
		return
	}
	pt.runs.Data = b
	pt.runs.End(k.rule)
	pt.samples.add(n, l.Ends())
}

// line is the line of a key whose window lies in segments, nil for all others.
func (pt *part) line(k *key) *window.Line {
	if pt.bucket == nil || k.extra == nil {
		return nil
	}
	l, ok := k.extra.own.(*window.Line)
	if !ok {
		return nil
	}
	if apart := l.Apart(); !apart || pt.bucket.whole {
		if l.Whole(); !apart {
			return nil
		}
	}
	return l
}

// finish encodes what is left, and completes the pages.
func (pt *part) finish() {
	for i := pt.next; i < pt.units; i++ {
		pt.take(i)
	}
	for !pt.complete() {
	}
}

// complete completes a page of a part whose units are all encoded, and reports whether it was the last one.
func (pt *part) complete() bool {
	switch {
	case pt.clocks:
		pt.clocks = false
		pt.put(pageDevices, pt.clocksPage())
		if pt.keys {
			return false
		}
	case pt.keys && pt.bucket != nil:
		pt.segments()
		pt.put(pageKeys, pt.keysPage())
	case pt.keys:
		pt.p.sharedPart = nil
		pt.put(pageShared, pt.sharedPage())
	default:
		pt.put(pageRules, pt.counters)
	}
	if pt.bucket != nil {
		pt.bucket.part = nil
	}
	if cap(pt.spans) > 0 {
		pt.clock = pt.clock[:0]
		pt.states.Reset()
		pt.runs.Reset()
		pt.s.spare = append(pt.s.spare, buffers{pt.spans[:0], pt.clock, pt.states, pt.runs})
		pt.buffers = buffers{}
	}
	return true
}

// begin begins a page, and end ends it.
func (pt *part) begin(kind byte) []byte { return append(pt.s.page[:0], page.Header(kind)...) }

func (pt *part) end(b []byte) []byte {
	pt.s.page = page.Seal(b)
	return slices.Clone(pt.s.page)
}

func (pt *part) put(kind byte, data []byte) {
	pt.s.put(pageKey{profile: pt.p.key, kind: kind, bucket: pt.number}, data)
}

// clocksPage is the page of the devices of a bucket and their clocks; nil for none.
func (pt *part) clocksPage() []byte {
	if pt.units == 0 {
		return nil
	}
	b := binary.AppendUvarint(pt.begin(pageDevices), uint64(pt.units))
	var last int64
	for i, d := range pt.devices {
		b = binary.AppendVarint(b, d.id-last)
		last = d.id
		b = append(b, pt.clock[pt.spans[i].clock[0]:pt.spans[i].clock[1]]...)
	}
	return pt.end(b)
}

// keysPage is the page of the keys of a bucket; nil for none.
func (pt *part) keysPage() []byte {
	if pt.states.Len() == 0 {
		return nil
	}
	b := pt.header(pageKeys)
	if x := pt.bucket; len(x.segments) > 0 {
		b[0] = page.Version
		b = binary.AppendUvarint(binary.AppendUvarint(b, x.first), uint64(len(x.segments)))
	}
	return pt.entries(b, &pt.states, func(x *span) [2]int32 { return x.states })
}

// header begins a page of keys with the lowest version that can hold them.
func (pt *part) header(kind byte) []byte {
	b := pt.begin(kind)
	if pt.memories {
		b[0] = page.Version2
	}
	return b
}

// entries adds the entries of a bucket's devices to a page, and ends it.
func (pt *part) entries(b []byte, e *page.Entries, of func(*span) [2]int32) []byte {
	b, numbers := e.Names(b, len(pt.rules), pt.token)
	holders := 0
	for i := range pt.spans {
		if at := of(&pt.spans[i]); at[0] < at[1] {
			holders++
		}
	}
	b = binary.AppendUvarint(b, uint64(holders))
	var last int64
	for i, d := range pt.devices {
		if at := of(&pt.spans[i]); at[0] < at[1] {
			b = binary.AppendVarint(b, d.id-last)
			last = d.id
			b = e.Append(binary.AppendUvarint(b, uint64(at[1]-at[0])), at[0], at[1], numbers)
		}
	}
	return pt.end(b)
}

func (pt *part) token(i int) string { return pt.rules[i].token }

// sharedPage is the page of the keys without a device and their clock; nil for none.
func (pt *part) sharedPage() []byte {
	if pt.units == 0 {
		return nil
	}
	b, numbers := pt.states.Names(pt.header(pageShared), len(pt.rules), pt.token)
	b = binary.AppendVarint(b, int64(pt.newest))
	b = binary.AppendVarint(b, int64(pt.arrived))
	b = binary.AppendUvarint(b, uint64(pt.units))
	for i := range pt.spans {
		at := pt.spans[i].states
		b = pt.states.Append(b, at[0], at[1], numbers)
	}
	return pt.end(b)
}

// segment is a page of samples of a bucket's windows: those that came to them between two snapshots.
type segment struct {
	samples int
	newest  model.Micros
}

func (s *segment) add(n int, newest model.Micros) {
	if s.samples == 0 || newest > s.newest {
		s.newest = newest
	}
	s.samples += n
}

// The bounds of what segments may hold besides the samples of windows: beyond them the next snapshot writes the windows anew, in
// one segment. So a sample is written at most about twice, and what is stored is at most about twice what is retained.
const (
	spareSamples = 1024
	maxSegments  = 256
)

// segments adds the segment of a snapshot to those of the bucket, and removes those of which no window has a sample.
func (pt *part) segments() {
	b := pt.bucket
	from, to := b.first, b.first+uint64(len(b.segments))
	if b.whole && len(b.segments) > 0 {
		b.segments = nil
		pt.s.e.metrics.rewritten.Inc()
	}
	for len(b.segments) > 0 && (pt.live == 0 || b.segments[0].newest < pt.begins) {
		b.first++
		b.segments = b.segments[1:]
	}
	if len(b.segments) == 0 {
		b.first = 0
	}
	key := pageKey{profile: pt.p.key, kind: pageSamples, bucket: pt.number}
	fresh := b.first + uint64(len(b.segments))
	for key.segment = from; key.segment < to; key.segment++ {
		if key.segment < b.first || key.segment >= fresh {
			pt.s.put(key, nil)
		}
	}
	if key.segment = fresh; pt.samples.samples > 0 {
		b.segments = append(b.segments, pt.samples)
		pt.s.put(key, pt.entries(pt.begin(pageSamples), &pt.runs, func(x *span) [2]int32 { return x.runs }))
	}
	b.weigh(pt.live)
}

// weigh finds out whether segments hold too much besides the live samples.
func (b *bucket) weigh(live int) {
	stored := 0
	for _, s := range b.segments {
		stored += s.samples
	}
	b.whole = stored > 2*live+spareSamples || len(b.segments) >= maxSegments
}

func (e *Engine) sortedProfiles() []*profile {
	ps := make([]*profile, 0, len(e.profiles))
	for _, p := range e.profiles {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b *profile) int { return a.key.compare(b.key) })
	return ps
}

func sortedKeys(set map[pageKey]bool) []pageKey {
	return slices.SortedFunc(maps.Keys(set), pageKey.compare)
}

// encodeRules writes to what the state of a profile's rules belongs, and their counters; nil without rules.
func encodeRules(p *profile) []byte {
	if len(p.rules) == 0 {
		return nil
	}
	b := page.Header(pageRules)
	lacking := slices.ContainsFunc(p.rules, func(r *rule) bool { return r.Lacking > 0 })
	if lacking { // otherwise an older Weir can read the page
		b[0] = page.Version2
	}
	b = page.AppendString(b, p.tenantToken)
	b = page.AppendString(b, p.token)
	b = binary.AppendVarint(b, int64(p.version))
	b = binary.AppendUvarint(b, uint64(len(p.rules)))
	for _, r := range p.rules {
		b = page.AppendString(b, r.token)
		b = page.AppendString(b, string(r.kind))
		b = page.AppendString(b, r.severity)
		b = append(b, r.body[:]...)
		b = binary.AppendVarint(b, r.EvalErrors)
		b = binary.AppendVarint(b, r.LateSamples)
		b = binary.AppendVarint(b, r.RefusedKeys)
		b = binary.AppendVarint(b, int64(r.LastInputAt))
		b = binary.AppendUvarint(b, uint64(len(r.wants)))
		for i, w := range r.wants {
			b = page.AppendString(b, w)
			b = append(b, byteOf(r.came[i]))
		}
		if lacking {
			b = binary.AppendVarint(b, r.Lacking)
		}
	}
	return page.Seal(b)
}

// appendClock appends a device and its clock. It ends in what its listening time is besides its tenant's, and the gaps between
// its arrivals; that is empty most of the time.
func appendClock(b []byte, d *device) []byte {
	b = binary.AppendVarint(b, d.kind)
	b = page.AppendString(b, d.token)
	b = binary.AppendVarint(b, int64(d.newest))
	b = binary.AppendVarint(b, int64(d.arrived))
	if d.gaps == nil && d.link == nil && d.lag == 0 && !d.asleep {
		return append(b, 0)
	}
	return page.AppendString(b, string(d.appendTime(nil)))
}

// The layouts of a key's state.
const (
	layoutLatch  = 1 // raised, stamp of the last edge
	layoutMemory = 2 // flags, stamp of the last edge, due time, anchor, the memory of the kind; from version 2 on
	layoutHead   = 3 // likewise, with the head of a line whose window lies in segments; from version 3 on
)

// The flags of layoutMemory.
const (
	flagRaised = 1 << iota
	flagEdged
	flagOwn
	flagsKnown = 1<<iota - 1
)

// putState appends the state of a key. line is its memory if its window lies in segments.
func putState(b []byte, k *key, line *window.Line) []byte {
	x := k.extra
	if x == nil {
		return binary.AppendVarint(append(b, layoutLatch, byteOf(k.raised)), int64(k.lastEdge))
	}
	layout := byte(layoutMemory)
	if line != nil {
		layout = layoutHead
	}
	b = append(b, layout, byteOf(k.raised)*flagRaised|byteOf(k.edged)*flagEdged|byteOf(x.own != nil)*flagOwn)
	b = binary.AppendVarint(b, int64(k.lastEdge))
	b = binary.AppendVarint(b, int64(x.due))
	b = page.AppendString(b, x.anchor())
	switch {
	case line != nil:
		return line.AppendHead(b)
	case x.own != nil:
		return x.own.Append(b)
	}
	return b
}

func byteOf(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// timeVersion is the first byte of a device's own time, linkVersion that of one that was last heard through a link; gaps alone begin with
// their own version, which is 1.
const (
	timeVersion = 2
	linkVersion = 3
)

func (d *device) appendTime(b []byte) []byte {
	switch {
	case d.link != nil:
		b = append(b, linkVersion, byteOf(d.asleep))
		b = page.AppendString(binary.AppendVarint(b, int64(d.lag)), d.link.name)
	case d.lag != 0 || d.asleep:
		b = append(b, timeVersion, byteOf(d.asleep))
		b = binary.AppendVarint(b, int64(d.lag))
	}
	return d.gaps.Append(b)
}

// clocksID is the id of the page of what the listening time of tenants, and of keys without a device, is besides that of the
// transports.
const clocksID = "clocks"

// FreezeClocks returns that page if it changed. It belongs to the pages of Freeze and is written with them.
func (e *Engine) FreezeClocks() []Page {
	b := binary.AppendUvarint(page.Header(pageClocks), e.boot)
	tenants := slices.DeleteFunc(slices.Sorted(maps.Keys(e.tenants)), func(id int64) bool { return e.tenants[id].runs() && len(e.tenants[id].links) == 0 })
	linked := len(e.links) > 0 || slices.ContainsFunc(tenants, func(id int64) bool { return e.tenants[id].why&^refused != 0 })
	if linked {
		b[0] = page.Version2
	}
	b = binary.AppendUvarint(b, uint64(len(tenants)))
	for _, id := range tenants {
		t := e.tenants[id]
		b = t.append(binary.AppendVarint(b, id), linked)
		if !linked {
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(t.links)))
		for _, name := range slices.Sorted(maps.Keys(t.links)) {
			b = t.links[name].append(page.AppendString(b, name), true)
		}
	}
	profiles := slices.DeleteFunc(e.sortedProfiles(), func(p *profile) bool { return len(p.shared.keys) == 0 || !p.shared.asleep && p.shared.lag == 0 })
	b = binary.AppendUvarint(b, uint64(len(profiles)))
	for _, p := range profiles {
		b = binary.AppendVarint(binary.AppendVarint(b, p.key.Tenant), p.key.Profile)
		b = binary.AppendVarint(append(b, byteOf(p.shared.asleep)), int64(p.shared.lag))
	}
	if linked {
		b = binary.AppendUvarint(b, uint64(len(e.links)))
		for _, name := range slices.Sorted(maps.Keys(e.links)) {
			b = append(page.AppendString(b, name), byteOf(e.links[name]))
		}
	}
	if b = page.Seal(b); bytes.Equal(b, e.clocks) {
		return nil
	}
	e.clocks = b
	return []Page{{ID: clocksID, Data: b}}
}

// append writes a time; why a hold has no end stands in pages of version 2 only, those before know one reason.
func (t *pause) append(b []byte, why bool) []byte {
	for _, n := range [...]Listening{t.lag, t.started, t.grace} {
		b = binary.AppendVarint(b, int64(n))
	}
	b = binary.AppendUvarint(b, uint64(len(t.holds)))
	for _, h := range t.holds {
		b = binary.AppendVarint(binary.AppendVarint(b, int64(h.from)), int64(h.until))
	}
	if why {
		b = append(b, byte(t.why))
	}
	return b
}
