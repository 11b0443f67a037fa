package gql

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/connlimit"
	"weir/internal/test/fixture"
	"weir/model"
)

// wire is a world behind a real server, to which tests write bytes.
type wire struct {
	*world
	t     *testing.T
	pipes *fixture.Pipes
}

func onTheWire(t *testing.T, limits Limits, test func(*testing.T, *wire)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{world: newWorld(t, Config{Limits: limits}), t: t, pipes: fixture.NewPipes(0)}
		of := func(tenant string) Session {
			p := testReader(model.AllAuthorities)
			p.Tenant = tenant
			return Session{Principal: p}
		}
		h := &http.Server{Handler: w.server.Handler("test", testSessions{"one": of("t1"), "two": of("t2")}.authenticate),
			ReadTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
		go func() { _ = h.Serve(w.pipes) }()
		defer func() {
			_ = h.Close()
			time.Sleep(time.Minute) // of the bubble: the server waits before it closes a connection
			synctest.Wait()
			if n := w.server.admission.held.Load(); n != 0 || w.server.admission.medium.Len() != 0 || w.server.admission.large.Len() != 0 {
				t.Errorf("%d bytes are still held", n)
			}
		}()
		test(t, w)
	})
}

// post announces a body of size bytes and sends as many of them; the answer's status comes later.
func (w *wire) post(token string, size int, sent string) (net.Conn, *atomic.Value) {
	c, err := w.pipes.Dial(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if token != "" {
		token = "Authorization: Bearer " + token + "\r\n"
	}
	status := new(atomic.Value)
	status.Store("")
	go func() {
		_, _ = fmt.Fprintf(c, "POST /graphql HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", token, size, sent)
	}()
	go func() {
		if line, err := bufio.NewReader(c).ReadString('\n'); err == nil && len(line) > 12 {
			status.Store(line[9:12])
		}
		_, _ = io.Copy(io.Discard, c)
	}()
	synctest.Wait()
	return c, status
}

// asked sends a whole query of about size bytes and returns its answer's status and how long that took, at most d.
func (w *wire) asked(token string, size int, d time.Duration) (string, time.Duration) {
	began := time.Now()
	body := `{"query":"{ ping }"}` + strings.Repeat(" ", size)
	c, status := w.post(token, len(body), body)
	defer c.Close()
	for status.Load() == "" && time.Since(began) < d {
		time.Sleep(time.Second / 10)
		synctest.Wait()
	}
	return status.Load().(string), time.Since(began)
}

// TestUnfinishedBodiesDoNotDelayOthers: whatever they announce and have sent, a signed-in user is served at once, small and large.
func TestUnfinishedBodiesDoNotDelayOthers(t *testing.T) {
	sent := func(n int) string { return "{" + strings.Repeat(" ", n-1) }
	for name, c := range map[string]struct {
		token        string
		size, sent   int
		small, large time.Duration
	}{
		"announced":                      {"", 60_000, 1, 0, 0},
		"over the limit without a token": {"", 4 << 20, 1, 0, 0},
		"some":                           {"", 60_000, 20_000, 0, 0},
		"nearly all":                     {"", 60_000, 59_999, 0, 0},
		"announced, by a user":           {"one", 4 << 20, 1, 0, 0},
		"nearly all, by a user":          {"one", 60_000, 59_999, 0, 0},
		"large ones, by a user of another tenant": {"one", 4 << 20, 1 << 20, 0, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			onTheWire(t, Limits{BodyBytes: 4 << 20, PendingBytes: 6 << 20}, func(t *testing.T, w *wire) {
				var all []net.Conn
				for range 300 {
					conn, _ := w.post(c.token, c.size, sent(c.sent))
					all = append(all, conn)
				}
				time.Sleep(2 * time.Second)
				for _, q := range []struct {
					token string
					size  int
					max   time.Duration
				}{{"two", 10, c.small}, {"", 10, c.small}, {"two", 30_000, c.small}, {"two", 300_000, c.large}} {
					if status, took := w.asked(q.token, q.size, time.Minute); status != "200" || took > q.max {
						t.Errorf("%q with %d bytes: %s after %v", q.token, q.size, status, took)
					}
				}
				for _, conn := range all {
					_ = conn.Close()
				}
			})
		})
	}
}

// TestABodyWithoutATokenIsSmall: it is refused before it is read.
func TestABodyWithoutATokenIsSmall(t *testing.T) {
	onTheWire(t, Limits{}, func(t *testing.T, w *wire) {
		for size, want := range map[int]string{maxAnonymousBody - 100: "200", maxAnonymousBody: "400"} {
			if status, _ := w.asked("", size, time.Minute); status != want {
				t.Errorf("%d bytes: %s", size, status)
			}
			if status, _ := w.asked("one", size, time.Minute); status != "200" {
				t.Errorf("%d bytes of a user: %s", size, status)
			}
		}
		_, status := w.post("", maxAnonymousBody+1, "")
		if status.Load() != "400" {
			t.Errorf("announced: %s", status.Load())
		}
	})
}

// TestALargeBodyThatWaitsDoesNotDelaySmallOnes: not by its place in any queue.
func TestALargeBodyThatWaitsDoesNotDelaySmallOnes(t *testing.T) {
	onTheWire(t, Limits{BodyBytes: 4 << 20, PendingBytes: 6 << 20}, func(t *testing.T, w *wire) {
		running := strings.Repeat(" ", 100_000) + `{"query":"{ slow }"}`
		_, first := w.post("one", len(running), running)
		_, second := w.post("one", 200_000, strings.Repeat(" ", 200_000))
		if status, took := w.asked("one", 10, time.Minute); status != "200" || took > 0 {
			t.Errorf("a small one: %s after %v", status, took)
		}
		time.Sleep(admissionTimeout)
		if synctest.Wait(); first.Load() != "" || second.Load() != "503" {
			t.Errorf("the large ones: %q, %q", first.Load(), second.Load())
		}
		time.Sleep(time.Minute)
	})
}

// TestSilentSocketsDoNotKeepUsersOut: 1,000 of them are a quarter at most, the oldest go first.
func TestSilentSocketsDoNotKeepUsersOut(t *testing.T) {
	inSocketWorld(t, Config{Limits: Limits{Connections: 40}}, func(t *testing.T, w *socketWorld) {
		user := w.open(t, "good")
		var silent []*testSocket
		for range 100 {
			s := w.dial(t, subprotocol)
			s.receive()
			silent = append(silent, s)
		}
		again := w.open(t, "other")
		synctest.Wait()
		for i, s := range silent {
			if ended := len(s.inbox) > 0; ended != (i < 91) {
				t.Errorf("number %d ended %v", i, ended)
			}
		}
		for _, s := range []*testSocket{user, again} {
			s.send(`{"type":"ping"}`)
			s.expect(`{"type":"pong"}`)
		}
		if n := testutil.ToFloat64(w.server.metrics.socketsRefused.WithLabelValues("pending")); n != 91 {
			t.Errorf("%v counted", n)
		}
		if n := testutil.ToFloat64(w.server.metrics.socketsPending); n != 9 {
			t.Errorf("%v pending", n)
		}
	})
}

// TestSocketsWithoutATokenAreHalfOfAll: from however many addresses they come.
func TestSocketsWithoutATokenAreHalfOfAll(t *testing.T) {
	limits := Limits{Connections: 8, ConnectionsPerIdentity: 100}
	inSocketWorld(t, Config{Limits: limits}, func(t *testing.T, w *socketWorld) {
		for range 4 {
			s := w.dial(t, subprotocol)
			s.send(`{"type":"connection_init"}`)
			s.expect(`{"type":"connection_ack"}`)
		}
		s := w.dial(t, subprotocol)
		s.send(`{"type":"connection_init"}`)
		s.expectClose(closeTryAgainLater)
		for range 4 {
			w.open(t, "good")
		}
	})
}

// TestAMessageBeforeSigningInIsSmall: more is accepted once the client has signed in.
func TestAMessageBeforeSigningInIsSmall(t *testing.T) {
	inSocketWorld(t, Config{}, func(t *testing.T, w *socketWorld) {
		long := `{"type":"ping","payload":{"x":"` + strings.Repeat("x", maxAnonymousBody) + `"}}`
		s := w.open(t, "good")
		s.send(long)
		s.expect(`{"type":"pong"}`)
		s = w.dial(t, subprotocol)
		s.receive()
		_ = s.conn.Write(t.Context(), websocket.MessageText, []byte(long))
		s.expectClose(websocket.StatusMessageTooBig)
	})
}

// TestOnlyASignedInSocketKeepsItsConnection where the listener is full: a silent one, or one without a token, is evicted.
func TestOnlyASignedInSocketKeepsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		limit := connlimit.New(3, connlimit.Metrics{Connections: prometheus.NewGauge(prometheus.GaugeOpts{}),
			Waits: prometheus.NewCounter(prometheus.CounterOpts{}), Closed: connlimit.NewClosed("closed")})
		h := &http.Server{Handler: w.server.Handler("test", testSessions{"good": {Principal: testReader(model.AllAuthorities)}}.authenticate)}
		limit.Guard(h)
		pipes := fixture.NewPipes(0)
		go func() { _ = h.Serve(limit.Listen(pipes)) }()
		client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return pipes.Dial(ctx) }}}
		world := &socketWorld{world: w, client: client}
		signedIn, silent, noToken := world.open(t, "good"), world.dial(t, subprotocol), world.dial(t, subprotocol)
		silent.receive()
		noToken.send(`{"type":"connection_init"}`)
		noToken.expect(`{"type":"connection_ack"}`)
		noToken.receive()
		for range 3 { // each takes the slot of the oldest one
			time.Sleep(time.Second)
			world.dial(t, subprotocol)
			synctest.Wait()
		}
		if len(silent.inbox) == 0 || len(noToken.inbox) == 0 {
			t.Errorf("evicted: %v, %v", len(silent.inbox), len(noToken.inbox))
		}
		signedIn.send(`{"type":"ping"}`)
		signedIn.expect(`{"type":"pong"}`)
		_ = signedIn.conn.CloseNow()
		_ = h.Close()
		if err := w.server.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
	})
}
