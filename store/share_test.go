package store_test

import (
	"testing"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

// One tenant that fills the memory of the metadata view leaves the others, and those that are still to come, their share of it.
func TestNoTenantTakesTheMemoryOfAll(t *testing.T) {
	t.Parallel()
	db := fixture.Store(t)
	const limit = 64 << 10
	var held int64
	b := &store.Bounded{Writer: store.Direct{Store: db}, Growth: store.Growth{Metadata: func() (int64, int64) { return held, limit }}}
	if err := db.Write(t.Context(), store.Durable, func(tx store.Tx) error {
		if _, err := tx.Exec(`INSERT INTO tenant_tiers (id, created_at, updated_at, token, display_order, color) VALUES (1, 1, 1, 't', 1, '')`); err != nil {
			return err
		}
		for i, token := range []string{"greedy", "modest"} {
			if _, err := tx.Exec(`INSERT INTO tenants (id, created_at, updated_at, token, enabled, not_before, tier_id) VALUES (?, 1, 1, ?, 1, 1, 1)`, i+1, token); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	grow := func(by *model.Principal) error {
		change := model.ViewChange{Kind: model.ViewTenant, Key: "key", Body: []byte(`{}`)}
		err := b.Mutate(t.Context(), by, func(c *store.Change) error {
			c.View(change)
			return c.Grown(by.TenantID, 100)
		})
		if err == nil {
			held += change.Memory()
		}
		return err
	}
	greedy, modest := fixture.Member("eve", "greedy", 1), fixture.Member("ada", "modest", 2)
	var err error
	for err == nil {
		err = grow(greedy)
	}
	fixture.Refused(t, err, model.CodeLimitExceeded, "limits.memory")
	if free := store.FreeMetadata(limit); held > free || held < free-1<<10 {
		t.Errorf("one tenant takes %d bytes, %d are for all as they come", held, free)
	}
	made := 0
	for err = grow(modest); err == nil; err = grow(modest) {
		made++
	}
	fixture.Refused(t, err, model.CodeLimitExceeded, "limits.memory")
	if made < 50 || held < limit-1<<10 {
		t.Errorf("the other one makes %d rows, %d of %d bytes are held", made, held, limit)
	}
	held = store.FreeMetadata(limit)
	if err := grow(fixture.Operator()); err != nil {
		t.Errorf("a tenant cannot be made: %v", err)
	}
}
