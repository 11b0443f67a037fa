package lwm2m

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"weir/ingest"
	"weir/internal/setting"
	"weir/presence"
)

var _ ingest.Transport = (*Server)(nil)

// wantedInterval is how often it is looked whether a device has a key, while the socket waits for one.
const wantedInterval = 5 * time.Second

// sourceState is what the status shows of the source.
type sourceState struct {
	mu       sync.Mutex
	state    ingest.SourceState
	since    time.Time
	failed   string
	last     atomic.Int64 // nanoseconds
	received atomic.Int64
}

func (s *sourceState) enter(state ingest.SourceState, now time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed = err.Error()
	}
	if s.state != state {
		s.state, s.since = state, now
	}
}

func (s *sourceState) heard(now time.Time) {
	s.last.Store(now.UnixNano())
	s.received.Add(1)
}

// Name implements ingest.Transport.
func (s *Server) Name() string { return ingest.TransportLwM2M }

// Set changes the settings and the timing of presence. Zero values mean the defaults.
func (s *Server) Set(set Settings, t presence.Timing) {
	setting.FillDefaults(&set)
	setting.FillDefaults(&t)
	s.settings.Store(&set)
	s.tracker.Set(t)
}

// Sources implements ingest.Transport.
func (s *Server) Sources() []ingest.SourceStatus {
	s.mu.Lock()
	connected := int64(len(s.sessions))
	s.mu.Unlock()
	st := &s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	out := ingest.SourceStatus{ID: s.cfg.Source, Kind: s.Name(), State: st.state, Since: st.since, LastError: st.failed,
		Counts: ingest.SourceCounts{Connected: connected, Received: st.received.Load(), Refused: s.refusals.Load()}}
	if at := st.last.Load(); at != 0 {
		out.LastMessage = time.Unix(0, at)
	}
	return []ingest.SourceStatus{out}
}

// Connections returns how many sessions there are and may be.
func (s *Server) Connections() (open, maximum int) {
	return s.sessionCount(), s.settings.Load().MaxSessions
}

// Run implements ingest.Transport.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	defer context.AfterFunc(ctx, s.abort)()
	if err := s.restore(ctx); err != nil {
		return err
	}
	s.begin(func() { _ = s.tracker.Run(ctx) }) // it returns nil
	s.begin(func() { s.writeBehind(ctx) })
	s.begin(func() { s.runKeeper(ctx) })
	s.begin(func() { s.endOrphans(ctx) })
	s.begin(func() { s.watchModels(ctx) })
	s.begin(func() { s.boot.run(ctx) })
	conn := s.wait(ctx)
	if conn == nil {
		return nil
	}
	sock := newSocket(conn, s.settings.Load().ConnectionIDLength)
	sock.begin, sock.lost = s.gate.begin, func() { s.metrics.dropped("datagram") }
	sock.wake, sock.forged = s.wake, func() { s.metrics.dropped("forged") }
	s.open(sock)
	if c := s.deps.Certificates; c != nil { // it is there before the first device asks for it
		if _, err := c.Own(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("the LwM2M server has no certificate: devices with one are not let in until it has", "error", err)
		}
	}
	s.nextUpdates()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	s.state.enter(ingest.SourceUp, s.now(), nil)
	err := sock.serve()
	if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
		err = nil
	}
	s.state.enter(ingest.SourceShut, s.now(), err)
	return err
}

// wait opens the socket once some device has a key. It returns nil when ctx ends before.
func (s *Server) wait(ctx context.Context) net.PacketConn {
	for {
		wanted, err := s.deps.Wanted == nil, error(nil)
		if !wanted {
			wanted, err = s.deps.Wanted(ctx)
		}
		if wanted && err == nil {
			var conn net.PacketConn
			if conn, err = s.deps.Listen(); err == nil {
				return conn
			}
		}
		if err != nil && ctx.Err() == nil {
			s.state.enter(ingest.SourceDown, s.now(), err)
			s.log.Error("the LwM2M server cannot listen yet; it is tried again", "error", err, "retry_in", wantedInterval)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wantedInterval):
		}
	}
}

// writeBehind stores what has changed until ctx ends.
func (s *Server) writeBehind(ctx context.Context) {
	t := time.NewTicker(flushInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.flush(ctx)
			s.settle()
		}
	}
}

// open makes the sessions of before the start known to the socket. Devices that do not sleep can be reached from now on.
func (s *Server) open(sock *socket) {
	var lost []*parked
	var reachable []int64
	s.mu.Lock()
	s.socket = sock
	for k := range s.parked {
		if !sock.restored(k) {
			lost = append(lost, k)
		} else if r := s.byDevice[k.binding.DeviceID]; r != nil && r.parked == k && !r.Queue {
			reachable = append(reachable, k.binding.DeviceID)
		}
	}
	s.mu.Unlock()
	for _, k := range lost {
		s.lose(k)
	}
	if s.carrier != nil {
		s.begin(func() {
			for _, device := range reachable {
				s.carrier.reachable(device)
			}
		})
	}
}

// Close implements ingest.Transport: no handshake begins any more, what was accepted is answered, and sessions end without a word: a device
// whose session ended with an alert would shake hands at once.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Store(true)
	s.state.enter(ingest.SourceShut, s.now(), nil)
	s.mu.Lock()
	all := make([]*session, 0, len(s.sessions))
	for sess := range s.sessions {
		all = append(all, sess)
	}
	timers := s.byLocation
	for _, r := range timers {
		if r.expiry != nil {
			r.expiry.Stop()
		}
	}
	s.mu.Unlock()
	for _, sess := range all {
		sess.drain(ctx)
	}
	s.flush(ctx)
	for _, sess := range all {
		if sess.peer != nil {
			sess.peer.mute.Store(true)
		}
		sess.close()
	}
	s.flush(ctx)
	s.abort()
	s.starting.Lock()
	s.ended = true
	s.starting.Unlock()
	done := make(chan struct{})
	go func() {
		s.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin runs f in a goroutine that Close waits for. Once Close waits it reports false, and f does not run.
func (s *Server) begin(f func()) bool {
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.ended {
		return false
	}
	s.work.Go(f)
	return true
}

// drain waits until what a session has queued before is handled.
func (s *session) drain(ctx context.Context) {
	handled := make(chan struct{})
	select {
	case s.work <- func() { close(handled) }:
	case <-s.ctx.Done():
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-handled:
	case <-s.ctx.Done():
	case <-ctx.Done():
	}
}
