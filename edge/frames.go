package edge

import (
	"bytes"
	"time"

	"weir/internal/edgewire"
	"weir/internal/mqttclient"
)

// Bounds of frames, besides those of package edgewire.
const (
	frameWait     = time.Second      // a frame that is not full leaves after it
	maxFrames     = 16               // unacknowledged
	maxFramedBody = 64 << 10         // what is larger goes up alone
	framedWithin  = 10 * time.Second // after its acknowledgement it is said what of a frame was refused
)

// framer gathers messages into frames on one connection; the forwarder's lock guards it.
type framer struct {
	conn   *connection
	topic  string
	next   uint64
	writer edgewire.FrameWriter
	open   *frame            // being gathered
	began  time.Duration     // of open
	sent   map[uint64]*frame // unacknowledged
	off    bool              // the peer takes none
}

// frame are messages that go up as one.
type frame struct {
	id      uint64
	flights []*flight
	waits   bool          // acknowledged; what was refused is not known yet
	since   time.Duration // of waits
	codes   []byte        // of flights, known before the acknowledgement; nil: not known
}

// framesOn returns the framer of a connection, nil where messages go up alone.
func (f *forwarder) framesOn(conn *connection) *framer {
	if !f.e.cfg.Uplink.Frames || !conn.frames {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.framer == nil || f.framer.conn != conn {
		tenant, _, _ := cutTenant(f.e.cfg.Uplink.Username)
		f.framer = &framer{conn: conn, topic: edgewire.FrameTopic(f.e.cfg.InstanceID, tenant, f.e.cfg.AgentID), sent: map[uint64]*frame{}}
	}
	if g := f.framer; g.off {
		if g.open != nil { // what was gathered goes up alone
			f.takeBack(g.open)
			g.open = nil
		}
		return nil
	}
	return f.framer
}

// fillFrames is fill with frames.
func (f *forwarder) fillFrames(conn *connection, g *framer) (wait time.Duration, err error) {
	tenant, _, _ := cutTenant(f.e.cfg.Uplink.Username)
	for {
		f.mu.Lock()
		full := len(g.sent) >= maxFrames
		f.mu.Unlock()
		if full {
			return -1, nil
		}
		now := f.e.deps.elapsed()
		x, wait := f.pick(conn.Window()*edgewire.MaxFrameMessages, now)
		if x == nil {
			if g.open == nil {
				return wait, nil
			}
			if left := g.began + frameWait - now; left > 0 {
				if wait < 0 || left < wait {
					wait = left
				}
				return wait, nil
			}
			if err := f.leave(g); err != nil {
				return 0, err
			}
			continue
		}
		m, err := f.message(x, true)
		switch {
		case err != nil:
			f.unsent(x, "")
			return 0, err
		case x.tenant != tenant || len(m.Payload) > maxFramedBody || x.epoch != f.e.epoch:
			if err = f.alone(conn, x, m); err != nil {
				return 0, err
			}
			continue
		}
		if err := f.gather(g, x, now); err != nil {
			return 0, err
		}
	}
}

// gather puts a message into the open frame. One that has no room for it leaves.
func (f *forwarder) gather(g *framer, x *flight, now time.Duration) error {
	m := f.framedMessage(x)
	for {
		if g.open == nil {
			g.next++
			if err := g.writer.Begin(g.next, f.e.InstallID(), f.e.epoch); err != nil {
				return err
			}
			f.mu.Lock()
			g.open, g.began = &frame{id: g.next}, now
			f.mu.Unlock()
		}
		if g.writer.Add(&m) {
			f.mu.Lock()
			g.open.flights = append(g.open.flights, x)
			f.mu.Unlock()
			return nil
		}
		if err := f.leave(g); err != nil {
			return err
		}
	}
}

// framedMessage is a message as it stands in a frame: its number is beside it, so that it needs no altId.
func (f *forwarder) framedMessage(x *flight) edgewire.FrameMessage {
	m := edgewire.FrameMessage{Number: x.number, Device: x.device, Payload: x.payload}
	received, _ := f.e.clock.resolve(&x.record) // it was kept before
	switch x.kind {
	case kindTelemetry:
		m.Kind = edgewire.FrameTelemetry
		if body, ok := eventOf(x.payload); ok {
			m.Kind, m.Payload = edgewire.FrameEvents, enrichTime(body, received)
		}
	case kindResponses:
		m.Kind = edgewire.FrameResponses
	case kindReports:
		m.Kind = edgewire.FrameReports
	default:
		m.Payload = enrichTime(x.payload, received)
	}
	return m
}

// leave sends the open frame.
func (f *forwarder) leave(g *framer) error {
	body, err := g.writer.Frame()
	if err != nil {
		return err
	}
	f.mu.Lock()
	one := g.open
	g.open, g.sent[one.id] = nil, one
	f.mu.Unlock()
	m := mqttclient.Message{Topic: g.topic, Payload: body, QoS: 1}
	if err := g.conn.Send(m, func(code byte) { f.frameAcknowledged(g, one, code) }); err != nil {
		return err // the connection is over: a frame is smaller than any Weir takes
	}
	f.spent(&m)
	f.e.metrics.frames.Inc()
	return nil
}

// leaveOpen sends what is gathered.
func (f *forwarder) leaveOpen(conn *connection) error {
	if g := f.framesOn(conn); g != nil && g.open != nil {
		return f.leave(g)
	}
	return nil
}

// alone sends a message outside a frame.
func (f *forwarder) alone(conn *connection, x *flight, m mqttclient.Message) error {
	err := conn.Send(m, func(code byte) { f.acknowledged(x, code) })
	f.spent(&m)
	return f.sendFailed(x, err)
}

// frameAcknowledged takes in the PUBACK of a frame.
func (f *forwarder) frameAcknowledged(g *framer, one *frame, code byte) {
	f.mu.Lock()
	if f.framer != g {
		f.mu.Unlock()
		return
	}
	switch {
	case code == edgewire.CodeSomeRefused && one.codes == nil:
		one.waits, one.since = true, f.e.deps.elapsed()
		f.mu.Unlock()
		return
	case code == edgewire.CodeSomeRefused || code < 0x80:
		f.mu.Unlock()
		f.frameEnded(g, one)
		return
	}
	delete(g.sent, one.id)
	whole := code == 0x87 || code == 0x99 || code == 0x90 || code == 0x95
	if whole { // it knows no frames, or not this one: each message tells by itself
		g.off = true
	} else {
		f.pace.slow(f.e.deps.elapsed())
	}
	f.takeBack(one)
	f.mu.Unlock()
	if whole {
		f.e.log.Warn("the Weir above refuses a frame: messages go up one by one until the next connection", "code", code)
	}
	f.hint()
}

// takeBack has the messages of a frame sent again, with the lock held.
func (f *forwarder) takeBack(one *frame) {
	for _, x := range one.flights {
		f.inFlight--
		if x.live != nil {
			x.live.inFlight--
		}
		if x.stage = queued; x.at > f.position {
			f.requeue(x)
		}
	}
}

// frameEnded ends the messages of a frame whose outcomes are known.
func (f *forwarder) frameEnded(g *framer, one *frame) {
	f.mu.Lock()
	delete(g.sent, one.id)
	codes := one.codes
	f.mu.Unlock()
	refused := func(i int) bool { return codes != nil && codes[i] >= 0x80 }
	for i, x := range one.flights {
		if !refused(i) {
			f.acknowledged(x, 0)
		}
	}
	for i, x := range one.flights { // behind those: how many were taken says at which rate it goes on
		if refused(i) {
			f.acknowledged(x, codes[i])
		}
	}
}

// overdue has the messages of frames sent again of which it was never said what was refused: what is above is known by its number.
func (f *forwarder) overdue() {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.framer
	if g == nil {
		return
	}
	for id, one := range g.sent {
		if one.waits && f.e.deps.elapsed()-one.since > framedWithin {
			delete(g.sent, id)
			f.takeBack(one)
			f.e.metrics.errors.Inc()
			f.e.log.Warn("the Weir above has not said which messages of a frame it refused: all are sent again", "messages", len(one.flights))
		}
	}
}

// heardFrame takes in which messages of a frame were refused.
func (f *forwarder) heardFrame(conn *connection, d *edgewire.Framed) {
	f.mu.Lock()
	g := f.framer
	if g == nil || g.conn != conn || g.sent[d.Frame] == nil {
		f.mu.Unlock()
		return
	}
	one := g.sent[d.Frame]
	if one.codes = d.Codes; len(d.Codes) != len(one.flights) { // not of this frame: all are sent again
		one.codes = bytes.Repeat([]byte{quotaExceeded}, len(one.flights))
	}
	known := one.waits
	f.mu.Unlock()
	if known {
		f.frameEnded(g, one)
	}
}

// quotaExceeded is the reason code of what may be taken later.
const quotaExceeded = 0x97
