package rules

import (
	"math"
	"time"
)

// Limits are what the instance allows and does. A zero number stands for its default.
type Limits struct {
	MaxDuration time.Duration // longest duration of a rule; default 24 h
	MaxCost     uint64        // static worst case of one expression; default 100
	MaxRules    int           // rules of a tenant that run; default 500
	MaxKeys     int           // keys of a tenant, and as many devices with a clock; default 1,000,000
	// MaxKeysInAll is how many keys and devices with a clock there are of all tenants together; default: as many as MaxKeys
	// allows each of them.
	MaxKeysInAll int
	// Actions are the action types that the instance performs. A rule that wants another one is refused as not
	// available: it would be accepted and do nothing.
	Actions []ActionType
}

// Defaults of Limits.
const (
	DefaultMaxDuration = 24 * time.Hour
	DefaultMaxCost     = 100
	DefaultMaxRules    = 500
	DefaultMaxKeys     = 1_000_000
)

func (l Limits) withDefaults() Limits {
	set := func(p *int, d int) {
		if *p == 0 {
			*p = d
		}
	}
	if l.MaxDuration == 0 {
		l.MaxDuration = DefaultMaxDuration
	}
	if l.MaxCost == 0 {
		l.MaxCost = DefaultMaxCost
	}
	set(&l.MaxRules, DefaultMaxRules)
	set(&l.MaxKeys, DefaultMaxKeys)
	set(&l.MaxKeysInAll, math.MaxInt)
	return l
}
