package broker

import (
	"sync"

	"weir/ingest"
)

// verdict is how a publish ends: with an acknowledgement of a reason code, or with the end of the connection.
type verdict struct {
	code   byte
	reason string
	ends   *cause // set: no PUBACK; the connection ends once everything before is acknowledged
}

// slot is a publish whose acknowledgement is pending.
type slot struct {
	id        uint16
	kind      byte // of the acknowledgement: PUBACK, PUBREC or PUBCOMP
	frees     bool // with its acknowledgement the exchange is over and the client may begin another
	silent    bool // a repeat of a publish that is still in flight: the first one's PUBACK answers both
	completed bool
	verdict
}

// acks is the acknowledgement queue of a connection. PUBACKs leave in the order in which the publishes arrived (MQTT-4.6.0-2)
// regardless of the order of the answers, refusals included. It is bounded by the receive window. Where QoS 2 is allowed, its
// PUBREC takes the position of the PUBACK, and the identifier stays taken until the PUBREL.
//
// The answers come from the committer of the log, which must not wait for a socket: complete only encodes, and a goroutine that
// ends when the buffer is empty writes everything that has gathered at once.
type acks struct {
	c *conn

	mu      sync.Mutex
	slots   []slot // ring, its length a power of two
	head    uint64 // number of the oldest open slot
	tail    uint64 // number of the next one
	ids     map[uint16]struct{}
	second  map[uint16]struct{} // identifiers at QoS 2 that wait for their PUBREL
	out     []byte              // encoded, not yet taken by the writer
	spare   []byte
	window  int // exchanges that the client has begun and cannot know to be over
	unsent  int // of those, the ones whose last acknowledgement is in out
	last    *cause
	writing bool
	closed  bool
	idle    chan struct{} // closed when nothing waits any more; nil while no goroutine asks
	room    chan struct{} // a hint to the reader of the connection that the window, or its outbox, has room again
}

func (a *acks) init(c *conn) {
	a.c = c
	a.room = make(chan struct{}, 1)
}

// open takes the next slot of the queue for a publish. A client that overruns the window of its CONNACK is refused with 0x93; a
// 3.1.1 client has not been given one and waits. A packet identifier that is still in flight is refused unless the publish is
// marked as a repeat: the second of two PUBACKs of one identifier could be taken for that of another message.
//
// again is set for a publish at QoS 2 that is stored and not yet released: it has been answered once more and is no message.
func (a *acks) open(id uint16, qos byte, dup bool) (number uint64, again bool, refused *cause) {
	for {
		a.mu.Lock()
		if a.closed {
			a.mu.Unlock()
			return 0, false, causeLost
		}
		_, again = a.second[id]
		if again || a.window < a.c.receiveMaximum() {
			break
		}
		waits := a.window > len(a.second) // else only a PUBREL makes room, and that must be read
		a.mu.Unlock()
		if a.c.version == mqtt5 || !waits {
			return 0, false, causeReceiveMaximum
		}
		select {
		case <-a.room:
		case <-a.c.ctx.Done():
			return 0, false, causeLost
		}
	}
	defer a.mu.Unlock()
	if again && qos == 2 {
		return 0, true, a.reply(slot{id: id, kind: pktPubrec, completed: true})
	}
	_, inFlight := a.ids[id]
	if again || inFlight && !dup {
		return 0, false, causeProtocol
	}
	if a.ids == nil {
		a.ids = map[uint16]struct{}{}
	}
	a.ids[id] = struct{}{}
	kind := byte(pktPuback)
	if qos == 2 {
		kind = pktPubrec
	}
	a.window++
	return a.push(slot{id: id, kind: kind, silent: inFlight, frees: true}), false, nil
}

// reply queues an answer that needs no intake. The window does not bound these, so their number is bounded here.
func (a *acks) reply(s slot) *cause {
	if a.closed {
		return causeLost
	}
	if int(a.tail-a.head) >= 4*a.c.receiveMaximum() || len(a.out) > largePacket {
		return causeReceiveMaximum
	}
	a.push(s)
	a.advance()
	return nil
}

// release ends an exchange at QoS 2: PUBREL is answered with PUBCOMP (MQTT-4.3.3-11), in order.
func (a *acks) release(id uint16) *cause {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known := a.second[id]
	delete(a.second, id)
	end := slot{id: id, kind: pktPubcomp, completed: true, frees: known}
	if !known {
		end.code = codeIdentifierNotFound
	}
	return a.reply(end)
}

// close takes the last slot of the queue: the connection ends with why once every earlier slot is acknowledged.
func (a *acks) close(why *cause) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	a.push(slot{completed: true, silent: true, verdict: verdict{ends: why}})
	a.advance()
}

func (a *acks) push(s slot) uint64 {
	if n := uint64(len(a.slots)); a.tail-a.head == n {
		grown := make([]slot, max(8, 2*n))
		for i := a.head; i < a.tail; i++ {
			grown[i&uint64(len(grown)-1)] = a.slots[i&(n-1)]
		}
		a.slots = grown
	}
	*a.at(a.tail) = s
	a.tail++
	a.c.b.metrics.pendingAcks.Inc()
	return a.tail - 1
}

func (a *acks) at(number uint64) *slot { return &a.slots[number&uint64(len(a.slots)-1)] }

// complete sets the verdict of the publish with that number. It does not block.
func (a *acks) complete(number uint64, v verdict) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || number < a.head {
		return
	}
	s := a.at(number)
	s.completed, s.verdict = true, v
	if number == a.head {
		a.advance()
	}
}

// advance encodes the completed publishes at the head of the queue.
func (a *acks) advance() {
	for a.head < a.tail && a.last == nil {
		s := a.at(a.head)
		if !s.completed {
			break
		}
		switch {
		case s.ends != nil:
			a.last = s.ends
		case s.silent:
			a.window--
		default:
			a.encode(s)
		}
		*s = slot{}
		a.head++
		a.c.b.metrics.pendingAcks.Dec()
	}
	switch {
	case a.writing:
	case len(a.out) > 0:
		a.writing = true
		a.c.writers.Go(a.write)
	case a.last != nil:
		a.c.end(a.last)
	}
	a.notify()
}

func (a *acks) encode(s *slot) {
	a.out = appendAck(a.out, a.c.version, s.kind, s.id, s.code, a.c.reason(s.reason), a.c.maxPacket)
	if s.kind == pktPubcomp {
		a.unsent += count(s.frees)
		return
	}
	delete(a.ids, s.id)
	if s.kind == pktPuback || s.code >= codeUnspecified { // a PUBREC that refuses ends the exchange as well
		a.unsent += count(s.frees)
		return
	}
	if a.second == nil {
		a.second = map[uint16]struct{}{}
	}
	a.second[s.id] = struct{}{}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// write writes the encoded acknowledgements until none is left.
func (a *acks) write() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.out) > 0 && !a.closed {
		out := a.out
		a.out, a.spare = a.spare[:0], nil
		a.window, a.unsent = a.window-a.unsent, 0 // from here on the client may have them, and send as many more
		a.notify()
		a.mu.Unlock()
		err := a.c.write(out)
		a.mu.Lock()
		a.spare = out[:0]
		if err != nil {
			break
		}
	}
	a.writing = false
	if a.last != nil {
		a.c.end(a.last)
	}
	a.notify()
}

// notify wakes the goroutines that wait for room or for the end of the queue.
func (a *acks) notify() {
	select {
	case a.room <- struct{}{}:
	default:
	}
	if a.idle != nil && a.drained() {
		close(a.idle)
		a.idle = nil
	}
}

func (a *acks) drained() bool {
	return a.closed || a.last != nil && !a.writing || a.head == a.tail && len(a.out) == 0 && !a.writing
}

// drain returns a channel that is closed when every publish is answered and the answers are written.
func (a *acks) drain() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	ch := make(chan struct{})
	if a.drained() {
		close(ch)
	} else {
		a.idle = ch
	}
	return ch
}

// stop drops the open slots; later answers are ignored.
func (a *acks) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.c.b.metrics.pendingAcks.Sub(float64(a.tail - a.head))
	a.closed, a.slots, a.ids, a.second, a.out, a.head = true, nil, nil, nil, nil, a.tail
	a.notify()
}

// verdictOn translates the answer of the intake. Dropped is acknowledged: there is no way to report it to the sender. A
// refusal ends the connection of a 3.1.1 client, which has no reason codes; so does what was not stored, in either version,
// because MQTT lets a client resend only on a new connection.
func (c *conn) verdictOn(a ingest.Answer) verdict {
	switch a.Outcome {
	case ingest.Stored, ingest.Dropped:
		return verdict{}
	case ingest.Refused:
		code := pubackCode(a.Reason)
		switch {
		case code == codeServerBusy:
			return verdict{ends: causeWithheld}
		case c.version == mqtt5:
			return verdict{code: code, reason: a.Text}
		case code == codeNotAuthorized:
			return verdict{ends: causeForbidden}
		}
		return verdict{ends: causeRefused}
	}
	return verdict{ends: causeWithheld}
}

// pubackCode is the reason code of MQTT 5 for a refusal; 0x89, which no PUBACK can carry, for one that asks the client to send again: a
// PUBACK with a reason would end the exchange.
func pubackCode(r ingest.Reason) byte {
	switch r {
	case ingest.ReasonUndecodable, ingest.ReasonTooManyReadings, ingest.ReasonTooLarge:
		return codePayloadInvalid
	case ingest.ReasonNotAuthorized, ingest.ReasonDisabledTenant:
		return codeNotAuthorized
	case ingest.ReasonCeiling, ingest.ReasonUnauthenticated, ingest.ReasonThrottled:
		return codeQuotaExceeded
	case ingest.ReasonNoConsumer:
		return codeImplementation
	case ingest.ReasonBackpressure, ingest.ReasonUnavailable, ingest.ReasonBusy:
		return codeServerBusy
	}
	return codeUnspecified
}
