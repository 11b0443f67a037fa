package bolt

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"weir/spool"
)

// metrics are the log's figures for Prometheus. With a nil registerer they are counted and shown to nobody.
type metrics struct {
	registerer prometheus.Registerer
	registered []prometheus.Collector

	records      prometheus.Counter
	written      prometheus.Counter
	batchRecords prometheus.Histogram
	syncSeconds  prometheus.Histogram
	failed       prometheus.Counter
	blocked      prometheus.Counter
	refused      struct{ full, tooLarge, unavailable, canceled prometheus.Counter }
	reads        struct{ memory, disk prometheus.Counter }
}

func newMetrics(reg prometheus.Registerer, l *Log) (*metrics, error) {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_spool_refused_total",
		Help: "Appends that the log did not take, by reason."}, []string{"reason"})
	reads := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_spool_batches_read_total",
		Help: "Batches handed to readers, by where they were taken from."}, []string{"from"})
	m := &metrics{
		registerer: reg,
		records: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_spool_records_total",
			Help: "Records made durable."}),
		written: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_spool_written_bytes_total",
			Help: "Bytes of batches made durable, without the pages around them."}),
		batchRecords: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "weir_spool_batch_records",
			Help: "Records per batch.", Buckets: prometheus.ExponentialBuckets(1, 4, 8)}),
		syncSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "weir_spool_sync_seconds",
			Help: "Time to make a batch durable (two flushes).", Buckets: prometheus.ExponentialBuckets(0.0002, 2, 14)}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_spool_failed_batches_total",
			Help: "Batches that could not be made durable; their senders were told."}),
		blocked: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_spool_blocked_appends_total",
			Help: "Appends that waited because too much was not yet synced."}),
	}
	m.refused.full = refused.WithLabelValues("full")
	m.refused.tooLarge = refused.WithLabelValues("too_large")
	m.refused.unavailable = refused.WithLabelValues("unavailable")
	m.refused.canceled = refused.WithLabelValues("canceled")
	m.reads.memory = reads.WithLabelValues("memory")
	m.reads.disk = reads.WithLabelValues("disk")
	return m, m.register(append(gauges(l), m.records, m.written, m.batchRecords, m.syncSeconds, m.failed, m.blocked, refused, reads))
}

func gauges(l *Log) []prometheus.Collector {
	gauge := func(name, help string, value func(spool.Stats) int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_spool_" + name, Help: help},
			func() float64 { return float64(value(l.Stats())) })
	}
	return []prometheus.Collector{
		gauge("bytes", "What the batches that are not trimmed take.", func(s spool.Stats) int64 { return s.Bytes }),
		gauge("max_bytes", "Budget of the log.", func(s spool.Stats) int64 { return s.MaxBytes }),
		gauge("max_records", "Most records that the log may keep.", func(s spool.Stats) int64 { return s.MaxRecords }),
		gauge("max_unsynced_bytes", "Most bytes that may wait for their sync; then the doors stop reading.", func(spool.Stats) int64 { return l.opt.UnsyncedBytes }),
		gauge("disk_bytes", "What the log's files take on disk.", func(s spool.Stats) int64 { return s.DiskBytes }),
		gauge("unsynced_bytes", "What waits for its sync.", func(s spool.Stats) int64 { return s.UnsyncedBytes }),
		gauge("kept_records", "Offsets from the oldest kept to the newest.", func(s spool.Stats) int64 { return int64(s.Last + 1 - s.First) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_spool_epoch",
			Help: "Number of this log's life: it grows when a lost log is replaced."}, func() float64 { return float64(l.Epoch()) }),
		gauge("unavailable", "1 while appends are refused because the disk does not take them.", func(s spool.Stats) int64 {
			if s.Err != nil {
				return 1
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_spool_tail_bytes",
			Help: "Memory held for readers that keep up, by estimate."}, l.tailBytes),
	}
}

func (l *Log) tailBytes() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return float64(l.tail.bytes)
}

func (m *metrics) register(all []prometheus.Collector) error {
	if m.registerer == nil {
		return nil
	}
	for _, c := range all {
		if err := m.registerer.Register(c); err != nil {
			m.unregister()
			return fmt.Errorf("spool: metrics: %w", err)
		}
		m.registered = append(m.registered, c)
	}
	return nil
}

// unregister makes room for the log's next opening in the same process.
func (m *metrics) unregister() {
	for _, c := range m.registered {
		m.registerer.Unregister(c)
	}
	m.registered = nil
}

func (m *metrics) stored(records int) {
	m.records.Add(float64(records))
	m.batchRecords.Observe(float64(records))
}
