// Package store keeps the results of the log and the changes of the operators: entities, events, state, rule state,
// offsets, secrets and the audit journal. Its SQL is common to SQLite and PostgreSQL; a driver (store/sqlite) provides
// the connection, the migrations and the dialect. storetest is the suite that every driver passes.
package store

import (
	"context"
	"database/sql"
	"errors"

	"weir/model"
)

// Errors of a store.
var (
	// ErrClosed is returned when the store is closed.
	ErrClosed = errors.New("store: closed")
	// ErrVersion is returned when the database was written by a newer Weir. The text names both versions.
	ErrVersion = errors.New("store: newer format")
	// ErrFull is returned when the disk is full; nothing of the write is kept.
	ErrFull = errors.New("store: the disk is full")
	// ErrUnwritable is returned when the disk refuses to be written: it is read-only, or it fails. Nothing of the write is kept.
	ErrUnwritable = errors.New("store: the disk refuses to be written")
	// ErrDamaged is returned when a row or body does not have the form that Weir writes. The text names table and key.
	ErrDamaged = errors.New("store: damaged")
	// ErrUnsynced is returned when a sync failed. Writes since the previous sync may be lost without another error, so this open file takes
	// no further writes. After the database is opened again it is consistent, and the log replays what it lacks.
	ErrUnsynced = errors.New("store: a sync failed; what was written since the one before may be lost")
	// ErrBusy is returned when the context ended while all readers of the class were in use. It is returned with the context's error.
	ErrBusy = errors.New("store: no reader became free in time")
	// ErrOpenRows is returned when a statement was begun while the rows of another one of its transaction were open. It did nothing.
	ErrOpenRows = errors.New("store: read and close the rows of a query before the next statement")
)

// UniqueError is returned by Exec and Insert when a unique index refuses a row.
type UniqueError struct {
	Table   string
	Columns []string
	Err     error
}

func (e *UniqueError) Error() string { return "store: not unique: " + e.Table }

// Unwrap returns the driver's error.
func (e *UniqueError) Unwrap() error { return e.Err }

// Durability is the failure that a commit must survive.
type Durability uint8

const (
	// Results survive a crash of the process. After a power cut the log replays them: it is trimmed only up to offsets of a
	// commit that is synced.
	Results Durability = iota
	// Durable survives a power cut: API writes, metadata changes, and the checkpoint that lets the log be trimmed.
	Durable
)

// Store is the database of one instance. All methods are safe for concurrent use.
type Store interface {
	// Read runs fn in one consistent snapshot of the database. fn must not write. Cancelling ctx interrupts the running
	// statement.
	Read(ctx context.Context, fn func(Tx) error) error
	// Write queues fn for the only writer, which runs all ready functions, each in a savepoint of its own, commits them
	// together and then returns. nil means that fn's effects are committed with at least d. fn may run for a few
	// milliseconds and must not wait for anything; when it fails, none of its effects are kept, but those of the others are.
	// When ctx ends before fn has begun, fn is removed from the queue; later, Write waits for the commit.
	Write(ctx context.Context, d Durability, fn func(Tx) error) error
	// WriteAll queues functions for the writer at once, as a Write of each would, and returns what each came to. They run in their order, and those
	// that are ready together share a commit: it is how much work is done in few commits without a function that holds the writer for long.
	WriteAll(ctx context.Context, d Durability, fns ...func(Tx) error) []error
	// Stats returns figures for status and metrics.
	Stats() Stats
	Close() error
}

// Readers is a class of readers. Each has connections of its own, so that a read waits for others of its class only.
type Readers uint8

// The classes.
const (
	Queries Readers = iota // short reads of people and programs: the readers of Store.Read of a Driver
	Scans                  // long reads of people and programs: half of the readers of Queries, and no more
	Bulk                   // reads of the whole database: backup, verification
	Applier                // of the applier and of the changes on their way into the log
	Devices                // what a device waits for: its credential, its presence
)

// AllReaders are all classes.
var AllReaders = [...]Readers{Queries, Scans, Bulk, Applier, Devices}

// String returns the name of the class, as metrics label it.
func (r Readers) String() string {
	return [...]string{"queries", "scans", "bulk", "applier", "devices"}[r]
}

type tenantKey struct{}

// ForTenant returns a context whose reads of the classes Queries and Scans are those of a tenant: at most half of the readers of
// Queries serve one tenant, so that the other half is left to the others however much it asks for. 0 is no tenant.
func ForTenant(ctx context.Context, id int64) context.Context {
	return context.WithValue(ctx, tenantKey{}, id)
}

// TenantOf returns the tenant of ForTenant, 0 for none.
func TenantOf(ctx context.Context) int64 {
	id, _ := ctx.Value(tenantKey{}).(int64)
	return id
}

// Driver is a Store that gives each class of readers a handle.
type Driver interface {
	Store
	// For returns the store with the readers of a class. A Read waits for one until its context ends: ErrBusy.
	For(Readers) Store
}

// Tx is a transaction. Statements use ? for parameters and only what both dialects share (ON CONFLICT … DO UPDATE,
// RETURNING, no functions of one dialect); they are prepared once per connection. They do not nest: while rows of Query are
// open, every other statement is refused with ErrOpenRows. It is valid inside fn only, for one goroutine.
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
	// Err is the reason why the database cannot be trusted any more, nil while there is none: ErrDamaged or ErrUnsynced.
	Err error
}

// Writer is the way in which other packages change entities: Mutate runs fn in one durable transaction on behalf of a
// principal. It returns when the change is stored and, if the change is in the log, applied or a second has passed. In
// the context of a change in progress, fn is part of that change.
type Writer interface {
	Mutate(ctx context.Context, by *model.Principal, fn func(*Change) error) error
}

// Patch is a partial update or the fields of a new row by their API names: absent = keep, nil = clear, value = set.
// Values are those of the coerced input: string, bool, int64, float64, []any, map[string]any.
type Patch map[string]any
