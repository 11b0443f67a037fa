package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"weir/internal/faults"
	"weir/model"
	"weir/spool"
)

// Trim implements spool.Log. It removes a span when all of it is trimmed, except the one being written.
func (l *Log) Trim(to model.Offset) error {
	l.trimming.Lock()
	defer l.trimming.Unlock()
	return l.trim(to)
}

// trim is Trim with the lock held.
func (l *Log) trim(to model.Offset) error {
	if l.gatherer.Closing() {
		return spool.ErrClosed
	}
	l.mu.Lock()
	held, first := l.holds > 0, l.first
	to = min(to, l.last)
	if held {
		l.heldTrim = max(l.heldTrim, to)
	}
	l.mu.Unlock()
	switch {
	case held:
		return nil
	case to >= first:
		l.moveFirst(to, l.weightThrough(to))
	}
	return l.removeDoomed()
}

// moveFirst moves first after to and removes the spans before it from the list.
func (l *Log) moveFirst(to model.Offset, weight int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first = to + 1
	l.trimmed = max(l.trimmed, weight)
	l.tail.DropBefore(l.first)
	n := 0
	for n+1 < len(l.spans) && l.spans[n+1].begin <= l.first {
		l.doomed = append(l.doomed, l.spans[n].name())
		l.disk -= l.spans[n].disk
		n++
	}
	clear(l.spans[:n])
	l.spans = l.spans[n:]
}

// weightThrough returns the weight of the log up to and including the record at offset, as whole batches. When it cannot be read it
// returns 0, and the trimmed batches still count until a later Trim, which errs on the safe side.
func (l *Log) weightThrough(offset model.Offset) int64 {
	l.mu.Lock()
	if offset == l.last {
		defer l.mu.Unlock()
		return l.through
	}
	b, through := l.tail.Find(offset)
	l.mu.Unlock()
	if b != nil {
		if b.Last() == offset {
			return through
		}
		return through - b.Weight
	}
	w, err := l.weightOnDisk(offset)
	if err != nil {
		l.log.Warn("spool: trimming past a batch that cannot be read", "offset", offset, "error", err)
	}
	return w
}

func (l *Log) weightOnDisk(offset model.Offset) (int64, error) {
	s, _ := l.locate(offset)
	if err := s.acquire(); err != nil {
		return 0, err
	}
	h, err := s.header(offset + 1)
	err = errors.Join(err, s.release())
	switch {
	case err != nil || h == nil:
		return 0, err
	case h.last() <= offset:
		return h.through(), nil
	}
	return int64(h.before), nil
}

// removeDoomed deletes the files of trimmed spans, oldest first and each durably before the next, so that a power cut
// never leaves a gap. A file that cannot be deleted now is retried with the next Trim.
func (l *Log) removeDoomed() error {
	for {
		l.mu.Lock()
		if len(l.doomed) == 0 {
			l.mu.Unlock()
			return nil
		}
		name := l.doomed[0]
		l.mu.Unlock()
		faults.Keep(filepath.Join(l.dir, name))
		err := os.Remove(filepath.Join(l.dir, name))
		faults.Point("spool.removed")
		if err == nil {
			err = l.syncDir()
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("spool: removing a trimmed span: %w", err)
		}
		l.mu.Lock()
		l.doomed = l.doomed[1:]
		l.mu.Unlock()
	}
}

// Purge implements spool.Log. Only whole spans leave the disk, so the present one is closed when it holds such a record.
func (l *Log) Purge(to model.Offset) (kept model.Offset, err error) {
	l.trimming.Lock()
	defer l.trimming.Unlock()
	if l.gatherer.Closing() {
		return 0, spool.ErrClosed
	}
	if err := l.removeDoomed(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.purge = max(l.purge, min(to, l.last))
	if len(l.spans) == 0 {
		return l.last + 1, nil
	}
	return l.spans[0].begin, nil
}

// closes reports whether the present span is to take no further batch, because of Purge.
func (l *Log) closes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current.begin <= l.purge
}

// HoldTrim implements spool.Log.
func (l *Log) HoldTrim() (release func()) {
	l.trimming.Lock() // wait for a running trim
	defer l.trimming.Unlock()
	l.mu.Lock()
	l.holds++
	l.mu.Unlock()
	return sync.OnceFunc(l.releaseTrim)
}

func (l *Log) releaseTrim() {
	l.trimming.Lock()
	defer l.trimming.Unlock()
	l.mu.Lock()
	l.holds--
	to, last := l.heldTrim, l.holds == 0
	l.mu.Unlock()
	if !last || to == 0 {
		return
	}
	l.mu.Lock()
	l.heldTrim = 0
	l.mu.Unlock()
	if err := l.trim(to); err != nil && !errors.Is(err, spool.ErrClosed) {
		l.log.Warn("spool: trimming after a hold", "error", err)
	}
}
