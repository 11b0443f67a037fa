package spool

import (
	"slices"
	"sort"

	"weir/model"
)

// Tail contains the newest batches as they were appended, and the followers that read them there. Beyond its bound the
// oldest batches are dropped: followers that need them read from the driver's storage. The driver's lock guards it.
type Tail struct {
	max       int64
	bytes     int64
	batches   []tailBatch
	followers map[*Follower]struct{}
	changed   chan struct{} // closed by Announce; nil while no reader waits
}

type tailBatch struct {
	*Batch
	through int64
	bytes   int64 // memory, by estimate
}

// tailRecordBytes is the assumed memory of a record besides its data: the decoded value is a few structs and
// strings of about the size of the data.
const tailRecordBytes = 256

// NewTail returns an empty tail of at most so many bytes.
func NewTail(maxBytes int64) *Tail {
	return &Tail{max: maxBytes, followers: map[*Follower]struct{}{}}
}

// Bytes returns the memory of the batches, by estimate.
func (t *Tail) Bytes() int64 { return t.bytes }

// Push adds the next batch. through is the weight of the log up to and including it.
func (t *Tail) Push(b *Batch, through int64) {
	cost := int64(len(b.Meta))
	for i := range b.Records {
		cost += 2*int64(len(b.Records[i].Data)) + tailRecordBytes
	}
	t.batches = append(t.batches, tailBatch{b, through, cost})
	t.bytes += cost
	if t.bytes > t.max {
		t.shrink(t.max - t.max/8)
	}
}

// shrink drops the oldest until at most bytes are held; it keeps the newest batch in any case. It drops more than
// necessary, so that many small batches are not moved one by one.
func (t *Tail) shrink(bytes int64) {
	n, left := 0, t.bytes
	for ; left > bytes && n < len(t.batches)-1; n++ {
		left -= t.batches[n].bytes
	}
	t.drop(n)
}

// Find returns the batch that holds the record at offset and the weight of the log up to and including it, nil when the
// tail does not have it.
func (t *Tail) Find(offset model.Offset) (b *Batch, through int64) {
	i := sort.Search(len(t.batches), func(i int) bool { return t.batches[i].Last() >= offset })
	if i == len(t.batches) || t.batches[i].First > offset {
		return nil, 0
	}
	return t.batches[i].Batch, t.batches[i].through
}

// DropBefore drops the batches before offset.
func (t *Tail) DropBefore(offset model.Offset) {
	n := 0
	for n < len(t.batches) && t.batches[n].Last() < offset {
		n++
	}
	if n > 0 {
		t.drop(n)
	}
}

func (t *Tail) drop(n int) {
	for _, b := range t.batches[:n] {
		t.bytes -= b.bytes
	}
	t.batches = slices.Delete(t.batches, 0, n)
}

// Announce wakes the readers that wait for Changed.
func (t *Tail) Announce() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// Changed returns a channel that the next Announce closes.
func (t *Tail) Changed() <-chan struct{} {
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	return t.changed
}

// Follower is the position of a reader. A batch stays in the tail until every follower has read it.
type Follower struct {
	Next  model.Offset
	Epoch uint32 // of the last batch read, 0 before the first
}

// Follow adds a follower that reads from an offset on.
func (t *Tail) Follow(from model.Offset) *Follower {
	f := &Follower{Next: from}
	t.followers[f] = struct{}{}
	return f
}

// Leave removes a follower.
func (t *Tail) Leave(f *Follower) { delete(t.followers, f) }

// Moved sets f after b and drops the batches that every follower has read.
func (t *Tail) Moved(f *Follower, b *Batch) {
	f.Next, f.Epoch = b.Last()+1, b.Epoch
	slowest := f.Next
	for other := range t.followers {
		slowest = min(slowest, other.Next)
	}
	t.DropBefore(slowest)
}
