// Package lograte keeps a message that anyone can cause from filling the log.
package lograte

import (
	"sync"
	"time"
)

// Every lets one message through per Interval and counts those that it holds back. The zero value has an interval of a minute.
type Every struct {
	Interval time.Duration

	mu    sync.Mutex
	begun bool
	next  time.Duration
	held  int64
}

// Allow reports whether a message may be logged at a monotonic time, and how many were held back since the one before.
func (e *Every) Allow(now time.Duration) (held int64, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.begun && now < e.next {
		e.held++
		return 0, false
	}
	interval := e.Interval
	if interval == 0 {
		interval = time.Minute
	}
	held, e.held, e.begun, e.next = e.held, 0, true, now+interval
	return held, true
}
