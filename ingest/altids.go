package ingest

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"weir/internal/pack"
	"weir/internal/wire"
	"weir/model"
	"weir/store"
)

// An event that carries an altId is known by its key: tenant, device, altId and occurredTime as sent. Memory holds a hash of
// the key. The disk holds the key itself where that is shorter, because the keys of one device have much in common.

// altIDPage is the altIds of one checkpoint.
type altIDPage struct {
	hashes [][16]byte
	last   model.Nanos // newest receive time
	keys   []byte      // each after its length, in the order of the log; of the open page only
}

// appendAltIDKey appends the key of an event.
func appendAltIDKey(b []byte, tenant, device int64, m *model.Message) []byte {
	k := altIDKey{tenant: tenant, device: device, altID: m.AltID, timed: m.HasOccurred}
	if m.HasOccurred {
		k.occurred = int64(m.Occurred)
	}
	return k.append(b)
}

// altIDKey is a key taken apart.
type altIDKey struct {
	tenant, device int64
	altID          string
	timed          bool // occurredTime was sent
	occurred       int64
}

func (k *altIDKey) append(b []byte) []byte {
	b = binary.AppendVarint(b, k.tenant)
	b = binary.AppendVarint(b, k.device)
	b = wire.AppendString(b, k.altID)
	if k.timed {
		b = binary.AppendVarint(b, k.occurred)
	}
	return b
}

func parseAltIDKey(b []byte) altIDKey {
	r := wire.NewReader(b)
	k := altIDKey{tenant: r.Varint(), device: r.Varint(), altID: r.String()}
	if k.timed = r.Len() > 0; k.timed {
		k.occurred = r.Varint()
	}
	return k
}

func altIDHash(key []byte) [16]byte {
	sum := sha256.Sum256(key)
	return [16]byte(sum[:16])
}

// remember adds an event by its key and the hash of it.
func (s *seen) remember(hash [16]byte, key []byte, at model.Nanos) {
	s.altIDs[hash] = struct{}{}
	s.open.hashes = append(s.open.hashes, hash)
	s.open.keys = wire.AppendBytes(s.open.keys, key)
	s.open.last = max(s.open.last, at)
}

// encode packs a page: keys of devices with several of them in columns, everything else as the hashes that they are.
func (p *altIDPage) encode() []byte {
	var hashes, groups []byte
	var e pack.Encoder
	var prev altIDKey
	count := 0
	for group := range p.groups() {
		// Use the packed form only where it is shorter than the hashes.
		before := len(groups)
		if groups = group.append(groups, &prev, &e); len(groups)-before < 16*len(group) {
			prev = group[0]
			count++
			continue
		}
		groups = groups[:before]
		for i := range group {
			h := altIDHash(group[i].append(nil))
			hashes = append(hashes, h[:]...)
		}
	}
	b := append(binary.AppendUvarint([]byte{altIDVersion}, uint64(len(hashes)/16)), hashes...)
	return append(binary.AppendUvarint(b, uint64(count)), groups...)
}

// altIDGroup is keys of one device which all have a time, or none of which has one.
type altIDGroup []altIDKey

// groups calls yield with the keys of each device, in the order of the log.
func (p *altIDPage) groups() func(yield func(altIDGroup) bool) {
	// Group by device, and keep the order of the log within each.
	keys := make([]altIDKey, 0, len(p.hashes))
	for r := wire.NewReader(p.keys); r.Len() > 0; {
		keys = append(keys, parseAltIDKey(r.Bytes()))
	}
	order := func(a, b altIDKey) int {
		return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.device, b.device), cmpBool(a.timed, b.timed))
	}
	slices.SortStableFunc(keys, order)
	return func(yield func(altIDGroup) bool) {
		for from, to := 0, 0; from < len(keys); from = to {
			for to = from + 1; to < len(keys) && to-from < maxAltIDGroup && order(keys[from], keys[to]) == 0; to++ {
			}
			if !yield(keys[from:to]) {
				return
			}
		}
	}
}

// maxAltIDGroup bounds the memory that a reader allocates at once.
const maxAltIDGroup = 1 << 12

func cmpBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// append packs the group: tenant and device as what they are above those of the group before, how many keys and whether
// they have times, the altIds, the times.
func (g altIDGroup) append(b []byte, prev *altIDKey, e *pack.Encoder) []byte {
	k := &g[0]
	b = binary.AppendVarint(b, k.tenant-prev.tenant)
	b = binary.AppendVarint(b, k.device-prev.device)
	n := uint64(len(g)) << 1
	if k.timed {
		n |= 1
	}
	b = binary.AppendUvarint(b, n)
	texts := make([]string, len(g))
	times := make([]int64, len(g))
	for i := range g {
		texts[i], times[i] = g[i].altID, g[i].occurred
	}
	if b = e.AppendTexts(b, texts); k.timed {
		b = e.AppendInts(b, times, pack.Delta, pack.DeltaOfDelta)
	}
	return b
}

func decodeAltIDGroup(src []byte, prev *altIDKey, add func(altIDKey)) (rest []byte, err error) {
	tenant, src, err := pack.Varint(src)
	if err != nil {
		return nil, err
	}
	device, src, err := pack.Varint(src)
	if err != nil {
		return nil, err
	}
	n, src, err := pack.Uvarint(src)
	if err != nil || n>>1 == 0 || n>>1 > maxAltIDGroup {
		return nil, pack.ErrForm
	}
	k := altIDKey{tenant: prev.tenant + tenant, device: prev.device + device, timed: n&1 != 0}
	texts := make([]string, n>>1)
	times := make([]int64, n>>1)
	if src, err = pack.DecodeTexts(src, texts); err != nil {
		return nil, err
	}
	if k.timed {
		if src, err = pack.DecodeInts(src, times); err != nil {
			return nil, err
		}
	}
	*prev = k
	for i := range texts {
		k.altID, k.occurred = texts[i], times[i]
		add(k)
	}
	return src, nil
}

// loadAltIDs takes in a page of an earlier checkpoint. Version 1 has hashes only.
func (s *seen) loadAltIDs(p store.SeenPage) error {
	page := altIDPage{last: p.LastTime.Nanos() + 999}
	add := func(h [16]byte) {
		page.hashes = append(page.hashes, h)
		s.altIDs[h] = struct{}{}
	}
	// First come the hashes, then, from version 2 on, groups of keys.
	r := wire.NewReader(p.Body)
	version := r.Byte()
	for range r.Count(16) {
		if b := r.Take(16); b != nil {
			add([16]byte(b))
		}
	}
	if version > seenVersion {
		groups := r.Count(4)
		src := r.Take(r.Len())
		var prev altIDKey
		var key []byte
		for range groups {
			var err error
			if src, err = decodeAltIDGroup(src, &prev, func(k altIDKey) {
				key = k.append(key[:0])
				add(altIDHash(key))
			}); err != nil {
				return err
			}
		}
		if len(src) > 0 {
			return pack.ErrForm
		}
	}
	s.pages = append(s.pages, page)
	return r.End()
}

// EraseAltIDs returns a page without the altIds of a tenant that it holds as texts, and how many these were. Hashes stay: they say
// nothing.
func EraseAltIDs(p store.SeenPage, tenant int64) (body []byte, erased int, err error) {
	r := wire.NewReader(p.Body)
	if version := r.Byte(); p.Kind != seenAltIDs || version <= seenVersion {
		return p.Body, 0, r.Err()
	}
	r.Take(16 * r.Count(16))
	kept := p.Body[:len(p.Body)-r.Len()]
	groups := r.Count(4)
	src := r.Take(r.Len())
	var prev, prevKept altIDKey
	var out []byte
	var e pack.Encoder
	count := 0
	for range groups {
		var group altIDGroup
		if src, err = decodeAltIDGroup(src, &prev, func(k altIDKey) { group = append(group, k) }); err != nil {
			return nil, 0, err
		}
		if group[0].tenant == tenant {
			erased += len(group)
			continue
		}
		// Groups are packed against the one before, so those that stay are packed again.
		out = group.append(out, &prevKept, &e)
		prevKept = group[0]
		count++
	}
	if len(src) > 0 {
		return nil, 0, pack.ErrForm
	}
	if err := r.End(); err != nil || erased == 0 {
		return p.Body, 0, err
	}
	return append(binary.AppendUvarint(slices.Clone(kept), uint64(count)), out...), erased, nil
}
