package broker

import (
	"sync/atomic"
	"time"
)

// stall notices that the goroutine which reads a connection has been held up, by the log or by its own full window, for
// longer than the client may be silent. A timer for each publish would cost more than the rest of its reading, so there is one
// that runs on over many.
type stall struct {
	limit time.Duration
	end   func()
	born  time.Time
	since atomic.Int64 // born until the present work began, plus one; 0 while there is none
	armed atomic.Bool
	timer *time.Timer
}

func (w *stall) init(limit time.Duration, end func()) {
	w.limit, w.end, w.born = limit, end, time.Now()
	w.timer = time.AfterFunc(time.Hour, w.look)
	w.timer.Stop()
}

// begin notes that work begins; over, that it is done.
func (w *stall) begin(now time.Time) {
	w.since.Store(int64(now.Sub(w.born)) + 1)
	w.arm(w.limit)
}

func (w *stall) over() { w.since.Store(0) }

func (w *stall) arm(d time.Duration) {
	if !w.armed.Load() && w.armed.CompareAndSwap(false, true) {
		w.timer.Reset(d)
	}
}

// look is called by the timer.
func (w *stall) look() {
	since := w.since.Load()
	if since == 0 {
		w.armed.Store(false)
		if since = w.since.Load(); since == 0 {
			return // work that begins now arms the timer
		}
		if !w.armed.CompareAndSwap(false, true) {
			return
		}
	}
	if left := w.limit - time.Since(w.born) + time.Duration(since-1); left > 0 {
		w.timer.Reset(left)
		return
	}
	w.end()
}

// stop stops the timer. A concurrent look may arm it once more; the session has ended by then.
func (w *stall) stop() { w.timer.Stop() }
