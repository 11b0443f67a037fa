package web

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzSetupCall: whatever an unauthenticated client sends, the page's calls answer one JSON object, and what a page of another host sends
// is never looked at.
func FuzzSetupCall(f *testing.F) {
	f.Add("weir.lan:8080", "http://weir.lan:8080", "same-origin", "application/json", `{"link":"abc"}`)
	f.Add("weir.lan", "http://evil.example", "cross-site", "application/json; charset=utf-8", `{"link":"abc"} {}`)
	f.Add("[::1]:8080", "null", "", "text/plain", `{"link":`)
	f.Add("a", "http://a:b@c/", "none", "application/json", strings.Repeat("[", 20000))
	f.Fuzz(func(t *testing.T, host, origin, site, contentType, body string) {
		looked := false
		calls := SetupGuard{BaseURL: "https://weir.example.org", Log: slog.New(slog.DiscardHandler)}.Calls(map[string]SetupCall{
			"open": NewSetupCall(func(_ *http.Request, q struct {
				Link string `json:"link"`
			}) (any, error) {
				looked = true
				return q, nil
			}),
		})
		r := httptest.NewRequest(http.MethodPost, "/setup/v1/open", strings.NewReader(body))
		r.Host = host
		r.Header = http.Header{"Content-Type": {contentType}}
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		if site != "" {
			r.Header.Set("Sec-Fetch-Site", site)
		}
		w := httptest.NewRecorder()
		calls.ServeHTTP(w, r)
		if !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%d: %q is no JSON", w.Code, w.Body.String())
		}
		if looked != (w.Code == http.StatusOK) {
			t.Fatalf("%d, looked at: %v", w.Code, looked)
		}
		if !looked {
			return
		}
		named := origin == "" || strings.Contains(strings.ToLower(origin), strings.ToLower(host)) || strings.Contains(strings.ToLower(origin), "weir.example.org")
		if !named || site != "" && site != "same-origin" || len(body) > maxSetupBody || !strings.Contains(strings.ToLower(contentType), "json") {
			t.Fatalf("host %q, origin %q, site %q, type %q, %d bytes: looked at", host, origin, site, contentType, len(body))
		}
	})
}
