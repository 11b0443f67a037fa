package web

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	g "maragu.dev/gomponents"

	"weir/model"
)

//go:embed front.css
var frontStyle []byte

// Front is what the page of /plain shows, and the pages below it. None of them has a script: they work in every browser, and
// their policy forbids scripts altogether. / is the console, or without one the same page.
type Front struct {
	Instance, Version string
	// BaseURL returns base_url, which a reload may change.
	BaseURL func() string
	// Setup is how far the first run is: while no account can sign in, / leads to its page.
	Setup func() SetupState
	Ready func() bool
	// Listeners are those that are open.
	Listeners func() []FrontListener
	Areas     []Area
	DevTools  bool
	Accounts  Accounts
	// Firings returns what fired last in a tenant, newest first; "" is all tenants.
	Firings func(ctx context.Context, tenant string, limit int) ([]Firing, error)
	Log     *slog.Logger
	// Console is what / shows; nil: the page of /plain.
	Console *Console
}

// Firing is an edge of a rule as a page shows it.
type Firing struct {
	Time     string `json:"time"`
	Tenant   string `json:"tenant"`
	Device   string `json:"device"`
	Rule     string `json:"rule"`
	Edge     string `json:"edge"`
	Severity string `json:"severity,omitempty"`
	Value    string `json:"value,omitempty"`
}

// maxFirings is how many the page shows.
const maxFirings = 10

// FrontListener is an open listener as the page shows it.
type FrontListener struct{ Name, Address, Description string }

// frontPolicy allows the page its style and its forms, and nothing else.
const frontPolicy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// frontPage is what the page of / shows.
type frontPage struct {
	*Front
	IsReady bool
	Person  *Person // nil: not signed in
	Fired   []Firing
	Plain   bool   // what is typed here crosses a network unencrypted
	Email   string // as typed before
	Error   string
}

// front serves Front's pages.
type front struct{ Front }

// Pages returns the routes of the front.
func (f Front) Pages() map[string]http.Handler {
	s := &front{f}
	routes := map[string]http.Handler{
		"GET /{$}":            http.HandlerFunc(s.first),
		"GET /plain":          http.HandlerFunc(s.start),
		"POST /sign-in":       http.HandlerFunc(s.signIn),
		"POST /sign-out":      http.HandlerFunc(s.signOut),
		"GET /sign-in":        http.HandlerFunc(s.toPlain),
		"GET /sign-out":       http.HandlerFunc(s.toPlain),
		"GET /api":            http.HandlerFunc(s.api),
		"GET /api/{$}":        leadsTo("../api"),
		"/graphql":            http.HandlerFunc(noGraphQL),
		"GET /schema":         leadsTo("schema/index.json"),
		"GET /schema/{$}":     leadsTo("index.json"),
		"GET /docs":           leadsTo("docs/"),
		"GET /docs/{page...}": http.HandlerFunc(s.docs),
		"GET /front.css":      setupFile("text/css; charset=utf-8", frontStyle),
	}
	if f.Console != nil {
		maps.Copy(routes, f.Console.routes())
	}
	return routes
}

// first is the page of /: the console, once there is somebody who can sign in.
func (s *front) first(w http.ResponseWriter, r *http.Request) {
	if s.Console == nil || s.Setup() != SetupClosed {
		s.home(w, r)
		return
	}
	s.Console.home(w, r)
}

// plain is where the page without a script is. Before there is an administrator it is beside the setup, for those who have an account.
func (s *front) plain() string {
	if s.Console == nil && s.Setup() != SetupOpen {
		return "."
	}
	return "plain"
}

func (s *front) toPlain(w http.ResponseWriter, r *http.Request) { leadsTo(s.plain()).ServeHTTP(w, r) }

// leadsTo answers with another address. It is relative, so that it holds below the path prefix of a proxy, too.
func leadsTo(address string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Location", address)
		w.WriteHeader(http.StatusSeeOther)
	})
}

// noGraphQL is the answer at an address that many servers have and this one does not.
func noGraphQL(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		leadsTo("api").ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write([]byte(`{"errors":[{"message":"there is no GraphQL at /graphql: each area has its own endpoint, /api/<area>/graphql; /schema/index.json lists them"}]}` + "\n"))
}

// home is the page without a script, or that of the setup before there is an administrator.
func (s *front) home(w http.ResponseWriter, r *http.Request) {
	if s.Setup() == SetupOpen {
		leadsTo("setup").ServeHTTP(w, r)
		return
	}
	s.start(w, r)
}

// start is the page without a script. A tenant's people may have accounts, of a site file, before there is an administrator.
func (s *front) start(w http.ResponseWriter, r *http.Request) {
	if s.Setup() == SetupStarting {
		setupHTML(s.Setup, s.Version).ServeHTTP(w, r)
		return
	}
	p := s.page(r)
	if p.Person != nil {
		var err error
		if p.Fired, err = s.fired(r.Context(), p.Person); err != nil {
			s.Log.Error("the page cannot show what fired", "error", err)
		}
	}
	s.show(w, http.StatusOK, homePage(p))
}

// fired is what fired last in the tenants that a person may read: every member may read the detections of their tenant, an
// administrator all of them.
func (s *front) fired(ctx context.Context, p *Person) ([]Firing, error) {
	if p.Superuser {
		return s.Firings(ctx, "", maxFirings)
	}
	var all []Firing
	for _, m := range p.Memberships {
		some, err := s.Firings(ctx, m.Tenant, maxFirings)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortStableFunc(all, func(a, b Firing) int { return strings.Compare(b.Time, a.Time) })
	return all[:min(len(all), maxFirings)], nil
}

func (s *front) page(r *http.Request) frontPage {
	return frontPage{Front: &s.Front, IsReady: s.Ready(), Person: s.Accounts.of(r), Plain: !s.encrypted(r) && !ownMachine(r)}
}

func (s *front) api(w http.ResponseWriter, r *http.Request) {
	s.show(w, http.StatusOK, apiPage(s.page(r)))
}

// signIn takes the form of the page.
func (s *front) signIn(w http.ResponseWriter, r *http.Request) {
	p := s.page(r)
	token, err := s.proven(w, r, &p)
	if err != nil {
		s.refuse(w, p, err)
		return
	}
	http.SetCookie(w, token.cookie(s.encrypted(r)))
	s.toPlain(w, r)
}

// proven is the session of the person whom the form names.
func (s *front) proven(w http.ResponseWriter, r *http.Request, p *frontPage) (*Session, error) {
	if !(SetupGuard{BaseURL: s.BaseURL()}).own(r) {
		return nil, setupRefusal{http.StatusForbidden, "pages of another host may not sign in here: open it by its address or a name of the local network, or set base_url to its public name"}
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxSetupBody)
	if err := r.ParseForm(); err != nil {
		return nil, setupRefusal{http.StatusBadRequest, "the form could not be read"}
	}
	p.Email = r.PostForm.Get("email")
	return s.Accounts.signIn(r, p.Email, r.PostForm.Get("password"))
}

// refuse shows the page again, with the reason.
func (s *front) refuse(w http.ResponseWriter, p frontPage, err error) {
	status := http.StatusForbidden
	p.Person = nil
	if e, ok := errors.AsType[setupRefusal](err); ok {
		status, p.Error = e.status, e.text
	} else if e, ok := errors.AsType[*model.Error](err); ok && e.Code != "" {
		p.Error = e.Message
		if known, ok := setupStatus[e.Code]; ok && e.Code != model.CodeInvalidInput {
			status = known
		}
	} else {
		s.Log.Error("the sign-in failed", "error", err)
		status, p.Error = http.StatusInternalServerError, "something went wrong inside; the log of the instance says what"
	}
	s.show(w, status, homePage(p))
}

func (s *front) signOut(w http.ResponseWriter, r *http.Request) {
	if (SetupGuard{BaseURL: s.BaseURL()}).own(r) {
		s.Accounts.signOut(r)
		http.SetCookie(w, (&Session{}).cookie(s.encrypted(r)))
	}
	s.toPlain(w, r)
}

// show writes a page.
func (s *front) show(w http.ResponseWriter, status int, page g.Node) {
	var b bytes.Buffer
	if err := page.Render(&b); err != nil {
		s.Log.Error("a page cannot be shown", "error", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	setupHeader(w, "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", frontPolicy)
	// With no-referrer a browser sends the Origin of a form as null, which own could not tell from another host's.
	w.Header().Set("Referrer-Policy", "same-origin")
	w.WriteHeader(status)
	_, _ = b.WriteTo(w) // the caller has left
}

// encrypted reports whether the browser has reached the page over TLS, that of a proxy at base_url included.
func (s *front) encrypted(r *http.Request) bool { return encrypted(r, s.BaseURL()) }

func encrypted(r *http.Request, baseURL string) bool {
	base, err := url.Parse(baseURL)
	return r.TLS != nil || err == nil && base.Scheme == "https" && strings.EqualFold(base.Host, r.Host)
}

// ownMachine reports whether the browser runs on this machine: what it sends crosses no network.
func ownMachine(r *http.Request) bool {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip, notIP := netip.ParseAddr(strings.Trim(host, "[]"))
	here := host == "localhost" || notIP == nil && ip.IsLoopback()
	return err == nil && at.Addr().Unmap().IsLoopback() && here
}

// until is the time of day at which a session ends, for the page.
func until(t time.Time) string { return t.UTC().Format("15:04") + " UTC" }
