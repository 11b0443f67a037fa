package sparkplug

import (
	"slices"
	"time"

	"weir/command"
)

// carrierName is the name by which dispatches over Sparkplug would be stored.
const carrierName = "sparkplug"

// Commands returns what the service of commands has to know: the devices of these sources are never sent one. Weir publishes no DCMD, and
// no NCMD but a request for a rebirth, which no command leads to.
func (t *Transport) Commands() command.Carrier {
	c := carrier{}
	for i := range t.cfg.Sources {
		c.sources = append(c.sources, t.cfg.Sources[i].SourceID())
	}
	slices.Sort(c.sources)
	c.sources = slices.Compact(c.sources)
	return c
}

// carrier is a command.Carrier that takes nothing. A device is its own where one of the sources moved its state last.
type carrier struct{ sources []string }

// Traits implements command.Carrier.
func (c carrier) Traits() command.Traits {
	return command.Traits{Name: carrierName, Sources: c.sources, Never: true}
}

// Reach implements command.Carrier: no device is reached.
func (carrier) Reach(int64) command.Reach { return command.Unknown }

// Offer implements command.Carrier: nothing is taken.
func (carrier) Offer(int64) bool { return false }

// Rhythm implements command.Carrier: nobody sleeps.
func (carrier) Rhythm(int64) (back time.Duration, asleep bool) { return 0, false }
