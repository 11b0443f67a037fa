package provision

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"sync"
	"time"

	"weir/auth"
	"weir/internal/connlimit"
	"weir/model"
	"weir/store"
)

// What may be asked, and how much of it is kept in memory. An address that asks is counted before anything of it is looked at; a
// key is counted only by devices that have its secret, so that a client that guesses the secret costs its own address and nothing
// else.
const (
	perMinute       = 10 // requests of a source address, and with a key
	maxAddresses    = 32768
	maxKeys         = 16384
	hashesPerMinute = 300 // password hashes of clients whose secret is not remembered, all of them together
	hashBurst       = 10
)

// rates are token buckets by name. The bucket that was used longest ago goes first: it is full again, or somebody has as many
// addresses as there are buckets.
type rates struct {
	perSecond, burst float64
	max              int
	now              func() time.Time

	mu    sync.Mutex
	known map[string]*list.Element // of *rate
	order list.List                // most recent first
}

type rate struct {
	name   string
	tokens float64
	at     time.Time
}

func newRates(perMinute, burst float64, most int, now func() time.Time) *rates {
	return &rates{perSecond: perMinute / 60, burst: burst, max: most, now: now, known: map[string]*list.Element{}}
}

// take takes one, or returns how long it has to be waited for.
func (r *rates) take(name string) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	e := r.known[name]
	if e == nil {
		e = r.order.PushFront(&rate{name: name, tokens: r.burst, at: now})
		r.known[name] = e
	}
	r.order.MoveToFront(e)
	if r.order.Len() > r.max {
		delete(r.known, r.order.Remove(r.order.Back()).(*rate).name)
	}
	b := e.Value.(*rate)
	b.tokens = min(r.burst, b.tokens+r.perSecond*max(now.Sub(b.at), 0).Seconds())
	b.at = now
	if b.tokens < 1 {
		return time.Duration(math.Ceil((1 - b.tokens) / r.perSecond * 1e9))
	}
	b.tokens--
	return 0
}

func (r *rates) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.order.Len()
}

// Throttled counts a request of an address, before its body is read, and returns in how many seconds it may be repeated, 0 when
// it is admitted.
func (p *Provision) Throttled(from netip.Addr) (retryAfter int) {
	if wait := p.addresses.take(connlimit.SourceOf(from).String()); wait > 0 {
		p.m.count(outcomeAddress)
		return seconds(wait)
	}
	return 0
}

func seconds(d time.Duration) int { return int(math.Ceil(d.Round(time.Millisecond).Seconds())) }

// Grant is a profile whose secret a client has proven.
type Grant struct {
	Tenant string

	tenantID, profile int64
	key, secretHash   string
}

// errSecret is the one refusal of whatever a client presents: no client learns which keys there are.
var errSecret = errors.New("provision: the key or the secret was refused")

// Admit checks a key and a secret. Its error is a Reply. An unknown key costs as much as a known one.
func (p *Provision) Admit(ctx context.Context, key, secret string) (*Grant, error) {
	f, err := p.find(ctx, key)
	if err != nil {
		return nil, p.failed(err)
	}
	encoded := ""
	if f != nil {
		encoded = f.SecretHash
	}
	ok, err := p.parts.Secrets.Verify(ctx, encoded, secret, func() error {
		if wait := p.hashes.take(""); wait > 0 {
			return tooMany(outcomeHashes, wait)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, p.failed(err)
	case f == nil:
		return nil, p.failed(refused(outcomeKey))
	case !ok:
		return nil, p.failed(refused(outcomeSecret))
	}
	g := &Grant{Tenant: p.parts.Tenants.TokenOf(f.TenantID), tenantID: f.TenantID, profile: f.ID, key: f.Key, secretHash: f.SecretHash}
	if err := p.usable(g, f); err != nil {
		return nil, p.failed(err)
	}
	return g, nil
}

// find returns the profile with a key, nil for none.
func (p *Provision) find(ctx context.Context, key string) (f *Profile, err error) {
	if key == "" || len(key) > maxKeyBytes {
		key = "" // no profile has it, and the search takes as long
	}
	err = p.parts.Devices.Read(ctx, func(tx store.Tx) error {
		tenant, id, err := store.ProvisioningProfile(tx, key)
		if err != nil {
			return err
		}
		f, err = p.Profiles.Table.GetByID(tx, tenant, id) // of none where there is none, so that it takes as long
		return err
	})
	return f, err
}

// usable refuses a profile that is not what was proven, or not to be used now.
func (p *Provision) usable(g *Grant, f *Profile) error {
	_, enabled, _ := p.parts.Tenants.Lookup(g.Tenant)
	switch {
	case f == nil || f.SecretHash != g.secretHash || f.Key != g.key:
		return refused(outcomeKey)
	case !enabled:
		return refused(outcomeTenant)
	case !f.Enabled:
		return refused(outcomeDisabled)
	case f.ExpiresAt != nil && *f.ExpiresAt <= model.MicrosOf(p.parts.Now()):
		return refused(outcomeExpired)
	}
	return nil
}

// failed counts a failure and makes a *Reply of it.
func (p *Provision) failed(err error) error {
	r := replyOf(err)
	p.m.count(r.outcome)
	return r
}

// replyOf says what a client is answered.
func replyOf(err error) *Reply {
	if r, ok := errors.AsType[*Reply](err); ok {
		return r
	}
	e, _ := errors.AsType[*model.Error](err)
	switch {
	case errors.Is(err, auth.ErrBusy):
		return tooMany(outcomeHashes, time.Second)
	case e == nil:
		return &Reply{Status: 503, Text: "the request cannot be answered now, repeat it", RetryAfter: 10, outcome: outcomeFailed, err: err}
	case e.Code == model.CodeInvalidInput:
		return malformed("%s", e.Message)
	case e.Code == model.CodeLimitExceeded:
		return refused(outcomeCeiling)
	case e.Code == model.CodeThrottled:
		return tooMany(outcomeTenantRate, 10*time.Second)
	}
	return &Reply{Status: 503, Text: "the request cannot be answered now, repeat it", RetryAfter: 10, outcome: outcomeFailed, err: fmt.Errorf("provision: %w", err)}
}
