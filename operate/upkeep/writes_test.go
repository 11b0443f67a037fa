package upkeep

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

const (
	microsPerDay = model.Micros(24 * 60 * 60 * 1_000_000)
	firstDay     = model.Micros(1_790_035_200_000_000) // a UTC midnight
	pageBytes    = 4096
	frameBytes   = pageBytes + 24 // of the write-ahead log
)

// chunksOf writes so many chunks a day of each of so many series, as checkpoints do: those of a generation by series.
func chunksOf(t *testing.T, db store.Store, series, days, perDay int) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	blob := make([]byte, 3800) // no more than a page with the rest of the row
	for i := range blob {
		blob[i] = byte(r.Uint32())
	}
	write := func(fn func(store.Tx) error) {
		if err := db.Write(t.Context(), store.Results, fn); err != nil {
			t.Fatal(err)
		}
	}
	write(func(tx store.Tx) error {
		for id := range series {
			if err := store.InsertSeries(tx, &store.SeriesRow{ID: int64(512 + id), Gen: 1, TenantID: 1, Device: int64(id), DeviceToken: fmt.Sprint("d", id), Metric: "t"}); err != nil {
				return err
			}
		}
		return store.SetCheckpointState(tx, 1000, uint64(days*perDay))
	})
	width := microsPerDay / model.Micros(perDay)
	for gen := range days * perDay {
		write(func(tx store.Tx) error {
			start := firstDay + model.Micros(gen/perDay)*microsPerDay + model.Micros(gen%perDay)*width
			for id := range series {
				c := &store.Chunk{Gen: uint64(1 + gen), TenantID: 1, Series: int64(512 + id), First: start, Last: start + width - 1 - model.Micros(r.Int64N(int64(width/2))), Count: 670,
					FirstOffset: 1, LastOffset: 2, Source: "mqtt1", DataType: "DOUBLE", Data: blob[:3650+r.IntN(150)]}
				if err := store.InsertChunk(tx, c); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// pages returns the number of free pages of a database, and the number of all.
func pages(t *testing.T, db store.Store) (free, all int64) {
	t.Helper()
	if err := db.Read(t.Context(), func(tx store.Tx) error {
		return tx.QueryRow(`SELECT freelist_count, page_count FROM pragma_freelist_count, pragma_page_count`).Scan(&free, &all)
	}); err != nil {
		t.Fatal(err)
	}
	return free, all
}

// TestRetentionWritesNoMoreThanItFrees counts the pages that go into the write-ahead log while a day of readings is removed, each
// of which is written once more, at the most, into the database.
func TestRetentionWritesNoMoreThanItFrees(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ series, days, perDay int }{{200, 4, 13}, {400, 12, 1}} {
		db := fixture.Store(t)
		chunksOf(t, db, c.series, c.days, c.perDay)
		r := Retention{Maintained: Maintained{Store: db, Log: slog.New(slog.DiscardHandler), Look: func() (time.Time, time.Duration) { return time.Time{}, 0 }},
			rows: sweepRows, removed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "removed"}, []string{"kind"})}
		before, _ := pages(t, db)
		// The log does not begin again as long as a reader has this snapshot: its size counts what is written.
		if err := db.For(store.Bulk).Read(context.Background(), func(store.Tx) error {
			log := func() int64 {
				info, err := os.Stat(db.Stats().Path + "-wal")
				if err != nil {
					t.Fatal(err)
				}
				return info.Size()
			}
			if err := db.Write(t.Context(), store.Results, func(tx store.Tx) error { return store.SetMetaInt(tx, "a write after the snapshot", 1) }); err != nil {
				return err
			}
			began := log()
			if err := r.remove(t.Context(), store.KeptReadings, firstDay+microsPerDay); err != nil {
				return err
			}
			written := (log() - began) / frameBytes
			after, _ := pages(t, db)
			freed := after - before
			if rows := int64(c.series * c.perDay); freed < rows {
				t.Errorf("%+v: %d pages are free of %d rows", c, freed, rows)
			}
			t.Logf("%+v: %d pages written for %d that are free, %.2f each", c, written, freed, float64(written)/float64(freed))
			if 2*written > freed {
				t.Errorf("%+v: %d pages go into the log and the database for %d that became free", c, written, freed)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatDevicesSendGoesByWholeDays(t *testing.T) {
	t.Parallel()
	noon := firstDay + microsPerDay/2
	for _, k := range store.AllKept {
		want := noon
		if k == store.KeptReadings || k == store.KeptEvents || k == store.KeptLocations {
			want = firstDay
		}
		if got := endOf(k, noon); got != want {
			t.Errorf("%s: %v, want %v", k, got, want)
		}
	}
	if got := endOf(store.KeptReadings, -1); got != -microsPerDay {
		t.Errorf("before 1970: %v", got)
	}
}
