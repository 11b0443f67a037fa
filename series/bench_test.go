package series

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

// fleet is a number of sensors of two decimals that report every period.
type fleet struct {
	devices int
	period  model.Micros
	now     model.Micros
	offset  model.Offset
	values  []int64
	tokens  []string
	r       *rand.Rand
}

func newFleet(devices int, period model.Micros) *fleet {
	f := &fleet{devices: devices, period: period, now: day0, values: make([]int64, devices), r: rand.New(rand.NewPCG(1, 2))}
	for i := range f.values {
		f.values[i] = 2000 + f.r.Int64N(1000)
		f.tokens = append(f.tokens, fmt.Sprintf("device-%d", i+1))
	}
	return f
}

// round puts one reading of every device.
func (f *fleet) round(tb testing.TB, s *Series) {
	ctx := context.Background()
	points := make([]Point, 1)
	for i := range f.devices {
		f.offset++
		f.values[i] += f.r.Int64N(41) - 20
		at := f.now + model.Micros(i)*f.period/model.Micros(f.devices) + 1000*model.Micros(f.r.Int64N(101)-50)
		points[0] = Point{TenantID: 1, Device: int64(i + 1), DeviceToken: f.tokens[i], Metric: "temp", Source: "mqtt1", Occurred: max(at, day0),
			Received: at + 2000 + model.Micros(f.r.Int64N(10_000)), Offset: f.offset, Value: float64(f.values[i]) / 100, Unit: "°C", DataType: "double"}
		if err := s.Put(ctx, points); err != nil {
			tb.Fatal(err)
		}
	}
	f.now += f.period
}

// deviceDay fills a store with a day of 200 devices, each hour a head.
func deviceDay(b *testing.B) (store.Store, *Series, *fleet) {
	b.Helper()
	st := fixture.Store(b)
	s := open(b, st, Config{})
	f := newFleet(200, 10_000_000)
	for range 24 {
		for range 360 {
			f.round(b, s)
		}
		if err := writeHead(s, f.offset); err != nil {
			b.Fatal(err)
		}
	}
	return st, s, f
}

func BenchmarkPut(b *testing.B) {
	s := open(b, fixture.Store(b), Config{})
	f := newFleet(1000, 10_000_000)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		f.round(b, s)
		n += f.devices
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/reading")
	st := s.Stats()
	b.ReportMetric(float64(st.Bytes)/float64(st.Readings), "headbytes/reading")
}

func BenchmarkHeadWrite(b *testing.B) {
	for _, per := range []int{5, 360} {
		b.Run(fmt.Sprintf("readings=%d", per), func(b *testing.B) {
			st := fixture.Store(b)
			s := open(b, st, Config{})
			f := newFleet(1000, 10_000_000)
			n := 0
			for b.Loop() {
				b.StopTimer()
				for range per {
					f.round(b, s)
				}
				b.StartTimer()
				if err := writeHead(s, f.offset); err != nil {
					b.Fatal(err)
				}
				n += per * f.devices
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/reading")
			b.ReportMetric(float64(packedBytes(b, st))/float64(n), "bytes/reading")
		})
	}
}

// packedBytes is what the tables of readings and their indexes take in the file.
func packedBytes(b *testing.B, st store.Store) (bytes int64) {
	b.Helper()
	err := st.Read(context.Background(), func(tx store.Tx) error {
		return tx.QueryRow(`SELECT SUM(pgsize) FROM dbstat WHERE name LIKE 'series_%'`).Scan(&bytes)
	})
	if err != nil {
		b.Logf("dbstat: %v", err)
	}
	return bytes
}

func BenchmarkReads(b *testing.B) {
	st, s, f := deviceDay(b)
	b.Logf("%.2f bytes/reading in tables and indexes", float64(packedBytes(b, st))/float64(f.offset))
	ctx := context.Background()
	device := int64(7)
	from, to := day0, day0+microsPerDay-1
	run := func(name string, fn func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := fn(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("device-day in 5 min buckets", func() error {
		_, err := s.Buckets(ctx, BucketQuery{TenantID: 1, Device: &device, Metric: "temp", Start: &from, End: &to, IntervalSeconds: 300})
		return err
	})
	run("tenant-day in 1 h buckets", func() error {
		_, err := s.Buckets(ctx, BucketQuery{TenantID: 1, Start: &from, End: &to, IntervalSeconds: 3600})
		return err
	})
	run("tenant in 1 d buckets", func() error {
		_, err := s.Buckets(ctx, BucketQuery{TenantID: 1, IntervalSeconds: 86400})
		return err
	})
	run("newest page of a device", func() error {
		_, err := s.Measurements(ctx, Query{TenantID: 1, Device: &device})
		return err
	})
	run("newest page of the tenant", func() error {
		_, err := s.Measurements(ctx, Query{TenantID: 1})
		return err
	})
	run("page 1000 of the tenant", func() error {
		_, err := s.Measurements(ctx, Query{TenantID: 1, Page: Page{Number: 1000, Size: 1000}})
		return err
	})
	run("latest of a device", func() error {
		_, err := s.LatestMeasurements(ctx, device)
		return err
	})
}
