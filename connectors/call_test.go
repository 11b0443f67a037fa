package connectors

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/delivery"
	"weir/internal/test/conformance"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

func writePEM(t testing.TB, der []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const theSecret = "the-secret-that-none-reads"

func (w *world) httpSecret(tenant, token, use string, hosts ...string) {
	w.Helper()
	_, err := w.c.SetSecret(w.Context(), w.by(tenant), token, theSecret, hosts, use)
	w.must(err)
}

// TestACallAsTheReceiverSeesIt: method, headers, body and key; and connections are used again.
func TestACallAsTheReceiverSeesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	var got []http.Header
	var body []byte
	conns := map[string]bool{}
	s := w.receiver(func(_ http.ResponseWriter, r *http.Request) {
		conns[r.RemoteAddr] = true
		body, _ = io.ReadAll(r.Body)
		got = append(got, r.Header)
		if r.Method != http.MethodPost || r.URL.Path != "/hook" || r.URL.RawQuery != "a=b" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
	})
	w.httpSecret(acme, "hook", UseBearer, "127.0.0.1:"+portOf(s.URL))
	w.httpSecret(acme, "sign", UseSignature, "127.0.0.1:"+portOf(s.URL))
	url := s.URL + "/hook?a=b"
	for _, d := range []*model.Dispatch{call(url, "", [2]string{"X-Site", "north"}, [2]string{"Content-Type", "text/plain"}), call(url, "http/hook"), call(url, "http/sign")} {
		if o, f := outcome(t, w.c.Call(t.Context(), w.id(acme), d)); o != Sent {
			t.Fatal(f)
		}
		if string(body) != d.Payload {
			t.Errorf("body %s", body)
		}
	}
	h := got[0]
	if h.Get("X-Site") != "north" || h.Get("Content-Type") != "text/plain" || h.Get(delivery.KeyHeader) != "key-1" || h.Get("Authorization") != "" || h.Get("User-Agent") != "weir" {
		t.Error(h)
	}
	if h = got[1]; h.Get("Authorization") != "Bearer "+theSecret || h.Get("Content-Type") != "application/json" || h.Get(signatureHeader) != "" {
		t.Error(h)
	}
	h = got[2]
	seconds, mac, _ := strings.Cut(strings.TrimPrefix(h.Get(signatureHeader), "t="), ",v1=")
	var at int64
	_, _ = fmt.Sscan(seconds, &at)
	if h.Get("Authorization") != "" || len(mac) != 64 || h.Get(signatureHeader) != signature(theSecret, `{"a":1}`, time.Unix(at, 0)) || time.Since(time.Unix(at, 0)).Abs() > time.Minute {
		t.Error(h)
	}
	if n := len(conns); n != 1 {
		t.Errorf("%d connections for three calls", n)
	}
	if n := testutil.ToFloat64(w.c.m.dispatches.WithLabelValues("httpCall", "sent")); n != 3 {
		t.Errorf("%v calls are counted as sent", n)
	}
}

// TestTheSignatureHasTheFormOfTheDocumentation: seconds, and 64 hexadecimal digits.
func TestTheSignatureHasTheFormOfTheDocumentation(t *testing.T) {
	t.Parallel()
	const want = "t=1700000000,v1="
	if got := signature("key", "{}", time.Unix(1700000000, 0)); len(got) != len(want)+64 || !strings.HasPrefix(got, want) {
		t.Error(got)
	}
}

// TestAReceiverThatMisbehaves: what each misbehaviour comes to, and what the tenant reads of it.
func TestAReceiverThatMisbehaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	release := make(chan struct{})
	hijacked := func(says string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			conn, _, err := rw.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, says)
				_ = conn.Close()
			}
		}
	}
	status := func(code int, header ...string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			for i := 0; i+1 < len(header); i += 2 {
				rw.Header().Set(header[i], header[i+1])
			}
			rw.WriteHeader(code)
			_, _ = io.WriteString(rw, "the inside of the receiver")
		}
	}
	cases := map[string]struct {
		serve   http.HandlerFunc
		outcome Outcome
		text    string
		after   time.Duration
		tries   int
	}{
		"204":                  {status(204), Sent, "", 0, 0},
		"500":                  {status(500), Retry, "HTTP 500", 0, 0},
		"404":                  {status(404), Retry, "HTTP 404", 0, 2},
		"429 in seconds":       {status(429, "Retry-After", "17"), Retry, "HTTP 429", 17 * time.Second, 0},
		"503 after a day":      {status(503, "Retry-After", "86400"), Retry, "HTTP 503", time.Hour, 0},
		"500 with Retry-After": {status(500, "Retry-After", "17"), Retry, "HTTP 500", 0, 0},
		"a redirect":           {status(307, "Location", "https://127.0.0.1:1/elsewhere"), Retry, "HTTP 307 (redirects are not followed)", 0, 0},
		"a huge body": {func(rw http.ResponseWriter, _ *http.Request) {
			for range 1 << 12 {
				if _, err := rw.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
			t.Error("256 MiB were read")
		}, Sent, "", 0, 0},
		"huge headers": {func(rw http.ResponseWriter, _ *http.Request) { rw.Header().Set("X", strings.Repeat("x", 1<<20)) }, Unreachable, "the target could not be reached", 0, 0},
		"a reset":      {hijacked(""), Unreachable, "", 0, 0},
		"no HTTP":      {hijacked("220 mail ready\r\n"), Unreachable, "the target could not be reached", 0, 0},
		"half a reply": {hijacked("HTTP/1.1 200"), Unreachable, "", 0, 0},
		"slow":         {func(http.ResponseWriter, *http.Request) { <-release }, Unreachable, "the target did not answer in time", 0, 0},
	}
	var serve atomic.Pointer[http.HandlerFunc]
	s := w.receiver(func(rw http.ResponseWriter, r *http.Request) { (*serve.Load())(rw, r) })
	t.Cleanup(func() { close(release) })
	for name, c := range cases {
		serve.Store(&c.serve)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		o, f := outcome(t, w.c.Call(ctx, w.id(acme), call(s.URL, "")))
		cancel()
		if o != c.outcome {
			t.Errorf("%s: %s, want %s (%v)", name, o, c.outcome, f)
			continue
		}
		if f != nil && (c.text != "" && f.Text != c.text || f.After != c.after || f.Tries != c.tries || strings.Contains(f.Text, "inside") || strings.Contains(f.Text, "127.0.0.1")) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// TestHalfATLSRecord: the handshake of the other side never ends, or is none.
func TestHalfATLSRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	for name, c := range map[string]struct {
		says string
		text string
	}{"half a record": {"\x16\x03\x03\x40\x00half", "the target did not answer in time"}, "no TLS": {"HTTP/1.1 400 Bad Request\r\n\r\n", delivery.Connection("tls", nil).Text}} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		w.must(err)
		t.Cleanup(func() { _ = ln.Close() })
		go func() {
			conn, err := ln.Accept()
			if err == nil {
				_, _ = io.WriteString(conn, c.says)
				_, _ = io.Copy(io.Discard, conn)
			}
		}()
		w.allow(portOf(ln.Addr().String()))
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		o, f := outcome(t, w.c.Call(ctx, w.id(acme), call("https://"+ln.Addr().String(), "")))
		cancel()
		if o != Unreachable || f.Text != c.text {
			t.Errorf("%s: %s %+v", name, o, f)
		}
	}
}

// TestACallToWhereNoneMayGo: nothing is sent, and the tenant reads no more than that.
func TestACallToWhereNoneMayGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	s := w.receiver(func(http.ResponseWriter, *http.Request) { t.Error("a call has arrived") })
	w.allow()
	for _, url := range []string{s.URL, "http://169.254.169.254/latest/meta-data", "http://10.0.0.1", "http://[::1]:80", "http://[::ffff:127.0.0.1]:80", "http://[64:ff9b::7f00:1]"} {
		o, f := outcome(t, w.c.Call(t.Context(), w.id(acme), call(url, "")))
		if o != Blocked || f.Text != "Weir may not connect to the destination" {
			t.Errorf("%s: %s %v", url, o, f)
		}
	}
	for _, url := range []string{"ftp://example.com", "http://user:pw@example.com", "http://", "http://a b", "http://example.com/#x"} {
		o, f := outcome(t, w.c.Call(t.Context(), w.id(acme), call(url, "")))
		if o != Invalid || strings.Contains(f.Text, "pw") {
			t.Errorf("%s: %s %v", url, o, f)
		}
	}
	if !strings.Contains(w.log.String(), "egress.allowed_destinations") {
		t.Error("the operator is not told what to do: ", w.log.String())
	}
	conformance.Shown(t, "S2-117")
	conformance.Shown(t, "S2-119")
}

// TestASecretRefReachesNothingElse: every spelling of the name of every stored secret, and no host but its own.
func TestASecretRefReachesNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{})
	sent := 0
	s := w.receiver(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			sent++
		}
	})
	here := "127.0.0.1:" + portOf(s.URL)
	w.httpSecret(acme, "mine", UseBearer, here)
	w.httpSecret(acme, "elsewhere", UseBearer, "hooks.example.com", "127.0.0.1:1", "127.0.0.1")
	w.httpSecret(globex, "theirs", UseBearer, here)
	row := w.connector(acme, "broker", map[string]any{"urls": []string{"mqtt://b.example.com:1883"}, "topic": "t"}, theSecret)
	var names []string
	w.must(w.db.Read(t.Context(), func(tx store.Tx) error {
		rows, err := tx.Query(`SELECT name FROM secrets`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var n string
			if err := rows.Scan(&n); err != nil {
				return err
			}
			names = append(names, n)
		}
		return rows.Err()
	}))
	names = append(names, fmt.Sprintf("connector/%d/secret", row.ID))
	spellings := []string{"http/theirs", "http/elsewhere", "http/", "http/../connector/1/secret", "HTTP/mine", "http/mine ", "http/mine/", "/http/mine", "http//mine", "http/MINE", "mine", "http/mine\x00"}
	for _, n := range names {
		if n != "http/mine" {
			spellings = append(spellings, n, "http/"+n, "http/"+strings.ToUpper(n), n+"/", "./"+n, strings.ReplaceAll(n, "/", "%2f"))
		}
	}
	for _, ref := range spellings {
		o, f := outcome(t, w.c.Call(t.Context(), w.id(acme), call(s.URL, ref)))
		if o != Invalid && o != Blocked || strings.Contains(f.Text, theSecret) {
			t.Errorf("%q: %s %v", ref, o, f)
		}
	}
	plain := strings.Replace(s.URL, "https://", "http://", 1)
	if o, _ := outcome(t, w.c.Call(t.Context(), w.id(acme), call(plain, "http/mine"))); o != Blocked || sent != 0 {
		t.Errorf("over http: %s, %d sent", o, sent)
	}
	if o, f := outcome(t, w.c.Call(t.Context(), w.id(acme), call(s.URL, "http/mine"))); o != Sent || sent != 1 {
		t.Errorf("%s %v, %d sent", o, f, sent)
	}
	if strings.Contains(w.log.String(), theSecret) {
		t.Error("the secret is in the log")
	}
}

// TestHTTPSecrets: what is taken, and that hosts change with the value alone.
func TestHTTPSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ConnectorSettings{HTTPSecretsPerTenant: 2})
	set := func(token, value, use string, hosts ...string) (*HTTPSecret, error) {
		return w.c.SetSecret(t.Context(), w.by(acme), token, value, hosts, use)
	}
	got, err := set("a", "v", UseBearer, "Hooks.Example.com", "b.example.com:8443", "hooks.example.com:443", "[2001:DB8::1]")
	if err != nil || strings.Join(got.Hosts, " ") != "[2001:db8::1]:443 b.example.com:8443 hooks.example.com:443" || !got.HasSecret {
		t.Fatalf("%+v %v", got, err)
	}
	for _, host := range []string{"", "https://a.example.com", "a.example.com/x", "u@a.example.com", "a.example.com:0", "a.example.com:", "*.example.com", "a b"} {
		_, err := set("b", "v", UseBearer, host)
		w.refused(err, model.CodeInvalidInput, "hosts")
	}
	_, err = set("b", "v", UseBearer)
	w.refused(err, model.CodeInvalidInput, "hosts")
	_, err = set("b", "", UseBearer, "a.example.com")
	w.refused(err, model.CodeInvalidInput, "value")
	_, err = set("b", "two\r\nlines", UseBearer, "a.example.com")
	w.refused(err, model.CodeInvalidInput, "ASCII")
	_, err = set("b", "v", "COOKIE", "a.example.com")
	w.refused(err, model.CodeInvalidInput, "use")
	_, err = w.c.Secrets.Update(t.Context(), w.by(acme), "a", store.Patch{"hosts": []string{"evil.example.com"}})
	w.refused(err, model.CodeInvalidInput, "together")
	_, err = w.c.SetSecret(t.Context(), fixture.Member("u", acme, w.id(acme), model.ConnectorRead), "b", "v", []string{"a.example.com"}, UseBearer)
	w.refused(err, model.CodeForbidden, "")
	_, err = set("b", "v", UseSignature, "a.example.com")
	w.must(err)
	_, err = set("c", "v", UseSignature, "a.example.com")
	w.refused(err, model.CodeLimitExceeded, "http_secrets_per_tenant")
}
