package broker

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"weir/ingest"
	"weir/model"
)

var _ ingest.Transport = (*Broker)(nil)

// listeners are those that Run serves, and those that are open.
type listeners struct {
	sync.Mutex
	added   []added
	open    map[net.Listener]struct{}
	closing bool
}

type added struct {
	ln net.Listener
	on Listener
}

// sourceState is whether the event source of the broker is served.
type sourceState struct {
	sync.Mutex
	state ingest.SourceState
	since time.Time
}

func (s *sourceState) set(state ingest.SourceState, now time.Time) {
	s.Lock()
	defer s.Unlock()
	s.state, s.since = state, now
}

// Name is the name of the transport in the ledger.
func (b *Broker) Name() string { return ingest.TransportMQTT }

// Listen has Run serve a listener. It must be called before Run.
func (b *Broker) Listen(ln net.Listener, on Listener) {
	b.listeners.Lock()
	defer b.listeners.Unlock()
	b.listeners.added = append(b.listeners.added, added{ln, on})
}

// Run serves the listeners and keeps presence correct: it ends the grace of devices that did not return and repeats lost
// transitions. It returns nil when ctx ends, and an error when a listener fails.
func (b *Broker) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.closing, cancel)()
	b.listeners.Lock()
	all := b.listeners.added
	b.listeners.Unlock()
	failed := make([]error, len(all))
	var serving sync.WaitGroup
	for i, l := range all {
		serving.Go(func() {
			if err := b.ServeListener(ctx, l.ln, l.on); err != nil && !errors.Is(err, net.ErrClosed) {
				failed[i] = err
				cancel()
			}
		})
	}
	_ = b.tracker.Run(ctx)
	serving.Wait()
	return errors.Join(failed...)
}

// Serve serves a listener on which MQTT is spoken, without TLS.
func (b *Broker) Serve(ctx context.Context, ln net.Listener) error {
	return b.ServeListener(ctx, ln, Listener{})
}

// ServeListener accepts connections on ln until ctx ends or Close is called; it then closes ln and returns nil. Several
// listeners may be served at once; they share the limits. The handshakes of TLS and WebSocket are done within
// ConnectTimeout, each by the goroutine of its connection.
func (b *Broker) ServeListener(ctx context.Context, ln net.Listener, on Listener) error {
	if on.Name == "" {
		on.Name = "mqtt"
	}
	if on.Open && b.general == nil {
		return errors.Join(errors.New("broker: a listener is for open topics, and there are none: set Config.Open"), ln.Close())
	}
	if !b.attach(ln) {
		return errors.Join(net.ErrClosed, ln.Close())
	}
	defer b.detach(ln)
	b.metrics.accepted.WithLabelValues(on.Name) // shown from the start
	b.metrics.byListener.WithLabelValues(on.Name)
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	for pause := time.Duration(0); ; {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			pause = 0
			b.take(nc, &on)
		case ctx.Err() != nil || b.isClosing():
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default: // out of file descriptors, most likely: wait for some to be released
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			b.metrics.acceptErrors.Inc()
			b.log.Warn("accepting an MQTT connection failed", "error", err, "retry_in", pause)
			if !sleep(ctx, b.closing, pause) {
				return nil
			}
		}
	}
}

// take starts serving a connection. In whatever state they are, there are never more than the connections and handshakes
// allowed.
func (b *Broker) take(nc net.Conn, on *Listener) {
	b.metrics.accepted.WithLabelValues(on.Name).Inc()
	if b.open.Add(1) > int64(b.settings.Load().MaxConnections)+int64(b.cfg.MaxHandshakes) {
		b.open.Add(-1)
		b.countRefused("too-many")
		nc.Close()
		return
	}
	b.work.Go(func() {
		defer b.open.Add(-1)
		b.handle(nc, on)
	})
}

// Close stops accepting, sends MQTT 5 clients 0x8B (server shutting down), waits until what was handed to the intake is
// answered and the answers are written, closes every connection and hands the wills to the intake, delayed ones as well. When
// ctx ends first the rest is cut off and ctx's error returned; wills are then refused where they would have to wait. Devices
// keep their presence: Weir's own stop is no transition of theirs.
func (b *Broker) Close(ctx context.Context) error {
	b.shutListeners()
	b.state.set(ingest.SourceShut, b.deps.Now())
	b.pending.closeAll()
	var conns []*conn
	for _, p := range b.pubsubs() {
		conns = append(conns, p.shut()...)
	}
	done := make(chan struct{})
	go func() {
		b.work.Wait()
		close(done)
	}()
	defer b.abort()
	defer context.AfterFunc(ctx, b.abort)()
	defer b.clear()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		b.abort()
		for _, c := range conns {
			c.nc.Close()
		}
		return ctx.Err()
	}
}

// clear ends the sessions of clients that are away and returns when the intake has their wills.
func (b *Broker) clear() {
	for _, p := range b.pubsubs() {
		p.clear()
	}
	b.devices.wills.Wait()
	b.devices.talks.Wait()
	if m := b.devices.commands; m != nil {
		m.calls.done.Wait()
	}
	if m := b.devices.edgeCommands; m != nil {
		m.calls.done.Wait()
	}
	for _, h := range b.allHands() {
		h.calls.done.Wait()
	}
	if a := b.devices.attributes; a != nil {
		a.work.Wait()
	}
}

// Drop ends the connections whose binding matches, at once and with 0x87 (not authorized) to MQTT 5 clients: a credential, a
// device or a tenant has changed. A connection that is just being verified is verified again.
func (b *Broker) Drop(match func(model.Binding) bool) { b.drop(match) }

// drop returns how many connections it ended.
func (b *Broker) drop(match func(model.Binding) bool) int {
	b.drops.Add(1)
	n := 0
	for _, p := range b.pubsubs() {
		n += p.drop(match)
	}
	return n
}

// Sources returns the state of the one event source that the broker serves: its devices. Open topics are none.
func (b *Broker) Sources() []ingest.SourceStatus {
	b.state.Lock()
	defer b.state.Unlock()
	s := ingest.SourceStatus{ID: b.cfg.Source, Kind: b.Name(), State: b.state.state, Since: b.state.since,
		Counts: ingest.SourceCounts{Connected: int64(b.Connections()), Received: b.metrics.packets[pktPublish].Load(), Refused: b.refusals.Load()}}
	if last := b.lastHeard.Load(); last > 0 {
		s.LastMessage = time.Unix(last, 0)
	}
	return []ingest.SourceStatus{s}
}

// received counts a packet and notes when the last publish came, to the second so that publishes seldom write it.
func (b *Broker) received(kind byte, now time.Time) {
	b.metrics.packets[kind].Add(1)
	if kind != pktPublish {
		return
	}
	if second := now.Unix(); b.lastHeard.Load() != second {
		b.lastHeard.Store(second)
	}
}

// Connections is the number of connections of devices, or of clients of the site, that are open.
func (b *Broker) Connections() int {
	if b.site != nil {
		return b.site.pubsub.connections()
	}
	return b.devices.pubsub.connections()
}

func (b *Broker) attach(ln net.Listener) bool {
	b.listeners.Lock()
	defer b.listeners.Unlock()
	if b.listeners.closing {
		return false
	}
	if len(b.listeners.open) == 0 {
		b.state.set(ingest.SourceUp, b.deps.Now())
	}
	b.listeners.open[ln] = struct{}{}
	return true
}

func (b *Broker) detach(ln net.Listener) {
	b.listeners.Lock()
	defer b.listeners.Unlock()
	delete(b.listeners.open, ln)
	ln.Close()
	if len(b.listeners.open) == 0 && !b.listeners.closing {
		b.state.set(ingest.SourceDown, b.deps.Now())
	}
}

func (b *Broker) isClosing() bool {
	b.listeners.Lock()
	defer b.listeners.Unlock()
	return b.listeners.closing
}

func (b *Broker) shutListeners() {
	b.listeners.Lock()
	defer b.listeners.Unlock()
	b.listeners.closing = true
	for _, l := range b.listeners.added { // Run may not have begun
		l.ln.Close()
	}
	for ln := range b.listeners.open {
		ln.Close()
	}
}

// sleep waits for d and reports whether neither context ended before.
func sleep(ctx, other context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-other.Done():
	}
	return false
}

// pubsubs are those of the services that there are.
func (b *Broker) pubsubs() []*pubsub {
	all := []*pubsub{b.devices.pubsub}
	if b.provisioning != nil {
		all = append(all, b.provisioning.pubsub)
	}
	if b.site != nil {
		all = append(all, b.site.pubsub)
	}
	if b.general != nil {
		all = append(all, b.general.pubsub)
	}
	return all
}
