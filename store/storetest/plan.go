package storetest

import (
	"testing"

	"weir/store"
)

// QueryPlan returns the steps by which a query is answered.
func QueryPlan(t testing.TB, st store.Store, query string, args ...any) (plan []string) {
	t.Helper()
	if err := st.Read(t.Context(), func(tx store.Tx) error {
		rows, err := tx.Query("EXPLAIN QUERY PLAN "+query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id, parent, cost int64
			var step string
			if err := rows.Scan(&id, &parent, &cost, &step); err != nil {
				return err
			}
			plan = append(plan, step)
		}
		return rows.Err()
	}); err != nil {
		t.Fatal(err)
	}
	return plan
}
