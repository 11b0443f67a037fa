package rules

import (
	"encoding/binary"
	"hash/crc32"
)

// encodeRules writes what the state of a profile's rules belongs to, and their counters; nil without rules.
func encodeRules(p *profile) []byte {
	if len(p.rules) == 0 {
		return nil
	}
	b := header(pageRules)
	b = putString(b, p.tenantToken)
	b = putString(b, p.token)
	b = binary.AppendVarint(b, int64(p.version))
	b = binary.AppendUvarint(b, uint64(len(p.rules)))
	for _, r := range p.rules {
		b = putString(b, r.token)
		b = putString(b, string(r.kind))
		b = putString(b, r.severity)
		b = append(b, r.body[:]...)
		b = binary.AppendVarint(b, r.EvalErrors)
		b = binary.AppendVarint(b, r.LateSamples)
		b = binary.AppendVarint(b, r.RefusedKeys)
		b = binary.AppendVarint(b, int64(r.LastInputAt))
		b = binary.AppendUvarint(b, uint64(len(r.wants)))
		for i, w := range r.wants {
			b = putString(b, w)
			b = append(b, byteOf(r.came[i]))
		}
	}
	return seal(b)
}

// encodeDevices writes the devices of a bucket and their clocks; nil for none. Each ends in a blob of later words.
func encodeDevices(devices []*device) []byte {
	if len(devices) == 0 {
		return nil
	}
	b := header(pageDevices)
	b = binary.AppendUvarint(b, uint64(len(devices)))
	var last int64
	for _, d := range devices {
		b = binary.AppendVarint(b, d.id-last)
		last = d.id
		b = binary.AppendVarint(b, d.kind)
		b = putString(b, d.token)
		b = binary.AppendVarint(b, int64(d.newest))
		b = binary.AppendVarint(b, int64(d.arrived))
		b = putString(b, "")
	}
	return seal(b)
}

// encodeKeys writes the keys of a bucket; nil for none. Rules are named once per page; the state of each key is a blob
// that says what layout it has.
func encodeKeys(devices []*device, rules []*rule) []byte {
	used, holders := make([]bool, len(rules)), 0
	for _, d := range devices {
		for _, k := range d.keys {
			used[k.rule] = true
		}
		if len(d.keys) > 0 {
			holders++
		}
	}
	if holders == 0 {
		return nil
	}
	b := header(pageKeys)
	b, place := putRuleNames(b, rules, used)
	b = binary.AppendUvarint(b, uint64(holders))
	var last int64
	for _, d := range devices {
		if len(d.keys) == 0 {
			continue
		}
		b = binary.AppendVarint(b, d.id-last)
		last = d.id
		b = binary.AppendUvarint(b, uint64(len(d.keys)))
		for _, k := range d.keys {
			b = binary.AppendUvarint(b, place[k.rule])
			b = putState(b, k.state)
		}
	}
	return seal(b)
}

// putRuleNames writes the tokens of the used rules and returns the place of each among them.
func putRuleNames(b []byte, rules []*rule, used []bool) ([]byte, []uint64) {
	place, n := make([]uint64, len(rules)), uint64(0)
	for i, u := range used {
		if u {
			place[i] = n
			n++
		}
	}
	b = binary.AppendUvarint(b, n)
	for i, u := range used {
		if u {
			b = putString(b, rules[i].token)
		}
	}
	return b, place
}

// The layouts of a key's state.
const layoutLatch = 1 // raised, stamp of the last edge

func putState(b []byte, s State) []byte {
	var blob [2 + binary.MaxVarintLen64]byte
	blob[0], blob[1] = layoutLatch, byteOf(s.Raised)
	n := 2 + binary.PutVarint(blob[2:], int64(s.LastEdge))
	b = binary.AppendUvarint(b, uint64(n))
	return append(b, blob[:n]...)
}

func header(kind byte) []byte { return []byte{pageVersion, kind} }

func putString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func byteOf(v bool) byte {
	if v {
		return 1
	}
	return 0
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func seal(b []byte) []byte { return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)) }
