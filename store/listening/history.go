package listening

import (
	"cmp"
	"slices"

	"weir/model"
	"weir/store"
)

// History is what the rows say. It may be used by several goroutines.
type History struct {
	transports []Span         // by receive stamp
	own        map[who][]Span // of tenants, by listening time
}

type who struct {
	tenant int64
	link   string
}

// Read reads the rows of the transports and of a tenant: those of the metadata view at a place of the log are read in the same transaction.
func Read(tx store.Tx, tenantID int64) (*History, error) {
	spans, err := read(tx, `WHERE tenant_id IN (0, ?) ORDER BY log_offset, id`, tenantID)
	if err != nil {
		return nil, err
	}
	h := &History{own: map[who][]Span{}}
	for _, s := range spans {
		if s.TenantID == 0 {
			h.transports = append(h.transports, s)
		} else {
			k := who{s.TenantID, s.Link}
			h.own[k] = append(h.own[k], s)
		}
	}
	slices.SortFunc(h.transports, Span.compare)
	return h, nil
}

// Transports returns the listening time of the transports together, in nanoseconds, at a receive stamp, and the start of the process that gave the
// stamp out. ok is false where no row reaches so far back.
func (h *History) Transports(received model.Micros) (listening int64, boot uint64, ok bool) {
	after, _ := slices.BinarySearchFunc(h.transports, received, func(s Span, at model.Micros) int {
		if s.Received <= at {
			return -1
		}
		return 1
	})
	if after == 0 {
		return 0, 0, false
	}
	s := &h.transports[after-1]
	return s.at(received), s.Boot, true
}

// First returns the first row of the transports, nil when there is none: what was received before it has no listening time.
func (h *History) First() *Span {
	if len(h.transports) == 0 {
		return nil
	}
	return &h.transports[0]
}

// Starts returns the rows of the transports with which another start of the process begins, after an offset and up to another, in their order.
func (h *History) Starts(after, upto model.Offset) (starts []Span) {
	spans := slices.SortedFunc(slices.Values(h.transports), func(a, b Span) int { return cmp.Compare(a.Offset, b.Offset) })
	for i, s := range spans {
		if s.Offset > after && s.Offset <= upto && (i == 0 || spans[i-1].Boot != s.Boot) {
			starts = append(starts, s)
		}
	}
	return starts
}

// Of returns the listening time of a tenant at a receive stamp, for its devices that were heard through a link or, where that is "" or never
// went down, through the transports together. What a device misses of it after a start follows from its own records.
func (h *History) Of(tenantID int64, link string, received model.Micros) (own int64, ok bool) {
	listening, _, ok := h.Transports(received)
	if !ok {
		return 0, false
	}
	return listening - h.lag(tenantID, link, listening), true
}

// lag is by how much the time of a tenant is less than that of the transports.
func (h *History) lag(tenantID int64, link string, listening int64) int64 {
	s := last(h.own[who{tenantID, link}], listening)
	if s == nil && link != "" {
		s = last(h.own[who{tenantID, ""}], listening)
	}
	switch {
	case s == nil:
		return 0
	case s.Slope == 0:
		return s.Lag + listening - s.Listening
	}
	return s.Lag
}

// last returns the last row, in the order of the log, that begins before a listening time or there.
func last(spans []Span, listening int64) *Span {
	for i := len(spans) - 1; i >= 0; i-- {
		if spans[i].Listening <= listening {
			return &spans[i]
		}
	}
	return nil
}

// Turn is a place at which a time stops, goes on or begins again: what an engine is told at a replay besides the samples.
type Turn struct {
	Span
	Still bool // of a tenant: it stands still from there on
}

// Turns returns the rows of a tenant that begin after one offset and up to another, in the order of the log.
func (h *History) Turns(tenantID int64, after, upto model.Offset) (turns []Turn) {
	for k, spans := range h.own {
		if k.tenant != tenantID {
			continue
		}
		for _, s := range spans {
			if s.Offset > after && s.Offset <= upto {
				turns = append(turns, Turn{s, s.Slope == 0})
			}
		}
	}
	slices.SortStableFunc(turns, func(a, b Turn) int { // a time may stop where it has just gone on
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Listening, b.Listening), cmp.Compare(a.Link, b.Link))
	})
	return turns
}
