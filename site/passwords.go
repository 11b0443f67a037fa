package site

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"weir/auth"
	"weir/model"
	"weir/store"
)

// passwords are those that a document gives, compared with what is stored and hashed where they differ: before the
// transaction, because a hash takes longer than the one writer may be held, and one at a time on the place that sign-ins
// use, too.
//
// So that a start does not hash them all just to find them unchanged, an apply leaves a mark of each: an HMAC over the
// stored hash and the password that was given, under a key that the vault keeps. Where the mark is right nothing needs to
// be hashed; a reader of the database cannot try passwords on it faster than on the hash, for the key is not there.
type passwords struct {
	s     *Site
	by    *model.Principal
	key   []byte
	fresh bool // the key is new
	held  map[string]*password
	ready map[string][]string // hashes by password, each with a salt of its own
}

// password is one that the document gives to a holder.
type password struct {
	given  string
	read   func(ctx context.Context) (string, error)
	stored string // PHC string when it was compared, "" for none
	same   bool
	marked bool
}

func identityHolder(email string) string           { return "identity/" + email }
func credentialHolder(tenant, token string) string { return "credential/" + tenant + "/" + token }
func profileHolder(tenant, token string) string {
	return "provisioning-profile/" + tenant + "/" + token
}
func metaMark(holder string) string { return "site_password_mark/" + holder }
func (s *Site) keyName() store.SecretName {
	return store.SecretName{Scope: store.ScopeInstance, Name: "site/password-marks"}
}

// comparePasswords finds out which passwords of a document are new, and hashes those.
func (s *Site) comparePasswords(ctx context.Context, by *model.Principal, d *Document) (*passwords, error) {
	p := &passwords{s: s, by: by, held: map[string]*password{}, ready: map[string][]string{}}
	p.gather(d)
	if len(p.held) == 0 {
		return p, nil
	}
	if err := p.readMarks(ctx); err != nil {
		return nil, err
	}
	done := 0
	for _, held := range p.held {
		if err := p.compare(ctx, held); err != nil {
			return nil, fmt.Errorf("comparing passwords: %w", err)
		}
		done++
		s.parts.Progress(done, len(p.held))
	}
	return p, nil
}

// gather finds the passwords of a document and where their hashes are.
func (p *passwords) gather(d *Document) {
	for _, e := range d.Lists["identities"] {
		if given, ok := e.Secrets["password"]; ok {
			p.held[identityHolder(e.Name)] = &password{given: given, read: func(ctx context.Context) (string, error) {
				return p.s.parts.Auth.PasswordHash(ctx, p.by, e.Name)
			}}
		}
	}
	for _, t := range d.Lists["tenants"] {
		for _, f := range t.Lists["provisioningProfiles"] {
			if given, ok := f.Secrets["provisionSecret"]; ok {
				p.held[profileHolder(t.Name, f.Name)] = &password{given: given, read: p.ofRow(tableProvisioning, "secret_hash", t.Name, f.Name)}
			}
		}
		for _, device := range t.Lists["devices"] {
			for _, c := range device.Lists["credentials"] {
				if given, ok := c.Secrets["credentialValue"]; ok && !isKey(c.Fields["credentialType"]) {
					p.held[credentialHolder(t.Name, c.Name)] = &password{given: given, read: p.ofRow(tableCredentials, "value_hash", t.Name, c.Name)}
				}
			}
		}
	}
}

// ofRow reads the hash that a column of a tenant's row holds.
func (p *passwords) ofRow(table, column, tenant, token string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		t, err := p.s.parts.Govern.Tenant(ctx, tenant)
		if err != nil || t == nil {
			return "", err
		}
		by := *p.by
		by.Tenant, by.TenantID = tenant, t.ID
		live := p.s.format.of(table).live
		rows, err := live.ByToken(ctx, &by, []string{token})
		if err != nil || len(rows) == 0 {
			return "", err
		}
		hash, _ := live.Value(rows[0], column).(string)
		return hash, nil
	}
}

// readMarks reads the stored hashes and compares them with the marks.
func (p *passwords) readMarks(ctx context.Context) error {
	parts := p.s.parts
	for holder, held := range p.held {
		var err error
		if held.stored, err = held.read(ctx); err != nil {
			return fmt.Errorf("%s: %w", holder, err)
		}
	}
	return parts.Store.Read(ctx, func(tx store.Tx) error {
		key, had, err := parts.Vault.Get(tx, p.s.keyName())
		if err != nil {
			return err
		}
		if p.key = key; !had {
			p.key, p.fresh = make([]byte, sha256.Size), true
			_, _ = rand.Read(p.key) // never fails
			return nil
		}
		for holder, held := range p.held {
			mark, err := store.Meta(tx, metaMark(holder))
			if err != nil {
				return err
			}
			held.marked = held.stored != "" && hmac.Equal(mark, p.mark(holder, held.stored, held.given))
			held.same = held.marked
		}
		return nil
	})
}

func (p *passwords) mark(holder, stored, given string) []byte {
	m := hmac.New(sha256.New, p.key)
	for _, part := range []string{holder, stored, given} {
		fmt.Fprintf(m, "%d:%s", len(part), part)
	}
	return m.Sum(nil)
}

func (p *passwords) compare(ctx context.Context, held *password) (err error) {
	h := p.s.parts.Hasher
	if held.same {
		return nil
	}
	if held.stored != "" {
		if held.same, _, err = h.Verify(ctx, auth.LaneAPI, held.stored, held.given); err != nil || held.same {
			return err
		}
	}
	hash, err := h.Hash(ctx, held.given)
	p.ready[held.given] = append(p.ready[held.given], hash)
	return err
}

// Hash returns a hash that was prepared.
func (p *passwords) Hash(_ context.Context, password string) (string, error) {
	hashes := p.ready[password]
	if len(hashes) == 0 {
		return "", errMoved
	}
	p.ready[password] = hashes[1:]
	return hashes[0], nil
}

// same reports whether a holder has the password that the document gives. stored is its hash now.
func (p *passwords) same(holder, stored string) (bool, error) {
	held := p.held[holder]
	if held == nil || held.stored != stored {
		return false, errMoved
	}
	return held.same, nil
}

// remember leaves the marks of what is stored now.
func (p *passwords) remember(c *store.Change) error {
	if len(p.held) == 0 {
		return nil
	}
	vault := p.s.parts.Vault
	if p.fresh {
		// Another apply may have made a key since this one looked. Then its own marks would be worth nothing.
		if has, err := vault.Has(c, p.s.keyName()); err != nil || has {
			return err
		}
		if err := vault.Put(c, p.s.keyName(), p.key); err != nil {
			return err
		}
	}
	for holder, held := range p.held {
		if held.marked {
			continue
		}
		stored, err := held.read(c.Context())
		if err != nil {
			return err
		}
		if err := store.SetMeta(c, metaMark(holder), p.mark(holder, stored, held.given)); err != nil {
			return err
		}
	}
	return nil
}
