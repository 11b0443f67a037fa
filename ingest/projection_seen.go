package ingest

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"weir/internal/wire"
	"weir/model"
	"weir/store"
)

// Kinds of seen pages.
const (
	seenAltIDs  = "altid"
	seenRepeats = "repeat"
	seenRelays  = "relay"
)

const (
	seenVersion      = 1
	repeatVersion    = 2         // of pages of repeats; version 1 is read as well
	altIDVersion     = 2         // of pages of altIds; version 1 is read as well
	altIDCost        = 40        // bytes of memory an altId takes, its share of the table included
	repeatsPerClient = 1024      // messages remembered per client
	repeatsBytes     = 16 << 20  // memory of all clients together, unless the configuration says otherwise
	repeatsPage      = 256 << 10 // bytes of a page on disk
	clientOverhead   = 200
)

// seenProjection keeps what was seen before: repeats and altIds as pages, the altIds of a checkpoint on one of them.
type seenProjection struct {
	ProjectionBase
	*seen
	metrics *applyMetrics
	frozen  frozenSeen
	gen     uint64

	altIDsHeld, repeatsHeld atomic.Int64 // memory, as of the newest checkpoint
}

func newSeenProjection(cfg *ApplyConfig, m *applyMetrics) *seenProjection {
	return &seenProjection{seen: newSeen(cfg.DedupeWindow, int64(cfg.DedupeMaxBytes), cfg.RepeatsBytes), metrics: m}
}

// Load implements Projection.
func (p *seenProjection) Load(tx store.Tx, at Checkpoint) error {
	return store.SeenPages(tx, at.Generation, p.seen.load)
}

// Record implements Projection. A message with an altId is remembered when it is stored, so that a retry of what proved
// unfit is judged again.
func (p *seenProjection) Record(_ context.Context, e *Event, _ *Effects) error {
	// Names of a deleted tenant must not stay on disk.
	if e.Change.EndsTenant() {
		p.evictTenant(e.Change.Key)
	}
	r := e.Record
	if e.firing {
		p.addRelayed(r)
	}
	if e.Outcome == "" {
		return nil
	}
	if r.Relay != nil {
		p.metrics.relayed.Inc()
		if e.repeat {
			p.metrics.relayedAgain.Inc()
		}
	}
	// A repeat is known already.
	if !e.repeat {
		p.addRepeat(r)
		p.addRelayed(r)
	}
	if m := e.kept(); m != nil && m.AltID != "" {
		p.remember(e.altID, p.key, r.Received.Wall)
	}
	return nil
}

// knows reports whether a message with an altId is known. It leaves hash and key for Record.
func (p *seenProjection) knows(e *Event) bool {
	p.key = appendAltIDKey(p.key[:0], e.TenantID, e.DeviceID, e.Record.Message)
	e.altID = altIDHash(p.key)
	_, known := p.altIDs[e.altID]
	return known
}

// PendingBytes implements Pending.
func (p *seenProjection) PendingBytes() int64 { return p.openBytes() }

// Freeze implements Projection.
func (p *seenProjection) Freeze(at Checkpoint) {
	p.frozen, p.gen = p.seen.freeze(at.Received), at.Generation
	p.report(p.metrics, at.Received)
	p.altIDsHeld.Store(p.altIDBytes())
	p.repeatsHeld.Store(p.clientBytes)
}

// Write implements Projection.
func (p *seenProjection) Write(_ context.Context, write WriteFunc) error {
	if err := write(func(tx store.Tx) error { return store.SweepUnpublishedSeenPages(tx, p.gen-1) }); err != nil {
		return err
	}
	return inSlices(write, p.frozen.pages(), func(tx store.Tx, page store.SeenPage) error { return store.AddSeenPage(tx, p.gen, page) })
}

// Publish implements Projection: what the frozen pages replace goes with it.
func (p *seenProjection) Publish(tx store.Tx) error {
	if err := store.DropSeenPages(tx, seenAltIDs, p.frozen.dropBefore); err != nil {
		return err
	}
	// Numbers of edges and, when renewed, repeats replace all pages before them.
	if p.frozen.relays != nil {
		if err := store.ReplaceSeenPages(tx, p.gen, seenRelays); err != nil {
			return err
		}
	}
	if !p.frozen.renew {
		return nil
	}
	return store.ReplaceSeenPages(tx, p.gen, seenRepeats)
}

// Release implements Projection.
func (p *seenProjection) Release(context.Context, WriteFunc) error {
	p.frozen = frozenSeen{}
	return nil
}

// seen remembers what came in already: altIds for a span of receive time, bounded in bytes, and for each MQTT client the
// last messages, which it may send again.
type seen struct {
	window     time.Duration
	maxBytes   int64
	maxRepeats int64

	altIDs map[[16]byte]struct{}
	pages  []altIDPage // sealed, oldest first
	open   altIDPage   // since the last checkpoint
	key    []byte      // scratch

	clients     map[string]*repeats
	oldest      *repeats // least recently active first
	newest      *repeats
	clientBytes int64
	evicted     int   // clients evicted for want of memory since the last checkpoint
	renew       bool  // the next checkpoint writes all repeats again
	written     int64 // bytes of the repeat pages that are in the store

	relays *relays
}

// repeats is the ring of one client, in a list by activity.
type repeats struct {
	client     string
	ring       []uint64
	legacy     []uint64 // of pages of version 1, until the client has sent as much as it can have in flight
	next       int
	added      int // since the last checkpoint
	at         model.Nanos
	prev, more *repeats
}

func newSeen(window time.Duration, maxBytes, maxRepeats int64) *seen {
	return &seen{
		window:     window,
		maxBytes:   maxBytes,
		maxRepeats: cmp.Or(maxRepeats, repeatsBytes),
		altIDs:     map[[16]byte]struct{}{},
		clients:    map[string]*repeats{},
		relays:     newRelays(),
	}
}

// repeatHash identifies a message among those of its client: the packet identifier in the upper 16 bits, below it a part of the hash
// of the payload.
func repeatHash(r *model.Record) uint64 {
	return binary.LittleEndian.Uint64(r.Hash[:8])<<16>>16 | uint64(r.PacketID)<<48
}

// legacyHash is repeatHash in pages of version 1.
func legacyHash(r *model.Record) uint64 {
	return binary.LittleEndian.Uint64(r.Hash[:8]) ^ uint64(r.PacketID)<<48 ^ uint64(r.PacketID)
}

// legacyFor is how many messages a client sends until none of before can be in flight.
const legacyFor = 256

// isRepeat reports whether the record says that it may be a repeat, and equals the newest message of its client with that packet
// identifier: an identifier is used again only when the message before was acknowledged to the client.
func (s *seen) isRepeat(r *model.Record) bool {
	if !r.Dup || r.PacketID == 0 {
		return false
	}
	c := s.clients[r.ClientID]
	if c == nil {
		return false
	}
	// Search from the newest: an older one with the same packet id was acknowledged.
	h := repeatHash(r)
	for i := range len(c.ring) {
		if one := c.ring[(c.next+2*len(c.ring)-1-i)%len(c.ring)]; one>>48 == h>>48 {
			return one == h
		}
	}
	return slices.Contains(c.legacy, legacyHash(r))
}

// addRepeat remembers the record as one of its client's last messages.
func (s *seen) addRepeat(r *model.Record) {
	if r.PacketID == 0 || r.ClientID == "" {
		return
	}
	c := s.client(r.ClientID)
	c.at = max(c.at, r.Received.Wall)
	s.push(c, repeatHash(r))
	// By now the client cannot resend anything from before the change of format.
	if c.legacy != nil && len(c.ring) >= legacyFor {
		s.clientBytes -= 8 * int64(cap(c.legacy))
		c.legacy = nil
	}
	c.added = min(c.added+1, repeatsPerClient)
	// Forget whole clients, those first that were silent longest.
	for s.clientBytes > s.maxRepeats && s.oldest != c {
		s.evict(s.oldest)
		s.evicted++
	}
}

// report sets the metrics. now is the newest receive time.
func (s *seen) report(m *applyMetrics, now model.Nanos) {
	m.altIDs.Set(float64(len(s.altIDs)))
	m.clients.Set(float64(len(s.clients)))
	m.uplinks.Set(float64(len(s.relays.links)))
	m.ranges.Set(float64(s.relays.count()))
	m.evicted.Add(float64(s.evicted))
	s.evicted = 0
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
	// Put it at the newest end of the list.
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

func (s *seen) evict(c *repeats) {
	s.unlink(c)
	delete(s.clients, c.client)
	s.clientBytes -= clientOverhead + int64(len(c.client)) + 8*int64(cap(c.ring)+cap(c.legacy))
}

// evictTenant evicts the clients of a tenant that has ended. Their pages hold the names of devices, so the next checkpoint replaces all.
func (s *seen) evictTenant(tenant string) {
	for id, c := range s.clients {
		if parts := strings.SplitN(id, ":", 3); len(parts) == 3 && parts[1] == tenant { // instance:tenant:device…
			s.evict(c)
		}
	}
	s.renew = true
	s.relays.evictTenant(tenant)
}

func (s *seen) push(c *repeats, h uint64) {
	if len(c.ring) < repeatsPerClient {
		before := cap(c.ring)
		c.ring = append(c.ring, h)
		s.clientBytes += 8 * int64(cap(c.ring)-before)
		c.next = len(c.ring) % repeatsPerClient
		return
	}
	c.ring[c.next] = h
	c.next = (c.next + 1) % repeatsPerClient
}

// pushLegacy adds an entry of a page of version 1; pages come oldest first.
func (s *seen) pushLegacy(c *repeats, h uint64) {
	if len(c.legacy) >= repeatsPerClient {
		c.legacy = c.legacy[1:]
	}
	before := cap(c.legacy)
	c.legacy = append(c.legacy, h)
	s.clientBytes += 8 * int64(cap(c.legacy)-before)
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

// openBytes is what waits in memory for a checkpoint.
func (s *seen) openBytes() int64 { return 16*int64(len(s.open.hashes)) + int64(len(s.open.keys)) }

// frozenSeen is what a checkpoint writes of what was seen.
type frozenSeen struct {
	altIDs     altIDPage
	repeats    []store.SeenPage
	relays     []store.SeenPage // nil: they are as they were
	dropBefore model.Micros     // pages of altIds whose newest is older are removed
	renew      bool             // the repeat pages replace all earlier ones
}

// freeze seals what came since the last checkpoint. now is the newest receive time; what lies too far before it is
// removed.
func (s *seen) freeze(now model.Nanos) frozenSeen {
	var f frozenSeen
	if len(s.open.hashes) > 0 {
		f.altIDs, s.open = s.open, altIDPage{}
		s.pages = append(s.pages, altIDPage{hashes: f.altIDs.hashes, last: f.altIDs.last})
	}
	// Whole pages leave memory: when their newest entry is too old, or memory is short.
	oldest := now - model.Nanos(s.window)
	for len(s.pages) > 0 && (s.pages[0].last < oldest || int64(len(s.altIDs))*altIDCost > s.maxBytes) {
		for _, h := range s.pages[0].hashes {
			delete(s.altIDs, h)
		}
		oldest = max(oldest, s.pages[0].last+1)
		s.pages = s.pages[1:]
	}
	f.dropBefore = oldest.Micros()
	// Write only what each client has added since.
	rings := s.pack(repeatVersion, now, func(c *repeats) []uint64 { return c.last(min(c.added, len(c.ring))) })
	if n := pageBytes(rings); s.renew || s.written+n > 2*s.clientBytes+repeatsPage || s.written > repeatsPage && 2*n > s.clientBytes {
		// Most of what is in the store was overtaken, or nearly all is to be written anyhow: all rings are written again, and
		// the old pages are removed.
		legacy := s.pack(seenVersion, now, func(c *repeats) []uint64 { return c.legacy })
		rings = append(legacy, s.pack(repeatVersion, now, func(c *repeats) []uint64 { return c.last(len(c.ring)) })...)
		f.renew, s.renew, s.written = true, false, 0
	}
	s.written += pageBytes(rings)
	// Count again from this checkpoint.
	for c := s.oldest; c != nil; c = c.more {
		c.added = 0
	}
	f.repeats, f.relays = rings, s.relays.freeze(now)
	return f
}

// pages packs what is to be written. It may take a while, and is done by the writing goroutine.
func (f *frozenSeen) pages() []store.SeenPage {
	all := slices.Concat(f.repeats, f.relays)
	if len(f.altIDs.hashes) == 0 {
		return all
	}
	return append([]store.SeenPage{{Kind: seenAltIDs, LastTime: f.altIDs.last.Micros(), Body: f.altIDs.encode()}}, all...)
}

func pageBytes(pages []store.SeenPage) (n int64) {
	for _, p := range pages {
		n += int64(len(p.Body))
	}
	return n
}

// pack writes pages of what entries says of each client, least recently active client first.
func (s *seen) pack(version byte, now model.Nanos, entries func(*repeats) []uint64) (add []store.SeenPage) {
	body := []byte{version}
	flush := func() {
		if len(body) > 1 {
			add = append(add, store.SeenPage{Kind: seenRepeats, LastTime: now.Micros(), Body: body})
			body = []byte{version}
		}
	}
	for c := s.oldest; c != nil; c = c.more {
		hashes := entries(c)
		if len(hashes) == 0 {
			continue
		}
		body = wire.AppendString(body, c.client)
		body = binary.AppendVarint(body, int64(c.at))
		body = binary.AppendUvarint(body, uint64(len(hashes)))
		for _, h := range hashes {
			body = binary.LittleEndian.AppendUint64(body, h)
		}
		if len(body) > repeatsPage {
			flush()
		}
	}
	flush()
	return add
}

// load takes in a page of an earlier checkpoint; pages come oldest first.
func (s *seen) load(p store.SeenPage) error {
	r := wire.NewReader(p.Body)
	version := r.Byte()
	known := byte(seenVersion)
	load := s.loadRepeats
	switch p.Kind {
	case seenAltIDs:
		known, load = altIDVersion, s.loadAltIDs
	case seenRepeats:
		known = repeatVersion
	case seenRelays:
		load = s.relays.load
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
			if p.Body[0] == seenVersion {
				s.pushLegacy(c, r.Uint64())
			} else {
				s.push(c, r.Uint64())
			}
		}
	}
	return r.End()
}
