package ingest

import (
	"encoding/binary"
	"fmt"

	"weir/internal/wire"
	"weir/store"
)

// metaVersion is the format version that a batch's meta begins with.
const metaVersion = 1

// batchMeta is what rides in every batch beside its records: the span of listening time that they were received in, and
// what the doors counted since the batch before. A record's listening time follows from its own stamp and the span, so
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
	for k, c := range m.Counts {
		b = wire.AppendString(b, k.Tenant)
		b = wire.AppendString(b, k.Transport)
		b = binary.AppendVarint(b, k.Hour)
		b = wire.AppendString(b, string(k.Outcome))
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
	if v := r.Byte(); v != metaVersion {
		return batchMeta{}, fmt.Errorf("batch meta has format version %d, this Weir knows %d", v, metaVersion)
	}
	m := batchMeta{Span: Span{Listening: r.Varint(), Mono: r.Varint(), Open: r.Byte() != 0}}
	n := r.Count(7)
	m.Counts = make(map[store.LedgerKey]store.LedgerCount, n)
	for range n {
		k := store.LedgerKey{Tenant: r.String(), Transport: r.String(), Hour: r.Varint(), Outcome: store.Outcome(r.String()), Reason: r.String()}
		m.Counts[k] = store.LedgerCount{Messages: r.Varint(), Readings: r.Varint()}
	}
	if err := r.End(); err != nil {
		return batchMeta{}, fmt.Errorf("batch meta is damaged: %w", err)
	}
	return m, nil
}
