package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weir/model"
	"weir/rules/page"
	"weir/rules/window"
)

// Load fills a new engine with the pages of the store. Install then makes the versions active that were active at the
// pages' offset; equal bodies find their state, so that no edge is emitted, and their timers run. After an error the
// engine must not be used.
func (e *Engine) Load(pages []Page) error {
	var ofAll []Page
	pages = slices.DeleteFunc(slices.Clone(pages), func(p Page) bool {
		of := e.loadsOfAll(p.ID) != nil
		if of {
			ofAll = append(ofAll, p)
		}
		return of
	})
	keyed, err := keyPages(pages)
	if err != nil {
		return err
	}
	segments := segmentPages{}
	for _, k := range keyed {
		if e.stored[k.pageKey] = true; k.kind == pageSamples {
			segments[k.pageKey] = k.data
		}
	}
	for _, kind := range []byte{pageRules, pageDevices, pageKeys, pageShared} { // each refers to the one before
		for _, k := range keyed {
			if k.kind != kind {
				continue
			}
			if err := e.loadPage(k.pageKey, k.data, segments); err != nil {
				return err
			}
		}
	}
	for k := range segments { // that no page of keys names
		return fmt.Errorf("%w (page %s)", ErrDamaged, k.id())
	}
	for _, p := range ofAll {
		if err := e.loadsOfAll(p.ID)(p); err != nil {
			return err
		}
	}
	e.holds()
	return nil
}

// holds counts what was loaded.
func (e *Engine) holds() {
	for _, t := range e.tenants {
		e.metrics.keys.Add(float64(t.keys))
		e.held += t.keys + t.devices
	}
}

// LoadRule fills a new engine with what pages hold of one rule: its state, if it has this body there, the devices of its profile and how their
// time goes, and no counter. The other rules of the profile are left out, so that what is loaded is what one rule needs. pages are
// the ids of those of the profile, and of those of all profiles; read returns one of them, and each is read once. Install
// follows as after Load. After an error the engine must not be used.
func (e *Engine) LoadRule(of ProfileKey, token string, body BodyHash, pages []string, read func(id string) ([]byte, error)) error {
	e.partly = true
	var keyed []pageKey
	for _, id := range pages {
		if e.loadsOfAll(id) != nil {
			continue
		}
		k, ok := parsePageID(id)
		if !ok || k.profile != of {
			return fmt.Errorf("%w (page %q of profile %s)", ErrDamaged, id, of)
		}
		keyed = append(keyed, k)
	}
	slices.SortFunc(keyed, pageKey.compareLoading)
	segments := segmentPages{}
	for i, k := range keyed {
		data, err := read(k.id())
		switch {
		case err != nil:
			return err
		case k.kind == pageSamples: // the page of keys that names it comes after it
			segments[k] = data
		default:
			err = e.loadPage(k, data, segments)
		}
		if err != nil {
			return err
		}
		if k.kind == pageRules {
			e.keepRule(e.profiles[of], token, body)
		}
		if i+1 == len(keyed) || keyed[i+1].bucket != k.bucket {
			for left := range segments { // that no page of keys names
				return fmt.Errorf("%w (page %s)", ErrDamaged, left.id())
			}
		}
	}
	if slices.Contains(pages, clocksID) {
		data, err := read(clocksID)
		if err == nil {
			err = e.loadClocks(Page{ID: clocksID, Data: data}, of.Tenant)
		}
		if err != nil {
			return err
		}
	}
	e.holds()
	return nil
}

// compareLoading is the order in which LoadRule reads pages: rules, then bucket by bucket devices, segments and the keys that refer to them, and the
// keys without a device at last.
func (k pageKey) compareLoading(o pageKey) int {
	rank := func(k pageKey) int {
		return strings.IndexByte(string([]byte{pageDevices, pageSamples, pageKeys}), k.kind)
	}
	of := func(k pageKey) int {
		switch k.kind {
		case pageRules:
			return -1
		case pageShared:
			return buckets
		}
		return k.bucket
	}
	return cmp.Or(cmp.Compare(of(k), of(o)), cmp.Compare(rank(k), rank(o)), cmp.Compare(k.segment, o.segment))
}

// keepRule leaves one of the rules that were loaded, without what it has counted.
func (e *Engine) keepRule(p *profile, token string, body BodyHash) {
	p.rules = slices.DeleteFunc(p.rules, func(r *rule) bool { return r.token != token || r.body != body })
	for _, r := range p.rules {
		r.counters = counters{}
	}
}

// loadsOfAll is what loads a page of all profiles; nil for those of one.
func (e *Engine) loadsOfAll(id string) func(Page) error {
	switch id {
	case ceilingsID:
		return e.loadCeilings
	case owedID:
		return e.loadOwed
	case clocksID:
		return func(p Page) error { return e.loadClocks(p, 0) }
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

func (e *Engine) loadPage(k pageKey, data []byte, segments segmentPages) error {
	r, err := page.Open(data, k.kind)
	if err == nil && k.kind != pageKeys && r.Version > page.Version2 {
		err = ErrVersion
	}
	if err == nil {
		switch k.kind {
		case pageRules:
			e.loadRules(k, r)
		case pageDevices:
			e.loadDevices(k, r)
		case pageKeys:
			if err := e.loadKeys(k, r, segments); err != nil {
				return err
			}
		default:
			e.loadShared(k, r)
		}
		err = r.End()
	}
	if err != nil {
		return fmt.Errorf("%w (page %s)", err, k.id())
	}
	return nil
}

func (e *Engine) loadRules(k pageKey, r *page.Reader) {
	p := e.newProfile(k.profile)
	p.tenantToken, p.token, p.version = r.Text(), r.Text(), int(r.Signed())
	for range r.Count() {
		x := &rule{token: r.Text(), kind: Type(r.Text()), severity: r.Text()}
		x.stable, x.name = model.RuleStableID(p.token, x.token), x.token
		copy(x.body[:], r.Take(len(x.body)))
		x.EvalErrors, x.LateSamples, x.RefusedKeys = r.Signed(), r.Signed(), r.Signed()
		x.LastInputAt = model.Nanos(r.Signed())
		for range r.Count() {
			x.wants = append(x.wants, r.Text())
			x.came = append(x.came, r.Flag())
		}
		if r.Version > page.Version1 {
			x.Lacking = r.Signed()
		}
		r.Must(len(p.rules) == 0 || p.rules[len(p.rules)-1].token < x.token)
		r.Must(slices.IsSorted(x.wants))
		p.rules = append(p.rules, x)
	}
	e.profiles[k.profile] = p
}

func (e *Engine) loadDevices(k pageKey, r *page.Reader) {
	p := e.profiles[k.profile]
	if r.Must(p != nil); p == nil {
		return
	}
	b := &p.parts[k.bucket]
	var id int64
	for i := range r.Count() {
		step := r.Signed()
		r.Must(i == 0 || step > 0)
		id += step
		d := &device{id: id, profile: p, kind: r.Signed(), token: r.Text()}
		d.newest, d.arrived = model.Micros(r.Signed()), Listening(r.Signed())
		e.loadTime(d, r)
		r.Must(bucketOf(id) == k.bucket && e.devices.get(id) == nil)
		b.devices = append(b.devices, d)
		e.devices.put(d)
	}
	e.tenant(k.profile.Tenant).devices += len(b.devices)
}

// loadTime reads what appendTime wrote.
func (e *Engine) loadTime(d *device, r *page.Reader) {
	blob := r.Take(r.Count())
	if len(blob) > 0 && (blob[0] == timeVersion || blob[0] == linkVersion) {
		own := page.Blob(blob[1:])
		d.asleep, d.lag = own.Flag(), Listening(own.Signed())
		if blob[0] == linkVersion {
			name := own.Text()
			r.Must(name != "")
			d.link = e.tenant(d.profile.key.Tenant).through(name)
		}
		blob = own.Rest()
		r.Must(own.End() == nil && (d.asleep || d.lag != 0 || d.link != nil))
	}
	if len(blob) > 0 {
		var err error
		d.gaps, err = window.DecodeGaps(blob)
		r.Must(err == nil)
	}
}

// loadClocks reads the page of the clocks, of one tenant or of all (0). The profiles are loaded already.
func (e *Engine) loadClocks(pg Page, of int64) error {
	r, err := page.Open(pg.Data, pageClocks)
	if err != nil {
		return fmt.Errorf("%w (page %s)", err, pg.ID)
	}
	e.boot, e.clocks = r.Unsigned(), pg.Data
	linked := r.Version > page.Version1
	for range r.Count() {
		id, t := r.Signed(), &tenant{}
		if of == 0 || id == of {
			t = e.tenant(id)
		}
		t.load(r)
		if !linked {
			continue
		}
		for range r.Count() {
			name := r.Text()
			r.Must(name != "")
			t.through(name).load(r)
		}
	}
	for range r.Count() {
		p := e.profiles[ProfileKey{r.Signed(), r.Signed()}]
		asleep, lag := r.Flag(), Listening(r.Signed())
		if r.Must(e.partly || p != nil && len(p.shared.keys) > 0); p != nil {
			p.shared.asleep, p.shared.lag = asleep, lag
		}
	}
	if linked {
		e.links = map[string]bool{}
		for range r.Count() {
			name := r.Text()
			e.links[name] = r.Flag()
		}
	}
	if err := r.End(); err != nil {
		return fmt.Errorf("%w (page %s)", err, pg.ID)
	}
	return nil
}

// load reads what append wrote.
func (t *pause) load(r *page.Reader) {
	for _, n := range [...]*Listening{&t.lag, &t.started, &t.grace} {
		*n = Listening(r.Signed())
	}
	for range r.Count() {
		t.holds = append(t.holds, hold{Listening(r.Signed()), Listening(r.Signed())})
	}
	open := len(t.holds) > 0 && t.holds[len(t.holds)-1].until == 0
	switch {
	case r.Version > page.Version1:
		t.why = stillness(r.Byte())
	case open:
		t.why = refused
	}
	r.Must(open == (t.why != 0) && t.why <= refused|disabled|cut)
}

// loadKeys reads the keys of a bucket. An error names a segment of theirs that is damaged or missing.
func (e *Engine) loadKeys(k pageKey, r *page.Reader, segments segmentPages) error {
	p := e.profiles[k.profile]
	if r.Must(p != nil); p == nil {
		return nil
	}
	load, b := keyLoader{e: e, p: p, r: r}, &p.parts[k.bucket]
	if r.Version == page.Version {
		if err := load.segments(k, segments); err != nil {
			return err
		}
	}
	load.rules = load.names()
	read, id := 0, int64(0)
	for i := range r.Count() {
		step := r.Signed()
		r.Must(i == 0 || step > 0)
		id += step
		at, ok := b.find(id)
		if r.Must(ok); !ok {
			return nil
		}
		d := b.devices[at]
		load.keys(d)
		read += len(d.keys)
	}
	e.tenant(k.profile.Tenant).keys += read
	r.Must(e.partly || load.version(len(b.segments)) == r.Version)
	b.weigh(load.live)
	return nil
}

func (e *Engine) loadShared(k pageKey, r *page.Reader) {
	p := e.profiles[k.profile]
	if r.Must(p != nil); p == nil {
		return
	}
	load := keyLoader{e: e, p: p, r: r}
	load.rules = load.names()
	p.shared.newest, p.shared.arrived = model.Micros(r.Signed()), Listening(r.Signed())
	load.keys(p.shared)
	e.tenant(k.profile.Tenant).keys += len(p.shared.keys)
	r.Must(e.partly || load.version(0) == r.Version)
}

// segmentPages are the pages of samples that were not read.
type segmentPages map[pageKey][]byte

// runsOf says whose runs lie in the segments of a bucket. A rule or a device may be gone since.
type runsOf struct {
	device int64
	rule   string
	anchor string
}

// segments reads the segments that a page of keys names.
func (l *keyLoader) segments(k pageKey, segments segmentPages) error {
	b := &l.p.parts[k.bucket]
	k.kind, k.segment = pageSamples, l.r.Unsigned()
	n := l.r.Unsigned()
	l.r.Must(n > 0)
	b.first, l.runs = k.segment, map[runsOf]*window.Runs{}
	for range n {
		data, ok := segments[k]
		if !ok {
			return fmt.Errorf("%w: it is missing (page %s)", ErrDamaged, k.id())
		}
		delete(segments, k)
		s, err := l.segment(data)
		if err != nil {
			return fmt.Errorf("%w (page %s)", err, k.id())
		}
		b.segments = append(b.segments, s)
		k.segment++
	}
	return nil
}

func (l *keyLoader) segment(data []byte) (s segment, err error) {
	r, err := page.Open(data, pageSamples)
	if err != nil {
		return s, err
	}
	r.Must(r.Version == page.Version1)
	rules := make([]string, r.Count())
	for i := range rules {
		rules[i] = r.Text()
	}
	of := runsOf{}
	for i := range r.Count() {
		step := r.Signed()
		r.Must(i == 0 || step > 0)
		of.device += step
		for range r.Count() {
			rule, run := r.Unsigned(), page.Blob(r.Take(r.Count()))
			if r.Must(rule < uint64(len(rules))); rule >= uint64(len(rules)) {
				break
			}
			if of.rule = rules[rule]; l.e.partly && l.p.rule(of.rule) == nil {
				s.samples++
				continue
			}
			of.anchor = run.Text()
			runs := l.runs[of]
			if runs == nil {
				runs = new(window.Runs)
				l.runs[of] = runs
			}
			n, newest, err := runs.Add(run.Rest())
			r.Must(err == nil && run.End() == nil)
			s.add(n, newest)
		}
	}
	r.Must(s.samples > 0)
	return s, r.End()
}

// version is that of a page with what was read.
func (l *keyLoader) version(segments int) byte {
	switch {
	case segments > 0:
		return page.Version
	case l.memories:
		return page.Version2
	}
	return page.Version1
}

// names reads the rules of a page of keys and returns their indexes, -1 for one that is left out.
func (l *keyLoader) names() (rules []int32) {
	for range l.r.Count() {
		at, ok := findRule(l.p.rules, l.r.Text())
		if l.r.Must(ok || l.e.partly); !ok {
			at = -1
		}
		rules = append(rules, int32(at))
	}
	return rules
}

// keyLoader reads the keys of a page.
type keyLoader struct {
	e     *Engine
	p     *profile
	r     *page.Reader
	rules []int32

	runs     map[runsOf]*window.Runs
	live     int  // samples of windows that lie in segments
	memories bool // a key has more than a latch
}

func (l *keyLoader) keys(d *device) {
	for range l.r.Count() {
		n := l.r.Unsigned()
		if n >= uint64(len(l.rules)) {
			l.r.Must(false)
			return
		}
		k := key{rule: l.rules[n]}
		if k.rule < 0 {
			l.r.Take(l.r.Count())
			continue
		}
		l.state(d, &k)
		if at, known := d.find(k.rule, k.anchor()); known || at < len(d.keys) {
			l.r.Must(false)
			return
		}
		d.insert(len(d.keys), k)
	}
	l.r.Must(l.e.partly || len(d.keys) > 0)
}

// state reads the state of a key. Its timer runs from Install on, which knows whether the rule does.
func (l *keyLoader) state(d *device, k *key) {
	blob := page.Blob(l.r.Take(l.r.Count()))
	switch layout := blob.Byte(); {
	case layout == layoutLatch:
		k.edged, k.raised, k.lastEdge = true, blob.Flag(), model.Micros(blob.Signed())
	case layout == layoutMemory && l.r.Version >= page.Version2, layout == layoutHead && l.runs != nil:
		l.memories = true
		l.memory(d, k, blob, layout == layoutHead)
	default:
		blob.Must(false)
	}
	l.r.Must(blob.End() == nil)
}

func (l *keyLoader) memory(d *device, k *key, blob *page.Reader, head bool) {
	flags := blob.Byte()
	k.raised, k.edged, k.lastEdge = flags&flagRaised != 0, flags&flagEdged != 0, model.Micros(blob.Signed())
	rule := l.p.rules[k.rule]
	due := Listening(blob.Signed())
	x := newExtra(d, k.rule, blob.Text())
	x.due, k.extra = due, x
	blob.Must(flags <= flagsKnown && x.due >= 0 && (k.edged || !k.raised && k.lastEdge == 0))
	if flags&flagOwn == 0 {
		blob.Must(!head && (x.due != 0 || k.edged && x.at != nil)) // else the key would latch only, or be empty
		return
	}
	own, err := l.own(rule, x, blob.Rest(), head)
	if blob.Must(err == nil && own != nil); err == nil && own != nil {
		x.own = own
		l.e.retain(l.p, retained(own))
	}
}

// own reads the memory of a key's kind. That of a kind that this Weir lacks is kept as bytes, without segments.
func (l *keyLoader) own(rule *rule, x *extra, encoded []byte, head bool) (Memory, error) {
	kind, ok := findKind(l.e.compiler.kinds, rule.kind)
	if head {
		line, err := window.DecodeHead(encoded, l.runs[runsOf{x.device.id, rule.token, x.anchor()}])
		if err != nil {
			return nil, err
		}
		if _, plain := kind.(interface{ lines() }); plain {
			l.live += len(line.Kept())
			return line, nil
		}
		encoded = line.Append(nil)
	}
	if !ok {
		return unread(encoded), nil
	}
	return kind.Decode(encoded)
}
