package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/requestid"
	"weir/internal/test/conformance"
	"weir/internal/test/fixture"
)

func echoPath(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s %s", name, r.Method, r.URL.Path, requestid.From(r.Context()))
	})
}

func testConfig() Config {
	area := func(name, variant, plane, token string) Area {
		a := Area{Name: name, Variant: variant, Plane: plane, Token: token}
		a.SDL, a.Handler = "# Weir "+a.file()+"\ntype Query { a: Int }\n", echoPath(a.file())
		return a
	}
	sources := area("event-sources", "", "tenant", "access")
	return Config{
		Areas: []Area{area("device-management", "", "tenant", "access"), area("user-management", "", "tenant", "access"),
			area("user-management", "admin", "identity", "identity"), area("user-management", "settings", "identity", "identity"), sources},
		Absent:   []Absent{{"event-sources", "a placeholder"}, {"lwm2m-ingest", "devices only"}},
		Handlers: map[string]http.Handler{"GET /api/user-management/auth/jwks": echoPath("jwks"), "/api/user-management/auth/service-token": echoPath("service-token")},
	}
}

func newServer(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func get(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set(requestid.Header, "rid")
	h.ServeHTTP(w, r)
	return w
}

func TestRoutes(t *testing.T) {
	cfg := testConfig()
	cfg.DevTools = true
	h := newServer(t, cfg).Handler()
	for _, c := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"POST", "/api/device-management/graphql", 200, "device-management POST /graphql rid"},
		{"GET", "/api/device-management/graphql", 200, "device-management GET /graphql rid"},
		{"PUT", "/api/device-management/graphql", 200, "device-management PUT /graphql rid"},
		{"POST", "/api/user-management/graphql", 200, "user-management POST /graphql rid"},
		{"POST", "/api/user-management/admin/graphql", 200, "user-management-admin POST /graphql rid"},
		{"POST", "/api/user-management/settings/graphql", 200, "user-management-settings POST /graphql rid"},
		{"POST", "/api/event-sources/graphql", 200, "event-sources POST /graphql rid"},
		{"POST", "/api/sparkplug-ingest/graphql", 404, ""},
		{"POST", "/api/lwm2m-ingest/graphql", 404, ""},
		{"POST", "/api/nothing/graphql", 404, ""},
		{"POST", "/api/ai-inference/admin/graphql", 404, ""},
		{"POST", "/api/device-management/graphql/more", 404, ""},
		{"POST", "/graphql", 404, ""},
		{"GET", "/", 404, ""},
		{"GET", "/api/user-management/auth/jwks", 200, "jwks"},
		{"POST", "/api/user-management/auth/jwks", 405, ""},
		{"POST", "/api/user-management/auth/service-token", 200, "service-token"},
		{"GET", "/healthz", 200, "ok\n"},
		{"POST", "/healthz", 405, ""},
		{"GET", "/readyz", 200, "ready\n"},
		{"GET", "/metrics", 404, ""},
		{"GET", "/api/device-management/graphiql", 200, "<!doctype html>"},
		{"GET", "/api/user-management/admin/graphiql", 200, "<!doctype html>"},
		{"POST", "/api/device-management/graphiql", 405, ""},
	} {
		w := get(h, c.method, c.path)
		if w.Code != c.status || !strings.HasPrefix(w.Body.String(), c.body) || w.Header().Get(requestid.Header) != "rid" {
			t.Errorf("%s %s: %d %.80s %v", c.method, c.path, w.Code, w.Body, w.Header())
		}
	}
}

func TestTheExplorerIsThereOnlyWithDevTools(t *testing.T) {
	cfg := testConfig()
	off := newServer(t, cfg).Handler()
	cfg.DevTools = true
	on := newServer(t, cfg).Handler()
	for _, a := range cfg.Areas {
		path := a.prefix() + "/graphiql"
		if w := get(off, "GET", path); w.Code != 404 {
			t.Errorf("off: %s: %d", path, w.Code)
		}
		w := get(on, "GET", path)
		if w.Code != 200 || w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("on: %s: %d %v", path, w.Code, w.Header())
		}
	}
	for _, a := range cfg.Areas {
		page := get(on, "GET", a.prefix()+"/graphiql").Body.String()
		for _, other := range cfg.Areas {
			if !strings.Contains(page, `<option value="`+other.ExplorerPath()+`"`) {
				t.Errorf("%s does not lead to %s", a.ExplorerPath(), other.ExplorerPath())
			}
		}
		if !strings.Contains(page, `<option value="`+a.ExplorerPath()+`" data-example="" selected>`) {
			t.Errorf("%s: %.2000s", a.ExplorerPath(), page)
		}
		up := strings.Repeat("../", strings.Count(a.ExplorerPath(), "/"))
		if !strings.Contains(page, `href="`+up+`explorer/explorer.css"`) || !strings.Contains(page, `src="`+up+`explorer/explorer.js"`) {
			t.Errorf("%s: what it loads is not found by %s", a.ExplorerPath(), up)
		}
		// The endpoint lies next to the page, by whatever way that was reached.
		_, endpoint, _ := strings.Cut(page, `data-endpoint="`)
		endpoint, _, _ = strings.Cut(endpoint, `"`)
		for _, base := range []string{"http://gateway:8080", "https://iot.example/x/y"} {
			reached, err := url.Parse(base + "/" + a.ExplorerPath())
			if err != nil {
				t.Fatal(err)
			}
			asked, err := reached.Parse(endpoint)
			if err != nil || asked.String() != base+a.Endpoint() {
				t.Errorf("%s asks %v: %v", reached, asked, err)
			}
		}
		if strings.Contains(page, "http:") || strings.Contains(page, "https:") {
			t.Errorf("%s names another host", a.ExplorerPath())
		}
	}
	// The policy runs no script and applies no style that stands in the page, and none from elsewhere.
	csp := get(on, "GET", cfg.Areas[0].prefix()+"/graphiql").Header().Get("Content-Security-Policy")
	for directive := range strings.SplitSeq(csp, "; ") {
		if _, sources, _ := strings.Cut(directive, " "); sources != "'self'" && sources != "'none'" {
			t.Error(csp)
		}
	}
	if !strings.HasPrefix(csp, "default-src 'none'; script-src 'self'; style-src 'self'; ") {
		t.Error(csp)
	}
	conformance.Shown(t, "S3-108", "S3-109")
}

// What the page loads is kept compressed; a client that takes nothing compressed gets the same bytes.
func TestTheExplorerLoadsWhatWasBuilt(t *testing.T) {
	cfg := testConfig()
	off := newServer(t, cfg).Handler()
	cfg.DevTools = true
	on := newServer(t, cfg).Handler()
	embedded := 0
	for path, contentType := range map[string]string{"/explorer/explorer.js": "text/javascript; charset=utf-8", "/explorer/explorer.css": "text/css; charset=utf-8"} {
		if w := get(off, "GET", path); w.Code != 404 {
			t.Errorf("%s without developer tools: %d", path, w.Code)
		}
		plain := get(on, "GET", path)
		if plain.Code != 200 || plain.Header().Get("Content-Type") != contentType || plain.Header().Get("Content-Encoding") != "" || plain.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: %d %v", path, plain.Code, plain.Header())
		}
		for accept, want := range map[string]string{"gzip": "gzip", "deflate, GZIP;q=0.5": "gzip", "*": "gzip", "gzip;q=0": "", "br, gzip; q=0.0": "", "identity": ""} {
			r := httptest.NewRequest("GET", path, nil)
			r.Header.Set("Accept-Encoding", accept)
			w := httptest.NewRecorder()
			on.ServeHTTP(w, r)
			if got := w.Header().Get("Content-Encoding"); got != want || w.Code != 200 {
				t.Errorf("%s, accepting %s: %d, %q", path, accept, w.Code, got)
				continue
			}
			body := w.Body.Bytes()
			if want == "gzip" {
				embedded = max(embedded, len(body))
				z, err := gzip.NewReader(w.Body)
				if err != nil {
					t.Fatal(err)
				}
				if body, err = io.ReadAll(z); err != nil {
					t.Fatal(err)
				}
				r.Header.Set("If-None-Match", w.Header().Get("ETag"))
				again := httptest.NewRecorder()
				if on.ServeHTTP(again, r); again.Code != 304 {
					t.Errorf("%s, asked again: %d", path, again.Code)
				}
			}
			if !bytes.Equal(body, plain.Body.Bytes()) || len(body) == 0 {
				t.Errorf("%s, accepting %s: other bytes", path, accept)
			}
		}
	}
	if embedded < 100<<10 || embedded > 900<<10 {
		t.Errorf("the script takes %d bytes of the binary", embedded)
	}
}

// A plain build needs no npm: what it takes was made of the sources beside it.
func TestTheExplorerWasBuiltOfItsSources(t *testing.T) {
	sum := sha256.New()
	for _, file := range []string{"package.json", "package-lock.json", "build.mjs", "session.js", "tabs.jsx", "unstyled.js", "explorer.jsx", "explorer.css"} {
		b, err := os.ReadFile("explorer/" + file)
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(b)
	}
	made, err := os.ReadFile("explorer/built/SOURCES")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%x\n", sum.Sum(nil)); string(made) != want {
		t.Error("the sources of web/explorer have changed since: make generate builds it again")
	}
}

func TestTheSchemaIndexNamesEveryArea(t *testing.T) {
	for _, base := range []string{"", "https://iot.example/x"} {
		cfg := testConfig()
		cfg.BaseURL = base
		cfg.DocsURL = strings.ReplaceAll(base, "iot.", "docs.")
		h := newServer(t, cfg).Handler()
		w := get(h, "GET", "/schema/index.json")
		var got index
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Header().Get("Access-Control-Allow-Origin") != "*" ||
			w.Header().Get("Content-Type") != "application/json" {
			t.Fatalf("%v %s %v", err, w.Body, w.Header())
		}
		want := base
		if want == "" {
			want = "http://example.com"
		}
		if got.BaseURL != want || got.Description == "" || got.EndpointPattern != "{base_url}/api/<area>/graphql" || len(got.Planes) != 3 ||
			got.Planes["identity"].Token != "identity" {
			t.Errorf("%+v", got)
		}
		docs := strings.ReplaceAll(want, "iot.", "docs.")
		var lines []string
		for _, e := range got.Areas {
			api := e.API == nil
			lines = append(lines, fmt.Sprint(e.Area, " ", api, " ", e.Plane, " ", e.Token, " ", strings.TrimPrefix(e.Endpoint, want), " ", strings.TrimPrefix(e.Schema, docs), " ", e.Note))
			if api {
				path := strings.TrimPrefix(e.Schema, docs)
				if file := get(h, "GET", path); file.Code != 200 || !strings.HasPrefix(file.Body.String(), "# Weir "+strings.TrimSuffix(strings.TrimPrefix(path, "/schema/"), ".graphql")) ||
					file.Header().Get("Content-Type") != "text/plain; charset=utf-8" || file.Header().Get("Access-Control-Allow-Origin") != "*" {
					t.Errorf("%s: %d %s %v", path, file.Code, file.Body, file.Header())
				}
			}
		}
		if all := strings.Join(lines, "\n"); all != `device-management true tenant access /api/device-management/graphql /schema/device-management.graphql 
user-management true tenant access /api/user-management/graphql /schema/user-management.graphql 
user-management true identity identity /api/user-management/admin/graphql /schema/user-management-admin.graphql 
user-management true identity identity /api/user-management/settings/graphql /schema/user-management-settings.graphql 
event-sources false     a placeholder
lwm2m-ingest false     devices only` {
			t.Errorf("got\n%s", all)
		}
		var messages []string
		for _, d := range got.Device {
			messages = append(messages, d.Message)
			path := strings.TrimPrefix(d.Schema, docs)
			if file := get(h, "GET", path); path != "/schema/device/"+d.Message+".json" || file.Code != 200 || file.Header().Get("Content-Type") != "application/schema+json" ||
				file.Header().Get("Access-Control-Allow-Origin") != "*" || !json.Valid(file.Body.Bytes()) {
				t.Errorf("%s: %d %v", d.Schema, file.Code, file.Header())
			}
		}
		if all := strings.Join(messages, " "); all != "alert-payload command-delivery command-response device-attributes device-event device-report location-payload measurement-payload new-relationship-payload" {
			t.Error(all)
		}
	}
}

func TestReadyFollowsTheFunction(t *testing.T) {
	var ready atomic.Bool
	cfg := testConfig()
	cfg.Ready = ready.Load
	h := newServer(t, cfg).Handler()
	for _, want := range []int{503, 200, 503} {
		ready.Store(want == 200)
		if w := get(h, "GET", "/readyz"); w.Code != want {
			t.Errorf("%d, want %d", w.Code, want)
		}
		if w := get(h, "GET", "/healthz"); w.Code != 200 {
			t.Errorf("healthz: %d", w.Code)
		}
	}
}

func TestRoutesThatClashAreAnError(t *testing.T) {
	cfg := testConfig()
	cfg.Areas = append(cfg.Areas, cfg.Areas[0])
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "/api/device-management/graphql") {
		t.Errorf("got %v", err)
	}
}

func TestAPanicIsA500AndIsLogged(t *testing.T) {
	var log strings.Builder
	cfg := testConfig()
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	cfg.Handlers["GET /panics"] = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("dsn=secret") })
	s := newServer(t, cfg)
	w := get(s.Handler(), "GET", "/panics")
	if w.Code != 500 || strings.Contains(w.Body.String(), "secret") || !strings.Contains(log.String(), "dsn=secret") || !strings.Contains(log.String(), "request=rid") {
		t.Errorf("%d %s, logged %s", w.Code, w.Body, log.String())
	}
	if testutil.ToFloat64(s.metrics.panics) != 1 {
		t.Error("not counted")
	}
}

func TestMetricsAreOnTheirOwnHandler(t *testing.T) {
	reg := prometheus.NewRegistry()
	cfg := testConfig()
	cfg.Registerer = reg
	newServer(t, cfg)
	w := get(Metrics(reg), "GET", "/metrics")
	if w.Code != 200 || !strings.Contains(w.Body.String(), "weir_http_connections 0") || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := get(Metrics(reg), "GET", "/api/device-management/graphql"); w.Code != 404 {
		t.Errorf("%d", w.Code)
	}
}

func TestShutdownWaitsForRunningRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		release := make(chan struct{})
		cfg.Handlers["GET /waits"] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-release
			fmt.Fprint(w, "done")
		})
		s := newServer(t, cfg)
		l := fixture.NewPipes(0)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		client, server := net.Pipe()
		l.Offer(server)
		answer := make(chan string, 1)
		go func() {
			_, _ = io.WriteString(client, "GET /waits HTTP/1.1\r\nHost: x\r\n\r\n")
			b, _ := io.ReadAll(client)
			answer <- string(b)
		}()
		synctest.Wait()
		stopped := make(chan error, 1)
		go func() { stopped <- s.Shutdown(t.Context()) }()
		synctest.Wait()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		select {
		case err := <-stopped:
			t.Fatalf("did not wait: %v", err)
		default:
		}
		close(release)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if got := <-answer; !strings.Contains(got, "200 OK") || !strings.HasSuffix(got, "done") {
			t.Errorf("got %q", got)
		}
	})
}

func TestShutdownCutsWhatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Handlers["GET /waits"] = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		s := newServer(t, cfg)
		l := fixture.NewPipes(0)
		go func() { _ = s.Serve(l) }()
		client, server := net.Pipe()
		l.Offer(server)
		go func() {
			_, _ = io.WriteString(client, "GET /waits HTTP/1.1\r\nHost: x\r\n\r\n")
			_, _ = io.ReadAll(client)
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err == nil {
			t.Error("said nothing about what it cut")
		}
		synctest.Wait()
	})
}

func TestOpenConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.MaxConnections = 2
		release := make(chan struct{})
		var served atomic.Int32
		cfg.Handlers["GET /waits"] = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			served.Add(1)
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
		s := newServer(t, cfg)
		l := fixture.NewPipes(10)
		go func() { _ = s.Serve(l) }()
		var clients []net.Conn
		for range 3 {
			client, server := net.Pipe()
			l.Offer(server)
			clients = append(clients, client)
			go func() { // a request that is being handled keeps its connection
				_, _ = io.WriteString(client, "GET /waits HTTP/1.1\r\nHost: x\r\n\r\n")
				_, _ = io.Copy(io.Discard, client)
			}()
			synctest.Wait()
		}
		synctest.Wait()
		if n := testutil.ToFloat64(s.listen.Connections); n != 2 || served.Load() != 2 {
			t.Errorf("%v open, %d served", n, served.Load())
		}
		_ = clients[0].Close()
		synctest.Wait()
		if n := testutil.ToFloat64(s.listen.Connections); n != 2 || served.Load() != 3 {
			t.Errorf("%v open, %d served", n, served.Load())
		}
		close(release)
		for _, c := range clients {
			_ = c.Close()
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := testutil.ToFloat64(s.listen.Connections); n != 0 {
			t.Errorf("%v are left", n)
		}
	})
}

func TestAHeaderThatNeverEndsIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, testConfig())
		l := fixture.NewPipes(0)
		go func() { _ = s.Serve(l) }()
		client, server := net.Pipe()
		l.Offer(server)
		start := time.Now()
		go func() { _, _ = io.WriteString(client, "GET /healthz HTTP/1.1\r\nHost:") }()
		_, _ = io.ReadAll(client)
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("cut off after %v", took)
		}
		_ = client.Close()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestTheSchemaIndexSaysWhetherIntrospectionIsOn(t *testing.T) {
	for on, want := range map[bool]string{false: "Introspection is off: the schema files are the reference.", true: "Introspection is on;"} {
		cfg := testConfig()
		cfg.DevTools = on
		if body := get(newServer(t, cfg).Handler(), "GET", "/schema/index.json").Body.String(); !strings.Contains(body, want) {
			t.Errorf("developer tools %v: %.200s", on, body)
		}
	}
}
