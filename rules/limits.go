package rules

import (
	"math"
	"time"
)

// Limits are what the instance allows and performs. A zero number stands for its default.
type Limits struct {
	MaxDuration time.Duration // longest duration of a rule; default 24 h
	MaxCost     uint64        // static worst case of one expression; default 100
	MaxRules    int           // rules of a tenant that run; default 500
	MaxKeys     int           // keys of a tenant, and as many devices with a clock; default 1,000,000
	// MaxKeysInAll is the maximum of keys and devices with a clock of all tenants together; default: what MaxKeys allows
	// each of them.
	MaxKeysInAll int
	// Actions are the action types that the instance performs. A rule with another one is refused as not
	// available, because the action would not happen.
	Actions []ActionType
	// Kinds are kinds of rules besides those of Weir.
	Kinds []Kind
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
