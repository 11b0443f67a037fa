package ingest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/registry"
	"weir/store"
)

// BenchmarkAttributeWrites writes numbers of devices with eight clients, each of which waits until its change holds.
func BenchmarkAttributeWrites(b *testing.B) {
	w := newWorld(b)
	by := fixture.Member("ada", "acme", 1, model.DeviceRead, model.DeviceWrite)
	const clients, devices = 8, 1000
	reg := func(writer store.Writer) *registry.Registry {
		return registry.New(registry.Config{}, registry.Deps{Store: w.db, Writer: writer, Validator: takesAll{}})
	}
	furnish := func(r *registry.Registry) {
		_, err := r.Types.Create(b.Context(), by, store.Patch{"token": "t"})
		w.must(err)
		_, err = r.Devices.CreateBulk(b.Context(), by, registry.Bulk{Type: "t", Count: devices, TokenTemplate: "x{n}"})
		w.must(err)
	}
	furnish(reg(store.Direct{Store: w.db}))
	w.must(w.control.Drain(b.Context()))
	ctx, stop := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.applier.Run(ctx) })
	running.Go(func() { _ = w.control.Run(ctx) })
	<-w.applier.Replayed()
	r := reg(w.control)
	var next atomic.Int64
	var mu sync.Mutex
	var took []time.Duration
	b.ResetTimer()
	var writers sync.WaitGroup
	for range clients {
		writers.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				began := time.Now()
				_, err := r.Attributes.Set(ctx, by, registry.AttributeSet{AttributeRef: registry.AttributeRef{EntityType: "device", Entity: fmt.Sprint("x", 1+n%devices), Scope: "SHARED", Key: "limit"},
					Type: "LONG", Value: new(fmt.Sprint(n))})
				w.must(err)
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	writers.Wait()
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	stop()
	running.Wait()
}
