package presence

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"weir/model"
)

// Store is what a tracker reads of stored presence.
type Store interface {
	// PresenceSession returns the session number stored for a device, 0 when there is none.
	PresenceSession(ctx context.Context, deviceID int64) (uint64, error)
	// AssertedPresence lists the devices whose presence the event source asserted, in the order of their row ids: those
	// above after, at most limit.
	AssertedPresence(ctx context.Context, source string, after int64, limit int) ([]Asserted, error)
}

// Asserted is a device whose presence is asserted.
type Asserted struct {
	Binding   model.Binding // Credential is not needed
	Session   uint64
	Connected bool
	At        model.Micros // of the last transition
}

// transition is one of the device in the session that is stored. It is later than the last one, also while the clock is behind that: it
// would lose otherwise.
func (d *Asserted) transition(s model.PresenceState, reason string, now time.Time) model.Presence {
	return model.Presence{State: s, Reason: reason, Session: d.Session, Occurred: max(model.NanosOf(now), (d.At + 1).Nanos())}
}

// By is whose doing the end of a connection was.
type By uint8

// Whose doing an end can be.
const (
	ByDevice By = iota // the device is disconnected at once
	ByWeir             // its own stop, the end of a session, a credential change: the device has a grace to return
	ByLink             // between the device and Weir: nothing is known of the device, and there is no transition
)

// TrackerConfig configures a tracker. Every field but Silent is required.
type TrackerConfig struct {
	Source string // id of the event source
	Silent bool   // presence is not asserted; what was asserted before is demoted
	Timing
	// MaxGraces bounds the devices in their grace; a device beyond it is left to the check.
	MaxGraces func() int
}

// Timing are the keys of a tracker, in the section presence. They may change while it runs.
type Timing struct {
	// Grace begins at a start, or when Weir ends a connection.
	Grace time.Duration `yaml:"restart_grace" default:"150s" zero:"no" doc:"Time for a device to reconnect after a start." reload:"yes"`
	Check time.Duration `yaml:"reconcile_interval" default:"5m" zero:"no" doc:"How often stored presence is compared with live connections and repaired." reload:"yes"`
}

// TrackerDeps are the collaborators of a tracker. Emit and Now are required.
type TrackerDeps struct {
	Store Store // nil: nothing is stored
	// Emit hands a transition to the intake.
	Emit func(ctx context.Context, b model.Binding, p model.Presence)
	// Crowded reports whether connections queue to be let in: devices that are back may not have been seen yet. nil: never.
	Crowded func() bool
	Now     func() time.Time
	Logger  *slog.Logger // nil: nothing is logged
	// InGrace is called with the number of devices in their grace when it changes, ReadFailed when the store cannot be read.
	// Both must not block; nil: they are not called.
	InGrace    func(devices int)
	ReadFailed func()
}

// Reasons of transitions that a tracker asserts by itself.
const (
	ReasonGraceOver = "restart-timeout"
	ReasonSilent    = "broker-presence-off"
	ReasonRepaired  = "reconciled"

	scanPage    = 500
	pace        = 40 * time.Millisecond // 25 transitions a second
	readTimeout = 10 * time.Second
	readRetry   = 5 * time.Second
	// maxCrowded is by how many tenths of a grace that after a start is extended while connections queue.
	maxCrowded = 30
)

// Tracker turns the connections of one event source into presence transitions. What a device does becomes a transition at
// once. What Weir does to it becomes none: the device has a grace to return, and is disconnected only when that is over. It
// is safe for concurrent use.
type Tracker struct {
	cfg  TrackerConfig
	deps TrackerDeps

	mu     sync.Mutex
	timing Timing
	last   uint64               // the highest session number given
	live   map[int64]connection // by device id
	left   map[int64]connection // devices in their grace
	wake   chan struct{}        // a hint that left or timing has changed
	odd    map[int64]uint64     // what the last check found to differ, with the session number found
}

// connection is the latest connection of a device with the number of those that are open, or when the last one ended.
type connection struct {
	binding model.Binding
	session uint64
	open    int
	ended   time.Time
}

// NewTracker returns a tracker without connections.
func NewTracker(cfg TrackerConfig, deps TrackerDeps) *Tracker {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Crowded == nil {
		deps.Crowded = func() bool { return false }
	}
	if deps.InGrace == nil {
		deps.InGrace = func(int) {}
	}
	if deps.ReadFailed == nil {
		deps.ReadFailed = func() {}
	}
	return &Tracker{cfg: cfg, deps: deps, timing: cfg.Timing, live: map[int64]connection{}, left: map[int64]connection{},
		wake: make(chan struct{}, 1), odd: map[int64]uint64{}}
}

// Set changes the timing; graces that run are measured by it.
func (t *Tracker) Set(timing Timing) {
	t.mu.Lock()
	t.timing = timing
	t.mu.Unlock()
	t.nudge()
}

// Timing returns the effective timing.
func (t *Tracker) Timing() Timing {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.timing
}

// Arrived asserts that a device is connected and returns the session number of the connection, 0 when the tracker is silent.
// The number is the clock in nanoseconds, but above the stored one and above every one given before, so that a clock set back
// lowers nothing.
func (t *Tracker) Arrived(ctx context.Context, b model.Binding) (session uint64) {
	return t.ArrivedBy(ctx, b, "connected")
}

// ArrivedBy is Arrived with the reason of the transition.
func (t *Tracker) ArrivedBy(ctx context.Context, b model.Binding, reason string) (session uint64) {
	if t.cfg.Silent {
		return 0
	}
	stored := t.stored(ctx, b.DeviceID)
	now := t.deps.Now()
	t.mu.Lock()
	session = max(stored+1, t.last+1, nanos(now))
	t.last = session
	delete(t.left, b.DeviceID)
	t.live[b.DeviceID] = connection{binding: b, session: session, open: t.live[b.DeviceID].open + 1}
	t.countGrace()
	t.mu.Unlock()
	t.emit(ctx, b, model.Connected, reason, session, now)
	return session
}

// Resumed takes note that a device is connected in the session that is stored, which goes on, such as after a restart: it is no transition. A
// device whose stored session cannot be read, or that has none, arrives.
func (t *Tracker) Resumed(ctx context.Context, b model.Binding, reason string) (session uint64) {
	if session = t.stored(ctx, b.DeviceID); session == 0 || t.cfg.Silent {
		return t.ArrivedBy(ctx, b, reason)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = max(t.last, session)
	delete(t.left, b.DeviceID)
	t.live[b.DeviceID] = connection{binding: b, session: session, open: t.live[b.DeviceID].open + 1}
	t.countGrace()
	return session
}

// Restored notes a connection that outlived a restart of Weir, with the session number that Arrived gave it before: nothing is asserted.
func (t *Tracker) Restored(b model.Binding, session uint64) {
	if t.cfg.Silent || session == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = max(t.last, session)
	delete(t.left, b.DeviceID)
	t.live[b.DeviceID] = connection{binding: b, session: session, open: 1}
}

// stored is the stored session number of a device. When it cannot be read the clock alone is right unless it was set back; the
// check repairs the rest.
func (t *Tracker) stored(ctx context.Context, device int64) uint64 {
	if t.deps.Store == nil {
		return 0
	}
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	session, err := t.deps.Store.PresenceSession(reading, device)
	if err != nil && ctx.Err() == nil {
		t.readFailed("reading a presence session failed", err)
	}
	return session
}

func (t *Tracker) readFailed(what string, err error) {
	t.deps.ReadFailed()
	t.deps.Logger.Warn(what, "source", t.cfg.Source, "error", err)
}

func nanos(at time.Time) uint64 { return uint64(max(at.UnixNano(), 0)) }

// Left reports, once, the end of the connection that Arrived gave the session number. While another connection of the device is
// open it is no transition: only the last end is, and it bears the number of the latest connection.
func (t *Tracker) Left(ctx context.Context, b model.Binding, session uint64, reason string, by By) {
	t.LeftAt(ctx, b, session, reason, by, t.deps.Now())
}

// LeftAt is Left of a connection that ended at a time before.
func (t *Tracker) LeftAt(ctx context.Context, b model.Binding, session uint64, reason string, by By, now time.Time) {
	if t.cfg.Silent || session == 0 {
		return
	}
	t.mu.Lock()
	c := t.live[b.DeviceID]
	if c.open--; c.open > 0 {
		t.live[b.DeviceID] = c
	}
	if c.open != 0 {
		t.mu.Unlock()
		return
	}
	delete(t.live, b.DeviceID)
	if by == ByWeir && len(t.left) < t.cfg.MaxGraces() {
		t.left[b.DeviceID] = connection{binding: b, session: c.session, ended: now}
	}
	t.countGrace()
	t.mu.Unlock()
	switch by {
	case ByDevice:
		t.emit(ctx, b, model.Disconnected, reason, c.session, now)
	case ByWeir:
		t.nudge()
	}
}

func (t *Tracker) nudge() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *Tracker) countGrace() { t.deps.InGrace(len(t.left)) }

func (t *Tracker) emit(ctx context.Context, b model.Binding, s model.PresenceState, reason string, session uint64, at time.Time) {
	t.deps.Emit(ctx, b, model.Presence{State: s, Reason: reason, Session: session, Occurred: model.NanosOf(at)})
}

// Run ends graces and compares what is stored with what is connected, until ctx ends. It always returns nil.
func (t *Tracker) Run(ctx context.Context) error {
	if t.cfg.Silent {
		t.demote(ctx)
		<-ctx.Done()
		return nil
	}
	if !t.restart(ctx) {
		return nil
	}
	every := t.Timing().Check
	check := time.NewTicker(every)
	defer check.Stop()
	for {
		if now := t.Timing().Check; now != every {
			every = now
			check.Reset(every)
		}
		grace := time.NewTimer(t.nextGrace())
		select {
		case <-ctx.Done():
			grace.Stop()
			return nil
		case <-t.wake:
		case <-grace.C:
			t.endGraces(ctx)
		case <-check.C:
			t.check(ctx)
		}
		grace.Stop()
	}
}

// restart gives every device that was connected when Weir stopped its grace, longer while connections queue but not for ever,
// and then disconnects those that have not returned. It returns false when ctx ended.
func (t *Tracker) restart(ctx context.Context) bool {
	grace, started := t.Timing().Grace, nanos(t.deps.Now())
	if !sleep(ctx, grace) {
		return false
	}
	for range maxCrowded {
		if !t.deps.Crowded() {
			break
		}
		if !sleep(ctx, grace/10) {
			return false
		}
	}
	return t.scan(ctx, func(d Asserted) bool {
		if !d.Connected || t.isLive(d.Binding.DeviceID) || d.Session >= started {
			return true
		}
		return t.disconnect(ctx, &d)
	})
}

// disconnect ends the grace of one device.
func (t *Tracker) disconnect(ctx context.Context, d *Asserted) bool {
	t.deps.Emit(ctx, d.Binding, d.transition(model.Disconnected, ReasonGraceOver, t.deps.Now()))
	return sleep(ctx, pace)
}

func (t *Tracker) isLive(device int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.live[device]
	return ok
}

func (t *Tracker) inGrace(device int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.left[device]
	return ok
}

// nextGrace is how long the earliest grace still lasts.
func (t *Tracker) nextGrace() time.Duration {
	now := t.deps.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	next := time.Hour
	for _, c := range t.left {
		next = min(next, c.ended.Add(t.timing.Grace).Sub(now))
	}
	return max(next, 0)
}

// endGraces disconnects the devices whose grace is over.
func (t *Tracker) endGraces(ctx context.Context) {
	for {
		c, ok := t.overdue()
		if !ok || !t.disconnect(ctx, &Asserted{Binding: c.binding, Session: c.session}) {
			return
		}
	}
}

func (t *Tracker) overdue() (connection, bool) {
	now := t.deps.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, c := range t.left {
		if now.Sub(c.ended) >= t.timing.Grace {
			delete(t.left, id)
			t.countGrace()
			return c, true
		}
	}
	return connection{}, false
}

// demote returns what the source asserted before to inference: presence was switched off.
func (t *Tracker) demote(ctx context.Context) {
	t.scan(ctx, func(d Asserted) bool {
		t.deps.Emit(ctx, d.Binding, d.transition(model.Demoted, ReasonSilent, t.deps.Now()))
		return sleep(ctx, pace)
	})
}

// scan visits the devices that this source asserted, page by page so that no read transaction stays open, until visit returns
// false. A page that cannot be read is read again later. It returns false when ctx ended.
func (t *Tracker) scan(ctx context.Context, visit func(Asserted) bool) bool {
	if t.deps.Store == nil {
		return true
	}
	for after := int64(0); ; {
		page, err := t.deps.Store.AssertedPresence(ctx, t.cfg.Source, after, scanPage)
		if err != nil {
			t.readFailed("reading stored presence failed", err)
			if !sleep(ctx, readRetry) {
				return false
			}
			continue
		}
		for _, d := range page {
			after = max(after, d.Binding.DeviceID)
			if !visit(d) {
				return ctx.Err() == nil
			}
		}
		if len(page) < scanPage {
			return true
		}
	}
}

// check compares both ways: a device stored as connected that is not, and one that is connected and not stored so, because a
// transition was refused. It repairs only what two consecutive checks have found: the applier may lag.
func (t *Tracker) check(ctx context.Context) {
	odd := map[int64]uint64{}
	again := func(device int64, session uint64) bool {
		was, seen := t.odd[device]
		odd[device] = session
		return seen && was == session
	}
	stored := map[int64]bool{}
	complete := t.scan(ctx, func(d Asserted) bool {
		id := d.Binding.DeviceID
		if !d.Connected {
			return true
		}
		stored[id] = true
		if t.isLive(id) || t.inGrace(id) || !again(id, d.Session) {
			return true
		}
		return t.disconnect(ctx, &d)
	})
	if !complete {
		return
	}
	for _, c := range t.unstored(stored) {
		if !again(c.binding.DeviceID, c.session) {
			continue
		}
		t.emit(ctx, c.binding, model.Connected, ReasonRepaired, c.session, t.deps.Now())
		if !sleep(ctx, pace) {
			return
		}
	}
	t.odd = odd
}

// unstored are the connections whose devices are not in stored.
func (t *Tracker) unstored(stored map[int64]bool) []connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	var missing []connection
	for id, c := range t.live {
		if !stored[id] {
			missing = append(missing, c)
		}
	}
	return missing
}

// sleep waits for d and reports whether ctx did not end before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
