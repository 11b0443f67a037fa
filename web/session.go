package web

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"weir/auth"
	"weir/model"
)

// sessionCookie holds the identity token of a browser.
//
// It is a cookie and not a token in the page's hands, because the pages of the front work without a script, and because a script
// that got into a page could not read it (HttpOnly). It is no gate into the API: the API reads the Authorization header
// alone, never a cookie, so a page of another host that makes a browser send it gains nothing; SameSite=Strict keeps it out
// of such requests in addition. It lasts as long as the token, 15 minutes, and ends with it when the password changes or the
// identity is disabled. A sign-out ends the token, too. Over TLS it is Secure.
const sessionCookie = "weir_session"

// Accounts is the part of auth that the pages sign people in with. It answers an error while the instance starts.
type Accounts struct {
	// Auth returns nil while the instance starts.
	Auth func() SignIn
}

// SignIn is implemented by auth.Auth.
type SignIn interface {
	Login(ctx context.Context, email, password string, source netip.Addr) (*auth.SignIn, error)
	Authenticate(p auth.Plane, token, tenantHeader string) (*model.Principal, error)
	IdentityMemberships(identityToken string) ([]auth.Membership, error)
	SignOutIdentity(identityToken string) error
}

// Session is the identity token of a browser. The zero value ends one.
type Session struct {
	token   string
	expires time.Time
}

// Person is a signed-in person as the page shows them.
type Person struct {
	Email       string
	Superuser   bool
	Until       string
	Memberships []auth.Membership
}

func (s *Session) cookie(secure bool) *http.Cookie {
	c := &http.Cookie{Name: sessionCookie, Value: s.token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: secure, MaxAge: -1}
	if s.token != "" {
		c.MaxAge = max(1, int(time.Until(s.expires).Seconds()))
	}
	return c
}

func (a Accounts) signIn(r *http.Request, email, password string) (*Session, error) {
	at := a.Auth()
	if at == nil {
		return nil, model.Errorf(model.CodeUnavailable, "Weir is starting; try again in a moment")
	}
	source := netip.Addr{}
	if ap, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		source = ap.Addr().Unmap()
	}
	in, err := at.Login(r.Context(), email, password, source)
	if err != nil {
		return nil, err
	}
	return &Session{in.Token, in.Expires.Time()}, nil
}

// signOut ends the session of a request, which may have none.
func (a Accounts) signOut(r *http.Request) {
	if c, err := r.Cookie(sessionCookie); err == nil && c.Value != "" {
		if at := a.Auth(); at != nil {
			_ = at.SignOutIdentity(c.Value) // a token that is not valid ends nothing
		}
	}
}

// of returns the person of a request's session, nil for none.
func (a Accounts) of(r *http.Request) *Person {
	c, err := r.Cookie(sessionCookie)
	at := a.Auth()
	if err != nil || c.Value == "" || at == nil {
		return nil
	}
	by, err := at.Authenticate(auth.PlaneIdentity, c.Value, "")
	if err != nil {
		return nil
	}
	p := &Person{Email: by.Subject, Superuser: by.Sudo, Until: until(by.Expires.Time())}
	if p.Memberships, err = at.IdentityMemberships(c.Value); err != nil {
		return nil
	}
	return p
}
