package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
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
	// Send takes a reading of a device in, as HTTP ingest does: without an error it is on disk, and counted.
	Send(ctx context.Context, tenant, device, metric string, value float64) error
	// Latest are the newest readings of a device.
	Latest(ctx context.Context, tenant, device string) ([]SetupReading, error)
	// NewestRefusal is the newest message of the tenant that was not stored, nil for none.
	NewestRefusal(ctx context.Context, tenant string) (*SetupRefusal, error)
	// AddRule makes and publishes a rule for a device, or changes the one with the same metric and operator. It returns the rule
	// with its token.
	AddRule(ctx context.Context, tenant string, rule SetupRule) (*SetupRule, error)
	// Firings are the newest of a device, newest first.
	Firings(ctx context.Context, tenant, device string) ([]Firing, error)
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
	rule   *SetupRule   // which the page has made last
}

// SetupConfig says where the page is reached.
type SetupConfig struct {
	BaseURL string
	DataDir string
	Program string // how the program was called, for the commands that Print shows; "": weir
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
		"send":          NewSetupCall(s.send),
		"reading":       NewSetupCall(s.lookForReading),
		"rule":          NewSetupCall(s.addRule),
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
	Page   string     `json:"page"`
	Email  string     `json:"email"`
	Tenant string     `json:"tenant,omitempty"`
	Device string     `json:"device,omitempty"`
	Rule   *SetupRule `json:"rule,omitempty"`
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
	out := setupResumed{Page: page, Email: s.email, Device: s.device, Rule: s.rule}
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
	s.device, s.rule = made.Token, nil
	s.mu.Unlock()
	return made, nil
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

// taken says of a value that is in use, or reserved, which input it came from.
func taken(err error, field, text string) error {
	e, refused := errors.AsType[*model.Error](err)
	switch {
	case refused && e.Reason == model.ReasonNotUnique:
		return model.Invalid(field, "%s", text)
	case refused && e.Reason == model.ReasonTokenReserved:
		return model.Invalid(field, "a deleted tenant reserves this token for 12 hours, and until its data is erased; choose another one")
	}
	return err
}
