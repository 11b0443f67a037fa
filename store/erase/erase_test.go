package erase_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
	"weir/store/erase"
)

// tablesOf returns the tables of the schema with their columns.
func tablesOf(t *testing.T, db store.Store) map[string][]string {
	t.Helper()
	tables := map[string][]string{}
	fixture.EachRow(t, db, func(_ []string, v []any) {
		table := v[0].(string)
		tables[table] = append(tables[table], v[1].(string))
	}, `SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY 1`)
	return tables
}

// TestEveryTableIsErasedOrKeptForAReason finds a table that is forgotten: one that is neither looked through nor listed with a
// reason, and one that says whose a row is and is on the list nevertheless.
func TestEveryTableIsErasedOrKeptForAReason(t *testing.T) {
	t.Parallel()
	tables, erased := tablesOf(t, fixture.Store(t)), erase.Tables()
	for table, columns := range tables {
		reason, kept := erase.Kept[table]
		switch looked := slices.Contains(erased, table); {
		case looked == kept:
			t.Errorf("%s must be either erased or kept with a reason", table)
		case kept && (slices.Contains(columns, "tenant_id") || slices.Contains(columns, "tenant")):
			t.Errorf("%s names the tenant of a row and is kept: %s", table, reason)
		}
	}
	for _, table := range slices.Sorted(slices.Values(append(erased, keysOf(erase.Kept)...))) {
		if tables[table] == nil {
			t.Errorf("%s does not exist", table)
		}
	}
}

func keysOf(m map[string]string) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

const (
	victim    = 7
	neighbour = 8
)

// fill writes a row of a tenant into each table that is looked through, where that can be done without knowing the table: every column
// that is demanded gets something.
func fill(t *testing.T, db store.Store, id int64, token string) {
	t.Helper()
	if err := db.Write(t.Context(), store.Durable, func(tx store.Tx) error {
		if _, err := tx.Exec(`PRAGMA defer_foreign_keys = 1`); err != nil {
			return err
		}
		for table := range tablesOf(t, db) {
			if _, kept := erase.Kept[table]; kept {
				continue
			}
			if err := fillTable(tx, table, id, token); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func fillTable(tx store.Tx, table string, id int64, token string) error {
	rows, err := tx.Query(`SELECT name, type FROM pragma_table_info(?)`, table)
	if err != nil {
		return err
	}
	var names, types []string
	for rows.Next() {
		var name, typ string
		if err := rows.Scan(&name, &typ); err != nil {
			return err
		}
		names, types = append(names, name), append(types, typ)
	}
	if err := rows.Close(); err != nil {
		return err
	}
	values := make([]any, len(names))
	for i, name := range names {
		switch {
		case name == "tenant_id" || name == "entered" || types[i] == "INTEGER" && name != "to_offset":
			values[i] = id // ids, too, so that every reference finds its row
		case name == "tenant":
			values[i] = token
		case table == "view_rows" && name == "key":
			values[i] = token + "/d"
		case table == "view_rows" && name == "kind":
			values[i] = "device"
		case name == "to_offset":
		default:
			values[i] = token
		}
		switch types[i] {
		case "REAL":
			values[i] = 1.5
		case "BLOB":
			values[i] = []byte(token)
		}
	}
	_, err = tx.Exec(`INSERT INTO `+table+` (`+strings.Join(names, ", ")+`) VALUES (?`+strings.Repeat(", ?", len(names)-1)+`)`, values...)
	return err
}

// parents are rows that those of a tenant refer to.
func parents(t *testing.T, db store.Store, id int64, token string) {
	t.Helper()
	if err := db.Write(t.Context(), store.Durable, func(tx store.Tx) error {
		for _, table := range []string{"tenant_tiers", "tenants", "roles", "identities", "ai_providers", "rule_snapshots"} {
			if err := fillTable(tx, table, id, token); err != nil {
				return err
			}
		}
		_, err := tx.Exec(`UPDATE tenants SET purge_epoch = 0, enabled = 1`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestOfTwoTenantsWithARowInEveryTableOneIsErased: not a row of it is left, in whatever steps it went, and each row of the other is as
// it was. What names the tenant afterwards is the journal of the erase and of the instance.
func TestOfTwoTenantsWithARowInEveryTableOneIsErased(t *testing.T) {
	t.Parallel()
	db := fixture.Store(t)
	parents(t, db, neighbour, "neighbour")
	fill(t, db, neighbour, "neighbour")
	dump := func() map[string]string {
		out := map[string]string{}
		for _, table := range erase.Tables() {
			rows := strings.Split(fixture.Dump(t, db, table), "\n")
			out[table] = strings.Join(slices.DeleteFunc(rows, func(row string) bool { // of the journal of the instance
				return table == "audit_events" && strings.Contains(row, "victim")
			}), "\n")
		}
		return out
	}
	before := dump()
	parents(t, db, victim, "victim")
	fill(t, db, victim, "victim")
	of := erase.Tenant{ID: victim, Token: "victim", Epoch: 1}
	left := func() map[string]int {
		var found map[string]int
		if err := db.Read(t.Context(), func(tx store.Tx) (err error) {
			found, err = erase.Left(tx, of)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := left(); len(found) != len(erase.Tables()) {
		t.Fatalf("rows of %d tables are found, %d are looked through: %v", len(found), len(erase.Tables()), found)
	}
	var d erase.Deletion
	change := func(fn func(*store.Change) error) {
		t.Helper()
		if err := (store.Direct{Store: db, Now: func() time.Time { return time.UnixMicro(1) }}).Mutate(t.Context(), fixture.Operator(), fn); err != nil {
			t.Fatal(err)
		}
	}
	change(func(c *store.Change) error { return erase.Begin(c, of, 2) })
	if err := db.Read(t.Context(), func(tx store.Tx) error {
		all, err := erase.Open(tx)
		if err == nil {
			d = all[0]
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for finder := (erase.Finder{Tenant: d.Tenant}); ; {
		var found *erase.Found
		if err := db.Read(t.Context(), func(tx store.Tx) (err error) {
			found, err = finder.Next(tx, 10)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if found == nil {
			break
		}
		change(func(c *store.Change) error {
			n, err := found.Remove(c, 10)
			if err != nil {
				return err
			}
			return erase.Erased(c, d.ID, found.Part, n)
		})
	}
	change(func(c *store.Change) error { return erase.Finish(c, &d) })
	if found := left(); len(found) > 0 {
		t.Errorf("%v are left", found)
	}
	for table, rows := range dump() {
		if rows != before[table] {
			t.Errorf("%s of the neighbour has become\n%s\nit was\n%s", table, rows, before[table])
		}
	}
	for table := range tablesOf(t, db) {
		if rows := fixture.Dump(t, db, table); strings.Contains(rows, "victim") && table != "tenant_erasures" && table != "audit_events" && !isOfInstance(table) {
			t.Errorf("%s names the tenant:\n%s", table, rows)
		}
	}
}

// isOfInstance reports whether the test has put the token into rows of the instance, to have something to refer to.
func isOfInstance(table string) bool {
	return slices.Contains([]string{"tenant_tiers", "roles", "identities", "ai_providers", "rule_snapshots"}, table)
}

// TestADeletionIsCleanOnceEachPartIs: a part that something turns up in is clean again only from the pass on that removed it.
func TestADeletionIsCleanOnceEachPartIs(t *testing.T) {
	t.Parallel()
	db := fixture.Store(t)
	parents(t, db, victim, "victim")
	of := erase.Tenant{ID: victim, Token: "victim"}
	change := func(fn func(*store.Change) error) {
		t.Helper()
		if err := (store.Direct{Store: db}).Mutate(t.Context(), fixture.Operator(), fn); err != nil {
			t.Fatal(err)
		}
	}
	change(func(c *store.Change) error { return erase.Begin(c, of, 2) })
	get := func() *erase.Deletion {
		var d erase.Deletion
		if err := db.Read(t.Context(), func(tx store.Tx) error {
			all, total, err := erase.List(tx, store.Page{}, erase.Filter{Token: "victim", Completed: new(false)})
			if err == nil && total == 1 {
				d = all[0]
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return &d
	}
	d := get()
	note := func(at model.Micros, parts ...erase.Part) {
		change(func(c *store.Change) error {
			for _, p := range parts {
				if err := erase.Note(c, d.ID, erase.Progress{Part: p, Complete: true, Attempted: at}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if d.CleanSince() != 0 {
		t.Error("it is clean before the first pass")
	}
	if note(10, erase.Parts[1:]...); get().CleanSince() != 0 {
		t.Error("it is clean without its first part")
	}
	if note(20, erase.Parts...); get().CleanSince() != 20 {
		t.Errorf("clean since %d, want 20", get().CleanSince())
	}
	if note(30, erase.Parts...); get().CleanSince() != 20 {
		t.Errorf("clean since %d after another pass, want 20", get().CleanSince())
	}
	change(func(c *store.Change) error { return erase.Erased(c, d.ID, erase.Events, 3) })
	if get().CleanSince() != 0 || get().Rows() != 3 {
		t.Error("it is clean although something turned up")
	}
	if note(40, erase.Parts...); get().CleanSince() != 40 {
		t.Errorf("clean since %d, want 40", get().CleanSince())
	}
	var reserved bool
	change(func(c *store.Change) (err error) {
		if err := erase.Complete(c, d, 50); err != nil {
			return err
		}
		reserved, err = erase.Reserved(c, "victim")
		return err
	})
	if reserved {
		t.Error("the token is reserved after the deletion is complete")
	}
}
