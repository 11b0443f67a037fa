package mqttsource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/ingest"
	"weir/internal/mqttclient"
	"weir/model"
	"weir/presence"
)

// Bounds of a source.
const (
	decodeWorkers = 5
	decodeQueue   = 20 // of each worker: 100 together
	ceilingWait   = 5 * time.Second
	subscribeWait = 30 * time.Second // no answer within it counts as a refusal
	maxUnknown    = 100              // external ids that are shown
	maxReasons    = 64               // of ignored and dropped messages, that are shown
)

// source is one broker that is read.
type source struct {
	*Transport
	*Source
	place    string // in the configuration
	clientID string
	mappings mappings
	filters  []string
	tracks   bool          // a mapping asserts presence
	ended    chan struct{} // closed when run has returned
	lease    *ownership
	left     bool // the broker may keep a session that another node's reading has made useless; of run alone

	answers  bool          // a mapping has a topic of responses to commands
	room     chan struct{} // holds one for each command that is published; nil: no mapping has commands
	queues   [decodeWorkers]chan *received
	window   chan struct{} // holds one for each message that waits for the log
	inDecode atomic.Int64

	presences presences

	mu       sync.Mutex
	state    ingest.SourceState
	since    time.Time
	failed   string // why it is down
	notes    []string
	owner    string // the node that reads the source, as far as it is known
	sessions int    // that were opened
	session  *mqttclient.Session
	lastAt   time.Time
	counts   ingest.SourceCounts
	ignored  map[string]int64
	dropped  map[string]int64
	unknown  []string
	isKnown  map[string]bool // of unknown
	resume   func()          // ends the suspension of all transports; nil: there is none
	closed   chan struct{}   // closed when that ends; nil: there is none
	ending   atomic.Bool     // nothing more is taken
}

// newSource returns the i-th source.
func (t *Transport) newSource(i int) (*source, error) {
	cfg := &t.cfg.Sources[i]
	s := &source{Transport: t, Source: cfg, place: fmt.Sprintf("external_mqtt.sources[%d]", i), ended: make(chan struct{}), window: make(chan struct{}, t.cfg.PublishWindow),
		clientID: ClientID(t.cfg.InstanceID, cfg.ID, t.cfg.Node), state: ingest.SourceDown, since: t.deps.Now(), ignored: map[string]int64{}, dropped: map[string]int64{}, isKnown: map[string]bool{}}
	var faults []*Fault
	if s.mappings, faults = cfg.compile(s.place); len(faults) > 0 {
		return nil, fmt.Errorf("%s.%w", s.place, faults[0])
	}
	s.filters = cfg.filters(s.mappings)
	for j := range s.queues {
		s.queues[j] = make(chan *received, decodeQueue)
	}
	s.tracks = slices.ContainsFunc(s.mappings, func(m *mapping) bool { return m.settings.Decode == decodePresence })
	s.answers = slices.ContainsFunc(s.mappings, func(m *mapping) bool { return m.commands != nil && m.commands.response != nil })
	s.lease = t.newOwnership(cfg.ID)
	s.presences.timing = t.cfg.Timing
	t.metrics.begin(cfg.ID)
	return s, nil
}

// ClientID is the client identifier of a source at its broker.
func ClientID(instance, source, node string) string {
	return fmt.Sprintf("weir:%s:%s:%s", instance, source, node)
}

// newTracker returns the tracker of the presence that mappings assert.
func (s *source) newTracker(timing presence.Timing) *presence.Tracker {
	return presence.NewTracker(presence.TrackerConfig{Source: s.ID, Timing: timing, MaxGraces: func() int { return maxPresences }},
		presence.TrackerDeps{Store: s.deps.Presence, Now: s.deps.Now, Logger: s.deps.Logger, ReadFailed: s.metrics.presenceUnreadable.WithLabelValues(s.ID).Inc,
			Emit: func(ctx context.Context, b model.Binding, p model.Presence) {
				s.deps.Intake.Presence(ctx, s.Name(), s.ID, b, p, func(a ingest.Answer) {
					if a.Outcome == ingest.Stored {
						s.metrics.presence.WithLabelValues(s.ID).Inc()
					}
				})
			}})
}

// run reads the source while it is this node's, and stands by while it is another's, until ctx ends.
func (s *source) run(ctx context.Context) {
	defer close(s.ended)
	// What was taken is decoded and stored also after ctx has ended.
	workers, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var working sync.WaitGroup
	for _, q := range s.queues {
		working.Go(func() { s.work(workers, q) })
	}
	for s.own(ctx) {
		s.read(ctx)
	}
	s.set(ingest.SourceShut, "")
	s.endSuspension()
	for _, q := range s.queues {
		close(q)
	}
	working.Wait()
	for range cap(s.window) { // what is in the log's hands is answered
		s.window <- struct{}{}
	}
	s.disown(ctx)
}

// own waits until the source is this node's. It returns false when ctx has ended.
func (s *source) own(ctx context.Context) bool {
	for ctx.Err() == nil {
		if why := s.deps.Intake.Suspended(); why != "" && !s.suspends() {
			s.set(ingest.SourceDown, "all transports are closed: "+why)
		} else if ok := s.takeOver(ctx); ok {
			return true
		}
		pause(ctx, leaseLook)
	}
	return false
}

// pause waits for a time, or for the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// takeOver takes the source if it is free.
func (s *source) takeOver(ctx context.Context) bool {
	other, err := s.lease.taken(ctx)
	ok := false
	if err == nil && other == "" {
		ok, other, err = s.lease.take(ctx)
	}
	switch {
	case ctx.Err() != nil && !ok:
	case err != nil && !ok:
		if s.set(ingest.SourceDown, "the lease of the source cannot be taken: "+err.Error()) {
			s.deps.Logger.Error("the lease of an event source cannot be taken", "source", s.ID, "error", err)
		}
	case !ok:
		s.noteOwner(other)
		if s.set(ingest.SourceStandby, "") {
			s.deps.Logger.Info("another node reads an event source: this one stands by", "source", s.ID, "node", other)
		}
		if s.left {
			s.left = false
			s.discard(ctx)
		}
	default:
		s.noteOwner(s.cfg.Node)
		if s.stands() {
			s.set(ingest.SourceDown, "it is not connected yet")
		}
	}
	return ok
}

// disown frees the source for other nodes.
func (s *source) disown(ctx context.Context) {
	s.metrics.owner.WithLabelValues(s.ID).Set(0)
	s.noteOwner("")
	if err := s.lease.release(ctx); err != nil {
		s.deps.Logger.Warn("the lease of an event source cannot be released: it ends by itself", "source", s.ID, "error", err)
	}
}

// stands reports whether another node reads the source.
func (s *source) stands() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == ingest.SourceStandby
}

func (s *source) noteOwner(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner = node
}

// errSuspended is returned by options while another source has closed all transports.
var errSuspended = errors.New("all transports are closed")

// errTakeover is why read ends when the first connection fails.
var errTakeover = errors.New("the broker cannot be reached")

// read reads the source until ctx ends or the lease is lost. It ends also when the first connection fails, or all transports are closed: then
// another node may read the source.
func (s *source) read(ctx context.Context) {
	reading, end := context.WithCancelCause(ctx)
	var others sync.WaitGroup
	others.Go(func() { end(s.lease.keep(reading)) })
	if s.tracks {
		tracker := s.presences.begin(s.newTracker)
		others.Go(func() { _ = tracker.Run(reading) }) // it has no error but that of ctx
	}
	connected := false
	link := &mqttclient.Link{Auto: s.Protocol == "auto", Options: s.options}
	link.Up = func(ctx context.Context, session *mqttclient.Session) error {
		err := s.up(ctx, session)
		connected = connected || err == nil
		return err
	}
	link.Down = func(err error, wait time.Duration) {
		_, refused := errors.AsType[*mqttclient.RefusedFilter](err)
		switch {
		case errors.Is(err, errSuspended) || errors.Is(err, errLost):
			end(err)
		case connected || refused || s.suspends():
			s.down(err, wait)
		default:
			s.failTakeover(err)
			end(errTakeover)
		}
	}
	link.Ending = func(session *mqttclient.Session) {
		if ctx.Err() != nil { // a stop; what a lost lease leaves is another node's
			s.drain(session)
		}
	}
	_ = link.Run(reading) // it has no error
	why := context.Cause(reading)
	end(nil)
	others.Wait()
	switch {
	case ctx.Err() != nil: // run releases the lease once everything is stored
	case errors.Is(why, errTakeover):
		s.disown(ctx)
		pause(ctx, s.cfg.TakeoverRetry)
	case errors.Is(why, errSuspended):
		s.disown(ctx)
	default:
		s.lost()
	}
}

// failTakeover notes why the source was taken and is not read.
func (s *source) failTakeover(err error) {
	why := "the broker has closed the connection"
	if err != nil {
		why = err.Error()
	}
	if s.set(ingest.SourceDown, why) {
		s.deps.Logger.Warn("an event source cannot be read: it is left to other nodes until the next attempt", "source", s.ID, "broker", s.address(), "error", why, "retry", s.cfg.TakeoverRetry)
	}
}

// lost gives the source up: its lease is another node's, or has ended.
func (s *source) lost() {
	s.lease.lose()
	s.metrics.owner.WithLabelValues(s.ID).Set(0)
	s.noteOwner("")
	s.left = true
	if s.set(ingest.SourceDown, "the lease of the source is lost") {
		s.deps.Logger.Warn("the lease of an event source is lost: another node may read it", "source", s.ID)
	}
}

// discard ends the session that the broker keeps for this node: nobody reads what it collects.
func (s *source) discard(ctx context.Context) {
	o, err := s.Source.sessionOptions(s.clientID, s.dial())
	if err == nil {
		o.Clean, o.Expiry = true, 0
		o.OnMessage = func(*mqttclient.Delivery) {}
		var session *mqttclient.Session
		if session, err = s.openAny(ctx, o); err == nil {
			err = session.Close()
		}
	}
	if err != nil {
		s.deps.Logger.Warn("the session of this node cannot be ended at the broker of an event source that another node reads", "source", s.ID, "broker", s.address(), "error", err)
	}
}

// drainWait bounds how long a stop waits for what was taken: the log may have no room.
const drainWait = 5 * time.Second

// drain takes nothing more from the session and waits until what was taken is answered, so that its acknowledgements leave.
func (s *source) drain(session *mqttclient.Session) {
	s.ending.Store(true)
	limit := time.After(drainWait)
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for s.inDecode.Load() > 0 || len(s.window) > 0 {
		select {
		case <-look.C:
		case <-limit:
			return
		case <-session.Done():
			return
		}
	}
}

// options returns how the next session is opened.
func (s *source) options() (mqttclient.SessionOptions, error) {
	if why := s.deps.Intake.Suspended(); why != "" && !s.suspends() {
		return mqttclient.SessionOptions{}, errSuspended
	}
	o, err := s.Source.sessionOptions(s.clientID, s.dial())
	if err != nil {
		return o, err
	}
	o.ReceiveMaximum = uint16(min(decodeWorkers*(decodeQueue+1)+s.cfg.PublishWindow, 65535))
	o.OnMessage = s.receive
	o.Clean = o.Clean || !s.lease.resumes() // what another node has read meanwhile is in this node's session, too
	return o, nil
}

// dial is how the broker is connected to.
func (s *source) dial() mqttclient.Dial {
	if !s.IsLocal() {
		return s.deps.Dial
	}
	return mqttclient.DialLocal(s.deps.DialLocal)
}

// sessionOptions are what the settings say of a session.
func (s *Source) sessionOptions(clientID string, dial mqttclient.Dial) (mqttclient.SessionOptions, error) {
	o := mqttclient.SessionOptions{Options: mqttclient.Options{URL: s.Broker(), Dial: dial, ClientID: clientID, Username: s.Username, Password: s.Password.Reveal()},
		Version: mqttclient.MQTT5, Clean: s.SessionExpiry == 0, Expiry: s.SessionExpiry, KeepAlive: s.KeepAlive}
	if s.IsLocal() {
		o.URL = mqttclient.LocalURL
		return o, nil
	}
	if s.Protocol == "3.1.1" {
		o.Version = mqttclient.MQTT311
	}
	u, err := url.Parse(o.URL)
	if err != nil {
		return o, err
	}
	if mqttclient.Schemes()[u.Scheme] {
		o.TLS, err = s.TLS.Load()
	}
	return o, err
}

// up prepares a session: it subscribes.
func (s *source) up(ctx context.Context, session *mqttclient.Session) error {
	s.mu.Lock()
	s.session = session
	s.mu.Unlock()
	s.metrics.owner.WithLabelValues(s.ID).Set(1)
	subs := make([]mqttclient.Subscription, len(s.filters))
	for i, f := range s.filters {
		subs[i] = mqttclient.Subscription{Filter: f, QoS: byte(s.QoS)}
	}
	wait, cancel := context.WithTimeout(ctx, subscribeWait)
	defer cancel()
	granted, err := session.Subscribe(wait, subs...)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return s.refuse(&mqttclient.RefusedFilter{Filter: s.filters[0], Code: 0x80, Reason: fmt.Sprintf("no answer within %v", subscribeWait)})
	case err != nil:
		if refused, ok := errors.AsType[*mqttclient.RefusedFilter](err); ok {
			return s.refuse(refused)
		}
		return err
	}
	for i, qos := range granted {
		if qos < byte(s.QoS) {
			return fmt.Errorf("the broker grants QoS %d for %s, not QoS %d", qos, s.filters[i], s.QoS)
		}
	}
	if err := s.lease.renew(ctx, true); err != nil && !s.lease.held() {
		return errLost
	} else if err != nil && !s.lease.alone {
		return fmt.Errorf("the lease of the source cannot be renewed: %w", err)
	}
	s.endSuspension()
	s.mu.Lock()
	s.sessions++
	again := s.sessions > 1
	if again {
		s.counts.Reconnects++
	}
	s.mu.Unlock()
	if again {
		s.metrics.reconnects.WithLabelValues(s.ID).Inc()
	}
	s.set(ingest.SourceUp, "")
	s.carrier.up(s)
	s.deps.Logger.Info("an event source is connected", "source", s.ID, "broker", s.address(), "session", map[bool]string{true: "resumed", false: "new"}[session.Present()], "filters", s.filters)
	return nil
}

// refuse does what a refused subscription has to: all transports close, unless the settings leave them open.
func (s *source) refuse(r *mqttclient.RefusedFilter) error {
	s.metrics.refused.WithLabelValues(s.ID).Inc()
	s.mu.Lock()
	suspend := s.resume == nil && s.cfg.OnRefused == "stop"
	s.mu.Unlock()
	if suspend {
		resume := s.deps.Suspend(fmt.Sprintf("event source %s: %v (external_mqtt.on_refused: wait leaves the other transports open)", s.ID, r))
		s.mu.Lock()
		s.resume, s.closed = resume, make(chan struct{})
		s.mu.Unlock()
	}
	return r
}

// suspends reports whether the source has closed all transports.
func (s *source) suspends() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resume != nil
}

func (s *source) endSuspension() {
	s.mu.Lock()
	resume, closed := s.resume, s.closed
	s.resume, s.closed = nil, nil
	s.mu.Unlock()
	if resume != nil {
		resume()
		close(closed)
	}
}

// down notes why there is no session.
func (s *source) down(err error, wait time.Duration) {
	why := "the broker has closed the connection"
	if err != nil {
		why = err.Error()
	}
	if s.set(ingest.SourceDown, why) {
		s.deps.Logger.Warn("an event source is down", "source", s.ID, "broker", s.address(), "error", why, "retry", wait.Round(time.Millisecond))
	}
}

// set sets the state and reports whether something has changed.
func (s *source) set(state ingest.SourceState, why string) bool {
	s.mu.Lock()
	changed := s.state != state || s.failed != why
	if s.state != state {
		s.state, s.since = state, s.deps.Now()
	}
	s.failed = why
	if state != ingest.SourceUp {
		s.session = nil
	}
	s.mu.Unlock()
	switch state {
	case ingest.SourceUp:
		s.deps.Link(s.ID).Up()
		s.metrics.connected.WithLabelValues(s.ID).Set(1)
	case ingest.SourceStandby: // the figure of another node
		s.deps.Link(s.ID).Down()
		s.metrics.connected.DeleteLabelValues(s.ID)
	default:
		s.deps.Link(s.ID).Down()
		s.metrics.connected.WithLabelValues(s.ID).Set(0)
	}
	return changed
}

// address is the broker without credentials.
func (s *Source) address() string {
	u, err := url.Parse(s.Broker())
	if err != nil {
		return ""
	}
	u.User = nil
	return u.String()
}

// report is the state for the status.
func (s *source) report() ingest.SourceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := ingest.SourceStatus{ID: s.ID, Kind: s.Name(), State: s.state, Since: s.since, Owner: s.owner, LastError: s.failed, LastMessage: s.lastAt, Counts: s.counts,
		Address: s.address(), Ignored: maps.Clone(s.ignored), Dropped: maps.Clone(s.dropped), Unknown: slices.Clone(s.unknown), Notes: slices.Clone(s.notes)}
	if s.state == ingest.SourceUp {
		r.Counts.Connected = 1
	}
	if s.session != nil {
		r.Counts.Unacknowledged = int64(s.session.Unacknowledged())
	}
	return r
}

// noteUnknown notes an external id that no device has, and logs it the first time.
func (s *source) noteUnknown(id string, why error) {
	s.mu.Lock()
	first := !s.isKnown[id] && len(s.unknown) < maxUnknown
	if first {
		s.isKnown[id] = true
		s.unknown = append(s.unknown, id)
	}
	s.mu.Unlock()
	if first {
		s.deps.Logger.Warn("a message is dropped: no device has the external id", "source", s.ID, "externalId", id, "reason", cmp.Or(causeOf(why), "auto_register is off"))
	}
}

// causeOf is the limit or the mistake that kept a device from being made, "" for none.
func causeOf(err error) string {
	if e, ok := errors.AsType[*model.Error](err); ok {
		return e.Message
	}
	return ""
}
