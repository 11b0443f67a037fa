package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/auth"
	"weir/model"
	"weir/web"
)

// setupPath is the page of the first run, setupCalls what it calls.
const (
	setupPath  = "/setup"
	setupCalls = "/setup/v1/"
)

// setup is the first run in a browser: the one-time link, and what its page does with it. Each step is a change of its
// own. The administrator comes first, and with him the link is used up; the tenant that fails afterwards leaves an
// instance with an administrator, which is what weir admin create makes, and the page stays at its second step with what
// was filled in. The page is told its tenant again when it asks for the same one again, because an answer may get lost.
type setup struct {
	in    *Instance
	links *auth.Setup

	mu     sync.Mutex
	tenant *TenantCreated // which the page has made; its devices go there and nowhere else
}

// bySetup is the principal of whoever has opened the link: it was printed for whoever holds the data directory.
func bySetup() *model.Principal { return &model.Principal{Kind: model.LocalOperator, Subject: "setup"} }

// setupState is how far the first run is, for those who open the page.
func (in *Instance) setupState() web.SetupState {
	switch {
	case !in.ready.Load():
		return web.SetupStarting
	case in.auth.HasSuperuser():
		return web.SetupClosed
	}
	return web.SetupOpen
}

// newSetup returns the first run and the handler of what its page calls.
func (in *Instance) newSetup() (*setup, http.Handler) {
	s := &setup{in: in, links: auth.NewSetup(in.auth.HasSuperuser, nil, in.metrics)}
	return s, web.SetupGuard{BaseURL: in.cfg.BaseURL, Log: in.log}.Calls(map[string]web.SetupCall{
		"open":          web.NewSetupCall(s.open),
		"administrator": web.NewSetupCall(s.makeAdministrator),
		"tenant":        web.NewSetupCall(s.makeTenant),
		"device":        web.NewSetupCall(s.makeDevice),
		"reading":       web.NewSetupCall(s.lookForReading),
	})
}

type setupOpen struct {
	Link string `json:"link"`
}

type setupOpened struct {
	Seconds int `json:"seconds"` // that the link is still good for
}

// open tells a page whose link is over before anything is typed.
func (s *setup) open(_ *http.Request, q setupOpen) (setupOpened, error) {
	until, err := s.links.Open(q.Link)
	return setupOpened{int(time.Until(until).Seconds())}, err
}

type setupAdministrator struct {
	Link     string `json:"link"`
	Email    string `json:"email"`
	Password string `json:"password"`
}

type setupAdministratorMade struct {
	Page  string `json:"page"` // the secret with which this page goes on
	Email string `json:"email"`
}

func (s *setup) makeAdministrator(r *http.Request, q setupAdministrator) (out setupAdministratorMade, err error) {
	out.Page, err = s.links.Redeem(q.Link, func() error {
		made, err := s.in.createAdmin(r.Context(), bySetup(), NewAdmin{Email: q.Email, Password: q.Password})
		if err == nil {
			out.Email = made.Email
		}
		return taken(err, "email", "somebody with this address exists already; choose another one")
	})
	if err == nil {
		s.in.log.Info("the setup page has made the first administrator")
	}
	return out, err
}

type setupTenant struct {
	Page  string `json:"page"`
	Token string `json:"token"`
	Name  string `json:"name"`
}

func (s *setup) makeTenant(r *http.Request, q setupTenant) (*TenantCreated, error) {
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
	made, err := s.in.createTenant(r.Context(), bySetup(), NewTenant{Token: q.Token, Name: q.Name})
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

type setupDeviceMade struct {
	Tenant   string    `json:"tenant"`
	Token    string    `json:"token"`
	Snippets []Snippet `json:"snippets"`
}

func (s *setup) makeDevice(r *http.Request, q setupDevice) (*setupDeviceMade, error) {
	tenant, err := s.tenantOf(q.Page)
	if err != nil {
		return nil, err
	}
	made, err := s.in.addDevice(r.Context(), bySetup(), NewDevice{Tenant: tenant, Token: q.Token})
	if err != nil {
		return nil, taken(err, "token", "a device with this token exists already; choose another one")
	}
	return &setupDeviceMade{Tenant: tenant, Token: made.Token, Snippets: FirstReading(made, plainHost(r.Host))}, nil
}

type setupReading struct {
	Page   string `json:"page"`
	Device string `json:"device"`
}

type setupReadings struct {
	Readings []setupReadingLine `json:"readings"`
	// Refused is the newest message of the tenant that was not stored, while no reading is there.
	Refused *setupRefused `json:"refused,omitempty"`
}

type setupReadingLine struct {
	Metric   string    `json:"metric"`
	Value    string    `json:"value"`
	Received time.Time `json:"received"`
}

type setupRefused struct {
	Reason  string `json:"reason"`
	Summary string `json:"summary"`
}

// lookForReading answers what the device's newest readings are; the page asks until there is one.
func (s *setup) lookForReading(r *http.Request, q setupReading) (*setupReadings, error) {
	tenant, err := s.tenantOf(q.Page)
	if err != nil {
		return nil, err
	}
	by := bySetup()
	by.Tenant = tenant
	by.TenantID, _, _ = s.in.govern.Lookup(tenant)
	devices, err := s.in.registry.Devices.ByToken(r.Context(), by, []string{q.Device})
	if err != nil {
		return nil, err
	}
	if len(devices) == 0 {
		return nil, model.NotFound("device", q.Device)
	}
	latest, err := s.in.series.LatestMeasurements(r.Context(), devices[0].ID)
	if err != nil {
		return nil, err
	}
	out := &setupReadings{Readings: make([]setupReadingLine, len(latest))}
	for i, m := range latest {
		out.Readings[i] = setupReadingLine{m.Metric, strconv.FormatFloat(m.Value, 'g', -1, 64), m.Updated.Time()}
	}
	if len(latest) == 0 {
		out.Refused, err = s.newestDeadLetter(r.Context(), tenant)
	}
	return out, err
}

func (s *setup) newestDeadLetter(ctx context.Context, tenant string) (*setupRefused, error) {
	letters, err := s.in.deadLetters(ctx, DeadLetterQuery{Tenant: &tenant, Limit: 1})
	if err != nil || len(letters) == 0 {
		return nil, err
	}
	return &setupRefused{letters[0].Reason, letters[0].Summary}, nil
}

// tenantOf is the tenant of a page that goes on.
func (s *setup) tenantOf(page string) (string, error) {
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

// SetupLink makes a new link, which ends the one before. It is refused once an administrator exists.
func (in *Instance) SetupLink() (*SetupLink, error) {
	scheme, listen := in.setupDoor()
	if listen == "" {
		return nil, &model.Error{Code: model.CodeUnsupported, Message: "the API listener is closed: there is no setup page",
			Hint: "open it with listeners.api, or make the administrator with weir admin create"}
	}
	secret, until, err := in.setup.links.Mint()
	if err != nil {
		return nil, err
	}
	l := &SetupLink{Expires: until.UTC().Truncate(time.Second), Hint: setupHint(in.cfg.BaseURL, listen)}
	for _, place := range setupPlaces(in.cfg.BaseURL, listen, hostName(), ownAddresses()) {
		if in.cfg.BaseURL == "" {
			place = scheme + strings.TrimPrefix(place, "http")
		}
		l.URLs = append(l.URLs, place+setupPath+"#"+secret)
	}
	return l, nil
}

// setupDoor is where the page is reached: over TLS only where nothing else is open, for the names of the certificate may
// be none of those that the link can have.
func (in *Instance) setupDoor() (scheme, listen string) {
	if in.addrs.API != "" {
		return "http", in.addrs.API
	}
	return "https", in.addrs.APITLS
}

// tellSetup prints the link of a first start. The log says that it waits, and never the link itself.
func (in *Instance) tellSetup() {
	if _, listen := in.setupDoor(); in.opt.Out == io.Discard || listen == "" {
		return
	}
	l, err := in.SetupLink()
	if err != nil { // an administrator was made this very moment
		return
	}
	fmt.Fprintf(in.opt.Out, "or in a browser, with this link: it is good once, for %d minutes (a new one: weir admin link --data %s)\n",
		int(auth.SetupLife.Minutes()), in.cfg.DataDir)
	for _, u := range l.URLs {
		fmt.Fprintf(in.opt.Out, "  %s\n", u)
	}
	if l.Hint != "" {
		fmt.Fprintf(in.opt.Out, "  (%s)\n", l.Hint)
	}
	in.log.Info("nobody can sign in yet: the setup page waits for the link that was printed", "until", l.Expires)
}

// maxSetupPlaces bounds the addresses of a machine with many networks.
const maxSetupPlaces = 8

// setupPlaces returns where the API can be reached: at base, when it is set, else at the address that it listens on. For
// a listener on every interface these are the machine's name and its own addresses; one with neither is reached by itself.
func setupPlaces(base, listen, name string, own []netip.Addr) []string {
	if base != "" {
		return []string{strings.TrimRight(base, "/")}
	}
	at, err := netip.ParseAddrPort(listen)
	if err != nil || !at.Addr().IsUnspecified() {
		return []string{"http://" + listen}
	}
	port := strconv.Itoa(int(at.Port()))
	var places []string
	if name != "" && name != "localhost" {
		places = append(places, "http://"+net.JoinHostPort(name, port))
	}
	for _, a := range own {
		// A browser cannot name the interface that a link-local address of IPv6 needs.
		if a.IsLoopback() || a.Is6() && (at.Addr().Is4() || a.IsLinkLocalUnicast()) || len(places) == maxSetupPlaces {
			continue
		}
		places = append(places, "http://"+net.JoinHostPort(a.String(), port))
	}
	if len(places) == 0 {
		places = append(places, "http://"+net.JoinHostPort("127.0.0.1", port))
	}
	return places
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
	return plainHost(name)
}

// ownAddresses are the addresses of this machine, none where the system does not tell.
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

// plainHost is the host of a Host header, "" when it has a character that no name or address has: it becomes part of a
// command that somebody types.
func plainHost(hostPort string) string {
	host := (&url.URL{Host: hostPort}).Hostname()
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".-_:", r)
	}
	if len(host) > 253 || strings.HasPrefix(host, "-") || strings.ContainsFunc(host, func(r rune) bool { return !plain(r) }) {
		return ""
	}
	return host
}
