package auth

import (
	"errors"
	"testing"

	"weir/model"
	"weir/store"
)

// The verbs about people take part in a change of somebody else's: they know the tenants that it has made, take the hashes
// that were prepared, and the directory follows with the commit.
func TestTheVerbsTakePartInAChange(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	prepared, err := h.deps.Hasher.Hash(t.Context(), "prepared before")
	if err != nil {
		t.Fatal(err)
	}
	taken := errors.New("taken back")
	change := func(end error) error {
		return h.deps.Writer.Mutate(t.Context(), operator, func(c *store.Change) error {
			a, ctx := h.Auth, c.Context()
			_, err := c.Insert(`INSERT INTO tenants (created_at, updated_at, token, enabled, not_before, tier_id)
				VALUES (0, 0, 'fresh', 1, 0, (SELECT id FROM tenant_tiers))`) // a tenant that only the change knows
			if err != nil {
				return err
			}
			if _, err := a.CreateIdentity(ctx, operator, NewIdentity{Email: "bob@example.org", Password: password}); err == nil || model.CodeOf(err) != "" {
				t.Errorf("a password that was not hashed before the change: %v", err)
			}
			if _, err := a.SetPassword(ctx, operator, "bob@example.org", password); err == nil || model.CodeOf(err) != "" {
				t.Errorf("a password that was not hashed before the change: %v", err)
			}
			_, err1 := a.Roles.Create(ctx, operator, store.Patch{"token": "viewer", "scope": "tenant", "authorities": []any{"location:read"}})
			_, err2 := a.CreateIdentity(ctx, operator, NewIdentity{Email: "ada@example.org", Password: "not hashed here", Hashed: prepared, Enabled: true})
			_, err3 := a.AddMembership(ctx, operator, "ada@example.org", "fresh", []string{"viewer"})
			id, err4 := a.SetIdentityNames(ctx, operator, "ada@example.org", store.Patch{"firstName": "Ada"})
			stored, err5 := a.PasswordHash(ctx, operator, "ada@example.org")
			if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
				return err
			}
			if id.FirstName == nil || *id.FirstName != "Ada" || len(id.Memberships) != 1 || id.Memberships[0].Tenant != "fresh" || stored != prepared {
				t.Errorf("%+v, %s", id, stored)
			}
			if _, known := h.dir.identity("ada@example.org"); known {
				t.Error("it is in force before the commit")
			}
			return end
		})
	}
	if err := change(taken); !errors.Is(err, taken) {
		t.Fatal(err)
	}
	if _, known := h.dir.identity("ada@example.org"); known {
		t.Error("what was taken back is in the directory")
	}
	if err := change(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Login(t.Context(), "ada@example.org", "prepared before", home); err != nil {
		t.Error(err)
	}
	if hash, err := h.PasswordHash(t.Context(), operator, "nobody@example.org"); hash != "" || err != nil {
		t.Error(hash, err)
	}
}
