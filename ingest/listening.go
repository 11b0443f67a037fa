package ingest

import (
	"sync"
	"time"
)

// Listening is the listening time of all transports together: monotonic time in which Weir could hear a device. It goes on
// over restarts from where the log left it and stands still while the transports are closed.
type Listening struct {
	mu    sync.Mutex
	mono  func() time.Duration
	base  time.Duration
	since time.Duration
	open  bool
}

// NewListening returns a listening time that stands still at 0. mono is the monotonic time that
// the stamps of records carry.
func NewListening(mono func() time.Duration) *Listening { return &Listening{mono: mono} }

// Now returns the listening time in nanoseconds.
func (l *Listening) Now() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(l.now())
}

func (l *Listening) now() time.Duration {
	if !l.open {
		return l.base
	}
	return l.base + l.mono() - l.since
}

// Resume sets the listening time to the last one in the log. It never sets it back.
func (l *Listening) Resume(nanos int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := time.Duration(nanos) - l.now(); d > 0 {
		l.base += d
	}
}

// Span is a stretch in which the transports were open, or closed: what the listening time was at its start, and that instant in
// the monotonic time of the process.
type Span struct {
	Listening int64 // nanoseconds
	Mono      int64 // nanoseconds, of model.Stamp
	Open      bool
}

// At is the listening time of something received at mono.
func (s Span) At(mono int64) int64 {
	if !s.Open {
		return s.Listening
	}
	return s.Listening + max(0, mono-s.Mono)
}

// Span returns the current span.
func (l *Listening) Span() Span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Span{Listening: int64(l.base), Mono: int64(l.since), Open: l.open}
}

// Open lets the time run; Shut stops it.
func (l *Listening) Open() { l.set(true) }

// Shut stops the listening time.
func (l *Listening) Shut() { l.set(false) }

func (l *Listening) set(open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.base, l.since, l.open = l.now(), l.mono(), open
}
