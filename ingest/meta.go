package ingest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"weir/internal/wire"
	"weir/store"
)

// Format versions that a batch's meta begins with. Version 1 names no sources and writes outcomes as words; it is read.
const (
	metaVersion1 = 1
	metaVersion  = 2
)

// metaOutcomes numbers the outcomes in a meta. The numbers are frozen.
func metaOutcomes() []store.Outcome {
	return []store.Outcome{store.OutcomeReceived, store.OutcomeRefused, store.OutcomeDropped, store.OutcomeStored, store.OutcomeDuplicate, store.OutcomeDeadLetter}
}

// batchMeta is the data that every batch carries besides its records: the span of listening time that they were received in,
// and what the transports counted since the batch before. A record's listening time follows from its own stamp and the span, so
// that it does not depend on how records were gathered into batches.
type batchMeta struct {
	Span   Span
	Counts map[store.LedgerKey]store.LedgerCount
}

func appendMeta(b []byte, m batchMeta) []byte {
	b = append(b, metaVersion)
	b = binary.AppendVarint(b, m.Span.Listening)
	b = binary.AppendVarint(b, m.Span.Mono)
	open := byte(0)
	if m.Span.Open {
		open = 1
	}
	b = append(b, open)
	b = binary.AppendUvarint(b, uint64(len(m.Counts)))
	outcomes := metaOutcomes()
	for k, c := range m.Counts {
		b = wire.AppendString(b, k.Tenant)
		b = wire.AppendString(b, k.Transport)
		b = wire.AppendString(b, k.Source)
		b = binary.AppendVarint(b, k.Hour)
		b = append(b, byte(slices.Index(outcomes, k.Outcome)))
		b = wire.AppendString(b, k.Reason)
		b = binary.AppendVarint(b, c.Messages)
		b = binary.AppendVarint(b, c.Readings)
	}
	return b
}

func decodeMeta(b []byte) (batchMeta, error) {
	if len(b) == 0 {
		return batchMeta{}, nil
	}
	r := wire.NewReader(b)
	version := r.Byte()
	if version < metaVersion1 || version > metaVersion {
		return batchMeta{}, fmt.Errorf("batch meta has format version %d, this Weir knows %d", version, metaVersion)
	}
	m := batchMeta{Span: Span{Listening: r.Varint(), Mono: r.Varint(), Open: r.Byte() != 0}}
	n := r.Count(7)
	m.Counts = make(map[store.LedgerKey]store.LedgerCount, n)
	for range n {
		k := readMetaKey(r, version)
		m.Counts[k] = store.LedgerCount{Messages: r.Varint(), Readings: r.Varint()}
	}
	if err := r.End(); err != nil {
		return batchMeta{}, fmt.Errorf("batch meta is damaged: %w", err)
	}
	return m, nil
}

func readMetaKey(r *wire.Reader, version byte) store.LedgerKey {
	k := store.LedgerKey{Tenant: r.String(), Transport: r.String()}
	if version == metaVersion1 {
		k.Source, k.Hour, k.Outcome, k.Reason = onlySource(k.Transport), r.Varint(), store.Outcome(r.String()), r.String()
		if k.Reason == "strangers" {
			k.Reason = string(ReasonUnauthenticated)
		}
		return k
	}
	k.Source, k.Hour = r.String(), r.Varint()
	outcomes := metaOutcomes()
	if o := int(r.Byte()); o < len(outcomes) {
		k.Outcome = outcomes[o]
	} else {
		r.Fail(wire.ErrForm)
	}
	k.Reason = r.String()
	return k
}

// onlySource is the one source that a transport had when the ledger named no sources.
func onlySource(transport string) string {
	switch transport {
	case TransportMQTT, TransportHTTP:
		return transport + "1"
	}
	return transport
}

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
