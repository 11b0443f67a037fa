package replay

import (
	"cmp"
	"maps"
	"slices"

	"weir/model"
	"weir/rules"
	"weir/store"
	"weir/store/listening"
	"weir/store/past"
)

// course is how listening time went, and what the engine is told of it.
type course struct {
	history *listening.History
	starts  []listening.Span // that are still to come
	turns   []listening.Turn // likewise
	before  []listening.Turn // up to where the replay begins
	known   []past.Place     // by offset
	boot    uint64           // of the start at whose records the replay begins
	begin   model.Micros
	last    rules.Listening // that a record has brought
	shift   rules.Listening // added to all: nothing is known of the time before the first row
}

// unknown is added to listening times where the replay reaches further back than they are known, so that none is below 0.
const unknown = rules.Listening(400 * 24 * 3600 * 1e9)

func (c *course) load(tx store.Tx, tenantID int64, begin, upto model.Offset, received model.Micros) (err error) {
	if c.history, err = listening.Read(tx, tenantID); err != nil {
		return err
	}
	c.begin = received
	c.starts = c.history.Starts(begin, upto)
	c.before, c.turns = c.history.Turns(tenantID, 0, begin), c.history.Turns(tenantID, begin, upto)
	var ok bool
	if _, c.boot, ok = c.history.Transports(received); !ok {
		c.boot, c.shift = 0, unknown
	}
	c.last = c.of(received)
	return nil
}

// of is the listening time of the transports at a receive stamp.
func (c *course) of(received model.Micros) rules.Listening {
	l, _, ok := c.history.Transports(received)
	if ok {
		return rules.Listening(l) + c.shift
	}
	first := c.history.First()
	if first == nil {
		return rules.Listening(received-c.begin)*1000 + unknown
	}
	return rules.Listening(first.Listening-1000*int64(first.Received-received)) + c.shift
}

// learn notes receive times of places of the log.
func (c *course) learn(known []past.Place) {
	c.known = append(c.known, known...)
	slices.SortFunc(c.known, func(a, b past.Place) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Received, b.Received))
	})
}

// received is the receive time of a place, or that of the last one before it which is known.
func (c *course) received(at model.Offset) model.Micros {
	n, _ := slices.BinarySearchFunc(c.known, at, func(p past.Place, at model.Offset) int {
		if p.Offset <= at {
			return -1
		}
		return 1
	})
	if n == 0 {
		return c.begin
	}
	return c.known[n-1].Received
}

// goOn tells an engine of the links whose time it may meet.
func (c *course) goOn(e *rules.Engine) {
	var links []string
	for _, turns := range [...][]listening.Turn{c.before, c.turns} {
		for _, t := range turns {
			links = append(links, t.Link)
		}
	}
	slices.Sort(links)
	e.Follow(slices.DeleteFunc(slices.Compact(links), func(link string) bool { return link == "" }))
}

// start tells an engine what held where the replay begins.
func (c *course) start(e *rules.Engine, grace rules.Listening) {
	c.goOn(e)
	last := map[string]listening.Turn{}
	for _, t := range c.before {
		last[t.Link] = t
	}
	if c.boot != 0 {
		e.Boot(c.boot, grace)
	}
	for _, link := range slices.Sorted(maps.Keys(last)) {
		if last[link].Still {
			c.tell(e, last[link])
		}
	}
}

func (c *course) tell(e *rules.Engine, t listening.Turn) {
	e.Pause(rules.Pause{TenantID: t.TenantID, Link: t.Link, From: rules.Listening(t.Listening) + c.shift, Still: t.Still})
}

// pass tells an engine of the starts, and of where time stopped and went on, up to a place, and returns the listening time there.
func (c *course) pass(e *rules.Engine, grace rules.Listening, at rules.Position, emit rules.Emit) rules.Listening {
	for {
		switch start, turn := len(c.starts) > 0 && c.starts[0].Offset <= at.Offset, len(c.turns) > 0 && c.turns[0].Offset <= at.Offset; {
		case start && (!turn || c.starts[0].Offset <= c.turns[0].Offset):
			s := c.starts[0]
			c.starts = c.starts[1:]
			c.last = max(c.last, rules.Listening(s.Listening-s.Lag)+c.shift)
			e.Advance(rules.Position{Offset: s.Offset, Received: s.Received.Nanos(), Listening: c.last}, emit)
			e.Boot(s.Boot, grace)
		case turn:
			c.tell(e, c.turns[0])
			c.turns = c.turns[1:]
		default:
			c.last = max(c.last, c.of(at.Received.Micros()))
			return c.last
		}
	}
}
