package model

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"

	"weir/internal/wire"
)

// edgeBlockVersion is what a block of edges begins with.
const edgeBlockVersion = 1

// ErrEdgeBlock is returned when a block of edges does not have the form that Weir writes.
var ErrEdgeBlock = errors.New("block of edges is damaged")

// The flags of an edge in a block; the lowest two bits are its signal.
const (
	edgeSignal     = 3
	edgeNewRecord  = 1 << 2 // offset and receive time follow; else they are those of the edge before
	edgeNewReading = 1 << 3 // likewise index and event time
	edgeNewSource  = 1 << 4
	edgeHasValue   = 1 << 5
	edgeNewValue   = 1 << 6
	edgeHasN       = 1 << 7
)

// EdgeRule is the rule of some edges of a block.
type EdgeRule struct {
	Stable                        string // id {profileToken}/{ruleToken}
	Profile, Rule, Kind, Severity string
	Version                       int
}

// EdgeSource is what some edges of a block fired for: a device or an anchor.
type EdgeSource struct {
	Key, Series string
	Device      int64
}

// PackedEdge is an edge of a block: Rule and Source are indexes into the lists of the block.
type PackedEdge struct {
	At       int // position in the block
	Rule     int
	Source   int
	Offset   Offset
	Index    uint32
	N        uint16
	Signal   EdgeSignal
	HasValue bool
	Occurred Micros
	Received Micros
	Value    float64
}

// EdgePacker packs edges of one tenant and one epoch, in the order of the log, into a block: what they share is written
// once. The zero value is ready, and again after Reset. One goroutine uses it.
type EdgePacker struct {
	// First and Last are the ends of the event times, Received is the newest receive time, Offset the highest.
	First, Last, Received Micros
	Offset                Offset
	// RuleBits and SourceBits have the EdgeBit of everything that the edges may be searched by.
	RuleBits, SourceBits uint64

	tenant   string
	epoch    uint32
	count    int
	last     PackedEdge
	ruleAt   map[string]int // by stable id: the newest of this id
	sourceAt map[string]int // by key
	rules    []EdgeRule
	sources  []EdgeSource
	body     []byte
}

// Len is the number of edges.
func (p *EdgePacker) Len() int { return p.count }

// Reset empties the packer and keeps its memory.
func (p *EdgePacker) Reset() {
	clear(p.ruleAt)
	clear(p.sourceAt)
	*p = EdgePacker{ruleAt: p.ruleAt, sourceAt: p.sourceAt, rules: p.rules[:0], sources: p.sources[:0], body: p.body[:0]}
}

// Add adds an edge. Its tenant and epoch are those of the first one.
func (p *EdgePacker) Add(e *Edge) {
	now := PackedEdge{Rule: p.rule(e), Source: p.source(e), Offset: e.ID.Offset, Index: e.ID.Index, N: e.ID.N, Signal: e.Signal & edgeSignal,
		HasValue: e.HasValue, Occurred: e.Occurred, Received: e.Received.Micros(), Value: e.Value}
	if p.count == 0 {
		p.tenant, p.epoch, p.First, p.Last, p.Received = e.Tenant, e.ID.Epoch, now.Occurred, now.Occurred, now.Received
	}
	p.First, p.Last = min(p.First, now.Occurred), max(p.Last, now.Occurred)
	p.Received, p.Offset = max(p.Received, now.Received), max(p.Offset, now.Offset)
	p.RuleBits |= EdgeBit(EdgesBySignal, now.Signal.String())
	p.body = now.append(p.body, &p.last, p.count == 0)
	if !now.HasValue {
		now.Value = p.last.Value // the next value is compared with the newest there was
	}
	p.last = now
	p.count++
}

// append writes the edge as what differs from the one before it.
func (e *PackedEdge) append(b []byte, last *PackedEdge, first bool) []byte {
	flags := byte(e.Signal)
	set := func(flag byte, when bool) bool {
		if when {
			flags |= flag
		}
		return when
	}
	at := len(b)
	b = append(b, 0)
	b = binary.AppendUvarint(b, uint64(e.Rule))
	if set(edgeNewRecord, first || e.Offset != last.Offset || e.Received != last.Received) {
		b = binary.AppendVarint(b, int64(e.Offset-last.Offset))
		b = binary.AppendVarint(b, int64(e.Received-last.Received))
	}
	if set(edgeNewReading, first || e.Index != last.Index || e.Occurred != last.Occurred) {
		b = binary.AppendUvarint(b, uint64(e.Index))
		b = binary.AppendVarint(b, int64(e.Occurred-last.Occurred))
	}
	if set(edgeNewSource, first || e.Source != last.Source) {
		b = binary.AppendUvarint(b, uint64(e.Source))
	}
	if set(edgeHasValue, e.HasValue) && set(edgeNewValue, math.Float64bits(e.Value) != math.Float64bits(last.Value)) {
		b = wire.AppendFloat(b, e.Value)
	}
	if set(edgeHasN, e.N != 0) {
		b = binary.AppendUvarint(b, uint64(e.N))
	}
	b[at] = flags
	return b
}

// rule returns the number of an edge's rule in the block. Another version of a rule is another one.
func (p *EdgePacker) rule(e *Edge) int {
	is := func(i int) bool {
		r := &p.rules[i]
		return r.Stable == e.ID.Rule && r.Rule == e.Rule && r.Version == e.Version && r.Profile == e.Profile && r.Kind == e.Kind && r.Severity == e.Severity
	}
	if i, ok := p.ruleAt[e.ID.Rule]; ok && is(i) {
		return i
	}
	if p.ruleAt == nil {
		p.ruleAt = map[string]int{}
	}
	p.ruleAt[e.ID.Rule] = len(p.rules)
	p.rules = append(p.rules, EdgeRule{Stable: e.ID.Rule, Profile: e.Profile, Rule: e.Rule, Kind: e.Kind, Severity: e.Severity, Version: e.Version})
	p.RuleBits |= EdgeBit(EdgesByProfile, e.Profile) | EdgeBit(EdgesByRule, e.Rule) | EdgeBit(EdgesBySeverity, e.Severity)
	return len(p.rules) - 1
}

// source returns the number of an edge's source in the block.
func (p *EdgePacker) source(e *Edge) int {
	is := func(i int) bool {
		s := &p.sources[i]
		return s.Key == e.ID.Key && s.Series == e.Series && s.Device == e.Device
	}
	if p.count > 0 && is(p.last.Source) {
		return p.last.Source
	}
	if i, ok := p.sourceAt[e.ID.Key]; ok && is(i) {
		return i
	}
	if p.sourceAt == nil {
		p.sourceAt = map[string]int{}
	}
	p.sourceAt[e.ID.Key] = len(p.sources)
	p.sources = append(p.sources, EdgeSource{Key: e.ID.Key, Series: e.Series, Device: e.Device})
	p.SourceBits |= EdgeBit(EdgesByDevice, strconv.FormatInt(e.Device, 10)) | EdgeBit(EdgesBySeries, e.Series)
	return len(p.sources) - 1
}

// Append appends the block.
func (p *EdgePacker) Append(b []byte) []byte {
	start := len(b)
	b = append(b, edgeBlockVersion)
	b = wire.AppendString(b, p.tenant)
	b = binary.AppendUvarint(b, uint64(p.epoch))
	b = binary.AppendUvarint(b, uint64(len(p.rules)))
	for i := range p.rules {
		b = p.rules[i].append(b)
	}
	b = binary.AppendUvarint(b, uint64(len(p.sources)))
	for i := range p.sources {
		b = p.sources[i].append(b)
	}
	b = binary.AppendUvarint(b, uint64(p.count))
	b = append(b, p.body...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], edgeBlockSums))
}

var edgeBlockSums = crc32.MakeTable(crc32.Castagnoli)

func (r *EdgeRule) append(b []byte) []byte {
	b = appendUnless(b, r.Stable, RuleStableID(r.Profile, r.Rule))
	for _, s := range [...]string{r.Profile, r.Rule, r.Kind, r.Severity} {
		b = wire.AppendString(b, s)
	}
	return binary.AppendVarint(b, int64(r.Version))
}

func (s *EdgeSource) append(b []byte) []byte {
	b = binary.AppendVarint(b, s.Device)
	b = wire.AppendString(b, s.Series)
	return appendUnless(b, s.Key, strconv.FormatInt(s.Device, 10))
}

// appendUnless appends a text, or a byte 0 when it is the usual one.
func appendUnless(b []byte, text, usual string) []byte {
	if text == usual {
		return append(b, 0)
	}
	return wire.AppendString(append(b, 1), text)
}

func textUnless(r *wire.Reader, usual string) string {
	switch r.Byte() {
	case 0:
		return usual
	case 1:
		return r.String()
	}
	r.Fail(wire.ErrForm)
	return ""
}

// EdgeBlock is a block of which the lists are read.
type EdgeBlock struct {
	Tenant  string
	Epoch   uint32
	Rules   []EdgeRule
	Sources []EdgeSource
	Len     int
	body    []byte
}

// ReadEdgeBlock reads what EdgePacker.Append wrote, apart from the edges themselves, which Each reads from data.
func ReadEdgeBlock(data []byte) (*EdgeBlock, error) {
	sum := len(data) - 4
	if sum < 1 || crc32.Checksum(data[:sum], edgeBlockSums) != binary.LittleEndian.Uint32(data[sum:]) {
		return nil, fmt.Errorf("%w: its checksum does not match", ErrEdgeBlock)
	}
	if data[0] != edgeBlockVersion {
		return nil, fmt.Errorf("%w: it has format %d, this Weir reads %d", ErrEdgeBlock, data[0], edgeBlockVersion)
	}
	r := wire.NewReader(data[1:sum])
	b := &EdgeBlock{Tenant: r.String(), Epoch: uint32(r.Uvarint())}
	b.Rules = make([]EdgeRule, r.Count(6))
	for i := range b.Rules {
		b.Rules[i].read(r)
	}
	b.Sources = make([]EdgeSource, r.Count(3))
	for i := range b.Sources {
		b.Sources[i].read(r)
	}
	b.Len = r.Count(2)
	b.body = r.Take(r.Len())
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEdgeBlock, err)
	}
	return b, nil
}

func (e *EdgeRule) read(r *wire.Reader) {
	kind := r.Byte()
	if kind == 1 {
		e.Stable = r.String()
	} else if kind != 0 {
		r.Fail(wire.ErrForm)
	}
	e.Profile, e.Rule, e.Kind, e.Severity, e.Version = r.String(), r.String(), r.String(), r.String(), int(r.Varint())
	if kind == 0 {
		e.Stable = RuleStableID(e.Profile, e.Rule)
	}
}

func (s *EdgeSource) read(r *wire.Reader) {
	s.Device, s.Series = r.Varint(), r.String()
	s.Key = textUnless(r, strconv.FormatInt(s.Device, 10))
}

// Each calls f with each edge of the block, in the order in which they were added, until f returns false.
func (b *EdgeBlock) Each(f func(*PackedEdge) bool) error {
	r := wire.NewReader(b.body)
	var e PackedEdge
	var value float64 // the newest there was
	for e.At = range b.Len {
		e.read(r, &value)
		if r.Err() != nil || e.Rule >= len(b.Rules) || e.Source >= len(b.Sources) {
			return fmt.Errorf("%w: edge %d of %d", ErrEdgeBlock, e.At+1, b.Len)
		}
		if !f(&e) {
			return nil
		}
	}
	if err := r.End(); err != nil {
		return fmt.Errorf("%w: %w", ErrEdgeBlock, err)
	}
	return nil
}

// read reads the next edge over the one before it.
func (e *PackedEdge) read(r *wire.Reader, value *float64) {
	flags := r.Byte()
	e.Signal, e.Rule = EdgeSignal(flags&edgeSignal), int(r.Uvarint()&math.MaxInt32)
	if flags&edgeNewRecord != 0 {
		e.Offset += Offset(r.Varint())
		e.Received += Micros(r.Varint())
	}
	if flags&edgeNewReading != 0 {
		e.Index = uint32(r.Uvarint())
		e.Occurred += Micros(r.Varint())
	}
	if flags&edgeNewSource != 0 {
		e.Source = int(r.Uvarint() & math.MaxInt32)
	}
	if flags&edgeNewValue != 0 {
		*value = r.Float()
	}
	e.Value, e.HasValue, e.N = 0, flags&edgeHasValue != 0, 0
	if e.HasValue {
		e.Value = *value
	}
	if flags&edgeHasN != 0 {
		e.N = uint16(r.Uvarint())
	}
}

// Edge returns an edge of the block in full, but for the row id of its tenant.
func (b *EdgeBlock) Edge(e *PackedEdge) Edge {
	rule, source := &b.Rules[e.Rule], &b.Sources[e.Source]
	return Edge{
		ID:     EdgeID{Epoch: b.Epoch, Offset: e.Offset, Index: e.Index, Rule: rule.Stable, Key: source.Key, N: e.N},
		Tenant: b.Tenant, Profile: rule.Profile, Version: rule.Version, Rule: rule.Rule, Kind: rule.Kind, Signal: e.Signal,
		Series: source.Series, Device: source.Device, Occurred: e.Occurred, Received: e.Received.Nanos(), Severity: rule.Severity,
		Value: e.Value, HasValue: e.HasValue,
	}
}

// EdgeField is a property that edges are searched by. Its value is a part of what is stored.
type EdgeField byte

// The properties.
const (
	EdgesByProfile  EdgeField = 'p'
	EdgesByRule     EdgeField = 'r'
	EdgesBySeverity EdgeField = 's'
	EdgesBySignal   EdgeField = 'e'
	EdgesByDevice   EdgeField = 'd' // row id, decimal
	EdgesBySeries   EdgeField = 'a'
)

// EdgeBit returns the bit, of 64, that stands for a property with a text: a block without it has no such edge. It is
// frozen: FNV-1a of the field and the text, mixed so that each of its bits counts.
func EdgeBit(f EdgeField, text string) uint64 {
	const basis, prime = 14695981039346656037, 1099511628211
	h := (uint64(basis) ^ uint64(f)) * prime
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * prime
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	return 1 << (h >> 58)
}
