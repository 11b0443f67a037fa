package main

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// pace is how much quicker than the time of day the clock runs inside of a span.
const pace = 20

// shared is what stands in the file.
type shared struct {
	from, to atomic.Int64 // the span in which the time lies, in nanoseconds of the epoch
	logged   atomic.Int64 // bytes that were written for the log
}

// board is what the bench and the lab have in common, as one of them sees it: a file that both have mapped. On it stand the a
// clock that the bench sets and the lab follows, and the number of bytes that the lab wrote for the log.
//
// The clock runs quicker than the time of day, but never past the moment up to which it was let run: so the bench knows
// within which span the lab stamps what it is sent.
type board struct {
	s *shared

	mu   sync.Mutex
	last time.Time // of day, when it was looked at
	wall int64
	zero int64 // wall when it was opened
}

// makeBoard makes the file of a board whose clock stands at from and may run up to to.
func makeBoard(file string, from, to time.Time) (*board, error) {
	if err := os.WriteFile(file, make([]byte, unsafe.Sizeof(shared{})), 0o600); err != nil {
		return nil, err
	}
	s, err := mapped(file)
	if err != nil {
		return nil, err
	}
	b := &board{s: s}
	b.let(from, to)
	return b, nil
}

// openBoard opens the file that makeBoard has made.
func openBoard(file string) (*board, error) {
	s, err := mapped(file)
	if err != nil {
		return nil, err
	}
	at := s.from.Load()
	return &board{s: s, last: time.Now(), wall: at, zero: at}, nil
}

func mapped(file string) (s *shared, err error) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err := syscall.Mmap(int(f.Fd()), 0, int(unsafe.Sizeof(shared{})), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*shared)(unsafe.Pointer(&b[0])), nil // mapped until the process ends
}

// log adds to what was written for the log.
func (b *board) log(bytes int64) { b.s.logged.Add(bytes) }

// writtenByLog is what was written for the log, by all processes that had the board.
func (b *board) writtenByLog() int64 { return b.s.logged.Load() }

// let sets the span in which the time lies from now on. Spans only go forward.
func (b *board) let(from, to time.Time) {
	b.s.to.Store(to.UnixNano())
	b.s.from.Store(from.UnixNano())
}

// now is the time, and how much of it has passed since the board was opened.
func (b *board) now() (time.Time, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	day := time.Now()
	from, to := b.s.from.Load(), b.s.to.Load()
	b.wall = max(b.wall, from, min(b.wall+pace*int64(day.Sub(b.last)), to))
	b.last = day
	return time.Unix(0, b.wall), time.Duration(b.wall - b.zero)
}
