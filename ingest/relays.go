package ingest

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"weir/internal/ranges"
	"weir/internal/wire"
	"weir/model"
	"weir/store"
)

// What edges number is known for ever: a message that an edge sends again, because an acknowledgement was lost or because it was restored
// from an older copy of itself, is a repeat, whatever its payload. The numbers of a link are kept as ranges without a hole.

// Bounds of what is remembered of the numbers of edges.
const (
	// maxRanges is how many ranges a link has. With more the oldest hole is closed. An edge has at most 4,096 messages in flight, of which a
	// ceiling may refuse every other one: those it sends again, so that holes among them must stay. It does not come back to what lies below.
	maxRanges = 4096/2 + fewRanges
	fewRanges = 64
	maxSpare  = 65536 // ranges beyond fewRanges that all links have together; at the bound a link with fewRanges or more gets none
	maxRelays = 4096  // links that are remembered; with more the one that was heard least recently is forgotten
)

// relays remembers the numbers of all links.
type relays struct {
	mu    sync.Mutex // the applier changes them, and an edge that signs in asks for those of its link
	links map[relayKey]*relay
	spare int // ranges beyond fewRanges, of all links
	dirty bool
}

type relayKey struct{ tenant, link string }

type relay struct {
	ranges ranges.Set
	at     model.Nanos // when the link was heard last
}

// spare are the ranges of a link beyond fewRanges.
func (l *relay) spare() int { return max(0, len(l.ranges)-fewRanges) }

func newRelays() *relays { return &relays{links: map[relayKey]*relay{}} }

func relayOf(r *model.Record) relayKey { return relayKey{r.Account, r.Relay.Link} }

// isRelayed reports whether an edge has relayed the record before.
func (s *seen) isRelayed(r *model.Record) bool {
	return r.Relay != nil && s.relays.has(relayOf(r), r.Relay.Number)
}

// RelayedNumbers returns the numbers of a link of a tenant that are known, as of the newest record that was applied.
func (a *Applier) RelayedNumbers(tenant, link string) ranges.Set {
	s := a.results.seen.relays
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.links[relayKey{tenant, link}]; l != nil {
		return slices.Clone(l.ranges)
	}
	return nil
}

func (s *relays) has(key relayKey, number uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.links[key]
	return l != nil && l.ranges.Has(number)
}

// addRelayed remembers the number of a record.
func (s *seen) addRelayed(r *model.Record) {
	if r.Relay == nil {
		return
	}
	s.evicted += s.relays.add(relayOf(r), r.Relay.Number, r.Received.Wall)
}

// add remembers a number and returns how many links were forgotten for it.
func (s *relays) add(key relayKey, number uint64, at model.Nanos) (forgotten int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.links[key]
	if l == nil {
		// Forget one link rather than refuse a new one.
		if len(s.links) >= maxRelays {
			forgotten = s.forget()
		}
		l = &relay{}
		s.links[key] = l
	}
	l.at = max(l.at, at)
	limit := maxRanges
	before := l.spare()
	if s.spare >= maxSpare && len(l.ranges) >= fewRanges {
		limit = len(l.ranges)
	}
	// Over the limit the oldest hole closes: numbers in it count as known.
	l.ranges.Add(number, limit)
	s.spare += l.spare() - before
	s.dirty = true
	return forgotten
}

// count is how many ranges all links have together.
func (s *relays) count() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		n += len(l.ranges)
	}
	return n
}

// forget forgets the link that was heard least recently, with the lock held.
func (s *relays) forget() int {
	var oldest relayKey
	at := model.Nanos(math.MaxInt64)
	for key, l := range s.links {
		if l.at < at || l.at == at && compareRelays(key, oldest) < 0 {
			oldest, at = key, l.at
		}
	}
	s.spare -= s.links[oldest].spare()
	delete(s.links, oldest)
	return 1
}

func compareRelays(a, b relayKey) int {
	if c := strings.Compare(a.tenant, b.tenant); c != 0 {
		return c
	}
	return strings.Compare(a.link, b.link)
}

func (s *relays) evictTenant(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, l := range s.links {
		if key.tenant == tenant {
			s.spare -= l.spare()
			delete(s.links, key)
			s.dirty = true
		}
	}
}

// freeze returns the page of all links, nil where nothing has changed since the last one.
func (s *relays) freeze(now model.Nanos) []store.SeenPage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dirty {
		return nil
	}
	s.dirty = false
	keys := make([]relayKey, 0, len(s.links))
	for key := range s.links {
		keys = append(keys, key)
	}
	// One order, so that a replay writes the same bytes.
	slices.SortFunc(keys, compareRelays)
	b := binary.AppendUvarint([]byte{seenVersion}, uint64(len(keys)))
	for _, key := range keys {
		l := s.links[key]
		b = wire.AppendString(wire.AppendString(b, key.tenant), key.link)
		b = binary.AppendVarint(b, int64(l.at))
		b = binary.AppendUvarint(b, uint64(len(l.ranges)))
		from := uint64(0)
		for _, r := range l.ranges {
			b = binary.AppendUvarint(binary.AppendUvarint(b, r[0]-from), r[1]-r[0])
			from = r[1]
		}
	}
	return []store.SeenPage{{Kind: seenRelays, LastTime: now.Micros(), Body: b}}
}

// load takes in the page of an earlier checkpoint.
func (s *relays) load(p store.SeenPage) error {
	r := wire.NewReader(p.Body[1:])
	for range r.Count(4) {
		key := relayKey{r.String(), r.String()}
		l := &relay{at: model.Nanos(r.Varint())}
		from := uint64(0)
		for range r.Count(2) {
			first := from + r.Uvarint()
			last := first + r.Uvarint()
			// Only ranges in ascending order are what freeze writes.
			if first < from || last < first || len(l.ranges) > 0 && first <= from || len(l.ranges) >= maxRanges {
				return fmt.Errorf("the numbers of link %s are not in order", key.link)
			}
			l.ranges = append(l.ranges, [2]uint64{first, last})
			from = last
		}
		if len(s.links) < maxRelays {
			s.links[key] = l
			s.spare += l.spare()
		}
	}
	return r.End()
}
