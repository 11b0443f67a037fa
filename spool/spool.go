// Package spool is the durable log: the only queue between the outside and the inside. What is appended is on disk
// before its sender hears yes; everything to its right is rebuilt from it. DESIGN.md has the reasoning, spooltest the
// conformance suite that every driver passes, bolt the embedded driver.
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
	// ErrClosed: the log is closed or closing; nothing was stored.
	ErrClosed = errors.New("spool: closed")
	// ErrFull: the record does not fit into the log's budget of bytes or of records; nothing was stored.
	ErrFull = errors.New("spool: full")
	// ErrTooLarge: the record is larger than MaxRecord; nothing was stored.
	ErrTooLarge = errors.New("spool: record too large")
	// ErrTrimmed: the offset asked for lies before the oldest record that is kept.
	ErrTrimmed = errors.New("spool: offset is trimmed")
	// ErrDamaged: a batch fails its checksum or its form. The error text names file and offset.
	ErrDamaged = errors.New("spool: damaged")
	// ErrVersion: the log was written by a newer Weir.
	ErrVersion = errors.New("spool: newer format")
	// ErrForeign: the log carries another pair id than the one asked for: it belongs to another store.
	ErrForeign = errors.New("spool: belongs to another store")
	// ErrUnavailable: the disk did not take a batch; what it held is not stored. The log goes on by itself once it can.
	ErrUnavailable = errors.New("spool: unavailable")
)

// DamageError is an ErrDamaged with its place.
type DamageError struct {
	File   string       // name of the file, without its folder
	Offset model.Offset // first offset that cannot be read, 0 when not even that is known
	Next   model.Offset // where reading may go on, 0 when nothing readable is known behind the damage
	Reason string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%v: %s: offset %d: %s", ErrDamaged, e.File, e.Offset, e.Reason)
}

// Unwrap makes errors.Is(err, ErrDamaged) hold.
func (e *DamageError) Unwrap() error { return ErrDamaged }

// MaxRecord is the largest record in bytes: a 1 MiB packet or control part and its envelope.
const MaxRecord = 1<<20 + 64<<10

// MaxGroup is the most bytes that the entries of one Append may have together: an HTTP body of many events.
const MaxGroup = 2 * MaxRecord

// MaxGroupEntries is how many entries one Append may have.
const MaxGroupEntries = 1000

// Entry is one record to append.
type Entry struct {
	// Data is the encoded record. The log keeps the slice until the batch has left its memory: do not change it.
	Data []byte
	// Value is the decoded record; the reader is handed it back as long as the batch is still in memory, so that in
	// steady state nothing is decoded twice. The log never looks at it.
	Value any
	// Exempt records (control) may use the reserve above the budget that is theirs alone.
	Exempt bool
	// Done is called exactly once if Append returned nil, from the committer's goroutine, in offset order, after the
	// batch is synced (err nil) or has failed (err set, offset 0). It must not block.
	Done func(model.Offset, error)
}

// Log is the durable log of one instance. All methods are safe for concurrent use.
type Log interface {
	// Append hands entries to the committer. Several are stored together, in one batch and with offsets that follow one
	// another, or not at all; together they are at most MaxGroup bytes. It blocks while more bytes than the unsynced bound wait for their sync, so
	// that the sender feels it, and returns ctx's error when ctx ends first. A nil return says that Done will be called.
	Append(ctx context.Context, entries ...Entry) error
	// Reader returns a reader whose first batch holds the record at from, or the first one after it. ErrTrimmed when
	// from lies before what is kept.
	Reader(from model.Offset) (Reader, error)
	// Trim lets go of everything up to and including to, at most the newest record: it can no longer be read and no
	// longer counts. Space comes back in whole spans, so after a restart a part of the oldest span may be back; trim again.
	Trim(to model.Offset) error
	// HoldTrim stops trimming until the returned function is called: a backup copies a log that stands still at its left.
	HoldTrim() (release func())
	// Bounds returns the oldest record kept and the newest one synced; first = last+1 when the log is empty. After a
	// jump to a new epoch last is the offset before the next one, though no record may bear it.
	Bounds() (first, last model.Offset)
	// Epoch is the number of this log's life; it grows when a lost log is replaced.
	Epoch() uint32
	// PairID is the id that the log shares with the store of its instance.
	PairID() [16]byte
	// Stats returns figures for status, metrics and backpressure.
	Stats() Stats
	// Sync waits until everything appended before the call is synced or has failed.
	Sync(ctx context.Context) error
	// Close syncs what was appended, answers it, and closes the files.
	Close() error
}

// Reader hands out batches in order. It is used by one goroutine. It may read a closed log to its end; the files that
// it holds are closed with it.
type Reader interface {
	// Next blocks until the next batch is synced. It returns ErrClosed after the last batch of a closed log, ErrTrimmed
	// when Trim has overtaken it, ErrDamaged where a batch cannot be read or offsets are missing; it stays where it is.
	Next(ctx context.Context) (*Batch, error)
	// TryNext is Next without waiting: nil, nil when the reader has caught up.
	TryNext() (*Batch, error)
	Close()
}

// Batch is what one sync made durable. Readers may share it: nobody changes it.
type Batch struct {
	Epoch   uint32
	First   model.Offset
	Meta    []byte // what Options.Meta gave when the batch was formed: listening time and door counts
	Records []Record
	Weight  int64 // what the batch takes of the log's budget, its share of pages included
}

// Last is the offset of the batch's last record; First-1 for a batch without records.
func (b *Batch) Last() model.Offset { return b.First + model.Offset(len(b.Records)) - 1 }

// Record is one entry as read back. Value is nil when it was read from disk.
type Record struct {
	Data  []byte
	Value any
}

// MetaSource gives the bytes that ride in a batch. Take is called by the committer when it has chosen the batch's
// entries; Settle says whether that batch was synced, so that counts of a failed one are not lost. They are called in
// turn, never at once.
type MetaSource interface {
	Take(entries []Entry) []byte
	Settle(ok bool)
}

// File is a file of a copy of a log. Write writes it whole, Bytes long; it is called at most once, before the function
// that was handed the file returns.
type File struct {
	Name  string
	Bytes int64
	Write func(io.Writer) error
}

// Stats are a log's figures.
type Stats struct {
	First, Last   model.Offset
	Bytes         int64 // what the batches that are not trimmed take, their share of pages included: held against MaxBytes
	MaxBytes      int64 // budget, the reserve for exempt entries not included
	MaxRecords    int64 // budget of records that are not trimmed, Last+1-First of them now
	Through       int64 // what all batches since the log began took of the budget: it only grows
	DiskBytes     int64 // bytes the files take on disk, what is trimmed inside the oldest span included
	UnsyncedBytes int64
	TailBytes     int64  // memory held for readers that keep up, by estimate
	Batches       uint64 // since start
	Records       uint64
	Syncs         uint64
	LastSyncNanos int64
	Err           error // why the log refuses appends, nil when it does not
}
