package edge

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"weir/internal/carry"
	"weir/internal/edgewire"
	"weir/internal/mqttclient"
	"weir/internal/ranges"
	"weir/model"
)

// Bounds of what is said to a Weir above besides the messages.
const (
	helloWait  = 10 * time.Second // a peer that has not answered a hello by then is a plain broker
	stateEvery = time.Minute
	// maxFromAbove bounds a packet from above: the largest document, its topic and its properties.
	maxFromAbove = edgewire.MaxDocument + 4<<10
	maxDown      = 64 // documents and commands from above that wait to be looked at
)

// errRenewed says that a Weir above has an edge begin as another installation again and again.
var errRenewed = errors.New("the Weir above tells this edge to begin as another installation, which it has just done")

// numbering is which numbers belong to the installation and the epoch: those from First on. Of them Absent were never taken above, and are not to
// be asked for: dead letters, what was dropped, what could not be read, and what has the epoch of an earlier log.
type numbering struct {
	Install string     `json:"installId"`
	Epoch   uint32     `json:"epoch"`
	First   uint64     `json:"first"`
	Absent  ranges.Set `json:"absent,omitempty"`
}

// connection is a connection to the broker above.
type connection struct {
	*mqttclient.Sender
	options mqttclient.SenderOptions
	down    chan mqttclient.Incoming // from above
	weir    bool                     // the peer has answered a hello
	frames  bool                     // and takes frames
}

// received keeps what the broker above has delivered until it is looked at.
func (c *connection) received(m mqttclient.Incoming) {
	m.Payload = slices.Clone(m.Payload)
	select {
	case c.down <- m:
	default: // more than a Weir sends at once
	}
}

// topics are those on which the edge and a Weir above speak to one another; ok is false where the edge has no device there.
func (e *Edge) topics() (up, down string, ok bool) {
	tenant, _, ok := cutTenant(e.cfg.Uplink.Username)
	if !ok || e.cfg.AgentID == "" {
		return "", "", false
	}
	up, down = edgewire.Topics(e.cfg.InstanceID, tenant, e.cfg.AgentID)
	return up, down, true
}

// greet introduces the edge to a Weir above, and does what its answer asks for. A peer that tells no time of day as it accepts the connection, or
// does not answer, is a plain broker. An error ends the connection.
func (u *uplink) greet(ctx context.Context, c *connection) error {
	up, down, ok := u.e.topics()
	if !ok || !c.V5() || c.PeerTime().IsZero() {
		return nil
	}
	over := time.NewTimer(helloWait)
	defer over.Stop()
	codes := make(chan byte, 1)
	if err := c.Subscribe(down, func(code byte) { codes <- code }); err != nil {
		return err
	}
	select {
	case code := <-codes:
		if code >= 0x80 {
			return nil
		}
	case <-over.C:
		return nil
	case <-c.Done():
		return c.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
	for range 2 {
		h, w, err := u.ask(ctx, c, up, over.C)
		if err != nil || w == nil {
			return err
		}
		if w.Renew == "" {
			c.weir, c.frames = true, w.Frames
			u.e.settle(h, w)
			return nil
		}
		if err := u.e.renew(w.Renew); err != nil {
			return err
		}
	}
	return errRenewed
}

// ask sends a hello and waits for its answer; nil where the peer gives none.
func (u *uplink) ask(ctx context.Context, c *connection, up string, over <-chan time.Time) (*edgewire.Hello, *edgewire.Welcome, error) {
	h := u.e.hello(edgewire.KindHello)
	h.Nonce = rand.Text()
	codes := make(chan byte, 1)
	if err := say(c, up, h, func(code byte) { codes <- code }); err != nil {
		return nil, nil, err
	}
	for {
		select {
		case code := <-codes:
			if code >= 0x80 {
				return nil, nil, nil
			}
		case m := <-c.down:
			if w, err := edgewire.ParseWelcome(m.Payload); err == nil && w.Nonce == h.Nonce {
				return h, w, nil
			}
		case <-over:
			u.e.log.Warn("the Weir above does not answer a hello: it is taken for a plain broker")
			return nil, nil, nil
		case <-c.Done():
			return nil, nil, c.Err()
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// say publishes a document.
func say(c *connection, topic string, document any, done func(code byte)) error {
	b, err := json.Marshal(document)
	if err != nil {
		return err
	}
	return c.Send(mqttclient.Message{Topic: topic, Payload: b, QoS: 1}, done)
}

// hello is what the edge says of itself.
func (e *Edge) hello(kind string) *edgewire.Hello {
	oldest, newest := e.numbers()
	h := &edgewire.Hello{Kind: kind, Install: e.InstallID(), Epoch: e.epoch, Boot: strconv.FormatUint(e.deps.Boot, 16), Machine: e.machine(), Version: e.deps.Version,
		Newest: newest, Oldest: oldest, Waiting: uint64(e.waiting()), OldestSeconds: e.oldestAge().Seconds(), Bytes: e.spool.Stats().Bytes, MaxBytes: int64(e.cfg.SpoolMaxBytes)}
	f := e.forward
	f.mu.Lock()
	h.Runs = f.judged()
	h.First, h.Position, h.Absent = f.numbers.First, f.number, slices.Clone(f.numbers.Absent)
	f.mu.Unlock()
	h.Newest = max(h.Newest, h.Position, h.First-1)
	h.Oldest = min(h.Oldest, h.Newest+1)
	h.Absent, _ = h.Absent.Split(h.Newest + 1)
	if at, ok := e.clock.time(); ok {
		h.Time = &at
	}
	return h
}

// machine is a hash of the machine's id, "" where it has none.
func (e *Edge) machine() string {
	if e.deps.Machine == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("weir-edge\x00" + e.id.InstallID + "\x00" + e.deps.Machine))
	return hex.EncodeToString(sum[:16])
}

// renew begins as another installation: everything that waits is sent under numbers of its own.
func (e *Edge) renew(why string) error {
	e.durable.Lock()
	before, own := e.InstallID(), e.id
	own.SentAs = newInstall()
	err := e.state.writeIdentity(own)
	if err == nil {
		e.setIdentity(own)
		f := e.forward
		f.mu.Lock()
		f.numbers = numbering{Install: own.SentAs, Epoch: e.epoch, First: f.number + 1}
		f.mu.Unlock()
	}
	e.durable.Unlock()
	if err != nil {
		return err
	}
	e.metrics.renewed.Inc()
	e.log.Warn("this edge goes on as another installation, as the Weir above asks: what waits is sent under new numbers", "why", why, "before", before, "now", own.SentAs)
	return e.keep()
}

// settle sends again what has left the edge and is not above, as far as the log still has it. The rest is a gap that both sides name.
func (e *Edge) settle(h *edgewire.Hello, w *edgewire.Welcome) {
	e.keepCarryKey(carry.PublicKey(w.CarryKey))
	defer e.forward.wereCarried(w)
	if !w.Complete {
		return
	}
	e.forward.mayLack(w.Ranges, w.Complete)
	gone, wanted := edgewire.Lacking(h, w)
	e.metrics.gap.Set(float64(gone.Count()))
	u := &e.forward.uplink
	u.mu.Lock()
	u.gaps = gone
	u.mu.Unlock()
	if len(gone) > 0 {
		e.log.Error("messages that the Weir above has acknowledged are not there, and the log has them no more", "messages", gone.Count(), "first", gone[0][0], "last", gone.Last())
	}
	if len(wanted) > 0 {
		e.log.Warn("messages that the Weir above has acknowledged are not there: they are sent again", "messages", wanted.Count(), "first", wanted[0][0])
		e.forward.rewind(wanted[0][0] - 1)
	}
}

// numbers are the lowest number that could be sent again, and the newest one.
func (e *Edge) numbers() (oldest, newest uint64) {
	first, last := e.spool.Bounds()
	if e.deps.Beside == nil {
		return max(uint64(first), 1), uint64(last)
	}
	f := e.forward
	f.mu.Lock()
	defer f.mu.Unlock()
	oldest = f.number + 1
	for _, p := range f.marks.all {
		if p.At+1 >= first {
			oldest = min(oldest, p.Number+1)
			break
		}
	}
	return oldest, e.book.numbered()
}

// rewind moves the position back to a number, or before it where only that is known: what follows is sent again under the same numbers. Nothing is
// in flight.
func (f *forwarder) rewind(number uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	to := place{model.Offset(number), number}
	if f.e.deps.Beside != nil {
		to = place{}
		for _, p := range f.marks.all {
			if p.Number <= number {
				to = p
			}
		}
		if to.At == 0 {
			return
		}
		f.marks.rewound(to)
	}
	if to.At >= f.position {
		return
	}
	f.position, f.number, f.last = to.At, to.Number, to.Number
	f.ring, f.queue, f.bytes, f.batch, f.inFlight = nil, nil, 0, nil, 0
	f.generation++
	f.rewound, f.resends = true, len(f.beyond) > 0
	if f.stopFeed != nil {
		f.stopFeed()
	}
}

// feeds begins to follow the log, and returns from where on and for which generation.
func (f *forwarder) feeds(stop context.CancelFunc, from model.Offset) (model.Offset, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopFeed = stop
	if f.rewound {
		f.rewound, from = false, f.position+1
	}
	return from, f.generation
}

// absent notes numbers that were never taken above, with the lock held.
func (f *forwarder) absent(first, last uint64) {
	for n := max(first, f.numbers.First); n <= last; n++ {
		f.numbers.Absent.Add(n, edgewire.MaxRanges)
	}
}

// began takes over which numbers are those of the installation and the epoch.
func (n numbering) began(install string, epoch uint32, newest uint64) numbering {
	if n.Install == install && n.Epoch == epoch && n.First > 0 && n.First <= newest+1 && n.Absent.Check(edgewire.MaxRanges) == nil {
		return n
	}
	return numbering{Install: install, Epoch: epoch, First: newest + 1}
}

// shownGap is a gap as it is shown.
func shownGap(s ranges.Set) (out []string) {
	for _, r := range s {
		out = append(out, fmt.Sprintf("%d-%d", r[0], r[1]))
	}
	return out
}

// peerWord is what the peer is, as it is shown.
func peerWord(weir bool) string {
	if weir {
		return "weir"
	}
	return "broker"
}
