package relations

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

// Whether candidates are looked up one by one or sets are joined: the members are the same. That they are the right ones is
// shown against the evaluator, in the registry.
func TestSetsAreTheSameHoweverTheyAreFound(t *testing.T) {
	t.Parallel()
	db := fixture.Store(t)
	write(t, db, `CREATE TABLE IF NOT EXISTS attributes (id INTEGER PRIMARY KEY, tenant_id INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
		entity_type TEXT NOT NULL, entity_id INTEGER NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL, value_type TEXT NOT NULL, text_value TEXT, number_value REAL,
		UNIQUE (tenant_id, entity_type, entity_id, scope, key))`)
	write(t, db, `INSERT INTO device_types (id, tenant_id, created_at, updated_at, token) VALUES (1, 1, 1, 1, 't')`)
	const devices = 40
	for id := range devices {
		write(t, db, `INSERT INTO devices (id, tenant_id, created_at, updated_at, token, type_id) VALUES (?, 1, 1, 1, ?, 1)`, id+1, string(rune('A'+id)))
		for key, every := range map[string]int{"a": 2, "b": 3, "c": 5} {
			if id%every == 0 {
				write(t, db, `INSERT INTO attributes (tenant_id, created_at, updated_at, entity_type, entity_id, scope, key, value_type, number_value) VALUES (1, 1, 1, 'device', ?, 'SHARED', ?, 'LONG', ?)`, id+1, key, float64(id%7))
			}
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		m := &Members{Tenant: 1, Type: "device", Table: "devices", Condition: new(draw(rt, 3))}
		err := db.Read(t.Context(), func(tx store.Tx) error {
			one, err := (&sets{Members: m, tx: tx, candidates: maxCandidates}).of(*m.Condition, nil)
			if err != nil {
				return err
			}
			for _, candidates := range []int{-1, 5} {
				other, err := (&sets{Members: m, tx: tx, candidates: candidates}).of(*m.Condition, nil)
				if err != nil {
					return err
				}
				if !slices.Equal(one, other) || !slices.IsSorted(one) {
					rt.Fatalf("%+v: %v and, with %d candidates, %v", *m.Condition, one, candidates, other)
				}
			}
			return nil
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
}

func draw(rt *rapid.T, depth int) model.Condition {
	if depth > 0 {
		switch op := rapid.SampledFrom([]model.ConditionOp{model.AllOf, model.AnyOf, model.Not, model.HasKey}).Draw(rt, "op"); op {
		case model.AllOf, model.AnyOf:
			return model.Condition{Op: op, Parts: []model.Condition{draw(rt, depth-1), draw(rt, depth-1)}}
		case model.Not:
			return model.Condition{Op: op, Parts: []model.Condition{draw(rt, depth-1)}}
		}
	}
	return model.Condition{Op: model.Compare, Key: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key"),
		Cmp: rapid.SampledFrom([]model.Comparison{model.Less, model.GreaterOrEqual, model.NotEqual}).Draw(rt, "cmp"), Value: float64(rapid.IntRange(0, 7).Draw(rt, "value"))}
}

func write(t *testing.T, db store.Store, query string, args ...any) {
	t.Helper()
	err := db.Write(context.Background(), store.Results, func(tx store.Tx) error {
		_, err := tx.Exec(query, args...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
