package broker

import (
	"context"
	"sync"
	"time"

	"weir/ingest"
	"weir/model"
)

// PresenceStore is what the door reads of stored presence.
type PresenceStore interface {
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
}

const (
	reasonRestart  = "restart-timeout"
	reasonOff      = "broker-presence-off"
	reasonRepaired = "reconciled"

	presencePage    = 500
	presencePace    = 40 * time.Millisecond // 25 a second
	presenceTimeout = 10 * time.Second
	presenceRetry   = 5 * time.Second
)

// keeper turns connections into presence. What a device does becomes a transition at once. What Weir does to it (its own
// stop, the end of a session, a credential change, a slow reader) becomes none: the device has a grace to return, and only
// when that passes is it disconnected.
type keeper struct {
	b     *Broker
	store PresenceStore

	mu     sync.Mutex
	last   uint64             // the highest session number given
	live   map[int64]presence // by device id
	left   map[int64]presence // devices in their grace
	wake   chan struct{}      // a hint that left has an entry
	oddOut map[int64]uint64   // what the last check found out of step, with the session number found
}

// presence is a device's connection, or when the last one ended.
type presence struct {
	binding model.Binding
	session uint64
	since   time.Time
}

func newKeeper(b *Broker) *keeper {
	return &keeper{b: b, store: b.deps.Presence, live: map[int64]presence{}, left: map[int64]presence{},
		wake: make(chan struct{}, 1), oddOut: map[int64]uint64{}}
}

func (k *keeper) silent(s *session) bool { return k.b.cfg.SilentPresence || s.suffixed }

// arrived asserts a connection. The session number is the wall clock in nanoseconds, but above the stored one and above
// every one given before, so that a clock set back lowers nothing.
func (k *keeper) arrived(s *session) {
	if k.silent(s) {
		return
	}
	var stored uint64
	if k.store != nil {
		ctx, cancel := context.WithTimeout(s.ctx, presenceTimeout)
		var err error
		stored, err = k.store.PresenceSession(ctx, s.binding.DeviceID)
		cancel()
		if err != nil && s.ctx.Err() == nil { // the clock alone is right unless it was set back; the check repairs the rest
			k.b.metrics.presenceUnknown.Inc()
			k.b.log.Warn("reading a presence session failed", "error", err)
		}
	}
	now := k.b.deps.Now()
	k.mu.Lock()
	s.number = max(stored+1, k.last+1, uint64(max(now.UnixNano(), 0)))
	k.last = s.number
	delete(k.left, s.binding.DeviceID)
	k.live[s.binding.DeviceID] = presence{binding: s.binding, session: s.number, since: s.since}
	k.countGrace()
	k.mu.Unlock()
	k.emit(s.ctx, s.binding, model.Presence{State: model.Connected, Reason: "connected", Session: s.number, Occurred: model.NanosOf(now)})
}

// gone says how the connection ended.
func (k *keeper) gone(s *session, c *cause) {
	if k.silent(s) || s.number == 0 {
		return
	}
	id := s.binding.DeviceID
	k.mu.Lock()
	if k.live[id].session != s.number { // taken over, and the next one has arrived already
		k.mu.Unlock()
		return
	}
	delete(k.live, id)
	if c.ours || c.kind == takenOver { // a takeover that fails to arrive must not leave the device connected for ever
		if len(k.left) < k.b.settings.Load().MaxConnections {
			k.left[id] = presence{binding: s.binding, session: s.number, since: time.Now()}
		}
		k.countGrace()
		k.mu.Unlock()
		k.nudge()
		return
	}
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(k.b.closing, presenceTimeout)
	defer cancel()
	k.emit(ctx, s.binding, model.Presence{State: model.Disconnected, Reason: c.word, Session: s.number,
		Occurred: model.NanosOf(k.b.deps.Now())})
}

func (k *keeper) nudge() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *keeper) countGrace() { k.b.metrics.grace.Set(float64(len(k.left))) }

func (k *keeper) emit(ctx context.Context, b model.Binding, p model.Presence) {
	k.b.deps.Gate.Presence(ctx, ingest.TransportMQTT, k.b.cfg.Source, b, p, func(a ingest.Answer) {
		k.b.metrics.presence.WithLabelValues(p.State.String(), fateWord(a.Outcome)).Inc()
	})
}

func fateWord(f ingest.Outcome) string {
	switch f {
	case ingest.Stored:
		return "stored"
	case ingest.Refused:
		return "refused"
	case ingest.Dropped:
		return "dropped"
	}
	return "withheld"
}

// run ends graces and compares what is stored with what is connected, until ctx ends.
func (k *keeper) run(ctx context.Context) error {
	if k.b.cfg.SilentPresence {
		k.demote(ctx)
		<-ctx.Done()
		return nil
	}
	if !k.restart(ctx) {
		return nil
	}
	every := k.b.settings.Load().ReconcileInterval
	check := time.NewTicker(every)
	defer check.Stop()
	for {
		if now := k.b.settings.Load().ReconcileInterval; now != every {
			every = now
			check.Reset(every)
		}
		grace := time.NewTimer(k.nextGrace())
		select {
		case <-ctx.Done():
			grace.Stop()
			return nil
		case <-k.wake:
		case <-grace.C:
			k.endGraces(ctx)
		case <-check.C:
			k.reconcile(ctx)
		}
		grace.Stop()
	}
}

// restart gives every device that was connected when Weir stopped its grace, longer while connections queue at the door
// but not for ever, and then disconnects who has not returned. It returns false when ctx ended.
func (k *keeper) restart(ctx context.Context) bool {
	grace := k.b.settings.Load().RestartGrace
	started := k.b.deps.Now()
	if !sleep(ctx, k.b.closing, grace) {
		return false
	}
	for range 30 {
		if !k.b.lobby.crowded() {
			break
		}
		if !sleep(ctx, k.b.closing, grace/10) {
			return false
		}
	}
	return k.scan(ctx, func(d Asserted) bool {
		if !d.Connected || k.isLive(d.Binding.DeviceID) || d.Session >= uint64(max(started.UnixNano(), 0)) {
			return true
		}
		return k.disconnect(ctx, d.Binding, d.Session)
	})
}

// disconnect ends the grace of one device.
func (k *keeper) disconnect(ctx context.Context, b model.Binding, session uint64) bool {
	k.emit(ctx, b, model.Presence{State: model.Disconnected, Reason: reasonRestart, Session: session,
		Occurred: model.NanosOf(k.b.deps.Now())})
	return sleep(ctx, k.b.closing, presencePace)
}

func (k *keeper) isLive(device int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.live[device]
	return ok
}

// nextGrace is how long the earliest grace still lasts.
func (k *keeper) nextGrace() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := time.Hour
	for _, p := range k.left {
		next = min(next, time.Until(p.since.Add(k.b.settings.Load().RestartGrace)))
	}
	return max(next, 0)
}

// endGraces disconnects the devices that Weir cut off and that have not returned.
func (k *keeper) endGraces(ctx context.Context) {
	for {
		p, ok := k.overdue()
		if !ok || !k.disconnect(ctx, p.binding, p.session) {
			return
		}
	}
}

func (k *keeper) overdue() (presence, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, p := range k.left {
		if time.Since(p.since) >= k.b.settings.Load().RestartGrace {
			delete(k.left, id)
			k.countGrace()
			return p, true
		}
	}
	return presence{}, false
}

// demote returns what the broker asserted before to inference: presence was switched off.
func (k *keeper) demote(ctx context.Context) {
	if k.store == nil {
		return
	}
	k.scan(ctx, func(d Asserted) bool {
		k.emit(ctx, d.Binding, model.Presence{State: model.Demoted, Reason: reasonOff, Session: d.Session,
			Occurred: model.NanosOf(k.b.deps.Now())})
		return sleep(ctx, k.b.closing, presencePace)
	})
}

// scan visits the devices that this source asserted, page by page so that no reader is held, until visit returns false.
// A page that cannot be read is read again later. It returns false when ctx ended.
func (k *keeper) scan(ctx context.Context, visit func(Asserted) bool) bool {
	if k.store == nil {
		return true
	}
	for after := int64(0); ; {
		page, err := k.store.AssertedPresence(ctx, k.b.cfg.Source, after, presencePage)
		if err != nil {
			k.b.metrics.presenceUnknown.Inc()
			k.b.log.Warn("reading stored presence failed", "error", err)
			if !sleep(ctx, k.b.closing, presenceRetry) {
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
		if len(page) < presencePage {
			return true
		}
	}
}

// reconcile repairs both ways: a device stored as connected that is not, and one that is connected and not stored so,
// because a transition was refused. It repairs only what two checks in a row have found: the applier may be behind.
func (k *keeper) reconcile(ctx context.Context) {
	odd := map[int64]uint64{}
	again := func(device int64, session uint64) bool {
		was, seen := k.oddOut[device]
		odd[device] = session
		return seen && was == session
	}
	stored := map[int64]bool{}
	complete := k.scan(ctx, func(d Asserted) bool {
		id := d.Binding.DeviceID
		if !d.Connected {
			return true
		}
		stored[id] = true
		if k.isLive(id) || k.inGrace(id) || !again(id, d.Session) {
			return true
		}
		return k.disconnect(ctx, d.Binding, d.Session)
	})
	if !complete {
		return
	}
	for _, p := range k.unstored(stored) {
		if !again(p.binding.DeviceID, p.session) {
			continue
		}
		k.emit(ctx, p.binding, model.Presence{State: model.Connected, Reason: reasonRepaired, Session: p.session,
			Occurred: model.NanosOf(k.b.deps.Now())})
		if !sleep(ctx, k.b.closing, presencePace) {
			return
		}
	}
	k.oddOut = odd
}

func (k *keeper) inGrace(device int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.left[device]
	return ok
}

// unstored are the connected devices that are not in stored.
func (k *keeper) unstored(stored map[int64]bool) []presence {
	k.mu.Lock()
	defer k.mu.Unlock()
	var missing []presence
	for id, p := range k.live {
		if !stored[id] {
			missing = append(missing, p)
		}
	}
	return missing
}
