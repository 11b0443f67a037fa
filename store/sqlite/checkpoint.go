package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/faults"
	"weir/store"
)

// A separate connection checkpoints the write-ahead log while writes continue. When it does not keep up, because the
// writes are faster than the disk or there is always a reader of an older state, the writer pauses: until
// the disk has caught up, and restartWait longer for the readers.
//
// What is copied back in one step is synced in one step, and on a slow disk the log of messages, whose syncs the devices wait
// for, waits behind it. So the steps of such a disk are small, and a step that does not reach the end of the log is synced, too:
// SQLite itself syncs the database only at the end, by then perhaps tens of megabytes.
const (
	walKeepBytes   = 2 << 20   // the file is truncated to this size when the log restarts
	walSoftBytes   = 4 << 20   // so much to copy back wakes the checkpointer
	walSlowBytes   = 512 << 10 // … on a disk that is slow to take that much
	slowCheckpoint = 100 * time.Millisecond
	fastCheckpoint = slowCheckpoint / 8
	walStepBytes   = 1 << 20  // and again after each growth by this size, at most half of that
	walHardBytes   = 32 << 20 // a log of this length lets the writer wait for its restart
	restartWait    = 50 * time.Millisecond
	checkpointWait = 100 * time.Millisecond // of the checkpointer for a lock
)

// checkpointer writes the log back into the database file.
type checkpointer struct {
	db      *DB
	conn    *sql.Conn
	file    *os.File // the database, to sync it; closed after all connections, since closing a file gives up its locks
	frame   int64    // bytes of a page in the log
	wake    chan struct{}
	running sync.WaitGroup
	one     sync.Mutex // one checkpoint at a time: SQLite would not wait for the other

	begin  atomic.Int64          // so much to copy back wakes the checkpointer
	failed atomic.Pointer[error] // of a sync that was not SQLite's own: what it takes for copied back may be lost

	// Only for the writer's goroutine.
	soft int64 // bytes to copy back at which to wake the checkpointer next
	hard int64 // length of the log at which the writer pauses next
}

// frameHeader is what the log adds to each page (https://www.sqlite.org/fileformat2.html#the_write_ahead_log).
const frameHeader = 24

func newCheckpointer(db *DB, conn *sql.Conn) (*checkpointer, error) {
	page, err := pragma(conn, "page_size")
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(db.path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	k := &checkpointer{db: db, conn: conn, file: file, frame: page + frameHeader, wake: make(chan struct{}, 1), soft: walSoftBytes, hard: walHardBytes}
	k.begin.Store(walSoftBytes)
	k.running.Go(k.loop)
	return k, nil
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
	length, copied, err := walFrames(w.conn, "NOOP")
	if err != nil {
		k.db.log.Warn("the length of the write-ahead log is unknown", "error", err)
		return
	}
	length, left := length*k.frame, (length-copied)*k.frame
	switch begin := k.begin.Load(); {
	case left < begin:
		k.soft = begin
	case left >= k.soft:
		k.soft = left + min(walStepBytes, begin/2)
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
	switch {
	case length < walHardBytes:
		k.hard = walHardBytes
	case length >= k.hard:
		k.hard = length + walHardBytes/2
		k.db.metrics.pauses.Inc()
		k.run(w.conn, "RESTART", restartWait)
	}
}

func (k *checkpointer) run(c *sql.Conn, mode string, wait time.Duration) {
	k.one.Lock()
	defer k.one.Unlock()
	faults.Point("store.checkpoint")
	started := time.Now()
	busy, err := checkpoint(c, mode, wait)
	if busy && err == nil {
		if err = k.file.Sync(); err != nil {
			err = fmt.Errorf("%w: %w", store.ErrUnsynced, err)
			k.failed.Store(&err)
			k.db.suspect(err)
		}
	}
	took := time.Since(started)
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

// restart copies back all of the log, so that the next write begins it again. A reader prevents it: restarted is false, even if all
// is copied back.
func (k *checkpointer) restart() (restarted bool, err error) {
	k.one.Lock()
	defer k.one.Unlock()
	if err := setBusyTimeout(k.conn, restartWait); err != nil {
		return false, err
	}
	busy, _, _, err := walCheckpoint(k.conn, "RESTART")
	return !busy && err == nil, errors.Join(err, setBusyTimeout(k.conn, busyTimeout))
}

// checkpoint runs one checkpoint, waiting at most wait for locks and readers. busy means that it could not complete.
func checkpoint(c *sql.Conn, mode string, wait time.Duration) (busy bool, err error) {
	if err := setBusyTimeout(c, wait); err != nil {
		return false, err
	}
	length, copied, err := walFrames(c, mode)
	if e := setBusyTimeout(c, busyTimeout); err == nil {
		err = e
	}
	return copied < length || copied < 0, err
}

// walFrames runs a checkpoint and returns how many pages the log has, and how many of these are copied back. NOOP copies none.
func walFrames(c *sql.Conn, mode string) (length, copied int64, err error) {
	_, length, copied, err = walCheckpoint(c, mode)
	return length, copied, err
}

// walCheckpoint is walFrames that also returns whether the checkpoint waited in vain: for a lock, both numbers are -1 then, or, where it is
// to restart the log, for its readers.
func walCheckpoint(c *sql.Conn, mode string) (busy bool, length, copied int64, err error) {
	err = c.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &length, &copied)
	return busy, length, copied, err
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
