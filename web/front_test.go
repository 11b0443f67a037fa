package web

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"weir/auth"
	"weir/docs"
	"weir/model"
)

// testAccounts knows one person.
type testAccounts struct{ failure error }

func (a testAccounts) Login(_ context.Context, email, password string, source netip.Addr) (*auth.SignIn, error) {
	switch {
	case a.failure != nil:
		return nil, a.failure
	case email != "ada@example.org" || password != "correct horse" || !source.IsValid():
		return nil, model.Errorf(model.CodeInvalidInput, "invalid credentials")
	}
	return &auth.SignIn{Token: "ada's", Expires: model.MicrosOf(time.Now().Add(15 * time.Minute))}, nil
}

func (testAccounts) Authenticate(p auth.Plane, token, _ string) (*model.Principal, error) {
	if p != auth.PlaneIdentity || token != "ada's" {
		return nil, model.Unauthenticated("the token is not valid")
	}
	return &model.Principal{Kind: model.IdentityCaller, Subject: "ada@example.org", Expires: model.MicrosOf(time.Date(2026, 3, 1, 12, 15, 0, 0, time.UTC))}, nil
}

func (testAccounts) SignOutIdentity(string) error { return nil }

func (testAccounts) IdentityMemberships(string) ([]auth.Membership, error) {
	return []auth.Membership{{Tenant: "acme", Roles: []string{"operator", "viewer"}}}, nil
}

// testFront is a server with the pages, in a state of the first run.
func testFront(t *testing.T, state SetupState, change func(f *Front, cfg *Config)) http.Handler {
	t.Helper()
	cfg := testConfig()
	f := Front{Instance: "weir", Version: "1.2.3", BaseURL: func() string { return "" }, Setup: func() SetupState { return state }, Ready: func() bool { return true },
		Listeners: func() []FrontListener {
			return []FrontListener{{"api", "10.0.0.7:8080", "GraphQL; signed tokens; no TLS"}}
		},
		Areas: cfg.Areas, Accounts: Accounts{Auth: func() SignIn { return testAccounts{} }},
		Firings: func(_ context.Context, tenant string, _ int) ([]Firing, error) {
			return []Firing{{Time: "2026-03-01 12:00:00 UTC", Tenant: tenant, Device: "boiler-1", Rule: "too-hot", Edge: "raised", Value: "95.5"}}, nil
		}}
	if change != nil {
		change(&f, &cfg)
	}
	maps.Copy(cfg.Handlers, f.Pages())
	return newServer(t, cfg).Handler()
}

func TestTheFirstAddressLeadsSomewhere(t *testing.T) {
	for _, c := range []struct {
		state        SetupState
		method, path string
		status       int
		location     string
		body         string
	}{
		{SetupOpen, "GET", "/", 303, "setup", ""},
		{SetupOpen, "GET", "/plain", 200, "", `<form method="post" action="sign-in">`}, // a site file may have made accounts
		{SetupStarting, "GET", "/", 503, "", "Weir is starting"},
		{SetupClosed, "GET", "/", 200, "", "Weir 1.2.3"},
		{SetupClosed, "GET", "/", 200, "", "<td>10.0.0.7:8080</td><td>GraphQL; signed tokens; no TLS</td>"},
		{SetupClosed, "GET", "/", 200, "", `<form method="post" action="sign-in">`},
		{SetupClosed, "GET", "/", 200, "", "Weir runs and is ready."},
		{SetupClosed, "GET", "/api", 200, "", "/api/user-management/admin/graphql"},
		{SetupClosed, "GET", "/api/", 303, "../api", ""},
		{SetupClosed, "GET", "/graphql", 303, "api", ""},
		{SetupClosed, "POST", "/graphql", 404, "", "/api/<area>/graphql"},
		{SetupClosed, "GET", "/schema", 303, "schema/index.json", ""},
		{SetupClosed, "GET", "/docs", 303, "docs/", ""},
		{SetupClosed, "GET", "/docs/", 200, "", "<h1 id=\"weir-documentation\">"},
		{SetupClosed, "GET", "/docs/transports/mqtt.md", 200, "", `href="../../setup/setup.css"`},
		{SetupClosed, "GET", "/docs/mqtt", 303, "transports/mqtt.md", ""},
		{SetupClosed, "GET", "/docs/no/such", 404, "", "There is no such page"},
		{SetupClosed, "GET", "/docs/%3Cscript%3E", 404, "", "&lt;script&gt; is not part"},
		{SetupClosed, "GET", "/nothing", 404, "", ""},
	} {
		w := get(testFront(t, c.state, nil), c.method, c.path)
		if w.Code != c.status || w.Header().Get("Location") != c.location || !strings.Contains(w.Body.String(), c.body) {
			t.Errorf("%s %s: %d %q, want %d %q with %q\n%.600s", c.method, c.path, w.Code, w.Header().Get("Location"), c.status, c.location, c.body, w.Body)
		}
	}
}

// The pages load their style and nothing else, and a script that got into one could not run.
func TestThePagesOfTheFrontAreStrictAboutWhatTheyLoad(t *testing.T) {
	h := testFront(t, SetupClosed, nil)
	for _, path := range []string{"/", "/api", "/docs/", "/docs/cli.md"} {
		w := get(h, "GET", path)
		if csp := w.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "script-src") {
			t.Errorf("%s: %s", path, csp)
		}
		page := w.Body.String()
		for _, bad := range []string{"<script", " style=", " onclick=", `src="http`, `href="http://127`, "@import"} {
			if strings.Contains(page, bad) {
				t.Errorf("%s has %q", path, bad)
			}
		}
		for _, m := range strings.Split(page, `<link `)[1:] {
			if tag, _, _ := strings.Cut(m, ">"); strings.Contains(tag, "//") {
				t.Errorf("%s loads %s", path, tag)
			}
		}
	}
}

func signIn(h http.Handler, email, password string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/sign-in", strings.NewReader(url.Values{"email": {email}, "password": {password}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "https://example.com") // httptest's host
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestWhoHasAnAccountSignsInBeforeThereIsAnAdministrator: a site file may have made the people of a tenant.
func TestWhoHasAnAccountSignsInBeforeThereIsAnAdministrator(t *testing.T) {
	h := testFront(t, SetupOpen, nil)
	w := signIn(h, "ada@example.org", "correct horse", nil)
	if w.Code != 303 || w.Header().Get("Location") != "plain" || len(w.Result().Cookies()) != 1 {
		t.Fatalf("%d %v\n%s", w.Code, w.Header(), w.Body)
	}
	if page := string(setupPage); !strings.Contains(page, `<a href="plain">Sign in</a>`) {
		t.Error("the setup page does not lead there")
	}
}

func TestAPersonSignsInWithoutAScript(t *testing.T) {
	h := testFront(t, SetupClosed, nil)
	w := signIn(h, "ada@example.org", "correct horse", nil)
	cookies := w.Result().Cookies()
	if w.Code != 303 || w.Header().Get("Location") != "." || len(cookies) != 1 {
		t.Fatalf("%d %v\n%s", w.Code, w.Header(), w.Body)
	}
	c := cookies[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure || c.Path != "/" || c.MaxAge < 890 || c.MaxAge > 900 {
		t.Errorf("the cookie: %+v", c)
	}
	page := func(c *http.Cookie) string {
		r := httptest.NewRequest("GET", "/", nil)
		r.AddCookie(c)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Body.String()
	}
	in := page(c)
	for _, want := range []string{"<strong>ada@example.org</strong>, until 12:15 UTC.", "Tenant acme: operator, viewer", "<td>too-hot</td><td>raised</td><td>95.5</td>", `action="sign-out"`} {
		if !strings.Contains(in, want) {
			t.Errorf("signed in, the page lacks %s:\n%s", want, in)
		}
	}
	if out := page(&http.Cookie{Name: sessionCookie, Value: "another"}); strings.Contains(out, "too-hot") || !strings.Contains(out, `action="sign-in"`) {
		t.Errorf("with a wrong session:\n%s", out)
	}
	if out := page(&http.Cookie{Name: "other", Value: "ada's"}); strings.Contains(out, "too-hot") {
		t.Errorf("without a session:\n%s", out)
	}
	r := httptest.NewRequest("POST", "/sign-out", nil)
	r.AddCookie(c)
	w = httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if got := w.Result().Cookies(); w.Code != 303 || len(got) != 1 || got[0].MaxAge >= 0 || got[0].Value != "" {
		t.Errorf("signed out: %d %v", w.Code, got)
	}
}

func TestASignInThatIsRefusedSaysWhy(t *testing.T) {
	starting := func(f *Front, _ *Config) { f.Accounts.Auth = func() SignIn { return nil } }
	failing := func(err error) func(f *Front, _ *Config) {
		return func(f *Front, cfg *Config) {
			f.Accounts.Auth, f.Log = func() SignIn { return testAccounts{err} }, slog.New(slog.DiscardHandler)
		}
	}
	for name, c := range map[string]struct {
		change   func(f *Front, cfg *Config)
		request  func(r *http.Request)
		password string
		status   int
		text     string
	}{
		"a wrong password":          {nil, nil, "wrong", 403, "invalid credentials"},
		"a page of another host":    {nil, func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, "correct horse", 403, "pages of another host may not sign in here"},
		"a page of another site":    {nil, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, "correct horse", 403, "pages of another host"},
		"an origin that is unknown": {nil, func(r *http.Request) { r.Header.Set("Origin", "null") }, "correct horse", 403, "pages of another host"},
		"a form that is too long":   {nil, nil, strings.Repeat("x", maxSetupBody), 400, "the form could not be read"},
		"a start":                   {starting, nil, "correct horse", 503, "Weir is starting"},
		"too many attempts":         {failing(&model.Error{Code: model.CodeThrottled, Message: "too many failed attempts, try again later"}), nil, "x", 429, "too many failed attempts"},
		"a failure inside":          {failing(errors.New("disk /secret is gone")), nil, "x", 500, "something went wrong inside"},
	} {
		w := signIn(testFront(t, SetupClosed, c.change), "ada@example.org", c.password, c.request)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.text) || len(w.Result().Cookies()) > 0 || strings.Contains(w.Body.String(), "/secret") {
			t.Errorf("%s: %d\n%s", name, w.Code, w.Body)
		}
	}
}

func TestThePageWarnsWhereAPasswordCrossesANetworkUnencrypted(t *testing.T) {
	const warning = "This page is not encrypted"
	for name, c := range map[string]struct {
		base, host, from string
		tls              bool
		warns            bool
	}{
		"plain, from the network":           {"", "gateway:8080", "10.0.0.9:4711", false, true},
		"plain, a name that leads here":     {"", "gateway:8080", "127.0.0.1:4711", false, true},
		"plain, on this machine":            {"", "127.0.0.1:8080", "127.0.0.1:4711", false, false},
		"plain, localhost":                  {"", "localhost:8080", "[::1]:4711", false, false},
		"plain, localhost of a proxy":       {"", "localhost:8080", "10.0.0.9:4711", false, true},
		"TLS":                               {"", "gateway:8443", "10.0.0.9:4711", true, false},
		"TLS of the proxy at base_url":      {"https://weir.example.org", "weir.example.org", "10.0.0.9:4711", false, false},
		"plain, around the proxy of base":   {"https://weir.example.org", "gateway:8080", "10.0.0.9:4711", false, true},
		"plain, at a base_url that is, too": {"http://gateway:8080", "gateway:8080", "10.0.0.9:4711", false, true},
	} {
		h := testFront(t, SetupClosed, func(f *Front, _ *Config) { f.BaseURL = func() string { return c.base } })
		scheme := "http"
		if c.tls {
			scheme = "https"
		}
		r := httptest.NewRequest("GET", scheme+"://"+c.host+"/", nil)
		r.RemoteAddr = c.from
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if warned := strings.Contains(w.Body.String(), warning); warned != c.warns {
			t.Errorf("%s: warns %v", name, warned)
		}
		in := signIn(h, "ada@example.org", "correct horse", func(r *http.Request) {
			r.Host, r.RemoteAddr = c.host, c.from
			r.Header.Del("Origin")
			r.TLS = nil
			if c.tls {
				r.TLS = httptest.NewRequest("GET", "https://x/", nil).TLS
			}
		})
		secure := c.tls || strings.HasPrefix(c.base, "https://"+c.host)
		if cookies := in.Result().Cookies(); len(cookies) != 1 || cookies[0].Secure != secure {
			t.Errorf("%s: %v", name, cookies)
		}
	}
}

func TestTheDocumentationIsServedWhole(t *testing.T) {
	h := testFront(t, SetupClosed, nil)
	served := map[string]string{}
	for _, p := range docs.Pages() {
		w := get(h, "GET", "/docs/"+p.Path)
		if w.Code != 200 || p.Title == "" {
			t.Errorf("%s %q: %d", p.Path, p.Title, w.Code)
		}
		served["/docs/"+p.Path] = w.Body.String()
	}
	if len(served) < 20 {
		t.Errorf("%d pages", len(served))
	}
	for at, page := range served {
		from, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		_, body, _ := strings.Cut(page, "<main>")
		body, _, _ = strings.Cut(body, "</main>")
		for _, m := range strings.Split(body, `<a href="`)[1:] {
			target, _, _ := strings.Cut(m, `"`)
			to, err := from.Parse(strings.ReplaceAll(target, "&amp;", "&"))
			if err != nil {
				t.Fatal(err)
			}
			if to.Host != "" {
				continue
			}
			there, ok := served[to.Path]
			if !ok || to.Fragment != "" && !strings.Contains(there, `id="`+to.Fragment+`"`) {
				t.Errorf("%s links to %s, which is not there", at, target)
			}
		}
	}
}

func TestAPageOfTheDocumentationIsRendered(t *testing.T) {
	got, err := renderPage("here/page.md", "# A `code` & b\n\n## A code  b\n\n**`site.yaml`**\n\n```yaml\na: <b>\n```\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\n<b onclick=x>raw</b>\n\n"+
		"[out](../../README.md) [in](../api.md#tokens) [net](https://example.org)\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`<h1 id="a-code--b">A <code>code</code> &amp; b</h1>`, `<h2 id="a-code--b-1">`, "<p><strong><code>site.yaml</code></strong></p>\n" + `<pre tabindex="0"><code>a: &lt;b&gt;` + "\n</code></pre>",
		`<div class="wide" tabindex="0"><table>`, "<td>2</td>", "</tbody>\n</table></div>", `<p>out <a href="../api.md#tokens">in</a> <a href="https://example.org">net</a></p>`} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %s:\n%s", want, got)
		}
	}
	if strings.Contains(got, "onclick") {
		t.Errorf("raw HTML:\n%s", got)
	}
}
