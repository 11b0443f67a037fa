package sqlite

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"weir/store"
	"weir/store/storetest"
)

// before returns the migrations of this Weir that come before the one with a number.
func before(t *testing.T, number string) fs.FS {
	t.Helper()
	dir := fstest.MapFS{}
	names, err := fs.Glob(embedded(), "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if name >= number {
			continue
		}
		text, err := fs.ReadFile(embedded(), name)
		if err != nil {
			t.Fatal(err)
		}
		dir[name] = &fstest.MapFile{Data: text}
	}
	return dir
}

// The assets of a database that an older Weir wrote are counted once, and go on from there; its devices are found by the index that
// holds what a search compares.
func TestAssetsOfAnOlderWeirAreCountedAndDevicesSearched(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.db")
	old, err := open(t.Context(), path, Options{}, before(t, "0015"))
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{
		`INSERT INTO asset_types (id, tenant_id, created_at, updated_at, token) VALUES (1, 1, 1, 1, 't'), (2, 2, 1, 1, 't')`,
		`INSERT INTO assets (tenant_id, created_at, updated_at, token, type_id) VALUES (1, 1, 1, 'a', 1), (1, 1, 1, 'b', 1), (2, 1, 1, 'a', 2)`,
		`INSERT INTO device_types (id, tenant_id, created_at, updated_at, token) VALUES (1, 1, 1, 1, 't')`,
		`INSERT INTO devices (tenant_id, created_at, updated_at, token, name, type_id) VALUES (1, 1, 1, 'x', 'GRÜN', 1), (1, 1, 1, 'y', NULL, 1)`,
	} {
		exec(t, old, query)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	db := mustOpen(t, path, embedded())
	var have int64
	if err := db.Write(t.Context(), store.Results, func(tx store.Tx) (err error) {
		have, err = store.AddRows(tx, 1, "assets", 1)
		return err
	}); err != nil || have != 3 {
		t.Errorf("%d assets, %v", have, err)
	}
	if n := one[int64](t, db, `SELECT sum(rows) FROM row_counts`); n != 6 {
		t.Errorf("%d rows are counted, want 6", n)
	}
	search := `FROM devices WHERE devices.tenant_id = 1 AND instr(fold(devices.token || char(10) || coalesce(devices.name, '') || char(10) ||
		coalesce(devices.external_id, '')), fold('grün')) > 0`
	if token := one[string](t, db, `SELECT token `+search); token != "x" {
		t.Errorf("found %q", token)
	}
	for query, index := range map[string]string{
		`SELECT count(*) ` + search:                                                "COVERING INDEX devices_listed",
		`SELECT count(*) ` + search + ` AND type_id = 1`:                           "COVERING INDEX devices_of_type",
		`SELECT metadata ` + search + ` ORDER BY created_at DESC, token LIMIT 100`: "INDEX devices_listed",
	} {
		plan := storetest.QueryPlan(t, db, query)
		if !slices.ContainsFunc(plan, func(step string) bool { return strings.Contains(step, index) }) || strings.Contains(fmt.Sprint(plan), "TEMP B-TREE") {
			t.Errorf("%s is read by %v", query, plan)
		}
	}
}
