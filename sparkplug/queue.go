package sparkplug

import "sync"

// Bounds of a queue. Beyond them the connection is not read, so that the broker feels it.
const (
	maxQueued      = 4096
	maxQueuedBytes = 8 << 20
)

// item is a message of a session, or the begin or the end of one.
type item struct {
	Topic
	body []byte
	turn turn
}

type turn uint8

const (
	turnUp   turn = iota + 1 // a session begins: what comes after is of it
	turnDown                 // it has ended
)

// queue holds messages from the connection until they are judged.
type queue struct {
	mu    sync.Mutex
	items []item
	bytes int
	more  chan struct{} // a hint that there are items
	room  chan struct{} // a hint that there is room
}

func newQueue() *queue { return &queue{more: make(chan struct{}, 1), room: make(chan struct{}, 1)} }

func hint(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// put adds an item. It waits for room until done is closed, and reports whether the item was added, and whether it waited.
func (q *queue) put(i item, done <-chan struct{}) (ok, waited bool) {
	for {
		q.mu.Lock()
		if i.turn != 0 || len(q.items) < maxQueued && q.bytes+len(i.body) <= maxQueuedBytes || len(q.items) == 0 {
			q.items = append(q.items, i)
			q.bytes += len(i.body)
			q.mu.Unlock()
			hint(q.more)
			return true, waited
		}
		q.mu.Unlock()
		waited = true
		select {
		case <-q.room:
		case <-done:
			return false, waited
		}
	}
}

// take returns all items.
func (q *queue) take() []item {
	q.mu.Lock()
	items := q.items
	q.items, q.bytes = nil, 0
	q.mu.Unlock()
	hint(q.room)
	return items
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}
