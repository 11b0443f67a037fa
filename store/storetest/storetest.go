// Package storetest is the suite that every driver of the store passes: snapshots, the one writer and its batches, what
// a failure takes with it, and the behaviour of entity tables, secrets, control rows and the journal on top of it.
package storetest

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"weir/model"
	"weir/store"
)

// Driver is a driver under test.
type Driver struct {
	// Open opens the store at path, making it when there is none. committed, when not nil, is to be called after each
	// commit with whether it was made durable and how many Writes were in it.
	Open func(path string, committed func(durable bool, writes int)) (store.Store, error)
	// Schema makes the suite's tables; each is a statement.
	Schema []string
}

// SQLite is the Schema in SQLite's words.
var SQLite = []string{
	`CREATE TABLE st_shelves (id INTEGER PRIMARY KEY, tenant_id INTEGER NOT NULL, created_at INTEGER NOT NULL,
		updated_at INTEGER NOT NULL, token TEXT NOT NULL, name TEXT, UNIQUE (tenant_id, token))`,
	`CREATE TABLE st_houses (id INTEGER PRIMARY KEY, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
		token TEXT NOT NULL UNIQUE, color TEXT NOT NULL)`,
	`CREATE TABLE st_books (id INTEGER PRIMARY KEY, tenant_id INTEGER NOT NULL, created_at INTEGER NOT NULL,
		updated_at INTEGER NOT NULL, token TEXT NOT NULL, name TEXT, remark TEXT NOT NULL, metadata TEXT,
		shelf_id INTEGER NOT NULL REFERENCES st_shelves (id), next_id INTEGER, house_id INTEGER, enabled BOOLEAN NOT NULL,
		tags TEXT NOT NULL, weight DOUBLE PRECISION, pages INTEGER, due_at INTEGER, isbn TEXT, place INTEGER NOT NULL,
		state TEXT NOT NULL, secret TEXT, counter INTEGER NOT NULL,
		UNIQUE (tenant_id, token), UNIQUE (tenant_id, isbn), UNIQUE (shelf_id, place))`,
	`CREATE TABLE st_plain (id INTEGER PRIMARY KEY, a TEXT NOT NULL, b TEXT, UNIQUE (a, b))`,
}

// Run runs the suite.
func Run(t *testing.T, d Driver) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *fixture)
	}{
		{"Reads", testReads},
		{"Writes", testWrites},
		{"Batches", testBatches},
		{"Errors", testErrors},
		{"Close", testClose},
		{"Concurrency", testConcurrency},
		{"Table", testTable},
		{"TableAgainstAModel", testModel},
		{"Lists", testLists},
		{"Changes", testChanges},
		{"Secrets", testSecrets},
		{"Meta", testMeta},
		{"Audit", testAudit},
		{"Known", testKnown},
		{"Edges", testEdges},
		{"Detections", testDetections},
		{"OldDetections", testOldDetections},
		{"DetectionTies", testDetectionTies},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, newFixture(t, d))
		})
	}
}

// fixture is a store of a test's own.
type fixture struct {
	store.Store
	d    Driver
	path string
	ctx  context.Context

	mu      sync.Mutex
	commits []commit
	clock   time.Time
}

type commit struct {
	durable bool
	writes  int
}

func newFixture(t *testing.T, d Driver) *fixture {
	t.Helper()
	f := &fixture{d: d, path: filepath.Join(t.TempDir(), "store.db"), ctx: t.Context(),
		clock: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	f.open(t)
	f.write(t, func(tx store.Tx) error {
		for _, s := range d.Schema {
			if _, err := tx.Exec(s); err != nil {
				return err
			}
		}
		return nil
	})
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fixture) open(t *testing.T) {
	t.Helper()
	st, err := f.d.Open(f.path, func(durable bool, writes int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.commits = append(f.commits, commit{durable, writes})
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Store = st
}

// taken returns the commits since the last call.
func (f *fixture) taken() []commit {
	f.mu.Lock()
	defer f.mu.Unlock()
	cs := f.commits
	f.commits = nil
	return cs
}

func (f *fixture) write(t *testing.T, fn func(store.Tx) error) {
	t.Helper()
	if err := f.Write(f.ctx, store.Results, fn); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) read(t *testing.T, fn func(store.Tx) error) {
	t.Helper()
	if err := f.Read(f.ctx, fn); err != nil {
		t.Fatal(err)
	}
}

// now is a clock that goes on a millisecond with each look.
func (f *fixture) now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clock = f.clock.Add(time.Millisecond)
	return f.clock
}

var ann = &model.Principal{Kind: model.AccessCaller, Subject: "ann"}

func (f *fixture) mutate(fn func(*store.Change) error) error {
	return store.Direct{Store: f.Store, Now: f.now}.Mutate(f.ctx, ann, fn)
}

func insertPlain(tx store.Tx, a string) error {
	_, err := tx.Insert(`INSERT INTO st_plain (a, b) VALUES (?, 'b')`, a)
	return err
}

// plain returns the texts of st_plain in order of insertion.
func plain(tx store.Tx) (as []string, err error) {
	rows, err := tx.Query(`SELECT a FROM st_plain ORDER BY id`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var a string
		if err := rows.Scan(&a); err != nil {
			return nil, err
		}
		as = append(as, a)
	}
	return as, rows.Err()
}

func (f *fixture) plain(t *testing.T) (as []string) {
	t.Helper()
	f.read(t, func(tx store.Tx) (err error) {
		as, err = plain(tx)
		return err
	})
	return as
}
