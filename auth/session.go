package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/model"
	"weir/store"
)

// AuthToken is a pair of tokens. Expires is the end of the access token.
type AuthToken struct {
	Access  string       `gql:"accessToken"`
	Refresh string       `gql:"refreshToken"`
	Expires model.Micros `gql:"expiresAt"`
}

// A session is the chain of refresh tokens that SelectTenant begins. It is one row however often it is refreshed: the
// jti of its refresh token is {family}.{turn}, and only the current turn is valid.
const (
	// repeatGrace: an answer that was lost on the way may be asked for again.
	repeatGrace = 10 * time.Second
	// maxSessions of one identity in one tenant; the session that was refreshed longest ago is removed for a new one.
	maxSessions = 64
)

// pair holds the claims of a turn, unsigned: signing is deterministic, so a repeated call gets the same tokens although
// no token is stored.
type pair struct {
	Key     string  `json:"kid"`
	Access  *claims `json:"access"`
	Refresh *claims `json:"refresh"`
}

func sessionToken(family string, turn int64) string {
	return family + "." + strconv.FormatInt(turn, 10)
}

func parseSessionToken(jti string) (family string, turn int64, ok bool) {
	family, digits, found := strings.Cut(jti, ".")
	turn, err := strconv.ParseInt(digits, 10, 64)
	return family, turn, found && err == nil && family != ""
}

// SelectTenant begins a session of the identity in a tenant: an enabled membership in an enabled tenant is needed, or
// the role superuser. Refusals are INVALID_INPUT: "invalid or expired token" and "invalid credentials".
func (a *Auth) SelectTenant(ctx context.Context, identityToken, tenant string) (*AuthToken, error) {
	by, c, err := a.proveIdentity(identityToken)
	if err != nil {
		return nil, err
	}
	var pr *pair
	err = a.writer.Mutate(ctx, by, func(ch *store.Change) error {
		// The identity token was good a moment ago: ask again in the transaction.
		p, grants, err := loadPerson(ch, c.Subject)
		if err != nil {
			return err
		}
		if p == nil || p.id != by.Identity || !p.enabled || by.Issued < sinceOf(p.notBefore, p.roles, grants) {
			return errBadToken()
		}
		id, enabled, _ := a.tenants.Lookup(tenant)
		if !enabled {
			return errCredentials()
		}
		s := store.RefreshSession{Family: newID(), Turn: 1, Identity: p.id, Tenant: id}
		if pr, err = a.mintTurn(p, grants, tenant, &s); err != nil {
			return err
		}
		// At the maximum the session that was refreshed longest ago makes room.
		ended, err := store.AddRefreshSession(ch, &s, maxSessions)
		a.m.sessionsCrowdedOut.Add(float64(ended))
		return err
	})
	if err != nil {
		return nil, err
	}
	return a.signPair(pr)
}

// Refresh advances a session by one turn: the token is consumed, identity, membership and tenant are checked again, and
// a new pair carries the current authorities. The token of the previous turn, presented again within 10 seconds while
// its successor is unused, returns the same pair; any other consumed token ends the session with its access tokens, because it was copied.
func (a *Auth) Refresh(ctx context.Context, refreshToken string) (*AuthToken, error) {
	outcome, t, err := a.refresh(ctx, refreshToken)
	a.m.refreshes.WithLabelValues(outcome).Inc()
	return t, err
}

func (a *Auth) refresh(ctx context.Context, refreshToken string) (outcome string, t *AuthToken, err error) {
	c, err := a.parse(refreshToken, KindRefresh)
	if err != nil {
		return "refused", nil, errBadToken()
	}
	family, turn, ok := parseSessionToken(c.ID)
	if !ok {
		return "refused", nil, errBadToken()
	}
	var pr *pair
	err = a.writer.Mutate(ctx, provenPrincipal(c.Subject), func(ch *store.Change) error {
		outcome, pr, err = a.nextTurn(ch, c, family, turn)
		return err
	})
	switch {
	case model.CodeOf(err) != "":
		return "refused", nil, err
	case err != nil:
		return "error", nil, err
	case outcome == "reused":
		a.end(family, a.live.Load().AccessTokenTTL)
		a.log.Warn("a consumed refresh token was presented again; its session is ended", "subject", c.Subject, "tenant", c.Tenant)
		return outcome, nil, errBadToken()
	}
	t, err = a.signPair(pr)
	return outcome, t, err
}

// nextTurn is Refresh inside the transaction.
func (a *Auth) nextTurn(ch *store.Change, c *claims, family string, turn int64) (outcome string, pr *pair, err error) {
	s, err := store.RefreshSessionOf(ch, family)
	if err != nil {
		return "", nil, err
	}
	if s == nil {
		return "", nil, errBadToken()
	}
	// A client whose answer was lost asks again with the same token: it gets the same pair, for a short time.
	repeated := turn == s.Turn-1 && ch.At <= after(s.TurnedAt, repeatGrace)
	if turn != s.Turn && !repeated {
		return "reused", nil, store.EndRefreshSession(ch, s.ID)
	}
	// Everything that could have changed since sign-in is read now.
	p, grants, err := loadPerson(ch, c.Subject)
	if err != nil {
		return "", nil, err
	}
	id, enabled, _ := a.tenants.Lookup(c.Tenant)
	if p == nil || p.id != s.Identity || !p.enabled || !enabled || id != s.Tenant {
		return "", nil, errCredentials()
	}
	if repeated {
		pr = &pair{}
		if err := json.Unmarshal(s.Pair, pr); err != nil {
			return "", nil, fmt.Errorf("%w: refresh_sessions %d: %w", store.ErrDamaged, s.ID, err)
		}
		return "repeated", pr, nil
	}
	// The token is consumed by the commit.
	s.Turn++
	if pr, err = a.mintTurn(p, grants, c.Tenant, s); err != nil {
		return "", nil, err
	}
	if err := store.SaveRefreshTurn(ch, s); err != nil {
		return "", nil, err
	}
	return "ok", pr, ch.Audit(store.AuditEvent{
		TenantID:  s.Tenant,
		Category:  store.AuditAuth,
		Operation: store.AuditRefresh,
		Label:     p.email,
	})
}

// mintTurn makes the claims of a turn and puts them on the session.
func (a *Auth) mintTurn(p *person, grants map[int64]grant, tenant string, s *store.RefreshSession) (*pair, error) {
	// Issued after the newest revocation in the tenant, or it would not count.
	access := a.base(KindAccess, p.email, a.live.Load().AccessTokenTTL, a.tenants.NotBefore(tenant))
	access.ID = sessionToken(s.Family, s.Turn)
	access.Username = p.email
	access.Email = p.email
	access.Tenant = tenant
	m := p.memberships[s.Tenant]
	switch {
	case p.superuser(grants):
		access.Sudo = true
		access.Roles = []string{RoleSuperuser}
		access.Authorities = []model.Authority{model.AllAuthorities}
	case m.enabled:
		access.Roles, access.Authorities = union(grants, m.roles, viewerBaseline...)
	default:
		return nil, errCredentials()
	}
	// The refresh token carries no authorities: they are read again at the next turn.
	refresh := a.base(KindRefresh, p.email, a.live.Load().RefreshTokenTTL, 0)
	refresh.Username, refresh.Tenant, refresh.ID = p.email, tenant, sessionToken(s.Family, s.Turn)
	pr := &pair{Key: a.keys.active().kid, Access: access, Refresh: refresh}
	// The session keeps the claims of the pair, for a repeated call.
	body, err := json.Marshal(pr)
	if err != nil {
		return nil, err
	}
	s.Pair, s.TurnedAt, s.Expires = body, model.MicrosOf(a.now()), model.Micros(refresh.Expires)
	return pr, nil
}

// signPair signs outside the transaction: a signature takes milliseconds on a gateway.
func (a *Auth) signPair(pr *pair) (*AuthToken, error) {
	// The key of the turn, so that a repeated call gives the same tokens.
	key := a.keys.byID(pr.Key)
	if key == nil {
		return nil, errBadToken()
	}
	access, err := a.sign(pr.Access, key)
	if err != nil {
		return nil, err
	}
	refresh, err := a.sign(pr.Refresh, key)
	if err != nil {
		return nil, err
	}
	return &AuthToken{Access: access, Refresh: refresh, Expires: model.Micros(pr.Access.Expires)}, nil
}

// sweepSessions removes expired sessions, a bounded number at a time.
func (a *Auth) sweepSessions(ctx context.Context) error {
	const slice = 500
	for {
		var n int64
		err := a.store.Write(ctx, store.Results, func(tx store.Tx) (err error) {
			n, err = store.SweepRefreshSessions(tx, model.MicrosOf(a.now()), slice)
			return err
		})
		if err != nil || n < slice {
			return err
		}
	}
}
