// Package spool is the durable log: the only queue between the transports and the applier. A record is on disk before
// its sender gets an acknowledgement; everything after the log is computed from it. DESIGN.md has the reasoning,
// spooltest the conformance suite of every driver, bolt the embedded driver.
package spool

import (
	"context"
	"errors"
	"fmt"
	"io"

	"weir/model"
)

// Errors of a log. One owner each; drivers wrap them.
var (
	// ErrClosed is returned when the log is closed or closing; nothing was stored.
	ErrClosed = errors.New("spool: closed")
	// ErrFull is returned when the record does not fit into the log's budget of bytes or of records; nothing was stored.
	ErrFull = errors.New("spool: full")
	// ErrTooLarge is returned when the record is larger than MaxRecord; nothing was stored.
	ErrTooLarge = errors.New("spool: record too large")
	// ErrTrimmed is returned when the offset is before the oldest record of the log.
	ErrTrimmed = errors.New("spool: offset is trimmed")
	// ErrDamaged is returned when a batch fails its checksum or its form. The error text names file and offset.
	ErrDamaged = errors.New("spool: damaged")
	// ErrVersion is returned when the log was written by a newer Weir.
	ErrVersion = errors.New("spool: newer format")
	// ErrForeign is returned when the log has another pair id than the expected one: it belongs to another store.
	ErrForeign = errors.New("spool: belongs to another store")
	// ErrUnavailable is returned when the batch could not be written; its entries are not stored. The log recovers when the disk does.
	ErrUnavailable = errors.New("spool: unavailable")
)

// DamageError is an ErrDamaged with its file and offsets.
type DamageError struct {
	File   string       // name of the file, without its folder
	Offset model.Offset // first offset that cannot be read, 0 when unknown
	Next   model.Offset // offset at which reading may continue, 0 when no readable batch is known after the damage
	Reason string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%v: %s: offset %d: %s", ErrDamaged, e.File, e.Offset, e.Reason)
}

// Unwrap makes errors.Is(err, ErrDamaged) true.
func (e *DamageError) Unwrap() error { return ErrDamaged }

// MaxRecord is the largest record in bytes: a 1 MiB packet or control part and its envelope.
const MaxRecord = 1<<20 + 64<<10

// MaxGroup is the maximum of bytes of all entries of one Append: an HTTP body of many events.
const MaxGroup = 2 * MaxRecord

// MaxGroupEntries is the maximum number of entries of one Append.
const MaxGroupEntries = 1000

// Entry is one record to append.
type Entry struct {
	// Data is the encoded record. The log keeps the slice until the batch has left its memory: do not change it.
	Data []byte
	// Value is the decoded record; a reader gets it back while the batch is in memory, so that nothing is decoded twice in
	// steady state. The log does not use it.
	Value any
	// Exempt records (metadata changes) may use the reserve above the budget.
	Exempt bool
	// Done is called exactly once if Append returned nil, from the committer's goroutine, in offset order, after the
	// batch is synced (err nil) or has failed (err set, offset 0). It must not block.
	Done func(model.Offset, error)
}

// Log is the durable log of one instance. All methods are safe for concurrent use.
type Log interface {
	// Append passes entries to the committer. Several are stored together, in one batch and with consecutive offsets, or not
	// at all; together they are at most MaxGroup bytes. It blocks while the unsynced bytes are at their bound, which slows
	// the sender, and returns ctx's error when ctx ends first. After a nil return Done will be called.
	Append(ctx context.Context, entries ...Entry) error
	// Reader returns a reader whose first batch contains the record at from, or the first one after it; ErrTrimmed when
	// from is before the oldest record.
	Reader(from model.Offset) (Reader, error)
	// Trim removes everything up to and including to, at most the newest record: it can no longer be read and no longer
	// counts. Disk space is freed in whole spans, so that a part of the oldest span may be back after a restart; trim again.
	Trim(to model.Offset) error
	// Purge asks that the records up to and including to leave the disk, too, once they are trimmed: the next append does not go
	// into a file that holds one of them. It returns the first offset of the oldest file: records from there on are, or may be,
	// on the disk. So after Purge, an append, and a Trim up to it, the next Purge returns an offset after to.
	Purge(to model.Offset) (kept model.Offset, err error)
	// HoldTrim stops trimming until the returned function is called, so that a backup can copy the log.
	HoldTrim() (release func())
	// Bounds returns the oldest record kept and the newest one synced; first = last+1 when the log is empty. After a
	// jump to a new epoch last is the offset before the next one, even if no record has it.
	Bounds() (first, last model.Offset)
	// Epoch is incremented when a lost log is replaced.
	Epoch() uint32
	// PairID is the id that the log shares with the store of its instance.
	PairID() [16]byte
	// Stats returns figures for status, metrics and backpressure.
	Stats() Stats
	// Sync waits until every entry appended before the call is synced or has failed.
	Sync(ctx context.Context) error
	// Close syncs the appended entries, calls their Done, and closes the files.
	Close() error
}

// Reader returns batches in order. It is used by one goroutine. It may read a closed log to its end; the files that
// it holds are closed with it.
type Reader interface {
	// Next blocks until the next batch is synced. It returns ErrClosed after the last batch of a closed log, ErrTrimmed
	// when Trim has overtaken it, ErrDamaged when a batch cannot be read or offsets are missing; then it does not advance.
	Next(ctx context.Context) (*Batch, error)
	// TryNext is Next without waiting: nil, nil when the reader has caught up.
	TryNext() (*Batch, error)
	Close()
}

// Batch is the unit that one sync makes durable. Readers may share it: it is immutable.
type Batch struct {
	Epoch   uint32
	First   model.Offset
	Meta    []byte // result of Options.Meta when the batch was formed: listening time and transport counts
	Records []Record
	Weight  int64 // bytes of the log's budget, including its share of pages
}

// Last is the offset of the batch's last record; First-1 for a batch without records.
func (b *Batch) Last() model.Offset { return b.First + model.Offset(len(b.Records)) - 1 }

// Record is one entry as read back. Value is nil when it was read from disk.
type Record struct {
	Data  []byte
	Value any
}

// MetaSource provides the metadata of a batch. The committer calls Take when it has chosen the batch's entries; Settle
// reports whether that batch was synced, so that the counts of a failed batch are not lost. The calls alternate and
// never overlap.
type MetaSource interface {
	Take(entries []Entry) []byte
	Settle(ok bool)
}

// File is a file of a copy of a log. Write writes it whole, Bytes long; it is called at most once, before the function
// that received the file returns.
type File struct {
	Name  string
	Bytes int64
	Write func(io.Writer) error
}

// Stats are the metrics of a log.
type Stats struct {
	First, Last   model.Offset
	Bytes         int64 // batches not trimmed, including their share of pages: compared with MaxBytes
	MaxBytes      int64 // budget, the reserve for exempt entries not included
	MaxRecords    int64 // maximum of records not trimmed, at present Last+1-First
	Through       int64 // budget used by all batches since the log began: it only grows
	DiskBytes     int64 // size of the files on disk, including trimmed batches of the oldest span
	UnsyncedBytes int64
	TailBytes     int64  // estimated memory of the batches for readers that keep up
	Batches       uint64 // since start
	Records       uint64
	Syncs         uint64
	LastSyncNanos int64
	Err           error // the reason why the log refuses appends, nil when it does not
}
