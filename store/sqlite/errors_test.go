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
