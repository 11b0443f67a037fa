package mqttsource

import (
	"context"
	"errors"
	"hash/maphash"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/ingest"
	"weir/internal/mqttclient"
	"weir/model"
	"weir/presence"
	"weir/registry"
)

// received is a message of the broker on its way.
type received struct {
	*mqttclient.Delivery
	mapping *mapping // nil: none takes the topic
	levels  captured
}

var topicSeed = maphash.MakeSeed()

// receive takes a message from the session, in the order in which they come. It waits while the decoders are busy: the broker is not read then.
// Messages of one topic keep their order, and so do all that assert presence.
func (s *source) receive(d *mqttclient.Delivery) {
	s.metrics.received.WithLabelValues(s.ID).Inc()
	switch {
	case s.ending.Load(): // it stays unacknowledged
		return
	case !s.lease.held():
		s.late()
		return
	}
	now := s.deps.Now()
	s.metrics.last.WithLabelValues(s.ID).Set(float64(now.Unix()))
	s.mu.Lock()
	s.counts.Received++
	s.lastAt = now
	s.mu.Unlock()
	s.metrics.inDecode.WithLabelValues(s.ID).Set(float64(s.inDecode.Add(1)))
	r := &received{Delivery: d}
	r.mapping, r.levels = s.mappings.find(d.Topic)
	q := s.queues[maphash.String(topicSeed, d.Topic)%decodeWorkers]
	if r.mapping != nil && r.mapping.settings.Decode == decodePresence { // a bridge and its devices have an order
		q = s.queues[0]
	}
	select {
	case q <- r:
	case <-d.Session.Done():
		s.inDecode.Add(-1)
	}
}

// work decodes messages one after the other until the queue is closed.
func (s *source) work(ctx context.Context, q chan *received) {
	for r := range q {
		// What a lost session has delivered and nothing has acknowledged comes again.
		switch {
		case !s.lease.held():
			s.late()
		case s.awaitOpen(r) && (r.QoS == 0 || !r.over()):
			s.take(ctx, r)
		}
		s.metrics.inDecode.WithLabelValues(s.ID).Set(float64(s.inDecode.Add(-1)))
	}
}

// late counts a message that is dropped because the source is another node's now. It stays unacknowledged: it comes again if nobody else reads the
// source before this node.
func (s *source) late() {
	s.metrics.notOwner.WithLabelValues(s.ID).Inc()
	s.count(s.dropped, droppedNotOwner)
}

// over reports whether the session of the message has ended.
func (r *received) over() bool {
	select {
	case <-r.Session.Done():
		return true
	default:
		return false
	}
}

// awaitOpen waits while the source has closed all transports: a session that is resumed delivers before its subscription is granted. It reports
// false when the session has ended first.
func (s *source) awaitOpen(r *received) bool {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed == nil {
		return true
	}
	select {
	case <-closed:
		return true
	case <-r.Session.Done():
		return false
	}
}

// take decodes a message and hands it to the intake.
func (s *source) take(ctx context.Context, r *received) {
	if len(s.mappings) == 0 {
		s.takeEvent(ctx, r)
		return
	}
	s.carrier.complete(s, r)
	if s.answers && s.takeResponse(ctx, r) {
		return
	}
	m := r.mapping
	switch {
	case m == nil || m.settings.Decode == decodeIgnore:
		s.ignore(r, ignoredTopic)
	case r.Retained && s.Retained != "keep" && m.settings.Decode != decodePresence:
		s.ignore(r, ignoredRetained)
	default:
		s.takeMapped(ctx, r, m, r.levels)
	}
}

// takeEvent takes a message of the topics of Weir's own broker: {x}/{tenant}/devices/{device}/events.
func (s *source) takeEvent(ctx context.Context, r *received) {
	tenant, device, ok := eventTopic(r.Topic)
	switch {
	case !ok:
		s.ignore(r, ignoredTopic)
	case r.Retained && s.Retained != "keep":
		s.ignore(r, ignoredRetained)
	default:
		s.accept(ctx, r, s.arrival(r, tenant, device))
	}
}

// eventTopic takes tenant and device out of a topic of events.
func eventTopic(topic string) (tenant, device string, ok bool) {
	parts := strings.Split(topic, "/")
	if len(parts) != 5 || parts[2] != "devices" || parts[4] != "events" || !model.ValidToken(parts[1]) || !model.ValidToken(parts[3]) {
		return "", "", false
	}
	return parts[1], parts[3], true
}

// arrival is a message for the intake. The broker is not notified of a refusal, and waits for its acknowledgement while the log has no room.
func (s *source) arrival(r *received, tenant, device string) *ingest.Arrival {
	a := &ingest.Arrival{Transport: s.Name(), Source: s.ID, Tenant: tenant, Topic: device, Body: r.Payload, CannotRefuse: true, CeilingWait: ceilingWait}
	if r.QoS > 0 {
		a.ClientID, a.PacketID, a.Dup, a.HoldFor = s.repeats(r.PacketID), r.PacketID, r.Dup, -1
	}
	return a
}

// repeats is the client by which a message is known that is delivered again. The intake remembers the last 1,024 messages of a client, and a
// broker may deliver more of them again, up to one for each packet identifier: mosquitto 2.0 does not keep to the Receive Maximum when it resumes
// a session, and forgets acknowledgements that it has not read when the connection breaks. So each 1,024 packet identifiers are a client.
func (s *source) repeats(packetID uint16) string {
	return s.clientID + "/" + strconv.Itoa(int(packetID)>>10)
}

// takeMapped takes a message that a mapping translates.
func (s *source) takeMapped(ctx context.Context, r *received, m *mapping, c captured) {
	tenant := m.tenantOf(c)
	id, enabled, known := s.deps.Tenant(tenant)
	switch {
	case !known:
		s.drop(r, tenant, ingest.ReasonUnknownTenant)
		return
	case !enabled:
		s.drop(r, tenant, ingest.ReasonDisabledTenant)
		return
	}
	if m.settings.Decode == decodeEvent {
		if b, ok := s.adopt(ctx, r, tenant, id, m.deviceOf(c)); ok {
			a := s.arrival(r, tenant, b.Device)
			a.Conn = &b
			s.accept(ctx, r, a)
		}
		return
	}
	d, err := m.decode(c, r.Payload)
	if err != nil {
		a := s.arrival(r, tenant, "")
		if device := m.deviceOf(c); model.ValidToken(device) {
			a.Topic = device
		}
		a.Fault = m.place + ": " + err.Error()
		s.accept(ctx, r, a)
		return
	}
	s.takeDecoded(ctx, r, m, d, tenant, id)
}

// takeDecoded hands over what a mapping has made of a message.
func (s *source) takeDecoded(ctx context.Context, r *received, m *mapping, d *decoded, tenant string, tenantID int64) {
	if d.asserts && m.settings.All {
		s.assertAll(ctx, d.presence)
		s.ignore(r, ignoredNoValue)
		return
	}
	messages, report := d.messages(), d.report()
	if len(messages) == 0 && report == nil && !d.asserts {
		s.ignore(r, ignoredNoValue)
		return
	}
	b, ok := s.adopt(ctx, r, tenant, tenantID, d.device)
	if !ok {
		return
	}
	if d.asserts {
		s.assert(ctx, b, d.presence)
		s.ignore(r, ignoredNoValue)
		return
	}
	var all []*ingest.Arrival
	add := func() *ingest.Arrival {
		a := s.arrival(r, tenant, b.Device)
		a.Conn, a.Partial = &b, true
		if len(all) > 0 && a.ClientID != "" { // each part is a message of its own, also when it is delivered again
			a.ClientID += "#" + strconv.Itoa(len(all))
		}
		all = append(all, a)
		return a
	}
	for _, message := range messages {
		add().Message = message
	}
	if report != nil {
		add().Report = report
	}
	s.accept(ctx, r, all...)
}

// adopt finds the device of an external id. ok is false when there is none, and the message is then dropped or left to be delivered again.
func (s *source) adopt(ctx context.Context, r *received, tenant string, tenantID int64, device string) (b model.Binding, ok bool) {
	if device == "" || len(device) > 256 {
		s.drop(r, tenant, ingest.ReasonUnknownDevice)
		return b, false
	}
	b, made, err := s.deps.Adopter.Adopt(ctx, registry.Adoption{Tenant: tenant, TenantID: tenantID, ExternalID: device, ByToken: true, Make: s.AutoRegister, Prefix: "mq",
		DeviceType: s.DeviceType, Max: int64(s.MaxDevices)})
	switch {
	case errors.Is(err, registry.ErrNotAdopted):
		s.noteUnknown(device, err)
		s.drop(r, tenant, ingest.ReasonUnknownDevice)
		return b, false
	case err != nil:
		s.fail(r, "the device cannot be looked up", err)
		return b, false
	}
	s.carrier.heard(s, r.mapping, r.levels, device, b)
	if made {
		s.metrics.made.WithLabelValues(s.ID).Inc()
		s.mu.Lock()
		s.counts.DevicesMade++
		s.mu.Unlock()
	}
	return b, true
}

// accept hands arrivals to the intake, and acknowledges the message once they are all answered.
func (s *source) accept(ctx context.Context, r *received, as ...*ingest.Arrival) {
	s.window <- struct{}{}
	s.metrics.publishing.WithLabelValues(s.ID).Set(float64(len(s.window)))
	if r.QoS > 0 { // a session that is lost delivers again what waits here
		var end context.CancelFunc
		ctx, end = context.WithCancel(ctx)
		defer context.AfterFunc(doneContext{r.Session.Done()}, end)()
		defer end()
	}
	done := func(a ingest.Answer) {
		s.answered(r, a)
		<-s.window
		s.metrics.publishing.WithLabelValues(s.ID).Set(float64(len(s.window)))
	}
	if len(as) == 1 {
		s.deps.Intake.Accept(ctx, as[0], done)
		return
	}
	s.deps.Intake.AcceptAll(ctx, as, func(a ingest.Answer, _ int) { done(a) })
}

// answered acknowledges what is stored or dropped. What is neither stays unacknowledged, and the broker delivers it again in the next session.
func (s *source) answered(r *received, a ingest.Answer) {
	switch a.Outcome {
	case ingest.Stored:
		r.Ack()
	case ingest.Dropped:
		s.count(s.dropped, string(a.Reason))
		s.metrics.dropped.WithLabelValues(s.ID, string(a.Reason)).Inc()
		r.Ack()
	case ingest.Withheld:
		switch {
		case r.over():
		case s.deps.Intake.Suspended() != "":
			go r.Session.Break() // all transports close
		case a.Reason == ingest.ReasonUnavailable: // acknowledgements have an order: what comes later would wait for this one for ever
			s.fail(r, "a message could not be handed to the log", errors.New(string(a.Reason)))
		}
	default:
		s.fail(r, "a message could not be handed to the log", errors.New(string(a.Reason)))
	}
}

// fail counts a message that could not be handed over, and ends the session: the broker delivers it again in the next one, if it keeps sessions.
func (s *source) fail(r *received, what string, err error) {
	s.metrics.failed.WithLabelValues(s.ID).Inc()
	s.deps.Logger.Error(what, "source", s.ID, "error", err)
	go r.Session.Break()
}

// ignore acknowledges a message that is not meant for the source.
func (s *source) ignore(r *received, reason string) {
	s.count(s.ignored, reason)
	s.metrics.ignored.WithLabelValues(s.ID, reason).Inc()
	r.Ack()
}

// drop acknowledges a message that is dropped before the intake sees it, and counts it in the ledger.
func (s *source) drop(r *received, tenant string, reason ingest.Reason) {
	s.deps.Intake.Drop(s.deps.Intake.Received(s.Name(), s.ID, tenant, len(r.Payload)), reason)
	s.count(s.dropped, string(reason))
	s.metrics.dropped.WithLabelValues(s.ID, string(reason)).Inc()
	r.Ack()
}

func (s *source) count(in map[string]int64, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := in[reason]; ok || len(in) < maxReasons {
		in[reason]++
	}
}

// doneContext is a context that ends with a channel.
type doneContext struct{ done <-chan struct{} }

func (doneContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c doneContext) Done() <-chan struct{}     { return c.done }
func (doneContext) Value(any) any               { return nil }
func (c doneContext) Err() error {
	select {
	case <-c.done:
		return context.Canceled
	default:
		return nil
	}
}

// maxPresences bounds the devices whose presence a source asserts.
const maxPresences = 100_000

// presences are the devices that a source has asserted to be connected, and those that all were disconnected with.
type presences struct {
	mu      sync.Mutex
	timing  presence.Timing
	tracker *presence.Tracker // nil: no mapping asserts presence
	live    map[int64]asserted
	gone    map[int64]model.Binding // disconnected together, until they are connected together
}

// begin begins with a new tracker, which knows no device.
func (p *presences) begin(make func(presence.Timing) *presence.Tracker) *presence.Tracker {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tracker, p.live, p.gone = make(p.timing), nil, nil
	return p.tracker
}

func (p *presences) set(timing presence.Timing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timing = timing
	if p.tracker != nil {
		p.tracker.Set(timing)
	}
}

type asserted struct {
	binding model.Binding
	session uint64
}

// assert asserts the presence of a device. What it is already is no transition.
func (s *source) assert(ctx context.Context, b model.Binding, state model.PresenceState) {
	p := &s.presences
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.gone, b.DeviceID)
	s.carrier.asserts(b.DeviceID, state == model.Connected)
	was, live := p.live[b.DeviceID]
	switch {
	case state == model.Connected && !live && len(p.live) < maxPresences:
		if p.live == nil {
			p.live = map[int64]asserted{}
		}
		p.live[b.DeviceID] = asserted{b, p.tracker.Arrived(ctx, b)}
	case state == model.Disconnected && live:
		delete(p.live, b.DeviceID)
		p.tracker.Left(ctx, b, was.session, "availability", presence.ByDevice)
	}
}

// assertAll asserts the presence of all devices that the source has asserted.
func (s *source) assertAll(ctx context.Context, state model.PresenceState) {
	p := &s.presences
	p.mu.Lock()
	var all []model.Binding
	if state == model.Disconnected {
		for _, a := range p.live {
			all = append(all, a.binding)
		}
	} else {
		for _, b := range p.gone {
			all = append(all, b)
		}
	}
	p.mu.Unlock()
	for _, b := range all {
		s.assert(ctx, b, state)
	}
	if state == model.Disconnected {
		p.mu.Lock()
		p.gone = map[int64]model.Binding{}
		for _, b := range all {
			p.gone[b.DeviceID] = b
		}
		p.mu.Unlock()
	}
}
