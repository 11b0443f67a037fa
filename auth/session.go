package auth

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
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

// A session is the line of refresh tokens that SelectTenant begins. It is one row however often it is refreshed: the
// jti of its refresh token is {family}.{turn}, and only the present turn is good.
const (
	// repeatGrace: an answer that was lost on the way may be asked for again.
	repeatGrace = 10 * time.Second
	// maxSessions of one identity in one tenant; the one that was refreshed longest ago makes room.
	maxSessions = 64
)

type session struct {
	id       int64
	family   string
	turn     int64
	turnedAt model.Micros
	expires  model.Micros
	identity int64
	tenant   int64
	pair     []byte
}

// pair is what a turn gave, unsigned: signing is deterministic, so a repeated call gets the same tokens without their
// being kept anywhere.
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
		s := session{family: newID(), turn: 1, identity: p.id, tenant: id}
		if pr, err = a.turn(p, grants, tenant, &s); err != nil {
			return err
		}
		return a.insertSession(ch, &s)
	})
	if err != nil {
		return nil, err
	}
	return a.signPair(pr)
}

// Refresh takes the next turn of a session: the token is consumed, identity, membership and tenant are judged anew, and
// a new pair carries the authorities of now. The token of the turn before, presented again within 10 seconds while its
// successor is unused, gives the same pair; any other consumed token ends the session, for somebody has copied it.
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
	err = a.writer.Mutate(ctx, person0(c.Subject), func(ch *store.Change) error {
		outcome, pr, err = a.nextTurn(ch, c, family, turn)
		return err
	})
	switch {
	case model.CodeOf(err) != "":
		return "refused", nil, err
	case err != nil:
		return "error", nil, err
	case outcome == "reused":
		a.log.Warn("a consumed refresh token was presented again; its session is ended", "subject", c.Subject, "tenant", c.Tenant)
		return outcome, nil, errBadToken()
	}
	t, err = a.signPair(pr)
	return outcome, t, err
}

// nextTurn is Refresh inside the transaction.
func (a *Auth) nextTurn(ch *store.Change, c *claims, family string, turn int64) (outcome string, pr *pair, err error) {
	s, err := loadSession(ch, family)
	if err != nil {
		return "", nil, err
	}
	if s == nil {
		return "", nil, errBadToken()
	}
	repeated := turn == s.turn-1 && ch.At <= after(s.turnedAt, repeatGrace)
	if turn != s.turn && !repeated {
		_, err := ch.Exec(`DELETE FROM refresh_sessions WHERE id = ?`, s.id)
		return "reused", nil, err
	}
	p, grants, err := loadPerson(ch, c.Subject)
	if err != nil {
		return "", nil, err
	}
	id, enabled, _ := a.tenants.Lookup(c.Tenant)
	if p == nil || p.id != s.identity || !p.enabled || !enabled || id != s.tenant {
		return "", nil, errCredentials()
	}
	if repeated {
		pr = &pair{}
		if err := json.Unmarshal(s.pair, pr); err != nil {
			return "", nil, fmt.Errorf("%w: refresh_sessions %d: %w", store.ErrDamaged, s.id, err)
		}
		return "repeated", pr, nil
	}
	s.turn++
	if pr, err = a.turn(p, grants, c.Tenant, s); err != nil {
		return "", nil, err
	}
	if err := saveTurn(ch, s); err != nil {
		return "", nil, err
	}
	return "ok", pr, ch.Audit(store.AuditEvent{TenantID: s.tenant, Category: store.AuditAuth, Operation: store.AuditRefresh,
		Label: p.email})
}

// turn makes the claims of a turn and puts them on the session.
func (a *Auth) turn(p *person, grants map[int64]grant, tenant string, s *session) (*pair, error) {
	access := a.base(KindAccess, p.email, a.live.Load().AccessTokenTTL, a.tenants.NotBefore(tenant))
	access.Username, access.Email, access.Tenant = p.email, p.email, tenant
	m := p.memberships[s.tenant]
	switch {
	case p.superuser(grants):
		access.Sudo, access.Roles, access.Authorities = true, []string{RoleSuperuser}, []model.Authority{model.AllAuthorities}
	case m.enabled:
		access.Roles, access.Authorities = union(grants, m.roles, viewerBaseline...)
	default:
		return nil, errCredentials()
	}
	refresh := a.base(KindRefresh, p.email, a.live.Load().RefreshTokenTTL, 0)
	refresh.Username, refresh.Tenant, refresh.ID = p.email, tenant, sessionToken(s.family, s.turn)
	pr := &pair{Key: a.keys.active().kid, Access: access, Refresh: refresh}
	body, err := json.Marshal(pr)
	if err != nil {
		return nil, err
	}
	s.pair, s.turnedAt, s.expires = body, model.MicrosOf(a.now()), model.Micros(refresh.Expires)
	return pr, nil
}

// signPair signs outside the transaction: a signature takes milliseconds on a gateway.
func (a *Auth) signPair(pr *pair) (*AuthToken, error) {
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

func loadSession(tx store.Tx, family string) (*session, error) {
	s := &session{family: family}
	err := tx.QueryRow(`SELECT id, turn, turned_at, expires_at, identity_id, entered, pair FROM refresh_sessions WHERE family = ?`,
		family).Scan(&s.id, &s.turn, &s.turnedAt, &s.expires, &s.identity, &s.tenant, &s.pair)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return s, err
}

func saveTurn(tx store.Tx, s *session) error {
	_, err := tx.Exec(`UPDATE refresh_sessions SET turn = ?, turned_at = ?, expires_at = ?, pair = ? WHERE id = ?`,
		s.turn, int64(s.turnedAt), int64(s.expires), s.pair, s.id)
	return err
}

func (a *Auth) insertSession(tx store.Tx, s *session) error {
	ended, err := tx.Exec(`DELETE FROM refresh_sessions WHERE id IN (SELECT id FROM refresh_sessions
		WHERE identity_id = ? AND entered = ? ORDER BY turned_at DESC, id DESC LIMIT 1000 OFFSET ?)`,
		s.identity, s.tenant, maxSessions-1)
	if err != nil {
		return err
	}
	a.m.sessionsCrowdedOut.Add(float64(ended))
	_, err = tx.Exec(`INSERT INTO refresh_sessions (family, turn, turned_at, expires_at, identity_id, entered, pair)
		VALUES (?, ?, ?, ?, ?, ?, ?)`, s.family, s.turn, int64(s.turnedAt), int64(s.expires), s.identity, s.tenant, s.pair)
	return err
}

// endSessions ends the sessions of an identity, in one tenant or (0) in all.
func endSessions(tx store.Tx, identity, tenant int64) error {
	query, args := `DELETE FROM refresh_sessions WHERE identity_id = ?`, []any{identity}
	if tenant != 0 {
		query, args = query+` AND entered = ?`, append(args, tenant)
	}
	_, err := tx.Exec(query, args...)
	return err
}

// sweepSessions removes what has expired, a bounded number at a time.
func (a *Auth) sweepSessions(ctx context.Context) error {
	const slice = 500
	for {
		var n int64
		err := a.store.Write(ctx, store.Results, func(tx store.Tx) (err error) {
			n, err = tx.Exec(`DELETE FROM refresh_sessions WHERE id IN
				(SELECT id FROM refresh_sessions WHERE expires_at <= ? LIMIT ?)`, int64(model.MicrosOf(a.now())), slice)
			return err
		})
		if err != nil || n < slice {
			return err
		}
	}
}
