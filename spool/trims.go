package spool

import (
	"slices"
	"sync"

	"weir/model"
)

// Trims is how several readers of one log trim it: what all of them are done with goes.
type Trims struct {
	log Log

	mu   sync.Mutex
	done []model.Offset // by reader
}

// NewTrims returns the trims of a log by a number of readers. None of them is done with anything yet: an opened log has to be trimmed by each.
func NewTrims(log Log, readers int) *Trims {
	return &Trims{log: log, done: make([]model.Offset, readers)}
}

// Trim notes that a reader needs nothing up to and including to any more, and removes what no reader needs.
func (t *Trims) Trim(reader int, to model.Offset) error {
	t.mu.Lock()
	t.done[reader] = max(t.done[reader], to)
	all := slices.Min(t.done)
	t.mu.Unlock()
	if all == 0 {
		return nil
	}
	return t.log.Trim(all)
}

// Done is up to where a reader needs nothing any more.
func (t *Trims) Done(reader int) model.Offset {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done[reader]
}

// Share is the log as one of several readers sees it: its Trim is a wish, and its Close leaves the log to its owner.
type Share struct {
	Log
	trims  *Trims
	reader int
}

// Share returns the log for a reader.
func (t *Trims) Share(reader int) *Share { return &Share{t.log, t, reader} }

// Trim implements Log.
func (s *Share) Trim(to model.Offset) error { return s.trims.Trim(s.reader, to) }

// Close implements Log: the log stays open.
func (*Share) Close() error { return nil }
