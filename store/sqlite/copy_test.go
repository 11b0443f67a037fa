package sqlite

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/store"
)

// TestACopyIsOneMomentOfADatabaseThatIsWrittenMeanwhile: every transaction writes two rows, rewrites earlier ones and lets
// the file grow, while the pages of the copy go by.
func TestACopyIsOneMomentOfADatabaseThatIsWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	db := newDB(t, `CREATE TABLE a (id INTEGER PRIMARY KEY, x TEXT, n INTEGER)`)
	n := 0
	write := func() {
		t.Helper()
		n++
		if err := db.Write(t.Context(), store.Results, func(tx store.Tx) error {
			for range 2 {
				if _, err := tx.Exec(`INSERT INTO a (x, n) VALUES (?, ?)`, strings.Repeat("x", 5000), n); err != nil {
					return err
				}
			}
			_, err := tx.Exec(`UPDATE a SET x = ? WHERE id % 7 = 0`, strings.Repeat("y", 100*n))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for range 50 {
		write()
	}
	path := filepath.Join(t.TempDir(), "copy.db")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var bytes int64
	if err := db.Copy(t.Context(), func(tx store.Tx, size int64, pages func(io.Writer) error) error {
		bytes = size
		return pages(writerFunc(func(p []byte) (int, error) {
			if n < 400 {
				write()
			}
			return out.Write(p)
		}))
	}); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != bytes {
		t.Errorf("not the %d bytes that were said: %v, %v", bytes, info, err)
	}
	o, err := look(t.Context(), path, some(`CREATE TABLE a (id INTEGER PRIMARY KEY, x TEXT, n INTEGER)`))
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if err := o.Check(t.Context()); err != nil {
		t.Error(err)
	}
	var rows, newest int
	if err := o.Read(t.Context(), func(tx store.Tx) error {
		return tx.QueryRow(`SELECT count(*), max(n) FROM a`).Scan(&rows, &newest)
	}); err != nil || newest != 50 || rows != 100 {
		t.Errorf("%d rows up to %d, %v", rows, newest, err)
	}
}

func TestACopyEndsWithItsContextAndWithItsWriter(t *testing.T) {
	t.Parallel()
	db := newDB(t, three...)
	full := errors.New("no space")
	copyTo := func(ctx context.Context, w io.Writer) error {
		return db.Copy(ctx, func(_ store.Tx, _ int64, pages func(io.Writer) error) error { return pages(w) })
	}
	if err := copyTo(t.Context(), writerFunc(func([]byte) (int, error) { return 0, full })); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	ctx, end := context.WithCancel(t.Context())
	if err := copyTo(ctx, writerFunc(func(p []byte) (int, error) { end(); return len(p), nil })); err == nil {
		t.Error("it went on")
	}
	if err := copyTo(t.Context(), io.Discard); err != nil {
		t.Errorf("after both: %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
