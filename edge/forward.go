package edge

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"weir/ingest"
	"weir/internal/edgewire"
	"weir/internal/mqttclient"
	"weir/internal/ranges"
	"weir/model"
	"weir/spool"
)

// Bounds of what is in memory on its way up.
const (
	maxInFlightBytes = 8 << 20
	stopDrain        = 5 * time.Second // a stop waits for acknowledgements as long
	dropAtOnce       = 64              // a part of the log's budget that is dropped at a time
	minDrop          = 1 << 20
)

// dropOldest is the value of when_full that discards.
const dropOldest = "drop_oldest"

// stage is how far a record is.
type stage uint8

const (
	queued stage = iota
	sent
	ended
)

// flight is a record between the log and its end.
type flight struct {
	record
	at     model.Offset
	number uint64
	epoch  uint32
	stage  stage
	live   *liveLane // nil: it is of the backlog
	word   string    // how it ended, as the book says it; "" for a record that does not go up
}

// size is what it takes in memory.
func (f *flight) size() int64 { return int64(len(f.payload)) + 256 }

// forwarder reads the log and sends its records up, in order. The position follows the records that have ended, without a gap.
type forwarder struct {
	e       *Edge
	batches chan portion
	notice  chan struct{} // a hint that a record has ended, or that there is something to send
	pace    pacer
	uplink  uplink

	mu       sync.Mutex
	position model.Offset
	number   uint64 // of the newest message up to position
	last     uint64 // of the newest message of ring; number where it is empty
	marks    marks

	live     *liveLane  // nil: there is one lane
	beyond   ranges.Set // offsets after position that have ended, and are counted
	holes    int        // in the numbers that a Weir above has of them
	framer   *framer    // of the connection
	resends  bool       // it may lack some: they are sent again
	bytesPer throttle

	ring     []*flight // in order, from position+1 on
	queue    []*flight // of them, those that wait to be sent
	inFlight int       // unacknowledged on the connection
	bytes    int64     // of ring
	batch    *spool.Batch
	next     int // record of batch

	runs     []judging           // what the site judges
	controls ingest.ControlParts // of the backlog
	tell     bool                // the Weir above has to be told of runs before anything further is sent

	carried    carried      // by hand, see wereCarried
	handed     HandedOver   // as of the newest hello
	counted    model.Offset // how the records up to here ended is in the book
	numbers    numbering
	generation int                // of the reader of the log: it begins again after a rewind
	rewound    bool               // the next one begins behind the position
	stopFeed   context.CancelFunc // ends the present one
}

// portion is a batch of the log.
type portion struct {
	*spool.Batch
	generation int
}

func newForwarder(e *Edge, at place, counted model.Offset, n numbering) *forwarder {
	return &forwarder{bytesPer: throttle{rate: float64(e.cfg.Uplink.Rate)}, e: e, batches: make(chan portion), notice: make(chan struct{}, 1), position: at.At, number: at.Number, last: at.Number, counted: counted, numbers: n, uplink: uplink{e: e}}
}

// at is the position.
func (f *forwarder) at() model.Offset {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.position
}

// snapshot is the state as of one moment.
func (f *forwarder) snapshot() *saved {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &saved{Position: f.position, Counted: f.counted, Numbers: f.numbers}
	s.Numbers.Absent = slices.Clone(f.numbers.Absent)
	var through place
	s.Lines, through = f.e.book.copy(true)
	s.Presence, s.Beyond = f.e.presence.save(), slices.Clone(f.beyond)
	if s.AcceptedThrough = through.At; f.e.deps.Beside != nil {
		s.Repeats = f.e.deps.Beside.Repeats.save()
		s.Runs = slices.Clone(f.runs)
		s.Number, s.Tally, s.Marks = f.number, through.Number, slices.Clone(f.marks.all)
	}
	return s
}

func (f *forwarder) hint() {
	select {
	case f.notice <- struct{}{}:
	default:
	}
}

// run forwards until ctx ends.
func (f *forwarder) run(ctx context.Context) error {
	feeding, stop := context.WithCancel(ctx)
	fed := make(chan error, 1)
	go func() {
		fed <- f.feed(feeding)
		close(fed) // who waits for the end may have come after another one
	}()
	defer func() {
		stop()
		<-fed
	}()
	if ok, err := f.e.counting(ctx, fed); !ok {
		return err
	}
	for {
		conn, err := f.uplink.connect(ctx, fed)
		if err != nil || conn == nil {
			return err
		}
		f.again()
		if err := f.uplink.greet(ctx, conn); err != nil {
			f.uplink.lost(conn, true)
			if ctx.Err() != nil {
				continue
			}
			if ok, err := sleep(ctx, fed, f.uplink.failed(err)); !ok {
				return err
			}
			continue
		}
		f.uplink.greeted(conn)
		f.told()
		f.serve(ctx, conn)
		f.uplink.lost(conn, ctx.Err() != nil)
	}
}

// feed reads the log until ctx ends.
func (f *forwarder) feed(ctx context.Context) error {
	from := f.at() + 1
	for {
		round, stop := context.WithCancel(ctx)
		var generation int
		from, generation = f.feeds(stop, from)
		next, err := f.follow(round, from, generation)
		rewound := round.Err() != nil
		stop()
		damage, damaged := errors.AsType[*spool.DamageError](err)
		switch {
		case ctx.Err() != nil || errors.Is(err, spool.ErrClosed):
			return nil
		case rewound:
		case errors.Is(err, spool.ErrTrimmed): // the oldest were dropped
			from, _ = f.e.spool.Bounds()
		case damaged && damage.Next > 0:
			f.e.log.Error("a part of the log cannot be read: its messages are lost", "from", damage.Offset, "to", damage.Next-1, "error", err)
			lost := max(damage.Offset, next)
			f.e.metrics.lost.Add(float64(damage.Next - lost))
			if f.e.deps.Beside == nil { // of a platform they have no numbers
				f.mu.Lock()
				f.absent(uint64(lost), uint64(damage.Next-1))
				f.mu.Unlock()
			}
			from = damage.Next
		default:
			return fmt.Errorf("reading the log: %w", err)
		}
	}
}

// follow hands over batches from an offset on, and returns the next offset with the error that ended it.
func (f *forwarder) follow(ctx context.Context, from model.Offset, generation int) (model.Offset, error) {
	r, err := f.e.spool.Reader(from)
	if err != nil {
		return from, err
	}
	defer r.Close()
	for {
		b, err := r.Next(ctx)
		if err == nil {
			err = f.e.applied(ctx, b)
		}
		if err != nil {
			return from, err
		}
		select {
		case f.batches <- portion{b, generation}:
			from = b.Last() + 1
		case <-ctx.Done():
			return from, ctx.Err()
		}
	}
}

// again puts what the lost connection has not acknowledged back into the queue.
func (f *forwarder) again() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue, f.inFlight, f.framer = f.queue[:0], 0, nil
	for _, x := range f.ring {
		if x.stage == sent {
			x.stage = queued
		}
		if x.stage == queued {
			f.queue = append(f.queue, x)
		}
	}
}

// serve sends until the connection or ctx ends. After the end of ctx what is in flight is waited for, for a while.
func (f *forwarder) serve(ctx context.Context, conn *connection) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	stopping, ending := ctx.Done(), (<-chan time.Time)(nil)
	f.e.notify(conn, true)
	f.e.connected(conn)
	f.e.beginsToFollow()
	f.e.follows(conn)
	f.e.tellPresence(conn)
	ticks := time.NewTicker(syncTick)
	defer ticks.Stop()
	states := time.NewTicker(stateEvery)
	defer states.Stop()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.endLive()
	}()
	f.steer(ctx)
	for {
		f.advance()
		if f.mustTell() {
			return // the next hello says it
		}
		wait := time.Duration(-1)
		if ending == nil {
			var err error
			if wait, err = f.fill(conn); err != nil {
				return
			}
		} else if f.unacknowledged() == 0 {
			return
		}
		batches := f.batches
		if !f.hungry() || ending != nil {
			batches = nil
		}
		live := f.liveBatches()
		if ending != nil {
			live = nil
		}
		var paced <-chan time.Time
		if wait >= 0 {
			timer.Reset(wait)
			paced = timer.C
		}
		select {
		case b := <-batches:
			f.take(b)
		case b := <-live:
			f.takeLive(b)
		case <-ticks.C:
			f.steer(ctx)
			f.overdue()
			f.e.syncs(conn)
			f.e.follows(conn)
			f.e.tellPresence(conn)
		case m := <-conn.down:
			f.e.heard(conn, m)
		case <-states.C:
			if up, _, ok := f.e.topics(); ok && conn.weir {
				_ = say(conn, up, f.e.hello(edgewire.KindState), func(byte) {}) // the end of the connection is noticed by itself
			}
		case <-f.notice:
			f.e.notify(conn, false)
			f.e.tellPresence(conn)
			f.e.answeredFirings(conn)
			f.e.follows(conn)
		case <-paced:
		case <-conn.Done():
			return
		case <-stopping:
			stopping, ending = nil, time.After(stopDrain)
			if f.leaveOpen(conn) != nil {
				return
			}
		case <-ending:
			return
		}
	}
}

func (f *forwarder) unacknowledged() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.inFlight
}

// hungry reports whether a further batch is wanted.
func (f *forwarder) hungry() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.batch == nil && f.roomy()
}

// roomy reports whether the ring may grow, with the lock held.
func (f *forwarder) roomy() bool {
	most := int(f.e.cfg.Uplink.Window)
	if f.framer != nil && !f.framer.off {
		most *= maxFrames // a frame may hold a whole window
	}
	return len(f.ring) < most && (f.bytes < maxInFlightBytes || len(f.ring) == 0)
}

// take begins a batch.
func (f *forwarder) take(b portion) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b.generation != f.generation { // of before a rewind
		return
	}
	f.batch, f.next = b.Batch, 0
	f.load()
}

// load moves records of the batch into the ring as long as there is room, with the lock held.
func (f *forwarder) load() {
	for f.batch != nil && f.roomy() && !f.tell {
		if f.next >= len(f.batch.Records) {
			f.batch = nil
			return
		}
		at := f.batch.First + model.Offset(f.next)
		data := f.batch.Records[f.next].Data
		f.next++
		if at <= f.position || len(f.ring) > 0 && at <= f.ring[len(f.ring)-1].at {
			continue
		}
		if f.live != nil && at >= f.live.from { // what it has ended is known once nothing of it is in flight
			f.live.ending = true
			f.next--
			return
		}
		last := place{Number: f.last}
		x := f.flightOf(at, f.batch.Epoch, data, &last, &f.controls)
		f.last = last.Number
		if x.stage == queued && f.beyond.Has(uint64(at)) && !f.resends {
			x.stage, x.word = ended, ""
		}
		if x.stage == queued && !f.endCarried(x) {
			f.queue = append(f.queue, x)
		}
		f.ring = append(f.ring, x)
		f.bytes += x.size()
	}
}

// advance moves the position over what has ended.
func (f *forwarder) advance() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advanceLive()
	if l := f.live; l != nil && l.ending && l.inFlight == 0 {
		f.endLive()
	}
	n := 0
	for n < len(f.ring) {
		x := f.ring[n]
		if x.at > f.position {
			if x.stage != ended || !f.finish(x) {
				break
			}
			f.position, f.number = x.at, x.number
			if f.e.deps.Beside != nil {
				f.marks.add(place{x.at, x.number})
			}
		}
		f.bytes -= x.size()
		f.ring[n] = nil
		n++
	}
	if f.ring = f.ring[n:]; len(f.ring) == 0 {
		f.ring = nil
	}
	f.passed()
	f.load()
}

// finish counts a record that has ended. It reports false when a dead letter could not be kept: then the position stays.
func (f *forwarder) finish(x *flight) bool {
	if x.at <= f.counted || x.word == "" || f.beyond.Has(uint64(x.at)) { // it was sent again, does not go up, or has gone up before
		f.counted = max(f.counted, x.at)
		return true
	}
	if !f.count(x) {
		return false
	}
	f.counted = x.at
	return true
}

// count counts a record that has ended. It reports false when a dead letter could not be kept.
func (f *forwarder) count(x *flight) bool {
	if x.word != "stored" {
		e := f.e
		d := &DeadLetter{Time: time.Now().UTC(), Received: x.wall.Time(), Number: e.number(x.epoch, x.number), Topic: x.topic(e.cfg.InstanceID), Reason: x.word[len("dead-letter:"):], Payload: x.payload}
		if err := e.letters.add(d); err != nil {
			e.log.Error("a dead letter cannot be kept; forwarding waits", "error", err)
			return false
		}
		e.metrics.dead.Inc()
		e.log.Warn("the broker above refuses a message for good: it is a dead letter", "topic", d.Topic, "reason", d.Reason, "number", d.Number)
	}
	if x.word != "stored" || x.epoch != f.e.epoch {
		f.absent(x.number, x.number)
	}
	f.e.book.ended(lineOf(&x.record), x.word)
	return true
}

// fill sends what the window, the memory and the rate allow. wait is after how long more may be sent, negative when that depends on
// something else. An error says that the connection is over.
func (f *forwarder) fill(conn *connection) (wait time.Duration, err error) {
	if g := f.framesOn(conn); g != nil {
		return f.fillFrames(conn, g)
	}
	for {
		x, wait := f.pick(conn.Window(), f.e.deps.elapsed())
		if x == nil {
			return wait, nil
		}
		m, err := f.message(x, conn.V5())
		if err == nil {
			err = conn.Send(m, func(code byte) { f.acknowledged(x, code) })
			f.spent(&m)
		}
		if err := f.sendFailed(x, err); err != nil {
			return 0, err
		}
	}
}

// sendFailed takes back a record that could not be sent. The error is that of a connection that is over.
func (f *forwarder) sendFailed(x *flight, err error) error {
	switch {
	case err == nil:
	case errors.Is(err, mqttclient.ErrTooLarge):
		f.unsent(x, "dead-letter:"+string(ingest.ReasonTooLarge))
	default:
		f.unsent(x, "")
		return err
	}
	return nil
}

// spent counts the bytes of a message that was sent.
func (f *forwarder) spent(m *mqttclient.Message) {
	const packet = 12 // header, packet identifier, lengths
	bytes := packet + len(m.Topic) + len(m.Payload)
	for _, p := range m.Properties {
		bytes += 5 + len(p[0]) + len(p[1])
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bytesPer.spend(bytes, f.e.deps.elapsed())
}

// pick takes the next record of the queues.
func (f *forwarder) pick(window int, now time.Duration) (*flight, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.queue) > 0 && f.queue[0].at <= f.position { // dropped meanwhile
		f.queue = f.queue[1:]
	}
	from := &f.queue
	if l := f.live; l != nil {
		if len(l.queue) > 0 && !l.ending {
			from = &l.queue
		} else if f.inFlight-l.inFlight >= max(window/backlogShare, 1) {
			return nil, -1
		}
	}
	if len(*from) == 0 || f.inFlight >= window || f.tell {
		return nil, -1
	}
	if wait := f.bytesPer.wait(now); wait > 0 {
		return nil, wait
	}
	if wait := f.pace.take(now); wait > 0 {
		return nil, wait
	}
	x := (*from)[0]
	(*from)[0] = nil
	*from = (*from)[1:]
	x.stage = sent
	if x.live != nil {
		x.live.inFlight++
	}
	f.inFlight++
	f.e.metrics.inFlight.Set(float64(f.inFlight))
	return x, -1
}

// unsent takes back a record that was picked: it has ended with a word, or waits again.
func (f *forwarder) unsent(x *flight, word string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inFlight--
	if x.live != nil {
		x.live.inFlight--
	}
	if x.stage, x.word = ended, word; word == "" {
		x.stage = queued
	}
	f.hint()
}

// message is what is sent of a record.
func (f *forwarder) message(x *flight, v5 bool) (mqttclient.Message, error) {
	e := f.e
	received, isNew := e.clock.resolve(&x.record)
	if isNew { // the time must be the same when it is sent again
		if err := e.keep(); err != nil {
			return mqttclient.Message{}, err
		}
	}
	number := e.number(x.epoch, x.number)
	m := mqttclient.Message{Topic: x.topic(e.cfg.InstanceID), Payload: x.payload, QoS: 1}
	switch x.kind {
	case kindEvents:
		m.Payload = enrich(x.payload, number, received)
	case kindTelemetry:
		if body, ok := eventOf(x.payload); ok {
			x := x.record
			x.kind = kindEvents
			m.Topic, m.Payload = x.topic(e.cfg.InstanceID), enrich(body, number, received)
		}
	}
	if v5 {
		m.Properties = [][2]string{{edgewire.PropertyNumber, number}, {edgewire.PropertyReceived, timeText(received)}}
	}
	return m, nil
}

// acknowledged takes in the PUBACK of a record. The reader of the connection calls it.
func (f *forwarder) acknowledged(x *flight, code byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.e.metrics
	f.inFlight--
	if x.live != nil {
		x.live.inFlight--
	}
	m.inFlight.Set(float64(f.inFlight))
	x.stage = ended
	switch code {
	default:
		if code < 0x80 {
			x.word = "stored"
			m.forwarded.Inc()
			f.pace.acknowledged(f.e.deps.elapsed())
			f.uplink.took()
			break
		}
		x.stage = queued // 0x97, 0x83, 0x80, and what no broker should answer: it may be taken later
	case 0x87:
		x.word = "dead-letter:" + string(ingest.ReasonNotAuthorized)
	case 0x99, 0x90:
		x.word = "dead-letter:" + string(ingest.ReasonUndecodable)
	case 0x95:
		x.word = "dead-letter:" + string(ingest.ReasonTooLarge)
	}
	if code >= 0x80 {
		m.refused.WithLabelValues("0x" + strconv.FormatUint(uint64(code), 16)).Inc()
		m.errors.Inc()
		if x.live != nil {
			f.holes++
		}
	}
	if x.stage == queued && x.at > f.position {
		f.pace.slow(f.e.deps.elapsed())
		f.requeue(x)
	}
	f.hint()
}

// requeue puts a record back into the queue, in its order, with the lock held.
func (f *forwarder) requeue(x *flight) {
	into := &f.queue
	if x.live != nil {
		into = &x.live.queue
	}
	i := 0
	for i < len(*into) && (*into)[i].at < x.at {
		i++
	}
	*into = slices.Insert(*into, i, x)
}

// dropOldest discards the oldest records of a full log, counts them, and trims the log. What is in flight may have been taken above all the
// same: its number is skipped, never used for another message.
func (e *Edge) dropOldest() error {
	f := e.forward
	if err := f.drop(max(int64(e.cfg.SpoolMaxBytes)/dropAtOnce, minDrop), e.spool.Stats().MaxBytes); err != nil {
		e.log.Error("the oldest messages cannot be dropped", "error", err)
		return err
	}
	return e.keep()
}

// drop discards the oldest records, enough bytes of them, where the log holds about as much as the limit.
func (f *forwarder) drop(enough, limit int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	upTo := model.Offset(math.MaxUint64)
	if f.e.deps.Beside != nil {
		upTo = f.e.deps.Beside.Done() // what the applier needs makes no room
	}
	if f.live != nil {
		upTo = min(upTo, f.live.from-1)
	}
	stats := f.e.spool.Stats()
	if f.e.deps.Beside == nil && stats.Bytes+enough/2 < limit && (stats.MaxRecords == 0 || int64(stats.Last+1-stats.First) < stats.MaxRecords) {
		return nil // another one has made room meanwhile
	}
	r, err := f.e.spool.Reader(max(f.position+1, stats.First))
	if err != nil {
		return err
	}
	defer r.Close()
	dropped := 0
	for bytes := int64(0); bytes < enough; {
		b, err := r.TryNext()
		if err != nil {
			return err
		}
		if b == nil {
			break
		}
		for i, raw := range b.Records {
			at := b.First + model.Offset(i)
			if at <= f.position {
				continue
			}
			if at > upTo {
				bytes = enough
				break
			}
			rec, forwards, err := f.e.reads(at, raw.Data)
			if err != nil && f.e.deps.Beside == nil {
				return err
			}
			if f.e.follow != nil && rec.control != nil {
				f.judges(f.controls.Add(rec.control), f.number) // the next hello says it
			}
			if f.position = at; f.e.deps.Beside == nil {
				f.number = uint64(at)
			} else if forwards || err != nil {
				f.number++
			}
			f.last = max(f.last, f.number)
			if at <= f.counted || !forwards && err == nil || f.beyond.Has(uint64(at)) { // it was sent before, or does not go up
				continue
			}
			f.counted = at
			f.absent(f.number, f.number)
			f.e.book.ended(lineOf(&rec), "dropped:"+reasonFull)
			dropped++
		}
		bytes += b.Weight
	}
	f.e.metrics.dropped.Add(float64(dropped))
	f.e.log.Warn("the log is full: the oldest messages are dropped", "messages", dropped)
	f.hint()
	return nil
}

// reasonFull is why messages are dropped.
const reasonFull = "edge-full"

// trimmed notes where the log begins.
func (f *forwarder) trimmed(first model.Offset) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.marks.trimmed(first)
}
