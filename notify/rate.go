package notify

import (
	"sync"
	"time"
)

// rateWindow is the time in which a channel gets a number of messages.
const rateWindow = time.Minute

// rates are how much channels got lately.
type rates struct {
	mu       sync.Mutex
	channels map[int64]*rate
}

// rate is how much a channel got, in monotonic time.
type rate struct {
	sent    []time.Duration          // within the window, the oldest first
	digests map[string]time.Duration // the newest to each list of recipients within the window
}

// turn is what may be sent now: a single message, a digest of what waits, or nothing before a time has passed.
type turn struct {
	digest bool
	wait   time.Duration
}

// take takes a turn of a channel for which messages wait; most is how many may be sent within the window. done takes it back.
func (r *rates) take(channel int64, recipients string, waiting int64, most int, now time.Duration) (t turn, undo func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.prune(now)
	c := r.channels[channel]
	if c == nil {
		c = &rate{digests: map[string]time.Duration{}}
		if r.channels == nil {
			r.channels = map[int64]*rate{}
		}
		r.channels[channel] = c
	}
	left := most - len(c.sent)
	switch last, notified := c.digests[recipients]; {
	case waiting <= int64(left):
	case left <= 0:
		return turn{wait: rateWindow - (now - c.sent[0])}, nil
	case notified:
		return turn{wait: rateWindow - (now - last)}, nil
	default:
		t.digest = true
		c.digests[recipients] = now
	}
	c.sent = append(c.sent, now)
	return t, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for i, at := range c.sent {
			if at == now {
				c.sent = append(c.sent[:i:i], c.sent[i+1:]...)
				break
			}
		}
		if t.digest {
			delete(c.digests, recipients)
		}
	}
}

// prune forgets what was sent before the window, and channels that got nothing in it.
func (r *rates) prune(now time.Duration) {
	for id, c := range r.channels {
		for len(c.sent) > 0 && now-c.sent[0] >= rateWindow {
			c.sent = c.sent[1:]
		}
		for to, at := range c.digests {
			if now-at >= rateWindow {
				delete(c.digests, to)
			}
		}
		if len(c.sent) == 0 && len(c.digests) == 0 {
			delete(r.channels, id)
		}
	}
}
