package bolt

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"weir/spool"
)

// metrics are the log's Prometheus metrics. With a nil registerer they are counted but not exported.
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
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_spool_refused_appends_total",
		Help: "Appends refused by the log, by reason."}, []string{"reason"})
	reads := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_spool_batches_read_total",
		Help: "Batches returned to readers, by source."}, []string{"from"})
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
			Help: "Batches that could not be made durable; their appends returned the error."}),
		blocked: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_spool_blocked_appends_total",
			Help: "Appends that waited because the maximum of unsynced bytes was reached."}),
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
		gauge("bytes", "Size of the batches in the log.", func(s spool.Stats) int64 { return s.Bytes }),
		gauge("max_bytes", "Maximum size of the log.", func(s spool.Stats) int64 { return s.MaxBytes }),
		gauge("max_records", "Maximum number of records in the log.", func(s spool.Stats) int64 { return s.MaxRecords }),
		gauge("max_unsynced_bytes", "Maximum of bytes not yet synced; at the maximum the transports stop reading.", func(spool.Stats) int64 { return l.opt.UnsyncedBytes }),
		gauge("disk_bytes", "Size of the log's files on disk.", func(s spool.Stats) int64 { return s.DiskBytes }),
		gauge("unsynced_bytes", "Bytes appended and not yet synced.", func(s spool.Stats) int64 { return s.UnsyncedBytes }),
		gauge("kept_records", "Records in the log: the span from its first to its last offset.", func(s spool.Stats) int64 { return int64(s.Last + 1 - s.First) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_spool_epoch",
			Help: "Epoch of the log; it is incremented when a lost log is replaced."}, func() float64 { return float64(l.Epoch()) }),
		gauge("unavailable", "1 while appends are refused because the disk cannot be written.", func(s spool.Stats) int64 {
			if s.Err != nil {
				return 1
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_spool_tail_bytes",
			Help: "Estimated memory of the batches kept for readers at the end of the log."}, l.tailBytes),
	}
}

func (l *Log) tailBytes() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return float64(l.tail.Bytes())
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

// unregister removes the collectors, so that the same process can open the log again.
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
