package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"regexp"
	"strconv"
	"time"

	"weir/store"
)

//go:embed migrations/*.sql
var files embed.FS

// embedded returns the migrations of this Weir.
func embedded() fs.FS {
	sub, err := fs.Sub(files, "migrations")
	if err != nil {
		panic(err) // the directory is part of the binary
	}
	return sub
}

// migration is one numbered file. A released migration is never edited: a later one changes its tables.
type migration struct {
	number   int
	name     string
	sql      string
	checksum string
}

var migrationName = regexp.MustCompile(`^(\d{4})_([a-z0-9_]+)\.sql$`)

// loadMigrations reads the files in order. Their numbers begin at 1 and have no gap.
func loadMigrations(dir fs.FS) ([]migration, error) {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil {
		return nil, err
	}
	var ms []migration
	for _, e := range entries {
		m, err := readMigration(dir, e.Name())
		if err != nil {
			return nil, err
		}
		if m.number != len(ms)+1 {
			return nil, fmt.Errorf("migration %s: number %04d was expected", e.Name(), len(ms)+1)
		}
		ms = append(ms, m)
	}
	return ms, nil
}

func readMigration(dir fs.FS, file string) (migration, error) {
	match := migrationName.FindStringSubmatch(path.Base(file))
	if match == nil {
		return migration{}, fmt.Errorf("migration %s: a name like 0001_core.sql was expected", file)
	}
	number, err := strconv.Atoi(match[1])
	if err != nil {
		return migration{}, err
	}
	text, err := fs.ReadFile(dir, file)
	if err != nil {
		return migration{}, err
	}
	sum := sha256.Sum256(text)
	return migration{number: number, name: match[2], sql: string(text), checksum: hex.EncodeToString(sum[:])}, nil
}

// migrate updates the schema, each migration in one transaction that also records it. An empty database gets the whole schema in one.
func migrate(ctx context.Context, c *sql.Conn, dir fs.FS, now time.Time, log *slog.Logger) error {
	ms, err := loadMigrations(dir)
	if err != nil {
		return err
	}
	done, err := applied(ctx, c)
	if err != nil {
		return err
	}
	if err := compare(ms, done); err != nil {
		return err
	}
	missing := ms[len(done):]
	if len(missing) == 0 {
		return nil
	}
	if script := wholeSchema(ms); script != "" && len(done) == 0 {
		if err := apply(ctx, c, script, ms, now); err != nil {
			return fmt.Errorf("making the tables: %w", err)
		}
		log.Info("store made", "migrations", len(ms))
		missing = nil
	}
	for _, m := range missing {
		if err := apply(ctx, c, m.sql, []migration{m}, now); err != nil {
			return fmt.Errorf("migration %04d_%s: %w", m.number, m.name, err)
		}
		log.Info("store migrated", "number", m.number, "name", m.name)
	}
	// What the migrations wrote is copied back at once: should the disk become full later, copying back what is in the write-ahead
	// log, which makes deletes possible, must not have to enlarge the database by all of its tables.
	if _, err := checkpoint(c, "RESTART", restartWait); err != nil {
		log.Warn("what the migrations wrote cannot be copied back yet", "error", translate(err))
	}
	return nil
}

// applied returns the recorded migrations, in order. A file with tables but without a record is not a Weir database.
func applied(ctx context.Context, c *sql.Conn) ([]migration, error) {
	var tables, record int
	err := c.QueryRowContext(ctx, `SELECT count(*), coalesce(sum(name = 'schema_migrations'), 0) FROM sqlite_schema WHERE type = 'table'`).
		Scan(&tables, &record)
	switch {
	case err != nil:
		return nil, err
	case tables == 0:
		_, err := c.ExecContext(ctx, `CREATE TABLE schema_migrations (
			number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at INTEGER NOT NULL)`)
		return nil, err
	case record == 0:
		return nil, fmt.Errorf("%w: the file holds tables that are not Weir's", store.ErrDamaged)
	}
	rows, err := c.QueryContext(ctx, `SELECT number, name, checksum FROM schema_migrations ORDER BY number`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var done []migration
	for rows.Next() {
		var m migration
		if err := rows.Scan(&m.number, &m.name, &m.checksum); err != nil {
			return nil, err
		}
		done = append(done, m)
	}
	return done, rows.Err()
}

// compare compares the record with the files.
func compare(ms, done []migration) error {
	if len(done) > len(ms) {
		last := done[len(done)-1]
		return fmt.Errorf("%w: the database is at migration %04d_%s, this Weir knows them up to %04d",
			store.ErrVersion, last.number, last.name, len(ms))
	}
	for i, d := range done {
		if d.number != i+1 {
			return fmt.Errorf("%w: schema_migrations: migration %04d is missing", store.ErrDamaged, i+1)
		}
		if d.checksum != ms[i].checksum {
			return fmt.Errorf("%w: schema_migrations: migration %04d_%s is not the one that this Weir has (checksum %.8s, not %.8s)",
				store.ErrDamaged, d.number, d.name, d.checksum, ms[i].checksum)
		}
	}
	return nil
}

// apply runs a script and records the migrations that it stands for, in one transaction. synchronous=FULL, so that a power cut cannot
// leave rows of a schema that is lost.
func apply(ctx context.Context, c *sql.Conn, script string, ms []migration, now time.Time) (err error) {
	for _, s := range []string{"PRAGMA synchronous=FULL", "BEGIN IMMEDIATE"} {
		if _, err := c.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil {
			_, _ = c.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") // SQLite may have rolled back already
		}
		_, e := c.ExecContext(context.WithoutCancel(ctx), "PRAGMA synchronous=NORMAL")
		err = errors.Join(err, e)
	}()
	if _, err := c.ExecContext(ctx, script); err != nil {
		return err
	}
	for _, m := range ms {
		if _, err := c.ExecContext(ctx, `INSERT INTO schema_migrations (number, name, checksum, applied_at) VALUES (?, ?, ?, ?)`,
			m.number, m.name, m.checksum, now.UnixMicro()); err != nil {
			return err
		}
	}
	_, err = c.ExecContext(ctx, "COMMIT")
	return err
}
