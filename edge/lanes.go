package edge

import (
	"context"
	"time"

	"weir/ingest"
	"weir/internal/ranges"
	"weir/model"
	"weir/spool"
)

// With the order live_first there are two lanes once much waits: the backlog, which the position follows, and the live lane, which begins at the end of
// the log and is sent first. Numbers are those of the log in both. What has ended in the live lane is remembered (beyond) until the position
// has passed it, so that the backlog leaves it out.

// orderLive is the value of order that sends what has just come first.
const orderLive = "live_first"

// Bounds of the live lane.
const (
	liveBehind    = 2       // windows of messages that wait: from there on there is a backlog
	liveRecords   = 1024    // in memory
	liveBytes     = 4 << 20 // likewise
	backlogShare  = 2       // the backlog has one of so many parts of the window beside the live lane
	maxBeyond     = 24      // ranges: each is a time at which the live lane began
	maxLiveHoles  = 24      // messages of the live lane that were refused: a Weir above remembers 64 ranges of numbers, and closes the oldest hole, which would be the backlog
	endlessRanges = 1 << 20 // the live lane in memory bounds them
)

// liveLane is the lane that is sent first.
type liveLane struct {
	from     model.Offset // its first record
	last     place        // loaded up to here
	ring     []*flight    // loaded and not ended, in their order
	queue    []*flight    // of them, those that wait to be sent
	bytes    int64        // of ring
	inFlight int
	controls ingest.ControlParts
	batch    *spool.Batch
	next     int // record of batch
	ending   bool
	batches  chan *spool.Batch
	stop     context.CancelFunc
}

// steer begins the live lane where much waits, and ends it where the backlog has come up to it, or it is behind itself.
func (f *forwarder) steer(ctx context.Context) {
	if f.e.cfg.Uplink.Order != orderLive {
		return
	}
	_, last := f.e.spool.Bounds()
	at := place{last, uint64(last)}
	if f.e.deps.Beside != nil {
		at = f.e.book.counted()
	}
	behind := model.Offset(liveBehind * f.e.cfg.Uplink.Window)
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.live
	switch {
	case l == nil:
		loaded := f.position
		if n := len(f.ring); n > 0 {
			loaded = f.ring[n-1].at
		}
		if at.At > f.position+behind && at.At > loaded && len(f.beyond) < maxBeyond && f.holes < maxLiveHoles {
			f.beginLive(ctx, at)
		}
	case l.ending && l.inFlight == 0:
		f.endLive()
	case last > l.last.At+behind || f.holes >= maxLiveHoles:
		l.ending = true
	}
}

// beginLive begins the live lane behind a place, with the lock held.
func (f *forwarder) beginLive(ctx context.Context, at place) {
	ctx, stop := context.WithCancel(ctx)
	l := &liveLane{from: at.At + 1, last: at, batches: make(chan *spool.Batch), stop: stop}
	f.live = l
	go func() {
		if err := f.followLive(ctx, l); err != nil && ctx.Err() == nil {
			f.e.log.Warn("the newest messages cannot be read; they go up after the others", "error", err)
		}
		f.mu.Lock()
		l.ending = true
		f.mu.Unlock()
	}()
}

// endLive ends the live lane, with the lock held. What it has not sent goes up with the backlog.
func (f *forwarder) endLive() {
	if f.live == nil {
		return
	}
	f.live.stop()
	f.live = nil
}

// followLive hands over what comes.
func (f *forwarder) followLive(ctx context.Context, l *liveLane) error {
	r, err := f.e.spool.Reader(l.from)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		b, err := r.Next(ctx)
		if err == nil {
			err = f.e.applied(ctx, b)
		}
		if err != nil {
			return err
		}
		select {
		case l.batches <- b:
		case <-ctx.Done():
			return nil
		}
	}
}

// liveBatches is where the live lane gets its next batch from, nil while it wants none.
func (f *forwarder) liveBatches() <-chan *spool.Batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.live
	if l == nil || l.ending || l.batch != nil || !l.roomy() {
		return nil
	}
	return l.batches
}

func (l *liveLane) roomy() bool {
	return len(l.ring) < liveRecords && (l.bytes < liveBytes || len(l.ring) == 0)
}

// takeLive begins a batch of the live lane.
func (f *forwarder) takeLive(b *spool.Batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.live; l != nil {
		l.batch, l.next = b, 0
		f.loadLive()
	}
}

// loadLive moves records of the batch into the live lane as long as there is room, with the lock held.
func (f *forwarder) loadLive() {
	l := f.live
	for l.batch != nil && l.roomy() && !l.ending && !f.tell {
		if l.next >= len(l.batch.Records) {
			l.batch = nil
			return
		}
		at := l.batch.First + model.Offset(l.next)
		data := l.batch.Records[l.next].Data
		l.next++
		if at <= l.last.At {
			continue
		}
		x := f.flightOf(at, l.batch.Epoch, data, &l.last, &l.controls)
		x.live = l
		if x.stage == ended && x.word == "" {
			continue
		}
		if l.ring = append(l.ring, x); x.stage == queued && !f.endCarried(x) {
			l.queue = append(l.queue, x)
		}
		l.bytes += x.size()
	}
}

// flightOf decodes a record and gives it its number, the next one after that of a place, which moves there.
func (f *forwarder) flightOf(at model.Offset, epoch uint32, data []byte, last *place, controls *ingest.ControlParts) *flight {
	x := &flight{at: at, epoch: epoch}
	var err error
	var forwards bool
	if x.record, forwards, err = f.e.reads(at, data); forwards || err != nil {
		last.Number++
	}
	last.At = at
	if f.e.deps.Beside == nil {
		last.Number = uint64(at)
	} else {
		x.epoch = f.e.epoch // the numbers are those of the uplink, whichever the log's epoch was
	}
	x.number = last.Number
	switch {
	case err != nil:
		x.stage, x.word, x.payload = ended, "dead-letter:damaged", data
	case !forwards:
		x.stage = ended
	}
	if f.e.follow != nil && x.control != nil {
		if f.judges(controls.Add(x.control), last.Number) && f.tells() {
			f.tell = true
		}
		x.control = nil
	}
	return x
}

// advanceLive counts what has ended in the live lane, with the lock held.
func (f *forwarder) advanceLive() {
	l := f.live
	if l == nil {
		return
	}
	kept := l.ring[:0]
	for _, x := range l.ring {
		if x.stage != ended || !f.count(x) {
			kept = append(kept, x)
			continue
		}
		f.beyond.Add(uint64(x.at), endlessRanges)
		l.bytes -= x.size()
	}
	clear(l.ring[len(kept):])
	l.ring = kept
	f.loadLive()
}

// passed forgets what the position has passed, with the lock held.
func (f *forwarder) passed() {
	if len(f.beyond) == 0 {
		return
	}
	if _, f.beyond = f.beyond.Split(uint64(f.position) + 1); len(f.beyond) == 0 {
		f.beyond, f.holes, f.resends = nil, 0, false
	}
}

// mayLack has what ended beyond the position sent again where a Weir above does not have as many numbers as that.
func (f *forwarder) mayLack(above ranges.Set, complete bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.beyond) == 0 || !complete {
		return
	}
	_, has := above.Split(f.number + 1)
	_, absent := f.numbers.Absent.Split(f.number + 1)
	if has.Count()+absent.Count() < f.beyond.Count() {
		f.resends = true
	}
	f.holes = max(f.holes, len(has))
}

// laneLive is the lane of what has just come, as a label.
const laneLive = "live"

// waitingIn is how many messages of a lane wait.
func (e *Edge) waitingIn(lane string) int64 {
	f := e.forward
	f.mu.Lock()
	live := int64(0)
	if f.live != nil {
		live = int64(len(f.live.ring))
	}
	f.mu.Unlock()
	if lane == laneLive {
		return live
	}
	return max(0, e.waiting()-live)
}

// throttle keeps a number of bytes a second; 0: none is kept. It is not safe for concurrent use.
type throttle struct {
	rate   float64
	tokens float64
	at     time.Duration

	sent   float64 // since counted
	since  time.Duration
	recent float64 // a second
}

// wait is for how long nothing may be sent. A second's worth may be sent at once after a rest.
func (t *throttle) wait(now time.Duration) time.Duration {
	if t.rate <= 0 {
		return 0
	}
	t.tokens = min(t.tokens+t.rate*(now-t.at).Seconds(), t.rate)
	if t.at = now; t.tokens > 0 {
		return 0
	}
	return max(time.Duration(-t.tokens/t.rate*float64(time.Second)), time.Millisecond)
}

// spend counts bytes that were sent.
func (t *throttle) spend(bytes int, now time.Duration) {
	t.tokens -= float64(bytes)
	t.sent += float64(bytes)
	if span := now - t.since; span >= time.Second {
		t.recent, t.sent, t.since = t.sent/span.Seconds(), 0, now
	}
}

// perSecond is how many bytes a second were sent lately.
func (t *throttle) perSecond(now time.Duration) float64 {
	if span := now - t.since; span >= 2*time.Second {
		return t.sent / span.Seconds()
	}
	return t.recent
}

// counted is up to where the log is counted.
func (b *book) counted() place {
	b.mu.Lock()
	defer b.mu.Unlock()
	return place{b.through, b.tally}
}
