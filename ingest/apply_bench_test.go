package ingest

import (
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
	r, err := w.log.Reader(w.applier.Applied() + 1)
	w.must(err)
	defer r.Close()
	var batches []*spool.Batch
	for {
		batch, err := r.TryNext()
		w.must(err)
		if batch == nil {
			break
		}
		d := new(decodedBatch)
		d.decode(batch)
		batches = append(batches, &d.Batch)
	}
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
