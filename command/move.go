package command

import (
	"fmt"
	"slices"

	"weir/model"
	"weir/store"
	"weir/store/commands"
)

const (
	// maxEarlier is how many nonces of earlier dispatches of a command may still be answered.
	maxEarlier = 16
	// maxUnwritten is how many dispatches in a row may fail to be written.
	maxUnwritten = 5
	// minEnded is how many commands of a batch have to end before its failures are judged, all of them in a smaller one.
	minEnded = 10
)

// changes are the moves of one transaction. What they are is published once it is committed.
type changes struct {
	s            *Service
	tx           store.Tx
	now          model.Micros
	tally        commands.Tally // what is counted at the end of the transaction; nil: it is counted at once
	moved        []Command      // as they are after it
	acknowledged int            // commands that moved from SENT to SENT, and were not read
	over         []Command      // those whose exchange took long and is over
}

func (s *Service) changes(tx store.Tx) *changes {
	return &changes{s: s, tx: tx, now: model.MicrosOf(s.deps.Now())}
}

// note keeps what a command has become for those who follow.
func (x *changes) note(c *Command) { x.moved = append(x.moved, *c) }

// publish sends the moves to those who follow, and counts them. It is called after the commit.
func (x *changes) publish() {
	x.s.m.moves.WithLabelValues(string(sent)).Add(float64(x.acknowledged))
	for i := range x.moved {
		x.s.m.moves.WithLabelValues(string(x.moved[i].State)).Inc()
	}
	for i := range x.over {
		for _, c := range x.s.all() {
			if f, ok := c.(Follower); ok {
				f.Over(x.over[i].DeviceID, x.over[i].Token, x.over[i].Nonce)
			}
		}
	}
	if len(x.moved) > 0 && x.s.Events.Busy() {
		x.s.Events.Publish(x.moved...)
	}
}

// move stores what an event makes of a command, and reports whether it made anything of it. change, which may be nil, fills in what goes with
// the move.
func (x *changes) move(c *Command, e event, change func(*Command)) (bool, error) {
	before := c.State
	calledOff, err := x.calledOff(c, e)
	if err != nil {
		return false, err
	}
	to, ok := next(before, e, calledOff)
	if !ok {
		return false, nil
	}
	c.State, c.UpdatedAt = to, x.now
	if before == sent && to != sent && c.Progress != "" {
		x.over = append(x.over, *c)
	}
	if e != claim && e != acknowledge {
		c.Awaits = ""
	}
	if to.Undelivered() {
		c.Progress = ""
	}
	if change != nil {
		change(c)
	}
	if err := commands.Save(x.tx, c, before); err != nil {
		return false, err
	}
	if err := x.count(c.TenantID, before, to); err != nil {
		return false, err
	}
	x.note(c)
	if c.BatchID == 0 || !to.Final() {
		return true, nil
	}
	return true, x.ended(c)
}

// count counts a command in its new state.
func (x *changes) count(tenant int64, before, to State) error {
	if before == to {
		return nil
	}
	tally := x.tally
	if tally == nil {
		tally = commands.Tally{}
	}
	tally.Add(tenant, before, -1)
	tally.Add(tenant, to, 1)
	if x.tally != nil {
		return nil
	}
	return tally.Write(x.tx)
}

// calledOff reports whether a command that was sent and comes back is of a batch that was called off.
func (x *changes) calledOff(c *Command, e event) (bool, error) {
	if c.BatchID == 0 || c.State != sent || e != lose && e != unwrite && e != park {
		return false, nil
	}
	b, err := commands.BatchOf(x.tx, c.BatchID)
	return b != nil && (b.State == model.BatchCancelled || b.State == model.BatchCancelling), err
}

// ended counts the end of a command in its batch, and stops the batch where too many have failed.
func (x *changes) ended(c *Command) error {
	failure := c.State == failed || c.State == timedOut
	if !failure && c.State != successful {
		return nil
	}
	b, err := commands.BatchOf(x.tx, c.BatchID)
	if err != nil || b == nil {
		return err
	}
	if failure {
		b.Failed++
	} else {
		b.Succeeded++
	}
	if b.State == model.BatchRunning && stops(b) {
		b.State, b.StoppedAt = model.BatchStopped, &x.now
		bad, all := b.Failed-b.FailedBefore, b.Failed-b.FailedBefore+b.Succeeded-b.SucceededBefore
		b.StopReason = fmt.Sprintf("%d of %d commands that ended have failed, stopAtFailedPercent is %v", bad, all, b.StopPercent)
		x.s.m.stopped.Inc()
	}
	b.UpdatedAt = x.now
	return commands.SaveBatch(x.tx, b)
}

// stops reports whether so many commands of a batch have failed since it was made or resumed that it stops.
func stops(b *model.CommandBatch) bool {
	bad := b.Failed - b.FailedBefore
	all := bad + b.Succeeded - b.SucceededBefore
	return b.StopPercent > 0 && bad > 0 && all >= min(minEnded, b.Accepted-b.FailedBefore-b.SucceededBefore) && float64(bad)*100 >= b.StopPercent*float64(all)
}

// cancel cancels a command that is not sent, or whose device is still being given what it needs.
func (x *changes) cancel(c *Command) (bool, error) {
	if c.State == sent && stoppable(c) {
		return x.move(c, callOff, nil)
	}
	return x.move(c, cancel, nil)
}

// stoppable reports whether the exchange of a command that is sent can be called off.
func stoppable(c *Command) bool {
	return c.Progress != "" && c.Progress != model.ProgressUpdating
}

// dispatch claims a command for a carrier ("": for nobody, it is sent to where no device listens), which owes its end.
func (x *changes) dispatch(c *Command, carrier string) (bool, error) {
	return x.move(c, claim, func(c *Command) { x.leaves(c, carrier) })
}

// leaves fills in what goes with a new dispatch.
func (x *changes) leaves(c *Command, carrier string) {
	if c.Nonce != "" {
		c.Earlier = append(c.Earlier, c.Nonce)
		c.Earlier = c.Earlier[max(len(c.Earlier)-maxEarlier, 0):]
	}
	c.Nonce, c.Awaits, c.Sent, c.Delivered, c.Progress = x.s.nonce(), carrier, &x.now, nil, ""
}

// end stores how a dispatch ended.
func (x *changes) end(c *Command, r *Receipt) (bool, error) {
	switch r.End {
	case Acknowledged:
		return x.move(c, acknowledge, func(c *Command) {
			c.Delivered, c.Awaits, c.Earlier, c.Attempts = &x.now, "", nil, 0
		})
	case Unconfirmed:
		return x.move(c, acknowledge, func(c *Command) { c.Awaits, c.Attempts = "", 0 })
	case Slept:
		return x.move(c, park, nil)
	case Undeliverable:
		return x.refuse(c, r.Text)
	case Unwritten:
		if c.Attempts+1 >= maxUnwritten {
			return x.refuse(c, "it could not be written to the device's connection")
		}
		return x.move(c, unwrite, func(c *Command) { c.Attempts++ })
	}
	return x.move(c, lose, nil)
}

func (x *changes) refuse(c *Command, text string) (bool, error) {
	ok, err := x.move(c, refuse, func(c *Command) { c.Error = &text })
	if ok {
		x.s.m.undeliverable.Inc()
	}
	return ok, err
}

// answer stores the answer of a device.
func (x *changes) answer(c *Command, r *Response) (Answered, error) {
	switch {
	case c == nil:
		return NoSuch, nil
	case c.DeviceID != r.DeviceID:
		return NotOwner, nil
	case c.State.Final():
		return TooLate, nil
	case c.Nonce == "":
		return NotSent, nil
	case r.Nonce == "" && x.s.settings().RequireNonce:
		return BadNonce, nil
	case r.Nonce != "" && r.Nonce != c.Nonce && (c.State == parked || !slices.Contains(c.Earlier, r.Nonce)):
		return BadNonce, nil
	}
	e := succeed
	if !r.Success {
		e = fail
	}
	ok, err := x.move(c, e, func(c *Command) {
		c.Responded, c.Response, c.Earlier = new(r.At.Micros()), r.Payload, nil
		if !r.Success {
			c.Error = r.Error
		}
	})
	if err != nil || !ok {
		return TooLate, err
	}
	return Moved, nil
}
