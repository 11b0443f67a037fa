package govern

import (
	"errors"
	"testing"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

// The verbs take part in a change of somebody else's: what is in memory follows with its commit, and what was told of it
// is told then.
func TestTheVerbsTakePartInAChange(t *testing.T) {
	db := fixture.Store(t)
	var told []bool
	writer := store.Direct{Store: db}
	g, err := New(t.Context(), DefaultConfig(), Deps{Store: db, Writer: writer, OnSwitch: func(_ string, enabled bool) { told = append(told, enabled) }})
	if err != nil {
		t.Fatal(err)
	}
	taken := errors.New("taken back")
	change := func(end error) error {
		return writer.Mutate(t.Context(), operator, func(c *store.Change) error {
			in, ctx := g, c.Context()
			_, err1 := in.Tiers.Create(ctx, operator, store.Patch{"token": "night", "config": `{"ingestBurst":300}`})
			_, err2 := in.Tenants.Create(ctx, operator, store.Patch{"token": "acme", "tierToken": "night"})
			_, err3 := in.Tiers.Update(ctx, operator, "night", store.Patch{"config": `{"ingestBurst":400}`})
			_, err4 := in.SetTenantEnabled(ctx, operator, "acme", false)
			row, err5 := in.Tenant(ctx, "acme")
			if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
				return err
			}
			if row == nil || row.Enabled || in.Tenants.Values(row)["token"] != "acme" {
				t.Errorf("the change reads %+v", row)
			}
			if g.Known("acme") || len(told) > 0 {
				t.Error("it is in force before the commit")
			}
			return end
		})
	}
	if err := change(taken); !errors.Is(err, taken) || g.Known("acme") || len(told) > 0 {
		t.Fatal(err, told)
	}
	if err := change(nil); err != nil {
		t.Fatal(err)
	}
	if _, enabled, known := g.Lookup("acme"); enabled || !known || len(told) != 1 || told[0] {
		t.Error(enabled, known, told)
	}
	if v := g.Limits("acme"); *v.IngestBurst != 400 {
		t.Errorf("the burst is %d", *v.IngestBurst)
	}
	if _, err := g.Tenants.Create(t.Context(), &model.Principal{}, nil); model.CodeOf(err) != model.CodeUnauthenticated {
		t.Error(err)
	}
}
