// Package ondemand bounds how often tenants ask for messages on demand.
package ondemand

import (
	"sync"
	"time"
)

// Bounds of a tenant: at most Max within Window.
const (
	Max    = 6
	Window = time.Minute
)

// Tests bound how often tenants test. The zero value is ready, and safe for concurrent use.
type Tests struct {
	mu   sync.Mutex
	last map[int64][]time.Time // of each tenant within the window, the oldest first
}

// Take admits a test, 0, or says how long it has to wait.
func (t *Tests) Take(tenant int64, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil {
		t.last = map[int64][]time.Time{}
	}
	for id, last := range t.last {
		for len(last) > 0 && now.Sub(last[0]) >= Window {
			last = last[1:]
		}
		if t.last[id] = last; len(last) == 0 {
			delete(t.last, id)
		}
	}
	if last := t.last[tenant]; len(last) >= Max {
		return Window - now.Sub(last[0])
	}
	t.last[tenant] = append(t.last[tenant], now)
	return 0
}
