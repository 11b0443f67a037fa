// Package sqlite keeps the store in one SQLite database (WAL). One goroutine owns the write connection: it runs the queued
// functions, each in a savepoint, and commits them together; other connections read snapshots in parallel, and each class
// of readers has its own, so that neither the applier nor a device waits for a query. A further connection checkpoints the
// write-ahead log, so that no write waits for that.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/store"
)

// Options of a database. The zero value is suitable for a gateway.
type Options struct {
	Logger     *slog.Logger          // nil: silent
	Registerer prometheus.Registerer // nil: metrics are not registered
	Readers    int                   // number of reader connections for queries, 4
	CacheBytes int64                 // page caches of all connections together, 12 MiB
	Clock      func() time.Time      // time.Now

	// Trace is called with each statement, by the goroutine that runs it; nil: nothing is. For tests that count statements.
	Trace func(query string)

	// For tests, called by the writer: after each commit; instead of one, when it returns an error.
	committed   func(durable bool, writes int)
	commitFault func() error
}

const (
	defaultCacheBytes = 12 << 20
	busyTimeout       = 5 * time.Second // only other programs (a shell on the file) hold locks that are waited for
)

// DB is a store.Store on one file.
type DB struct {
	path    string
	log     *slog.Logger
	clock   func() time.Time
	metrics *metrics

	conns   []connection             // all, in the order in which they were opened
	readers map[store.Readers]*queue // made once
	shares  *shares                  // of the readers for queries, by tenant
	trace   func(query string)       // nil: none
	count   int                      // of the readers for queries
	w       *writer
	ckpt    *checkpointer

	closing   chan struct{}
	closeOnce sync.Once
	closeErr  error
	freeBytes atomic.Int64
	doubt     atomic.Pointer[error] // of suspect
	spare     sync.Mutex            // held while the spare file is made or removed
}

var _ store.Driver = (*DB)(nil)

// Open opens the database at path, creates it when there is none, and migrates its schema. Errors:
// store.ErrVersion for a database of a newer Weir, store.ErrDamaged for a file that is no Weir database or was altered.
// Only one process may open it; the caller holds the lock of the data directory.
func Open(ctx context.Context, path string, o Options) (*DB, error) {
	return open(ctx, path, o, embedded())
}

// makePrivate creates a missing file, readable only by its owner; SQLite gives its companion files the same mode.
func makePrivate(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func open(ctx context.Context, path string, o Options, migrations fs.FS) (*DB, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("store/sqlite: %w", err)
	}
	db := &DB{
		path:    abs,
		log:     o.Logger,
		clock:   o.Clock,
		count:   cmp.Or(max(o.Readers, 0), defaultReaders),
		closing: make(chan struct{}),
		metrics: newMetrics(o.Registerer),
		trace:   o.Trace,
	}
	if db.log == nil {
		db.log = slog.New(slog.DiscardHandler)
	}
	if db.clock == nil {
		db.clock = time.Now
	}
	if err := makePrivate(abs); err != nil {
		return nil, fmt.Errorf("store/sqlite: %w", err)
	}
	if err := db.connectAll(ctx, o, migrations); err != nil {
		return nil, errors.Join(fmt.Errorf("store/sqlite: %s: %w", path, translate(err)), db.closeConns())
	}
	if err := db.metrics.register(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// connectAll opens the write connection first: it creates the file and its tables, which readers may not.
func (db *DB) connectAll(ctx context.Context, o Options, migrations fs.FS) error {
	cacheBytes := cmp.Or(max(o.CacheBytes, 0), defaultCacheBytes)
	wc, err := db.connect(ctx, db.dsn(cacheBytes*writerCache/cacheParts, false))
	if err != nil {
		return err
	}
	if err := checkAutoVacuum(ctx, wc); err != nil {
		return err
	}
	if err := migrate(ctx, wc, migrations, db.clock(), db.log); err != nil {
		return err
	}
	if err := db.openReaders(ctx, cacheBytes); err != nil {
		return err
	}
	cc, err := db.connect(ctx, db.dsn(0, false))
	if err != nil {
		return err
	}
	if db.ckpt, err = newCheckpointer(db, cc); err != nil {
		return err
	}
	db.w = newWriter(db, wc, o)
	db.w.refreshFree()
	return nil
}

// connect opens one connection with its own pool.
func (db *DB) connect(ctx context.Context, dsn string) (*sql.Conn, error) {
	c, err := newConnector(dsn)
	if err != nil {
		return nil, err
	}
	c.trace = db.trace
	pool := sql.OpenDB(c)
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	db.conns = append(db.conns, connection{conn, pool})
	return conn, nil
}

// connection is a connection with its pool of one.
type connection struct {
	conn *sql.Conn
	pool *sql.DB
}

// close closes the driver's connection itself: the pool would wait for result sets that are still open.
func (c connection) close() error { return errors.Join(raw(c.conn, (*conn).Close), c.pool.Close()) }

// dsn describes a connection. It contains auto_vacuum because that takes effect only before the first table exists;
// the checkpointer does the checkpoints, so they are switched off here; mapping the file would let a failing disk kill the
// process.
func (db *DB) dsn(cacheBytes int64, readOnly bool) string {
	q := url.Values{
		"_auto_vacuum":  {"INCREMENTAL"},
		"_busy_timeout": {fmt.Sprint(busyTimeout.Milliseconds())},
		"_journal_mode": {"WAL"},
		"_foreign_keys": {"1"},
		"_synchronous":  {"NORMAL"},
		"_dqs":          {"0"},
		"_defensive":    {"1"},
		"_error_rc":     {"1"},
		"_pragma": {
			fmt.Sprintf("cache_size(%d)", -max(cacheBytes/1024, 64)),
			fmt.Sprintf("journal_size_limit(%d)", walKeepBytes),
			"mmap_size(0)",
			"secure_delete(FAST)", // what is removed is overwritten where its page is written anyhow, so that Scrub finds less to do
			"temp_store(MEMORY)",
			"wal_autocheckpoint(0)",
		},
	}
	if readOnly {
		q.Set("_query_only", "1")
	} else {
		q.Set("_defensive", "0") // it would refuse what Scrub writes
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(db.path)}
	return u.String() + "?" + q.Encode()
}

func checkAutoVacuum(ctx context.Context, c *sql.Conn) error {
	var mode int
	if err := c.QueryRowContext(ctx, "PRAGMA auto_vacuum").Scan(&mode); err != nil {
		return err
	}
	const incremental = 2
	if mode != incremental {
		return fmt.Errorf("%w: auto_vacuum is %d, not incremental: the file was not made by Weir", store.ErrDamaged, mode)
	}
	return nil
}

// Read implements store.Store: it is a read of Queries.
func (db *DB) Read(ctx context.Context, fn func(store.Tx) error) error {
	return db.read(ctx, store.Queries, fn)
}

func (db *DB) read(ctx context.Context, class store.Readers, fn func(store.Tx) error) (err error) {
	defer func() { db.suspect(err) }()
	c, release, err := db.take(ctx, class)
	if err != nil {
		return err
	}
	defer release()
	if err := beginRead(c); err != nil {
		return err
	}
	t := &tx{ctx: ctx, conn: c}
	var left string
	var endErr error
	func() {
		defer func() { // also when fn panics, so that the connection can be used again
			t.end()
			left, endErr = endRead(c)
		}()
		err = fn(t)
	}()
	switch {
	case err != nil:
		return err
	case endErr != nil:
		return endErr
	case left != "" && ctx.Err() == nil:
		return fmt.Errorf("store/sqlite: a Read left the rows of %q open", left)
	}
	return nil
}

// beginRead opens a transaction and reads once: only a read pins the snapshot.
func beginRead(c *sql.Conn) error {
	return raw(c, func(c *conn) error {
		if err := c.run("BEGIN"); err != nil {
			return errors.Join(err, c.run("ROLLBACK")) // the next one starts again, whatever this one found
		}
		if err := c.run("SELECT 1 FROM sqlite_schema LIMIT 1"); err != nil {
			return errors.Join(err, c.run("ROLLBACK"))
		}
		return nil
	})
}

// endRead ends the transaction and returns the query whose rows were still open, "" for none.
func endRead(c *sql.Conn) (left string, err error) {
	err = raw(c, func(c *conn) error {
		left = c.closeRows()
		return c.run("ROLLBACK")
	})
	return left, err
}

// raw runs fn on the connection itself, without the pool's bookkeeping but under its lock.
func raw(c *sql.Conn, fn func(*conn) error) error {
	return c.Raw(func(dc any) error { return fn(dc.(*conn)) })
}

// Write implements store.Store.
func (db *DB) Write(ctx context.Context, d store.Durability, fn func(store.Tx) error) error {
	return db.WriteAll(ctx, d, fn)[0]
}

// WriteAll implements store.Store.
func (db *DB) WriteAll(ctx context.Context, d store.Durability, fns ...func(store.Tx) error) []error {
	errs := db.w.submit(ctx, d, fns)
	for _, err := range errs {
		db.suspect(err)
	}
	return errs
}

// Stats implements store.Store.
func (db *DB) Stats() store.Stats {
	return store.Stats{
		Path:         db.path,
		Bytes:        fileBytes(db.path) + fileBytes(db.path+"-wal") + fileBytes(db.path+"-shm"),
		FreeBytes:    db.freeBytes.Load(),
		Commits:      db.w.commits.Load(),
		WriterQueue:  len(db.w.queue),
		ReadersInUse: db.readersInUse(),
		Err:          db.doubts(),
	}
}

func (db *DB) readersInUse() int {
	n := int64(0)
	for _, q := range db.readers {
		n += q.inUse.Load()
	}
	return int(n)
}

// Close refuses new work, completes the queued work, waits for the readers and closes the file after a checkpoint of
// its log. A second call does nothing.
func (db *DB) Close() error {
	db.closeOnce.Do(func() {
		close(db.closing)
		db.w.wait()
		db.ckpt.wait()
		db.drainReaders()
		db.closeErr = db.closeConns()
		db.metrics.unregister()
	})
	return db.closeErr
}

// closeConns closes all connections; the write connection, opened first, is closed last and removes the log. A file that is
// closed gives up the locks that its process holds on it, so the checkpointer's is closed after them.
func (db *DB) closeConns() error {
	var errs []error
	for _, c := range slices.Backward(db.conns) {
		errs = append(errs, c.close())
	}
	db.conns = nil
	if db.ckpt != nil {
		errs = append(errs, db.ckpt.file.Close())
	}
	return errors.Join(errs...)
}

// pragma reads a pragma's number.
func pragma(c *sql.Conn, name string) (n int64, err error) {
	if strings.ContainsAny(name, "; ") {
		return 0, fmt.Errorf("store/sqlite: %q is no pragma", name)
	}
	err = c.QueryRowContext(context.Background(), "PRAGMA "+name).Scan(&n)
	return n, err
}
