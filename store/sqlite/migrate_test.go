package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"weir/store"
)

// some returns a directory of migrations.
func some(texts ...string) fstest.MapFS {
	dir := fstest.MapFS{}
	for i, text := range texts {
		dir[fmt.Sprintf("%04d_m.sql", i+1)] = &fstest.MapFile{Data: []byte(text)}
	}
	return dir
}

var three = []string{
	`CREATE TABLE a (id INTEGER PRIMARY KEY, x TEXT); CREATE INDEX a_x ON a (x);`,
	`ALTER TABLE a ADD COLUMN y INTEGER NOT NULL DEFAULT 5; -- a comment; with a semicolon`,
	`UPDATE a SET y = y + 1;`,
}

func tryOpen(t *testing.T, path string, dir fs.FS) (*DB, error) {
	t.Helper()
	db, err := open(t.Context(), path, Options{}, dir)
	if err == nil {
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return db, err
}

func mustOpen(t *testing.T, path string, dir fs.FS) *DB {
	t.Helper()
	db, err := tryOpen(t, path, dir)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func one[T any](t *testing.T, db *DB, query string) (v T) {
	t.Helper()
	if err := db.Read(t.Context(), func(tx store.Tx) error { return tx.QueryRow(query).Scan(&v) }); err != nil {
		t.Fatal(err)
	}
	return v
}

func exec(t *testing.T, db *DB, query string) {
	t.Helper()
	if err := db.Write(t.Context(), store.Durable, func(tx store.Tx) error {
		_, err := tx.Exec(query)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestADatabaseOfEveryEarlierWeirIsBroughtUpToDate(t *testing.T) {
	for from := range len(three) + 1 {
		t.Run(fmt.Sprint(from), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "weir.db")
			db := mustOpen(t, path, some(three[:from]...))
			want := int64(5)
			if from > 0 {
				exec(t, db, `INSERT INTO a (x) VALUES ('kept')`)
				if from < 3 {
					want = 6
				}
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				db = mustOpen(t, path, some(three...))
				if from > 0 {
					if y := one[int64](t, db, `SELECT y FROM a WHERE x = 'kept'`); y != want {
						t.Errorf("y is %d, not %d", y, want)
					}
				}
				if n := one[int64](t, db, `SELECT count(*) FROM schema_migrations`); n != 3 {
					t.Errorf("%d migrations are recorded", n)
				}
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// Every prefix of the product's own migrations can be opened by the product: no later one leans on an edit of an
// earlier one.
func TestTheProductsMigrationsApplyOneAfterAnother(t *testing.T) {
	entries, err := fs.ReadDir(embedded(), ".")
	if err != nil {
		t.Fatal(err)
	}
	whole := schema(t, mustOpen(t, filepath.Join(t.TempDir(), "weir.db"), embedded()))
	path := filepath.Join(t.TempDir(), "weir.db")
	dir := fstest.MapFS{}
	for _, e := range entries {
		text, err := fs.ReadFile(embedded(), e.Name())
		if err != nil {
			t.Fatal(err)
		}
		dir[e.Name()] = &fstest.MapFile{Data: text}
		if err := mustOpen(t, path, dir).Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := schema(t, mustOpen(t, path, embedded())); got != whole {
		t.Errorf("step by step the schema is\n%s\nat once\n%s", got, whole)
	}
}

func schema(t *testing.T, db *DB) string {
	t.Helper()
	return one[string](t, db, `SELECT group_concat(sql, char(10)) FROM (SELECT coalesce(sql, name) AS sql FROM sqlite_schema ORDER BY type, name)`)
}

func TestAMigrationThatFailsLeavesNothingOfItself(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	if _, err := tryOpen(t, path, some(three[0], `CREATE TABLE b (id INTEGER PRIMARY KEY); INSERT INTO b VALUES (1); SELECT nonsense;`)); err == nil ||
		!strings.Contains(err.Error(), "0002_m") {
		t.Fatal(err)
	}
	db := mustOpen(t, path, some(three[0]))
	if n := one[int64](t, db, `SELECT count(*) FROM sqlite_schema WHERE name = 'b'`); n != 0 {
		t.Error("a part of it is there")
	}
}

func TestDatabasesThatAreNotOpened(t *testing.T) {
	made := func(t *testing.T, texts ...string) string {
		path := filepath.Join(t.TempDir(), "weir.db")
		if err := mustOpen(t, path, some(texts...)).Close(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	change := func(t *testing.T, path, query string) {
		t.Helper()
		c, err := newConnector("file:" + path)
		if err != nil {
			t.Fatal(err)
		}
		dc, err := c.Connect(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(dc.(*conn).run(query), dc.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		path func(*testing.T) string
		dir  fs.FS
		want error
		text string
	}{
		{"of a newer Weir", func(t *testing.T) string { return made(t, three...) }, some(three[:2]...), store.ErrVersion, "at migration 0003_m, this Weir knows them up to 0002"},
		{"with an edited migration", func(t *testing.T) string { return made(t, three[:2]...) }, some(three[0], three[1]+" ", three[2]), store.ErrDamaged, "0002_m"},
		{"with a gap in its record", func(t *testing.T) string {
			path := made(t, three...)
			change(t, path, `DELETE FROM schema_migrations WHERE number = 2`)
			return path
		}, some(three...), store.ErrDamaged, "0002 is missing"},
		{"of another program", func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "other.db")
			change(t, path, `PRAGMA auto_vacuum=INCREMENTAL; CREATE TABLE t (x)`)
			return path
		}, some(three...), store.ErrDamaged, "not Weir's"},
		{"without incremental vacuum", func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "other.db")
			change(t, path, `CREATE TABLE t (x)`)
			return path
		}, some(three...), store.ErrDamaged, "auto_vacuum"},
		{"that is no database", func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "text.db")
			if err := os.WriteFile(path, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}, some(three...), store.ErrDamaged, ""},
		{"in a directory that is not there", func(t *testing.T) string { return filepath.Join(t.TempDir(), "no", "weir.db") }, some(three...), nil, "no/weir.db"},
		{"with a gap in the files", func(t *testing.T) string { return filepath.Join(t.TempDir(), "weir.db") },
			fstest.MapFS{"0001_a.sql": &fstest.MapFile{}, "0003_b.sql": &fstest.MapFile{}}, nil, "0002 was expected"},
		{"with a file that has no number", func(t *testing.T) string { return filepath.Join(t.TempDir(), "weir.db") },
			fstest.MapFS{"core.sql": &fstest.MapFile{}}, nil, "core.sql"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := tryOpen(t, c.path(t), c.dir)
			if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v", err)
			}
		})
	}
}
