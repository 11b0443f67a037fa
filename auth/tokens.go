package auth

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"weir/model"
)

// Limits of tokens. The longest one a person can get holds 32 roles of 128 characters and every authority by name.
const (
	maxTokenBytes = 16 << 10
	clockLeeway   = 30 * time.Second
	identityLife  = 15 * time.Minute
	serviceLife   = 15 * time.Minute
)

// ErrToken is returned when a token does not verify, is of the wrong kind, has expired or was revoked. The text says which.
var ErrToken = errors.New("auth: token refused")

func refuse(why string) error { return fmt.Errorf("%w: %s", ErrToken, why) }

// kindError is ErrToken of a token that verifies and is for other areas.
type kindError Kind

func (k kindError) Error() string {
	return fmt.Sprintf("%v: a token of kind %q is not accepted here", ErrToken, string(k))
}

// Is makes errors.Is(err, ErrToken) hold.
func (k kindError) Is(target error) bool { return target == ErrToken }

// hint is what the caller learns of its own token.
func (k kindError) hint() string {
	switch Kind(k) {
	case KindIdentity:
		return "this is an identity token: selectTenant gives an access token for the areas of a tenant"
	case KindAccess:
		return "this is an access token of a tenant: sign in for an identity token, which the identity plane needs"
	case KindRefresh:
		return "this is a refresh token: refresh gives an access token"
	}
	return "the token is not accepted here"
}

// sign turns claims into a token. It is deterministic (RSASSA-PKCS1-v1_5): the same claims under the same key give the
// same token, which is what lets refresh answer a repeated call with the same pair.
func (a *Auth) sign(c *claims, key *signingKey) (string, error) {
	t := jwt.NewWithClaims(jwt.SigningMethodRS256, c)
	t.Header["kid"] = key.kid
	signed, err := t.SignedString(key.private)
	if err != nil {
		return "", fmt.Errorf("auth: signing a token: %w", err)
	}
	return signed, nil
}

// base returns the claims that every token has. iat is later than every revocation that went before it in this process
// and not before since, even when the wall clock is wrong.
func (a *Auth) base(k Kind, subject string, life time.Duration, since model.Micros) *claims {
	now, issued := model.MicrosOf(a.now()), a.stamp(since)
	return &claims{
		Issuer:      a.cfg.issuer(),
		Subject:     subject,
		Audience:    jwt.ClaimStrings{audience},
		Expires:     floorSecond(after(now, life)),
		IssuedAt:    numericDate(issued),
		NotBefore:   floorSecond(now),
		ID:          newID(),
		Kind:        k,
		Roles:       []string{},
		Authorities: []model.Authority{},
	}
}

// newID returns 128 random bits as text.
func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

// stamp returns the current instant, not before since and later than every earlier stamp: what was issued before a revocation is older
// than it even in one microsecond or when the wall clock goes back.
func (a *Auth) stamp(since model.Micros) model.Micros {
	for {
		// Without a lock: every token needs one.
		last := a.lastStamp.Load()
		next := max(int64(model.MicrosOf(a.now())), last+1, int64(since))
		if a.lastStamp.CompareAndSwap(last, next) {
			return model.Micros(next)
		}
	}
}

// parse checks form, signature, issuer, audience and times, then the kind. It does not check revocation.
func (a *Auth) parse(token string, kinds ...Kind) (*claims, error) {
	// Bound the work for what is no token.
	if len(token) > maxTokenBytes || strings.ContainsFunc(token, notInToken) {
		return nil, refuse("malformed")
	}
	c := &claims{}
	_, err := a.parser.ParseWithClaims(token, c, func(t *jwt.Token) (any, error) {
		kid, _ := t.Header["kid"].(string)
		if k := a.keys.byID(kid); k != nil {
			return &k.private.PublicKey, nil
		}
		return nil, errors.New("unknown key")
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	case c.IssuedAt == 0 || c.ID == "":
		return nil, refuse("incomplete")
	case !slices.Contains(kinds, c.Kind):
		return nil, kindError(c.Kind)
	}
	return c, nil
}

func (a *Auth) newParser() *jwt.Parser {
	return jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodRS256.Alg()}), jwt.WithLeeway(clockLeeway),
		jwt.WithAudience(audience), jwt.WithIssuer(a.cfg.issuer()), jwt.WithExpirationRequired(), jwt.WithTimeFunc(a.now),
		jwt.WithStrictDecoding())
}

// notInToken reports characters that are neither base64url nor the dot. The decoder of the standard library passes over newlines;
// one token must have one spelling.
func notInToken(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
}

// Plane is where a token is presented.
type Plane uint8

// The planes.
const (
	PlaneTenant       Plane = iota // /api/<area>/graphql over HTTP
	PlaneTenantSocket              // the same over WebSocket: access tokens only
	PlaneIdentity                  // admin and settings
)

func (p Plane) kinds() []Kind {
	switch p {
	case PlaneTenant:
		return []Kind{KindAccess, KindService}
	case PlaneTenantSocket:
		return []Kind{KindAccess}
	case PlaneIdentity:
		return []Kind{KindIdentity}
	}
	return nil
}

// Authenticate verifies a bearer token presented on a plane. tenantHeader is X-Weir-Tenant; it counts for a service
// token only, and where it names no enabled tenant none is resolved. Every refusal is UNAUTHENTICATED and wraps ErrToken:
// the caller learns that the token has expired or is one for other areas, as it says itself, and otherwise not why.
func (a *Auth) Authenticate(p Plane, token, tenantHeader string) (*model.Principal, error) {
	principal, err := a.authenticate(p, token, tenantHeader)
	if err != nil {
		a.m.refusedTokens.Inc()
		// Say only what the caller's own token says already.
		refusal := model.Unauthenticated("the token is not valid")
		if errors.Is(err, jwt.ErrTokenExpired) { // its signature was verified before
			refusal = model.Unauthenticated("the token has expired")
		}
		if kind, ok := errors.AsType[kindError](err); ok { // likewise
			refusal = model.Unauthenticated(kind.hint())
		}
		refusal.Err = err
		return nil, refusal
	}
	return principal, nil
}

func (a *Auth) authenticate(p Plane, token, tenantHeader string) (*model.Principal, error) {
	c, err := a.parse(token, p.kinds()...)
	if err != nil {
		return nil, err
	}
	return a.principal(c, tenantHeader)
}

func (a *Auth) principal(c *claims, tenantHeader string) (*model.Principal, error) {
	if c.Kind == KindService {
		return a.servicePrincipal(c, tenantHeader), nil
	}
	id, ok := a.dir.identity(c.Subject)
	if !ok {
		return nil, refuse("unknown identity")
	}
	// Authorities come from the token; what ended it comes from memory.
	p := &model.Principal{
		Kind:     model.IdentityCaller,
		Subject:  c.Subject,
		Identity: id.id,
		Sudo:     c.Sudo,
		Session:  sessionOf(c.ID),
		Issued:   model.Micros(c.IssuedAt),
		Expires:  model.Micros(c.Expires),
	}
	held := make(map[model.Authority]bool, len(c.Authorities))
	for _, au := range c.Authorities {
		held[au] = true
	}
	if c.Kind == KindAccess {
		tenant, _, _ := a.tenants.Lookup(c.Tenant)
		p.Kind, p.Tenant, p.TenantID, p.Tenants = model.AccessCaller, c.Tenant, tenant, held
	} else {
		p.System = held
	}
	// Last: only a token that is right in itself is worth the look.
	if why := a.revoked(p); why != "" {
		return nil, refuse(why)
	}
	return p, nil
}

func (a *Auth) servicePrincipal(c *claims, tenantHeader string) *model.Principal {
	tenant := ""
	id := int64(0)
	if row, enabled, known := a.tenants.Lookup(tenantHeader); known && enabled && model.ValidToken(tenantHeader) {
		tenant, id = tenantHeader, row
	}
	p := model.Service(c.Subject, tenant, id, c.Authorities...)
	p.Issued, p.Expires = model.Micros(c.IssuedAt), model.Micros(c.Expires)
	return p
}

// Valid reports whether the principal of a token is still authorized, and until when unless a revocation comes first. A
// principal that came from no token is always valid.
func (a *Auth) Valid(p *model.Principal) (until time.Time, ok bool) {
	switch p.Kind {
	case model.AccessCaller, model.IdentityCaller:
	case model.ServiceCaller:
		if p.Expires == 0 {
			return time.Time{}, true
		}
	case model.Anonymous, model.LocalOperator:
		return time.Time{}, true
	}
	until = p.Expires.Time()
	if !a.now().Before(until.Add(clockLeeway)) {
		return until, false
	}
	if p.Kind == model.ServiceCaller {
		return until, true
	}
	return until, a.revoked(p) == ""
}

// revoked returns why a token that was issued to p at p.Issued no longer counts, "" when it does. It reads memory only.
func (a *Auth) revoked(p *model.Principal) string {
	id, ok := a.dir.identity(p.Subject)
	switch {
	case !ok || id.id != p.Identity:
		return "unknown identity"
	case !id.enabled:
		return "identity disabled"
	case p.Issued < a.dir.since(id.notBefore, id.roles):
		return "identity changed"
	case a.ended.has(p.Session):
		return "session ended"
	case p.Kind == model.IdentityCaller:
		return ""
	}
	// In a tenant the membership counts, too.
	tenant, enabled, known := a.tenants.Lookup(p.Tenant)
	switch {
	case !known || !enabled || tenant != p.TenantID:
		return "no such tenant"
	case p.Issued < a.tenants.NotBefore(p.Tenant):
		return "tenant changed"
	case p.Sudo:
		return "" // a person who loses the role has a later not-before
	}
	m, ok := id.memberships[tenant]
	switch {
	case !ok || !m.enabled:
		return "no membership"
	case p.Issued < a.dir.since(m.notBefore, m.roles):
		return "membership changed"
	}
	return ""
}
