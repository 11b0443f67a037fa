package bolt

import (
	"slices"
	"sort"

	"weir/model"
	"weir/spool"
)

// tail contains the newest batches as they were appended, for readers that keep up. Log.mu guards it. Beyond its
// bound the oldest are dropped: readers that need them read from disk.
type tail struct {
	max     int64
	bytes   int64
	batches []tailBatch
}

type tailBatch struct {
	*spool.Batch
	through int64 // weight of the log up to and including this batch
	weight  int64
	bytes   int64 // memory, by estimate
}

// tailRecordBytes is the assumed memory of a record besides its data: the decoded value is a few structs and
// strings of about the size of the data.
const tailRecordBytes = 256

func (t *tail) push(b *spool.Batch, through, weight int64) {
	cost := int64(len(b.Meta))
	for i := range b.Records {
		cost += 2*int64(len(b.Records[i].Data)) + tailRecordBytes
	}
	t.batches = append(t.batches, tailBatch{b, through, weight, cost})
	t.bytes += cost
	if t.bytes > t.max {
		t.shrink(t.max - t.max/8)
	}
}

// shrink drops the oldest until at most bytes are held; it keeps the newest batch in any case. It drops more than
// necessary, so that many small batches are not moved one by one.
func (t *tail) shrink(bytes int64) {
	n, left := 0, t.bytes
	for ; left > bytes && n < len(t.batches)-1; n++ {
		left -= t.batches[n].bytes
	}
	t.drop(n)
}

// find returns the batch that holds the record at offset.
func (t *tail) find(offset model.Offset) (tailBatch, bool) {
	i := sort.Search(len(t.batches), func(i int) bool { return t.batches[i].Last() >= offset })
	if i == len(t.batches) || t.batches[i].First > offset {
		return tailBatch{}, false
	}
	return t.batches[i], true
}

// forget drops the batches before offset.
func (t *tail) forget(offset model.Offset) {
	n := 0
	for n < len(t.batches) && t.batches[n].Last() < offset {
		n++
	}
	if n > 0 {
		t.drop(n)
	}
}

func (t *tail) drop(n int) {
	for _, b := range t.batches[:n] {
		t.bytes -= b.bytes
	}
	t.batches = slices.Delete(t.batches, 0, n)
}
