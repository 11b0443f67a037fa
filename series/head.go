package series

import (
	"context"
	"math"

	"weir/internal/faults"
	"weir/model"
)

// The approximate memory of the head's parts besides readings, for the memory account. With one series to a device they
// sum up to less than 512 bytes.
const (
	deviceBytes   = 104
	seriesBytes   = 48
	activityBytes = 112
	runBytes      = 176
	sealedBytes   = 112
	locationBytes = 160
)

// head contains the readings between two offsets of the log. One head is active; a freeze makes it the frozen one, which
// is immutable, until its rows are committed.
type head struct {
	seq       uint32
	last      model.Offset // newest record that it contains; the offset of the freeze once it is frozen
	readings  int64
	bytes     int64
	runs      int64
	acts      []*activity
	tenants   map[int64][]*activity
	labels    map[labels]*labels
	devices   []*device // heard in it
	fresh     []freshSeries
	locations map[int64]*location // by device
	ended     []int64             // devices
}

type freshSeries struct {
	*series
	created model.Micros
}

func newHead(seq uint32, at model.Offset) *head {
	return &head{seq: seq, last: at, tenants: map[int64][]*activity{}, labels: map[labels]*labels{}, locations: map[int64]*location{}}
}

// activity is a series in a head: its runs in the order in which they began, and the newest of its readings by event
// time.
type activity struct {
	*series
	head       *head
	runs, last *run // list; last used
	labels     *labels
	occurred   model.Micros
	received   model.Micros
	created    model.Micros // receive time of its first reading in this head
	value      float64
	classifier int64 // coded
}

// run contains the readings of a series in one UTC day with equal labels: full ones are sealed as chunks, the
// rest is an open stream.
type run struct {
	stream
	unsorted    bool // the stream is not in list order
	day         int32
	labels      *labels
	first, last model.Micros // of the stream
	firstOffset model.Offset // of the stream
	full        int32        // number of readings at which the size of the stream is checked
	sealed      []*sealedRun
	next        *run
}

// sealedRun is a chunk that is not yet in a row.
type sealedRun struct {
	summary
	blob []byte
}

const microsPerDay = 24 * 60 * 60 * 1_000_000

func dayOf(m model.Micros) int32 {
	d := int64(m) / microsPerDay
	if int64(m)%microsPerDay < 0 {
		d--
	}
	return int32(d)
}

// Put adds the readings of one record, whose offset is after those of all earlier ones; readings that the store's rows
// already contain are skipped, so that a replay is harmless. Only the applier calls it. Readers see all of a record
// or nothing.
func (s *Series) Put(ctx context.Context, points []Point) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range points {
		p := &points[i]
		if s.heard(p.Device) != nil {
			continue
		}
		s.mu.Unlock()
		_, err := s.device(ctx, p.TenantID, p.Device)
		s.mu.Lock()
		if err != nil {
			return err
		}
	}
	var dev *device
	for i := range points {
		p := &points[i]
		if p.Offset <= s.base {
			continue
		}
		if dev == nil || dev.id != p.Device {
			dev = s.devices[p.Device]
		}
		s.put(dev, p)
	}
	return nil
}

func (s *Series) put(dev *device, p *Point) {
	h := s.active
	sr := s.seriesOf(dev, p)
	a := sr.act
	if a == nil || a.head != h {
		a = s.begin(h, sr, p)
	}
	r := s.runOf(a, p)
	before := r.room
	r.put(p)
	s.charge(h, int64(r.room-before))
	if a.labels == nil || p.Occurred > a.occurred {
		a.occurred, a.received, a.value, a.classifier, a.labels = p.Occurred, p.Received, p.Value, p.codedClassifier(), r.labels
	}
	h.last = max(h.last, p.Offset)
	h.readings++
	if r.n >= r.full {
		s.seal(h, r)
	}
}

func (s *Series) begin(h *head, sr *series, p *Point) *activity {
	if sr.act != nil && sr.act.head == s.frozen {
		sr.frozen = sr.act
	}
	a := &activity{series: sr, head: h, created: p.Received}
	sr.act = a
	h.acts = append(h.acts, a)
	h.tenants[p.TenantID] = append(h.tenants[p.TenantID], a)
	s.charge(h, activityBytes)
	return a
}

func (s *Series) runOf(a *activity, p *Point) *run {
	day, l := dayOf(p.Occurred), p.labels()
	if r := a.last; r != nil && r.day == day && *r.labels == l {
		return r
	}
	tail := &a.runs
	for *tail != nil {
		if r := *tail; r.day == day && *r.labels == l {
			a.last = r
			return r
		}
		tail = &(*tail).next
	}
	if a.runs != nil { // another source, or another day
		faults.Point("series.turn")
	}
	r := &run{day: day, labels: s.intern(a.head, l), full: int32(s.cfg.ChunkReadings)}
	*tail, a.last = r, r
	a.head.runs++
	s.charge(a.head, runBytes)
	return r
}

func (s *Series) intern(h *head, l labels) *labels {
	if have := h.labels[l]; have != nil {
		return have
	}
	h.labels[l] = &l
	s.charge(h, 160)
	return &l
}

func (r *run) put(p *Point) {
	if r.n == 0 {
		r.first, r.last, r.firstOffset = p.Occurred, p.Occurred, p.Offset
	} else {
		// Equal times need no look at offset and index: they only grow.
		r.unsorted = r.unsorted || p.Occurred < model.Micros(r.time)
		r.first, r.last = min(r.first, p.Occurred), max(r.last, p.Occurred)
	}
	r.append(p)
}

// fills returns how many readings fill a chunk when n take so many bytes: a chunk should fill a page of the database and not
// more, because a page left half empty would cost as much as the readings.
func (s *Series) fills(n int32, bytes int) int32 {
	usual := s.cfg.ChunkReadings
	return int32(min(max(int(n)*s.cfg.ChunkBytes/bytes, min(usual, fewestReadings)), usual*mostChunks, maxRun))
}

// The minimum size of a chunk and, times ChunkReadings, the maximum, whatever its bytes.
const (
	fewestReadings = 128
	mostChunks     = 4
)

// seal packs a full stream into a chunk, unless it may grow considerably before it fills a page. Readers may hold the old
// stream, so that a new one begins.
func (s *Series) seal(h *head, r *run) {
	freed := int(r.room)
	c := &s.scratch
	r.decode(math.MaxUint64, c)
	s.blob = s.enc.appendChunk(s.blob[:0], c)
	if r.full = s.fills(r.n, len(s.blob)); r.n < r.full-r.full/16 {
		return
	}
	// Exactly its own size: the spare capacity of append differs between machines, and freezes depend on Bytes.
	sealed := &sealedRun{summary: c.summarize(), blob: make([]byte, len(s.blob))}
	copy(sealed.blob, s.blob)
	r.sealed = append(r.sealed, sealed)
	r.stream, r.unsorted = stream{}, false
	s.charge(h, int64(sealedBytes+len(sealed.blob)-freed))
}

// decode reads the open readings in list order.
func (r *run) decode(upto model.Offset, c *columns) {
	decodeStream(r.buf, int(r.n), upto, c)
	if r.unsorted {
		c.sort()
	}
}

// charge adds n bytes to the active head's account.
func (s *Series) charge(h *head, n int64) {
	if n == 0 {
		return
	}
	h.bytes += n
	s.bytes.Store(h.bytes)
	if n > 0 {
		s.account.Grow(n)
	} else {
		s.account.Shrink(-n)
	}
}
