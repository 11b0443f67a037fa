package sqlite

import (
	"path/filepath"
	"sync/atomic"
	"testing"

	"weir/store"
)

func benchDB(b *testing.B) *DB {
	b.Helper()
	db, err := open(b.Context(), filepath.Join(b.TempDir(), "weir.db"), Options{}, some(
		`CREATE TABLE r (id INTEGER PRIMARY KEY, tenant_id INTEGER, token TEXT, body TEXT, UNIQUE (tenant_id, token))`))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	return db
}

func BenchmarkWriteAlone(b *testing.B) {
	for name, d := range map[string]store.Durability{"results": store.Results, "durable": store.Durable} {
		b.Run(name, func(b *testing.B) {
			db := benchDB(b)
			for b.Loop() {
				if err := db.Write(b.Context(), d, insertOne); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWriteTogether(b *testing.B) {
	for name, d := range map[string]store.Durability{"results": store.Results, "durable": store.Durable} {
		b.Run(name, func(b *testing.B) {
			db := benchDB(b)
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := db.Write(b.Context(), d, insertOne); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/float64(db.w.commits.Load()), "writes/commit")
		})
	}
}

func insertOne(tx store.Tx) error {
	_, err := tx.Exec(`INSERT INTO r (tenant_id, token, body) VALUES (1, NULL, 'some forty bytes of an ordinary text row')`)
	return err
}

// BenchmarkRowsInOneWrite is the applier's kind of work: 500 rows of one statement.
func BenchmarkRowsInOneWrite(b *testing.B) {
	db := benchDB(b)
	for b.Loop() {
		if err := db.Write(b.Context(), store.Results, func(tx store.Tx) error {
			for range 500 {
				if err := insertOne(tx); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*500/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkRead(b *testing.B) {
	db := benchDB(b)
	const rows = 10_000
	if err := db.Write(b.Context(), store.Results, func(tx store.Tx) error {
		for i := range rows {
			if _, err := tx.Exec(`INSERT INTO r (tenant_id, token, body) VALUES (1, ?, 'body')`, i); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	point := func(tx store.Tx, i int64) error {
		var body string
		return tx.QueryRow(`SELECT body FROM r WHERE id = ?`, 1+i%rows).Scan(&body)
	}
	var n atomic.Int64
	b.Run("a snapshot for each row", func(b *testing.B) {
		for b.Loop() {
			if err := db.Read(b.Context(), func(tx store.Tx) error { return point(tx, n.Add(1)) }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("many rows of one snapshot", func(b *testing.B) {
		if err := db.Read(b.Context(), func(tx store.Tx) error {
			for b.Loop() {
				if err := point(tx, n.Add(1)); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	})
	b.Run("in parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := db.Read(b.Context(), func(tx store.Tx) error { return point(tx, n.Add(1)) }); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}
