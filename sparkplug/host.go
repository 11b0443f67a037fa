package sparkplug

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/ingest"
	"weir/ingest/links"
	"weir/internal/mqttclient"
	"weir/model"
	"weir/presence"
)

// Times of a session.
const (
	connectTimeout   = 15 * time.Second
	subscribeTimeout = 10 * time.Second
	publishTimeout   = 5 * time.Second
	// ownBirth is within which the own STATE must come back: brokers of MQTT 3.1.1 acknowledge what they deny.
	ownBirth = 10 * time.Second
	tickEach = 200 * time.Millisecond
	saveEach = time.Second
	// stateEach is the pace at which STATE is published again when it is seen to be offline.
	stateEach = time.Second
	// maxUnknown is how many external ids without a device are remembered, so that each is reported once.
	maxUnknown = 1000
	// shownUnknown is how many of them the status shows.
	shownUnknown    = 100
	shownDuplicates = 10
)

// errDenied says that the broker does not deliver what the host publishes on its STATE topic.
var errDenied = errors.New("the broker does not deliver the STATE of this host")

// host is the host application of one source.
type host struct {
	t       *Transport
	cfg     *Source
	id      string // event source
	alone   bool   // no other source has the same host id
	rows    string // the source in the table of nodes
	m       *Machine
	tracker *presence.Tracker
	link    links.Link
	log     *slog.Logger
	queue   *queue
	address string

	// The session, by the connection's goroutines.
	mu        sync.Mutex
	session   *mqttclient.Session // once its STATE is online
	stamp     int64               // of the will and the birth of the session, milliseconds
	back      chan struct{}       // closed when the own birth has come back
	blocked   bool                // the queue was full: what is awaited may be behind it
	state     ingest.SourceState
	since     time.Time
	lastError string
	lastSeen  time.Time
	denied    bool
	refused   bool
	ups       int64
	unknown   []string // external ids
	ignored   map[string]int64
	lost      map[string]int64 // messages, by the reason
	conflict  time.Time
	// duplicates are some of the nodes that seem to be two.
	duplicates []string

	received, made atomic.Int64
	offline        chan *mqttclient.Session // sessions whose STATE was seen offline
	stopping       atomic.Bool
	endLink        context.CancelFunc
	linkEnded      chan struct{}
	ended          chan struct{}
	started        chan struct{}
	closing        chan struct{}
	once           sync.Once

	// What follows belongs to work.
	bound    map[string]bound // by external id
	inFlight sync.WaitGroup
	told     map[string]bool // external ids that were reported to have no device

	dropMu  sync.Mutex
	dropped map[string]bool // nodes whose readings were dropped
	recheck []func(model.Binding) bool

	saved chan saved // nil while nothing is being written
}

// bound is a device that is online.
type bound struct {
	binding model.Binding
	session uint64
}

func newHost(t *Transport, cfg *Source, tracker *presence.Tracker, alone bool) *host {
	h := &host{t: t, cfg: cfg, alone: alone, id: cfg.SourceID(), tracker: tracker, link: t.deps.Link(cfg.SourceID()), queue: newQueue(), state: ingest.SourceDown, since: t.deps.Now(),
		ignored: map[string]int64{}, lost: map[string]int64{}, offline: make(chan *mqttclient.Session, 1), linkEnded: make(chan struct{}), ended: make(chan struct{}),
		started: make(chan struct{}), closing: make(chan struct{}), bound: map[string]bound{}, told: map[string]bool{}, dropped: map[string]bool{}}
	h.log = t.deps.Logger.With("source", h.id)
	h.address = Endpoint(cfg.Broker.URL)
	h.rows = h.address + " " + cfg.HostID
	h.m = NewMachine(Rules{ReorderTimeout: cfg.ReorderTimeout, ResumeWithin: cfg.ResumeWithin, RebirthsPerSecond: float64(cfg.RebirthsPerSecond), Keep: cfg.Metrics.keep()})
	return h
}

// Endpoint is the host and port of a broker in lower case, the text itself when it is no URL.
func Endpoint(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return strings.ToLower(text)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"tcp": "1883", "mqtt": "1883", "ws": "80", "wss": "443"}[u.Scheme]
		if port == "" {
			port = "8883"
		}
	}
	return strings.ToLower(u.Hostname()) + ":" + port
}

// run keeps the session open and judges what comes until ctx ends or close is called.
func (h *host) run(ctx context.Context) {
	defer close(h.ended)
	life, end := context.WithCancel(ctx)
	defer end()
	h.mu.Lock()
	h.endLink = end
	h.mu.Unlock()
	close(h.started)
	if h.stopping.Load() {
		end()
	}
	go func() {
		defer close(h.linkEnded)
		l := mqttclient.Link{Auto: h.cfg.Broker.Protocol == "auto" || h.cfg.Broker.Protocol == "", Options: h.options, Up: h.up, Down: h.down}
		_ = l.Run(life) // it always returns nil
	}()
	h.work(ctx, life)
}

// options returns how the next session is opened. Its will says offline with the time of the CONNECT
// (tck-id-host-topic-phid-death-payload-connect), and the session ends with the connection
// (tck-id-message-flow-phid-sparkplug-clean-session-311, -50).
func (h *host) options() (mqttclient.SessionOptions, error) {
	tls, err := h.cfg.TLS.Load()
	if err != nil {
		return mqttclient.SessionOptions{}, err
	}
	if h.cfg.TLS.Insecure {
		h.log.Warn("the certificate of the broker is not verified (tls.insecure_skip_verify)")
	}
	now := h.t.deps.Now().UnixMilli()
	h.mu.Lock()
	h.stamp, h.back, h.blocked = now, make(chan struct{}), false
	h.mu.Unlock()
	o := mqttclient.SessionOptions{Options: mqttclient.Options{URL: h.cfg.Broker.URL, Dial: h.t.deps.Dial, TLS: tls, ClientID: h.clientID(), Username: h.cfg.Broker.Username,
		Password: h.cfg.Broker.Password.Reveal(), Timeout: connectTimeout}, Version: mqttclient.MQTT5, Clean: true, MaxPacket: maxPayload + 1<<10, ReceiveMaximum: 100,
		Will: &mqttclient.Message{Topic: stateTopic(h.cfg.HostID), Payload: HostState{Online: false, Timestamp: now}.Append(nil), QoS: 1, Retain: true}}
	switch {
	case h.cfg.Broker.IsLocal():
		o.URL, o.Dial = mqttclient.LocalURL, mqttclient.DialLocal(h.t.deps.DialLocal)
	case h.cfg.Broker.Protocol == "3.1.1":
		o.Version = mqttclient.MQTT311
	}
	o.OnMessage = h.arrived
	return o, nil
}

func (h *host) clientID() string {
	return fmt.Sprintf("weir:%s:sparkplug:%s:%s", h.t.cfg.InstanceID, h.cfg.HostID, h.t.cfg.Node)
}

// up prepares a session: it subscribes, publishes that the host is online, and waits until that comes back
// (tck-id-host-topic-phid-birth-required, -birth-sub-required, -birth-message).
func (h *host) up(ctx context.Context, s *mqttclient.Session) error {
	h.queue.put(item{turn: turnUp}, nil)
	if err := h.subscribe(ctx, s); err != nil {
		return err
	}
	if err := h.publishState(ctx, s, true); err != nil {
		return err
	}
	if err := h.awaitOwnBirth(ctx, s); err != nil {
		return err
	}
	h.mu.Lock()
	h.session, h.state, h.since, h.lastError, h.denied, h.refused = s, ingest.SourceUp, h.t.deps.Now(), "", false, false
	h.ups++
	h.mu.Unlock()
	h.link.Up()
	h.log.Info("the source is up", "broker", h.address, "host_id", h.cfg.HostID)
	go h.keepOnline(s)
	return nil
}

func (h *host) subscribe(ctx context.Context, s *mqttclient.Session) error {
	ctx, cancel := context.WithTimeout(ctx, subscribeTimeout)
	defer cancel()
	var subs []mqttclient.Subscription
	for _, f := range filters(h.cfg.HostID, h.cfg.Groups) {
		subs = append(subs, mqttclient.Subscription{Filter: f, QoS: 1})
	}
	_, err := s.Subscribe(ctx, subs...)
	if err == nil {
		return nil
	}
	h.t.metrics.refused.Inc()
	if _, refused := errors.AsType[*mqttclient.RefusedFilter](err); refused {
		h.mu.Lock()
		h.refused = true
		h.mu.Unlock()
	}
	return err
}

// publishState publishes STATE with the time of the session's will (tck-id-host-topic-phid-birth-payload-timestamp).
func (h *host) publishState(ctx context.Context, s *mqttclient.Session, online bool) error {
	h.mu.Lock()
	stamp := h.stamp
	h.mu.Unlock()
	if !online {
		stamp = h.t.deps.Now().UnixMilli() // tck-id-host-topic-phid-death-payload-disconnect-clean
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	err := s.Publish(ctx, mqttclient.Message{Topic: stateTopic(h.cfg.HostID), Payload: HostState{Online: online, Timestamp: stamp}.Append(nil), QoS: 1, Retain: true})
	if refused, ok := errors.AsType[*mqttclient.Refused](err); ok && refused.Packet == "PUBACK" {
		h.isDenied()
		return fmt.Errorf("%w: grant it to publish on %s: %w", errDenied, stateTopic(h.cfg.HostID), err)
	}
	return err
}

func (h *host) isDenied() {
	h.mu.Lock()
	h.denied = true
	h.mu.Unlock()
}

// awaitOwnBirth waits until the own STATE comes back. Time in which the queue was full does not count: it may be behind what could not be read.
func (h *host) awaitOwnBirth(ctx context.Context, s *mqttclient.Session) error {
	h.mu.Lock()
	back := h.back
	h.mu.Unlock()
	for {
		t := time.NewTimer(ownBirth)
		select {
		case <-back:
			t.Stop()
			return nil
		case <-s.Done():
			t.Stop()
			return errors.Join(mqttclient.ErrEnded, s.Err())
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
		h.mu.Lock()
		blocked := h.blocked
		h.blocked = false
		h.mu.Unlock()
		if !blocked {
			h.isDenied()
			return fmt.Errorf("%w: what it publishes on %s does not come back within %s; grant it to publish and to subscribe there", errDenied, stateTopic(h.cfg.HostID), ownBirth)
		}
	}
}

// keepOnline publishes again that the host is online when its STATE was seen to say otherwise
// (tck-id-message-flow-hid-sparkplug-state-message-delivered), until the session ends.
func (h *host) keepOnline(s *mqttclient.Session) {
	for {
		select {
		case <-s.Done():
			return
		case of := <-h.offline:
			if of != s || h.stopping.Load() {
				continue
			}
			if err := h.publishState(context.Background(), s, true); err != nil && s.Err() == nil {
				h.log.Warn("STATE could not be published again", "error", err)
			}
			t := time.NewTimer(stateEach)
			select {
			case <-t.C:
			case <-s.Done():
				t.Stop()
			}
		}
	}
}

// down takes note that a session has ended or could not be opened.
func (h *host) down(err error, wait time.Duration) {
	h.queue.put(item{turn: turnDown}, nil)
	h.mu.Lock()
	was := h.state
	h.session = nil
	if h.state == ingest.SourceUp {
		h.since = h.t.deps.Now()
	}
	h.state = ingest.SourceDown
	text := "the broker has closed the connection"
	if err != nil {
		text = err.Error()
	}
	news := text != h.lastError
	h.lastError = text
	h.mu.Unlock()
	h.link.Down()
	if was == ingest.SourceUp || news {
		h.log.Warn("the source is down", "broker", h.address, "error", text, "retry_in", wait.Round(100*time.Millisecond))
	}
}

// arrived takes a message of the session. STATE is judged at once; what is of nodes waits in the queue.
func (h *host) arrived(d *mqttclient.Delivery) {
	if h.takes(d) {
		d.Ack()
	}
}

// takes returns false when a message was not taken, because the host is closed.
func (h *host) takes(d *mqttclient.Delivery) bool {
	h.received.Add(1)
	h.mu.Lock()
	h.lastSeen = h.t.deps.Now()
	session := h.session
	h.mu.Unlock()
	if rest, ok := strings.CutPrefix(d.Topic, namespace+"/STATE/"); ok {
		if rest == h.cfg.HostID {
			h.ownState(session, d)
		} else {
			h.ignore("state-of-others")
		}
		return true
	}
	topic, err := ParseTopic(d.Topic)
	switch {
	case err != nil:
		h.ignore("topic")
	case topic.Kind == NCMD || topic.Kind == DCMD:
		h.ignore("command")
	case d.Retained:
		h.ignore("retained") // what was there before; the specification retains nothing but STATE
	default:
		h.t.metrics.messages.WithLabelValues(topic.Kind.String()).Inc()
		ok, waited := h.queue.put(item{Topic: topic, body: d.Payload}, h.closing)
		if waited {
			h.t.metrics.waits.Inc()
			h.mu.Lock()
			h.blocked = true
			h.mu.Unlock()
		}
		return ok
	}
	return true
}

func (h *host) ignore(why string) {
	h.t.metrics.ignored.Inc()
	h.mu.Lock()
	h.ignored[why]++
	h.mu.Unlock()
}

// ownState judges a message on the own STATE topic. session is nil until the host is online.
func (h *host) ownState(session *mqttclient.Session, d *mqttclient.Delivery) {
	s, err := ParseState(d.Payload)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil:
		h.ignored["state"]++
	case s.Online && s.Timestamp == h.stamp:
		select {
		case <-h.back:
		default:
			close(h.back)
		}
	case d.Retained: // what was there before
	case s.Online:
		h.t.metrics.conflicts.Inc()
		if now := h.t.deps.Now(); now.Sub(h.conflict) > time.Minute {
			h.log.Error("another host application has the host id of this one; give one of them another (sparkplug.sources[].host_id)", "host_id", h.cfg.HostID)
			h.conflict = now
		}
	case session != nil:
		select {
		case h.offline <- session:
		default:
		}
	}
}

// close publishes that the host is offline, ends the session, and returns when all that has come is answered and stored.
func (h *host) close(ctx context.Context) error {
	h.stopping.Store(true)
	h.mu.Lock()
	session := h.session
	endLink := h.endLink
	h.mu.Unlock()
	if session != nil {
		// tck-id-operational-behavior-host-application-termination
		if err := h.publishState(ctx, session, false); err != nil && session.Err() == nil {
			h.log.Warn("STATE could not say offline", "error", err)
		}
	}
	h.once.Do(func() { close(h.closing) })
	if endLink == nil { // run has not begun
		return nil
	}
	endLink()
	select {
	case <-h.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	h.mu.Lock()
	h.state, h.since, h.session = ingest.SourceShut, h.t.deps.Now(), nil
	h.mu.Unlock()
	return nil
}

// drop has the devices looked up again that a change may have removed.
func (h *host) drop(f func(model.Binding) bool) {
	h.dropMu.Lock()
	defer h.dropMu.Unlock()
	if len(h.recheck) < 64 {
		h.recheck = append(h.recheck, f)
	} else { // many changes: all of them
		h.recheck = []func(model.Binding) bool{func(model.Binding) bool { return true }}
	}
}

// status is what the source reports.
func (h *host) status() ingest.SourceStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := ingest.SourceStatus{ID: h.id, Kind: ingest.TransportSparkplug, State: h.state, Since: h.since, LastError: h.lastError, LastMessage: h.lastSeen, Address: h.address,
		Ignored: maps.Clone(h.ignored), Dropped: maps.Clone(h.lost), Unknown: slices.Clone(h.unknown),
		Counts: ingest.SourceCounts{Received: h.received.Load(), Reconnects: max(h.ups-1, 0), DevicesMade: h.made.Load()}}
	if h.state == ingest.SourceUp {
		s.Counts.Connected = 1
	}
	for _, n := range h.ignored {
		s.Counts.Ignored += n
	}
	if !h.conflict.IsZero() && h.t.deps.Now().Sub(h.conflict) < 5*time.Minute {
		s.Notes = append(s.Notes, "another host application has the host id "+h.cfg.HostID)
	}
	for _, node := range h.duplicates {
		s.Notes = append(s.Notes, "two nodes use the id "+node+"; give one of them another")
	}
	if h.denied {
		s.Notes = append(s.Notes, "the broker does not deliver what is published on "+stateTopic(h.cfg.HostID))
	}
	return s
}
