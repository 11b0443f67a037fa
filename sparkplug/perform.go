package sparkplug

import (
	"context"
	"errors"
	"time"

	"weir/ingest"
	"weir/internal/mqttclient"
	"weir/model"
	"weir/presence"
	"weir/registry"
	"weir/store"
	"weir/store/births"
)

// work judges what is in the queue and lets time pass, until the link has ended and the queue is empty. life ends when the host is closed.
func (h *host) work(ctx, life context.Context) {
	h.restore(ctx)
	tick := time.NewTicker(tickEach)
	defer tick.Stop()
	var last time.Time // of a save
	for {
		select {
		case <-h.linkEnded:
			h.takeAll(ctx)
			h.inFlight.Wait()
			h.takeSaved(true)
			h.save(ctx)
			h.takeSaved(true)
			h.measure()
			return
		case <-h.queue.more:
			h.takeAll(ctx)
		case <-tick.C:
			h.tick(ctx)
		}
		h.takeSaved(false)
		if now := time.Now(); now.Sub(last) >= saveEach { // the machine's time, so that a step of the clock changes nothing
			last = now
			h.save(ctx)
			h.measure()
		}
	}
}

func (h *host) takeAll(ctx context.Context) {
	for _, i := range h.queue.take() {
		now := h.t.deps.Now()
		switch i.turn {
		case turnUp:
			h.perform(ctx, h.m.LinkUp(now))
		case turnDown:
			h.perform(ctx, h.m.LinkDown())
		default:
			h.perform(ctx, h.m.Message(i.Topic, i.body, now))
		}
	}
}

// tick lets time pass, and asks nodes for their births.
func (h *host) tick(ctx context.Context) {
	now := h.t.deps.Now()
	h.dropMu.Lock()
	dropped, recheck := h.dropped, h.recheck
	if len(dropped) > 0 {
		h.dropped = map[string]bool{}
	}
	h.recheck = nil
	h.dropMu.Unlock()
	for node := range dropped {
		h.m.Dropped(node, now)
	}
	for _, f := range recheck {
		h.forgetRemoved(ctx, f)
	}
	h.mu.Lock()
	session := h.session
	h.mu.Unlock()
	if session == nil || h.stopping.Load() {
		return
	}
	h.perform(ctx, h.m.Tick(now))
	for _, node := range h.m.Rebirths(now, h.t.deps.Accepting() && !h.t.deps.Intake.TenantFull(h.cfg.Tenant)) {
		h.askRebirth(session, node, now)
	}
}

// askRebirth sends the request for a rebirth at QoS 0, unretained (tck-id-payloads-ncmd-qos, -retain).
func (h *host) askRebirth(s *mqttclient.Session, node string, now time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
	defer cancel()
	err := s.Publish(ctx, mqttclient.Message{Topic: commandTopic(node), Payload: appendRebirth(nil, uint64(max(now.UnixMilli(), 0)))})
	if err != nil {
		return // the session ends, or it is asked again
	}
	h.t.metrics.rebirths.Inc()
	h.log.Debug("a node is asked for its births", "node", node)
}

// perform does what follows from a message or from time.
func (h *host) perform(ctx context.Context, effects []Effect) {
	for i := range effects {
		e := &effects[i]
		switch e.What {
		case Online:
			h.online(ctx, e)
		case Offline:
			h.offlineDevice(ctx, e)
		case Readings:
			if b, ok := h.present(ctx, e); ok {
				h.readings(ctx, e, b)
			}
		case Attributes:
			if b, ok := h.present(ctx, e); ok {
				h.attributes(ctx, e, b)
			}
		case NoBirth:
			h.t.metrics.noBirth.Inc()
			h.deadLetter(ctx, e, ingest.ReasonNoBirth)
		case Malformed:
			h.deadLetter(ctx, e, "")
		}
	}
}

// attempts at what needs the store, the time for each, and the pause between them.
const (
	storeAttempts = 3
	storeTimeout  = 3 * time.Second
	storePause    = 500 * time.Millisecond
)

// device finds the device of a node or device, or makes it. A message whose device there is not is dropped and counted.
func (h *host) device(ctx context.Context, e *Effect, mayMake bool) (b model.Binding, ok bool) {
	id, enabled, known := h.t.deps.Tenant(h.cfg.Tenant)
	switch {
	case !known:
		h.loseMessage(e, ingest.ReasonUnknownTenant)
		return b, false
	case !enabled:
		h.loseMessage(e, ingest.ReasonDisabledTenant)
		return b, false
	}
	a := registry.Adoption{Tenant: h.cfg.Tenant, TenantID: id, ExternalID: e.ExternalID(), Make: mayMake && h.cfg.AutoRegister, Prefix: "sp", DeviceType: h.cfg.DeviceType}
	for attempt := 1; ; attempt++ {
		b, made, err := h.adopt(ctx, a)
		switch {
		case err == nil:
			if made {
				h.made.Add(1)
				h.t.metrics.made.Inc()
			}
			return b, true
		case errors.Is(err, registry.ErrNotAdopted):
			h.unknownDevice(e, err)
			return b, false
		case ctx.Err() != nil:
			return b, false
		case attempt == storeAttempts:
			h.t.metrics.failures.Inc()
			h.log.Error("the device of a message cannot be looked up: the message is dropped", "external_id", a.ExternalID, "error", err)
			h.loseMessage(e, ingest.ReasonUnavailable)
			return b, false
		}
		time.Sleep(storePause)
	}
}

func (h *host) adopt(ctx context.Context, a registry.Adoption) (model.Binding, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return h.t.deps.Adopt(ctx, a)
}

// loseMessage counts a message that is dropped before it is an arrival.
func (h *host) loseMessage(e *Effect, reason ingest.Reason) {
	if e.What != Readings && e.What != Attributes {
		return
	}
	h.t.deps.Intake.Drop(h.t.deps.Intake.Received(ingest.TransportSparkplug, h.id, h.cfg.Tenant, len(e.Body)), reason)
	h.mu.Lock()
	h.lost[string(reason)]++
	h.mu.Unlock()
}

// unknownDevice drops a message whose device there is not, and reports each external id once.
func (h *host) unknownDevice(e *Effect, err error) {
	if e.What == Readings || e.What == Attributes {
		h.t.metrics.unknown.Inc()
	}
	h.loseMessage(e, ingest.ReasonUnknownDevice)
	id := e.ExternalID()
	if h.told[id] || len(h.told) >= maxUnknown {
		return
	}
	h.told[id] = true
	h.mu.Lock()
	if len(h.unknown) < shownUnknown {
		h.unknown = append(h.unknown, id)
	}
	h.mu.Unlock()
	h.log.Warn("no device has the external id of a node or device: what it sends is dropped; make the device, or set auto_register", "external_id", id, "error", err)
}

// online asserts that a node or device is connected.
func (h *host) online(ctx context.Context, e *Effect) {
	b, ok := h.device(ctx, e, true)
	if !ok {
		return
	}
	h.arrive(ctx, e.ExternalID(), b, e.Reason)
}

// arrive begins a session of a device. One that it was in ends without a transition: the next has the higher number.
func (h *host) arrive(ctx context.Context, id string, b model.Binding, reason string) {
	if was, there := h.bound[id]; there {
		h.tracker.Left(ctx, was.binding, was.session, "", presence.ByLink)
	}
	h.bound[id] = bound{b, h.tracker.ArrivedBy(ctx, b, reason)}
}

// offlineDevice asserts that a node or device is not connected any more.
func (h *host) offlineDevice(ctx context.Context, e *Effect) {
	id := e.ExternalID()
	was, there := h.bound[id]
	if !there {
		return
	}
	delete(h.bound, id)
	at := e.At
	if at.UnixNano() <= int64(was.session) { // its clock is behind: a death comes after the birth
		at = h.t.deps.Now()
	}
	h.tracker.LeftAt(ctx, was.binding, was.session, e.Reason, presence.ByDevice, at)
}

// present finds the device of a message. One that is another device than before, or that was not there when it was born, is asserted now.
func (h *host) present(ctx context.Context, e *Effect) (model.Binding, bool) {
	b, ok := h.device(ctx, e, true)
	if !ok {
		return b, false
	}
	id := e.ExternalID()
	if was, there := h.bound[id]; (!there || was.binding.DeviceID != b.DeviceID) && h.m.IsOnline(e.Node, e.Device) {
		reason := ReasonNBirth
		if e.Device != "" {
			reason = ReasonDBirth
		}
		h.arrive(ctx, id, b, reason)
	}
	return b, true
}

// forgetRemoved forgets devices that a change has removed.
func (h *host) forgetRemoved(ctx context.Context, f func(model.Binding) bool) {
	for id, was := range h.bound {
		if !f(was.binding) {
			continue
		}
		now, _, err := h.adopt(ctx, registry.Adoption{Tenant: was.binding.Tenant, TenantID: was.binding.TenantID, ExternalID: id})
		if errors.Is(err, registry.ErrNotAdopted) || err == nil && now.DeviceID != was.binding.DeviceID {
			h.tracker.Left(ctx, was.binding, was.session, "", presence.ByLink)
			delete(h.bound, id)
		}
	}
}

// arrival is a message for the intake. The topic vouches for its device, and its sender is not told what becomes of it.
func (h *host) arrival(e *Effect, b *model.Binding) *ingest.Arrival {
	return &ingest.Arrival{Transport: ingest.TransportSparkplug, Source: h.id, Tenant: h.cfg.Tenant, Topic: b.Device, Conn: b, CannotRefuse: true, Partial: true, Body: e.Body}
}

func (h *host) readings(ctx context.Context, e *Effect, b model.Binding) {
	for i, m := range messages(e.Samples) {
		a := h.arrival(e, &b)
		if a.Message = m; i > 0 {
			a.Body = nil
		}
		h.accept(ctx, a, e.Node)
	}
}

func (h *host) attributes(ctx context.Context, e *Effect, b model.Binding) {
	for _, r := range reports(e.Texts) {
		a := h.arrival(e, &b)
		a.Report = r
		h.accept(ctx, a, "")
	}
}

// deadLetter hands a message to the log that becomes one.
func (h *host) deadLetter(ctx context.Context, e *Effect, reason ingest.Reason) {
	a := &ingest.Arrival{Transport: ingest.TransportSparkplug, Source: h.id, Tenant: h.cfg.Tenant, CannotRefuse: true, Body: e.Body, FaultReason: reason,
		Fault: e.Kind.String() + " of " + e.ExternalID() + ": " + e.Reason}
	if id, _, known := h.t.deps.Tenant(h.cfg.Tenant); known {
		if b, _, err := h.adopt(ctx, registry.Adoption{Tenant: h.cfg.Tenant, TenantID: id, ExternalID: e.ExternalID()}); err == nil {
			a.Topic, a.Conn = b.Device, &b
		}
	}
	h.accept(ctx, a, "")
}

// accept hands a message over. A node whose readings were dropped owes its births: they bring the values again.
func (h *host) accept(ctx context.Context, a *ingest.Arrival, node string) {
	h.inFlight.Add(1)
	h.t.deps.Intake.Accept(ctx, a, func(answer ingest.Answer) {
		defer h.inFlight.Done()
		if answer.Outcome == ingest.Stored {
			return
		}
		if answer.Reason == ingest.ReasonUnavailable {
			h.t.metrics.failures.Inc()
		}
		h.mu.Lock()
		h.lost[string(answer.Reason)]++
		h.mu.Unlock()
		if node != "" {
			h.dropMu.Lock()
			h.dropped[node] = true
			h.dropMu.Unlock()
		}
	})
}

// measure sets the gauges of all sources.
func (h *host) measure() {
	online, offline, owing, duplicates := h.m.Nodes()
	h.t.metrics.take(h.m.TakeCounts())
	f := figures{online: online, offline: offline, owing: owing, duplicates: duplicates, held: h.m.HeldBytes(), queued: h.queue.len(), denied: h.isFlag(&h.denied), refused: h.isFlag(&h.refused)}
	var twice []string
	if duplicates > 0 {
		twice = h.m.Duplicates(shownDuplicates)
	}
	h.mu.Lock()
	h.duplicates = twice
	f.up, f.received, f.reconnects, f.last = h.state == ingest.SourceUp, h.received.Load(), max(h.ups-1, 0), h.lastSeen
	h.mu.Unlock()
	h.t.gauges.set(h, f)
}

func (h *host) isFlag(flag *bool) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if *flag {
		return 1
	}
	return 0
}

// saved is what became of rows that were written.
type saved struct {
	changed []Row
	gone    []string
	err     error
}

// save writes the rows that have changed, in the background.
func (h *host) save(ctx context.Context) {
	if h.saved != nil || h.t.deps.Store == nil {
		return
	}
	changed, gone := h.m.TakeRows()
	if len(changed)+len(gone) == 0 {
		return
	}
	done := make(chan saved, 1)
	h.saved = done
	go func() {
		done <- saved{changed, gone, h.write(context.WithoutCancel(ctx), changed, gone)}
	}()
}

// rowsPerWrite bounds how long one function holds the writer.
const rowsPerWrite = 200

func (h *host) write(ctx context.Context, changed []Row, gone []string) error {
	for len(changed)+len(gone) > 0 {
		rows := changed[:min(len(changed), rowsPerWrite)]
		names := gone[:min(len(gone), rowsPerWrite)]
		err := h.t.deps.Store.Write(ctx, store.Results, func(tx store.Tx) error {
			for i := range rows {
				if err := births.Put(tx, h.cfg.Tenant, h.rows, rowOf(&rows[i])); err != nil {
					return err
				}
			}
			for _, name := range names {
				if err := births.Remove(tx, h.cfg.Tenant, h.rows, name); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		changed, gone = changed[len(rows):], gone[len(names):]
	}
	return nil
}

func rowOf(r *Row) *births.Node {
	return &births.Node{Node: r.Node, Online: r.Online, Synced: r.Synced, BdSeq: r.BdSeq, HasBdSeq: r.HasBdSeq, Born: r.Born, Next: r.Next, Seen: model.MicrosOf(r.Seen), Births: r.Births}
}

// takeSaved takes note of what became of a write; wait says that it is waited for.
func (h *host) takeSaved(wait bool) {
	if h.saved == nil {
		return
	}
	var s saved
	if wait {
		s = <-h.saved
	} else {
		select {
		case s = <-h.saved:
		default:
			return
		}
	}
	h.saved = nil
	if s.err != nil {
		h.t.metrics.rowFailures.Inc()
		h.log.Warn("what is known of nodes could not be stored; it is tried again", "error", s.err)
		h.m.Unwritten(s.changed, s.gone)
	}
}

// restore reads the rows of the source, and goes on with the sessions of the devices that were online.
func (h *host) restore(ctx context.Context) {
	if h.t.deps.Store == nil {
		return
	}
	const page = 200
	for after := ""; ; {
		var rows []births.Node
		err := h.t.deps.Store.Read(ctx, func(tx store.Tx) (err error) {
			rows, err = births.List(tx, h.cfg.Tenant, h.rows, after, page)
			return err
		})
		if err != nil {
			if ctx.Err() == nil {
				h.log.Error("what is known of nodes cannot be read: they are asked for their births", "error", err)
			}
			break
		}
		for i := range rows {
			r := &rows[i]
			after = r.Node
			if err := h.m.Restore(&Row{Node: r.Node, Online: r.Online, Synced: r.Synced, BdSeq: r.BdSeq, HasBdSeq: r.HasBdSeq, Born: r.Born, Next: r.Next, Seen: r.Seen.Time(), Births: r.Births}); err != nil {
				h.log.Warn("what is known of a node cannot be read: it is asked for its births", "node", r.Node, "error", err)
			}
		}
		if len(rows) < page {
			break
		}
	}
	h.m.Present(func(node, device string) {
		e := &Effect{What: Online, Node: node, Device: device}
		if b, ok := h.device(ctx, e, false); ok {
			h.bound[e.ExternalID()] = bound{b, h.tracker.Resumed(ctx, b, ReasonNBirth)}
		}
	})
	if err := h.assume(ctx); err != nil && ctx.Err() == nil {
		h.log.Error("the devices that are asserted to be present cannot be read", "error", err)
	}
}

// assume goes on with devices that are asserted to be present and that no row names: the process was killed before it was written.
func (h *host) assume(ctx context.Context) error {
	if h.t.deps.Presence == nil || h.t.deps.ExternalID == nil || !h.alone {
		return nil
	}
	known := map[int64]bool{}
	for _, b := range h.bound {
		known[b.binding.DeviceID] = true
	}
	const page = 500
	for after := int64(0); ; {
		all, err := h.t.deps.Presence.AssertedPresence(ctx, h.id, after, page)
		if err != nil {
			return err
		}
		for _, d := range all {
			after = max(after, d.Binding.DeviceID)
			if !d.Connected || known[d.Binding.DeviceID] || d.Binding.Tenant != h.cfg.Tenant {
				continue
			}
			id, err := h.t.deps.ExternalID(ctx, d.Binding)
			if err != nil {
				return err
			}
			if h.m.Assume(id, h.t.deps.Now()); id != "" {
				h.bound[id] = bound{d.Binding, h.tracker.Resumed(ctx, d.Binding, ReasonNBirth)}
			}
		}
		if len(all) < page {
			return nil
		}
	}
}
