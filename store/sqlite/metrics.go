package sqlite

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/store"
)

// metrics of the store.
type metrics struct {
	reg        prometheus.Registerer
	registered []prometheus.Collector

	commits     prometheus.Counter
	failed      prometheus.Counter
	batchSize   prometheus.Histogram
	batchTime   prometheus.Histogram
	checkpoints prometheus.Counter
	starved     prometheus.Counter
	ckptFailed  prometheus.Counter
	ckptTime    prometheus.Histogram
	pauses      prometheus.Counter
	gaveUp      *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_store_" + name, Help: help})
	}
	seconds := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "weir_store_" + name, Help: help,
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 12)})
	}
	return &metrics{
		reg:     reg,
		commits: counter("commits_total", "Committed batches of writes."),
		failed:  counter("failed_writes_total", "Writes that returned an error, refusals included."),
		batchSize: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "weir_store_batch_writes",
			Help: "Writes per batch.", Buckets: prometheus.ExponentialBuckets(1, 2, 9)}),
		batchTime:   seconds("batch_seconds", "Duration of a batch, commit included."),
		checkpoints: counter("checkpoints_total", "Checkpoints of the write-ahead log."),
		starved:     counter("checkpoints_incomplete_total", "Checkpoints of the write-ahead log that a reader or the writer prevented from completing."),
		ckptFailed:  counter("checkpoints_failed_total", "Checkpoints of the write-ahead log that failed."),
		ckptTime:    seconds("checkpoint_seconds", "Duration of a checkpoint of the write-ahead log."),
		gaveUp: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_store_reads_refused_total",
			Help: "Reads that ended while they waited for a reader connection, by class of readers (queries, scans, bulk, applier, devices)."}, []string{"class"}),
		pauses: counter("checkpoint_pauses_total", "Pauses of the writer because the write-ahead log exceeded its maximum size."),
	}
}

// register registers the metrics, with those that are read from db at each scrape.
func (m *metrics) register(db *DB) error {
	if m.reg == nil {
		return nil
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_store_" + name, Help: help}, f)
	}
	var errs []error
	collectors := []prometheus.Collector{
		m.commits, m.failed, m.batchSize, m.batchTime, m.checkpoints, m.starved, m.ckptFailed, m.ckptTime, m.pauses, m.gaveUp,
		gauge("queued_writes", "Writes queued for the writer.", func() float64 { return float64(len(db.w.queue)) }),
		gauge("tenant_waiting_reads", "Reads that wait because their tenant uses its share of the readers for queries.", func() float64 { return float64(db.shares.waiting.Load()) }),
		gauge("readers_in_use", "Reader connections in use.", func() float64 { return float64(db.readersInUse()) }),
		gauge("bytes", "Size of the database and its write-ahead log.", func() float64 { return float64(db.Stats().Bytes) }),
		gauge("free_bytes", "Size of the free pages inside the database.", func() float64 { return float64(db.freeBytes.Load()) }),
		gauge("damaged", "1 when the database is damaged: a page differs from what was written, or a sync failed.", func() float64 {
			if db.doubts() != nil {
				return 1
			}
			return 0
		}),
		gauge("wal_bytes", "Size of the write-ahead log.", func() float64 { return float64(fileBytes(db.path + "-wal")) }),
	}
	for class, q := range db.readers {
		m.gaveUp.WithLabelValues(class.String())
		collectors = append(collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_store_waiting_reads", Help: "Reads that wait for a reader connection, by class of readers (queries, scans, bulk, applier, devices).",
			ConstLabels: prometheus.Labels{"class": class.String()}}, func() float64 { return float64(q.waiting.Load()) }))
	}
	for _, c := range collectors {
		if err := m.reg.Register(c); err != nil {
			errs = append(errs, err)
			continue
		}
		m.registered = append(m.registered, c)
	}
	return errors.Join(errs...)
}

func (m *metrics) unregister() {
	for _, c := range m.registered {
		m.reg.Unregister(c)
	}
	m.registered = nil
}

// busy counts a read that no reader became free for.
func (m *metrics) busy(class store.Readers) { m.gaveUp.WithLabelValues(class.String()).Inc() }

func (m *metrics) batch(n int, took time.Duration) {
	m.commits.Inc()
	m.batchSize.Observe(float64(n))
	m.batchTime.Observe(took.Seconds())
}

func (m *metrics) checkpoint(took time.Duration, busy bool, err error) {
	if err != nil {
		m.ckptFailed.Inc()
		return
	}
	m.checkpoints.Inc()
	m.ckptTime.Observe(took.Seconds())
	if busy {
		m.starved.Inc()
	}
}
