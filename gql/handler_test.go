package gql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/gql/engine"
	"weir/internal/requestid"
	"weir/model"
)

// testTokens is an Authenticate over a table. The key "" stands for callers without a token.
type testSessions map[string]Session

func (s testSessions) authenticate(_ context.Context, c Credentials) (Session, error) {
	switch c.Bearer {
	case "":
		return Session{}, nil
	case "down":
		return Session{}, model.Errorf(model.CodeUnavailable, "the key store does not answer")
	case "broken":
		return Session{}, errors.New("dsn=postgres://secret")
	}
	session, ok := s[c.Bearer]
	if !ok {
		return Session{}, model.Unauthenticated("the token is not valid")
	}
	if p := session.Principal; p != nil && p.Kind == model.ServiceCaller {
		q := *p
		q.Tenant = c.Tenant
		session.Principal = &q
	}
	return session, nil
}

func testHandler(t testing.TB, cfg Config) (*world, http.Handler) {
	w := newWorld(t, cfg)
	return w, w.server.Handler("test", testSessions{
		"good": {Principal: testReader(model.AllAuthorities)}, "identity": {Principal: &model.Principal{Kind: model.IdentityCaller}},
		"service": {Principal: model.Service("svc", "", 0, model.DeviceRead)}, "empty": {},
	}.authenticate)
}

func TestHTTPStatuses(t *testing.T) {
	w, h := testHandler(t, Config{Limits: Limits{BodyBytes: 4096}})
	const ping = `{"query":"{ ping }"}`
	for _, c := range []struct {
		name, method, header, body string
		status                     int
		want                       string
	}{
		{"a query", "POST", "", ping, 200, `{"data":{"ping":"pong"}}`},
		{"with members that nobody knows", "POST", "", `{"query":"{ ping }","extensions":{},"x":1,"Query":"{ no }"}`, 200, `{"data":{"ping":"pong"}}`},
		{"null variables and name", "POST", "", `{"query":"{ ping }","variables":null,"operationName":null}`, 200, `{"data":{"ping":"pong"}}`},
		{"content type with charset", "POST", "Content-Type: application/json; charset=utf-8", ping, 200, `pong`},
		{"a GraphQL error", "POST", "", `{"query":"{ nothing }"}`, 200, `{"errors":[`},
		{"an empty query", "POST", "", `{"query":""}`, 200, `{"errors":[`},
		{"a resolver that refuses", "POST", "", `{"query":"{ all { id } }"}`, 200, `unauthenticated`},
		{"no JSON", "POST", "", `{`, 400, `{"errors":[{"message":"the body is no JSON object"}]}`},
		{"nothing", "POST", "", ``, 400, `no JSON object`},
		{"null", "POST", "", `null`, 400, `no JSON object`},
		{"a string", "POST", "", `"x"`, 400, `no JSON object`},
		{"two values", "POST", "", ping + ping, 400, `no JSON object`},
		{"a batch", "POST", "", ` [` + ping + `]`, 400, `batches`},
		{"no query", "POST", "", `{"variables":{}}`, 400, `"query\" is missing`},
		{"query null", "POST", "", `{"query":null}`, 400, `"query\" is missing`},
		{"query of the wrong type", "POST", "", `{"query":5}`, 400, `\"query\" has the wrong type`},
		{"variables of the wrong type", "POST", "", `{"query":"{ ping }","variables":[]}`, 400, `\"variables\" has the wrong type`},
		{"operationName of the wrong type", "POST", "", `{"query":"{ ping }","operationName":5}`, 400, `\"operationName\" has the wrong type`},
		{"a body that just fits", "POST", "", ping + strings.Repeat(" ", 4096-len(ping)), 200, `pong`},
		{"a body over the limit", "POST", "", ping + strings.Repeat(" ", 4097-len(ping)), 400, `LIMIT_EXCEEDED`},
		{"another content type", "POST", "Content-Type: text/plain", ping, 415, `application/json`},
		{"GET", "GET", "", ``, 405, `POST`},
		{"PUT", "PUT", "", ping, 405, `POST`},
		{"DELETE", "DELETE", "", ``, 405, `POST`},
		{"OPTIONS", "OPTIONS", "", ``, 405, `POST`},
		{"a good token", "POST", "Authorization: Bearer good", `{"query":"{ free }"}`, 200, `ada`},
		{"scheme in another case", "POST", "Authorization: bEARER  good", `{"query":"{ free }"}`, 200, `ada`},
		{"a bad token", "POST", "Authorization: Bearer bad", ping, 401, `{"errors":[{"message":"unauthenticated: the token is not valid","extensions":{"code":"UNAUTHENTICATED"}}]}`},
		{"a token that stands for nobody", "POST", "Authorization: Bearer empty", ping, 401, `UNAUTHENTICATED`},
		{"a page of another host", "POST", "Origin: http://evil.example", ping, 403, `a page of another host needs a token`},
		{"a page of another host with a token", "POST", "Origin: http://evil.example\nAuthorization: Bearer good", ping, 200, `pong`},
		{"a page of its own", "POST", "Origin: https://example.com", ping, 200, `pong`}, // httptest's host
		{"another scheme", "POST", "Authorization: Basic good", ping, 401, `UNAUTHENTICATED`},
		{"a scheme without a token", "POST", "Authorization: Bearer", ping, 401, `UNAUTHENTICATED`},
		{"an identity token", "POST", "Authorization: Bearer identity", ping, 401, `kind of token`},
		{"the key store is away", "POST", "Authorization: Bearer down", ping, 503, `UNAVAILABLE`},
		{"authentication breaks", "POST", "Authorization: Bearer broken", ping, 500, `"message":"internal error"`},
		{"a service token with a tenant", "POST", "Authorization: Bearer service\nX-Weir-Tenant: t1", `{"query":"{ device(token: \"x\") { id } }"}`, 200, `{"data":{"device":null}}`},
		{"a service token without", "POST", "Authorization: Bearer service", `{"query":"{ device(token: \"x\") { id } }"}`, 200, `no tenant is resolved`},
	} {
		r := httptest.NewRequest(c.method, "/graphql", strings.NewReader(c.body))
		r.Header.Set("Content-Type", "application/json")
		for line := range strings.SplitSeq(c.header, "\n") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				r.Header.Set(name, value)
			}
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if rec.Code != c.status || !strings.Contains(rec.Body.String(), c.want) {
			t.Errorf("%s: %d %s, want %d %s", c.name, rec.Code, rec.Body, c.status, c.want)
		}
		if ct := rec.Header().Get("Content-Type"); ct != "application/json; charset=utf-8" {
			t.Errorf("%s: content type %q", c.name, ct)
		}
		if (rec.Code == 401) != (rec.Header().Get("WWW-Authenticate") != "") || (rec.Code == 405) != (rec.Header().Get("Allow") == "POST") {
			t.Errorf("%s: %v", c.name, rec.Header())
		}
		if strings.Contains(rec.Body.String(), "secret") || !requestid.Valid(rec.Header().Get(requestid.Header)) {
			t.Errorf("%s: %s %v", c.name, rec.Body, rec.Header())
		}
	}
	if !strings.Contains(w.log.String(), "dsn=postgres://secret") {
		t.Error("the broken authentication was not logged")
	}
}

// GraphQL over HTTP: a client that prefers application/graphql-response+json learns from the status what became of its document.
func TestTheAnswerHasTheMediaTypeThatIsPreferred(t *testing.T) {
	_, h := testHandler(t, Config{})
	const response, plain = "application/graphql-response+json; charset=utf-8", "application/json; charset=utf-8"
	const executed, refused, syntax, coercion, failed = `{"query":"{ ping }"}`, `{"query":"{ nothing }"}`, `{"query":"{"}`,
		`{"query":"query($t: String!) { device(token: $t) { id } }"}`, `{"query":"{ all { id } }"}`
	for _, c := range []struct {
		accept, body, media string
		status              int
	}{
		{"", executed, plain, 200}, {"", refused, plain, 200}, {"*/*", syntax, plain, 200}, {"application/json", coercion, plain, 200},
		{"text/html", executed, plain, 200}, {"application/*", refused, plain, 200},
		{"application/graphql-response+json", executed, response, 200}, {"application/graphql-response+json", failed, response, 200},
		{"application/graphql-response+json", refused, response, 400}, {"application/graphql-response+json", syntax, response, 400},
		{"application/graphql-response+json", coercion, response, 400}, {"application/graphql-response+json", `{"query":"subscription { x }"}`, response, 400},
		{"application/graphql-response+json", `{}`, response, 400}, {"application/graphql-response+json", `no JSON`, response, 400},
		{"Application/GraphQL-Response+JSON; charset=utf-8", refused, response, 400},
		{"application/graphql-response+json, application/json;q=0.9, */*;q=0.1", refused, response, 400},
		{"application/json, application/graphql-response+json", refused, response, 400},
		{"application/json, application/graphql-response+json;q=0.9", refused, plain, 200},
		{"application/graphql-response+json;q=0", refused, plain, 200}, {"application/graphql-response+json;q=x", refused, plain, 200},
		{"application/graphql-response+json;=, application/json", refused, plain, 200},
	} {
		r := httptest.NewRequest("POST", "/graphql", strings.NewReader(c.body))
		if c.accept != "" {
			r.Header.Set("Accept", c.accept)
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if rec.Code != c.status || rec.Header().Get("Content-Type") != c.media {
			t.Errorf("%s: %s: %d %s %s", c.accept, c.body, rec.Code, rec.Header().Get("Content-Type"), rec.Body)
		}
		if data := strings.Contains(rec.Body.String(), `"data"`); data != (c.body == executed || c.body == failed) {
			t.Errorf("%s: %s: %s", c.accept, c.body, rec.Body)
		}
	}
	for _, c := range []struct {
		method, token string
		status        int
	}{{"GET", "", 405}, {"POST", "bad", 401}, {"POST", "down", 503}} {
		r := httptest.NewRequest(c.method, "/graphql", strings.NewReader(executed))
		r.Header.Set("Accept", "application/graphql-response+json")
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		rec := httptest.NewRecorder()
		if h.ServeHTTP(rec, r); rec.Code != c.status || rec.Header().Get("Content-Type") != response {
			t.Errorf("%s %s: %d %s", c.method, c.token, rec.Code, rec.Header().Get("Content-Type"))
		}
	}
}

func TestTheIdentityPlaneAnswersNobodyWithoutAToken(t *testing.T) {
	s := New(Config{})
	a := s.AreaOf("admin", IdentityPlane, `type Query { me: String }`)
	a.Query("me", AnyCaller(), func(ctx context.Context, _ any, _ engine.Args) (any, error) { return PrincipalFrom(ctx).Subject, nil })
	if err := s.Build(); err != nil {
		t.Fatal(err)
	}
	h := s.Handler("admin", testSessions{
		"operator": {Principal: &model.Principal{Kind: model.IdentityCaller, Subject: "op", System: map[model.Authority]bool{model.UserRead: true}}},
		"nobody":   {Principal: &model.Principal{Kind: model.IdentityCaller, Subject: "nob"}},
		"access":   {Principal: testReader(model.AllAuthorities)}, "service": {Principal: model.Service("s", "", 0, model.UserRead)},
	}.authenticate)
	for _, c := range []struct {
		token  string
		status int
		want   string
	}{{"", 401, "identity token"}, {"access", 401, "kind of token"}, {"service", 401, "kind of token"}, {"bad", 401, "not valid"},
		{"nobody", 200, "forbidden: a system role"}, {"operator", 200, `{"data":{"me":"op"}}`}} {
		r := httptest.NewRequest("POST", "/graphql", strings.NewReader(`{"query":"{ me }"}`))
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if rec.Code != c.status || !strings.Contains(rec.Body.String(), c.want) {
			t.Errorf("%q: %d %s", c.token, rec.Code, rec.Body)
		}
	}
	r := httptest.NewRequest("GET", "/graphql", nil)
	r.Header.Set("Upgrade", "websocket")
	rec := httptest.NewRecorder()
	if h.ServeHTTP(rec, r); rec.Code != 405 {
		t.Errorf("WebSocket on the identity plane: %d", rec.Code)
	}
}

func TestAReaderThatBreaksOffIsABadRequest(t *testing.T) {
	_, h := testHandler(t, Config{})
	r := httptest.NewRequest("POST", "/graphql", io.MultiReader(strings.NewReader(`{"query":`), failing{}))
	rec := httptest.NewRecorder()
	if h.ServeHTTP(rec, r); rec.Code != 400 || !strings.Contains(rec.Body.String(), "could not be read") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

func TestTooMuchAtOnceWaitsAndIsThenRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h := testHandler(t, Config{Limits: Limits{BodyBytes: 1 << 20, PendingBytes: 1 << 20, Limits: engine.Limits{Time: time.Minute}}})
		ask := func(query string) *httptest.ResponseRecorder {
			rec := httptest.NewRecorder()
			body := fmt.Sprintf(`{"query":%q}`, query) + strings.Repeat(" ", 900<<10)
			r := httptest.NewRequest("POST", "/graphql", strings.NewReader(body))
			r.Header.Set("Authorization", "Bearer good")
			h.ServeHTTP(rec, r)
			return rec
		}
		go ask(`{ slow }`)
		synctest.Wait()
		start := time.Now()
		rec := ask(`{ ping }`)
		if rec.Code != 503 || rec.Header().Get("Retry-After") != "1" || time.Since(start) != admissionTimeout {
			t.Errorf("%d after %v", rec.Code, time.Since(start))
		}
		small := httptest.NewRecorder()
		if h.ServeHTTP(small, httptest.NewRequest("POST", "/graphql", strings.NewReader(`{"query":"{ ping }"}`))); small.Code != 200 {
			t.Errorf("a small one: %d", small.Code)
		}
		<-time.After(50 * time.Second) // of the bubble: the slow one is over
		if rec := ask(`{ ping }`); rec.Code != 200 {
			t.Errorf("afterwards: %d", rec.Code)
		}
	})
}

func TestDrainingWaitsForWhatRunsAndRefusesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, h := testHandler(t, Config{})
		slow := httptest.NewRecorder()
		go h.ServeHTTP(slow, httptest.NewRequest("POST", "/graphql", strings.NewReader(`{"query":"{ slow }"}`)))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.server.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("drained while a request runs: %v", err)
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest("POST", "/graphql", strings.NewReader(`{"query":"{ ping }"}`)))
		if rec.Code != 503 || rec.Header().Get("Retry-After") == "" || !strings.Contains(rec.Body.String(), "stopping") {
			t.Errorf("%d %s", rec.Code, rec.Body)
		}
		if err := w.server.Drain(t.Context()); err != nil || !strings.Contains(slow.Body.String(), "LIMIT_EXCEEDED") {
			t.Errorf("%v, the slow one got %s", err, slow.Body)
		}
		if err := w.server.Drain(t.Context()); err != nil {
			t.Errorf("again: %v", err)
		}
	})
}
