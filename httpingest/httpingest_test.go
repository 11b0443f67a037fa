package httpingest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/ingest"
	"weir/internal/test/conformance"
)

type fakeIntake struct {
	mu       sync.Mutex
	arrivals []ingest.Arrival
	calls    int // of Accept and AcceptAll
	received []string
	refused  []ingest.Reason
	answer   ingest.Answer
	index    int
	hold     chan struct{} // closed: answers go out
	full     bool
}

func (g *fakeIntake) Accept(ctx context.Context, a *ingest.Arrival, done func(ingest.Answer)) {
	g.AcceptAll(ctx, []*ingest.Arrival{a}, func(a ingest.Answer, _ int) { done(a) })
}

func (g *fakeIntake) AcceptAll(ctx context.Context, as []*ingest.Arrival, done func(ingest.Answer, int)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	for _, a := range as {
		g.arrivals = append(g.arrivals, *a)
	}
	answer, index, hold := g.answer, g.index, g.hold
	if hold == nil {
		done(answer, index)
		return
	}
	go func() {
		select {
		case <-hold:
			done(answer, index)
		case <-ctx.Done():
			done(ingest.Answer{Outcome: ingest.Withheld}, -1)
		}
	}()
}

func (g *fakeIntake) Received(_, _, tenant string, _ int) ingest.Packet {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.received = append(g.received, tenant)
	return ingest.Packet{}
}

func (g *fakeIntake) Refuse(_ ingest.Packet, r ingest.Reason) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused = append(g.refused, r)
}

func (g *fakeIntake) TenantFull(string) bool { return g.full }

// Identify knows the devices d1 and d2 by the tokens t1 and t2.
func (g *fakeIntake) Identify(_ context.Context, tenant string, c ingest.Credential, _ netip.Addr) (ingest.Proof, *ingest.Answer) {
	switch {
	case c.ID == "busy":
		return ingest.Proof{}, &ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonBusy}
	case c.ID == "slow":
		return ingest.Proof{}, &ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonThrottled, RetryAfter: 7}
	case tenant == "acme" && c.Type == "ACCESS_TOKEN" && c.ID == "t1":
		return ingest.Proof{DeviceID: 1, Device: "d1"}, nil
	case tenant == "acme" && c.Type == "ACCESS_TOKEN" && c.ID == "t2":
		return ingest.Proof{DeviceID: 2, Device: "d2"}, nil
	}
	return ingest.Proof{}, &ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonBadCredential}
}

func (g *fakeIntake) bodies() (all []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.arrivals {
		all = append(all, string(a.Body))
	}
	return all
}

// instance is a handler after its real server.
type instance struct {
	intake  *fakeIntake
	handler *handler
	desk    *desk // nil: no command can be fetched
	server  *Transport
	reg     *prometheus.Registry
	url     string
}

func open(t testing.TB, cfg Config) *instance {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := newInstance(t, cfg)
	d.url = "http://" + ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- d.server.serve(Listener{Listener: ln}) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(d.server.Close(ctx), <-served); err != nil {
			t.Error(err)
		}
	})
	return d
}

func newInstance(t testing.TB, cfg Config) *instance {
	t.Helper()
	cfg.InstanceID = "weir"
	d := &instance{intake: &fakeIntake{index: -1}, reg: prometheus.NewRegistry()}
	deps := Deps{Intake: d.intake, Registerer: d.reg}
	if cfg.Commands {
		d.desk = &desk{waiting: map[int64][]string{}, out: map[int64]string{}}
		deps.Desk = d.desk
	}
	var err error
	if d.handler, err = newHandler(cfg, deps); err != nil {
		t.Fatal(err)
	}
	d.server = newTransport(d.handler, d.handler)
	if cfg.Commands {
		d.desk.carrier = d.server.Commands()
	}
	return d
}

const event = `{"device":"d1","eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"21.5"}}]}}`

func (d *instance) do(t testing.TB, method, path, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, d.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

// The table of statuses: what the request is, what the intake says, and the exact answer.
func TestStatuses(t *testing.T) {
	refused := func(r ingest.Reason) ingest.Answer { return ingest.Answer{Outcome: ingest.Refused, Reason: r} }
	for _, tc := range []struct {
		name, method, path, body string
		answer                   ingest.Answer
		full                     bool
		status                   int
		text, retryAfter, allow  string
		reached                  bool // the intake got it
		counted                  ingest.Reason
		shows                    []string
	}{
		{name: "stored", status: 202, reached: true, shows: []string{"S2-013", "S2-023"}},
		{name: "content type is not looked at", body: "  " + event, status: 202, reached: true},
		{name: "a query string is not looked at", path: "/weir/acme/events?x=1", status: 202, reached: true},
		{name: "instance id in escapes", path: "/we%69r/acme/events", status: 202, reached: true},
		{name: "empty body goes to the decoder", body: " ", status: 202, reached: true},

		{name: "undecodable", answer: refused(ingest.ReasonUndecodable), status: 400, text: "the event was refused: undecodable", reached: true, shows: []string{"S2-015"}},
		{name: "the decoder's own words", answer: ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonUndecodable, Text: "payload:\nis missing"}, status: 400, text: "payload: is missing", reached: true},
		{name: "over 256 readings", answer: refused(ingest.ReasonTooManyReadings), status: 400, text: "the event was refused: too-many-readings", reached: true},
		{name: "another device's credential", answer: refused(ingest.ReasonNotAuthorized), status: 400, text: "the event was refused: not-authorized", reached: true},
		{name: "tenant with a dot", path: "/weir/a.b/events", status: 400, text: "the tenant is not a valid tenant id", counted: ReasonBadTenant, shows: []string{"S2-015"}},
		{name: "empty tenant", path: "/weir//events", status: 400, text: "the tenant is not a valid tenant id", counted: ReasonBadTenant},
		{name: "tenant with an escaped slash", path: "/weir/a%2Fb/events", status: 400, text: "the tenant is not a valid tenant id", counted: ReasonBadTenant},
		{name: "tenant of 129 characters", path: "/weir/" + strings.Repeat("a", 129) + "/events", status: 400, text: "the tenant is not a valid tenant id", counted: ReasonBadTenant},
		{name: "over 1 MiB", body: strings.Repeat("x", 1<<20+1), status: 400, text: "the body is larger than 1048576 bytes", counted: ingest.ReasonTooLarge},
		{name: "exactly 1 MiB", body: strings.Repeat("x", 1<<20), status: 202, reached: true},

		{name: "wrong instance id", path: "/other/acme/events", status: 404, text: "no such path", shows: []string{"S2-016"}},
		{name: "wrong instance id and tenant", path: "/other/a.b/events", status: 404, text: "no such path"},
		{name: "any other path", path: "/", status: 404, text: "no such path"},
		{name: "trailing slash", path: "/weir/acme/events/", status: 404, text: "no such path"},
		{name: "double slash", path: "//weir/acme/events", status: 404, text: "no such path"},
		{name: "dots", path: "/weir/x/../acme/events", status: 404, text: "no such path"},
		{name: "command poll is off", path: "/weir/acme/commands", status: 404, text: "no such path"},
		{name: "wrong path with another method", method: "GET", path: "/x", status: 404, text: "no such path"},

		{name: "GET", method: "GET", status: 405, text: "only POST is allowed here", allow: "POST"},
		{name: "PUT", method: "PUT", status: 405, text: "only POST is allowed here", allow: "POST"},
		{name: "OPTIONS", method: "OPTIONS", status: 405, text: "only POST is allowed here", allow: "POST"},

		{name: "bucket empty before the body", full: true, status: 429, text: "the tenant is over its ingest ceiling", retryAfter: "1", counted: ingest.ReasonCeiling},
		{name: "bucket empty and the body too large", full: true, body: strings.Repeat("x", 1<<20+1), status: 429, text: "the tenant is over its ingest ceiling", retryAfter: "1", counted: ingest.ReasonCeiling},
		{name: "over the ceiling", answer: refused(ingest.ReasonCeiling), status: 429, text: "the tenant is over its ingest ceiling", retryAfter: "1", reached: true},
		{name: "unauthenticated", answer: refused(ingest.ReasonUnauthenticated), status: 429, text: "too many requests", retryAfter: "1", reached: true},
		{name: "a user name that waits", answer: ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonThrottled, RetryAfter: 17}, status: 429, text: "too many wrong passwords", retryAfter: "17", reached: true},
		{name: "too many credentials", answer: refused(ingest.ReasonBusy), status: 503, text: "too many credentials are being checked", retryAfter: "1", reached: true},
		{name: "backpressure", answer: refused(ingest.ReasonBackpressure), status: 503, text: "the platform is behind, nothing was stored", retryAfter: "10", reached: true},
		{name: "failed hand-over", answer: refused(ingest.ReasonUnavailable), status: 503, text: "the event could not be stored", reached: true},
		{name: "withheld", answer: ingest.Answer{Outcome: ingest.Withheld}, status: 503, text: "the event could not be stored", reached: true},
		{name: "dropped is reported here", answer: ingest.Answer{Outcome: ingest.Dropped, Reason: ingest.ReasonCeiling}, status: 503, text: "the event could not be stored", reached: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := open(t, Config{})
			d.intake.answer, d.intake.full = tc.answer, tc.full
			method, path, body := "POST", "/weir/acme/events", event
			if tc.method != "" {
				method = tc.method
			}
			if tc.path != "" {
				path = tc.path
			}
			if tc.body != "" {
				body = tc.body
			}
			res, text := d.do(t, method, path, body)
			want := tc.text
			if want != "" {
				want += "\n"
			}
			if res.StatusCode != tc.status || text != want {
				t.Errorf("answered %d %q, want %d %q", res.StatusCode, text, tc.status, want)
			}
			if got := res.Header.Get("Retry-After"); got != tc.retryAfter {
				t.Errorf("Retry-After %q, want %q", got, tc.retryAfter)
			}
			if got := res.Header.Get("Allow"); got != tc.allow {
				t.Errorf("Allow %q, want %q", got, tc.allow)
			}
			if ct := res.Header.Get("Content-Type"); (tc.status == 202) != (ct == "") || ct != "" && ct != "text/plain; charset=utf-8" {
				t.Errorf("Content-Type %q", ct)
			}
			if got := d.intake.bodies(); (len(got) == 1 && got[0] == body) != tc.reached {
				t.Errorf("reached the intake: %d bodies", len(got))
			}
			var counted []ingest.Reason
			if tc.counted != "" {
				counted = []ingest.Reason{tc.counted}
			}
			if !slices.Equal(d.intake.refused, counted) || len(d.intake.received) != len(counted) {
				t.Errorf("counted %v of %q received", d.intake.refused, d.intake.received)
			}
			if tc.counted == ReasonBadTenant && d.intake.received[0] != "" {
				t.Errorf("counted for the tenant %q", d.intake.received[0])
			}
			if n := testutil.ToFloat64(d.handler.metrics.requests.WithLabelValues(fmt.Sprint(tc.status))); n != 1 {
				t.Errorf("%v requests counted with that status", n)
			}
			if len(tc.shows) > 0 {
				conformance.Shown(t, tc.shows...)
			}
		})
	}
}

func TestArrivalCarriesWhatTheIntakeNeeds(t *testing.T) {
	d := open(t, Config{})
	d.do(t, "POST", "/weir/acme/events", event)
	a := d.intake.arrivals[0]
	if a.Transport != ingest.TransportHTTP || a.Source != "http1" || a.Tenant != "acme" || a.Topic != "" || a.Conn != nil || a.CannotRefuse || a.CeilingWait != 0 {
		t.Errorf("%+v", a)
	}
}

// No 202 before the intake has answered.
func TestAnswerWaitsForTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, pipes := inMemory(t, Config{})
		d.intake.hold = make(chan struct{})
		c := pipes.dial()
		c.send(request(event))
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := c.take(); got != "" {
			t.Fatalf("answered %q while the intake holds", got)
		}
		close(d.intake.hold)
		synctest.Wait()
		if got := c.take(); !strings.HasPrefix(got, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n") {
			t.Errorf("answered %q", got)
		}
		c.conn.Close()
	})
}

func TestAnIntakeThatNeverAnswersIsAFailedHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, pipes := inMemory(t, Config{})
		d.intake.hold = make(chan struct{})
		c := pipes.dial()
		c.send(request(event))
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if got := c.take(); !strings.HasPrefix(got, "HTTP/1.1 503 ") || strings.Contains(got, "Retry-After") {
			t.Errorf("answered %q", got)
		}
		c.conn.Close()
	})
}

func TestArrays(t *testing.T) {
	many := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(`{"a":1},`, n), ",") + "]" }
	for _, tc := range []struct {
		name, body string
		answer     ingest.Answer
		index      int
		status     int
		text       string
		arrivals   int
	}{
		{"one", "[" + event + "]", ingest.Answer{}, -1, 202, "", 1},
		{"blanks around", " \n[ " + event + " , {} ]\r\n", ingest.Answer{}, -1, 202, "", 2},
		{"1,000", many(1000), ingest.Answer{}, -1, 202, "", 1000},
		{"1,001", many(1001), ingest.Answer{}, -1, 400, "the array holds more than 1000 events", 0},
		{"none", "[]", ingest.Answer{}, -1, 400, "the array is empty", 0},
		{"broken element", `[{}, {"a":}, {}]`, ingest.Answer{}, -1, 400, "event 1: expected a value at byte 10", 0},
		{"missing comma", `[{} {}]`, ingest.Answer{}, -1, 400, "the array: expected ',' or ']' at byte 4", 0},
		{"no end", `[{}, {}`, ingest.Answer{}, -1, 400, "the array: expected ',' or ']' at byte 7", 0},
		{"trailing comma", `[{},]`, ingest.Answer{}, -1, 400, "event 1: expected a value at byte 4", 0},
		{"something behind", `[{}] {}`, ingest.Answer{}, -1, 400, "the array: unexpected text after the document at byte 5", 0},
		{"garbage behind", `[{}] x`, ingest.Answer{}, -1, 400, "the array: unexpected text after the document at byte 5", 0},
		{"elements that are no events go to the decoder", `[1, "x", [null]]`, ingest.Answer{}, -1, 202, "", 3},
		{"one of them refused", many(3), ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonUndecodable, Text: "no payload"}, 2, 400, "event 2: no payload", 3},
		{"over the ceiling", many(3), ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonCeiling}, -1, 429, "the tenant is over its ingest ceiling", 3},
		{"backpressure", many(3), ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonBackpressure}, -1, 503, "the platform is behind, nothing was stored", 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := open(t, Config{})
			d.intake.answer, d.intake.index = tc.answer, tc.index
			res, text := d.do(t, "POST", "/weir/acme/events", tc.body)
			if res.StatusCode != tc.status || strings.TrimSuffix(text, "\n") != tc.text {
				t.Errorf("answered %d %q, want %d %q", res.StatusCode, text, tc.status, tc.text)
			}
			if n := len(d.intake.arrivals); n != tc.arrivals || tc.arrivals > 0 && d.intake.calls != 1 {
				t.Errorf("%d arrivals in %d calls", n, d.intake.calls)
			}
			if tc.arrivals == 0 && !slices.Equal(d.intake.refused, []ingest.Reason{ingest.ReasonUndecodable}) {
				t.Errorf("counted %v", d.intake.refused)
			}
		})
	}
}

func TestChunkedBody(t *testing.T) {
	d := open(t, Config{})
	for _, size := range []int{0, 1, 511, 513, largeBody - 1, largeBody, largeBody + 1, 1 << 20} {
		body := strings.Repeat("x", size)
		req, _ := http.NewRequest("POST", d.url+"/weir/acme/events", io.MultiReader(strings.NewReader(body)))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got := d.intake.bodies(); res.StatusCode != 202 || got[len(got)-1] != body {
			t.Errorf("%d bytes: answered %d", size, res.StatusCode)
		}
	}
	req, _ := http.NewRequest("POST", d.url+"/weir/acme/events", io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20+1))))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 400 {
		t.Errorf("over 1 MiB without a length: answered %d", res.StatusCode)
	}
}

// pipes is a listener in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

type client struct {
	conn   net.Conn
	mu     sync.Mutex
	got    bytes.Buffer
	closed bool
}

func (p *pipes) dial() *client { return p.dialFrom("127.0.0.1") }

// from is a connection from an address.
type from struct {
	net.Conn
	ip string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.ip), Port: 1} }

func (p *pipes) dialFrom(ip string) *client {
	ours, theirs := net.Pipe()
	p.conns <- from{theirs, ip}
	c := &client{conn: ours}
	go func() {
		r := bufio.NewReader(ours)
		for {
			b, err := r.ReadByte()
			c.mu.Lock()
			if err != nil {
				c.closed = true
				c.mu.Unlock()
				return
			}
			c.got.WriteByte(b)
			c.mu.Unlock()
		}
	}()
	return c
}

func (c *client) send(s string) { _, _ = c.conn.Write([]byte(s)) }

func (c *client) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.got.Reset()
	return c.got.String()
}

func (c *client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func request(body string) string {
	return fmt.Sprintf("POST /weir/acme/events HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// inMemory opens a transport under the clock of a bubble.
func inMemory(t *testing.T, cfg Config) (*instance, *pipes) {
	d := newInstance(t, cfg)
	return d, d.serve(t)
}

func (d *instance) serve(t *testing.T) *pipes {
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- d.server.serve(Listener{Listener: p}) }()
	t.Cleanup(func() {
		if err := errors.Join(d.server.Close(context.Background()), <-served); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Who does not send a request in time is cut off and counted; who has sent one and idles is not counted.
func TestTimeLimits(t *testing.T) {
	head := "POST /weir/acme/events HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n"
	large := "POST /weir/acme/events HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n"
	for _, tc := range []struct {
		name    string
		send    []string // each followed by a pause of 4 s
		after   time.Duration
		counted float64
	}{
		{"nothing", nil, 5 * time.Second, 1},
		{"half the headers", []string{head}, time.Second, 1},
		{"headers in drops", []string{"P", "OST /weir/acme/events"}, 0, 1},
		{"headers without a body", []string{head + "\r\n"}, 16 * time.Second, 1},
		{"body in drops", slices.Concat([]string{head + "\r\n"}, strings.Split("xxx", "")), 4 * time.Second, 1},
		{"body that stalls", []string{large, strings.Repeat("x", 20<<10)}, 22 * time.Second, 1},
		{"body at the minimum rate", slices.Concat([]string{large}, slices.Repeat([]string{strings.Repeat("x", 2500)}, 13)), 4 * time.Second, 1},
		{"idle after a request", []string{request(event)}, 56 * time.Second, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, p := inMemory(t, Config{})
				c := p.dial()
				for _, s := range tc.send {
					c.send(s)
					time.Sleep(4 * time.Second)
				}
				time.Sleep(tc.after - 10*time.Millisecond)
				synctest.Wait()
				if tc.after > 0 && c.isClosed() {
					t.Error("closed too early")
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if !c.isClosed() {
					t.Error("still open")
				}
				if n := testutil.ToFloat64(d.handler.metrics.closedBefore); n != tc.counted {
					t.Errorf("counted %v", n)
				}
				if n := testutil.ToFloat64(d.handler.metrics.connections); n != 0 {
					t.Errorf("%v connections", n)
				}
				if tc.counted == 1 && len(d.intake.arrivals) != 0 {
					t.Error("half a request reached the intake")
				}
			})
		})
	}
}

// A client that goes away in the middle of its body has sent no message, and the ledger says so.
func TestBodyCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := inMemory(t, Config{})
		c := p.dial()
		c.send("POST /weir/acme/events HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nxxx")
		synctest.Wait()
		c.conn.Close()
		synctest.Wait()
		if !slices.Equal(d.intake.refused, []ingest.Reason{ReasonUnreadable}) || len(d.intake.received) != 1 || len(d.intake.arrivals) != 0 {
			t.Errorf("counted %v of %q", d.intake.refused, d.intake.received)
		}
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := inMemory(t, Config{MaxConnections: 2})
		d.intake.hold = make(chan struct{})
		a, b := p.dial(), p.dial()
		synctest.Wait()        // a third is accepted as long as one of these could be closed for it
		a.send(request(event)) // a request that is being handled keeps its connection
		b.send(request(event))
		synctest.Wait()
		late := p.dial()
		go late.send(request(event))
		synctest.Wait()
		if n := testutil.ToFloat64(d.handler.metrics.connections); n != 2 || len(d.intake.bodies()) != 2 {
			t.Fatalf("a third connection was served: %v connections, %d messages", n, len(d.intake.bodies()))
		}
		a.conn.Close()
		synctest.Wait()
		if len(d.intake.bodies()) != 3 {
			t.Fatal("no slot came free")
		}
		close(d.intake.hold)
		synctest.Wait()
		if got := late.take(); !strings.HasPrefix(got, "HTTP/1.1 202") {
			t.Errorf("answered %q", got)
		}
		b.conn.Close()
		late.conn.Close()
	})
}

func TestLargeBodiesWaitForAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := inMemory(t, Config{MaxLargeBodies: 1})
		large := strings.Repeat("x", 200<<10)
		slow, next, small := p.dial(), p.dial(), p.dial()
		slow.send(request(large)[:100<<10])
		synctest.Wait()
		go next.send(request(large))
		synctest.Wait()
		small.send(request(event))
		synctest.Wait()
		if got := d.intake.bodies(); len(got) != 1 || got[0] != event {
			t.Fatalf("%d bodies taken while a large one is being read", len(got))
		}
		slow.send(request(large)[100<<10:])
		synctest.Wait()
		if got := d.intake.bodies(); len(got) != 3 {
			t.Errorf("%d bodies taken", len(got))
		}
		for _, c := range []*client{slow, next, small} {
			c.conn.Close()
		}
	})
}

func TestShutdownWaitsForRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := inMemory(t, Config{})
		d.intake.hold = make(chan struct{})
		c := p.dial()
		c.send(request(event))
		synctest.Wait()
		go func() { time.Sleep(2 * time.Second); close(d.intake.hold) }()
		if err := d.server.Close(context.Background()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got := c.take(); !strings.HasPrefix(got, "HTTP/1.1 202") {
			t.Errorf("answered %q", got)
		}
	})
}

// What other handlers of the listener have answered is no connection without a request either.
func TestOtherRoutesOfTheListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newInstance(t, Config{})
		d.server = newTransport(d.handler, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/weir/provision" {
				d.handler.ServeHTTP(w, r)
			}
		}))
		p := d.serve(t)
		c := p.dial()
		c.send("GET /weir/provision HTTP/1.1\r\nHost: x\r\n\r\n")
		synctest.Wait()
		c.send(request(event))
		synctest.Wait()
		if got := c.take(); strings.Count(got, "HTTP/1.1 20") != 2 {
			t.Errorf("answered %q", got)
		}
		c.send("GET /weir/provision HTTP/1.1\r\nHost: x\r\n\r\n")
		synctest.Wait()
		c.conn.Close()
		synctest.Wait()
		if n := testutil.ToFloat64(d.handler.metrics.closedBefore); n != 0 {
			t.Errorf("counted %v", n)
		}
	})
}

func TestMetricName(t *testing.T) {
	d := newInstance(t, Config{})
	if n, err := testutil.GatherAndCount(d.reg, "weir_eventsources_total_http_connections_closed_before_request"); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	if _, err := New(Config{InstanceID: "a b"}, Deps{Intake: &fakeIntake{}}); err == nil {
		t.Error("an instance id that is no token")
	}
	if _, err := New(Config{InstanceID: "weir"}, Deps{}); err == nil {
		t.Error("no intake")
	}
}

// FuzzPath: whatever the path is, a tenant that is taken from it has the pattern or is refused.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"/weir/acme/events", "/weir/a%2Fb/events", "//", "/weir/%zz/events", "/weir/acme/events/", "/weir/acme/devices/d1/telemetry",
		"/weir/acme/devices/a%2Fb/telemetry", "/weir/acme/devices/events/x/telemetry"} {
		f.Add(s)
	}
	h, err := newHandler(Config{InstanceID: "weir"}, Deps{Intake: &fakeIntake{}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		if a, ok := h.addressOf(u); ok && !strings.Contains(path, "events") && !a.ofDevice() || a.flat && !strings.Contains(path, "telemetry") ||
			a.reports && (a.flat || !strings.Contains(path, "device-reports")) || !a.ofDevice() && a.device != "" {
			t.Fatalf("%q gave %+v", path, a)
		}
	})
}
