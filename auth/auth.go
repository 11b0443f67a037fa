// Package auth authenticates and authorizes: people (identities, memberships, roles, sign-in), programs
// (service tokens) and devices (credentials).
//
// People sign in in three steps: Login proves an identity and gives an identity token; SelectTenant gives, for that and
// a tenant, an access token and a refresh token; Refresh gives the next pair. Tokens are JWTs signed with RS256; what
// they carry was read when they were minted, and a token is revoked by moving the not-before instant of what it was
// minted from (identity, membership, role, tenant). All of that is in memory, so that Authenticate reads no store.
//
// A Verifier judges devices, which transports call before they append. A password hash runs in a Hasher only, at most two at a
// time.
package auth

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/setting"
	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// Config says how people sign in.
type Config struct {
	InstanceID string
	// IssuerURL is the claim iss; "" makes it weir:{InstanceID}.
	IssuerURL string
	Settings
	ClientSettings
}

const maxRefreshTTL = 365 * 24 * time.Hour

func (c Config) issuer() string {
	if c.IssuerURL != "" {
		return c.IssuerURL
	}
	return "weir:" + c.InstanceID
}

func (c Config) withDefaults() Config {
	setting.FillDefaults(&c.Settings)
	setting.FillDefaults(&c.ClientSettings)
	return c
}

// Validate returns every reason why the configuration cannot be used. It never shows a secret.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	// Collect every reason, so that the operator can put all of them right at once.
	if c.ServiceSecret.Set() && len(c.ServiceSecret.Reveal()) < minServiceSecret {
		errs = append(errs, model.Invalid("auth.service_secret", "must have at least %d bytes", minServiceSecret))
	}
	if c.AccessTokenTTL < time.Minute {
		errs = append(errs, model.Invalid("auth.access_token_ttl", "must be at least a minute"))
	}
	if c.RefreshTokenTTL < c.AccessTokenTTL || c.RefreshTokenTTL > maxRefreshTTL {
		errs = append(errs, model.Invalid("auth.refresh_token_ttl", "must lie between auth.access_token_ttl and %s", maxRefreshTTL))
	}
	if c.SigningKeyMaxAge < 0 || c.SigningKeyMaxAge > 0 && c.SigningKeyMaxAge < time.Hour {
		errs = append(errs, model.Invalid("auth.signing_key_max_age", "must be 0 or at least an hour"))
	}
	if c.SuperuserEmail != "" {
		if _, err := normEmail("auth.superuser_email", c.SuperuserEmail); err != nil {
			errs = append(errs, err)
		}
		if c.SuperuserPassword.Set() {
			if err := CheckPassword(c.SuperuserPassword.Reveal()); err != nil {
				errs = append(errs, fmt.Errorf("auth.superuser_password: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

// Tenants looks tenants up in memory.
type Tenants interface {
	// Lookup returns the row id of a tenant, 0 and false for one that does not exist.
	Lookup(token string) (id int64, enabled, known bool)
	// TokenOf is the inverse, "" for none.
	TokenOf(id int64) string
	// NotBefore is the instant before which nothing issued in the tenant counts.
	NotBefore(token string) model.Micros
}

// Sealer encrypts with the root key under a name that it binds the value to.
type Sealer interface {
	Seal(name string, plain []byte) ([]byte, error)
	Open(name string, sealed []byte) ([]byte, error)
}

// Deps are auth's collaborators.
type Deps struct {
	Store   store.Store
	Writer  store.Writer
	Vault   Sealer
	Tenants Tenants
	Hasher  *Hasher
	// Clock is time.Now when nil; Logger is silent, Registerer registers nothing; GenerateKey makes an RSA key of keyBits.
	Clock       func() time.Time
	Logger      *slog.Logger
	Registerer  prometheus.Registerer
	GenerateKey func() (*rsa.PrivateKey, error)
}

// Auth keeps identities and tokens. All methods are safe for concurrent use.
type Auth struct {
	Roles   *Roles
	Clients *Clients
	Kinds   *entity.Catalog // the roles

	cfg     Config
	live    atomic.Pointer[Config] // cfg with what SetConfig changed
	store   store.Store
	writer  store.Writer
	vault   Sealer
	tenants Tenants
	hasher  *Hasher
	now     func() time.Time
	log     *slog.Logger
	m       authMetrics

	keys        keyring
	generateKey func() (*rsa.PrivateKey, error)
	parser      *jwt.Parser
	dir         *directory
	lastStamp   atomic.Int64
	ended       *endedSessions

	attempts *attempts // to sign in
	failures failureJournal

	serviceTries *sourceTries
}

// New loads keys and identities, makes what a first start must make (signing key, roles, the configured superuser), and
// is then ready to judge tokens.
func New(ctx context.Context, cfg Config, d Deps) (*Auth, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	// Default the collaborators first: the parts below copy them.
	if d.Clock == nil {
		d.Clock = time.Now
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.GenerateKey == nil {
		d.GenerateKey = generateKey
	}
	a := &Auth{
		cfg:          cfg,
		store:        d.Store,
		writer:       d.Writer,
		vault:        d.Vault,
		tenants:      d.Tenants,
		hasher:       d.Hasher,
		now:          d.Clock,
		log:          d.Logger,
		generateKey:  d.GenerateKey,
		dir:          &directory{},
		attempts:     newAttempts(signInRule, emailRule, d.Clock),
		serviceTries: newSourceTries(d.Clock),
	}
	base := entity.Base{Store: d.Store, Writer: d.Writer}
	a.Kinds = a.describe(base)
	a.live.Store(&cfg)
	a.parser = a.newParser()
	a.m = newAuthMetrics(d.Registerer, a)
	a.ended = newEndedSessions(a.m.endedForgotten.Inc)
	// Load keys and people before anything is made: what a first start makes must not be made again.
	if err := a.load(ctx); err != nil {
		return nil, err
	}
	// Without a signing key no one can sign in.
	if err := a.rotateKeys(ctx); err != nil {
		return nil, err
	}
	if err := a.seed(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// SetConfig applies the token lifetimes, the key rotation interval and the service secret of a new configuration; the rest stays. Tokens
// that were minted keep their time.
func (a *Auth) SetConfig(c Config) error {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return err
	}
	// Tokens are judged by what they carry, so that a new lifetime counts from the next one on.
	a.live.Store(&c)
	return nil
}

// load fills keys and directory from the store.
func (a *Auth) load(ctx context.Context) error {
	err := a.store.Read(ctx, func(tx store.Tx) error {
		keys, err := loadKeys(tx, a.vault)
		if err != nil {
			return err
		}
		grants, err := loadGrants(tx)
		if err != nil {
			return err
		}
		persons, err := loadPersons(tx, "")
		if err != nil {
			return err
		}
		// No other goroutine has the directory yet, so that it is filled without its lock.
		a.keys.set(keys)
		a.dir.grants, a.dir.persons = grants, make(map[string]*person, len(persons))
		for _, p := range persons {
			a.dir.persons[p.email] = p
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("auth: loading: %w", err)
	}
	// Stamps continue after the newest revocation, whatever the clock says now.
	a.lastStamp.Store(int64(a.dir.newest()))
	return nil
}

// housekeeping is how often Run looks for keys to rotate and sessions that have ended.
const housekeeping = 10 * time.Minute

// Run rotates signing keys and removes sessions that have ended, until ctx ends. A failed attempt is repeated the next time;
// until then sign-in uses the existing key.
func (a *Auth) Run(ctx context.Context) error {
	t := time.NewTicker(housekeeping)
	defer t.Stop()
	for {
		if err := a.tidy(ctx); err != nil && ctx.Err() == nil {
			a.m.housekeepingFailed.Inc()
			a.log.Error("rotating keys and removing ended sessions failed, it is tried again", "in", housekeeping, "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

func (a *Auth) tidy(ctx context.Context) error {
	if err := a.rotateKeys(ctx); err != nil {
		return err
	}
	return a.sweepSessions(ctx)
}

// CheckIdentity returns what is wrong with an identity whatever an instance holds: its email and its names.
func CheckIdentity(email string, names store.Patch) []error {
	_, refused := identities.Check(names, false)
	if _, err := newEmail("email", email); err != nil {
		refused = append(refused, err)
	}
	return refused
}

// newEmail is normEmail for an identity that is made: what looks like another address, or like none, is refused. An identity that is there
// can sign in whatever it is called.
func newEmail(field, email string) (string, error) {
	e, err := normEmail(field, email)
	if err != nil {
		return "", err
	}
	// An invisible character would make two addresses look the same.
	if at := strings.IndexFunc(e, isInvisible); at >= 0 {
		r, _ := utf8.DecodeRuneInString(e[at:])
		return "", model.Invalid(field, "the character U+%04X is not allowed in an email address", r)
	}
	// Parts by themselves: a domain may use another alphabet than the name.
	for part := range strings.FieldsFuncSeq(e, func(r rune) bool { return r == '@' || r == '.' }) {
		if mixesAlphabets(part) {
			return "", model.Invalid(field, "%q mixes letters of several alphabets that look alike", part)
		}
	}
	return e, nil
}

// isInvisible reports what does not show as a character of its own: of a text outside of ASCII only letters, their marks and digits do.
func isInvisible(r rune) bool {
	return r > 0x7f && !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r)
}

// mixesAlphabets reports whether a text has letters of two of the alphabets whose letters look like one another's.
func mixesAlphabets(text string) bool {
	found := map[*unicode.RangeTable]bool{}
	for _, r := range text {
		for _, alphabet := range []*unicode.RangeTable{unicode.Latin, unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee} {
			if unicode.Is(alphabet, r) {
				found[alphabet] = true
			}
		}
	}
	return len(found) > 1
}

// normEmail trims and lower-cases an email and checks its form as far as a directory needs it.
func normEmail(field, email string) (string, error) {
	e := strings.ToLower(strings.TrimSpace(email))
	local, domain, ok := strings.Cut(e, "@")
	if !ok || local == "" || domain == "" || len(e) > maxEmailBytes || strings.ContainsFunc(e, badInEmail) {
		return "", model.Invalid(field, "must be an email address of at most %d characters", maxEmailBytes)
	}
	return e, nil
}

// maxEmailBytes is the longest path of RFC 5321, section 4.5.3.1.3, without its brackets.
const maxEmailBytes = 254

func badInEmail(r rune) bool { return r <= ' ' || r == 0x7f || r == 0xfffd || r == '"' }
