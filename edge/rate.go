package edge

import (
	"math"
	"time"
)

// Rates of records, per second.
const (
	slowest   = 1.0
	unlimited = 1e6 // from there on no rate is kept
)

// pacer keeps the rate at which records leave while the broker above answers that it is too fast: the rate halves, at most once a second,
// down to one a second, and grows by a tenth a second. It is not safe for concurrent use.
type pacer struct {
	rate   float64 // per second; 0: none is kept
	tokens float64
	at     time.Duration // of tokens
	slowed time.Duration // when the rate was last halved
	grown  time.Duration // when it last grew

	count  float64 // acknowledged since counted
	since  time.Duration
	recent float64 // per second
}

// take takes one record from the rate, or returns for how long to wait.
func (p *pacer) take(now time.Duration) (wait time.Duration) {
	if p.rate == 0 {
		return 0
	}
	for ; p.rate > 0 && now-p.grown >= time.Second; p.grown += time.Second {
		if p.rate *= 1.1; p.rate >= unlimited {
			p.rate = 0
			return 0
		}
	}
	p.tokens = min(p.tokens+p.rate*(now-p.at).Seconds(), max(1, p.rate/10))
	p.at = now
	if p.tokens >= 1 {
		p.tokens--
		return 0
	}
	return time.Duration(math.Ceil((1 - p.tokens) / p.rate * float64(time.Second)))
}

// acknowledged counts a record that was taken.
func (p *pacer) acknowledged(now time.Duration) {
	p.count++
	if span := now - p.since; span >= time.Second {
		p.recent, p.count, p.since = p.count/span.Seconds(), 0, now
	}
}

// perSecond is how many records a second were taken lately.
func (p *pacer) perSecond(now time.Duration) float64 {
	if span := now - p.since; span >= 2*time.Second {
		return p.count / span.Seconds()
	}
	return p.recent
}

// slow halves the rate, from what got through lately.
func (p *pacer) slow(now time.Duration) {
	if p.rate > 0 && now-p.slowed < time.Second {
		return
	}
	rate := p.rate
	if rate == 0 {
		rate = p.recent
		if span := now - p.since; span > 0 && span < time.Second || p.recent == 0 {
			rate = max(rate, p.count)
		}
		p.tokens, p.at, p.grown = 0, now, now
	}
	p.rate, p.slowed, p.grown = max(slowest, rate/2), now, now
}
