package web

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"weir/model"
)

// setupServer is a front with the setup page in a state, whose calls echo.
func setupServer(t *testing.T, state SetupState, g SetupGuard) http.Handler {
	t.Helper()
	if g.Log == nil {
		g.Log = slog.New(slog.DiscardHandler)
	}
	type ask struct{ Link string }
	calls := g.Calls(map[string]SetupCall{
		"open": NewSetupCall(func(_ *http.Request, q ask) (ask, error) { return q, nil }),
		"fail": NewSetupCall(func(_ *http.Request, q ask) (ask, error) { return q, setupFailures[q.Link] }),
	})
	cfg := testConfig()
	cfg.Handlers = SetupPages(func() SetupState { return state }, "1.2.3")
	cfg.Handlers["/setup/v1/"] = calls
	return newServer(t, cfg).Handler()
}

var setupFailures = map[string]error{
	"wrong":     &model.Error{Code: model.CodeUnauthenticated, Message: "this link is no longer valid"},
	"field":     model.Invalid("email", "must be an address: %s", "such as"),
	"conflict":  model.Errorf(model.CodeConflict, "it exists"),
	"throttled": &model.Error{Code: model.CodeThrottled, Message: "too many", Ext: map[string]any{"retryAfterSeconds": 42}},
	"busy":      model.Errorf(model.CodeUnavailable, "busy"),
	"limit":     model.Errorf(model.CodeLimitExceeded, "enough"),
	"inside":    errors.New("disk /secret/path is gone"),
}

// setupPost posts a body with "Name: value" headers; one without a value is left out.
func setupPost(h http.Handler, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "http://gateway.lan:8080"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		if value == "" {
			r.Header.Del(name)
			continue
		}
		if name == "Origin" {
			r.Header.Add(name, value)
			continue
		}
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func holdsSetupHeader(t *testing.T, what string, h http.Header) {
	t.Helper()
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"} {
		if got := h.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %s is %q", what, name, got)
		}
	}
	if h.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%s: other pages may read it", what)
	}
}

func TestSetupPageInEachState(t *testing.T) {
	t.Parallel()
	for state, want := range map[SetupState]struct {
		status int
		text   string
	}{
		SetupStarting: {http.StatusServiceUnavailable, "<h1>Weir is starting</h1>"},
		SetupOpen:     {http.StatusOK, "Make the first administrator"},
		SetupClosed:   {http.StatusOK, "<h1>Weir is set up</h1>"},
	} {
		w := get(setupServer(t, state, SetupGuard{}), "GET", "/setup")
		if w.Code != want.status || !strings.Contains(w.Body.String(), want.text) || w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("state %d: %d %v\n%s", state, w.Code, w.Header(), w.Body)
		}
		holdsSetupHeader(t, want.text, w.Header())
		if again := w.Header().Get("Retry-After"); (state == SetupStarting) != (again != "") {
			t.Errorf("state %d: Retry-After %q", state, again)
		}
		if form := strings.Contains(w.Body.String(), "<form"); form != (state == SetupOpen) {
			t.Errorf("state %d has a form: %v", state, form)
		}
	}
}

func TestSetupPageBringsAllItNeeds(t *testing.T) {
	t.Parallel()
	h := setupServer(t, SetupOpen, SetupGuard{})
	for path, contentType := range map[string]string{"/setup/setup.js": "text/javascript; charset=utf-8", "/setup/setup.css": "text/css; charset=utf-8",
		"/setup/setup.svg": "image/svg+xml"} {
		w := get(h, "GET", path)
		if w.Code != http.StatusOK || w.Body.Len() == 0 || w.Header().Get("Content-Type") != contentType {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
		holdsSetupHeader(t, path, w.Header())
	}
	if w := get(h, "GET", "/setup/other"); w.Code != http.StatusNotFound {
		t.Errorf("what is not there: %d", w.Code)
	}
}

// foreign finds what the policy would block or what would leave the host: addresses, and scripts and styles inside.
var foreign = regexp.MustCompile(`(?i)https?://|//[a-z0-9-]+\.|<script>|<style|\sstyle=|\son[a-z]+=|<base|<iframe|javascript:|data:`)

func TestSetupPagesLoadNothingFromElsewhereAndHoldNoScript(t *testing.T) {
	t.Parallel()
	for name, page := range map[string][]byte{"open": setupPage, "closed": setupClosedPage, "starting": setupStartingPage, "style": setupStyle} {
		if bad := foreign.FindAll(page, -1); len(bad) > 0 {
			t.Errorf("%s: %q", name, bad)
		}
	}
	for _, sink := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "localStorage", "sessionStorage",
		"document.cookie", "crypto.subtle", "http://", "https://"} {
		if bytes.Contains(setupScript, []byte(sink)) {
			t.Errorf("the script uses %s", sink)
		}
	}
}

func TestSetupCallsOfAnotherHostAreRefused(t *testing.T) {
	t.Parallel()
	h := setupServer(t, SetupOpen, SetupGuard{BaseURL: "https://iot.example.org/weir"})
	for _, c := range []struct {
		name   string
		header []string
		status int
	}{
		{"no browser", nil, 200},
		{"our own page", []string{"Origin: http://gateway.lan:8080"}, 200},
		{"our own page, behind TLS", []string{"Origin: https://GATEWAY.lan:8080", "Sec-Fetch-Site: same-origin"}, 200},
		{"our own page, by its public name", []string{"Origin: https://iot.example.org"}, 200},
		{"another host", []string{"Origin: http://evil.example"}, 403},
		{"another port", []string{"Origin: http://gateway.lan"}, 403},
		{"a name that begins like ours", []string{"Origin: http://gateway.lan:8080.evil.example"}, 403},
		{"a page without origin", []string{"Origin: null"}, 403},
		{"two origins", []string{"Origin: http://gateway.lan:8080", "Origin: http://evil.example"}, 403},
		{"another site, as the browser says", []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"another host of the site", []string{"Sec-Fetch-Site: same-site"}, 403},
		{"another site with our origin", []string{"Origin: http://gateway.lan:8080", "Sec-Fetch-Site: cross-site"}, 403},
	} {
		w := setupPost(h, "/setup/v1/open", `{"link":"x"}`, c.header...)
		if w.Code != c.status {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
		holdsSetupHeader(t, c.name, w.Header())
	}
}

func TestSetupCallsAreReadStrictly(t *testing.T) {
	t.Parallel()
	h := setupServer(t, SetupOpen, SetupGuard{})
	whole := `{"link":"` + strings.Repeat("x", maxSetupBody-len(`{"link":""}`)) + `"}`
	for _, c := range []struct {
		name, body, header string
		status             int
	}{
		{"with a charset", `{"link":"x"}`, "Content-Type: application/json; charset=utf-8", 200},
		{"16 KiB", whole, "", 200},
		{"a byte more", whole + " ", "", 413},
		{"no content type", `{}`, "Content-Type: ", 415},
		{"a form", `{}`, "Content-Type: text/plain", 415},
		{"no JSON", `link`, "", 400},
		{"nothing", ``, "", 400},
		{"an unknown member", `{"link":"x","more":1}`, "", 400},
		{"another type", `{"link":1}`, "", 400},
		{"two objects", `{"link":"x"}{}`, "", 400},
	} {
		header := c.header
		if header == "" {
			header = "Accept: */*"
		}
		w := setupPost(h, "/setup/v1/open", c.body, header)
		if w.Code != c.status || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
	}
	if w := get(h, "GET", "/setup/v1/open"); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "POST" {
		t.Errorf("GET: %d %v", w.Code, w.Header())
	}
	if w := setupPost(h, "/setup/v1/other", `{}`); w.Code != http.StatusNotFound {
		t.Errorf("a call that is not there: %d", w.Code)
	}
}

func TestSetupRefusalsSayWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := setupServer(t, SetupOpen, SetupGuard{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for link, want := range map[string]struct {
		status int
		body   string
	}{
		"wrong":     {403, `{"error":"this link is no longer valid","code":"UNAUTHENTICATED"}`},
		"field":     {400, `{"error":"must be an address: such as","field":"email","code":"INVALID_INPUT"}`},
		"conflict":  {409, `{"error":"it exists","code":"CONFLICT"}`},
		"throttled": {429, `{"error":"too many","code":"THROTTLED"}`},
		"busy":      {503, `{"error":"busy","code":"UNAVAILABLE"}`},
		"limit":     {422, `{"error":"enough","code":"LIMIT_EXCEEDED"}`},
		"inside":    {500, `{"error":"something went wrong inside; the log of the instance says what"}`},
	} {
		t.Run(link, func(t *testing.T) {
			w := setupPost(h, "/setup/v1/fail", `{"link":"`+link+`"}`)
			body, err := io.ReadAll(w.Body)
			if err != nil || w.Code != want.status || strings.TrimSpace(string(body)) != want.body {
				t.Errorf("%s: %d %s", link, w.Code, body)
			}
			if after := w.Header().Get("Retry-After"); link == "throttled" && after != "42" {
				t.Errorf("Retry-After: %q", after)
			}
		})
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "disk /secret/path is gone") {
		t.Errorf("the log says:\n%s", &log)
	}
}
