package sqlite

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	from "weir/internal/test/made"
	"weir/store"
)

// The script is what the migrations make one after another, rows included, and a new database that it makes is that database.
func TestTheWholeSchemaIsThatOfTheMigrations(t *testing.T) {
	ms, err := loadMigrations(embedded())
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("%04d_%s.sql", ms[0].number, ms[0].name)
	path := filepath.Join(t.TempDir(), "weir.db")
	// A database that has one takes the others one by one.
	if err := mustOpen(t, path, fstest.MapFS{name: &fstest.MapFile{Data: []byte(ms[0].sql)}}).Close(); err != nil {
		t.Fatal(err)
	}
	migrated := mustOpen(t, path, embedded())
	want := schemaOf + sumOf(ms) + "\n" + dump(t, migrated)
	if from.Update() {
		from.Write(t, "schema.sql", []byte(want))
		return
	}
	if schemaText != want {
		t.Fatal("schema.sql is not what the migrations make; make generate writes it")
	}
	fresh := mustOpen(t, filepath.Join(t.TempDir(), "weir.db"), embedded())
	if got := schemaOf + sumOf(ms) + "\n" + dump(t, fresh); got != want {
		t.Error("a new database is not what the migrations make")
	}
	if a, b := one[int64](t, fresh, `SELECT count(*) FROM schema_migrations`), int64(len(ms)); a != b {
		t.Errorf("%d migrations are recorded, of %d", a, b)
	}
}

// dump returns the statements that make the tables, indexes, triggers and rows of a database but for the record of its migrations.
func dump(t *testing.T, db *DB) string {
	t.Helper()
	var b strings.Builder
	var tables []string
	if err := db.Read(t.Context(), func(tx store.Tx) error {
		rows, err := tx.Query(`SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name <> 'schema_migrations' AND name NOT LIKE 'sqlite_%'
			ORDER BY type <> 'table', type, name`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var kind, name, text string
			if err := rows.Scan(&kind, &name, &text); err != nil {
				return err
			}
			b.WriteString(text + ";\n")
			if kind == "table" {
				tables = append(tables, name)
			}
		}
		return rows.Err()
	}); err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		columns := one[string](t, db, `SELECT group_concat('quote("' || name || '")', ' || '', '' || ') FROM pragma_table_info('`+table+`')`)
		if err := db.Read(t.Context(), func(tx store.Tx) error {
			rows, err := tx.Query(`SELECT ` + columns + ` FROM "` + table + `"`)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var values string
				if err := rows.Scan(&values); err != nil {
					return err
				}
				fmt.Fprintf(&b, "INSERT INTO %s VALUES (%s);\n", table, values)
			}
			return rows.Err()
		}); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}
