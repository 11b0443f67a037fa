package operate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/backup"
	"weir/health"
)

// Outcomes of a backup.
const (
	backupMade   = "made"
	backupFailed = "failed"
)

// backups is what an instance knows of its copies.
type backups struct {
	running sync.Mutex
	last    atomic.Pointer[LastBackup] // nil: none
	metrics *prometheus.CounterVec
	busy    prometheus.Gauge
}

func (b *backups) init(reg prometheus.Registerer) {
	b.metrics = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_backups_total", Help: "Backups since the start by outcome."}, []string{"outcome"})
	b.metrics.WithLabelValues(backupMade)
	b.metrics.WithLabelValues(backupFailed)
	b.busy = prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_backup_running", Help: "1 while a backup is being made."})
	reg.MustRegister(b.metrics, b.busy,
		b.gauge("weir_backup_last_timestamp_seconds", "Time of the last backup, 0 for never.", func(l *LastBackup) float64 { return float64(l.At.Unix()) }),
		b.gauge("weir_backup_last_size_bytes", "Size of the last backup file.", func(l *LastBackup) float64 { return float64(l.Bytes) }),
		b.gauge("weir_backup_last_duration_seconds", "Duration of the last backup.", func(l *LastBackup) float64 { return l.Seconds }))
}

func (b *backups) gauge(name, help string, of func(*LastBackup) float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		if l := b.last.Load(); l != nil {
			return of(l)
		}
		return 0
	})
}

// backupAge is from when on a backup is worth a word.
const backupAge = 31 * 24 * time.Hour

func backupCheck(dir string, now func() time.Time) health.Check {
	return health.Check{ID: "backup", Look: func(context.Context) health.Finding { return backupFinding(dir, now()) }}
}

func backupFinding(dir string, now time.Time) health.Finding {
	const hint = "weir backup create FILE, and keep the file on another machine"
	if err := backup.Unfinished(dir); err != nil {
		return health.Fail("restore it again: weir backup restore FILE --data "+dir, "%v", err)
	}
	l := readLastBackup(dir)
	if l == nil {
		return health.Warn(hint, "there is none yet")
	}
	text := "the last one was made at " + l.At.UTC().Format(time.RFC3339) + ", " + health.Bytes(l.Bytes)
	if now.Sub(l.At) > backupAge {
		return health.Warn(hint, "%s: more than a month ago", text)
	}
	return health.Good("%s", text)
}
