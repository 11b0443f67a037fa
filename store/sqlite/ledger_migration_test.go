package sqlite

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"weir/store"
)

// TestALedgerWithoutSourcesKeepsItsCounts: rows written before the ledger named sources count for the one source that their
// transport had, and go on there.
func TestALedgerWithoutSourcesKeepsItsCounts(t *testing.T) {
	t.Parallel()
	before := fstest.MapFS{}
	all := embedded()
	names, err := fs.Glob(all, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if name >= "0008" {
			continue
		}
		text, err := fs.ReadFile(all, name)
		if err != nil {
			t.Fatal(err)
		}
		before[name] = &fstest.MapFile{Data: text}
	}
	path := filepath.Join(t.TempDir(), "weir.db")
	old, err := open(t.Context(), path, Options{}, before)
	if err != nil {
		t.Fatal(err)
	}
	write := func(db *DB, f func(store.Tx) error) {
		t.Helper()
		if err := db.Write(t.Context(), store.Durable, f); err != nil {
			t.Fatal(err)
		}
	}
	write(old, func(tx store.Tx) error {
		_, err := tx.Exec(`INSERT INTO ledger (tenant, door, hour, heading, reason, messages, readings) VALUES
			('acme', 'mqtt', 5, 'received', '', 7, 0), ('acme', 'mqtt', 5, 'stored', '', 7, 9), ('', 'http', 5, 'refused', 'strangers', 2, 2),
			('acme', 'coap', 5, 'received', '', 1, 0)`)
		return err
	})
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	db := mustOpen(t, path, all)
	write(db, func(tx store.Tx) error {
		return store.AddLedger(tx, store.LedgerKey{Tenant: "acme", Transport: "mqtt", Source: "mqtt1", Hour: 5, Outcome: store.OutcomeStored}, store.LedgerCount{Messages: 1, Readings: 1})
	})
	var got []string
	if err := db.Read(t.Context(), func(tx store.Tx) error {
		return store.Ledger(tx, store.LedgerFilter{}, func(k store.LedgerKey, c store.LedgerCount) error {
			got = append(got, fmt.Sprintf("%s %s %s %d %s %s: %d %d", k.Tenant, k.Transport, k.Source, k.Hour, k.Outcome, k.Reason, c.Messages, c.Readings))
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{" http http1 5 refused unauthenticated: 2 2", "acme coap coap 5 received : 1 0", "acme mqtt mqtt1 5 received : 7 0", "acme mqtt mqtt1 5 stored : 8 10"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
