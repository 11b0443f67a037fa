package ingest

import (
	"fmt"
	"testing"

	"weir/model"
	"weir/spool"
)

// BenchmarkApply is what the applier does for a message of one reading that it is handed decoded, with ten rules on each
// device. An operation is a message.
func BenchmarkApply(b *testing.B) {
	w := newWorld(b, func(w *world) { w.cfg.ReplayBytes, w.logBytes = 64<<20, 8<<30 })
	rs := []model.RuleView{thresholdRule("hot", "temp", "gt", 25)}
	for range 9 {
		rs = append(rs, thresholdRule("never"+string(rune('a'+len(rs))), "temp", "gt", 1e6))
	}
	w.furnish(50, rs...)
	w.apply()
	w.pile(20_000)
	benchmarkApply(b, w)
}

// BenchmarkApplyOfManyDevices is BenchmarkApply with one rule on each of so many devices, whose state is not in the processor's caches.
func BenchmarkApplyOfManyDevices(b *testing.B) {
	const devices = 200_000
	w := newWorld(b, func(w *world) { w.cfg.ReplayBytes, w.logBytes = 1<<30, 8<<30 })
	w.furnish(1, thresholdRule("hot", "temp", "gt", 25))
	for from := 2; from <= devices; from += 10_000 {
		var vs []model.ViewChange
		for i := from; i < min(from+10_000, devices+1); i++ {
			vs = append(vs, row(model.ViewDevice, fmt.Sprintf("acme/d%d", i), model.DeviceView{V: 1, ID: int64(i), Type: 10}))
		}
		w.change(vs...)
	}
	w.apply()
	w.pileOf(devices, devices)
	benchmarkApply(b, w)
}

// benchmarkApply applies what waits in the log of a world, again and again.
func benchmarkApply(b *testing.B, w *world) {
	b.Helper()
	batches := w.waiting()
	b.ReportAllocs()
	b.ResetTimer()
	next := w.applier.Applied() + 1
	for n := 0; n < b.N; {
		for _, batch := range batches {
			again := *batch
			again.First, again.Meta = next, nil
			w.must(w.applier.apply(b.Context(), &again))
			next = again.Last() + 1
			n += len(again.Records)
		}
	}
}

// waiting are the batches that wait in the log, decoded.
func (w *world) waiting() (batches []*spool.Batch) {
	w.t.Helper()
	w.batches(w.log, w.applier.Applied()+1, func(b *spool.Batch) {
		d := new(decodedBatch)
		d.decode(b)
		batches = append(batches, &d.Batch)
	})
	return batches
}

// TestManyDevicesAreFetchedAheadAndJudgedOnce: from some devices on, the state of those that come next is fetched together.
func TestManyDevicesAreFetchedAheadAndJudgedOnce(t *testing.T) {
	t.Parallel()
	const devices = 1<<14 + 100
	w := newWorld(t)
	w.furnish(devices, thresholdRule("hot", "temp", "gt", 25))
	w.apply()
	for round, want := range []int{2, 0} { // those of the first and the 10,001st record
		w.edges = nil
		w.pileOf(devices, devices)
		for _, batch := range w.waiting() {
			w.must(w.applier.apply(t.Context(), batch))
		}
		raised := 0
		for _, e := range w.edges {
			if e.Signal == model.Raised {
				raised++
			}
		}
		if raised != want {
			t.Errorf("round %d: %d edges, %d raised, want %d", round, len(w.edges), raised, want)
		}
	}
	if e := w.applier.deps.Rules; !e.Expects() || e.Stats().Devices != devices {
		t.Errorf("%d devices", e.Stats().Devices)
	}
}
