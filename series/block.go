package series

import (
	"cmp"
	"encoding/binary"

	"weir/internal/pack"
	"weir/model"
	"weir/store"
)

// labels are what the readings of a run have in common besides their series.
type labels struct {
	source, unit, dataType string
	anchors                int64
	profile                int64 // reserved: row id of the profile version
}

func (l *labels) compare(m *labels) int {
	return cmp.Or(cmp.Compare(l.source, m.source), cmp.Compare(l.unit, m.unit), cmp.Compare(l.dataType, m.dataType),
		cmp.Compare(l.anchors, m.anchors), cmp.Compare(l.profile, m.profile))
}

// entry is the directory's word about one run of a block.
type entry struct {
	series      int64
	labels      *labels
	n           int
	first, last model.Micros
	// run is its packed form, to be read with the block's bases.
	run []byte
}

// block is the decoded directory of a block's blob. Runs are in order of series, those of one series in the order in
// which they began.
//
// The blob is the version; the label sets; the number of runs; base series, time and offset; for each run the series
// (difference), its label set, its number of readings, its first event time from the base, its span, the length of its
// packed form; then those forms; and a CRC-32C over all of it. Sum, minimum and maximum of so few readings are not kept:
// they would take more room than the readings.
type block struct {
	baseTime, baseOffset int64
	entries              []entry
}

// blockBuilder packs runs into blobs.
type blockBuilder struct {
	enc     *encoder
	labels  []*labels
	entries []entry
	body    []byte
	base    struct{ series, time, offset int64 }
	sum     summary // of all runs; sum, min and max are not used
}

func (b *blockBuilder) reset() {
	clear(b.entries)
	b.entries, b.labels, b.body = b.entries[:0], b.labels[:0], b.body[:0]
}

// add appends a run of readings that are in order of time. Series must not go down.
func (b *blockBuilder) add(series int64, l *labels, c *columns) {
	if len(b.entries) == 0 {
		b.base.series, b.base.time, b.base.offset = series, c.Times[0], c.Offsets[0]
		b.sum = summary{first: model.Micros(c.Times[0]), last: model.Micros(c.Times[0]),
			firstOffset: model.Offset(c.Offsets[0]), lastOffset: model.Offset(c.Offsets[0])}
	}
	start := len(b.body)
	b.body = b.enc.appendRun(b.body, c, b.base.time, b.base.offset)
	last := c.len() - 1
	e := entry{series: series, labels: l, n: c.len(), first: model.Micros(c.Times[0]), last: model.Micros(c.Times[last]),
		run: b.body[start:]} // only its length is used: body may move
	b.entries = append(b.entries, e)
	b.sum.n += int64(e.n)
	b.sum.first, b.sum.last = min(b.sum.first, e.first), max(b.sum.last, e.last)
	for _, o := range c.Offsets {
		b.sum.firstOffset, b.sum.lastOffset = min(b.sum.firstOffset, model.Offset(o)), max(b.sum.lastOffset, model.Offset(o))
	}
}

// Limits of a block.
const (
	blockBytes = 24 << 10
	blockRuns  = 1 << store.SeriesGroupBits
)

// full reports whether a run of a series has no place in the block: it has enough, or is of another part of a group.
func (b *blockBuilder) full(series int64) bool {
	return len(b.body) >= blockBytes || len(b.entries) >= blockRuns ||
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

func (b *blockBuilder) labelIndex(l *labels) uint64 {
	for i, have := range b.labels {
		if *have == *l {
			return uint64(i)
		}
	}
	b.labels = append(b.labels, l)
	return uint64(len(b.labels) - 1)
}

// blob returns the packed block.
func (b *blockBuilder) blob() []byte {
	var directory []byte
	series := b.base.series
	for i := range b.entries {
		e := &b.entries[i]
		directory = binary.AppendUvarint(directory, uint64(e.series-series))
		directory = binary.AppendUvarint(directory, b.labelIndex(e.labels))
		directory = binary.AppendUvarint(directory, uint64(e.n))
		directory = binary.AppendVarint(directory, int64(e.first)-b.base.time)
		directory = binary.AppendUvarint(directory, uint64(e.last-e.first))
		directory = binary.AppendUvarint(directory, uint64(len(e.run)))
		series = e.series
	}
	dst := make([]byte, 0, 64+len(directory)+len(b.body))
	dst = binary.AppendUvarint(append(dst, formatVersion), uint64(len(b.labels)))
	for _, l := range b.labels {
		dst = pack.AppendText(pack.AppendText(pack.AppendText(dst, l.source), l.unit), l.dataType)
		dst = binary.AppendVarint(binary.AppendVarint(dst, l.anchors), l.profile)
	}
	dst = binary.AppendUvarint(dst, uint64(len(b.entries)))
	dst = binary.AppendVarint(dst, b.base.series)
	dst = binary.AppendVarint(dst, b.base.time)
	dst = binary.AppendVarint(dst, b.base.offset)
	return sealed(append(append(dst, directory...), b.body...), 0)
}

// decodeBlock reads the directory of a block's blob.
func decodeBlock(blob []byte) (*block, error) {
	src, err := unsealed(blob)
	if err != nil {
		return nil, err
	}
	sets, src, err := decodeLabels(src)
	if err != nil {
		return nil, err
	}
	n, src, err := pack.Uvarint(src)
	if err != nil || n > uint64(len(src)) {
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
	lengths := make([]uint64, n)
	for i := range b.entries {
		if lengths[i], src, err = b.decodeEntry(&b.entries[i], src, sets, &series); err != nil {
			return nil, err
		}
	}
	for i, l := range lengths {
		if l > uint64(len(src)) {
			return nil, pack.ErrForm
		}
		b.entries[i].run, src = src[:l], src[l:]
	}
	if len(src) != 0 {
		return nil, pack.ErrForm
	}
	return b, nil
}

func decodeLabels(src []byte) ([]labels, []byte, error) {
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
	}
	return sets, src, nil
}

func (b *block) decodeEntry(e *entry, src []byte, sets []labels, series *int64) (length uint64, rest []byte, err error) {
	var numbers [3]uint64
	for i := range numbers {
		if numbers[i], src, err = pack.Uvarint(src); err != nil {
			return 0, nil, err
		}
	}
	first, src, err := pack.Varint(src)
	if err != nil {
		return 0, nil, err
	}
	span, src, err := pack.Uvarint(src)
	if err != nil {
		return 0, nil, err
	}
	if length, src, err = pack.Uvarint(src); err != nil {
		return 0, nil, err
	}
	if numbers[1] >= uint64(len(sets)) || numbers[2] == 0 || numbers[2] > maxRun {
		return 0, nil, pack.ErrForm
	}
	*series += int64(numbers[0])
	e.series, e.labels, e.n = *series, &sets[numbers[1]], int(numbers[2])
	e.first = model.Micros(b.baseTime + first)
	e.last = e.first + model.Micros(span)
	return length, src, nil
}

// decode reads one run of the block into c.
func (b *block) decode(e *entry, c *columns, d depth) error {
	rest, err := decodeRun(e.run, e.n, b.baseTime, b.baseOffset, c, d)
	if err != nil {
		return err
	}
	if d == everything && len(rest) != 0 || model.Micros(c.Times[0]) != e.first || model.Micros(c.Times[e.n-1]) != e.last {
		return pack.ErrForm
	}
	return nil
}
