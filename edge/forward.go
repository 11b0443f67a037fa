package edge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"weir/ingest"
	"weir/internal/edgewire"
	"weir/internal/mqttclient"
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
	at    model.Offset
	epoch uint32
	stage stage
	word  string // how it ended, as the book says it
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
	ring     []*flight // in order, from position+1 on
	queue    []*flight // of them, those that wait to be sent
	inFlight int       // unacknowledged on the connection
	bytes    int64     // of ring
	batch    *spool.Batch
	next     int // record of batch

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

func newForwarder(e *Edge, position, counted model.Offset, n numbering) *forwarder {
	return &forwarder{e: e, batches: make(chan portion), notice: make(chan struct{}, 1), position: position, counted: counted, numbers: n, uplink: uplink{e: e}}
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
	s.Lines, s.AcceptedThrough = f.e.book.copy(true)
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
			f.mu.Lock()
			f.absent(lost, damage.Next-1)
			f.mu.Unlock()
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
	f.queue, f.inFlight = f.queue[:0], 0
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
	ticks := time.NewTicker(syncTick)
	defer ticks.Stop()
	states := time.NewTicker(stateEvery)
	defer states.Stop()
	for {
		f.advance()
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
		var paced <-chan time.Time
		if wait >= 0 {
			timer.Reset(wait)
			paced = timer.C
		}
		select {
		case b := <-batches:
			f.take(b)
		case <-ticks.C:
			f.e.syncs(conn)
		case m := <-conn.down:
			f.e.heard(conn, m)
		case <-states.C:
			if up, _, ok := f.e.topics(); ok && conn.weir {
				_ = say(conn, up, f.e.hello(edgewire.KindState), func(byte) {}) // the end of the connection is noticed by itself
			}
		case <-f.notice:
			f.e.notify(conn, false)
		case <-paced:
		case <-conn.Done():
			return
		case <-stopping:
			stopping, ending = nil, time.After(stopDrain)
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
	return len(f.ring) < int(f.e.cfg.Uplink.Window) && (f.bytes < maxInFlightBytes || len(f.ring) == 0)
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
	for f.batch != nil && f.roomy() {
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
		x := &flight{at: at, epoch: f.batch.Epoch}
		var err error
		if x.record, err = decodeRecord(data); err != nil {
			x.stage, x.word, x.payload = ended, "dead-letter:damaged", data
		} else {
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
	n := 0
	for n < len(f.ring) {
		x := f.ring[n]
		if x.at > f.position {
			if x.stage != ended || !f.finish(x) {
				break
			}
			f.position = x.at
		}
		f.bytes -= x.size()
		f.ring[n] = nil
		n++
	}
	if f.ring = f.ring[n:]; len(f.ring) == 0 {
		f.ring = nil
	}
	f.load()
}

// finish counts a record that has ended. It reports false when a dead letter could not be kept: then the position stays.
func (f *forwarder) finish(x *flight) bool {
	if x.at <= f.counted { // it was sent again
		return true
	}
	if x.word != "stored" {
		e := f.e
		d := &DeadLetter{Time: time.Now().UTC(), Received: x.wall.Time(), Number: e.number(x.epoch, x.at), Topic: x.topic(e.cfg.InstanceID), Reason: x.word[len("dead-letter:"):], Payload: x.payload}
		if err := e.letters.add(d); err != nil {
			e.log.Error("a dead letter cannot be kept; forwarding waits", "error", err)
			return false
		}
		e.metrics.dead.Inc()
		e.log.Warn("the broker above refuses a message for good: it is a dead letter", "topic", d.Topic, "reason", d.Reason, "number", d.Number)
	}
	if x.word != "stored" || x.epoch != f.e.epoch {
		f.absent(x.at, x.at)
	}
	f.counted = x.at
	f.e.book.ended(lineOf(&x.record), x.word)
	return true
}

// fill sends what the window, the memory and the rate allow. wait is after how long more may be sent, negative when that depends on
// something else. An error says that the connection is over.
func (f *forwarder) fill(conn *connection) (wait time.Duration, err error) {
	for {
		x, wait := f.pick(conn.Window(), f.e.deps.elapsed())
		if x == nil {
			return wait, nil
		}
		m, err := f.message(x, conn.V5())
		if err == nil {
			err = conn.Send(m, func(code byte) { f.acknowledged(x, code) })
		}
		switch {
		case err == nil:
		case errors.Is(err, mqttclient.ErrTooLarge):
			f.unsent(x, "dead-letter:"+string(ingest.ReasonTooLarge))
		default:
			f.unsent(x, "")
			return 0, err
		}
	}
}

// pick takes the next record of the queue.
func (f *forwarder) pick(window int, now time.Duration) (*flight, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.queue) > 0 && f.queue[0].at <= f.position { // dropped meanwhile
		f.queue = f.queue[1:]
	}
	if len(f.queue) == 0 || f.inFlight >= window {
		return nil, -1
	}
	if wait := f.pace.take(now); wait > 0 {
		return nil, wait
	}
	x := f.queue[0]
	f.queue[0] = nil
	f.queue = f.queue[1:]
	x.stage = sent
	f.inFlight++
	f.e.metrics.inFlight.Set(float64(f.inFlight))
	return x, -1
}

// unsent takes back a record that was picked: it has ended with a word, or waits again.
func (f *forwarder) unsent(x *flight, word string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inFlight--
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
	number := e.number(x.epoch, x.at)
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
	}
	if x.stage == queued && x.at > f.position {
		f.pace.slow(f.e.deps.elapsed())
		f.requeue(x)
	}
	f.hint()
}

// requeue puts a record back into the queue, in its order, with the lock held.
func (f *forwarder) requeue(x *flight) {
	i := 0
	for i < len(f.queue) && f.queue[i].at < x.at {
		i++
	}
	f.queue = append(f.queue, nil)
	copy(f.queue[i+1:], f.queue[i:])
	f.queue[i] = x
}

// dropOldest discards the oldest records of a full log, counts them, and trims the log. What is in flight may have been taken above all the
// same: its number is skipped, never used for another message.
func (e *Edge) dropOldest() error {
	f := e.forward
	if err := f.drop(max(int64(e.cfg.SpoolMaxBytes)/dropAtOnce, minDrop)); err != nil {
		e.log.Error("the oldest messages cannot be dropped", "error", err)
		return err
	}
	return e.keep()
}

func (f *forwarder) drop(enough int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	stats := f.e.spool.Stats()
	if stats.Bytes+enough/2 < stats.MaxBytes && (stats.MaxRecords == 0 || int64(stats.Last+1-stats.First) < stats.MaxRecords) {
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
			rec, err := decodeRecord(raw.Data)
			if err != nil {
				return err
			}
			f.position = at
			if at <= f.counted { // it was sent before
				continue
			}
			f.counted = at
			f.absent(at, at)
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
