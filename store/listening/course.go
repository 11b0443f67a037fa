package listening

import (
	"cmp"
	"slices"

	"weir/model"
	"weir/store"
)

// recent is how many of the transports' rows a course keeps in memory: records that overtook one another on their way to the log lie close
// together.
const recent = store.RecentSpans

// tolerance is by how much the listening time of a record may differ from what the rows say, in nanoseconds: receive stamps are kept in
// microseconds.
const tolerance = 5_000

// Course is the transports' newest rows: it says where the next one is needed. It is a function of the records, so that the same
// log has the same rows.
type Course struct {
	spans []Span // those with the highest offsets, at most recent, by receive stamp
}

// Load takes in the rows as of a checkpoint: a replay writes those after it again.
func (c *Course) Load(tx store.Tx, at model.Offset) (err error) {
	c.spans, err = read(tx, `WHERE tenant_id = 0 AND link = '' AND log_offset <= ? ORDER BY log_offset DESC, id DESC LIMIT ?`, int64(at), recent)
	slices.SortFunc(c.spans, Span.compare)
	return err
}

// compare is the order in which rows count: of two with one receive stamp the one that is later in the log.
func (s Span) compare(o Span) int {
	return cmp.Or(cmp.Compare(s.Received, o.Received), cmp.Compare(s.Offset, o.Offset))
}

// Record is what a course looks at in a record of the log.
type Record struct {
	Offset    model.Offset
	Received  model.Micros
	Boot      uint64
	Listening int64 // of its own stamp
	Open      bool  // whether the transports were
	Behind    bool  // the wall clock lay far behind the stamp

	// Newest receive stamp and listening time before it.
	NewestReceived  model.Micros
	NewestListening int64
}

// Next returns the row that a record needs, and whether it does.
func (c *Course) Next(r *Record) (Span, bool) {
	if at := find(c.spans, r.Received); at != nil && at.Boot == r.Boot && (at.says(r.Received, r.Listening) || at.Received == r.Received) {
		return Span{}, false
	}
	s := Span{Offset: r.Offset, Received: r.Received, Boot: r.Boot, Listening: r.Listening, Slope: r.slope()}
	byOffset := func(a, b Span) int { return cmp.Compare(a.Offset, b.Offset) }
	if len(c.spans) > 0 && slices.MaxFunc(c.spans, byOffset).Boot != r.Boot {
		s.Lag = r.Listening - r.NewestListening
	}
	if len(c.spans) == recent {
		first := slices.MinFunc(c.spans, byOffset)
		c.spans = slices.DeleteFunc(c.spans, func(s Span) bool { return s.Offset == first.Offset })
	}
	at, _ := slices.BinarySearchFunc(c.spans, s, Span.compare)
	c.spans = slices.Insert(c.spans, at, s)
	return s, true
}

// slope is how much listening time passes with the receive stamp from a record on. While the wall clock is behind, stamps go on at half
// speed: where that begins, the step from the newest stamp to the record's own shows it.
func (r *Record) slope() int64 {
	stamps, passed := 1000*int64(r.Received-r.NewestReceived), r.Listening-r.NewestListening
	switch {
	case !r.Open:
		return 0
	case r.Behind || passed > stamps+tolerance && near(passed, 2*stamps):
		return 2
	}
	return 1
}

// says reports whether a row gives a listening time for a receive stamp.
func (s *Span) says(received model.Micros, listening int64) bool {
	return near(s.at(received), listening)
}

func (s *Span) at(received model.Micros) int64 {
	return s.Listening + s.Slope*1000*int64(received-s.Received)
}

func near(a, b int64) bool { return max(a-b, b-a) <= tolerance }

// find returns the row that counts for a receive stamp: the last one that does not begin after it, nil for none.
func find(spans []Span, received model.Micros) *Span {
	for i := len(spans) - 1; i >= 0; i-- {
		if spans[i].Received <= received {
			return &spans[i]
		}
	}
	return nil
}
