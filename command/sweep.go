package command

import (
	"context"
	"math"
	"time"

	"weir/internal/faults"
	"weir/model"
	"weir/store"
	"weir/store/commands"
)

const (
	// slice is how many commands one transaction of a sweep moves: few enough that the writer is soon free again.
	slice = 100
	// page is how many commands a sweep reads at a time.
	page = 500
	// crowded is how many operations may wait before a sweep adds to them.
	crowded = 2 * group
	// beat is how often the desk looks at what needs a clock and no sweep: turns, paces, ends of lives.
	beat = time.Second
)

// task is a part of a sweep that is done in slices. It returns false when it is through.
type task func(ctx context.Context) (more bool, err error)

// desk is what the loop of the service alone knows.
type desk struct {
	started   bool
	recovery  task   // what the run before this one left is put right before anything else is done; nil: it was
	tasks     []task // in the order in which they are done
	sweepAt   time.Time
	holdsAt   time.Time
	strandsAt time.Time
	sweeping  bool // a sweep is under way
	holding   bool
	pacing    bool
	paceAt    model.Micros // no paced batch has a turn before it
}

// Run dispatches and sweeps until ctx ends. It always returns nil.
func (s *Service) Run(ctx context.Context) error {
	t := time.NewTicker(beat)
	defer t.Stop()
	defer s.recovered.Store(false)
	for {
		s.due(s.deps.Now())
		busy, err := s.step(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			s.deps.Logger.Warn("a step of the delivery of commands failed; it is tried again", "error", err, "retry", retry.String())
			if !pause(ctx, retry) {
				return nil
			}
			continue
		case busy:
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-t.C:
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// step does a group of operations and a slice of the sweep, and reports whether there was anything to do.
func (s *Service) step(ctx context.Context) (busy bool, err error) {
	if s.desk.recovery != nil {
		more, err := s.desk.recovery(ctx)
		if err == nil && !more {
			s.desk.recovery = nil
			s.recovered.Store(true)
		}
		return true, err
	}
	if ops := s.take(); len(ops) > 0 {
		if err := s.process(ctx, ops); err != nil {
			return true, err
		}
		busy = true
	}
	s.mu.Lock()
	full := len(s.ops) > crowded
	s.mu.Unlock()
	if full || len(s.desk.tasks) == 0 {
		return busy, nil
	}
	more, err := s.desk.tasks[0](ctx)
	if err == nil && !more {
		s.desk.tasks = s.desk.tasks[1:]
	}
	return true, err
}

// due adds the tasks whose time has come.
func (s *Service) due(now time.Time) {
	d, set := &s.desk, s.settings()
	if !d.started {
		d.started = true
		d.recovery = s.interrupted()
		d.tasks = append(d.tasks, s.unmade, s.calledOff)
		d.holdsAt, d.strandsAt = now.Add(set.HoldCheck), now.Add(set.StrandedCheck)
	}
	s.overdue(now)
	s.mu.Lock()
	d.tasks = append(d.tasks, s.added...)
	if len(s.added) > 0 {
		s.added, d.paceAt = nil, 0
	}
	ends := s.nextDue <= model.MicrosOf(now)
	if ends {
		s.nextDue = math.MaxInt64
	}
	s.mu.Unlock()
	if ends {
		d.tasks = append(d.tasks, s.endLives)
	}
	if !d.pacing && d.paceAt <= model.MicrosOf(now) {
		d.pacing = true
		d.tasks = append([]task{s.paceAll}, d.tasks...)
	}
	if !now.Before(d.sweepAt) && !d.sweeping {
		d.sweepAt, d.sweeping = now.Add(set.SweepInterval), true
		d.tasks = append(d.tasks, s.unacknowledged(now), s.queuedFrom(0), s.swept)
	}
	if !now.Before(d.holdsAt) && !d.holding {
		d.holdsAt, d.holding = now.Add(set.HoldCheck), true
		d.tasks = append(d.tasks, s.heldFrom(0))
	}
	if !now.Before(d.strandsAt) {
		d.strandsAt = now.Add(set.StrandedCheck)
		d.tasks = append(d.tasks, s.stranded(now.Add(-set.StrandedAfter)))
	}
}

// swept ends a sweep: it looks at how many commands are open.
func (s *Service) swept(ctx context.Context) (bool, error) {
	s.desk.sweeping = false
	err := s.deps.Store.Read(ctx, func(tx store.Tx) error {
		open, err := commands.Open(tx)
		for _, st := range model.CommandStates() {
			if !st.Final() {
				s.m.open.WithLabelValues(string(st)).Set(float64(open[st]))
			}
		}
		return err
	})
	return false, err
}

// moveSome moves the commands that find returns in one transaction, and reports whether there may be more.
func (s *Service) moveSome(ctx context.Context, find func(store.Tx) ([]*Command, error), move func(*changes, *Command) (bool, error)) (more bool, n int, err error) {
	err = s.write(ctx, func(x *changes) error {
		n = 0
		found, err := find(x.tx)
		if err != nil {
			return err
		}
		for _, c := range found {
			ok, err := move(x, c)
			if err != nil {
				return err
			}
			if ok {
				n++
			}
		}
		more = len(found) == slice && n > 0
		return nil
	})
	if n > 0 {
		faults.Point("command.swept")
	}
	return more, n, err
}

// endLives ends commands whose life is over.
func (s *Service) endLives(ctx context.Context) (bool, error) {
	now := model.MicrosOf(s.deps.Now())
	next := model.Micros(math.MaxInt64)
	any := false
	if err := s.deps.Store.Read(ctx, func(tx store.Tx) (err error) {
		next, err = commands.NextDue(tx)
		return err
	}); err != nil {
		return false, err
	}
	if any = next <= now; !any {
		s.lives(next)
		return false, nil
	}
	_, _, err := s.moveSome(ctx, func(tx store.Tx) ([]*Command, error) { return commands.Due(tx, now, slice) },
		func(x *changes, c *Command) (bool, error) {
			return x.move(c, expire, func(c *Command) {
				if c.State == timedOut {
					c.Error = new("the device has not answered in the life of the command")
				}
			})
		})
	return true, err
}

// unacknowledged holds commands that were sent and whose carrier has not reported their end in its time.
func (s *Service) unacknowledged(now time.Time) task {
	carriers := s.all()
	return func(ctx context.Context) (bool, error) {
		for len(carriers) > 0 {
			t := carriers[0].Traits()
			if t.Unacknowledged > 0 {
				if more, err := s.lost(ctx, t.Name, model.MicrosOf(now.Add(-t.Unacknowledged))); err != nil || more {
					return more, err
				}
			}
			carriers = carriers[1:]
		}
		return false, nil
	}
}

// interrupted holds commands whose dispatch ended with the run of Weir before this one: all that a connected carrier owes the end of,
// whatever the clock says, since nothing is dispatched before. So a device that is back at once gets them before what was made later.
func (s *Service) interrupted() task {
	carriers := s.all()
	return func(ctx context.Context) (bool, error) {
		for len(carriers) > 0 {
			if t := carriers[0].Traits(); t.Connected {
				if more, err := s.lost(ctx, t.Name, math.MaxInt64); err != nil || more {
					return more, err
				}
			}
			carriers = carriers[1:]
		}
		return false, nil
	}
}

func (s *Service) lost(ctx context.Context, carrier string, before model.Micros) (more bool, err error) {
	more, n, err := s.moveSome(ctx, func(tx store.Tx) ([]*Command, error) {
		return commands.Unacknowledged(tx, carrier, before, slice)
	},
		func(x *changes, c *Command) (bool, error) { return x.move(c, lose, nil) })
	if err == nil {
		s.m.stranded.WithLabelValues(string(held)).Add(float64(n))
	}
	return more, err
}

// stranded parks commands whose exchange ended unnoticed.
func (s *Service) stranded(before time.Time) task {
	carriers := s.all()
	return func(ctx context.Context) (bool, error) {
		for len(carriers) > 0 {
			if t := carriers[0].Traits(); t.ByAnswer {
				more, n, err := s.moveSome(ctx, func(tx store.Tx) ([]*Command, error) {
					return commands.Stranded(tx, t.Name, model.MicrosOf(before), slice)
				}, func(x *changes, c *Command) (bool, error) { return x.move(c, park, nil) })
				if err == nil {
					s.m.stranded.WithLabelValues(string(parked)).Add(float64(n))
				}
				if err != nil || more {
					return more, err
				}
			}
			carriers = carriers[1:]
		}
		return false, nil
	}
}

// queuedFrom sees to the devices of queued commands with row ids above after, page by page.
func (s *Service) queuedFrom(after int64) task {
	return func(ctx context.Context) (bool, error) {
		found, err := s.read(ctx, queued, &after, true)
		for _, device := range distinct(found) {
			s.see(device, true)
		}
		return len(found) == slice, err
	}
}

// read returns a page of commands in a state.
func (s *Service) read(ctx context.Context, st State, after *int64, mayLeave bool) (found []commands.OfState, err error) {
	size := page
	if st == queued {
		size = slice // each may become an operation
	}
	err = s.deps.Store.Read(ctx, func(tx store.Tx) (err error) {
		found, err = commands.ByState(tx, st, *after, mayLeave, size)
		return err
	})
	if len(found) > 0 {
		*after = found[len(found)-1].Command
	}
	return found, err
}

func distinct(found []commands.OfState) (devices []int64) {
	seen := make(map[int64]bool, len(found))
	for _, f := range found {
		if !seen[f.Device] {
			seen[f.Device] = true
			devices = append(devices, f.Device)
		}
	}
	return devices
}

// heldFrom compares held commands with the presence of their devices.
func (s *Service) heldFrom(after int64) task {
	return func(ctx context.Context) (bool, error) {
		found, err := s.read(ctx, held, &after, false)
		if err != nil {
			return false, err
		}
		byTenant := map[int64][]int64{}
		for _, f := range found {
			byTenant[f.Tenant] = append(byTenant[f.Tenant], f.Device)
		}
		states, unread := s.states(ctx, byTenant)
		seen := map[int64]bool{}
		for _, f := range found {
			if !seen[f.Device] && !unread[f.Tenant] && s.verdictOf(f.Device, states[f.Device], false) != wait { // the unread wait for the next check
				s.Reachable(f.Device)
			}
			seen[f.Device] = true
		}
		s.desk.holding = len(found) == page
		return s.desk.holding, nil
	}
}
