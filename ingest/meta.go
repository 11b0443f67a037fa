package ingest

import (
	"encoding/binary"
	"fmt"
	"slices"

	"weir/ingest/links"
	"weir/internal/wire"
	"weir/store"
)

// Format versions that a batch's meta begins with. Version 1 names no sources and writes outcomes as words; it is read. Version 2 has
// no holds and no turns of links, version 3 no turns; they are written as long as there are none.
const (
	metaVersion1 = 1
	metaVersion2 = 2
	metaVersion3 = 3
	metaVersion  = 4
)

// metaOutcomes numbers the outcomes in a meta. The numbers are frozen.
func metaOutcomes() []store.Outcome {
	return []store.Outcome{store.OutcomeReceived, store.OutcomeRefused, store.OutcomeDropped, store.OutcomeStored, store.OutcomeDuplicate, store.OutcomeDeadLetter}
}

// batchMeta is the data that every batch carries besides its records: the span of listening time that they were received in,
// what the transports counted since the batch before, and whose time has stopped or gone on since. A record's listening time follows from its own stamp and the span, so
// that it does not depend on how records were gathered into batches.
type batchMeta struct {
	Span   links.Span
	Counts map[store.LedgerKey]store.LedgerCount
	links.Moves
}

func appendMeta(b []byte, m batchMeta) []byte {
	// The oldest version that can hold it, so that an older Weir reads as much as possible.
	version := byte(metaVersion2)
	switch {
	case len(m.Turns) > 0:
		version = metaVersion
	case len(m.Holds) > 0:
		version = metaVersion3
	}
	b = append(b, version)
	b = binary.AppendVarint(b, m.Span.Listening)
	b = binary.AppendVarint(b, m.Span.Mono)
	b = append(b, flag(m.Span.Open))
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
	if version < metaVersion3 {
		return b
	}
	b = binary.AppendUvarint(b, uint64(len(m.Holds)))
	for _, h := range m.Holds {
		b = append(binary.AppendVarint(wire.AppendString(b, h.Tenant), h.At), flag(h.Ends))
	}
	if version < metaVersion {
		return b
	}
	b = binary.AppendUvarint(b, uint64(len(m.Turns)))
	for _, t := range m.Turns {
		b = append(binary.AppendVarint(wire.AppendString(b, t.Link), t.At), flag(t.Up))
	}
	return b
}

func flag(v bool) byte {
	if v {
		return 1
	}
	return 0
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
	m := batchMeta{Span: links.Span{Listening: r.Varint(), Mono: r.Varint(), Open: r.Byte() != 0}}
	n := r.Count(7)
	m.Counts = make(map[store.LedgerKey]store.LedgerCount, n)
	for range n {
		k := readMetaKey(r, version)
		m.Counts[k] = store.LedgerCount{Messages: r.Varint(), Readings: r.Varint()}
	}
	if version >= metaVersion3 {
		for range r.Count(3) {
			m.Holds = append(m.Holds, links.Hold{Tenant: r.String(), At: r.Varint(), Ends: r.Byte() != 0})
		}
	}
	if version >= metaVersion {
		for range r.Count(3) {
			m.Turns = append(m.Turns, links.Turn{Link: r.String(), At: r.Varint(), Up: r.Byte() != 0})
		}
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
