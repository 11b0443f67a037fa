package rules

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"weir/model"
)

// timers is a heap of the keys that wait, by the listening time at which each fires. Keys that are due at the same time are
// ordered by what they are, so that no order comes from the way in which the heap was built; rules are sorted by token. A key whose time stands still, or whose
// rule does not run, is not in it.
//
// Most samples make a timer due later, and nearly all of those will do so again before it fires. A key that became due later stays where it is,
// and moves only when it comes first and somebody asks.
type timers []timer

// timer is a key that waits. It is due no earlier than at: the time stands here, so that comparing two does not fetch the keys.
type timer struct {
	at Listening
	*extra
}

func (x *extra) armed() bool { return x.slot > 0 }

func (t timer) before(o timer) bool {
	if t.at != o.at {
		return t.at < o.at
	}
	return cmp.Or(t.device.profile.key.compare(o.device.profile.key), cmp.Compare(t.rule, o.rule),
		cmp.Compare(t.device.id, o.device.id), strings.Compare(t.anchor(), o.anchor())) < 0
}

// next is the key that is due first, and when, if that is no later than until; nil otherwise.
func (h timers) next(until Listening) (x *extra, at Listening) {
	for len(h) > 0 && h[0].at <= until {
		x, at = h[0].extra, h[0].when()
		if at == h[0].at {
			return x, at
		}
		h.place(0, timer{at, x})
	}
	return nil, 0
}

// add adds a key that is not in it.
func (h *timers) add(x *extra) {
	*h = append(*h, timer{})
	h.rise(len(*h)-1, timer{x.when(), x})
}

// remove removes a key that is in it.
func (h *timers) remove(x *extra) {
	i, end := int(x.slot)-1, len(*h)-1
	last := (*h)[end]
	(*h)[end] = timer{}
	*h, x.slot = (*h)[:end], 0
	if i < end {
		h.place(i, last)
	}
}

// moved says that a key that is in it is due at another time.
func (h timers) moved(x *extra) {
	if i, at := int(x.slot)-1, x.when(); at < h[i].at {
		h.rise(i, timer{at, x})
	}
}

// Each timer has four below it: fewer levels than with two, and the four are adjacent.
const below = 4

// place puts a timer at i, or where it belongs above or below it.
func (h timers) place(i int, t timer) {
	if i > 0 && t.before(h[(i-1)/below]) {
		h.rise(i, t)
	} else {
		h.sink(i, t)
	}
}

func (h timers) rise(i int, t timer) {
	for i > 0 {
		up := (i - 1) / below
		if !t.before(h[up]) {
			break
		}
		h.put(i, h[up])
		i = up
	}
	h.put(i, t)
}

func (h timers) sink(i int, t timer) {
	for {
		first := i*below + 1
		if first >= len(h) {
			break
		}
		least := first
		for c := first + 1; c < min(first+below, len(h)); c++ {
			if h[c].before(h[least]) {
				least = c
			}
		}
		if !h[least].before(t) {
			break
		}
		h.put(i, h[least])
		i = least
	}
	h.put(i, t)
}

func (h timers) put(i int, t timer) { h[i], t.slot = t, int32(i+1) }

// Advance fires the timers whose time the listening time of a record reaches. The applier calls it before each
// record; the edges bear the position of that record. Timers fire by due time, then by tenant, profile, rule, device and
// anchor, however much listening time lies between two records.
func (e *Engine) Advance(at Position, emit Emit) {
	e.settle(at, emit)
	for x, _ := e.timers.next(at.Listening); x != nil; x, _ = e.timers.next(at.Listening) {
		e.fire(x, at, emit)
	}
	e.reached = max(e.reached, at.Listening)
}

// Due is the listening time at which the next timer fires, or edges that are owed may be emitted; 0 for none.
func (e *Engine) Due() (due Listening) {
	if x, first := e.timers.next(never); x != nil {
		due = max(first, 1)
	}
	if owed := e.reached + settleEvery; e.owing > 0 && (due == 0 || owed < due) {
		due = owed
	}
	return due
}

// Waits reports whether an edge may still come that is stamped no later than an event time, though no sample of that time does: a key waits for
// time to pass, or changes of the registry are to come and would end what is raised.
func (e *Engine) Waits(until model.Micros, changes bool) (waits bool) {
	for _, p := range e.profiles {
		p.holders(func(d *device) bool {
			for i := range d.keys {
				k := &d.keys[i]
				if waits = k.waits(d, until) || changes && k.raised && e.ends(d, k) <= until; waits {
					return false
				}
			}
			return true
		})
		if waits {
			return true
		}
	}
	return false
}

// Ahead reports whether the time of a device has reached an event time.
func (e *Engine) Ahead(of model.Micros) (ahead bool) {
	for _, p := range e.profiles {
		p.holders(func(d *device) bool {
			ahead = d.newest != 0 && d.clock(d.own(e.reached)).Time() >= of
			return !ahead
		})
		if ahead {
			return true
		}
	}
	return false
}

// stamps is implemented by judges whose keys have clocks of their own.
type stamps interface {
	// waitsFor is the stamp of the next edge that the passing of time may bring about, ok is false for none.
	waitsFor(*State) (at model.Micros, ok bool)
}

func (k *key) waits(d *device, until model.Micros) bool {
	x := k.extra
	if x == nil || x.due == 0 {
		return false
	}
	program := d.profile.rules[k.rule].program
	if program == nil {
		return false
	}
	if j, ok := program.judge.(stamps); ok {
		at, waits := j.waitsFor(&State{Raised: k.raised, Edged: k.edged, LastEdge: k.lastEdge, Due: x.due, Own: x.own})
		return waits && at <= until
	}
	return d.clock(x.due).Time() <= until
}

// ends is what an edge would be stamped no earlier that ended a raised key now.
func (e *Engine) ends(d *device, k *key) model.Micros {
	at := e.ending(d, k, Position{Listening: e.reached}).At
	if k.extra == nil {
		return at
	}
	if m, ok := k.extra.own.(*members); ok { // the one that leaves has a clock of its own
		for i := range m.list {
			at = min(at, max(k.lastEdge, m.list[i].Clock(d.own(e.reached), 0)))
		}
	}
	return at
}

// fire judges the key of a timer at its due time. A key that asks for a time that is not later is judged again at the
// next record whose listening time is.
func (e *Engine) fire(x *extra, at Position, emit Emit) {
	d, due := x.device, x.due
	e.touch(d)
	p := d.profile
	clock := d.clock(due)
	e.timer = Input{Position: at, Profile: p.key, Device: Device{d.id, d.kind, d.token}, Kind: Timer, Occurred: clock.Time()}
	e.timer.Listening = x.when()
	e.begin(&e.timer, clock)
	e.sample.Anchor = x.anchor()
	e.judgeKey(p, d, x.rule, x.anchor())
	if x.armed() && x.due <= due {
		e.schedule(x, d.own(at.Listening)+1)
	}
	e.emitBatch(p, emit)
}

// schedule makes the timer of a key due at a listening time of its device, 0 for never. x may be nil when due is 0.
func (e *Engine) schedule(x *extra, due Listening) {
	if x == nil || x.due == due && x.armed() == (due != 0) {
		return
	}
	x.due = due
	switch runs := x.runs(); {
	case runs && x.armed():
		e.timers.moved(x)
	case runs:
		e.timers.add(x)
	case x.armed():
		e.timers.remove(x)
	}
}

// arm puts the keys of a device that wait into the heap, and takes those out of it whose time stands still or whose rule does not run.
func (e *Engine) arm(d *device) {
	for i := range d.keys {
		switch x := d.keys[i].extra; {
		case x == nil || x.runs() == x.armed():
		case x.armed():
			e.timers.remove(x)
		default:
			e.timers.add(x)
		}
	}
}

// disarm takes all keys of a device out of the heap: its time is about to change.
func (e *Engine) disarm(d *device) {
	for i := range d.keys {
		if x := d.keys[i].extra; x != nil && x.armed() {
			e.timers.remove(x)
		}
	}
}

func (x *extra) runs() bool {
	return x.due != 0 && x.device.profile.rules[x.rule].program != nil && x.when() < never
}

// when is the listening time of the transports at which the key is due.
func (x *extra) when() Listening { return x.device.time().when(x.device.when(x.due)) }

// never is a listening time that is not reached.
const never = Listening(math.MaxInt64)

// stillness is why the time of a tenant stands still: one reason, or several of them.
type stillness uint8

const (
	refused  stillness = 1 << iota // messages of it are turned away or wait
	disabled                       // it is disabled
	cut                            // the link is down
	told                           // Follow
)

// pause is what the listening time of a tenant has to do with that of the transports, for its devices that are heard through the
// transports together or through one link. It stands still as long as there is a reason.
type pause struct {
	lag   Listening // how much less it is, without the holds that are listed
	holds []hold    // that are not over, or were the last ones; one after the other
	why   stillness // why the last hold has no end yet

	started Listening // what it was at the newest start
	grace   Listening // after which, from then on, the time of a device runs that is not heard
}

// hold is a stretch in which it stands still, in listening time of the transports; until is 0 while it has no end.
type hold struct{ from, until Listening }

// own is the listening time of the tenant.
func (t *pause) own(at Listening) Listening {
	still := t.lag
	for _, h := range t.holds {
		if at <= h.from {
			break
		}
		end := at
		if h.until != 0 {
			end = min(at, h.until)
		}
		still += end - h.from
	}
	return at - still
}

// when is the listening time of the transports at which that of the tenant is own.
func (t *pause) when(own Listening) Listening {
	at := own + t.lag
	for _, h := range t.holds {
		switch {
		case at <= h.from:
			return at
		case h.until == 0:
			return never
		}
		at += h.until - h.from
	}
	return at
}

// still reports whether it has stood still since a hold began.
func (t *pause) still(at Listening) (since Listening, held bool) {
	for _, h := range t.holds {
		if h.from <= at && (h.until == 0 || at < h.until) {
			return h.from, true
		}
	}
	return 0, false
}

// forget adds the holds that are over to the lag.
func (t *pause) forget(at Listening) {
	n := 0
	for n < len(t.holds) && t.holds[n].until != 0 && t.holds[n].until <= at {
		t.lag += t.holds[n].until - t.holds[n].from
		n++
	}
	t.holds = slices.Delete(t.holds, 0, n)
}

// begin adds a reason, and reports whether it is the first: then a hold begins.
func (t *pause) begin(from Listening, why stillness) bool {
	first := t.why == 0
	if t.why |= why; !first {
		return false
	}
	if n := len(t.holds); n > 0 {
		from = max(from, t.holds[n-1].until)
	}
	t.holds = append(t.holds, hold{from: from})
	return true
}

// end removes a reason, and reports whether it was the last: then the hold ends.
func (t *pause) end(until Listening, why stillness) bool {
	if t.why&why == 0 {
		return false
	}
	if t.why &^= why; t.why != 0 {
		return false
	}
	last := &t.holds[len(t.holds)-1]
	last.until = max(until, last.from, 1)
	return true
}

// runs reports whether it is that of the transports, and has always been.
func (t *pause) runs() bool { return t.lag == 0 && t.started == 0 && t.grace == 0 && len(t.holds) == 0 }

// time is the listening time that the device's own one follows.
func (d *device) time() *pause {
	if d.link != nil {
		return &d.link.pause
	}
	return &d.profile.tenant.pause
}

// own is the listening time of a device. After a start it stands still until the device is heard, for no longer than the grace.
func (d *device) own(at Listening) Listening {
	t := d.time()
	own := t.own(at)
	if d.asleep {
		own -= t.slept(own)
	}
	return own - d.lag
}

// slept is for how long the time of a device that is not heard has stood still since the start.
func (t *pause) slept(own Listening) Listening { return min(max(0, own-t.started), t.grace) }

// when is the listening time of the tenant at which that of a device is own.
func (d *device) when(own Listening) Listening {
	own += d.lag
	if t := d.time(); d.asleep && own > t.started {
		own += t.grace
	}
	return own
}

// heard lets the time of a device run that has not been heard since the start.
func (e *Engine) heard(d *device, at Listening) {
	if !d.asleep {
		return
	}
	e.disarm(d)
	t := d.time()
	d.lag += t.slept(t.own(at))
	d.asleep = false
	e.arm(d)
}

// boots is what the engine knows of the starts of the process, and of its links.
type boots struct {
	boot    uint64          // whose records are applied
	reached Listening       // by records
	clocks  []byte          // page of them that the store has
	links   map[string]bool // which of those that were ever up are
	paused  func(Pause)     // nil: nobody asks
	follows bool            // it goes by pauses that it is told
	off     map[int64]bool  // tenants that are disabled, where it follows
}

// Pause says that from a listening time of the transports on the time of a tenant stands still, or runs again: of its devices that are
// heard through the transports together, or through a link.
type Pause struct {
	TenantID int64
	Link     string // "": the transports together
	From     Listening
	Still    bool
	Lag      Listening // how much less it is there than that of the transports
}

// OnPause has f called with each pause from now on, in one order.
func (e *Engine) OnPause(f func(Pause)) { e.paused = f }

// Follow lets the engine go by pauses that another one has had, Pause by Pause, and by nothing else: it is given what was applied before. links
// are those that pauses name. A time that stands still where the engine was loaded does so until a pause says otherwise, whatever the reason was.
func (e *Engine) Follow(links []string) {
	loaded := e.links
	e.follows, e.off, e.links = true, map[int64]bool{}, map[string]bool{}
	for _, name := range slices.AppendSeq(links, maps.Keys(loaded)) {
		e.links[name] = true
	}
	for _, t := range e.tenants {
		t.follow()
		for _, l := range t.links {
			l.follow()
			l.apart = true
		}
	}
}

func (t *pause) follow() {
	if t.why != 0 {
		t.why = told
	}
}

// Pause says where a time stood still, or ran again; see Follow. A link goes with the transports together until something is said of it.
func (e *Engine) Pause(p Pause) {
	t := e.tenant(p.TenantID)
	if p.Link != "" {
		t.branch(p.Link).apart = true
	}
	e.change(p.TenantID, func(time *pause, link string) {
		if link == p.Link || p.Link == "" && !t.links[link].apart {
			e.turn(p.TenantID, link, time, p.From, told, p.Still)
		}
	})
}

// Boot says that the records from here on belong to another start: no device was heard before, since nothing was there to hear it.
// Its time stands still until it is heard, at the latest until the grace is over. What stood still for a refusal runs again, and every
// link is down until it comes up.
func (e *Engine) Boot(boot uint64, grace Listening) {
	if e.boot == boot {
		return
	}
	e.asleep(nil, func() {
		for name := range e.links {
			e.links[name] = e.follows
		}
		for _, id := range slices.Sorted(maps.Keys(e.tenants)) {
			e.times(id, func(t *pause, link string) {
				e.turn(id, link, t, e.reached, refused, false) // the process that refused it is gone
				if link != "" {
					e.turn(id, link, t, e.reached, cut, true)
				}
				t.started, t.grace = t.own(e.reached), grace
			})
		}
	})
	e.boot = boot
	e.countHeld()
}

// asleep lets the time of a tenant's devices, of all tenants' when it is nil, stand still until they are heard. begin says from when on.
func (e *Engine) asleep(of *tenant, begin func()) {
	e.taking.flush(nil)
	e.devicesOf(of, e.disarm)
	e.devicesOf(of, func(d *device) {
		if t := d.time(); d.asleep {
			d.lag += t.slept(t.own(e.reached))
		}
		if d.asleep = true; d != d.profile.shared {
			d.profile.bucket(d.id).devicesDirty = true
		}
	})
	begin()
	e.devicesOf(of, e.arm)
}

// Hold lets the time of a tenant stand still from a listening time of the transports on.
func (e *Engine) Hold(tenantID int64, from Listening) {
	e.change(tenantID, func(t *pause, link string) { e.turn(tenantID, link, t, max(from, e.reached), refused, true) })
}

// Release lets it run again, from a listening time of the transports on.
func (e *Engine) Release(tenantID int64, from Listening) {
	e.change(tenantID, func(t *pause, link string) { e.turn(tenantID, link, t, max(from, e.reached), refused, false) })
}

// Disable lets the time of a tenant stand still as long as it is disabled.
func (e *Engine) Disable(tenantID int64) {
	if e.follows {
		e.off[tenantID] = true
	} else if t := e.tenants[tenantID]; t == nil || t.why&disabled == 0 {
		e.change(tenantID, func(t *pause, link string) { e.turn(tenantID, link, t, e.reached, disabled, true) })
	}
}

// Enable lets it run again. Its devices were disconnected: as after a start, the time of each stands still until it is heard, at the latest
// until the grace is over.
func (e *Engine) Enable(tenantID int64, grace Listening) {
	t := e.tenants[tenantID]
	if t == nil || t.why&disabled == 0 && !e.off[tenantID] {
		return
	}
	delete(e.off, tenantID)
	e.asleep(t, func() {
		e.times(tenantID, func(t *pause, link string) {
			e.turn(tenantID, link, t, e.reached, disabled, false)
			t.started, t.grace = t.own(e.reached), grace
		})
	})
}

// maxLinks bounds the links that the engine knows. Devices that are heard through more count as heard through the transports together.
const maxLinks = 1024

// Link says that a link came up or went down at a listening time of the transports. The time of the devices that were last heard through
// it stands still while it is down.
func (e *Engine) Link(name string, up bool, from Listening) {
	if _, known := e.links[name]; !known && len(e.links) >= maxLinks || name == "" {
		return
	}
	if e.links == nil {
		e.links = map[string]bool{}
	}
	e.links[name] = up
	for _, id := range slices.Sorted(maps.Keys(e.tenants)) {
		if e.tenants[id].links[name] != nil {
			e.change(id, func(t *pause, link string) {
				if link == name {
					e.turn(id, link, t, max(from, e.reached), cut, !up)
				}
			})
		}
	}
}

// link is the time of a tenant's devices that are heard through a link.
type link struct {
	name string
	pause
	apart bool // where the engine follows: something was said of it
}

// through notes the link that a device is heard through. Its time goes on from where it was.
func (e *Engine) through(d *device, name string, at Listening) {
	up, known := e.links[name]
	if known == (d.link != nil) && (!known || d.link.name == name) {
		return
	}
	e.disarm(d)
	before := d.own(at)
	d.link = nil
	if t := d.profile.tenant; known {
		first := t.links[name] == nil
		if d.link = t.branch(name); first {
			if !up {
				still := d.link.why != 0 // as that of the transports together, which may go on before this one
				e.turn(d.profile.key.Tenant, name, &d.link.pause, e.reached, cut, true)
				if still && !e.follows {
					e.report(d.profile.key.Tenant, name, &d.link.pause, true)
				}
			}
		}
	}
	d.lag += d.own(at) - before
	e.arm(d)
}

// branch is through for a link that may be new: its time begins as that of the transports together.
func (t *tenant) branch(name string) *link {
	_, known := t.links[name]
	l := t.through(name)
	if !known {
		l.pause = t.pause
		l.holds = slices.Clone(t.holds)
	}
	return l
}

// through returns the time of a tenant's devices that are heard through a link.
func (t *tenant) through(name string) *link {
	l := t.links[name]
	if l == nil {
		if t.links == nil {
			t.links = map[string]*link{}
		}
		l = &link{name: name}
		t.links[name] = l
	}
	return l
}

// times calls f with the times of a tenant: that of the transports together first, then those of its links by name.
func (e *Engine) times(tenantID int64, f func(t *pause, link string)) {
	t := e.tenant(tenantID)
	f(&t.pause, "")
	for _, name := range slices.Sorted(maps.Keys(t.links)) {
		f(&t.links[name].pause, name)
	}
}

// turn lets a time stand still for a reason, or no longer.
func (e *Engine) turn(tenantID int64, link string, t *pause, at Listening, why stillness, still bool) {
	if e.follows != (why == told) {
		return
	}
	turned := false
	if still {
		turned = t.begin(at, why)
	} else {
		turned = t.end(at, why)
	}
	if turned {
		e.report(tenantID, link, t, still)
	}
}

// report tells OnPause where a time has begun to stand still, or to go on.
func (e *Engine) report(tenantID int64, link string, t *pause, still bool) {
	if e.paused == nil {
		return
	}
	last := t.holds[len(t.holds)-1]
	from := last.from
	if !still {
		from = last.until
	}
	e.paused(Pause{TenantID: tenantID, Link: link, From: from, Still: still, Lag: from - t.own(from)})
}

// change changes the times of a tenant, on which the order of its timers depends.
func (e *Engine) change(tenantID int64, change func(t *pause, link string)) {
	t := e.tenant(tenantID)
	e.devicesOf(t, e.disarm)
	e.times(tenantID, func(t *pause, link string) {
		t.forget(e.reached)
		change(t, link)
	})
	e.devicesOf(t, e.arm)
	e.countHeld()
}

// countHeld shows how many tenants are held because messages of theirs are refused or wait.
func (e *Engine) countHeld() {
	n := 0
	for _, t := range e.tenants {
		if t.why&refused != 0 {
			n++
		}
	}
	e.metrics.held.Set(float64(n))
}

// devicesOf does something with every device of a tenant, all tenants' when it is nil, in no order that means anything.
func (e *Engine) devicesOf(t *tenant, do func(*device)) {
	for _, p := range e.profiles {
		if t == nil || p.tenant == t {
			p.holders(func(d *device) bool { do(d); return true })
		}
	}
}

// Own is the listening time of a tenant where that of the transports is at: of its devices that were heard through a link, or through the
// transports together where none was heard through that.
func (e *Engine) Own(tenantID int64, link string, at Listening) Listening {
	switch t := e.tenants[tenantID]; {
	case t == nil:
		return at
	case t.links[link] != nil:
		return t.links[link].own(at)
	default:
		return t.own(at)
	}
}

// Held returns for how long the time of a tenant has stood still, 0 when it runs, and whether that is because messages of it are turned away
// or wait.
func (e *Engine) Held(tenantID int64) (since time.Duration, turnedAway bool) {
	if t := e.tenants[tenantID]; t != nil {
		if since, held := t.still(e.reached); held {
			return time.Duration(max(e.reached-since, 1)), t.why&^refused == 0
		}
	}
	return 0, false
}
