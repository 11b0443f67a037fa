package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/faults"
)

// A separate connection checkpoints the write-ahead log while writes continue. When it does not keep up, because the
// writes are faster than the disk or there is always a reader of an older state, the writer pauses: until
// the disk has caught up, and restartWait longer for the readers.
const (
	walKeepBytes   = 2 << 20   // the file is truncated to this size when the log restarts
	walSoftBytes   = 4 << 20   // from this size on the checkpointer works
	walSlowBytes   = 512 << 10 // … on a disk that is slow to take that much: a sync of the log would wait behind it
	slowCheckpoint = 100 * time.Millisecond
	fastCheckpoint = slowCheckpoint / 8
	walStepBytes   = 1 << 20  // and again after each growth by this size, at most half of that
	walHardBytes   = 32 << 20 // from this size on the writer waits for a restart of the log
	restartWait    = 50 * time.Millisecond
	checkpointWait = 100 * time.Millisecond // of the checkpointer for a lock
)

// checkpointer writes the log back into the database file.
type checkpointer struct {
	db      *DB
	conn    *sql.Conn
	wake    chan struct{}
	running sync.WaitGroup
	one     sync.Mutex // one checkpoint at a time: SQLite would not wait for the other

	begin atomic.Int64 // size of the log from which on the checkpointer works

	// Only for the writer's goroutine.
	soft int64 // size of the log at which to wake the checkpointer next
	hard int64 // size at which the writer pauses next
}

func newCheckpointer(db *DB, conn *sql.Conn) *checkpointer {
	k := &checkpointer{db: db, conn: conn, wake: make(chan struct{}, 1), soft: walSoftBytes, hard: walHardBytes}
	k.begin.Store(walSoftBytes)
	k.running.Go(k.loop)
	return k
}

func (k *checkpointer) wait() { k.running.Wait() }

func (k *checkpointer) loop() {
	for {
		select {
		case <-k.wake:
			k.run(k.conn, "PASSIVE", checkpointWait)
		case <-k.db.closing:
			return
		}
	}
}

// grown is called by the writer between two batches.
func (k *checkpointer) grown(w *writer) {
	size := fileBytes(k.db.path + "-wal")
	if begin := k.begin.Load(); size < begin {
		k.soft, k.hard = begin, walHardBytes
		return
	}
	if size >= k.soft {
		k.soft = size + min(walStepBytes, k.begin.Load()/2)
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
	if size >= k.hard {
		k.hard = size + walHardBytes/2
		k.db.metrics.pauses.Inc()
		k.run(w.conn, "RESTART", restartWait)
	}
}

func (k *checkpointer) run(c *sql.Conn, mode string, wait time.Duration) {
	k.one.Lock()
	defer k.one.Unlock()
	faults.Point("store.checkpoint")
	took, busy, err := checkpoint(c, mode, wait)
	faults.Point("store.checkpointed")
	k.db.metrics.checkpoint(took, busy, err)
	switch begin := k.begin.Load(); {
	case took > slowCheckpoint:
		k.begin.Store(max(begin/2, walSlowBytes))
	case took < fastCheckpoint:
		k.begin.Store(min(begin*2, walSoftBytes))
	}
	if err != nil { // nothing is lost, the log only stays longer; the next checkpoint tries again
		k.db.log.Warn("store checkpoint failed", "mode", mode, "error", err)
	}
}

// checkpoint runs one checkpoint, waiting at most wait for locks and readers. busy means that it could not complete.
func checkpoint(c *sql.Conn, mode string, wait time.Duration) (took time.Duration, busy bool, err error) {
	ctx := context.Background()
	started := time.Now()
	if err := setBusyTimeout(c, wait); err != nil {
		return 0, false, err
	}
	var flag, frames, done int64
	err = c.QueryRowContext(ctx, "PRAGMA wal_checkpoint("+mode+")").Scan(&flag, &frames, &done)
	if e := setBusyTimeout(c, busyTimeout); err == nil {
		err = e
	}
	return time.Since(started), flag != 0 || done < frames, err
}

func setBusyTimeout(c *sql.Conn, d time.Duration) error {
	_, err := pragma(c, fmt.Sprintf("busy_timeout=%d", d.Milliseconds()))
	return err
}

// fileBytes is the size of a file, 0 when there is none.
func fileBytes(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
