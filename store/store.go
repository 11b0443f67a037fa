// Package store keeps what the log led to and what the operators wrote: entities, events, state, rule state, offsets,
// secrets and the audit journal. SQL is written once here, in the words that SQLite and PostgreSQL share; a driver
// (store/sqlite) brings the connection, the migrations and the dialect. storetest is the suite that every driver passes.
package store

import (
	"context"
	"database/sql"
	"errors"

	"weir/model"
)

// Errors of a store.
var (
	// ErrClosed: the store is closed.
	ErrClosed = errors.New("store: closed")
	// ErrVersion: the database was written by a newer Weir. The text names both versions.
	ErrVersion = errors.New("store: newer format")
	// ErrFull: the disk has no room for what was to be written; nothing of it is kept.
	ErrFull = errors.New("store: the disk is full")
	// ErrDamaged: a row cannot be what Weir wrote. The text names table and key.
	ErrDamaged = errors.New("store: damaged")
	// ErrUnsynced: a sync failed. What was written since the one before may be lost without a further word, so nothing is
	// written through this open file again; opened anew, the database is sound and the log makes up for what it lacks.
	ErrUnsynced = errors.New("store: a sync failed; what was written since the one before may be lost")
)

// UniqueError is what Exec and Insert return when a unique index refuses a row.
type UniqueError struct {
	Table   string
	Columns []string
	Err     error
}

func (e *UniqueError) Error() string { return "store: not unique: " + e.Table }

// Unwrap returns the driver's error.
func (e *UniqueError) Unwrap() error { return e.Err }

// Durability says what a commit must survive.
type Durability uint8

const (
	// Results survive a crash of the process. After a power cut the log replays them, for it is only trimmed up to
	// offsets inside a commit that is known to be synced.
	Results Durability = iota
	// Durable survives a power cut: API writes, control rows, and the head write that lets the log be trimmed.
	Durable
)

// Store is the database of one instance. All methods are safe for concurrent use.
type Store interface {
	// Read runs fn in one consistent snapshot from the pool of readers. fn must not write. Cancelling ctx interrupts
	// the statement that runs.
	Read(ctx context.Context, fn func(Tx) error) error
	// Write queues fn for the one writer, which runs what is ready, each in a savepoint of its own, commits them
	// together and then answers. nil says that fn's effects are committed with at least d. fn may run no longer than a
	// few milliseconds and must not wait for anything; when it fails, nothing of it is kept and its neighbours are.
	// A ctx that ends before fn has begun takes it out of the queue; after that the commit is waited for.
	Write(ctx context.Context, d Durability, fn func(Tx) error) error
	// Stats returns figures for status and metrics.
	Stats() Stats
	Close() error
}

// Tx is a transaction. Statements use ? for parameters and only what both dialects share (ON CONFLICT … DO UPDATE,
// RETURNING, no functions of one dialect); they are prepared once per connection. It is valid inside fn only, for one
// goroutine.
type Tx interface {
	Context() context.Context
	// Exec runs a statement and returns the number of rows it changed.
	Exec(query string, args ...any) (int64, error)
	// Insert runs an INSERT and returns the new row's id (it appends RETURNING id).
	Insert(query string, args ...any) (int64, error)
	Query(query string, args ...any) (*sql.Rows, error)
	QueryRow(query string, args ...any) *sql.Row
	// OnCommit calls f after the commit, in order, before Write returns. Never called when fn fails or in a Read.
	OnCommit(f func())
}

// Stats are a store's figures.
type Stats struct {
	Path         string
	Bytes        int64 // of the files
	FreeBytes    int64 // free pages inside them, which count as free disk
	Commits      uint64
	WriterQueue  int
	ReadersInUse int
	// Err is why the database cannot be trusted any more, nil as long as nothing is known against it: ErrDamaged, or a sync
	// that failed.
	Err error
}

// Writer is how the rooms above change entities: Mutate runs fn in one durable transaction on behalf of a principal and
// returns when the change is stored and, where it has a place in the log, Apply has passed it (or a second is over). In the
// context of a change under way fn is a part of that change.
type Writer interface {
	Mutate(ctx context.Context, by *model.Principal, fn func(*Change) error) error
}

// Patch is a partial update or the fields of a new row by their API names: absent = keep, nil = clear, value = set.
// Values are those of the coerced input: string, bool, int64, float64, []any, map[string]any.
type Patch map[string]any
