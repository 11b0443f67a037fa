package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"

	"weir/ingest/links"
	"weir/model"
	"weir/rules"
	"weir/spool"
	"weir/store"
	"weir/store/listening"
)

// Keys of the newest receive stamp and the newest time map as of the checkpoint.
const (
	metaReceived = "received"
	metaTimeMap  = "time_map"
)

// recordTimes resolves the receive times of records that were stamped while the time of day was unknown: by the time map of
// their boot, which lies further on in the log.
type recordTimes struct {
	log    spool.Log
	clock  *Clock // nil: it was always set
	logger *slog.Logger

	newest   model.Nanos            // receive time of any record
	timeMap  *model.TimeMap         // newest that is known: of the boot whose records are read
	received atomic.Int64           // newest, as of the last batch that is committed
	waiting  atomic.Pointer[string] // why the applier waits for the clock
}

// await waits until the time of day is known for every record of the batch that is not applied yet: of this boot until its
// clock is set, of a former one until the log has been searched. A metadata change needs none.
func (t *recordTimes) await(ctx context.Context, b *spool.Batch, applied model.Offset) error {
	for i := range b.Records {
		// Peek: decoding every record here would cost a second pass.
		kind, boot, unset := model.PeekRecord(b.Records[i].Data)
		if !unset || !timed(kind) || t.timeMap != nil && t.timeMap.Boot == boot {
			continue
		}
		m, err := t.find(ctx, boot, max(b.First, applied+1))
		if err != nil {
			return err
		}
		t.timeMap = m
	}
	return nil
}

// timed reports whether the receive time of such a record means something.
func timed(k model.RecordKind) bool { return k != model.KindControl && k != model.KindTimeMap }

// find returns the time map of a boot. It lies in the log after the records that need it. A boot that ended before it knew
// the time gets one that says so, in the log too, so that every replay reads the same.
func (t *recordTimes) find(ctx context.Context, boot uint64, from model.Offset) (*model.TimeMap, error) {
	// Records of this boot wait for the clock of this process.
	if c := t.clock; c != nil && c.cfg.Boot == boot {
		if m := c.mapOfBoot(); m != nil {
			return m, nil
		}
		why := "what came in since the start waits for the clock: " + c.Doubt()
		t.waiting.Store(&why)
		defer t.waiting.Store(nil)
		return c.timeMap(ctx)
	}
	// Records of a former boot: its map lies further on in the log.
	m, err := t.search(boot, from)
	if err != nil || m != nil {
		return m, err
	}
	// There is none and never will be. Say so in the log, for every replay.
	m = &model.TimeMap{Boot: boot, Guessed: true}
	t.logger.Warn("a former start ended before the clock was set: what came in then counts from the newest stamp before it; event times are kept as sent")
	return m, appendTimeMap(ctx, t.log, model.Stamp{Boot: boot, Wall: t.newest, Clock: model.ClockUnset}, m)
}

func (t *recordTimes) search(boot uint64, from model.Offset) (*model.TimeMap, error) {
	r, err := t.log.Reader(from)
	if err != nil {
		return nil, fmt.Errorf("looking for the time of a former start: %w", err)
	}
	defer r.Close()
	for {
		b, err := r.TryNext()
		if err != nil || b == nil {
			return nil, err
		}
		for i := range b.Records {
			if kind, _, _ := model.PeekRecord(b.Records[i].Data); kind != model.KindTimeMap {
				continue
			}
			rec, err := model.DecodeRecord(b.Records[i].Data)
			if err != nil {
				return nil, err
			}
			if rec.TimeMap.Boot == boot {
				return rec.TimeMap, nil
			}
		}
	}
}

// resolve gives a record that was stamped without a time of day the one that the time map of its boot says. The record is
// shared: what is changed is a copy.
func (t *recordTimes) resolve(r *model.Record) *model.Record {
	if r.Received.Clock != model.ClockUnset || !timed(r.Kind) || t.timeMap == nil {
		return r
	}
	c := *r
	s := &c.Received
	s.Counted, s.Clock, s.Wall = s.Wall, model.ClockGuessed, max(s.Wall, t.newest)
	if m := t.timeMap; !m.Guessed {
		at := m.At(s.Mono)
		s.Clock = model.ClockSure
		s.Wall = max(at, t.newest)
		if s.Wall-at > clockSlack {
			s.Clock, s.Shown = model.ClockBehind, at
		}
	}
	if r.Presence != nil {
		p := *r.Presence
		p.Occurred = s.Wall
		if s.Shown != 0 {
			p.Occurred = s.Shown
		}
		c.Presence = &p
	}
	return &c
}

// learn adds a time map that was read from the log. The first of a boot counts.
func (t *recordTimes) learn(m *model.TimeMap) {
	if t.timeMap == nil || t.timeMap.Boot != m.Boot {
		t.timeMap = m
	}
}

// load reads the times as of the checkpoint.
func (t *recordTimes) load(tx store.Tx) (err error) {
	if t.newest, err = ReceivedAtCheckpoint(tx); err != nil {
		return err
	}
	t.received.Store(int64(t.newest))
	b, err := store.Meta(tx, metaTimeMap)
	if err != nil || b == nil {
		return err
	}
	t.timeMap = new(model.TimeMap)
	if err := json.Unmarshal(b, t.timeMap); err != nil {
		return fmt.Errorf("%w: meta %s", store.ErrDamaged, metaTimeMap)
	}
	return nil
}

// ReceivedAtCheckpoint is the receive time of the newest record that the checkpoint contains.
func ReceivedAtCheckpoint(tx store.Tx) (model.Nanos, error) {
	n, _, err := store.MetaInt(tx, metaReceived)
	return model.Nanos(n), err
}

// writeTimes writes the times as of a checkpoint.
func writeTimes(tx store.Tx, received model.Nanos, m *model.TimeMap) error {
	if err := store.SetMetaInt(tx, metaReceived, int64(received)); err != nil || m == nil {
		return err
	}
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return store.SetMeta(tx, metaTimeMap, b)
}

// LogEnd is how far the log had come when it was opened: the newest receive stamp and the newest listening time in it.
type LogEnd struct {
	Received  model.Nanos
	Listening int64 // nanoseconds
}

// endRecords is how many of the newest records EndOf reads: one that was held up on its way to the log has an earlier stamp than
// those that overtook it.
const endRecords = 4096

// EndOf reads the end of the log, so that stamps continue from it before its records are applied. ok is false where only the
// applier finds the time out: a record there was stamped without a time of day, or cannot be read.
func EndOf(log spool.Log) (end LogEnd, ok bool) {
	first, last := log.Bounds()
	if last < first {
		return end, true
	}
	r, err := log.Reader(max(first, last-min(last, endRecords)))
	if err != nil {
		return LogEnd{}, false
	}
	defer r.Close()
	for read := model.Offset(0); read < last; {
		b, err := r.TryNext()
		if err != nil || b == nil || !end.add(b) {
			return LogEnd{}, false
		}
		read = b.Last()
	}
	return end, true
}

// add takes a batch in; false where it does not say the time.
func (e *LogEnd) add(b *spool.Batch) bool {
	meta, err := decodeMeta(b.Meta)
	if err != nil {
		return false
	}
	for i := range b.Records {
		r, err := model.DecodeRecord(b.Records[i].Data)
		if err != nil || r.Received.Clock == model.ClockUnset {
			return false
		}
		e.Received, e.Listening = max(e.Received, r.Received.Wall), max(e.Listening, meta.Span.At(r.Received.Mono))
	}
	return true
}

// receivedAt is the receive stamp of a record, 0 where it does not decode.
func receivedAt(stored *spool.Record) model.Nanos {
	r, ok := stored.Value.(*model.Record)
	if !ok {
		var err error
		if r, err = model.DecodeRecord(stored.Data); err != nil {
			return 0
		}
	}
	return r.Received.Wall
}

// AsOf is the receive time up to which all records of the log are applied: now where none waits.
func (a *Applier) AsOf(now model.Nanos) model.Nanos {
	if a.Waiting() == 0 {
		return now
	}
	if at := a.working.Load(); at > 0 {
		return min(now, model.Nanos(at))
	}
	if a.Stalled() != "" {
		return min(now, a.Newest())
	}
	return now // what has just come
}

// Waiting is how many records of the log are not applied yet.
func (a *Applier) Waiting() int64 {
	_, last := a.deps.Log.Bounds()
	return max(int64(last)-int64(a.Applied()), 0)
}

// Replay is how far a start has come with the records that were in the log before it.
type Replay struct {
	Applied int64 `json:"applied"`
	Records int64 `json:"records"`
}

func (r Replay) String() string {
	return fmt.Sprintf("what was acknowledged before the start is being applied, %d of %d records", r.Applied, r.Records)
}

// Replay returns nil once everything that was in the log at the start is applied.
func (a *Applier) Replay() *Replay {
	if a.CaughtUp() {
		return nil
	}
	return &Replay{Applied: int64(a.Applied() - a.firstApplied), Records: int64(a.lastStart - a.firstApplied)}
}

// Replayed is closed once every record that was there when the process started is applied: from then on a query returns every
// reading that was acknowledged before.
func (a *Applier) Replayed() <-chan struct{} { return a.replayed }

// CaughtUp reports whether Replayed is closed.
func (a *Applier) CaughtUp() bool {
	select {
	case <-a.replayed:
		return true
	default:
		return false
	}
}

// progressed notes what follows from how far the applier is: whether the start is caught up with, whether something waits, and when the
// next timer is due.
func (a *Applier) progressed() {
	// Mutations wait for the applier from here on; during the replay they did not.
	if !a.CaughtUp() && a.Applied() >= a.lastStart {
		if a.deps.Controller != nil {
			a.deps.Controller.follow()
		}
		close(a.replayed)
	}
	if a.Waiting() == 0 {
		a.working.Store(0)
	}
	due := a.results.due()
	// The waker sleeps until then; a value in the channel has it look again.
	if a.due.Store(int64(due)); due != 0 {
		select {
		case a.moved <- struct{}{}:
		default:
		}
	}
}

// Waker returns what has a record appended when a timer is due and nothing else arrives.
func (a *Applier) Waker(l *links.Links, stamp func() model.Stamp) *links.Waker {
	return &links.Waker{
		Links:   l,
		Due:     a.due.Load,
		Moved:   a.moved,
		Waiting: func() bool { return a.Waiting() > 0 || a.Stalled() != "" },
		Logger:  a.deps.Logger,
		Append: func(ctx context.Context) error {
			synced := make(chan error, 1)
			if err := appendClock(ctx, a.deps.Log, stamp(), func(_ model.Offset, err error) { synced <- err }); err != nil {
				return err
			}
			return <-synced
		},
	}
}

// spanProjection keeps how listening time went: a row where that of the transports goes on otherwise than the rows say, and where that of a
// tenant stops or goes on.
type spanProjection struct {
	ProjectionBase
	course listening.Course
	pauses []rules.Pause      // since the record before
	fresh  map[int64]struct{} // tenants with new rows since the checkpoint; 0: the transports
	frozen []int64
	at     model.Offset // of the checkpoint that is frozen
}

func newSpanProjection(engine *rules.Engine) *spanProjection {
	p := &spanProjection{fresh: map[int64]struct{}{}}
	engine.OnPause(func(pause rules.Pause) { p.pauses = append(p.pauses, pause) })
	return p
}

// Load implements Projection.
func (p *spanProjection) Load(tx store.Tx, at Checkpoint) error { return p.course.Load(tx, at.Offset) }

// record adds the rows that a record of any kind needs. newest and before are the newest receive stamp and listening time before it.
func (p *spanProjection) record(e *Event, span links.Span, newest model.Nanos, before rules.Listening, out *Effects) {
	s := &e.Record.Received
	var spans []listening.Span
	if timed(e.Record.Kind) || e.Record.Kind == model.KindControl && s.Clock != model.ClockUnset { // a change has its listening time, too
		r := listening.Record{
			Offset:          e.At.Offset,
			Received:        s.Wall.Micros(),
			Boot:            s.Boot,
			Listening:       span.At(s.Mono),
			Open:            span.Open,
			Behind:          s.Clock == model.ClockBehind,
			NewestReceived:  newest.Micros(),
			NewestListening: int64(before),
		}
		if n, needed := p.course.Next(&r); needed {
			spans = append(spans, n)
		}
	}
	// A tenant or a link stopped or went on at this record.
	for _, t := range p.pauses {
		n := listening.Span{
			TenantID:  t.TenantID,
			Link:      t.Link,
			Offset:    e.At.Offset,
			Received:  s.Wall.Micros(),
			Boot:      s.Boot,
			Listening: int64(t.From),
			Slope:     1,
			Lag:       int64(t.Lag),
		}
		if t.Still {
			n.Slope = 0
		}
		spans = append(spans, n)
	}
	if len(spans) == 0 {
		return
	}
	p.pauses = p.pauses[:0]
	for _, n := range spans {
		p.fresh[n.TenantID] = struct{}{}
	}
	out.Step(func(tx store.Tx) error { return listening.Add(tx, spans) })
}

// Freeze implements Projection.
func (p *spanProjection) Freeze(at Checkpoint) {
	p.frozen, p.at = slices.Sorted(maps.Keys(p.fresh)), at.Offset
	clear(p.fresh)
}

// Publish implements Projection.
func (p *spanProjection) Publish(tx store.Tx) error { return listening.Trim(tx, p.at, p.frozen...) }
