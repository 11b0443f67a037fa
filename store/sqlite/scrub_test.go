package sqlite

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"weir/internal/test/seed"
	"weir/store"
)

// TestNothingRemovedIsInTheFilesAfterAScrub: rows of all lengths come, change and go, until those with the mark are removed; rows of
// others change on while the scrub goes through the file.
func TestNothingRemovedIsInTheFilesAfterAScrub(t *testing.T) {
	const mark = "zebra"
	r := seed.Rand(t)
	db := newDB(t, `CREATE TABLE x(id INTEGER PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, body BLOB) STRICT;
		CREATE INDEX x_name ON x(name);
		CREATE TABLE y(name TEXT NOT NULL, n INTEGER NOT NULL, body TEXT, PRIMARY KEY (name, n)) STRICT, WITHOUT ROWID;`)
	owners := []string{mark, "other"}
	text := func(owner string) string {
		n := []int{3, 20, 200, 900, 5000, 40_000}[r.IntN(6)]
		return strings.Repeat(fmt.Sprint(owner, r.IntN(1000), " "), 1+r.IntN(n)/10)
	}
	var id int
	change := func(owners []string) {
		t.Helper()
		if err := db.Write(t.Context(), store.Results, func(tx store.Tx) error {
			for range 20 {
				owner := owners[r.IntN(len(owners))]
				var err error
				switch at := r.IntN(id + 1); r.IntN(7) {
				case 0, 1, 2:
					id++
					_, err = tx.Exec(`INSERT INTO x VALUES(?, ?, ?, ?)`, id, owner, fmt.Sprint(owner, r.IntN(1000)), []byte(text(owner)))
				case 3:
					_, err = tx.Exec(`UPDATE x SET body = ? WHERE id = ? AND owner = ?`, []byte(text(owner)), at, owner)
				case 4:
					_, err = tx.Exec(`DELETE FROM x WHERE id BETWEEN ? AND ? + 3 AND owner = ?`, at, at, owner)
				case 5:
					_, err = tx.Exec(`INSERT OR REPLACE INTO y VALUES(?, ?, ?)`, owner, r.IntN(300), text(owner))
				case 6:
					_, err = tx.Exec(`DELETE FROM y WHERE name = ? AND n BETWEEN ? AND ? + 5`, owner, at%300, at%300)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for range 60 {
		change(owners)
	}
	if err := db.Write(t.Context(), store.Results, func(tx store.Tx) error {
		for _, q := range []string{`DELETE FROM x WHERE owner = ?`, `DELETE FROM y WHERE name = ?`} {
			if _, err := tx.Exec(q, mark); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	step, steps := db.Scrub(64<<10), 0
	for left := int64(1); left > 0; steps++ {
		var err error
		if left, err = step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left > 1 {
			change(owners[1:])
		}
	}
	t.Logf("%d steps", steps)
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(db.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(b, []byte(mark)); n > 0 {
			at := bytes.Index(b, []byte(mark))
			t.Errorf("%d times in %q, first on page %d at %d", n, suffix, at/4096+1, at%4096)
		}
	}
	if err := db.Check(t.Context()); err != nil {
		t.Error(err)
	}
	for range 20 { // what was cleaned is as good as before
		change(owners)
	}
	if err := db.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAReaderDelaysAScrub: with a reader of a state before the removal the write-ahead log cannot be emptied, and the scrub says so.
func TestAReaderDelaysAScrub(t *testing.T) {
	db := newDB(t, `CREATE TABLE a(id INTEGER PRIMARY KEY, x TEXT) STRICT`)
	grow(t, db, 500_000)
	reading, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	let := sync.OnceFunc(func() { close(release) })
	defer let()
	go func() {
		ended <- db.Read(t.Context(), func(tx store.Tx) error {
			close(reading)
			<-release
			return nil
		})
	}()
	<-reading
	grow(t, db, 500_000)
	step := db.Scrub(1 << 20)
	last := int64(0)
	for same := 0; same < 3; {
		left, err := step(t.Context())
		t.Log(left)
		if err != nil || left == 0 {
			t.Fatal(left, err)
		}
		if same++; left != last {
			last, same = left, 0
		}
	}
	let()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for left := last; left > 0; {
		var err error
		if left, err = step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := fileBytes(db.path + "-wal"); n > 3*4096 {
		t.Errorf("the write-ahead log has %d bytes", n)
	}
}

// FuzzPages: whatever is on a page, the cells that are found lie within it.
func FuzzPages(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, kind := range []byte{interiorIndex, interiorTable, leafIndex, leafTable} {
		b := make([]byte, 512)
		for i := range b {
			b[i] = byte(r.IntN(256))
		}
		b[0], b[1], b[2], b[3], b[4] = kind, 0, 0, 0, 2
		f.Add(b, int64(2))
	}
	f.Fuzz(func(t *testing.T, page []byte, n int64) {
		if len(page) < 512 {
			return
		}
		page = page[:512]
		p := &pages{size: 512, usable: 512, count: 1 << 20}
		cells, err := p.cells(n, page)
		if err != nil {
			return
		}
		for _, c := range cells {
			if c.from < 0 || c.to < c.from || c.to > len(page) {
				t.Errorf("%+v", c)
			}
		}
	})
}
