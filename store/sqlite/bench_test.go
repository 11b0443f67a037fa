package sqlite

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"weir/model"
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

// BenchmarkEdges stores 960 edges a transaction, 2.4 of a reading of one of fifty devices: as blocks, and as Weir did before,
// with a row for each and its fire counted with it.
func BenchmarkEdges(b *testing.B) {
	const n = 960
	ways := []struct {
		name string
		add  func(store.Tx, []model.Edge) error
	}{
		{"rows", func(tx store.Tx, es []model.Edge) error {
			for i := range es {
				if err := edgeAsRow(tx, &es[i]); err != nil {
					return err
				}
			}
			return nil
		}},
		{"blocks", func(tx store.Tx, es []model.Edge) error {
			_, err := store.AddEdges(tx, es)
			return err
		}},
	}
	for _, way := range ways {
		b.Run(way.name, func(b *testing.B) {
			db, err := Open(b.Context(), filepath.Join(b.TempDir(), "weir.db"), Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			var pages, size int64
			used := func(tx store.Tx) error {
				return tx.QueryRow(`SELECT page_count, page_size FROM pragma_page_count, pragma_page_size`).Scan(&pages, &size)
			}
			if err := db.Read(b.Context(), used); err != nil {
				b.Fatal(err)
			}
			before, edges, rounds, cpu := pages, stormEdges(n), 0, processCPU(b)
			b.ReportAllocs()
			for b.Loop() {
				if err := db.Write(b.Context(), store.Results, func(tx store.Tx) error { return way.add(tx, edges) }); err != nil {
					b.Fatal(err)
				}
				for i := range edges {
					edges[i].ID.Offset += n
					edges[i].Occurred += 5 * n
					edges[i].Received += (5 * model.Micros(n)).Nanos()
				}
				rounds++
			}
			b.ReportMetric(float64(processCPU(b)-cpu)/float64(rounds*n), "cpu-ns/edge")
			if err := db.Read(b.Context(), used); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64((pages-before)*size)/float64(rounds*n), "B/edge")
		})
	}
}

// processCPU returns the nanoseconds that the process had of the processors.
func processCPU(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func stormEdges(n int) []model.Edge {
	edges := make([]model.Edge, n)
	for i := range edges {
		reading := i * 5 / 12
		device, rule := reading*7919%50+1, "r"+strconv.Itoa(i%10)
		edges[i] = model.Edge{ID: model.EdgeID{Epoch: 1, Offset: model.Offset(1000 + reading), Rule: "p/" + rule, Key: strconv.Itoa(device)}, Tenant: "acme", TenantID: 1,
			Profile: "p", Version: 1, Rule: rule, Kind: "threshold", Signal: model.EdgeSignal(1 + i%2), Series: fmt.Sprintf("d%05d", device), Device: int64(device),
			Occurred: model.Micros(1_790_000_000_000_000 + int64(reading*5+reading*7919%300)), Received: model.Micros(1_790_000_000_000_900 + int64(reading*5)).Nanos(), Severity: "major"}
		if i%2 == 0 {
			edges[i].Value, edges[i].HasValue = float64(reading*7919%10000)/100, true
		}
	}
	return edges
}

// edgeAsRow stores an edge as Weir did before it packed them.
func edgeAsRow(tx store.Tx, e *model.Edge) error {
	_, err := tx.Exec(`INSERT INTO edges (epoch, log_offset, idx, rule, key, n, tenant_id, tenant, profile, version, rule_token, kind,
		signal, series, device_id, occurred, received, severity, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT DO NOTHING`,
		int64(e.ID.Epoch), int64(e.ID.Offset), int64(e.ID.Index), e.ID.Rule, e.ID.Key, int64(e.ID.N), e.TenantID, e.Tenant, e.Profile,
		e.Version, e.Rule, e.Kind, int64(e.Signal), e.Series, e.Device, int64(e.Occurred), int64(e.Received.Micros()), e.Severity,
		sql.NullFloat64{Float64: e.Value, Valid: e.HasValue})
	if err != nil {
		return err
	}
	_, err = tx.Exec(`INSERT INTO rule_fires (tenant_id, rule, fires, last_fired, last_signal) VALUES (?, ?, 1, ?, ?)
		ON CONFLICT (tenant_id, rule) DO UPDATE SET fires = rule_fires.fires + 1,
		last_signal = CASE WHEN excluded.last_fired >= rule_fires.last_fired THEN excluded.last_signal ELSE rule_fires.last_signal END,
		last_fired = CASE WHEN excluded.last_fired >= rule_fires.last_fired THEN excluded.last_fired ELSE rule_fires.last_fired END`,
		e.TenantID, e.ID.Rule, int64(e.Occurred), int64(e.Signal))
	return err
}

// BenchmarkEdgesRemoved removes detections whose time is over, in the steps of retention. An operation is 960 of them.
func BenchmarkEdgesRemoved(b *testing.B) {
	for name, add := range map[string]func(store.Tx, []model.Edge) error{"rows": func(tx store.Tx, es []model.Edge) error {
		for i := range es {
			if err := edgeAsRow(tx, &es[i]); err != nil {
				return err
			}
		}
		return nil
	}, "blocks": func(tx store.Tx, es []model.Edge) error { _, err := store.AddEdges(tx, es); return err }} {
		b.Run(name, func(b *testing.B) {
			db, err := Open(b.Context(), filepath.Join(b.TempDir(), "weir.db"), Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			write := func(f func(store.Tx) error) {
				if err := db.Write(b.Context(), store.Results, f); err != nil {
					b.Fatal(err)
				}
			}
			edges := stormEdges(960)
			for range b.N {
				write(func(tx store.Tx) error { return add(tx, edges) })
				for i := range edges {
					edges[i].ID.Offset += 960
				}
			}
			write(func(tx store.Tx) error { return store.SetCheckpointState(tx, edges[959].ID.Offset, 1) })
			b.ResetTimer()
			cpu, gone := processCPU(b), int64(0)
			for more := true; more; {
				write(func(tx store.Tx) error {
					step, err := store.RemoveBefore(tx, store.KeptDetections, store.MaxMicros, 100)
					gone, more = gone+step.Entries, step.Rows > 0
					return err
				})
			}
			b.ReportMetric(float64(processCPU(b)-cpu)/float64(gone), "cpu-ns/edge")
			if gone != int64(960*b.N) {
				b.Errorf("%d are gone of %d", gone, 960*b.N)
			}
		})
	}
}
