package edge

import (
	"maps"
	"sync"
	"time"

	"weir/model"
)

// clockSlack is how far the wall clock may lie before the newest receive time and still be plausible.
const clockSlack = model.Nanos(time.Minute)

// maxMaps bounds the starts whose time of day is remembered.
const maxMaps = 64

// clock gives out receive times. Until the wall clock is plausible (neither before the build nor before the newest record) it gives the
// monotonic time since the start of the process; nothing is forwarded meanwhile, and once the time of day is known it is known for what
// came before, too. What was received by an earlier start that never knew the time gets the time at which this one does.
//
// A Weir above says what time it is, see learn: that counts until the wall clock is plausible by itself. The clock of the system is never set.
type clock struct {
	deps Deps

	mu        sync.Mutex
	newest    model.Nanos
	plausible bool
	learned   bool                   // the time of day is base plus the monotonic time, while the wall clock is not plausible
	base      model.Nanos            // of learned
	maps      map[uint64]model.Nanos // by boot: the wall time of its monotonic time 0
	order     []uint64
}

func newClock(d Deps, s *saved) *clock {
	c := &clock{deps: d, maps: map[uint64]model.Nanos{}}
	for _, m := range s.Maps {
		c.put(m.Boot, m.Base)
	}
	c.newest = s.Newest
	return c
}

func (c *clock) put(boot uint64, base model.Nanos) {
	if _, known := c.maps[boot]; !known {
		c.order = append(c.order, boot)
	}
	c.maps[boot] = base
	if len(c.order) > maxMaps {
		delete(c.maps, c.order[0])
		c.order = c.order[1:]
	}
}

// saw takes in the receive time of a record of the log.
func (c *clock) saw(r *record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !r.doubtful {
		c.newest = max(c.newest, r.wall)
	}
}

// stamp puts the receive time into a record.
func (c *clock) stamp(r *record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, mono := c.now()
	now = now / 1000 * 1000 // times have microseconds
	if !c.settle(now, mono) {
		r.doubtful, r.boot, r.mono = true, c.deps.Boot, int64(mono)
		r.wall = max(c.newest, model.NanosOf(c.deps.Built))
		return
	}
	c.newest = max(c.newest, now)
	r.wall = c.newest
}

// floor is the earliest time that is plausible, with the lock held.
func (c *clock) floor() model.Nanos {
	floor := c.newest - clockSlack
	if !c.deps.Built.IsZero() {
		floor = max(floor, model.NanosOf(c.deps.Built))
	}
	return floor
}

// now returns the time of day, which may not be plausible, and the monotonic time since the start, with the lock held.
func (c *clock) now() (model.Nanos, time.Duration) {
	wall, mono := c.deps.Now()
	now := model.NanosOf(wall)
	if c.learned && now < c.floor() {
		now = c.base + model.Nanos(mono)
	}
	return now, mono
}

// learn takes over the time of day from a Weir above. It reports false for one that is not plausible.
func (c *clock) learn(at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, mono := c.deps.Now()
	if at.IsZero() || model.NanosOf(at) < c.floor() {
		return false
	}
	c.learned, c.base = true, model.NanosOf(at)-model.Nanos(mono)
	return c.settle(model.NanosOf(at), mono)
}

// settle reports whether the time of day is known, with the lock held. Once it is, it stays so.
func (c *clock) settle(now model.Nanos, mono time.Duration) bool {
	if !c.plausible {
		if c.plausible = now >= c.floor(); c.plausible {
			c.put(c.deps.Boot, now-model.Nanos(mono))
		}
	}
	return c.plausible
}

// doubt reports whether the time of day is not known.
func (c *clock) doubt() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.settle(c.now())
}

// time returns the time of day, false where it is not known.
func (c *clock) time() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, mono := c.now()
	return now.Time().UTC(), c.settle(now, mono)
}

// resolve returns the receive time of a record. New says that the state has to be written before the time is used: it must be the same
// whenever the record is sent again. It must not be called while doubt holds.
func (c *clock) resolve(r *record) (at model.Nanos, isNew bool) {
	if !r.doubtful {
		return r.wall, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	base, ok := c.maps[r.boot]
	if !ok {
		now, _ := c.now()
		base, isNew = now-model.Nanos(r.mono), true
		c.put(r.boot, base)
	}
	return (base + model.Nanos(r.mono)) / 1000 * 1000, isNew
}

// timeMap is the time of day of a start.
type timeMap struct {
	Boot uint64      `json:"boot,string"`
	Base model.Nanos `json:"base"`
}

// known returns the time maps.
func (c *clock) known() (all []timeMap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := maps.Clone(c.maps)
	for _, boot := range c.order {
		all = append(all, timeMap{boot, have[boot]})
	}
	return all
}

// last is the newest receive time.
func (c *clock) last() model.Nanos {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest
}

// forCertificates is the time at which a certificate has to be valid: no earlier than the program was built, so that a clock that was never set
// does not refuse them all.
func (c *clock) forCertificates() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, _ := c.now()
	return max(now, c.floor()).Time()
}
