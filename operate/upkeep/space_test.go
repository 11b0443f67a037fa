package upkeep

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/ingest"
	"weir/internal/setting"
	"weir/internal/test/fixture"
	"weir/spool"
	"weir/store"
)

// emptyLog is a log that holds nothing.
type emptyLog struct{ spool.Log }

func (emptyLog) Stats() spool.Stats {
	return spool.Stats{First: 1, MaxBytes: 1 << 30, MaxRecords: 1000}
}

// TestADiskThatWasFullTakesMessagesAgainOnceRetentionHasRemovedEnough: of a disk with little more than the database, less is free
// than the reserve, and stays so while what is removed stays in the file.
func TestADiskThatWasFullTakesMessagesAgainOnceRetentionHasRemovedEnough(t *testing.T) {
	t.Parallel()
	const reserve, days = 2 << 20, 6
	db := fixture.Store(t)
	chunksOf(t, db, 100, days, 10) // 24 MB
	taken := func() int64 {        // by the file alone: how long the write-ahead log is depends on the machine
		info, err := os.Stat(db.Stats().Path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	size := taken() + reserve/4 // the disk
	disk := func() (int64, int64, error) { return size - taken(), reserve, nil }
	g := ingest.NewGauge(ingest.GaugeConfig{Log: emptyLog{}, DiskSettings: ingest.DiskSettings{DiskReserve: setting.Size(reserve)},
		Disk: func() (int64, int64, error) { return size - taken(), 1 << 40, nil }})
	k := Maintained{Store: db, Log: slog.New(slog.DiscardHandler), Disk: disk, Look: func() (time.Time, time.Duration) { return time.Time{}, 0 }}
	if given, err := k.giveBack(t.Context()); err != nil || given != 0 {
		t.Fatalf("%d bytes of a database without free pages, %v", given, err)
	}
	r := Retention{Maintained: k, rows: sweepRows, removed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "removed"}, []string{"kind"})}
	if err := r.remove(t.Context(), store.KeptReadings, firstDay+(days-1)*microsPerDay); err != nil {
		t.Fatal(err)
	}
	if g.Sample(); !g.Refusing() {
		t.Fatal("the disk is not full: the test shows nothing")
	}
	given, err := k.giveBack(t.Context())
	if err != nil || given < reserve {
		t.Errorf("%d bytes were given back, %v", given, err)
	}
	if g.Sample(); g.Refusing() {
		free, _, _ := disk()
		t.Errorf("messages are still refused with %d bytes free", free)
	}
	if free, _ := pages(t, db); free == 0 {
		t.Error("no page is left for new rows")
	}
	before := taken()
	if given, err := k.giveBack(t.Context()); err != nil || given != 0 || taken() != before {
		t.Errorf("%d bytes were given back of a disk with enough free space, %v", given, err)
	}
}
