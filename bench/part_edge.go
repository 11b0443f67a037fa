package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// The devices of the site are the first of the tenant, the edge is the one behind them.
const (
	atTheSite = 50
	roundTrip = 100 * time.Millisecond // of a slow link
)

// edge measures an edge below a Weir, both on this machine: a backlog that goes up, what a device and a watcher notice of it, bytes on the link, memory.
func (b *bench) edge(ctx context.Context) error {
	backlog, slow := int64(100_000), int64(50_000)
	if b.all {
		backlog, slow = 2_000_000, 500_000
	}
	above, err := b.ready(ctx, setup{devices: atTheSite + 1, config: roomy})
	if err != nil {
		return err
	}
	defer above.drop()
	if err := above.signIn(ctx); err != nil {
		return err
	}
	file := filepath.Join(above.dir, "edge.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "version: 1\ntenants: [{token: %s, devices: [{token: %s, edges: [{token: north, enabled: true}]}]}]\n", tenant, deviceToken(atTheSite)), 0o600); err != nil {
		return err
	}
	if err := above.run(ctx, "", "site", "apply", file); err != nil {
		return err
	}
	l, err := newLink(above.mqtt)
	if err != nil {
		return err
	}
	defer l.close()
	s := &siteBelow{b: b, above: above, link: l}
	for _, one := range []struct {
		what    string
		n       int64
		frames  bool
		order   string
		oneWay  time.Duration
		rate    goal
		perByte *goal
	}{
		{"a backlog of %s", backlog, false, "oldest_first", 0, atLeast(25_000, 60_000, perSecond), new(atMost(340, 270, bytesEach))},
		{"a backlog of %s, in frames", backlog, true, "oldest_first", 0, atLeast(60_000, 150_000, perSecond), new(atMost(70, 40, bytesEach))},
		{"a backlog of %s over 100 ms round trip", slow, false, "oldest_first", roundTrip / 2, atLeast(20_000, 35_000, perSecond), nil},
	} {
		what := "edge: " + fmt.Sprintf(one.what, count(float64(one.n)))
		if err := s.begin(ctx, one.frames, one.order); err != nil {
			return err
		}
		n, err := s.fill(ctx, one.n)
		if err != nil {
			return err
		}
		l.set(true, one.oneWay)
		sent := l.up.Load()
		took, err := s.drained(ctx, n)
		if err != nil {
			return err
		}
		b.judged(one.rate, what+", drained", float64(n)/took.Seconds(), "to a Weir above on the same cores, which stores it")
		if one.perByte != nil {
			b.judged(*one.perByte, what+": bytes on the link per reading", float64(l.up.Load()-sent)/float64(n), "readings of %.0f bytes, without TLS", s.size)
		}
		if err := s.end(ctx); err != nil {
			return err
		}
	}
	if err := s.whileDraining(ctx, backlog/2); err != nil {
		return err
	}
	return s.memory(ctx, backlog)
}

// siteBelow is a site with an edge.
type siteBelow struct {
	b     *bench
	above *instance
	link  *link
	edge  *instance
	want  kept    // above
	size  float64 // bytes of a message of the newest fill
}

// begin starts an edge with an empty log, whose link is cut.
func (s *siteBelow) begin(ctx context.Context, frames bool, order string) (err error) {
	s.link.set(false, 0)
	config := fmt.Sprintf("edge:\n  listen: 127.0.0.1:0\n  auth: open\n  agent_id: %s\n  spool_max_bytes: 4GiB\n  uplink: {broker_url: \"tcp://%s\", username: \"%s:%s\", frames: %t, order: %s, backoff_min: 100ms, backoff_max: 100ms}\n",
		deviceToken(atTheSite), s.link.address(), tenant, accessToken(atTheSite), frames, order)
	s.edge, err = s.b.fresh(ctx, setup{edge: config})
	return err
}

// fill has the site's devices, but for the first, send about so many messages, and returns how many.
func (s *siteBelow) fill(ctx context.Context, about int64) (n int64, err error) {
	senders, err := s.edge.connect(ctx, atTheSite, live)
	if err != nil {
		return 0, err
	}
	defer closeAll(senders)
	senders = senders[1:]
	var stop atomic.Bool
	errs := make(chan error, len(senders))
	for _, one := range senders {
		go func() { errs <- upTo(about/int64(len(senders)), 100)(one, &stop) }()
	}
	for range senders {
		err = errors.Join(err, <-errs)
	}
	for _, one := range senders {
		n += one.acked.Load()
		s.want.sum += one.body.sum
	}
	s.want.readings += n
	s.size = float64(len(senders[0].body.append(nil)))
	return n, err
}

// waiting is how many messages have not ended.
func (s *siteBelow) waiting(ctx context.Context) (float64, error) {
	return s.edge.metric(ctx, `weir_edge_lane_records{lane="backlog"}`)
}

// drained waits until nothing waits, and returns how long that took from the first message on.
func (s *siteBelow) drained(ctx context.Context, n int64) (time.Duration, error) {
	began := time.Time{}
	for end := time.Now().Add(20 * time.Minute); time.Now().Before(end); {
		left, err := s.waiting(ctx)
		if err != nil {
			return 0, err
		}
		if began.IsZero() && left < float64(n) {
			began = time.Now()
		}
		if left == 0 {
			return time.Since(began), nil
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return 0, errors.New("the backlog has not drained within twenty minutes")
}

// end compares what is above with what was sent, and removes the edge.
func (s *siteBelow) end(ctx context.Context) error {
	s.edge.drop()
	want := s.want
	want.refusals = true
	return s.above.verify(ctx, want)
}

// whileDraining measures what the site's devices and those above notice of a backlog that goes up.
func (s *siteBelow) whileDraining(ctx context.Context, n int64) error {
	if err := s.begin(ctx, false, "live_first"); err != nil {
		return err
	}
	n, err := s.fill(ctx, n)
	if err != nil {
		return err
	}
	senders, err := s.edge.connect(ctx, atTheSite, live)
	if err != nil {
		return err
	}
	defer closeAll(senders)
	s.link.set(true, 0)
	var seen hist
	probes := make(chan error, 1)
	probing, stop := context.WithCancel(ctx)
	defer stop()
	go func() { probes <- s.probe(probing, &seen) }()
	o, err := s.b.drive(ctx, s.edge.pid(), senders[1:], paced(1000), nil)
	stop()
	if err = errors.Join(err, <-probes); err != nil {
		return err
	}
	left, err := s.waiting(ctx)
	if err != nil {
		return err
	}
	s.want.readings += o.acked
	s.want.sum += o.sum
	s.b.judged(atMost(50, 15, millis), "edge: PUBACK at 1,000/s at the site while a backlog goes up, p99", inMillis(o.lat.quantile(0.99)), "p50 %s; of %s messages %s were left at the end", short(o.lat.quantile(0.5)), count(float64(n)), count(left))
	s.b.judged(atMost(1000, 200, millis), "edge: live reading until a query above shows it, live_first, p99", inMillis(seen.quantile(0.99)), "p50 %s; beside that", short(seen.quantile(0.5)))
	if _, err := s.drained(ctx, n); err != nil {
		return err
	}
	return s.end(ctx)
}

// probe sends readings of a device of its own one after the other, each once the one before is shown above.
func (s *siteBelow) probe(ctx context.Context, seen *hist) error {
	d := deviceToken(0)
	c, err := dialMQTT(ctx, s.edge.mqtt, "weir:"+tenant+":"+d+"-probe", tenant+":"+accessToken(0), "weir/"+tenant+"/devices/"+d+"/events")
	if err != nil {
		return err
	}
	defer c.Close()
	one := &sender{client: c, body: newBody(live, 1000), of: 1}
	defer func() {
		s.want.readings += one.acked.Load()
		s.want.sum += one.body.sum
	}()
	var stop atomic.Bool
	for n := int64(1); ctx.Err() == nil; n++ {
		sent := time.Now()
		if err := upTo(n, 1)(one, &stop); err != nil {
			return err
		}
		for shown := int64(0); shown < n; {
			var err error
			shown, _, err = s.above.readingsOf(ctx, d)
			switch {
			case ctx.Err() != nil: // the measured time is over: it takes at least as long
				seen.add(time.Since(sent), 1)
				return nil
			case err != nil:
				return err
			case time.Since(sent) > grace:
				return fmt.Errorf("a live reading is not shown above after %s", grace)
			}
			_ = pause(ctx, 2*time.Millisecond) // its end is noticed above
		}
		seen.add(time.Since(sent), 1)
	}
	return nil
}

// memory measures what an edge takes, and how soon it sends after a start with a backlog.
func (s *siteBelow) memory(ctx context.Context, n int64) error {
	if err := s.begin(ctx, false, "oldest_first"); err != nil {
		return err
	}
	defer s.edge.drop()
	s.link.set(true, 0)
	takes := func(g goal, what, with string) error {
		if err := pause(ctx, 5*time.Second); err != nil {
			return err
		}
		bytes, err := anonymous(s.edge.pid())
		if err != nil {
			return err
		}
		s.b.judged(g, what, float64(bytes)/(1<<20), "%s", with)
		return nil
	}
	if err := takes(atMost(25, 12, mebibytes), "edge: memory, idle", "RSS without file pages, 5s after the start, the uplink connected"); err != nil {
		return err
	}
	s.link.set(false, 0)
	n, err := s.fill(ctx, n)
	if err != nil {
		return err
	}
	used, err := s.edge.metric(ctx, "weir_edge_spool_used_bytes")
	if err != nil {
		return err
	}
	if err := s.restart(ctx); err != nil {
		return err
	}
	with := fmt.Sprintf("%s messages, %.0f MB", count(float64(n)), used/1e6)
	if err := takes(atMost(64, 40, mebibytes), "edge: memory with a backlog", "RSS without file pages, 5s after a start with "+with); err != nil {
		return err
	}
	if err := s.edge.stop(); err != nil {
		return err
	}
	s.link.set(true, 0)
	began := time.Now()
	if err := s.edge.start(ctx); err != nil {
		return err
	}
	for {
		forwarded, err := s.edge.metric(ctx, "weir_edge_forwarded_total")
		if err != nil {
			return err
		}
		if forwarded > 0 {
			break
		}
		if time.Since(began) > grace {
			return fmt.Errorf("nothing goes up %s after a start", grace)
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	s.b.judged(atMost(3000, 1000, millis), "edge: start with a backlog until the first message is acknowledged above", inMillis(time.Since(began)), "%s", with)
	if _, err := s.drained(ctx, n); err != nil {
		return err
	}
	return s.end(ctx)
}

func (s *siteBelow) restart(ctx context.Context) error {
	if err := s.edge.stop(); err != nil {
		return err
	}
	return s.edge.start(ctx)
}

// link is the only way from the edge to the Weir above. It counts what goes up, can be cut, and delays.
type link struct {
	net.Listener
	target string
	up     atomic.Int64 // bytes

	mu     sync.Mutex
	open   bool
	oneWay time.Duration
	conns  map[net.Conn]bool
}

func newLink(target string) (*link, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{Listener: ln, target: target, conns: map[net.Conn]bool{}}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go l.carry(c)
		}
	}()
	return l, nil
}

func (l *link) address() string { return l.Addr().String() }

// set opens or cuts the link. A cut ends what is connected.
func (l *link) set(open bool, oneWay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open, l.oneWay = open, oneWay
	for c := range l.conns {
		_ = c.Close()
	}
}

func (l *link) close() {
	l.set(false, 0)
	_ = l.Listener.Close()
}

// carry connects a client with the target.
func (l *link) carry(c net.Conn) {
	defer c.Close()
	above, err := net.Dial("tcp", l.target)
	if err != nil {
		return
	}
	defer above.Close()
	l.mu.Lock()
	open, oneWay := l.open, l.oneWay
	if open {
		l.conns[c], l.conns[above] = true, true
	}
	l.mu.Unlock()
	if !open {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { _ = delayed(above, c, oneWay, &l.up); _ = above.Close() }) // the end of one is that of both
	both.Go(func() { _ = delayed(c, above, oneWay, new(atomic.Int64)); _ = c.Close() })
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	delete(l.conns, above)
}

// delayed copies, each byte so much later than it came.
func delayed(to io.Writer, from io.Reader, by time.Duration, counted *atomic.Int64) error {
	type piece struct {
		b  []byte
		at time.Time
	}
	pieces := make(chan piece, 4096)
	ended := make(chan error, 1)
	go func() {
		var err error
		for p := range pieces {
			if err != nil {
				continue
			}
			time.Sleep(time.Until(p.at))
			_, err = to.Write(p.b)
		}
		ended <- err
	}()
	for {
		b := make([]byte, 16<<10)
		n, err := from.Read(b)
		if n > 0 {
			counted.Add(int64(n))
			pieces <- piece{b[:n], time.Now().Add(by)}
		}
		if err != nil {
			close(pieces)
			return errors.Join(err, <-ended)
		}
	}
}
