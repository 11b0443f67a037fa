package main

import (
	"bytes"
	"testing"
)

func TestPacketsAreWhatTheSpecificationSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"CONNECT with a user", connectPacket("id", "u", true), "\x10\x11\x00\x04MQTT\x04\x82\x02\x58\x00\x02id\x00\x01u"},
		{"CONNECT without one", connectPacket("id", "", true), "\x10\x0e\x00\x04MQTT\x04\x02\x02\x58\x00\x02id"},
		{"CONNECT to a session that is kept", connectPacket("id", "", false), "\x10\x0e\x00\x04MQTT\x04\x00\x02\x58\x00\x02id"},
		{"SUBSCRIBE", subscribePacket("a/#"), "\x82\x08\x00\x01\x00\x03a/#\x01"},
		{"the first PUBLISH", appendPublish(nil, "a/b", 0, []byte("x")), "\x32\x08\x00\x03a/b\x00\x01x"},
		{"the last packet id", appendPublish(nil, "a", 65534, nil), "\x32\x05\x00\x01a\xff\xff"},
		{"the first one again", appendPublish(nil, "a", 65535, nil), "\x32\x05\x00\x01a\x00\x01"},
		{"a remaining length of two bytes", appendPublish(nil, "a", 0, bytes.Repeat([]byte("x"), 195))[:3], "\x32\xc8\x01"},
	} {
		if string(c.got) != c.want {
			t.Errorf("%s: got %q, want %q", c.name, c.got, c.want)
		}
	}
}

// ackTable is what a server may answer: what it is good for, and whether the rest is an error.
var ackTable = []struct {
	name string
	in   string
	next int64
	n    int
	fail bool
}{
	{"nothing", "", 0, 0, false},
	{"one", "\x40\x02\x00\x01", 0, 1, false},
	{"two and a half", "\x40\x02\x00\x01\x40\x02\x00\x02\x40\x02", 0, 2, false},
	{"around the end of the packet ids", "\x40\x02\xff\xff\x40\x02\x00\x01", 65534, 2, false},
	{"out of order", "\x40\x02\x00\x02\x40\x02\x00\x01", 0, 0, true},
	{"one twice", "\x40\x02\x00\x01\x40\x02\x00\x01", 0, 1, true},
	{"one left out", "\x40\x02\x00\x01\x40\x02\x00\x03", 0, 1, true},
	{"another packet", "\xd0\x00\x00\x00", 0, 0, true},
	{"a PUBACK with a reason code", "\x40\x03\x00\x01\x97", 0, 0, true},
}

func TestAcknowledgementsCountInOrderOnly(t *testing.T) {
	t.Parallel()
	for _, c := range ackTable {
		n, err := countAcks([]byte(c.in), c.next)
		if n != c.n || (err != nil) != c.fail {
			t.Errorf("%s: got %d, %v", c.name, n, err)
		}
	}
}

func FuzzCountAcks(f *testing.F) {
	for _, c := range ackTable {
		f.Add([]byte(c.in), c.next)
	}
	f.Fuzz(func(t *testing.T, b []byte, next int64) {
		next &= 1<<40 - 1
		n, err := countAcks(b, next)
		if n < 0 || 4*n > len(b) || err == nil && n != len(b)/4 {
			t.Fatalf("%d of %d bytes, %v", n, len(b), err)
		}
		var want []byte
		for i := range n {
			id := packetID(next + int64(i))
			want = append(want, 0x40, 2, byte(id>>8), byte(id))
		}
		if !bytes.Equal(b[:4*n], want) {
			t.Fatalf("% x counted as %d acknowledgements from %d", b, n, next)
		}
	})
}
