package edge

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/model"
)

// Bounds of the book.
const (
	maxLines  = 4096 // of hours, tenants and transports
	hourLines = 72   // hours that are kept as such; older ones are counted together, in days
)

// lineKey is what the book counts by.
type lineKey struct {
	Hour      int64  `json:"hour"` // of receipt, hours since 1970
	Tenant    string `json:"tenant"`
	Transport string `json:"transport"`
}

func lineOf(r *record) lineKey {
	return lineKey{Hour: r.wall.Hour(), Tenant: r.tenant, Transport: r.transport}
}

// line is how many messages came in, and how they ended.
type line struct {
	lineKey
	Received int64 `json:"received"`
	Accepted int64 `json:"accepted"` // of them in the log
	// Turned are those that ended at the door: "refused:REASON", "duplicate". Ended are those that left the log: "stored",
	// "dead-letter:REASON", "dropped:REASON".
	Turned map[string]int64 `json:"turned,omitempty"`
	Ended  map[string]int64 `json:"ended,omitempty"`
}

// waiting is how many messages of the log have not ended.
func (l *line) waiting() int64 {
	n := l.Accepted
	for _, ended := range l.Ended {
		n -= ended
	}
	return n
}

// book is the ledger of an edge.
type book struct {
	mu      sync.Mutex
	lines   map[lineKey]*line
	through model.Offset // accepted is complete up to here
	tally   uint64       // number of the newest message that was counted, of a platform
	dirty   bool
}

func newBook(s *saved) *book {
	b := &book{lines: map[lineKey]*line{}, through: s.AcceptedThrough, tally: s.Tally}
	for _, l := range s.Lines {
		b.lines[l.lineKey] = &line{l.lineKey, l.Received, l.Accepted, maps.Clone(l.Turned), maps.Clone(l.Ended)}
	}
	return b
}

// at returns the line of a key, with the lock held. What is beyond the bound is counted together.
func (b *book) at(key lineKey) *line {
	b.dirty = true
	if l := b.lines[key]; l != nil {
		return l
	}
	if len(b.lines) >= maxLines {
		b.fold(key.Hour)
	}
	if len(b.lines) >= maxLines { // tenants that a sender made up
		if key.Tenant = ""; b.lines[key] != nil {
			return b.lines[key]
		}
	}
	l := &line{lineKey: key}
	b.lines[key] = l
	return l
}

// fold counts the hours that are long over in days, and when that is not enough in one.
func (b *book) fold(now int64) {
	const day = 24
	for _, to := range []func(int64) int64{func(h int64) int64 { return h - h%day }, func(int64) int64 { return 0 }} {
		if len(b.lines) < maxLines {
			return
		}
		for key, l := range b.lines {
			if key.Hour > now-hourLines || to(key.Hour) == key.Hour {
				continue
			}
			delete(b.lines, key)
			key.Hour = to(key.Hour)
			into := b.lines[key]
			if into == nil {
				into = &line{lineKey: key}
				b.lines[key] = into
			}
			into.add(l)
		}
	}
}

func (l *line) add(o *line) {
	l.Received += o.Received
	l.Accepted += o.Accepted
	for word, n := range o.Turned {
		count(&l.Turned, word, n)
	}
	for word, n := range o.Ended {
		count(&l.Ended, word, n)
	}
}

func count(in *map[string]int64, word string, n int64) {
	if *in == nil {
		*in = map[string]int64{}
	}
	(*in)[word] += n
}

// received counts a message where it was parsed.
func (b *book) received(key lineKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at(key).Received++
}

// accepted counts a message whose record is synced. Calls are in the order of the offsets.
func (b *book) accepted(key lineKey, at model.Offset) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at(key).Accepted++
	b.through = at
}

// turnedAway counts a message that did not get into the log.
func (b *book) turnedAway(key lineKey, word string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	count(&b.at(key).Turned, word, 1)
}

// ended counts a message that left the log.
func (b *book) ended(key lineKey, word string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	count(&b.at(key).Ended, word, 1)
}

// recovered makes good what a kill left: messages that were received and had no fate are gone with their connections.
func (b *book) recovered(last model.Offset) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.through = max(b.through, last)
	for _, l := range b.lines {
		l.Received = l.Accepted
		for _, n := range l.Turned {
			l.Received += n
		}
	}
}

// erase forgets a tenant.
func (b *book) erase(tenant string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.lines {
		if key.Tenant == tenant {
			delete(b.lines, key)
			b.dirty = true
		}
	}
}

func (b *book) changed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dirty
}

// copy returns the lines in their order, and up to where they count what was accepted.
func (b *book) copy(saves bool) (all []line, through place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lines {
		all = append(all, line{l.lineKey, l.Received, l.Accepted, maps.Clone(l.Turned), maps.Clone(l.Ended)})
	}
	if saves {
		b.dirty = false
	}
	slices.SortFunc(all, func(a, c line) int {
		return cmp.Or(cmp.Compare(a.Hour, c.Hour), cmp.Compare(a.Tenant, c.Tenant), cmp.Compare(a.Transport, c.Transport))
	})
	return all, place{b.through, b.tally}
}

// LedgerLine is what became of the messages of an hour, a tenant and a transport.
type LedgerLine struct {
	Hour      time.Time
	Tenant    string
	Transport string
	Received  int64
	Outcomes  map[string]int64            // stored, duplicate, dead-letter, refused, dropped, waiting
	Reasons   map[string]map[string]int64 // by outcome
}

// Missing is by how many messages the line does not balance.
func (l *LedgerLine) Missing() int64 {
	n := l.Received
	for _, ended := range l.Outcomes {
		n -= ended
	}
	return n
}

// Ledger returns the ledger.
func (e *Edge) Ledger() []LedgerLine {
	lines, _ := e.book.copy(false)
	out := make([]LedgerLine, len(lines))
	for i, l := range lines {
		o := LedgerLine{Hour: time.Unix(l.Hour*3600, 0).UTC(), Tenant: l.Tenant, Transport: l.Transport, Received: l.Received, Outcomes: map[string]int64{}, Reasons: map[string]map[string]int64{}}
		if n := l.waiting(); n != 0 {
			o.Outcomes["waiting"] = n
		}
		for _, words := range []map[string]int64{l.Turned, l.Ended} {
			for word, n := range words {
				outcome, reason, _ := strings.Cut(word, ":")
				o.Outcomes[outcome] += n
				if reason != "" {
					if o.Reasons[outcome] == nil {
						o.Reasons[outcome] = map[string]int64{}
					}
					o.Reasons[outcome][reason] += n
				}
			}
		}
		out[i] = o
	}
	return out
}
