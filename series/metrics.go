package series

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	refused  prometheus.Counter
	retries  prometheus.Counter
	scans    prometheus.Counter
	readings prometheus.Counter
	chunks   prometheus.Counter
	blocks   prometheus.Counter
	bytes    prometheus.Counter
	writes   prometheus.Histogram

	merged, mergedBlocks, mergedBytes prometheus.Counter
}

// newMetrics returns the package's metrics and registers them with reg unless it is nil. Each scrape calls stats.
func newMetrics(reg prometheus.Registerer, stats func() Stats) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_series_" + name, Help: help})
	}
	gauge := func(name, help string, f func(Stats) int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_series_" + name, Help: help},
			func() float64 { return float64(f(stats())) })
	}
	m := &metrics{
		refused:      counter("refused_messages_total", "Messages refused because the device or tenant has its maximum number of series."),
		retries:      counter("read_retries_total", "Reads restarted because a checkpoint completed while they started."),
		scans:        counter("long_queries_total", "Queries that continued with the readers of scans because they are long."),
		readings:     counter("readings_written_total", "Readings written to chunks and blocks."),
		chunks:       counter("chunks_written_total", "Chunks written."),
		blocks:       counter("blocks_written_total", "Blocks written."),
		bytes:        counter("written_bytes_total", "Bytes of packed readings written."),
		merged:       counter("merged_readings_total", "Readings rewritten by merging blocks."),
		mergedBlocks: counter("merged_blocks_total", "Blocks merged into chunks and fewer blocks."),
		mergedBytes:  counter("merged_bytes_total", "Bytes of packed readings written by merging blocks."),
		writes: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "weir_series_checkpoint_seconds", Help: "Duration of writing the readings of a checkpoint.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 12)}),
	}
	if reg != nil {
		reg.MustRegister(m.refused, m.retries, m.scans, m.readings, m.chunks, m.blocks, m.bytes, m.writes, m.merged, m.mergedBlocks, m.mergedBytes,
			gauge("head_bytes", "Memory of the readings not yet written to the store.", func(s Stats) int64 { return s.Bytes }),
			gauge("head_readings", "Readings not yet written to the store.", func(s Stats) int64 { return s.Readings }),
			gauge("head_series", "Series with readings not yet written to the store.", func(s Stats) int64 { return s.Series }),
			gauge("merge_backlog_blocks", "Blocks that can be merged, as of the last check.", func(s Stats) int64 { return s.Backlog.Blocks }),
			gauge("merge_backlog_readings", "Readings in blocks that can be merged, as of the last check.", func(s Stats) int64 { return s.Backlog.Readings }))
	}
	return m
}

func (m *metrics) countMerged(r *merging) {
	m.merged.Add(float64(r.readings))
	m.mergedBlocks.Add(float64(len(r.gone)))
	for _, c := range r.chunks {
		m.mergedBytes.Add(float64(len(c.Data)))
	}
	for _, b := range r.blocks {
		m.mergedBytes.Add(float64(len(b.Data)))
	}
}
