package series

import (
	"cmp"
	"encoding/binary"
	"slices"

	"weir/internal/pack"
	"weir/model"
	"weir/store"
)

// labels are the properties that the readings of a run share besides their series.
type labels struct {
	source, unit, dataType string
	anchors                int64
	profile                int64 // reserved: row id of the profile version
	mark                   model.RangeMark
}

func (l *labels) compare(m *labels) int {
	return cmp.Or(cmp.Compare(l.source, m.source), cmp.Compare(l.unit, m.unit), cmp.Compare(l.dataType, m.dataType),
		cmp.Compare(l.anchors, m.anchors), cmp.Compare(l.profile, m.profile), cmp.Compare(l.mark, m.mark))
}

// entry is the directory entry of one run of a block.
type entry struct {
	series      int64
	labels      *labels
	n           int
	first, last model.Micros
	// at is the run's number in the block, start how many readings the runs before it have.
	at, start int
	// run is its packed form.
	run []byte
}

// block is the decoded directory of a block's blob. Runs are in order of series, those of one series in the order in
// which they began. Sum, minimum and maximum are not stored: for so few readings they would take more space than these.
type block struct {
	baseTime, baseOffset int64
	entries              []entry
	table                *table // nil in versions 1 and 2
}

// blockBuilder packs runs into blobs.
type blockBuilder struct {
	enc     *encoder
	labels  []*labels
	entries []entry
	sets    []int64 // label set of each run
	all     columns // of all runs, one after the other
	ends    []int   // of the runs in all
	size    int     // the approximate size of the blob in bytes
	base    struct{ series, time, offset int64 }
	sum     summary // of all runs; sum, min and max are not used
}

func (b *blockBuilder) reset() {
	clear(b.entries)
	b.entries, b.labels, b.sets, b.ends, b.size = b.entries[:0], b.labels[:0], b.sets[:0], b.ends[:0], 0
	b.all.resize(0)
}

// add appends a run of readings that are in order of time. Series must not go down.
func (b *blockBuilder) add(series int64, l *labels, c *columns) {
	if len(b.entries) == 0 {
		b.base.series, b.base.time, b.base.offset = series, c.Times[0], c.Offsets[0]
		b.sum = summary{first: model.Micros(c.Times[0]), last: model.Micros(c.Times[0]),
			firstOffset: model.Offset(c.Offsets[0]), lastOffset: model.Offset(c.Offsets[0])}
	}
	last := c.len() - 1
	e := entry{series: series, labels: l, n: c.len(), first: model.Micros(c.Times[0]), last: model.Micros(c.Times[last]),
		at: len(b.entries), start: b.all.len()}
	b.entries, b.sets = append(b.entries, e), append(b.sets, b.labelIndex(l))
	b.all.appendAll(c)
	b.ends = append(b.ends, b.all.len())
	b.size += e.n * readingBytes
	for _, id := range c.AltIDs {
		b.size += len(id)
	}
	b.sum.n += int64(e.n)
	b.sum.first, b.sum.last = min(b.sum.first, e.first), max(b.sum.last, e.last)
	for _, o := range c.Offsets {
		b.sum.firstOffset, b.sum.lastOffset = min(b.sum.firstOffset, model.Offset(o)), max(b.sum.lastOffset, model.Offset(o))
	}
}

// Limits of a block.
const (
	blockBytes   = 24 << 10
	blockRuns    = 1 << store.SeriesGroupBits
	readingBytes = 8 // about, without an altId
)

// full reports whether a run of a series does not fit: the block is full, or the run is of another part of a group.
func (b *blockBuilder) full(series int64) bool {
	return b.size >= blockBytes || len(b.entries) >= blockRuns ||
		len(b.entries) > 0 && store.BlockPart(b.entries[0].series) != store.BlockPart(series)
}

// row returns the block's row.
func (b *blockBuilder) row(gen uint64, tenantID int64) *store.Block {
	first, last := b.entries[0].series, b.entries[len(b.entries)-1].series
	row := &store.Block{Gen: gen, TenantID: tenantID, Group: store.SeriesGroup(first), MinSeries: first, MaxSeries: last,
		First: b.sum.first, Last: b.sum.last, Count: b.sum.n, Runs: int64(len(b.entries)),
		FirstOffset: b.sum.firstOffset, LastOffset: b.sum.lastOffset, Data: b.blob()}
	for _, l := range b.labels {
		row.Anchored = row.Anchored || l.anchors != 0
	}
	return row
}

func (b *blockBuilder) labelIndex(l *labels) int64 {
	for i, have := range b.labels {
		if *have == *l {
			return int64(i)
		}
	}
	b.labels = append(b.labels, l)
	return int64(len(b.labels) - 1)
}

// version is the oldest version that can hold the runs.
func (b *blockBuilder) version() byte {
	if slices.ContainsFunc(b.labels, func(l *labels) bool { return l.mark != model.InRange }) {
		return blockVersion
	}
	return plainBlock
}

// blob returns the packed block.
func (b *blockBuilder) blob() []byte {
	version := b.version()
	dst := binary.AppendUvarint([]byte{version}, uint64(len(b.labels)))
	for _, l := range b.labels {
		dst = pack.AppendText(pack.AppendText(pack.AppendText(dst, l.source), l.unit), l.dataType)
		dst = binary.AppendVarint(binary.AppendVarint(dst, l.anchors), l.profile)
		if version == blockVersion {
			dst = append(dst, byte(l.mark))
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(b.entries)))
	dst = binary.AppendVarint(dst, b.base.series)
	dst = binary.AppendVarint(dst, b.base.time)
	dst = binary.AppendVarint(dst, b.base.offset)
	return sealed(b.appendTable(dst), 0)
}

// decodeBlock reads the directory of a block's blob.
func decodeBlock(blob []byte) (*block, error) {
	version, src, err := unsealed(blob, blockVersion)
	if err != nil {
		return nil, err
	}
	sets, src, err := decodeLabels(src, version)
	if err != nil {
		return nil, err
	}
	n, src, err := pack.Uvarint(src)
	if err != nil || n == 0 || n > maxTable {
		return nil, pack.ErrForm
	}
	b := &block{entries: make([]entry, n)}
	series, src, err := pack.Varint(src)
	if err != nil {
		return nil, err
	}
	if b.baseTime, src, err = pack.Varint(src); err != nil {
		return nil, err
	}
	if b.baseOffset, src, err = pack.Varint(src); err != nil {
		return nil, err
	}
	if version < plainBlock {
		return b, b.decodeRuns(src, sets, series)
	}
	return b, b.decodeTable(src, sets, series)
}

func decodeLabels(src []byte, version byte) ([]labels, []byte, error) {
	n, src, err := pack.Uvarint(src)
	if err != nil || n > uint64(len(src)) {
		return nil, nil, pack.ErrForm
	}
	sets := make([]labels, n)
	for i := range sets {
		l := &sets[i]
		for _, field := range [...]*string{&l.source, &l.unit, &l.dataType} {
			if *field, src, err = pack.Text(src); err != nil {
				return nil, nil, err
			}
		}
		for _, field := range [...]*int64{&l.anchors, &l.profile} {
			if *field, src, err = pack.Varint(src); err != nil {
				return nil, nil, err
			}
		}
		if version == blockVersion {
			if l.mark, src, err = takeMark(src); err != nil {
				return nil, nil, err
			}
		}
	}
	return sets, src, nil
}

// decode reads one run of the block into c.
func (b *block) decode(e *entry, c *columns, d depth) error {
	if b.table != nil {
		return b.table.decode(e, c, d)
	}
	return b.decodeRun(e, c, d)
}
