package series

import (
	"context"
	"testing"

	"weir/internal/test/fixture"
)

// BenchmarkQueriesOfTenMillion is what the API asks of a store of ten million readings: 1,000 devices, a reading each ten
// seconds, a head each hour. It takes a minute to fill.
func BenchmarkQueriesOfTenMillion(b *testing.B) {
	const devices = 1000
	st := fixture.Store(b)
	s := open(b, st, Config{})
	f := newFleet(devices, 10_000_000)
	for n := range 10_000 {
		f.round(b, s)
		if n%360 == 359 {
			if err := writeHead(s, f.offset); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := writeHead(s, f.offset); err != nil {
		b.Fatal(err)
	}
	b.Logf("%.2f bytes/reading", float64(packedBytes(b, st))/float64(f.offset))
	ctx, device := context.Background(), int64(7)
	dayEnd, dayStart := f.now, f.now-microsPerDay
	for _, q := range []struct {
		name string
		run  func() (int, error)
	}{
		{"buckets of a device and day at 5 min", func() (int, error) {
			r, err := s.Buckets(ctx, BucketQuery{TenantID: 1, Device: &device, Metric: "temp", Start: &dayStart, End: &dayEnd, IntervalSeconds: 300})
			return len(r), err
		}},
		{"buckets of all at 1 h", func() (int, error) {
			r, err := s.Buckets(ctx, BucketQuery{TenantID: 1, IntervalSeconds: 3600})
			return len(r), err
		}},
		{"newest page of a device", func() (int, error) {
			r, err := s.Measurements(ctx, Query{TenantID: 1, Device: &device})
			return len(r.Events), err
		}},
		{"newest page of the tenant", func() (int, error) {
			r, err := s.Measurements(ctx, Query{TenantID: 1})
			return len(r.Events), err
		}},
		{"page 10,000 of the tenant", func() (int, error) {
			r, err := s.Measurements(ctx, Query{TenantID: 1, Page: Page{Number: 10_000}})
			return len(r.Events), err
		}},
		{"last page of the tenant", func() (int, error) {
			r, err := s.Measurements(ctx, Query{TenantID: 1, Page: Page{Number: 99_999}})
			return len(r.Events), err
		}},
	} {
		b.Run(q.name, func(b *testing.B) {
			for b.Loop() {
				if n, err := q.run(); n == 0 || err != nil {
					b.Fatal(n, err)
				}
			}
		})
	}
}
