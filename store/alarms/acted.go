package alarms

import (
	"weir/model"
	"weir/store"
)

// Acted returns the offset up to which the actions of edges are known: all those of a record are stored together.
func Acted(tx store.Tx) (model.Offset, error) {
	var known int64
	err := tx.QueryRow(`SELECT acted_offset FROM edge_progress WHERE id = 1`).Scan(&known)
	return model.Offset(known), err
}

// SetActed notes it.
func SetActed(tx store.Tx, upto model.Offset) error {
	_, err := tx.Exec(`UPDATE edge_progress SET acted_offset = ? WHERE id = 1`, int64(upto))
	return err
}

// CountStale counts actions of a rule that were left out for the age of their edges.
func CountStale(tx store.Tx, tenant int64, rule string, n int64) error {
	_, err := tx.Exec(`INSERT INTO rule_fires (tenant_id, rule, fires, last_fired, last_signal, stale) VALUES (?, ?, 0, 0, 0, ?)
		ON CONFLICT (tenant_id, rule) DO UPDATE SET stale = rule_fires.stale + excluded.stale`, tenant, rule, n)
	return err
}
