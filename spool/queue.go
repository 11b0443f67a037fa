package spool

// queue contains the entries for the committer, in order, bounded by the unsynced bound. Gatherer.mu guards it.
type queue struct {
	entries []queued
	head    int
	bytes   int64 // data of the queued entries
}

// queued is a queued entry. An entry with follows belongs to the batch of the entry before it.
type queued struct {
	Entry
	follows bool
}

// keptEntries is the capacity that the queue keeps for the next burst.
const keptEntries = 16 << 10

func (q *queue) len() int { return len(q.entries) - q.head }

// push adds a group and reports whether the queue was empty before.
func (q *queue) push(entries []Entry) bool {
	first := q.len() == 0
	for i, e := range entries {
		q.entries = append(q.entries, queued{e, i > 0})
		q.bytes += int64(len(e.Data))
	}
	return first
}

// take moves whole groups of up to limit bytes, at least one, into into.
func (q *queue) take(into []Entry, limit int64) []Entry {
	end, bytes := q.head, int64(0)
	for end < len(q.entries) {
		size, next := q.group(end)
		if end > q.head && bytes+size > limit {
			break
		}
		bytes += size
		end = next
	}
	for i := q.head; i < end; i++ {
		into = append(into, q.entries[i].Entry)
	}
	clear(q.entries[q.head:end])
	q.head, q.bytes = end, q.bytes-bytes
	if q.head == len(q.entries) {
		q.entries, q.head = q.entries[:0], 0
		if cap(q.entries) > keptEntries {
			q.entries = nil // a burst of small records is over
		}
	}
	return into
}

// group returns the bytes of the group that begins at i, and where the next one begins.
func (q *queue) group(i int) (size int64, next int) {
	for next = i; next < len(q.entries) && (next == i || q.entries[next].follows); next++ {
		size += int64(len(q.entries[next].Data))
	}
	return size, next
}
