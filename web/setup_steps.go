package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/auth"
	"weir/model"
)

// setupPath is the page of the first run, SetupCalls what it calls.
const (
	setupPath  = "/setup"
	SetupCalls = "/setup/v1/"
)

// SetupSteps are what the page of the first run does. Each is a change by itself.
type SetupSteps interface {
	// HasAdministrator reports whether an administrator exists: then the page is closed.
	HasAdministrator() bool
	// MakeAdministrator returns the email as it is kept.
	MakeAdministrator(ctx context.Context, email, password string) (string, error)
	MakeTenant(ctx context.Context, token, name string) (*SetupTenant, error)
	// MakeDevice makes a device with an access token. host is the name under which the page was reached.
	MakeDevice(ctx context.Context, tenant, token, host string) (*SetupDevice, error)
	// Latest are the newest readings of a device.
	Latest(ctx context.Context, tenant, device string) ([]SetupReading, error)
	// NewestRefusal is the newest message of the tenant that was not stored, nil for none.
	NewestRefusal(ctx context.Context, tenant string) (*SetupRefusal, error)
}

// SetupTenant is a tenant that the page has made.
type SetupTenant struct {
	Token string `json:"token"`
	Name  string `json:"name,omitempty"`
	Tier  string `json:"tier"`
}

// SetupDevice is a device that the page has made.
type SetupDevice struct {
	Tenant   string `json:"tenant"`
	Token    string `json:"token"`
	Snippets any    `json:"snippets"` // commands that send a first reading
}

// SetupReading is the newest value of a metric.
type SetupReading struct {
	Metric   string    `json:"metric"`
	Value    string    `json:"value"`
	Received time.Time `json:"received"`
}

// SetupRefusal is why a message was not stored.
type SetupRefusal struct {
	Reason  string `json:"reason"`
	Summary string `json:"summary"`
}

// Setup is the first run in a browser: the one-time link, and what its page does with it. The administrator comes first,
// and uses the link up; a tenant that fails afterwards leaves an instance with an administrator, as weir admin create makes
// it, and the page stays at its second step with what was filled in. A page that asks for the same tenant again gets it
// again, because an answer may get lost.
type Setup struct {
	cfg   SetupConfig
	steps SetupSteps
	links *auth.Setup

	mu     sync.Mutex
	email  string       // of the administrator that the page has made
	tenant *SetupTenant // which the page has made; its devices go there only
	device string       // which the page has made last
}

// SetupConfig says where the page is reached.
type SetupConfig struct {
	BaseURL string
	DataDir string
	// Listener is the address of the API listener and its scheme, "" when it is closed.
	Listener func() (scheme, address string)
	// Accounts sign the browser in that has made the administrator.
	Accounts Accounts
	Log      *slog.Logger
	Metrics  prometheus.Registerer
}

// NewSetup returns the first run and the handler of what its page calls.
func NewSetup(cfg SetupConfig, steps SetupSteps) (*Setup, http.Handler) {
	s := &Setup{cfg: cfg, steps: steps, links: auth.NewSetup(steps.HasAdministrator, nil, cfg.Metrics)}
	return s, SetupGuard{BaseURL: cfg.BaseURL, Log: cfg.Log}.Calls(map[string]SetupCall{
		"open":          NewSetupCall(s.open),
		"administrator": NewSetupCall(s.makeAdministrator),
		"tenant":        NewSetupCall(s.makeTenant),
		"device":        NewSetupCall(s.makeDevice),
		"reading":       NewSetupCall(s.lookForReading),
		"resume":        NewSetupCall(s.resume),
	})
}

type setupOpen struct {
	Link string `json:"link"`
}

type setupOpened struct {
	Seconds int `json:"seconds"` // that the link is still good for
}

// open reports to the page that its link is over before anything is typed.
func (s *Setup) open(_ *http.Request, q setupOpen) (setupOpened, error) {
	until, err := s.links.Open(q.Link)
	return setupOpened{int(time.Until(until).Seconds())}, err
}

type setupAdministrator struct {
	Link     string `json:"link"`
	Email    string `json:"email"`
	Password string `json:"password"`
}

type setupAdministratorMade struct {
	Page  string `json:"page"` // the secret of the page's session
	Email string `json:"email"`

	cookies []*http.Cookie
}

func (m setupAdministratorMade) setCookies() []*http.Cookie { return m.cookies }

// setupCookie holds the secret of the page's session for a reload of the page. No script can read it, and a page of
// another host cannot make a browser send it; only the call resume looks at it.
const setupCookie = "weir_setup"

func (s *Setup) makeAdministrator(r *http.Request, q setupAdministrator) (out setupAdministratorMade, err error) {
	out.Page, err = s.links.Redeem(q.Link, func() error {
		email, err := s.steps.MakeAdministrator(r.Context(), q.Email, q.Password)
		out.Email = email
		return taken(err, "email", "an account with this address exists already; choose another one")
	})
	if err != nil {
		return out, err
	}
	s.cfg.Log.Info("the setup page has made the first administrator")
	s.mu.Lock()
	s.email = out.Email
	s.mu.Unlock()
	secure := encrypted(r, s.cfg.BaseURL)
	out.cookies = []*http.Cookie{{Name: setupCookie, Value: out.Page, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: secure, MaxAge: int(auth.SetupLife.Seconds())}}
	if s.cfg.Accounts.Auth == nil {
		return out, nil
	}
	// A sign-in that fails here is done by the person on the page of /.
	if in, err := s.cfg.Accounts.signIn(r, q.Email, q.Password); err == nil {
		out.cookies = append(out.cookies, in.cookie(secure))
	}
	return out, nil
}

type setupResume struct{}

// setupResumed is what a page has made before it was loaded again.
type setupResumed struct {
	Page   string `json:"page"`
	Email  string `json:"email"`
	Tenant string `json:"tenant,omitempty"`
	Device string `json:"device,omitempty"`
}

// resume gives a page that was loaded again its secret back, which its cookie holds.
func (s *Setup) resume(r *http.Request, _ setupResume) (setupResumed, error) {
	page := ""
	if c, err := r.Cookie(setupCookie); err == nil {
		page = c.Value
	}
	if err := s.links.Continue(page); err != nil {
		return setupResumed{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := setupResumed{Page: page, Email: s.email, Device: s.device}
	if s.tenant != nil {
		out.Tenant = s.tenant.Token
	}
	return out, nil
}

type setupTenant struct {
	Page  string `json:"page"`
	Token string `json:"token"`
	Name  string `json:"name"`
}

func (s *Setup) makeTenant(r *http.Request, q setupTenant) (*SetupTenant, error) {
	if err := s.links.Continue(q.Page); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tenant != nil {
		if s.tenant.Token == q.Token {
			return s.tenant, nil
		}
		return nil, model.Errorf(model.CodeConflict, "this page has made the tenant %s already; more with: weir tenant create", s.tenant.Token)
	}
	made, err := s.steps.MakeTenant(r.Context(), q.Token, q.Name)
	if err != nil {
		return nil, taken(err, "token", "a tenant with this token exists already; choose another one")
	}
	s.tenant = made
	return made, nil
}

type setupDevice struct {
	Page  string `json:"page"`
	Token string `json:"token"`
}

func (s *Setup) makeDevice(r *http.Request, q setupDevice) (*SetupDevice, error) {
	tenant, err := s.tenantOf(q.Page)
	if err != nil {
		return nil, err
	}
	made, err := s.steps.MakeDevice(r.Context(), tenant, q.Token, PlainHost(r.Host))
	if err != nil {
		return nil, taken(err, "token", "a device with this token exists already; choose another one")
	}
	s.mu.Lock()
	s.device = made.Token
	s.mu.Unlock()
	return made, nil
}

type setupReading struct {
	Page   string `json:"page"`
	Device string `json:"device"`
}

type setupReadings struct {
	Readings []SetupReading `json:"readings"`
	// Refused is the newest message of the tenant that was not stored, while no reading is there.
	Refused *SetupRefusal `json:"refused,omitempty"`
}

// lookForReading answers with the device's newest readings; the page asks until there is one.
func (s *Setup) lookForReading(r *http.Request, q setupReading) (*setupReadings, error) {
	tenant, err := s.tenantOf(q.Page)
	if err != nil {
		return nil, err
	}
	out := &setupReadings{}
	if out.Readings, err = s.steps.Latest(r.Context(), tenant, q.Device); err == nil && len(out.Readings) == 0 {
		out.Refused, err = s.steps.NewestRefusal(r.Context(), tenant)
	}
	return out, err
}

// tenantOf returns the tenant of a page with a session.
func (s *Setup) tenantOf(page string) (string, error) {
	if err := s.links.Continue(page); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tenant == nil {
		return "", model.Errorf(model.CodeConflict, "this page has made no tenant yet")
	}
	return s.tenant.Token, nil
}

// taken says of a value that is in use which input it came from.
func taken(err error, field, text string) error {
	if e, ok := errors.AsType[*model.Error](err); ok && e.Reason == model.ReasonNotUnique {
		return model.Invalid(field, "%s", text)
	}
	return err
}

// SetupLink is a new one-time link, at every address where the page may be reached.
type SetupLink struct {
	URLs    []string  `json:"urls"`
	Expires time.Time `json:"expires"`
	// Hint says how to reach the page from another machine, "" where the link does.
	Hint string `json:"hint,omitempty"`
}

// Link makes a new link, which ends the one before. It is refused once an administrator exists.
func (s *Setup) Link() (*SetupLink, error) {
	scheme, listen := s.cfg.Listener()
	if listen == "" {
		return nil, &model.Error{Code: model.CodeUnsupported, Message: "the API listener is closed: there is no setup page",
			Hint: "open it with listeners.api, or make the administrator with weir admin create"}
	}
	secret, until, err := s.links.Mint()
	if err != nil {
		return nil, err
	}
	l := &SetupLink{Expires: until.UTC().Truncate(time.Second), Hint: setupHint(s.cfg.BaseURL, listen)}
	for _, at := range setupURLs(s.cfg.BaseURL, listen, hostName(), ownAddresses()) {
		if s.cfg.BaseURL == "" {
			at = scheme + strings.TrimPrefix(at, "http")
		}
		l.URLs = append(l.URLs, at+setupPath+"#"+secret)
	}
	return l, nil
}

// Print prints the link of a first start. The log says that it waits, and never the link itself.
func (s *Setup) Print(out io.Writer) {
	if _, listen := s.cfg.Listener(); out == io.Discard || listen == "" {
		return
	}
	l, err := s.Link()
	if err != nil { // an administrator was made this very moment
		return
	}
	fmt.Fprintf(out, "or in a browser, with this link: it is good once, for %d minutes (a new one: weir admin link --data %s)\n",
		int(auth.SetupLife.Minutes()), s.cfg.DataDir)
	for _, u := range l.URLs {
		fmt.Fprintf(out, "  %s\n", u)
	}
	if l.Hint != "" {
		fmt.Fprintf(out, "  (%s)\n", l.Hint)
	}
	s.cfg.Log.Info("no account can sign in yet: the setup page waits for the link that was printed", "until", l.Expires)
}

// maxSetupURLs bounds the addresses of a machine with many networks.
const maxSetupURLs = 8

// setupURLs returns where the API can be reached: at base, when it is set, else at the address that it listens on. For
// a listener on every interface these are the machine's name and its own addresses; one with neither is reached by itself.
func setupURLs(base, listen, name string, own []netip.Addr) []string {
	if base != "" {
		return []string{strings.TrimRight(base, "/")}
	}
	at, err := netip.ParseAddrPort(listen)
	if err != nil || !at.Addr().IsUnspecified() {
		return []string{"http://" + listen}
	}
	port := strconv.Itoa(int(at.Port()))
	var urls []string
	if name != "" && name != "localhost" {
		urls = append(urls, "http://"+net.JoinHostPort(name, port))
	}
	for _, a := range own {
		// A browser cannot name the interface that a link-local address of IPv6 needs.
		if a.IsLoopback() || a.Is6() && (at.Addr().Is4() || a.IsLinkLocalUnicast()) || len(urls) == maxSetupURLs {
			continue
		}
		urls = append(urls, "http://"+net.JoinHostPort(a.String(), port))
	}
	if len(urls) == 0 {
		urls = append(urls, "http://"+net.JoinHostPort("127.0.0.1", port))
	}
	return urls
}

// setupHint says how a page that only the machine itself reaches is opened on another one.
func setupHint(base, listen string) string {
	at, err := netip.ParseAddrPort(listen)
	if base != "" || err != nil || !at.Addr().IsLoopback() {
		return ""
	}
	return fmt.Sprintf("only this machine reaches it; from another one first: ssh -L %d:%s %s", at.Port(), listen, cmp.Or(hostName(), "this-machine"))
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return PlainHost(name)
}

// ownAddresses are the addresses of this machine, none where the system does not report them.
func ownAddresses() []netip.Addr {
	networks, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var own []netip.Addr
	for _, n := range networks {
		if p, err := netip.ParsePrefix(n.String()); err == nil {
			own = append(own, p.Addr().Unmap())
		}
	}
	return own
}

// PlainHost is the host of a Host header, "" when it has a character that no name or address has: it becomes part of a
// command that a person types.
func PlainHost(hostPort string) string {
	host := (&url.URL{Host: hostPort}).Hostname()
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".-_:", r)
	}
	if len(host) > 253 || strings.HasPrefix(host, "-") || strings.ContainsFunc(host, func(r rune) bool { return !plain(r) }) {
		return ""
	}
	return host
}
