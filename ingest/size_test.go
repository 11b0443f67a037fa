package ingest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"weir/internal/test/need"
	"weir/model"
	"weir/series"
	"weir/store"
	"weir/store/sqlite"
)

// plant is a number of devices that report once in ten seconds, give or take 50 ms, and are heard 20 to 200 ms later, with
// what is kept of them and without a log: so that what lies on disk can be weighed by the table.
type plant struct {
	tb       testing.TB
	db       *sqlite.DB
	series   *series.Series
	seen     *seen
	devices  int
	noise    bool
	altEvery int

	r      *rand.Rand
	levels []int64
	tokens []string
	due    []arrivalOf
	now    model.Nanos
	offset model.Offset
	gen    uint64
	stored int64
}

type arrivalOf struct {
	device             int
	occurred, received model.Nanos
}

func newPlant(tb testing.TB, devices, altEvery int, noise bool) *plant {
	tb.Helper()
	ctx := context.Background()
	db, err := sqlite.Open(ctx, filepath.Join(tb.TempDir(), "weir.db"), sqlite.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	readings, err := series.Open(ctx, series.Config{Settings: series.Settings{SeriesPerTenant: 1 << 20}}, db, series.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	p := &plant{tb: tb, db: db, series: readings, seen: newSeen(14*24*time.Hour, 64<<20, 0), devices: devices, altEvery: altEvery, noise: noise,
		r: rand.New(rand.NewPCG(1, 2)), now: model.NanosOf(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))}
	for i := range devices {
		p.levels = append(p.levels, 2150)
		p.tokens = append(p.tokens, fmt.Sprintf("device-%d", i+1))
	}
	return p
}

const plantPeriod = 10 * time.Second

// round is one reading of each device, in the order in which they are heard.
func (p *plant) round(number int) {
	p.due = p.due[:0]
	micros := func(n int64) model.Nanos { return model.Nanos(p.r.Int64N(n)) * 1000 }
	for i := range p.devices {
		at := p.now + model.Nanos(i)*model.Nanos(plantPeriod)/model.Nanos(p.devices) + micros(100_001)
		p.due = append(p.due, arrivalOf{i, at, at + 20e6 + micros(180_000)})
	}
	slices.SortFunc(p.due, func(a, b arrivalOf) int { return cmp.Compare(a.received, b.received) })
	ctx := context.Background()
	points := make([]series.Point, 1)
	for _, a := range p.due {
		p.offset++
		pt := series.Point{TenantID: 1, Device: int64(a.device + 1), DeviceToken: p.tokens[a.device], Metric: "temp", Source: "mqtt1",
			Occurred: a.occurred.Micros(), Received: a.received.Micros(), Offset: p.offset, Value: p.value(a.device), Unit: "°C", DataType: "double"}
		if p.altEvery > 0 && number%p.altEvery == 0 {
			pt.AltID = fmt.Sprintf("m%d", number)
			p.remember(int64(a.device+1), &model.Message{AltID: pt.AltID, Occurred: a.occurred, HasOccurred: true}, a.received)
		}
		points[0] = pt
		if err := p.series.Put(ctx, points); err != nil {
			p.tb.Fatal(err)
		}
		p.stored++
	}
	p.now += model.Nanos(plantPeriod)
}

func (p *plant) remember(device int64, m *model.Message, at model.Nanos) {
	p.seen.addAltID(appendAltIDKey(nil, 1, device, m), at)
}

func (p *plant) value(device int) float64 {
	if p.noise {
		return math.Float64frombits(p.r.Uint64()&^(0x7ff<<52) | uint64(1020+p.r.Uint64N(8))<<52)
	}
	p.levels[device] += p.r.Int64N(21) - 10
	return float64(p.levels[device]) / 100
}

// cut writes a head, as the applier would.
func (p *plant) cut() {
	ctx := context.Background()
	write := func(fn func(store.Tx) error) error { return p.db.Write(ctx, store.Results, fn) }
	check := func(err error) {
		if err != nil {
			p.tb.Helper()
			p.tb.Fatal(err)
		}
	}
	p.gen++
	f, s := p.series.Freeze(p.offset), p.seen.freeze(p.now)
	check(f.Write(ctx, p.gen, write))
	check(inSlices(write, s.pages(), func(tx store.Tx, page store.SeenPage) error { return store.AddSeenPage(tx, p.gen, page) }))
	check(p.db.Write(ctx, store.Durable, f.Publish))
	f.Release()
}

// weigh reports the bytes of each table with its indexes, by reading.
func (p *plant) weigh(b *testing.B, written int64) {
	b.Helper()
	per := func(n int64) float64 { return float64(n) / float64(p.stored) }
	var all int64
	err := p.db.Read(context.Background(), func(tx store.Tx) error {
		rows, err := tx.Query(`SELECT name, SUM(pgsize), SUM(unused) FROM dbstat GROUP BY name ORDER BY 2 DESC`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			var bytes, unused int64
			if err := rows.Scan(&name, &bytes, &unused); err != nil {
				return err
			}
			if all += bytes; 100*bytes > p.stored {
				b.Logf("%6.2f %s (%.2f unused)", per(bytes), name, per(unused))
			}
		}
		return rows.Err()
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(per(all), "disk-B/reading")
	b.ReportMetric(per(written), "written-B/reading")
}

// bytesWritten is what this process has handed to the kernel, the write-ahead log included.
func bytesWritten(tb testing.TB) (n int64) {
	text, err := os.ReadFile("/proc/self/io")
	need.That(tb, err == nil, "the kernel does not tell what a process writes: %v", err)
	_, after, _ := bytes.Cut(text, []byte("wchar: "))
	if _, err := fmt.Sscan(string(after), &n); err != nil {
		tb.Fatal(err)
	}
	return n
}

// BenchmarkSizeOnDisk says what a stored reading takes; -v shows it by the table.
func BenchmarkSizeOnDisk(b *testing.B) {
	for _, c := range []struct {
		name                             string
		devices, rounds, altEvery, heads int
		noise                            bool
	}{
		{"two decimals and a third with altId", 100, 10000, 3, 360, false},
		{"two decimals", 100, 10000, 0, 360, false},
		{"two decimals, and a third with altId, all in one head", 100, 10000, 3, 10000, false},
		{"random float64", 100, 10000, 0, 360, true},
		{"random float64, all in one head", 100, 10000, 0, 10000, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				p := newPlant(b, c.devices, c.altEvery, c.noise)
				before := bytesWritten(b)
				for n := range c.rounds {
					p.round(n)
					if (n+1)%c.heads == 0 {
						p.cut()
					}
				}
				p.cut()
				p.weigh(b, bytesWritten(b)-before)
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N)/float64(c.devices*c.rounds), "ns/reading")
		})
	}
}

// BenchmarkManySeries is a tenth of 100,000 series with a reading each ten seconds, for an hour: a head is cut when the log
// behind it, about 140 bytes to a reading, has grown to a tenth of its 64 MiB.
func BenchmarkManySeries(b *testing.B) {
	const devices, rounds, perHead = 10_000, 345, 64 << 20 / 140 / 10
	for b.Loop() {
		p := newPlant(b, devices, 0, false)
		before, last := bytesWritten(b), int64(0)
		for n := range rounds {
			p.round(n)
			if p.stored-last >= perHead {
				last = p.stored
				p.cut()
				p.merge(b)
			}
		}
		p.cut()
		p.merge(b)
		p.weigh(b, bytesWritten(b)-before)
	}
}

func (p *plant) merge(b *testing.B) {
	b.Helper()
	before, began := bytesWritten(b), time.Now()
	merged, err := p.series.Merge(context.Background(), p.now.Micros(), func() error { return nil })
	if err != nil {
		b.Fatal(err)
	}
	if merged > 0 && testing.Verbose() {
		b.Logf("merged %d of %d in %v, %.1f B/reading written", merged, p.stored, time.Since(began).Round(time.Millisecond), float64(bytesWritten(b)-before)/float64(merged))
	}
}
