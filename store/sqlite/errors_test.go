package sqlite

import (
	"errors"
	"slices"
	"testing"

	"weir/store"
)

func TestUniqueErrorsNameTableAndColumns(t *testing.T) {
	db := newDB(t, `CREATE TABLE u (id INTEGER PRIMARY KEY, a TEXT, b TEXT, c TEXT UNIQUE, UNIQUE (a, b));
		CREATE UNIQUE INDEX u_lower ON u (lower(c)) WHERE b IS NOT NULL;
		CREATE TABLE k (a TEXT, b TEXT, PRIMARY KEY (a, b)) WITHOUT ROWID;
		INSERT INTO u (id, a, b, c) VALUES (1, 'a', 'b', 'c');
		INSERT INTO k VALUES ('a', 'b');`)
	for query, want := range map[string]store.UniqueError{
		`INSERT INTO u (id) VALUES (1)`:                                       {Table: "u", Columns: []string{"id"}},
		`INSERT INTO u (a, b) VALUES ('a', 'b')`:                              {Table: "u", Columns: []string{"a", "b"}},
		`INSERT INTO u (c) VALUES ('c')`:                                      {Table: "u", Columns: []string{"c"}},
		`INSERT INTO u (a, b, c) VALUES ('x', 'constraint failed: (1)', 'C')`: {Table: "u_lower"},
		`INSERT INTO k VALUES ('a', 'b')`:                                     {Table: "k", Columns: []string{"a", "b"}},
	} {
		err := db.Write(t.Context(), store.Results, func(tx store.Tx) error {
			_, err := tx.Exec(query)
			return err
		})
		u, ok := errors.AsType[*store.UniqueError](err)
		if !ok || u.Table != want.Table || !slices.Equal(u.Columns, want.Columns) {
			t.Errorf("%s: %v: %+v", query, err, u)
		}
	}
}

func TestWhatTheDiskRefusesHasAName(t *testing.T) {
	db := newDB(t, `CREATE TABLE u (id INTEGER PRIMARY KEY)`)
	err := raw(db.conns[0].conn, func(c *conn) error {
		return errors.Join(c.run("PRAGMA query_only=1"), c.run("INSERT INTO u VALUES (1)"))
	})
	if !errors.Is(translate(err), store.ErrUnwritable) || errors.Is(translate(err), store.ErrFull) {
		t.Errorf("a read-only database: %v", err)
	}
}

func TestSpaceIsKeptAndFreed(t *testing.T) {
	db := newDB(t, `CREATE TABLE u (id INTEGER PRIMARY KEY, b BLOB)`)
	for range 2 {
		if err := db.KeepSpare(1 << 16); err != nil || fileBytes(SparePath(db.path)) != 1<<16 {
			t.Fatal(err)
		}
	}
	if err := db.KeepSpare(1 << 15); err != nil || fileBytes(SparePath(db.path)) != 1<<16 {
		t.Error("one that is larger does not stay", err)
	}
	if err := db.KeepSpare(1 << 17); err != nil || fileBytes(SparePath(db.path)) != 1<<17 {
		t.Error("one that is smaller does not grow", err)
	}
	write := func() int64 {
		if err := db.Write(t.Context(), store.Results, func(tx store.Tx) error {
			_, err := tx.Exec(`INSERT INTO u (b) VALUES (zeroblob(100000))`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return fileBytes(db.path + "-wal")
	}
	before := write()
	db.FreeSpace()
	if n := fileBytes(SparePath(db.path)); n != 0 {
		t.Errorf("%d bytes are still kept", n)
	}
	if after := write(); after > before {
		t.Errorf("the write-ahead log has grown from %d to %d bytes: its space is not used again", before, after)
	}
	db.FreeSpace() // nothing is kept
}

// TestFreePagesAreGivenBack: the file gets smaller by what is asked for, and not while a reader needs its end; what is asked for
// meanwhile gives nothing more.
func TestFreePagesAreGivenBack(t *testing.T) {
	t.Parallel()
	db := newDB(t, `CREATE TABLE u (id INTEGER PRIMARY KEY, b BLOB)`)
	exec(t, db, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) INSERT INTO u SELECT i, zeroblob(100000) FROM n`)
	give := func(bytes int64) int64 {
		t.Helper()
		n, err := db.GiveBack(t.Context(), bytes)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := give(1 << 20); n != 0 {
		t.Errorf("%d bytes of a database without free pages", n)
	}
	exec(t, db, `DELETE FROM u WHERE id <= 90`)
	db.ckpt.run(db.ckpt.conn, "RESTART", restartWait)
	before := fileBytes(db.path)
	if n := give(1 << 20); n != 1<<20 || before-fileBytes(db.path) < n {
		t.Errorf("%d bytes were given back, the file went from %d to %d", n, before, fileBytes(db.path))
	}
	if n := db.Stats().FreeBytes; n < 7<<20 || n > 8_500_000 {
		t.Errorf("%d bytes are still free inside", n)
	}
	before = fileBytes(db.path)
	release := hold(t, db, store.Bulk, 1)
	if n := give(1 << 20); n != 1<<20 || fileBytes(db.path) != before {
		t.Errorf("%d bytes, with a reader; the file went from %d to %d", n, before, fileBytes(db.path))
	}
	if n := give(1 << 20); n != 0 {
		t.Errorf("%d bytes more although the first are still in the file", n)
	}
	release()
	if n := give(1 << 20); n != 1<<20 || before-fileBytes(db.path) < 2*n {
		t.Errorf("%d bytes after the reader, the file went from %d to %d", n, before, fileBytes(db.path))
	}
	if n := one[int64](t, db, `SELECT sum(length(b)) FROM u`); n != 10*100_000 {
		t.Errorf("%d bytes of rows are left", n)
	}
}
