package rules

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
)

// encodeRules writes to what the state of a profile's rules belongs, and their counters; nil without rules.
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

// encodeDevices writes the devices of a bucket and their clocks; nil for none. Each ends in an empty blob, reserved for later versions.
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

// encodeKeys writes the keys of a bucket; nil for none.
func encodeKeys(devices []*device, rules []*rule) []byte {
	holders := 0
	for _, d := range devices {
		if len(d.keys) > 0 {
			holders++
		}
	}
	if holders == 0 {
		return nil
	}
	b, numbers := putRuleNames(keyHeader(pageKeys, devices...), rules, devices...)
	b = binary.AppendUvarint(b, uint64(holders))
	var last int64
	for _, d := range devices {
		if len(d.keys) > 0 {
			b = binary.AppendVarint(b, d.id-last)
			last = d.id
			b = putKeys(b, d, numbers)
		}
	}
	return seal(b)
}

// encodeShared writes the keys without a device and their clock; nil for none.
func encodeShared(p *profile) []byte {
	d := p.shared
	if len(d.keys) == 0 {
		return nil
	}
	b, numbers := putRuleNames(keyHeader(pageShared, d), p.rules, d)
	b = binary.AppendVarint(b, int64(d.newest))
	b = binary.AppendVarint(b, int64(d.arrived))
	return seal(putKeys(b, d, numbers))
}

// keyHeader begins a page of keys with the lowest version that can hold them.
func keyHeader(kind byte, devices ...*device) []byte {
	b := header(kind)
	for _, d := range devices {
		if slices.ContainsFunc(d.keys, func(k key) bool { return k.extra != nil }) {
			b[0] = pageVersion
		}
	}
	return b
}

// putRuleNames writes the tokens of the rules that have keys, once per page, and returns the number of each rule.
func putRuleNames(b []byte, rules []*rule, devices ...*device) ([]byte, []uint64) {
	used := make([]bool, len(rules))
	for _, d := range devices {
		for _, k := range d.keys {
			used[k.rule] = true
		}
	}
	numbers, n := make([]uint64, len(rules)), uint64(0)
	for i, u := range used {
		if u {
			numbers[i] = n
			n++
		}
	}
	b = binary.AppendUvarint(b, n)
	for i, u := range used {
		if u {
			b = putString(b, rules[i].token)
		}
	}
	return b, numbers
}

func putKeys(b []byte, d *device, numbers []uint64) []byte {
	b = binary.AppendUvarint(b, uint64(len(d.keys)))
	for i := range d.keys {
		b = binary.AppendUvarint(b, numbers[d.keys[i].rule])
		b = putState(b, &d.keys[i])
	}
	return b
}

// The layouts of a key's state.
const (
	layoutLatch  = 1 // raised, stamp of the last edge
	layoutMemory = 2 // flags, stamp of the last edge, due time, anchor, the memory of the kind; from version 2 on
)

// The flags of layoutMemory.
const (
	flagRaised = 1 << iota
	flagEdged
	flagOwn
	flagsKnown = 1<<iota - 1
)

func putState(b []byte, k *key) []byte {
	if k.extra != nil {
		return putMemory(b, k)
	}
	var blob [2 + binary.MaxVarintLen64]byte
	blob[0], blob[1] = layoutLatch, byteOf(k.raised)
	n := 2 + binary.PutVarint(blob[2:], int64(k.lastEdge))
	b = binary.AppendUvarint(b, uint64(n))
	return append(b, blob[:n]...)
}

func putMemory(b []byte, k *key) []byte {
	x := k.extra
	flags := byteOf(k.raised)*flagRaised | byteOf(k.edged)*flagEdged | byteOf(x.own != nil)*flagOwn
	blob := []byte{layoutMemory, flags}
	blob = binary.AppendVarint(blob, int64(k.lastEdge))
	blob = binary.AppendVarint(blob, int64(x.due))
	blob = putString(blob, x.anchor)
	if x.own != nil {
		blob = x.own.Append(blob)
	}
	return putString(b, string(blob))
}

func header(kind byte) []byte { return []byte{pageVersion1, kind} }

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
