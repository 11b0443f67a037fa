package auth

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/model"
	"weir/store"
)

// The refusals of sign-in say no more than the interface allows.
func errCredentials() error { return model.Errorf(model.CodeInvalidInput, "invalid credentials") }
func errBadToken() error    { return model.Errorf(model.CodeInvalidInput, "invalid or expired token") }

func errThrottled(wait time.Duration) error {
	after := int(math.Ceil(wait.Seconds()))
	return &model.Error{Code: model.CodeThrottled, Ext: map[string]any{"retryAfterSeconds": after},
		Message: "too many failed attempts, try again later"}
}

// unavailable is what callers see of ErrBusy.
func unavailable(err error) error {
	if errors.Is(err, ErrBusy) {
		return &model.Error{Code: model.CodeUnavailable, Message: "too many sign-ins are waiting, try again", Err: err}
	}
	return err
}

// SignIn is what Login gives.
type SignIn struct {
	Token       string       `gql:"identityToken"`
	Expires     model.Micros `gql:"expiresAt"`
	Superuser   bool         `gql:"superuser"`
	Memberships []Membership `gql:"memberships"`
}

// Membership is an enabled membership in an enabled tenant.
type Membership struct {
	Tenant string   `gql:"tenant"`
	Roles  []string `gql:"roles"` // sorted
}

// secretRow is what Login reads of an identity.
type secretRow struct {
	hash    string
	enabled bool
}

// Login proves an identity by its password. source is the address that the request came from. Refusals: INVALID_INPUT
// "invalid credentials" alike for an unknown email, a wrong password and a disabled identity; THROTTLED with
// retryAfterSeconds inside the back-off; UNAVAILABLE when too many others wait.
func (a *Auth) Login(ctx context.Context, email, password string, source netip.Addr) (*SignIn, error) {
	in, err := a.login(ctx, newAttempt(email, source), password)
	a.m.signIns.WithLabelValues(signInOutcome(err)).Inc()
	return in, err
}

// attempt is one try to sign in.
type attempt struct {
	email string // "" when the input cannot be an email; the attempt runs nevertheless
	label string // for the journal
	key   attemptKey
}

func newAttempt(given string, source netip.Addr) attempt {
	email, err := normEmail("email", given)
	t := attempt{email: email, label: email}
	if err != nil {
		// What can be no email is counted and journaled all the same, in a bounded and printable form.
		t.label = strings.ToLower(strings.TrimSpace(given))
		t.label = strings.ToValidUTF8(t.label[:min(len(t.label), maxEmailBytes)], "")
		t.label = strings.Map(func(r rune) rune {
			if badInEmail(r) {
				return '?'
			}
			return r
		}, t.label)
	}
	t.key = attemptKeyOf(source, t.label)
	return t
}

func (a *Auth) login(ctx context.Context, t attempt, password string) (*SignIn, error) {
	// Refuse before anything costs.
	if wait := a.attempts.blocked(t.key); wait > 0 {
		return nil, errThrottled(wait)
	}
	// An unknown email reads an empty row, which costs a hash like any other.
	row, err := readSecret(ctx, a.store, t.email)
	if err != nil {
		return nil, err
	}
	renewed, err := a.checkSecret(ctx, t, row, password)
	if err != nil {
		// Only refusals of the credential are journaled: busy or throttled says nothing about it.
		if model.CodeOf(err) != model.CodeInvalidInput {
			return nil, err
		}
		return nil, cmp.Or(a.failures.write(ctx, a, t.label), err)
	}
	return a.admit(ctx, t, row, renewed)
}

func readSecret(ctx context.Context, st store.Store, email string) (row secretRow, err error) {
	err = st.Read(ctx, func(tx store.Tx) (err error) {
		row.hash, row.enabled, err = store.PasswordOf(tx, email)
		return err
	})
	return row, err
}

// checkSecret runs the hash, in all cases. The wait is checked again once the lane is free: many attempts may
// have queued before the first of them failed. It returns a new hash when the stored one has other parameters.
func (a *Auth) checkSecret(ctx context.Context, t attempt, row secretRow, password string) (renewed string, err error) {
	release, err := a.hasher.hold(ctx, LaneAPI)
	if err != nil {
		return "", unavailable(err)
	}
	defer release()
	if wait := a.attempts.blocked(t.key); wait > 0 {
		return "", errThrottled(wait)
	}
	// The hash runs for a disabled identity as well: the time of the answer reveals nothing.
	ok, renew, err := a.hasher.check(row.hash, password)
	switch {
	case err != nil:
		return "", err
	case !ok || !row.enabled:
		a.attempts.failed(t.key)
		return "", errCredentials()
	case renew:
		renewed = a.hasher.params.hash(password)
	}
	a.attempts.succeeded(t.key)
	return renewed, nil
}

// admit writes the journal and mints. The authorities in the token are read in the transaction, after every change of them.
func (a *Auth) admit(ctx context.Context, t attempt, row secretRow, renewed string) (*SignIn, error) {
	var c *claims
	in := &SignIn{}
	err := a.writer.Mutate(ctx, provenPrincipal(t.email), func(ch *store.Change) error {
		// Read again in the transaction: the person may have changed while the hash ran.
		p, grants, err := loadPerson(ch, t.email)
		if err != nil {
			return err
		}
		var hash string
		if p != nil {
			if hash, _, err = store.PasswordOf(ch, p.email); err != nil {
				return err
			}
		}
		if p == nil || !p.enabled || hash != row.hash {
			return errCredentials() // changed while the hash ran
		}
		if renewed != "" {
			if err := store.RenewPasswordHash(ch, p.id, renewed); err != nil {
				return err
			}
		}
		c = a.identityClaims(p, grants)
		in.Superuser, in.Memberships = c.Sudo, a.memberships(p, grants)
		return ch.Audit(store.AuditEvent{Category: store.AuditAuth, Operation: store.AuditLogin, Label: p.email})
	})
	if err != nil {
		return nil, err
	}
	// Sign after the commit: no token leaves that the journal does not know.
	in.Expires = model.Micros(c.Expires)
	in.Token, err = a.sign(c, a.keys.active())
	return in, err
}

// provenPrincipal is the principal of a person whose credential has just been verified.
func provenPrincipal(email string) *model.Principal {
	return &model.Principal{Kind: model.IdentityCaller, Subject: email}
}

// loadPerson reads an identity and all roles in a transaction; p is nil when there is none.
func loadPerson(tx store.Tx, email string) (p *person, grants map[int64]grant, err error) {
	if email == "" {
		return nil, nil, nil
	}
	persons, err := loadPersons(tx, email)
	if err != nil || len(persons) == 0 {
		return nil, nil, err
	}
	grants, err = loadGrants(tx)
	return persons[0], grants, err
}

func (a *Auth) identityClaims(p *person, grants map[int64]grant) *claims {
	c := a.base(KindIdentity, p.email, identityLife, 0)
	c.Username, c.Email, c.Sudo = p.email, p.email, p.superuser(grants)
	c.Roles, c.Authorities = union(grants, p.roles)
	return c
}

func (a *Auth) memberships(p *person, grants map[int64]grant) []Membership {
	ms := []Membership{}
	for id, m := range p.memberships {
		tenant := a.tenants.TokenOf(id)
		if _, enabled, _ := a.tenants.Lookup(tenant); !m.enabled || !enabled {
			continue
		}
		roles, _ := union(grants, m.roles)
		ms = append(ms, Membership{tenant, roles})
	}
	slices.SortFunc(ms, func(x, y Membership) int { return strings.Compare(x.Tenant, y.Tenant) })
	return ms
}

// IdentityMemberships returns the memberships of the identity that the token proves.
func (a *Auth) IdentityMemberships(identityToken string) ([]Membership, error) {
	p, _, err := a.proveIdentity(identityToken)
	if err != nil {
		return nil, err
	}
	id, ok := a.dir.identity(p.Subject)
	if !ok {
		return nil, errBadToken()
	}
	return a.memberships(id, a.dir.allGrants()), nil
}

// proveIdentity reads an identity token that came as an argument.
func (a *Auth) proveIdentity(token string) (*model.Principal, *claims, error) {
	c, err := a.parse(token, KindIdentity)
	if err != nil {
		return nil, nil, errBadToken()
	}
	p, err := a.principal(c, "")
	if err != nil {
		return nil, nil, errBadToken()
	}
	return p, c, nil
}

// failureJournal writes the journal's rows of failed sign-ins. They are limited to one a second beyond a burst:
// unauthenticated clients decide how many there are, and the journal is kept. The next row counts those that were left out.
type failureJournal struct {
	mu     sync.Mutex
	room   float64
	at     time.Time
	missed int64
}

const (
	failureBurst  = 60
	failureAMin   = 60
	failurePerSec = failureAMin / 60.0
)

// claim returns how many failures the next row stands for, 0 when none may be written now.
func (j *failureJournal) claim(now time.Time) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	// A bucket of rows that fills with time.
	if j.at.IsZero() {
		j.room = failureBurst
	} else {
		j.room = min(failureBurst, j.room+now.Sub(j.at).Seconds()*failurePerSec)
	}
	j.at = now
	j.missed++
	if j.room < 1 {
		return 0
	}
	j.room--
	n := j.missed
	j.missed = 0
	return n
}

// write does not wait for the disk: no client was promised that a failure is recorded.
func (j *failureJournal) write(ctx context.Context, a *Auth, label string) error {
	n := j.claim(a.now())
	if n == 0 {
		return nil
	}
	return a.store.Write(ctx, store.Results, func(tx store.Tx) error {
		ch := &store.Change{Tx: tx, By: provenPrincipal(label), At: model.MicrosOf(a.now())}
		return ch.Audit(store.AuditEvent{Category: store.AuditAuth, Operation: store.AuditLoginFailed, Label: label, Rows: n - 1})
	})
}

func signInOutcome(err error) string {
	switch model.CodeOf(err) {
	case model.CodeThrottled:
		return "throttled"
	case model.CodeUnavailable:
		return "busy"
	case model.CodeInvalidInput:
		return "refused"
	}
	if err != nil {
		return "error"
	}
	return "ok"
}
