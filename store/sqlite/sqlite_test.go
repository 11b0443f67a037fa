package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	sqlite3 "modernc.org/sqlite/lib"

	"weir/internal/test/need"
	"weir/internal/test/poll"
	"weir/store"
)

func newDB(t *testing.T, texts ...string) *DB {
	t.Helper()
	return mustOpen(t, filepath.Join(t.TempDir(), "weir.db"), some(texts...))
}

func TestEveryConnectionIsSetUpAsMeant(t *testing.T) {
	db := newDB(t)
	check := func(t *testing.T, query func(string) *sql.Row, want map[string]string) {
		t.Helper()
		for name, w := range want {
			var got string
			if err := query("PRAGMA " + name).Scan(&got); err != nil || got != w {
				t.Errorf("%s is %s, not %s (%v)", name, got, w, err)
			}
		}
	}
	common := map[string]string{"auto_vacuum": "2", "journal_mode": "wal", "foreign_keys": "1", "busy_timeout": "5000",
		"wal_autocheckpoint": "0", "mmap_size": "0", "journal_size_limit": fmt.Sprint(walKeepBytes)}
	for range 2 * db.count {
		if err := db.Read(t.Context(), func(tx store.Tx) error {
			check(t, func(q string) *sql.Row { return tx.QueryRow(q) }, common)
			check(t, func(q string) *sql.Row { return tx.QueryRow(q) }, map[string]string{"query_only": "1"})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, durable := range []store.Durability{store.Results, store.Durable, store.Results} {
		mode := "1"
		if durable == store.Durable {
			mode = "2"
		}
		if err := db.Write(t.Context(), durable, func(tx store.Tx) error {
			check(t, func(q string) *sql.Row { return tx.QueryRow(q) }, common)
			check(t, func(q string) *sql.Row { return tx.QueryRow(q) }, map[string]string{"query_only": "0", "synchronous": mode})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAPathOfAnyCharactersIsOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?_pragma=x#%41ü.db")
	db := mustOpen(t, path, some(three[0]))
	exec(t, db, `INSERT INTO a (x) VALUES ('x')`)
	if n := fileBytes(path); n == 0 || db.Stats().Path != path {
		t.Error(n, db.Stats().Path)
	}
}

func TestPreparedStatementsAreBounded(t *testing.T) {
	db := newDB(t, three[0])
	if err := db.Write(t.Context(), store.Results, func(tx store.Tx) error {
		for i := range 3 * maxStatements {
			var n int
			if err := tx.QueryRow(fmt.Sprintf(`SELECT %d`, i)).Scan(&n); err != nil || n != i {
				return fmt.Errorf("%d: %d, %w", i, n, err)
			}
		}
		return raw(db.w.conn, func(c *conn) error {
			if len(c.cached) > maxStatements || c.recent.Len() != len(c.cached) {
				t.Errorf("%d statements, %d in order", len(c.cached), c.recent.Len())
			}
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
}

func TestTheLogIsCarriedBackWhileWritesGoOn(t *testing.T) {
	db := newDB(t, three[0])
	blob := strings.Repeat("x", 100_000)
	var most int64
	for range 700 { // 70 MB
		if err := db.Write(t.Context(), store.Results, func(tx store.Tx) error {
			_, err := tx.Exec(`INSERT INTO a (id, x) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET x = excluded.x`, blob)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		most = max(most, fileBytes(db.path+"-wal"))
	}
	if most > walHardBytes+walSoftBytes || testutil.ToFloat64(db.metrics.checkpoints) == 0 {
		t.Errorf("the log grew to %d bytes in %v checkpoints", most, testutil.ToFloat64(db.metrics.checkpoints))
	}
	if n := one[int64](t, db, `SELECT length(x) FROM a`); n != int64(len(blob)) {
		t.Error(n)
	}
}

func TestAReaderThatStaysHoldsNoWriterForLong(t *testing.T) {
	db := newDB(t, three[0])
	blob := strings.Repeat("x", 1<<20)
	if err := db.Read(t.Context(), func(store.Tx) error { // its snapshot keeps the log from starting again
		for range 40 {
			if err := db.Write(context.Background(), store.Results, func(tx store.Tx) error {
				_, err := tx.Exec(`INSERT INTO a (id, x) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET x = excluded.x`, blob)
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n := testutil.ToFloat64(db.metrics.pauses); n != 1 {
		t.Errorf("%v pauses", n)
	}
	exec(t, db, `UPDATE a SET x = ''`)
	for fileBytes(db.path+"-wal") > walHardBytes { // the reader is gone: the next pause or checkpoint frees the log
		exec(t, db, `INSERT INTO a (id, x) VALUES (2, '`+blob+`') ON CONFLICT (id) DO UPDATE SET x = excluded.x`)
	}
}

// grow writes n bytes in commits of 100 kB.
func grow(t *testing.T, db *DB, n int) {
	t.Helper()
	const commit = 100_000
	blob := strings.Repeat("x", commit)
	for range n / commit {
		if err := db.Write(context.Background(), store.Results, func(tx store.Tx) error {
			_, err := tx.Exec(`INSERT INTO a (id, x) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET x = excluded.x`, blob)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestALogThatWasLongIsCopiedBackInSmallStepsAgain(t *testing.T) {
	db := newDB(t, three[0])
	if err := db.Read(t.Context(), func(store.Tx) error { // its snapshot keeps the log from starting again
		grow(t, db, 10<<20)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	db.ckpt.run(db.ckpt.conn, "RESTART", restartWait)
	db.ckpt.begin.Store(walSlowBytes)
	before := testutil.ToFloat64(db.metrics.checkpoints)
	grow(t, db, 2*walSlowBytes)
	poll.Until(t, "the checkpointer works", func() error {
		if n := testutil.ToFloat64(db.metrics.checkpoints); n == before {
			return fmt.Errorf("%v checkpoints before and after", n)
		}
		return nil
	})
}

func TestAStepOfTheCheckpointerThatCannotBeSyncedEndsAllWrites(t *testing.T) {
	db, err := open(t.Context(), filepath.Join(t.TempDir(), "weir.db"), Options{}, some(three[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }() // of the file that is closed already
	if err := db.ckpt.file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Read(t.Context(), func(store.Tx) error {
		grow(t, db, 100_000)
		db.ckpt.run(db.ckpt.conn, "PASSIVE", checkpointWait) // which does not reach the end of the log
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.doubts(); !errors.Is(err, store.ErrUnsynced) {
		t.Errorf("doubts: %v", err)
	}
	if err := db.Write(t.Context(), store.Results, func(store.Tx) error { return nil }); !errors.Is(err, store.ErrUnsynced) {
		t.Errorf("a write: %v", err)
	}
}

func TestDiskFullLosesTheBatchAndNothingElse(t *testing.T) {
	db := newDB(t, three[0])
	exec(t, db, `INSERT INTO a (x) VALUES ('kept')`)
	exec(t, db, `PRAGMA max_page_count=20`)
	began, over := make(chan struct{}), make(chan struct{})
	held := make(chan error, 1)
	go func() {
		held <- db.Write(t.Context(), store.Results, func(store.Tx) error { close(began); <-over; return nil })
	}()
	<-began
	results := make(chan error, 2)
	for i, n := range []int{1, 1 << 20} {
		go func() {
			results <- db.Write(t.Context(), store.Results, func(tx store.Tx) error {
				_, err := tx.Exec(`INSERT INTO a (x) VALUES (?)`, strings.Repeat("x", n))
				return err
			})
		}()
		for db.Stats().WriterQueue != i+1 {
			runtime.Gosched()
		}
	}
	close(over)
	failed := 0
	for range 2 {
		if err := <-results; err != nil {
			failed++
		}
	}
	if err := <-held; err != nil {
		t.Error(err)
	}
	// The large one fails; its neighbour is kept, or fails too where SQLite gave up the transaction. Both got their result.
	if n := one[int64](t, db, `SELECT count(*) FROM a`); failed == 0 || n != int64(3-failed) {
		t.Errorf("%d failed, %d rows", failed, n)
	}
	exec(t, db, `DELETE FROM a`)
}

// codeError is a driver's error.
type codeError int

func (e codeError) Error() string { return fmt.Sprint("code ", int(e)) }
func (e codeError) Code() int     { return int(e) }

func TestACommitThatFailsConfirmsNoWrite(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault error
		after error // of the next Write
	}{
		{"an I/O error passes", codeError(sqlite3.SQLITE_IOERR_WRITE), nil},
		{"after a failed sync nothing is promised again", codeError(sqlite3.SQLITE_IOERR_FSYNC), store.ErrUnsynced},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "weir.db")
			fault := c.fault
			db, err := open(t.Context(), path, Options{commitFault: func() error {
				err := fault
				fault = nil
				return err
			}}, some(three[0]))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			insert := func(tx store.Tx) error {
				tx.OnCommit(func() { t.Log("hook") })
				_, err := tx.Exec(`INSERT INTO a (x) VALUES ('x')`)
				return err
			}
			if err := db.Write(t.Context(), store.Durable, insert); !errors.Is(err, c.fault) {
				t.Error(err)
			}
			if n := one[int64](t, db, `SELECT count(*) FROM a`); n != 0 {
				t.Error("it was written")
			}
			if err := db.Write(t.Context(), store.Durable, insert); !errors.Is(err, c.after) || c.after == nil && err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTwoDatabasesShareAProcessButNotTheirMetrics(t *testing.T) {
	regs := []*prometheus.Registry{prometheus.NewRegistry(), prometheus.NewRegistry()}
	for _, reg := range regs {
		for range 2 { // a registry is free again after a Close
			db, err := open(t.Context(), filepath.Join(t.TempDir(), "weir.db"), Options{Registerer: reg}, some(three[0]))
			if err != nil {
				t.Fatal(err)
			}
			exec(t, db, `INSERT INTO a (x) VALUES ('x')`)
			if n, err := testutil.GatherAndCount(reg); n == 0 || err != nil {
				t.Error(n, err)
			}
			if problems, err := testutil.GatherAndLint(reg); len(problems) > 0 || err != nil {
				t.Error(problems, err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "weir.db")
	if _, err := open(t.Context(), path, Options{Registerer: fullRegistry{}}, some(three[0])); !errors.Is(err, errFull) {
		t.Error(err)
	}
}

type fullRegistry struct{ prometheus.Registerer }

var errFull = errors.New("full")

func (fullRegistry) Register(prometheus.Collector) error  { return errFull }
func (fullRegistry) Unregister(prometheus.Collector) bool { return false }

func TestCloseLeavesOneFileThatIsNotOpen(t *testing.T) {
	db := newDB(t, three[0])
	exec(t, db, `INSERT INTO a (x) VALUES ('x')`)
	if err := db.Read(t.Context(), func(tx store.Tx) error {
		_, err := tx.Query(`SELECT x FROM a`) // left open
		return err
	}); err == nil {
		t.Error("no error")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(filepath.Dir(db.path))
	if len(files) != 1 || err != nil {
		t.Error(files, err)
	}
	fds, err := os.ReadDir("/proc/self/fd")
	need.That(t, err == nil, "this system does not show open files")
	for _, fd := range fds {
		if target, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(target, db.path) {
			t.Error(target, "is still open")
		}
	}
}

func TestFreePagesAreReported(t *testing.T) {
	db := newDB(t, three[0])
	exec(t, db, `INSERT INTO a (x) VALUES ('`+strings.Repeat("x", 1<<20)+`')`)
	exec(t, db, `DELETE FROM a`)
	path := db.path
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if s := mustOpen(t, path, some(three[0])).Stats(); s.FreeBytes < 1<<20 || s.Bytes < s.FreeBytes {
		t.Errorf("%+v", s)
	}
}
