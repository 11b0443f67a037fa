package connlimit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/test/fixture"
)

// server is an HTTP server behind a limit, under the clock of a bubble.
type server struct {
	t     *testing.T
	limit *Limit
	pipes *fixture.Pipes
	hold  chan struct{} // closed: GET /held is answered
}

// in runs test with a server of so many slots.
func in(t *testing.T, slots int, test func(*testing.T, *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &server{t: t, pipes: fixture.NewPipes(0), hold: make(chan struct{})}
		s.limit = New(slots, Metrics{prometheus.NewGauge(prometheus.GaugeOpts{}), prometheus.NewCounter(prometheus.CounterOpts{}), NewClosed("closed")})
		h := &http.Server{Handler: http.HandlerFunc(s.serve), ReadTimeout: time.Minute, WriteTimeout: 5 * time.Minute, IdleTimeout: time.Hour, ErrorLog: log.New(io.Discard, "", 0)}
		s.limit.Guard(h)
		served := make(chan error, 1)
		go func() { served <- h.Serve(s.limit.Listen(s.pipes)) }()
		defer func() {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			if err := <-served; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
			s.limit.mu.Lock()
			defer s.limit.mu.Unlock()
			for c := range s.limit.conns { // those that their handlers have taken over
				_ = c.Conn.Close()
			}
		}()
		test(t, s)
	})
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/held":
		select {
		case <-s.hold:
		case <-r.Context().Done():
		}
	case "/body":
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
	case "/upgrade", "/keep":
		nc, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			s.t.Error(err)
			return
		}
		defer nc.Close()
		if r.URL.Path == "/keep" {
			Keep(r.Context())
		}
		_, _ = nc.Read(make([]byte, 1))
		return
	case "/large":
		_, _ = w.Write(make([]byte, 1<<20))
	}
}

// closedFor returns how many connections were closed for a reason.
func (s *server) closedFor(reason string) int {
	return int(testutil.ToFloat64(s.limit.metrics.Closed.WithLabelValues(reason)))
}

// client is a connection from an address.
type client struct {
	net.Conn
	mu     sync.Mutex
	ended  bool
	status []string
}

func (c *client) closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

func (c *client) statuses() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.status)
}

type from struct {
	net.Conn
	addr string
}

func (f from) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(f.addr), 1))
}

// dial connects from an address and sends a request, if any.
func (s *server) dial(addr, path string) *client {
	ours, theirs := net.Pipe()
	s.pipes.Offer(from{theirs, addr})
	c := &client{Conn: ours}
	if path == "/large" {
		go func() { _, _ = io.WriteString(ours, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n") }()
		synctest.Wait()
		return c // it does not read its answer
	}
	go func() {
		in := bufio.NewReader(ours)
		for {
			line, err := in.ReadString('\n')
			c.mu.Lock()
			if strings.HasPrefix(line, "HTTP/1.1 ") {
				c.status = append(c.status, line[9:12])
			}
			c.ended = err != nil
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	if path != "" {
		c.get(path)
	}
	synctest.Wait()
	return c
}

func (c *client) get(path string) {
	go func() { _, _ = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path) }()
	synctest.Wait()
}

// TestWhichConnectionIsEvicted: of the source with the most connections, the one without a finished request for longest, and never one
// whose request is being handled.
func TestWhichConnectionIsEvicted(t *testing.T) {
	type given struct{ addr, path string }
	for name, c := range map[string]struct {
		open    []given // a second apart
		newest  string
		evicted int
	}{
		"the oldest of one address":                  {[]given{{"127.0.0.1", ""}, {"127.0.0.1", ""}, {"127.0.0.1", "/"}}, "127.0.0.1", 0},
		"idle ones like silent ones":                 {[]given{{"127.0.0.1", "/"}, {"127.0.0.1", ""}, {"127.0.0.1", "/"}}, "127.0.0.1", 0},
		"of the address with the most":               {[]given{{"127.0.0.1", ""}, {"127.0.0.2", ""}, {"127.0.0.2", "/"}}, "127.0.0.3", 1},
		"the oldest, where all have one":             {[]given{{"127.0.0.1", ""}, {"127.0.0.2", ""}, {"127.0.0.3", ""}}, "127.0.0.4", 0},
		"a /64 is one source":                        {[]given{{"127.0.0.1", ""}, {"2001:db8::1", ""}, {"2001:db8::2:1", ""}}, "127.0.0.4", 1},
		"an IPv4 address in IPv6 form is the same":   {[]given{{"127.0.0.1", ""}, {"127.0.0.2", ""}, {"::ffff:127.0.0.2", ""}}, "127.0.0.4", 1},
		"not one that is being handled":              {[]given{{"127.0.0.1", "/held"}, {"127.0.0.1", "/held"}, {"127.0.0.2", ""}}, "127.0.0.1", 2},
		"a socket that has not signed in":            {[]given{{"127.0.0.1", "/keep"}, {"127.0.0.1", "/upgrade"}, {"127.0.0.2", ""}}, "127.0.0.1", 1},
		"a request whose body is still on its way":   {[]given{{"127.0.0.1", "/held"}, {"127.0.0.1", "POST"}, {"127.0.0.2", ""}}, "127.0.0.1", 1},
		"a client that does not take its answer":     {[]given{{"127.0.0.1", "/held"}, {"127.0.0.1", "/large"}, {"127.0.0.1", "/keep"}}, "127.0.0.1", 1},
		"one that has only its body still to send":   {[]given{{"127.0.0.1", "/held"}, {"127.0.0.2", "/keep"}, {"127.0.0.3", "POST"}}, "127.0.0.4", 2},
		"a connection again, after its first answer": {[]given{{"127.0.0.1", "/"}, {"127.0.0.1", "/held"}, {"127.0.0.1", "/keep"}}, "127.0.0.2", 0},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, 3, func(t *testing.T, s *server) {
				var all []*client
				for _, g := range c.open {
					path := g.path
					if path == "POST" {
						path = ""
					}
					d := s.dial(g.addr, path)
					if g.path == "POST" {
						_, _ = io.WriteString(d, "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nxxx")
						synctest.Wait()
					}
					all = append(all, d)
					time.Sleep(time.Second)
				}
				if strings.HasPrefix(name, "a client that") {
					time.Sleep(writeTimeout)
				}
				d := s.dial(c.newest, "/")
				if len(d.statuses()) != 1 || d.statuses()[0] != "200" {
					t.Errorf("the new one was answered %q", d.statuses())
				}
				if _, err := all[c.evicted].Write([]byte("G")); err == nil {
					t.Error("the expected one was not evicted")
				}
				if s.closedFor(reasonFull) != 1 || s.limit.Len() != 3 {
					t.Errorf("%d evicted, %d open", s.closedFor(reasonFull), s.limit.Len())
				}
			})
		})
	}
}

// TestAcceptWaitsWhileAllAreBusy: until one is done.
func TestAcceptWaitsWhileAllAreBusy(t *testing.T) {
	in(t, 2, func(t *testing.T, s *server) {
		a := s.dial("127.0.0.1", "/held")
		b := s.dial("127.0.0.1", "/keep")
		late := s.dial("127.0.0.2", "/")
		if len(late.statuses()) != 0 || testutil.ToFloat64(s.limit.metrics.Waits) != 1 {
			t.Fatalf("answered %q", late.statuses())
		}
		close(s.hold)
		synctest.Wait()
		if len(a.statuses()) != 1 || len(late.statuses()) != 1 || !a.closed() || b.closed() {
			t.Errorf("%q, closed %v; closed %v; %q", a.statuses(), a.closed(), b.closed(), late.statuses())
		}
		_ = b.Close()
		synctest.Wait()
		if s.limit.Len() != 1 || testutil.ToFloat64(s.limit.metrics.Connections) != 1 {
			t.Errorf("%d are left", s.limit.Len())
		}
	})
}

// TestAFloodOfSilentConnections: whatever many addresses open, a client among them is served each time.
func TestAFloodOfSilentConnections(t *testing.T) {
	in(t, 200, func(t *testing.T, s *server) {
		good := s.dial("127.0.1.1", "/")
		for i := range 1000 {
			s.dial(fmt.Sprintf("127.0.0.%d", 1+i%20), "")
			if i%50 == 49 {
				if good.get("/"); len(good.statuses()) != 2+i/50 {
					t.Fatalf("after %d it has %d answers", i, len(good.statuses()))
				}
				c := s.dial("127.0.1.1", "/")
				if len(c.statuses()) != 1 {
					t.Fatalf("after %d a new connection got no answer", i)
				}
				_ = c.Close()
			}
		}
		if s.limit.Len() > 200 {
			t.Errorf("%d open", s.limit.Len())
		}
	})
}

// TestIdleConnectionsEndEarlierWhenHalfOfTheSlotsAreTaken: not before.
func TestIdleConnectionsEndEarlierWhenHalfOfTheSlotsAreTaken(t *testing.T) {
	in(t, 6, func(t *testing.T, s *server) {
		a, b := s.dial("127.0.0.1", "/"), s.dial("127.0.0.1", "/")
		time.Sleep(crowdedIdle)
		c := s.dial("127.0.0.2", "/") // the third is half of them only once it is there
		if a.closed() || b.closed() {
			t.Fatal("closed too early")
		}
		b.get("/")
		d := s.dial("127.0.0.2", "/")
		if synctest.Wait(); !a.closed() || b.closed() || c.closed() || d.closed() || s.closedFor(reasonIdle) != 1 {
			t.Errorf("%v %v %v %v, %d counted", a.closed(), b.closed(), c.closed(), d.closed(), s.closedFor(reasonIdle))
		}
	})
}

// TestABodyHasAMinimumRate: whatever its server's own timeouts are.
func TestABodyHasAMinimumRate(t *testing.T) {
	for name, c := range map[string]struct {
		part  int           // sent each second
		parts int           // of so many
		ends  time.Duration // when the connection is closed; 0: the request is answered
	}{
		"nothing":                             {0, 30, bodyGrace},
		"a byte a second":                     {1, 70, bodyGrace},
		"half of the rate":                    {250, 70, bodyGrace + bodyWindow},
		"the rate":                            {600, 50, 0},
		"much, and then nothing":              {60_000, 1, bodyGrace + bodyWindow},
		"complete at once":                    {5, 1, 0},
		"in drops, but within the grace":      {1, 15, 0},
		"the rate, past the server's timeout": {600, 70, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, 3, func(t *testing.T, s *server) {
				d := s.dial("127.0.0.1", "")
				size := c.part * c.parts
				if c.ends > 0 {
					size = 1 << 20
				}
				began := time.Now()
				_, _ = fmt.Fprintf(d, "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size)
				for range c.parts {
					if c.part > 0 {
						_, _ = d.Write(make([]byte, c.part))
					}
					if synctest.Wait(); d.closed() {
						break
					}
					time.Sleep(time.Second)
				}
				for !d.closed() && len(d.statuses()) == 0 {
					time.Sleep(time.Second)
					synctest.Wait()
				}
				slow := s.closedFor(reasonSlowBody)
				took := time.Since(began)
				if c.ends == 0 && (len(d.statuses()) != 1 || slow != 0) || c.ends > 0 && (!d.closed() || took.Round(time.Second) != c.ends) || c.ends > 0 && c.ends < time.Minute && slow != 1 {
					t.Errorf("closed %v, answered %q, after %v, %d counted", d.closed(), d.statuses(), took, slow)
				}
			})
		})
	}
}

// TestAConnectionGoesOnAfterASlowBody: the timeouts of the server apply again.
func TestAConnectionGoesOnAfterASlowBody(t *testing.T) {
	in(t, 3, func(t *testing.T, s *server) {
		d := s.dial("127.0.0.1", "")
		_, _ = io.WriteString(d, "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nx")
		time.Sleep(bodyGrace - time.Second)
		_, _ = io.WriteString(d, "x")
		synctest.Wait()
		time.Sleep(30 * time.Minute)
		d.get("/held")
		time.Sleep(time.Minute - time.Second)
		close(s.hold)
		if synctest.Wait(); len(d.statuses()) != 2 || d.closed() {
			t.Errorf("answered %q", d.statuses())
		}
	})
}

// TestKeepOutsideOfALimit does nothing.
func TestKeepOutsideOfALimit(t *testing.T) { Keep(context.Background()) }
