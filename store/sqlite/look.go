package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"weir/store"
)

// Inspector reads a database without changing it: it runs no migration and writes no row. It serves commands that
// examine a directory without an instance.
type Inspector struct {
	db *DB
	// Pending is the number of migrations that the next start will run.
	Pending int
}

// Inspect opens the database at path for reading; it must exist. Errors are those of Open. As with Open the caller holds
// the lock of the data directory.
func Inspect(ctx context.Context, path string) (*Inspector, error) {
	return look(ctx, path, embedded())
}

func look(ctx context.Context, path string, migrations fs.FS) (o *Inspector, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("store/sqlite: %w", err)
	}
	if _, err := os.Stat(abs); err != nil {
		return nil, fmt.Errorf("store/sqlite: %w", err)
	}
	o = &Inspector{db: &DB{path: abs, log: slog.New(slog.DiscardHandler), count: 1, metrics: newMetrics(nil), closing: make(chan struct{})}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("store/sqlite: %s: %w", path, translate(err)), o.db.closeConns())
			o = nil
		}
	}()
	conn, err := o.db.connect(ctx, o.db.dsn(defaultCacheBytes, true))
	if err != nil {
		return o, err
	}
	if o.Pending, err = pending(ctx, conn, migrations); err != nil {
		return o, err
	}
	o.db.oneReader(conn)
	return o, nil
}

// pending compares the database's record of migrations with the files and counts the missing ones.
func pending(ctx context.Context, c *sql.Conn, dir fs.FS) (int, error) {
	ms, err := loadMigrations(dir)
	if err != nil {
		return 0, err
	}
	var tables int
	if err := c.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema WHERE type = 'table'`).Scan(&tables); err != nil {
		return 0, err
	}
	if tables == 0 { // a first start that was interrupted
		return len(ms), nil
	}
	done, err := applied(ctx, c)
	if err != nil {
		return 0, err
	}
	return len(ms) - len(done), compare(ms, done)
}

// Read runs fn in one consistent snapshot, as store.Store does.
func (o *Inspector) Read(ctx context.Context, fn func(store.Tx) error) error {
	return o.db.Read(ctx, fn)
}

// Check reads the whole file and returns ErrDamaged when its pages are inconsistent. It ends with ctx.
func (o *Inspector) Check(ctx context.Context) error {
	return o.db.Check(ctx)
}

// Close closes the database.
func (o *Inspector) Close() error {
	close(o.db.closing)
	<-o.db.readers[store.Queries].free
	return o.db.closeConns()
}
