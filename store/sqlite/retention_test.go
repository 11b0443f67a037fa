package sqlite_test

import (
	"path/filepath"
	"testing"

	"weir/store"
	"weir/store/sqlite"
)

// TestRetentionCountsWhatItRemoves: between the search for expired rows and their removal, blocks are merged, and the one with the
// readings of both has the id of one of them. All of its readings are counted as removed: the ledger would miss them for ever.
func TestRetentionCountsWhatItRemoves(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "weir.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	block := func(n int64) *store.Block {
		return &store.Block{TenantID: 1, Group: 1, MinSeries: 1, MaxSeries: 1, First: 10, Last: 20, Count: n, Runs: 1, FirstOffset: 1, LastOffset: 2, Data: []byte{1}}
	}
	write := func(f func(tx store.Tx) error) {
		t.Helper()
		if err := db.Write(t.Context(), store.Results, f); err != nil {
			t.Fatal(err)
		}
	}
	write(func(tx store.Tx) error { return store.InsertBlock(tx, block(5)) })
	var found *store.Expired
	write(func(tx store.Tx) (err error) {
		found, err = store.FindExpired(tx, store.KeptReadings, 100, 10)
		return err
	})
	write(func(tx store.Tx) error {
		if _, err := tx.Exec(`DELETE FROM series_blocks`); err != nil {
			return err
		}
		return store.InsertBlock(tx, block(50))
	})
	write(func(tx store.Tx) error {
		done, err := found.Remove(tx, 10)
		if err == nil && (done.Rows != 1 || done.Entries != 50) {
			t.Errorf("%+v, want one row with 50 readings", done)
		}
		removed, e := store.Removed(tx)
		if removed[store.KeptReadings] != 50 {
			t.Errorf("%d are counted as removed, want 50", removed[store.KeptReadings])
		}
		if err == nil {
			err = e
		}
		return err
	})
}
