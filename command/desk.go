package command

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"weir/internal/faults"
	"weir/model"
	"weir/store"
	"weir/store/commands"
)

const (
	// group is how many operations a function of the store's writer does at most: it holds the writer for a few milliseconds.
	group = 128
	// abreast is how many of these are asked for at once where many operations wait.
	abreast = 4
	// margin is what has to be left of the life of a command that is sent.
	margin = model.Micros(time.Second / time.Microsecond)
	// turn is how long a command waits for the acknowledgement of the one before it.
	turn = 5 * time.Second
	// drain is how many HELD commands are released at once when their device is back; the others leave in their turn.
	drain = DefaultDrain
	// presenceTimeout is how long a read of presence may take.
	presenceTimeout = 15 * time.Second
	// retry is how long after an error of the store a transaction is tried again.
	retry = time.Second
)

// slot is what is remembered of a device with something under way.
type slot struct {
	judging  bool      // an operation that judges its queued commands waits
	waking   bool      // an operation that releases its held commands waits
	claiming bool      // an operation that claims one waits
	more     bool      // there may be another one to send
	nonce    string    // of the dispatch whose acknowledgement is waited for
	since    time.Time // it left
	byAnswer bool      // only the answer makes room for the next
}

// idle reports whether nothing is under way.
func (l *slot) idle() bool { return !l.judging && !l.waking && !l.claiming && l.nonce == "" }

// flight is a dispatch that others wait for.
type flight struct {
	device int64
	nonce  string
	since  time.Time
}

type kind uint8

const (
	opJudge kind = iota // decides about the queued commands of a device that no carrier has
	opWake              // releases the held commands of a device
	opClaim
	opEnd
	opProgress
)

// op is something that is done in a transaction of the desk.
type op struct {
	kind    kind
	device  int64
	carrier string
	receipt Receipt
	done    func(Dispatch, bool) // of opClaim
	told    Progress             // of opProgress
	swept   bool                 // opJudge comes of a sweep
	state   *store.DeviceState   // opJudge: what is known of the device, nil for nothing
	unread  bool                 // opJudge: what is known could not be read
}

// all are the carriers.
func (s *Service) all() []Carrier {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.carriers
}

// slot returns what is remembered of a device. The lock is held.
func (s *Service) slot(device int64) *slot {
	l := s.slots[device]
	if l == nil {
		l = &slot{}
		s.slots[device] = l
	}
	return l
}

// tidy drops the slot of a device with nothing under way. The lock is held.
func (s *Service) tidy(device int64) {
	if l := s.slots[device]; l != nil && l.idle() {
		delete(s.slots, device)
	}
}

// push adds an operation. The lock is held.
func (s *Service) push(o op) {
	s.ops = append(s.ops, o)
	s.m.queue.Set(float64(len(s.ops)))
	s.nudge()
}

func (s *Service) nudge() {
	select {
	case s.wake <- struct{}{}:
	default: // there is one already
	}
}

// touch sees to a device with a command that may leave.
func (s *Service) touch(device int64) { s.see(device, false) }

func (s *Service) see(device int64, swept bool) {
	s.mu.Lock()
	if l := s.slots[device]; l != nil && (l.claiming || l.nonce != "") {
		l.more = true // whoever ends it goes on
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	if s.offer(device) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.slot(device); !l.judging {
		l.judging = true
		s.push(op{kind: opJudge, device: device, swept: swept})
	}
}

// offer offers a device to the carrier that can reach it.
func (s *Service) offer(device int64) bool {
	for _, c := range s.all() {
		if r := c.Reach(device); (r == Present || r == Asleep) && c.Offer(device) {
			return true
		}
	}
	return false
}

// present reports whether a carrier can reach a device.
func (s *Service) present(device int64) bool {
	for _, c := range s.all() {
		if r := c.Reach(device); r == Present || r == Asleep {
			return true
		}
	}
	return false
}

// Reachable implements Desk.
func (s *Service) Reachable(device int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.slot(device); !l.waking {
		l.waking = true
		s.push(op{kind: opWake, device: device})
	}
}

// Claim implements Desk.
func (s *Service) Claim(device int64, carrier string, done func(Dispatch, bool)) {
	s.mu.Lock()
	l := s.slot(device)
	if l.claiming || l.nonce != "" {
		l.more = true
		s.mu.Unlock()
		done(Dispatch{}, false)
		return
	}
	l.claiming = true
	s.push(op{kind: opClaim, device: device, carrier: carrier, done: done})
	s.mu.Unlock()
}

// Ended implements Desk.
func (s *Service) Ended(r Receipt) {
	faults.Point("command.ended")
	s.mu.Lock()
	s.push(op{kind: opEnd, device: r.DeviceID, receipt: r})
	s.mu.Unlock()
	s.landed(r.DeviceID, r.Nonce, r.End != Acknowledged && r.End != Unconfirmed)
}

// Progress implements Desk.
func (s *Service) Progress(p Progress) {
	s.mu.Lock()
	s.push(op{kind: opProgress, device: p.DeviceID, told: p})
	s.mu.Unlock()
}

// landed makes room for the next command of a device. over says that more than an acknowledgement has come.
func (s *Service) landed(device int64, nonce string, over bool) {
	s.mu.Lock()
	l := s.slots[device]
	if l == nil || l.nonce == "" || nonce != "" && l.nonce != nonce || l.byAnswer && !over {
		s.mu.Unlock()
		return
	}
	more := l.more
	l.nonce, l.more = "", false
	s.tidy(device)
	s.mu.Unlock()
	if more {
		s.touch(device)
	}
}

// overdue makes room behind dispatches that were not acknowledged in their time.
func (s *Service) overdue(now time.Time) {
	for {
		s.mu.Lock()
		if len(s.flights) == 0 || now.Sub(s.flights[0].since) < turn {
			s.mu.Unlock()
			return
		}
		f := s.flights[0]
		s.flights = s.flights[1:]
		s.mu.Unlock()
		s.landed(f.device, f.nonce, true)
	}
}

// lives notes when a new command ends.
func (s *Service) lives(until model.Micros) {
	s.mu.Lock()
	s.nextDue = min(s.nextDue, until)
	s.mu.Unlock()
}

// take returns the operations that are done next.
func (s *Service) take() []op {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(abreast*group, len(s.ops))
	part := s.ops[:n:n]
	if s.ops = s.ops[n:]; len(s.ops) == 0 {
		s.ops = nil
	}
	s.m.queue.Set(float64(len(s.ops)))
	for i := range part {
		switch l := s.slots[part[i].device]; {
		case l == nil:
		case part[i].kind == opJudge:
			l.judging = false
		case part[i].kind == opWake:
			l.waking = false
		}
	}
	return part
}

// process performs operations, those of one device in their order, in a few transactions, and what follows from them after these. On an error it
// asks again for what is not asked for again by itself.
func (s *Service) process(ctx context.Context, ops []op) error {
	ops, err := s.worthwhile(ctx, ops)
	if err != nil {
		s.again(ops)
		return err
	}
	if len(ops) == 0 {
		return nil
	}
	parts := slices.Collect(slices.Chunk(ops, group))
	after := make([][]func(), len(parts))
	fns := make([]func(*changes) error, len(parts))
	for n, part := range parts {
		fns[n] = func(x *changes) error {
			after[n] = after[n][:0]
			for i := range part {
				then, err := s.perform(x, &part[i])
				if err != nil {
					return err
				}
				if then != nil {
					after[n] = append(after[n], then)
				}
			}
			return nil
		}
	}
	errs := s.writeAll(ctx, fns...)
	for n, err := range errs {
		if err != nil {
			s.m.errors.Inc()
			s.again(parts[n])
			continue
		}
		faults.Point("command.stored")
		for _, then := range after[n] {
			then()
		}
	}
	return errors.Join(errs...)
}

// again puts operations back after an error. Claims are answered: the device is offered again.
func (s *Service) again(ops []op) {
	for i := range ops {
		o := &ops[i]
		switch o.kind {
		case opClaim:
			s.unclaimed(o, false)
		case opWake:
			s.Reachable(o.device)
		case opEnd, opProgress:
			s.mu.Lock()
			s.push(*o)
			s.mu.Unlock()
		case opJudge: // the sweep comes to it
			s.mu.Lock()
			s.tidy(o.device)
			s.mu.Unlock()
		}
	}
}

// worthwhile leaves out what would change nothing, which is most of it where devices poll: wakes, judgements and claims of devices without a
// command, and the ends of all dispatches to a device that was sent none. They cost no commit. It reads what is known of the devices that are judged.
func (s *Service) worthwhile(ctx context.Context, ops []op) ([]op, error) {
	var asked, ended []int64
	for i := range ops {
		switch o := &ops[i]; {
		case o.kind != opEnd && o.kind != opProgress:
			asked = append(asked, o.device)
		case o.receipt.blanket():
			ended = append(ended, o.device)
		}
	}
	if len(asked)+len(ended) == 0 {
		return ops, nil
	}
	var waiting, owed map[int64]int64
	if err := s.deps.Store.Read(ctx, func(tx store.Tx) (err error) {
		if waiting, err = commands.Waiting(tx, asked); err == nil {
			owed, err = commands.Owed(tx, ended)
		}
		return err
	}); err != nil {
		return ops, err
	}
	judged := map[int64][]int64{} // by tenant
	for i := range ops {
		if tenant, ok := waiting[ops[i].device]; ok && ops[i].kind == opJudge {
			judged[tenant] = append(judged[tenant], ops[i].device)
		}
	}
	states, unread := s.states(ctx, judged)
	if err := ctx.Err(); err != nil {
		return ops, err
	}
	kept, none := ops[:0:0], []op(nil)
	returns := map[int64]bool{} // devices to which a command may come back in this transaction
	for i := range ops {
		o := &ops[i]
		tenant, waits := waiting[o.device]
		_, sent := owed[o.device]
		switch {
		case o.kind == opEnd && o.receipt.blanket() && !sent, o.kind == opWake && !waits, o.kind == opJudge && !waits:
			s.rest(o.device)
			continue
		case o.kind == opClaim && !waits && !returns[o.device]:
			none = append(none, *o)
			continue
		case o.kind == opEnd:
			returns[o.device] = true
		case o.kind == opJudge:
			o.state, o.unread = states[o.device], unread[tenant]
		}
		kept = append(kept, *o)
	}
	for i := range none {
		s.m.claimsLost.Inc()
		s.unclaimed(&none[i], true)
	}
	return kept, nil
}

// states are what is known of devices, which are given by tenant. unread are the tenants whose devices' states could not be read.
func (s *Service) states(ctx context.Context, devices map[int64][]int64) (all map[int64]*store.DeviceState, unread map[int64]bool) {
	ctx, cancel := context.WithTimeout(ctx, presenceTimeout)
	defer cancel()
	all, unread = map[int64]*store.DeviceState{}, map[int64]bool{}
	for tenant, some := range devices {
		found, err := s.deps.States(ctx, tenant, some)
		if err != nil {
			s.m.readErrors.Inc()
			s.deps.Logger.Warn("the presence of devices cannot be read; their commands are dispatched without it", "tenant", tenant, "devices", len(some), "error", err)
			unread[tenant] = true
			continue
		}
		maps.Copy(all, found)
	}
	return all, unread
}

// perform does an operation and returns what follows after the commit, nil for nothing.
func (s *Service) perform(x *changes, o *op) (then func(), err error) {
	switch o.kind {
	case opJudge:
		return s.judge(x, o)
	case opWake:
		return s.awake(x, o.device)
	case opClaim:
		return s.claimNext(x, o)
	case opProgress:
		return s.progressOf(x, &o.told)
	}
	return s.endOf(x, o)
}

// progressOf stores how far a dispatch is.
func (s *Service) progressOf(x *changes, p *Progress) (func(), error) {
	found, err := commands.Awaited(x.tx, p.DeviceID, p.Carrier)
	if err != nil {
		return nil, err
	}
	live := false
	for _, c := range found {
		if c.Token != p.Token || c.Nonce != p.Nonce {
			continue
		}
		live = true
		if c.Progress != p.Text {
			c.Progress, c.UpdatedAt = p.Text, x.now
			if err := commands.Save(x.tx, c, c.State); err != nil {
				return nil, err
			}
			x.note(c)
		}
	}
	return func() { p.Done(live) }, nil
}

// claimNext claims the next command of a device.
func (s *Service) claimNext(x *changes, o *op) (func(), error) {
	c, more, err := commands.Next(x.tx, o.device, x.now+margin, s.asleep(o.carrier, o.device))
	if err != nil {
		return nil, err
	}
	if c == nil || s.deps.Gone(c.TenantID) {
		s.m.claimsLost.Inc()
		return func() { s.unclaimed(o, true) }, nil
	}
	before := c.State
	if ok, err := x.dispatch(c, o.carrier); err != nil || !ok {
		return func() { s.unclaimed(o, true) }, err
	}
	d := dispatchOf(c)
	return func() {
		if before == held {
			s.m.released.Inc()
		}
		s.claimed(o, d, more)
	}, nil
}

// asleep reports whether a device sleeps, as its carrier says.
func (s *Service) asleep(carrier string, device int64) bool {
	for _, c := range s.all() {
		if c.Traits().Name == carrier {
			return c.Reach(device) == Asleep
		}
	}
	return false
}

func dispatchOf(c *Command) Dispatch {
	return Dispatch{TenantID: c.TenantID, DeviceID: c.DeviceID, Device: c.Device, Token: c.Token, Name: c.Name, Payload: c.Payload, Nonce: c.Nonce, Expires: c.Expires}
}

// straight is the way of a new command that leaves with the transaction that makes it. From reserve to hand or release it has the place of a claim,
// so that no other dispatch to the device is made meanwhile. It belongs to the goroutine that makes the command, or to the writer for it.
type straight struct {
	s      *Service
	taker  Taker // nil: nothing is reserved
	device int64
}

// reserve dispatches a command that is about to be stored, if nothing is before it and its device can take it now.
func (w *straight) reserve(x *changes, c *Command) error {
	s := w.s
	if !s.recovered.Load() || s.deps.Gone(c.TenantID) || c.Expires <= x.now+margin {
		return nil
	}
	taker := s.taker(c.DeviceID)
	if taker == nil {
		return nil
	}
	// What is on its way counts, too: what of it was lost, and is not yet stored as that, leaves before this one.
	if busy, err := commands.Busy(x.tx, c.DeviceID); err != nil || busy {
		return err
	}
	s.mu.Lock()
	l := s.slot(c.DeviceID)
	if l.claiming || l.nonce != "" {
		s.mu.Unlock()
		return nil
	}
	l.claiming = true
	s.mu.Unlock()
	w.taker, w.device = taker, c.DeviceID
	c.State = sent
	x.leaves(c, taker.Traits().Name)
	return nil
}

// hand hands the command to the carrier, after the commit.
func (w *straight) hand(c *Command) bool {
	taker := w.taker
	if taker == nil {
		return false
	}
	w.taker = nil
	w.s.m.straight.Inc()
	w.s.claimed(&op{kind: opClaim, device: w.device, carrier: c.Awaits, done: func(d Dispatch, _ bool) { taker.Take(d) }}, dispatchOf(c), false)
	return true
}

// release gives the place back of a command that was not made.
func (w *straight) release() {
	if w == nil || w.taker == nil {
		return
	}
	w.taker = nil
	w.s.unclaimed(&op{kind: opClaim, device: w.device, done: func(Dispatch, bool) {}}, true)
}

// taker returns the carrier that would be offered a device, if it takes a command of it now, nil otherwise.
func (s *Service) taker(device int64) Taker {
	for _, c := range s.all() {
		if r := c.Reach(device); r == Present || r == Asleep {
			if t, ok := c.(Taker); ok && t.Ready(device) {
				return t
			}
			return nil
		}
	}
	return nil
}

// claimed hands a dispatch to its carrier.
func (s *Service) claimed(o *op, d Dispatch, more bool) {
	faults.Point("command.claimed")
	now := s.deps.Now()
	byAnswer := false
	for _, c := range s.all() {
		if t := c.Traits(); t.Name == o.carrier {
			byAnswer = t.ByAnswer
		}
	}
	s.mu.Lock()
	l := s.slot(o.device)
	l.claiming, l.nonce, l.since, l.byAnswer = false, d.Nonce, now, byAnswer
	l.more = l.more || more
	s.flights = append(s.flights, flight{o.device, d.Nonce, now})
	s.mu.Unlock()
	o.done(d, true)
}

// unclaimed answers a claim that found nothing. What came meanwhile is offered again.
func (s *Service) unclaimed(o *op, read bool) {
	s.mu.Lock()
	l := s.slot(o.device)
	more := l.more
	l.claiming, l.more = false, false
	s.tidy(o.device)
	s.mu.Unlock()
	o.done(Dispatch{}, false)
	if more && read {
		s.touch(o.device)
	}
}

// awake releases the held commands of a device that is back.
func (s *Service) awake(x *changes, device int64) (func(), error) {
	found, err := commands.OfDevice(x.tx, device, held, false, drain)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, c := range found {
		if ok, err := x.move(c, release, nil); err != nil {
			return nil, err
		} else if ok {
			n++
		}
	}
	return func() {
		s.m.released.Add(float64(n))
		s.touch(device)
	}, nil
}

// endOf stores how dispatches ended.
func (s *Service) endOf(x *changes, o *op) (func(), error) {
	r := &o.receipt
	if r.End == Acknowledged && r.Token != "" && r.Nonce != "" && !s.Events.Busy() { // nothing but the row has to know of it
		ok, err := commands.Acknowledge(x.tx, o.device, r.Carrier, r.Token, r.Nonce, x.now)
		if ok {
			x.acknowledged++
		}
		return func() { s.rest(o.device) }, err
	}
	found, err := commands.Awaited(x.tx, o.device, r.Carrier)
	if err != nil {
		return nil, err
	}
	again := false
	for _, c := range found {
		if r.Token != "" && c.Token != r.Token || r.Nonce != "" && c.Nonce != r.Nonce {
			continue
		}
		if _, err := x.end(c, r); err != nil {
			return nil, err
		}
		again = again || c.State == held || c.State == queued && c.Attempts < maxUnwritten
	}
	return func() {
		s.mu.Lock()
		s.tidy(o.device)
		s.mu.Unlock()
		if again && r.End == Lost && s.present(o.device) { // by another session
			s.Reachable(o.device)
		}
	}, nil
}

// verdict is what becomes of the queued commands of a device that no carrier can reach now.
type verdict uint8

const (
	wait   verdict = iota // they are HELD
	nobody                // they are SENT to where no device listens
	never                 // they FAIL
	live                  // a carrier has the device after all
)

// verdictOf judges a device by the source that last moved its state, nil where nothing is known of it. Where its state could not be read
// (unread) only what the carriers themselves say counts: a command for a device that none of them has is not gated.
func (s *Service) verdictOf(device int64, st *store.DeviceState, unread bool) verdict {
	gated := s.settings().PresenceGated
	var owner Carrier
	for _, c := range s.all() {
		switch t := c.Traits(); {
		case c.Reach(device) == Present || c.Reach(device) == Asleep:
			return live
		case st != nil && slices.Contains(t.Sources, st.MovedBy()):
			owner = c
		case owner == nil && c.Reach(device) == Absent:
			owner = c
		}
	}
	switch {
	case owner != nil && owner.Traits().Holds:
		return wait
	case !gated, unread && owner == nil:
		return nobody
	case owner != nil && owner.Traits().Never:
		return never
	case owner != nil || st == nil || st.MovedBy() == "":
		return wait
	case st.Asserted && st.State == model.Disconnected:
		return wait
	}
	return nobody
}

// maxJudged is how many queued commands of a device are judged at once.
const maxJudged = 100

// judge decides about the queued commands of a device.
func (s *Service) judge(x *changes, o *op) (func(), error) {
	found, err := commands.OfDevice(x.tx, o.device, queued, true, maxJudged)
	if err != nil || len(found) == 0 {
		return func() { s.rest(o.device) }, err
	}
	v := s.verdictOf(o.device, o.state, o.unread)
	switch {
	case v == live:
		return func() { s.rest(o.device); s.touch(o.device) }, nil
	case v == never && !o.swept && len(found) > 1:
		return func() { s.rest(o.device) }, nil // the sweep's
	}
	n := 0
	for _, c := range found {
		var ok bool
		switch v {
		case wait:
			ok, err = x.move(c, hold, nil)
		case never:
			ok, err = x.refuse(c, "undeliverable: the device's transport takes no commands")
		default:
			if c.Expires > x.now+margin {
				ok, err = x.dispatch(c, "")
			}
		}
		if err != nil {
			return nil, err
		}
		if ok {
			n++
		}
	}
	return func() {
		s.rest(o.device)
		if v == wait {
			s.m.held.Add(float64(n))
			if s.present(o.device) { // it came while they were written
				s.Reachable(o.device)
			}
		}
		if len(found) == maxJudged && n > 0 {
			s.see(o.device, o.swept)
		}
	}, nil
}

// rest drops what is remembered of a device with nothing under way.
func (s *Service) rest(device int64) {
	s.mu.Lock()
	s.tidy(device)
	s.mu.Unlock()
}
