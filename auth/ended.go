package auth

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/model"
	"weir/store"
)

// maxEnded bounds the sessions that are remembered as ended. At the bound that which was ended first is forgotten, and counted: what is left of its tokens
// counts again until they expire.
const maxEnded = 16384

// endedSessions are the sessions that ended before their tokens did: by a sign-out, or since a refresh token was copied. They are kept in memory for as long as a token of
// theirs may live, since a token that carries its proof is looked up nowhere else.
type endedSessions struct {
	count     atomic.Int64 // so that nothing is locked while there are none
	forgotten func()

	mu    sync.Mutex
	until map[string]model.Micros
	order []string // of until, the first to end first
}

func newEndedSessions(forgotten func()) *endedSessions {
	return &endedSessions{forgotten: forgotten, until: map[string]model.Micros{}}
}

// add ends a session whose tokens live no longer than until.
func (e *endedSessions) add(session string, now, until model.Micros) {
	e.mu.Lock()
	defer e.mu.Unlock()
	// Those whose tokens have expired make room; one that had to go early is counted.
	for len(e.order) > 0 && (e.until[e.order[0]] < now || len(e.order) >= maxEnded) {
		if e.until[e.order[0]] >= now {
			e.forgotten()
		}
		delete(e.until, e.order[0])
		e.order = e.order[1:]
	}
	if _, there := e.until[session]; !there {
		e.order = append(e.order, session)
	}
	e.until[session] = max(until, e.until[session])
	e.count.Store(int64(len(e.order)))
}

func (e *endedSessions) has(session string) bool {
	if session == "" || e.count.Load() == 0 {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ended := e.until[session]
	return ended
}

// sessionOf is the session that a token belongs to: the chain of refresh tokens for an access token, itself for an identity token.
func sessionOf(jti string) string {
	session, _, _ := strings.Cut(jti, ".")
	return session
}

// end has no token of a session count any more, of those that live no longer than life from now on.
func (a *Auth) end(session string, life time.Duration) {
	now := model.MicrosOf(a.now())
	a.ended.add(session, now, after(now, life+clockLeeway))
}

// SignOut ends the session of a refresh token: neither that token nor an access token of the session counts any more. identityToken, which may be "", ends with it. It returns
// false where the session had ended before. A token that is not valid is INVALID_INPUT "invalid or expired token".
func (a *Auth) SignOut(ctx context.Context, refreshToken, identityToken string) (bool, error) {
	// The token proves who signs out; nothing else is asked.
	c, err := a.parse(refreshToken, KindRefresh)
	if err != nil {
		return false, errBadToken()
	}
	family, _, ok := parseSessionToken(c.ID)
	if !ok {
		return false, errBadToken()
	}
	if identityToken != "" {
		if err := a.SignOutIdentity(identityToken); err != nil {
			return false, err
		}
	}
	// End the session on disk first: it must not come back after a restart.
	there := false
	err = a.writer.Mutate(ctx, provenPrincipal(c.Subject), func(ch *store.Change) error {
		s, err := store.RefreshSessionOf(ch, family)
		if err != nil || s == nil {
			return err
		}
		there = true
		if err := store.EndRefreshSession(ch, s.ID); err != nil {
			return err
		}
		return ch.Audit(store.AuditEvent{TenantID: s.Tenant, Category: store.AuditAuth, Operation: store.AuditSignOut, Label: c.Subject})
	})
	if err != nil {
		return false, fmt.Errorf("auth: ending a session: %w", err)
	}
	// Then what is left of its access tokens, which no store is asked for.
	a.end(family, a.live.Load().AccessTokenTTL)
	return there, nil
}

// SignOutIdentity ends an identity token before its time. One that is not valid is INVALID_INPUT "invalid or expired token".
func (a *Auth) SignOutIdentity(token string) error {
	c, err := a.parse(token, KindIdentity)
	if err != nil {
		return errBadToken()
	}
	a.ended.add(sessionOf(c.ID), model.MicrosOf(a.now()), after(model.Micros(c.Expires), clockLeeway))
	return nil
}
