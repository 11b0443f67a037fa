package ingest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"weir/internal/wire"
	"weir/model"
	"weir/store"
)

// Kinds of seen pages.
const (
	seenAltIDs  = "altid"
	seenRepeats = "repeat"
)

const (
	seenVersion    = 1
	altIDVersion   = 2         // of pages of altIds; version 1 is read as well
	altIDCost      = 40        // bytes of memory an altId takes, its share of the table included
	repeatsMost    = 1024      // messages remembered per client
	repeatsBytes   = 16 << 20  // memory of all clients together, unless the configuration says otherwise
	repeatsPage    = 256 << 10 // bytes of a page on disk
	clientOverhead = 200
)

// seen remembers what came in already: altIds for a span of receive time, bounded in bytes, and for each MQTT client the
// last repeats it may send again. It is a result like any other: written with the head, rebuilt by replay.
type seen struct {
	window     time.Duration
	maxBytes   int64
	maxRepeats int64

	altIDs map[[16]byte]struct{}
	pages  []altIDPage // sealed, oldest first
	open   altIDPage   // since the last head
	key    []byte      // scratch

	clients     map[string]*repeats
	oldest      *repeats // least recently active first
	newest      *repeats
	clientBytes int64
	forgotten   int   // clients forgotten for want of memory since the last head
	written     int64 // bytes of the repeat pages that are in the store
}

// repeats is the ring of one client, in a list by activity.
type repeats struct {
	client     string
	ring       []uint64
	next       int
	added      int // since the last head
	at         model.Nanos
	prev, more *repeats
}

func newSeen(window time.Duration, maxBytes, maxRepeats int64) *seen {
	return &seen{window: window, maxBytes: maxBytes, maxRepeats: cmp.Or(maxRepeats, repeatsBytes), altIDs: map[[16]byte]struct{}{}, clients: map[string]*repeats{}}
}

// repeatHash identifies a message among those of its client.
func repeatHash(r *model.Record) uint64 {
	return binary.LittleEndian.Uint64(r.Hash[:8]) ^ uint64(r.PacketID)<<48 ^ uint64(r.PacketID)
}

// isRepeat reports whether the record says it may be a repeat and equals one of its client's last messages.
func (s *seen) isRepeat(r *model.Record) bool {
	if !r.Dup || r.PacketID == 0 {
		return false
	}
	c := s.clients[r.ClientID]
	return c != nil && slices.Contains(c.ring, repeatHash(r))
}

// addRepeat remembers the record as one of its client's last messages.
func (s *seen) addRepeat(r *model.Record) {
	if r.PacketID == 0 || r.ClientID == "" {
		return
	}
	c := s.client(r.ClientID)
	c.at = max(c.at, r.Received.Wall)
	s.push(c, repeatHash(r))
	c.added = min(c.added+1, repeatsMost)
	for s.clientBytes > s.maxRepeats && s.oldest != c {
		s.forget(s.oldest)
		s.forgotten++
	}
}

// tell shows what is remembered. now is the receive time of the record at which the head is cut.
func (s *seen) tell(m *applyMetrics, now model.Nanos) {
	m.altIDs.Set(float64(len(s.altIDs)))
	m.clients.Set(float64(len(s.clients)))
	m.forgotten.Add(float64(s.forgotten))
	s.forgotten = 0
	if len(s.pages) > 0 {
		m.altIDSpan.Set(time.Duration(now - s.pages[0].last).Seconds())
	}
}

func (s *seen) client(id string) *repeats {
	c := s.clients[id]
	if c == nil {
		c = &repeats{client: id}
		s.clients[id] = c
		s.clientBytes += clientOverhead + int64(len(id))
	} else {
		s.unlink(c)
	}
	if c.prev = s.newest; c.prev != nil {
		c.prev.more = c
	} else {
		s.oldest = c
	}
	s.newest = c
	return c
}

func (s *seen) unlink(c *repeats) {
	if c.prev != nil {
		c.prev.more = c.more
	} else {
		s.oldest = c.more
	}
	if c.more != nil {
		c.more.prev = c.prev
	} else {
		s.newest = c.prev
	}
	c.prev, c.more = nil, nil
}

func (s *seen) forget(c *repeats) {
	s.unlink(c)
	delete(s.clients, c.client)
	s.clientBytes -= clientOverhead + int64(len(c.client)) + 8*int64(cap(c.ring))
}

func (s *seen) push(c *repeats, h uint64) {
	if len(c.ring) < repeatsMost {
		before := cap(c.ring)
		c.ring = append(c.ring, h)
		s.clientBytes += 8 * int64(cap(c.ring)-before)
		c.next = len(c.ring) % repeatsMost
		return
	}
	c.ring[c.next] = h
	c.next = (c.next + 1) % repeatsMost
}

// last returns the newest n entries of a ring, oldest first.
func (c *repeats) last(n int) []uint64 {
	out := make([]uint64, 0, n)
	for i := range n {
		at := c.next - n + i
		if at < 0 {
			at += len(c.ring)
		}
		out = append(out, c.ring[at%len(c.ring)])
	}
	return out
}

// altIDBytes is the memory of the altIds.
func (s *seen) altIDBytes() int64 { return altIDCost * int64(len(s.altIDs)) }

// openBytes is what waits in memory to be written with the head.
func (s *seen) openBytes() int64 { return 16*int64(len(s.open.hashes)) + int64(len(s.open.keys)) }

// frozenSeen is what a head writes of what was seen.
type frozenSeen struct {
	altIDs     altIDPage
	repeats    []store.SeenPage
	dropBefore model.Micros // pages of altIds whose newest is older go
	renew      bool         // the repeat pages of this head replace all earlier ones
}

// freeze seals what came since the last head. now is the receive time of the record at which the head is cut; what lies
// too far behind it is forgotten.
func (s *seen) freeze(now model.Nanos) frozenSeen {
	var f frozenSeen
	if len(s.open.hashes) > 0 {
		f.altIDs, s.open = s.open, altIDPage{}
		s.pages = append(s.pages, altIDPage{hashes: f.altIDs.hashes, last: f.altIDs.last})
	}
	oldest := now - model.Nanos(s.window)
	for len(s.pages) > 0 && (s.pages[0].last < oldest || int64(len(s.altIDs))*altIDCost > s.maxBytes) {
		for _, h := range s.pages[0].hashes {
			delete(s.altIDs, h)
		}
		oldest = max(oldest, s.pages[0].last+1)
		s.pages = s.pages[1:]
	}
	f.dropBefore = oldest.Micros()
	rings := s.freezeRepeats(now, func(c *repeats) int { return c.added })
	if n := pageBytes(rings); s.written+n > 2*s.clientBytes+repeatsPage || s.written > repeatsPage && 2*n > s.clientBytes {
		// Most of what is in the store was overtaken, or nearly all is to be written anyhow: all rings are written anew, and the
		// old pages go.
		rings, f.renew, s.written = s.freezeRepeats(now, func(c *repeats) int { return len(c.ring) }), true, 0
	}
	s.written += pageBytes(rings)
	for c := s.oldest; c != nil; c = c.more {
		c.added = 0
	}
	f.repeats = rings
	return f
}

// pages packs what is to be written. It may take a while, and is the writing goroutine's work.
func (f *frozenSeen) pages() []store.SeenPage {
	if len(f.altIDs.hashes) == 0 {
		return f.repeats
	}
	return append([]store.SeenPage{{Kind: seenAltIDs, LastTime: f.altIDs.last.Micros(), Body: f.altIDs.encode()}}, f.repeats...)
}

func pageBytes(pages []store.SeenPage) (n int64) {
	for _, p := range pages {
		n += int64(len(p.Body))
	}
	return n
}

// freezeRepeats packs the newest entries of each client, as many as count says, least recently active client first.
func (s *seen) freezeRepeats(now model.Nanos, count func(*repeats) int) (add []store.SeenPage) {
	body := []byte{seenVersion}
	flush := func() {
		if len(body) > 1 {
			add = append(add, store.SeenPage{Kind: seenRepeats, LastTime: now.Micros(), Body: body})
			body = []byte{seenVersion}
		}
	}
	for c := s.oldest; c != nil; c = c.more {
		n := min(count(c), len(c.ring))
		if n == 0 {
			continue
		}
		body = wire.AppendString(body, c.client)
		body = binary.AppendVarint(body, int64(c.at))
		body = binary.AppendUvarint(body, uint64(n))
		for _, h := range c.last(n) {
			body = binary.LittleEndian.AppendUint64(body, h)
		}
		if len(body) > repeatsPage {
			flush()
		}
	}
	flush()
	return add
}

// load takes in a page that was written with an earlier head; pages come oldest first.
func (s *seen) load(p store.SeenPage) error {
	r := wire.NewReader(p.Body)
	version, known, load := r.Byte(), byte(seenVersion), s.loadRepeats
	switch p.Kind {
	case seenAltIDs:
		known, load = altIDVersion, s.loadAltIDs
	case seenRepeats:
	default:
		return fmt.Errorf("seen page %d is of unknown kind %q", p.ID, p.Kind)
	}
	if version < seenVersion || version > known {
		return fmt.Errorf("seen page %d has format version %d, this Weir knows %d", p.ID, version, known)
	}
	if err := load(p); err != nil {
		return fmt.Errorf("seen page %d is damaged: %w", p.ID, err)
	}
	return nil
}

func (s *seen) loadRepeats(p store.SeenPage) error {
	s.written += int64(len(p.Body))
	r := wire.NewReader(p.Body[1:])
	for r.Err() == nil && r.Len() > 0 {
		c := s.client(r.String())
		c.at = model.Nanos(r.Varint())
		for range r.Count(8) {
			s.push(c, r.Uint64())
		}
	}
	return r.End()
}
