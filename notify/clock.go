package notify

import (
	"sync"
	"time"

	"weir/model"
	"weir/store"
	"weir/store/notices"
)

// clock is a time that only goes on: with the monotonic time while Weir runs, and by the time of day over a restart. It says how long ago something was notified,
// whatever becomes of the wall clock.
type clock struct {
	look      func() (wall time.Time, mono time.Duration)
	plausible func() bool

	mu      sync.Mutex
	saved   notices.Clock
	from    time.Duration // monotonic time at which it was loaded
	passed  int64         // microseconds, at from
	counted bool          // the time between two starts is in passed
}

// load goes on from what was stored.
func (c *clock) load(saved notices.Clock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, mono := c.look()
	c.saved, c.from, c.passed, c.counted = saved, mono, saved.Passed, false
}

// now returns the time in microseconds.
func (c *clock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read()
}

func (c *clock) read() int64 {
	wall, mono := c.look()
	since := (mono - c.from).Microseconds()
	if !c.counted && c.plausible() { // once: the time while Weir did not run
		if c.counted = true; c.saved.Wall != 0 {
			c.passed += max(int64(model.MicrosOf(wall)-c.saved.Wall)-since, 0)
		}
	}
	return c.passed + since
}

// save stores the time. While the wall clock cannot be believed there is nothing to go on from.
func (c *clock) save(tx store.Tx) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := c.read()
	if !c.counted || !c.plausible() {
		return nil
	}
	wall, _ := c.look()
	return notices.SetClock(tx, notices.Clock{Passed: passed, Wall: model.MicrosOf(wall)})
}
