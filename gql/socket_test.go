package gql

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/gql/engine"
	"weir/internal/test/fixture"
	"weir/model"
)

// socketWorld is a world behind a real server.
type socketWorld struct {
	*world
	sessions testSessions
	revoked  map[string]bool
	client   *http.Client
}

// inSocketWorld runs fn in a bubble, which fails the test when a goroutine is left behind.
func inSocketWorld(t *testing.T, cfg Config, fn func(t *testing.T, w *socketWorld)) {
	synctest.Test(t, func(t *testing.T) {
		w := &socketWorld{world: newWorld(t, cfg), revoked: map[string]bool{}}
		now := time.Now()
		session := func(name string, life time.Duration, p *model.Principal) Session {
			s := Session{Principal: p, Revoked: func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.revoked[name] }}
			if life > 0 {
				s.Expires = now.Add(life)
			}
			return s
		}
		other := testReader(model.AllAuthorities)
		other.Identity, other.Subject = 8, "bob"
		w.sessions = testSessions{
			"good": session("good", 0, testReader(model.AllAuthorities)), "minute": session("minute", time.Minute, testReader(model.AllAuthorities)),
			"hour": session("hour", time.Hour, testReader(model.AllAuthorities)), "other": session("other", 0, other),
			"poor": session("poor", 0, testReader()), "service": session("service", 0, model.Service("svc", "t1", 1, model.DeviceRead)),
		}
		l := fixture.NewPipes(0)
		server := &http.Server{Handler: w.server.Handler("test", w.sessions.authenticate), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
		go func() { _ = server.Serve(l) }()
		w.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }, DisableKeepAlives: true}}
		defer func() { // also when fn has given up: a bubble must be left empty
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := w.server.Drain(ctx); err != nil {
				t.Errorf("drain: %v", err)
			}
			_ = server.Close()
			w.client.CloseIdleConnections()
			synctest.Wait()
			if w.counts.Busy() || w.devices.Busy() {
				t.Error("subscriptions are left over")
			}
			if n := testutil.ToFloat64(w.server.metrics.sockets) + testutil.ToFloat64(w.server.metrics.subscriptions); n != 0 {
				t.Errorf("gauges stand at %v", n)
			}
		}()
		fn(t, w)
	})
}

type testSocket struct {
	t     *testing.T
	conn  *websocket.Conn
	inbox chan received // when somebody reads in the background
}

type received struct {
	text string
	err  error
}

// receive reads in the background from now on: the pipe under the connection has no room for what nobody reads.
func (s *testSocket) receive() {
	s.inbox = make(chan received, 100)
	go func() {
		defer close(s.inbox)
		for {
			_, b, err := s.conn.Read(context.Background())
			s.inbox <- received{string(b), err}
			if err != nil {
				return
			}
		}
	}()
}

func (w *socketWorld) dial(t *testing.T, protocols ...string) *testSocket {
	t.Helper()
	conn, resp, err := websocket.Dial(t.Context(), "ws://weir/graphql", &websocket.DialOptions{HTTPClient: w.client, Subprotocols: protocols})
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp.Status)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &testSocket{t: t, conn: conn}
}

// open dials and initialises.
func (w *socketWorld) open(t *testing.T, token string) *testSocket {
	t.Helper()
	s := w.dial(t, subprotocol)
	s.send(`{"type":"connection_init","payload":{"Authorization":"Bearer ` + token + `"}}`)
	s.expect(`{"type":"connection_ack"}`)
	return s
}

func (s *testSocket) send(text string) {
	s.t.Helper()
	if err := s.conn.Write(s.t.Context(), websocket.MessageText, []byte(text)); err != nil {
		s.t.Fatalf("write: %v", err)
	}
}

func (s *testSocket) read() (string, error) {
	if s.inbox != nil {
		m := <-s.inbox
		return m.text, m.err
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	_, b, err := s.conn.Read(ctx)
	return string(b), err
}

func (s *testSocket) expect(want ...string) {
	s.t.Helper()
	for _, want := range want {
		got, err := s.read()
		if err != nil || got != want {
			s.t.Fatalf("got %s %v, want %s", got, err, want)
		}
	}
}

// expectClose reads until the connection ends, answering no ping.
func (s *testSocket) expectClose(code websocket.StatusCode) {
	s.t.Helper()
	for {
		got, err := s.read()
		if err == nil && got == `{"type":"ping"}` {
			continue
		}
		if err == nil || websocket.CloseStatus(err) != code {
			s.t.Errorf("got %s %v, want close code %d", got, err, code)
		}
		return
	}
}

func (s *testSocket) subscribe(id, query string) {
	s.t.Helper()
	q, _ := json.Marshal(query)
	s.send(fmt.Sprintf(`{"id":%q,"type":"subscribe","payload":{"query":%s}}`, id, q))
}

func TestASubscriptionDeliversUntilTheClientCompletesIt(t *testing.T) {
	inSocketWorld(t, Config{}, func(t *testing.T, w *socketWorld) {
		s := w.open(t, "good")
		s.send(`{"id":"1","type":"subscribe","payload":{"query":"subscription($s: State) { d: devices(state: $s) { token kind { token } } }","variables":{"s":"RETIRED"}}}`)
		s.subscribe("2", `subscription { counts }`)
		synctest.Wait()
		w.devices.Publish(makeDevice(1))
		retired := makeDevice(2)
		retired.State = "RETIRED"
		w.devices.Publish(retired)
		s.expect(`{"id":"1","type":"next","payload":{"data":{"d":{"token":"d2","kind":{"token":"k2"}}}}}`)
		w.counts.Publish(5)
		s.expect(`{"id":"2","type":"next","payload":{"data":{"counts":5}}}`)
		s.send(`{"id":"1","type":"complete"}`)
		synctest.Wait()
		if w.devices.Busy() {
			t.Error("the subscription goes on")
		}
		w.devices.Publish(retired)
		s.subscribe("1", `subscription { counts }`) // the id is free again
		synctest.Wait()
		w.counts.Publish(6)
		got := map[string]bool{}
		for range 2 {
			m, _ := s.read()
			got[m] = true
		}
		for _, id := range []string{"1", "2"} {
			if want := `{"id":"` + id + `","type":"next","payload":{"data":{"counts":6}}}`; !got[want] {
				t.Errorf("%v lacks %s", got, want)
			}
		}
		w.counts.Close()
		got = map[string]bool{}
		for range 2 {
			m, _ := s.read()
			got[m] = true
		}
		if !got[`{"id":"1","type":"complete"}`] || !got[`{"id":"2","type":"complete"}`] {
			t.Errorf("%v", got)
		}
	})
}

func TestASlowSubscriberIsToldAndOnlyItsSubscriptionEnds(t *testing.T) {
	inSocketWorld(t, Config{}, func(t *testing.T, w *socketWorld) {
		s := w.open(t, "good")
		s.subscribe("1", `subscription { counts }`)
		synctest.Wait()
		for n := range 2 * engine.SubscriptionBuffer { // the client reads none of them meanwhile
			w.counts.Publish(n)
		}
		next := 0
		for {
			m, err := s.read()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(m, `"type":"error"`) {
				if !strings.Contains(m, `"id":"1"`) || !strings.Contains(m, "too slow") || !strings.Contains(m, "LIMIT_EXCEEDED") {
					t.Error(m)
				}
				break
			}
			if want := fmt.Sprintf(`{"id":"1","type":"next","payload":{"data":{"counts":%d}}}`, next); m != want {
				t.Fatalf("a gap: %s, want %s", m, want)
			}
			next++
		}
		if next < engine.SubscriptionBuffer || next >= 2*engine.SubscriptionBuffer {
			t.Errorf("%d items came before the error", next)
		}
		synctest.Wait()
		if w.counts.Busy() {
			t.Error("the subscription goes on")
		}
		s.subscribe("1", `{ ping }`)
		s.expect(`{"id":"1","type":"next","payload":{"data":{"ping":"pong"}}}`, `{"id":"1","type":"complete"}`)
	})
}

func TestQueriesAndMutationsRunOverASocketUnderTheSameLimits(t *testing.T) {
	inSocketWorld(t, Config{}, func(t *testing.T, w *socketWorld) {
		s := w.open(t, "good")
		s.subscribe("q", `{ ping }`)
		s.expect(`{"id":"q","type":"next","payload":{"data":{"ping":"pong"}}}`, `{"id":"q","type":"complete"}`)
		s.subscribe("m", `mutation { touch(token: "a") { token } fail { id } }`)
		s.expect(`{"id":"m","type":"next","payload":{"data":{"touch":{"token":"d1"},"fail":null},"errors":[{"message":"device \"x\" does not exist",`+
			`"locations":[{"line":1,"column":40}],"path":["fail"],"extensions":{"code":"NOT_FOUND"}}]}}`, `{"id":"m","type":"complete"}`)
		for id, query := range map[string]string{
			"a": `{`, "b": `{ nothing }`, "c": `{` + testAliases(21, "ping") + `}`, "d": `subscription { refused }`, "e": `subscription { counts(x: 1) }`,
			"f": `query($x: Int!) { echo(int: $x) }`, "g": `subscription { counts refused }`, "h": `{ __schema { description } }`,
		} {
			s.subscribe(id, query)
			m, err := s.read()
			if err != nil || !strings.HasPrefix(m, `{"id":"`+id+`","type":"error","payload":[{"message":"`) {
				t.Errorf("%s: %s %v", query, m, err)
			}
		}
	})
}

func TestAuthorityOverASocket(t *testing.T) {
	inSocketWorld(t, Config{}, func(t *testing.T, w *socketWorld) {
		anonymous := w.dial(t, subprotocol)
		anonymous.send(`{"type":"connection_init"}`)
		anonymous.expect(`{"type":"connection_ack"}`)
		anonymous.subscribe("1", `subscription { counts }`)
		anonymous.expect(`{"id":"1","type":"error","payload":[{"message":"unauthenticated: a token is required","extensions":{"code":"UNAUTHENTICATED"}}]}`)
		poor := w.open(t, "poor")
		poor.subscribe("1", `subscription { counts }`)
		poor.expect(`{"id":"1","type":"error","payload":[{"message":"forbidden: device:read is required","extensions":{"code":"FORBIDDEN"}}]}`)
		if w.counts.Busy() {
			t.Error("a refused subscription was opened")
		}
	})
}

func TestWhatEndsAConnectionAndHow(t *testing.T) {
	const init = `{"type":"connection_init","payload":{"Authorization":"Bearer good"}}`
	for _, c := range []struct {
		name string
		send []string
		code websocket.StatusCode
	}{
		{"no JSON", []string{`{`}, 4400},
		{"an array", []string{`[]`}, 4400},
		{"null", []string{`null`}, 4400},
		{"no type", []string{`{}`}, 4400},
		{"unknown type", []string{init, `{"type":"start"}`}, 4400},
		{"type of the wrong kind", []string{`{"type":5}`}, 4400},
		{"id of the wrong kind", []string{init, `{"id":5,"type":"subscribe","payload":{"query":"{ ping }"}}`}, 4400},
		{"subscribe without an id", []string{init, `{"type":"subscribe","payload":{"query":"{ ping }"}}`}, 4400},
		{"subscribe without a payload", []string{init, `{"id":"1","type":"subscribe"}`}, 4400},
		{"subscribe without a query", []string{init, `{"id":"1","type":"subscribe","payload":{}}`}, 4400},
		{"variables of the wrong kind", []string{init, `{"id":"1","type":"subscribe","payload":{"query":"{ ping }","variables":5}}`}, 4400},
		{"complete without an id", []string{init, `{"type":"complete"}`}, 4400},
		{"init with a malformed payload", []string{`{"type":"connection_init","payload":5}`}, 4400},
		{"init with a malformed token", []string{`{"type":"connection_init","payload":{"Authorization":5}}`}, 4400},
		{"subscribe before init", []string{`{"id":"1","type":"subscribe","payload":{"query":"{ ping }"}}`}, 4401},
		{"a bad token", []string{`{"type":"connection_init","payload":{"Authorization":"Bearer bad"}}`}, 4401},
		{"another scheme", []string{`{"type":"connection_init","payload":{"Authorization":"Basic good"}}`}, 4401},
		{"a scheme without a token", []string{`{"type":"connection_init","payload":{"token":"Bearer "}}`}, 4401},
		{"a bad bare token", []string{`{"type":"connection_init","payload":{"token":"bad"}}`}, 4401},
		{"a token under another key that is no string", []string{`{"type":"connection_init","payload":{"headers":{"authorization":5}}}`}, 4400},
		{"two different tokens", []string{`{"type":"connection_init","payload":{"Authorization":"Bearer good","token":"other"}}`}, 4400},
		{"a service token", []string{`{"type":"connection_init","payload":{"Authorization":"Bearer service"}}`}, 4401},
		{"a token of somebody else", []string{init, `{"type":"ping","payload":{"Authorization":"Bearer other"}}`}, 4401},
		{"a bad token later", []string{init, `{"type":"ping","payload":{"Authorization":"Bearer bad"}}`}, 4401},
		{"a malformed token later", []string{init, `{"type":"ping","payload":{"Authorization":5}}`}, 4400},
		{"an id in use", []string{init, `{"id":"1","type":"subscribe","payload":{"query":"subscription { counts }"}}`,
			`{"id":"1","type":"subscribe","payload":{"query":"{ ping }"}}`}, 4409},
		{"a second init", []string{init, init}, 4429},
		{"no init in time", nil, 4408},
		{"silence", []string{init}, websocket.StatusPolicyViolation},
		{"the key store is away", []string{`{"type":"connection_init","payload":{"Authorization":"Bearer down"}}`}, websocket.StatusInternalError},
		{"authentication breaks", []string{`{"type":"connection_init","payload":{"Authorization":"Bearer broken"}}`}, websocket.StatusInternalError},
		{"a message over the limit", []string{init, `{"type":"ping","payload":{"x":"` + strings.Repeat("x", 5000) + `"}}`}, websocket.StatusMessageTooBig},
	} {
		t.Run(c.name, func(t *testing.T) {
			inSocketWorld(t, Config{Limits: Limits{BodyBytes: 4096}}, func(t *testing.T, w *socketWorld) {
				start := time.Now()
				s := w.dial(t, subprotocol)
				for i, text := range c.send {
					s.send(text)
					if text == init && i == 0 {
						s.expect(`{"type":"connection_ack"}`)
					}
				}
				s.expectClose(c.code)
				took := time.Since(start)
				switch c.code {
				case 4408:
					if took < initWithin || took > initWithin+time.Second {
						t.Errorf("closed after %v", took)
					}
				case websocket.StatusPolicyViolation:
					if took < maxSilence || took > maxSilence+time.Second {
						t.Errorf("closed after %v", took)
					}
				}
			})
		})
	}
}

func TestBinaryMessagesAndOtherSubprotocolsAreMalformed(t *testing.T) {
	inSocketWorld(t, Config{}, func(t *testing.T, w *socketWorld) {
		for _, protocols := range [][]string{nil, {"graphql-ws"}} {
			w.dial(t, protocols...).expectClose(closeMalformed)
		}
		s := w.dial(t, "graphql-ws", subprotocol)
		if err := s.conn.Write(t.Context(), websocket.MessageBinary, []byte(`{"type":"ping"}`)); err != nil {
			t.Fatal(err)
		}
		s.expectClose(closeMalformed)
	})
}

func TestPingsKeepAConnectionOpen(t *testing.T) {
	inSocketWorld(t, Config{}, func(t *testing.T, w *socketWorld) {
		s := w.open(t, "good")
		start := time.Now()
		for range 4 { // the server's own pings, each answered
			s.expect(`{"type":"ping"}`)
			s.send(`{"type":"pong","payload":{"any":1}}`)
		}
		if took := time.Since(start); took < 4*pingEvery || took > 4*pingEvery+4*time.Second {
			t.Errorf("four pings took %v", took)
		}
		s.send(`{"type":"ping","payload":{"any":1}}`)
		s.expect(`{"type":"pong"}`)
	})
}

func TestATokenThatEndsClosesWithinASecondUnlessANewOneCame(t *testing.T) {
	inSocketWorld(t, Config{}, func(t *testing.T, w *socketWorld) {
		start := time.Now()
		expiring, renewed, revoked := w.open(t, "minute"), w.open(t, "minute"), w.open(t, "hour")
		for _, s := range []*testSocket{expiring, renewed, revoked} {
			s.receive()
		}
		renewed.subscribe("1", `subscription { counts }`)
		renewed.send(`{"type":"ping","payload":{"Authorization":"Bearer hour"}}`)
		renewed.expect(`{"type":"pong"}`)
		<-time.After(30 * time.Second)
		for _, s := range []*testSocket{expiring, renewed, revoked} {
			s.send(`{"type":"ping"}`)
			s.expect(`{"type":"ping"}`, `{"type":"pong"}`) // the first is the server's own
		}
		expiring.expectClose(closeUnauthorized)
		if took := time.Since(start); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("expired after %v", took)
		}
		w.counts.Publish(1) // no gap in the renewed one
		for {
			m, err := renewed.read()
			if err != nil {
				t.Fatal(err)
			}
			if m == `{"type":"ping"}` {
				continue
			}
			if m != `{"id":"1","type":"next","payload":{"data":{"counts":1}}}` {
				t.Errorf("got %s", m)
			}
			break
		}
		w.mu.Lock()
		w.revoked["hour"] = true
		w.mu.Unlock()
		at := time.Now()
		revoked.expectClose(closeUnauthorized)
		renewed.expectClose(closeUnauthorized)
		if took := time.Since(at); took > time.Second {
			t.Errorf("revoked %v later", took)
		}
	})
}

func TestConnectionsAndSubscriptionsAreBounded(t *testing.T) {
	limits := Limits{Connections: 5, ConnectionsPerIdentity: 2, Subscriptions: 3}
	inSocketWorld(t, Config{Limits: limits}, func(t *testing.T, w *socketWorld) {
		first := w.open(t, "good")
		w.open(t, "good")
		third := w.dial(t, subprotocol)
		third.send(`{"type":"connection_init","payload":{"Authorization":"Bearer good"}}`)
		third.expectClose(closeTryAgainLater)
		other := w.open(t, "other")
		synctest.Wait()
		for range 2 { // of nobody: these count for their address
			s := w.dial(t, subprotocol)
			s.send(`{"type":"connection_init"}`)
			s.expect(`{"type":"connection_ack"}`)
		}
		_, resp, err := websocket.Dial(t.Context(), "ws://weir/graphql", &websocket.DialOptions{HTTPClient: w.client, Subprotocols: []string{subprotocol}})
		if err == nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Errorf("the sixth: %v", err)
		}
		// A place that was given back is free again.
		_ = other.conn.Close(websocket.StatusNormalClosure, "")
		_ = first.conn.Close(websocket.StatusNormalClosure, "")
		synctest.Wait()
		s := w.open(t, "good")
		for id := range 3 {
			s.subscribe(fmt.Sprint(id), `subscription { counts }`)
		}
		s.subscribe("3", `subscription { counts }`)
		m, err := s.read()
		if err != nil || !strings.HasPrefix(m, `{"id":"3","type":"error"`) || !strings.Contains(m, "LIMIT_EXCEEDED") {
			t.Errorf("%s %v", m, err)
		}
		s.send(`{"id":"0","type":"complete"}`)
		s.subscribe("3", `{ ping }`)
		s.expect(`{"id":"3","type":"next","payload":{"data":{"ping":"pong"}}}`, `{"id":"3","type":"complete"}`)
	})
}

func TestSubscriptionsOfAnIdentityAreBoundedOverItsConnections(t *testing.T) {
	inSocketWorld(t, Config{Limits: Limits{Subscriptions: 3, SubscriptionsPerIdentity: 4}}, func(t *testing.T, w *socketWorld) {
		first, second, other := w.open(t, "good"), w.open(t, "good"), w.open(t, "other")
		for id := range 3 {
			first.subscribe(fmt.Sprint(id), `subscription { counts }`)
			other.subscribe(fmt.Sprint(id), `subscription { counts }`)
		}
		synctest.Wait()
		second.subscribe("3", `subscription { counts }`)
		synctest.Wait()
		second.subscribe("4", `subscription { counts }`)
		m, err := second.read()
		if err != nil || !strings.HasPrefix(m, `{"id":"4","type":"error"`) || !strings.Contains(m, "an identity may have 4 subscriptions at a time") {
			t.Errorf("%s %v", m, err)
		}
		// A connection that closes gives back what it had.
		_ = first.conn.Close(websocket.StatusNormalClosure, "")
		synctest.Wait()
		second.subscribe("4", `subscription { counts }`)
		synctest.Wait()
		second.subscribe("5", `{ ping }`)
		second.expect(`{"id":"5","type":"next","payload":{"data":{"ping":"pong"}}}`, `{"id":"5","type":"complete"}`)
	})
}

func TestAStopClosesConnectionsAsGoingAway(t *testing.T) {
	inSocketWorld(t, Config{}, func(t *testing.T, w *socketWorld) {
		s := w.open(t, "good")
		s.subscribe("1", `subscription { counts }`)
		done := make(chan error)
		go func() { done <- w.server.Drain(t.Context()) }()
		s.expectClose(closeGoingAway)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestAPeerThatTakesNothingLosesTheConnection(t *testing.T) {
	inSocketWorld(t, Config{}, func(t *testing.T, w *socketWorld) {
		s := w.open(t, "good")
		s.subscribe("1", `subscription { counts }`)
		synctest.Wait()
		w.counts.Publish(1)
		<-time.After(writeWithin + time.Second) // a pipe has no buffer, and nobody reads
		synctest.Wait()
		if w.counts.Busy() {
			t.Error("the subscription goes on")
		}
	})
}

func FuzzSocketMessage(f *testing.F) {
	for _, seed := range []string{`{"type":"connection_init","payload":{"Authorization":"Bearer x"}}`, `{"id":"1","type":"subscribe","payload":{"query":"{ ping }"}}`,
		`{"type":5}`, `null`, `[]`, `{"type":"ping","payload":"x"}`, "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, ok := parseMessage(websocket.MessageText, data)
		if ok == (m.Type == "") {
			t.Errorf("%+v %v", m, ok)
		}
		authorization, ok := authorizationOf(m.Payload)
		if !ok && authorization != "" {
			t.Errorf("%q", authorization)
		}
	})
}
