// Package links keeps listening time: monotonic time in which Weir could hear a device. It goes on over restarts from where the
// log left it, and stands still while the transports are closed. For a tenant it also stands still from a refusal of it on, and
// while a message of it waits to be taken in, until ten seconds have passed without either: what a device could not say is not
// its silence. For devices that are heard through a link which can be cut it stands still while that is down.
//
//	links.go  the time of the transports together, the holds of tenants, and the links that can be cut
//	waker.go  the record that is appended when a time is reached and nothing else arrives
package links

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// holdFor is how long a tenant's time stands still after a refusal.
const holdFor = 10 * time.Second

// Links is the listening time of all transports together. It is safe for concurrent use.
type Links struct {
	mu    sync.Mutex
	mono  func() time.Duration
	base  time.Duration
	since time.Duration
	open  bool
	turn  chan struct{} // closed when open changes

	held map[string]*hold
	up   map[string]bool // links by name; one that is not in it was never up

	moved   Moves // that no batch carries yet
	forming Moves // of the batch that is being synced
}

// Moves are what the batch that is formed next carries.
type Moves struct {
	Holds []Hold
	Turns []Turn
}

func (m *Moves) empty() bool { return len(m.Holds)+len(m.Turns) == 0 }

// maxTurns is how many turns of links may wait for a batch. With more, the time of a link that goes down stands still from the time before,
// as if it had not come up in between.
const maxTurns = 1024

// Turn says that a link came up, or went down.
type Turn struct {
	Link string
	At   int64 // listening time of the transports, in nanoseconds
	Up   bool
}

// Link is a connection that can be cut and that carries the messages of many devices: an external source, the uplink of an edge. It is
// down until it comes up. Its records name it as their source, or as the link that relayed them.
type Link struct {
	links *Links
	name  string
}

// Link returns the link of a name.
func (l *Links) Link(name string) Link { return Link{l, name} }

// Up lets the time of the devices that are heard through the link run.
func (k Link) Up() { k.links.turnLink(k.name, true) }

// Down stops it.
func (k Link) Down() { k.links.turnLink(k.name, false) }

func (l *Links) turnLink(name string, up bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up[name] == up {
		return
	}
	l.up[name] = up
	turns := l.moved.Turns
	if !up && len(turns) >= maxTurns {
		for i := len(turns) - 1; i >= 0; i-- {
			if turns[i].Link == name {
				l.moved.Turns = slices.Delete(turns, i, i+1)
				return
			}
		}
	}
	l.moved.Turns = append(turns, Turn{name, int64(l.now()), up})
}

// hold is a tenant whose time stands still.
type hold struct {
	last    time.Duration // listening time of the last refusal
	waiting int           // messages that wait to be taken in
}

// Hold says from when on the time of a tenant stands still, or from when on it runs again.
type Hold struct {
	Tenant string
	At     int64 // listening time of the transports, in nanoseconds
	Ends   bool
}

// New returns a listening time that stands still at 0. mono is the monotonic time that the stamps of records carry.
func New(mono func() time.Duration) *Links {
	return &Links{mono: mono, turn: make(chan struct{}), held: map[string]*hold{}, up: map[string]bool{}}
}

// Now returns the listening time in nanoseconds.
func (l *Links) Now() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(l.now())
}

func (l *Links) now() time.Duration {
	if !l.open {
		return l.base
	}
	return l.base + l.mono() - l.since
}

// Until returns how long it takes until the listening time reaches at, nothing while it stands still. turn is closed when it
// stops or begins to run.
func (l *Links) Until(at int64) (wait time.Duration, runs bool, turn <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, time.Duration(at)-l.now()), l.open, l.turn
}

// Resume sets the listening time to the last one in the log. It never sets it back.
func (l *Links) Resume(nanos int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := time.Duration(nanos) - l.now(); d > 0 {
		l.base += d
	}
}

// Span is a stretch in which the transports were open, or closed: what the listening time was at its start, and that instant in
// the monotonic time of the process.
type Span struct {
	Listening int64 // nanoseconds
	Mono      int64 // nanoseconds, of model.Stamp
	Open      bool
}

// At is the listening time of something received at mono.
func (s Span) At(mono int64) int64 {
	if !s.Open {
		return s.Listening
	}
	return s.Listening + max(0, mono-s.Mono)
}

// Span returns the current span.
func (l *Links) Span() Span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Span{Listening: int64(l.base), Mono: int64(l.since), Open: l.open}
}

// Open lets the time run; Shut stops it.
func (l *Links) Open() { l.set(true) }

// Shut stops the listening time.
func (l *Links) Shut() { l.set(false) }

func (l *Links) set(open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.base, l.since, l.open = l.now(), l.mono(), open
	close(l.turn)
	l.turn = make(chan struct{})
}

// Refused notes that a message of a tenant was not taken in.
func (l *Links) Refused(tenant string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hold(tenant)
}

// Waits notes that a message of a tenant waits to be taken in; done is called when it waits no longer.
func (l *Links) Waits(tenant string) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hold(tenant)
	h.waiting++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		h.waiting--
		h.last = l.now()
	}
}

func (l *Links) hold(tenant string) *hold {
	h := l.held[tenant]
	if h == nil {
		h = new(hold)
		l.held[tenant] = h
		l.moved.Holds = append(l.moved.Holds, Hold{Tenant: tenant, At: int64(l.now())})
	}
	h.last = l.now()
	return h
}

// end ends the holds that are over.
func (l *Links) end() {
	now := l.now()
	for _, tenant := range slices.SortedFunc(maps.Keys(l.held), cmp.Compare[string]) {
		if h := l.held[tenant]; h.waiting == 0 && now >= h.last+holdFor {
			l.moved.Holds = append(l.moved.Holds, Hold{Tenant: tenant, At: int64(h.last + holdFor), Ends: true})
			delete(l.held, tenant)
		}
	}
}

// Pending reports whether something moved that no batch carries yet.
func (l *Links) Pending() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
	return !l.moved.empty()
}

// Take returns what moved since the batch before, for the batch that is being formed. Settle says how that ended: what a failed batch
// had goes into the next one.
func (l *Links) Take() Moves {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
	l.forming, l.moved = l.moved, Moves{}
	return l.forming
}

// Settle notes whether the batch that Take was called for is in the log.
func (l *Links) Settle(ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !ok {
		l.moved = Moves{append(l.forming.Holds, l.moved.Holds...), append(l.forming.Turns, l.moved.Turns...)}
	}
	l.forming = Moves{}
}
