package model

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"testing"
)

// goldenEdges use every part of the format: several edges of a reading, of a record and of a rule, a rule of which the version
// changes, an anchor, a rule without severity, times that go back, a value that comes again after an edge without one.
func goldenEdges() []Edge {
	edge := func(offset Offset, index uint32, rule, key string, device int64, signal EdgeSignal) Edge {
		return Edge{ID: EdgeID{Epoch: 3, Offset: offset, Index: index, Rule: "boiler/" + rule, Key: key}, Tenant: "acme", Profile: "boiler", Version: 1,
			Rule: rule, Kind: "threshold", Signal: signal, Series: "d" + key, Device: device, Occurred: Micros(1_790_000_000_000_000 + int64(offset)*1000 + int64(index)),
			Received: Micros(1_790_000_000_000_500 + int64(offset)*1000).Nanos(), Severity: "major"}
	}
	es := []Edge{edge(100, 0, "hot", "7", 7, Raised), edge(100, 0, "warm", "7", 7, Raised), edge(100, 1, "hot", "7", 7, Resolved), edge(101, 0, "hot", "8", 8, Raised),
		edge(101, 0, "hot", "8", 8, Resolved), edge(105, 0, "shared", "7/hall", 7, Raised), edge(105, 0, "late", "hall", 0, Raised), edge(106, 0, "hot", "7", 7, Raised)}
	for i, v := range map[int]float64{0: 81.5, 1: 81.5, 3: -0.25, 5: 81.5, 6: math.MaxFloat64, 7: 0} {
		es[i].Value, es[i].HasValue = v, true
	}
	es[4].ID.N, es[6].Severity, es[6].Occurred = 300, "", es[0].Occurred-86_400_000_000
	es[6].ID.Rule, es[7].Version, es[7].ID.Index = "elsewhere/late", 2, 70_000
	return es
}

func pack(edges []Edge) *EdgePacker {
	p := &EdgePacker{}
	for i := range edges {
		p.Add(&edges[i])
	}
	return p
}

func unpack(data []byte) (edges []Edge, err error) {
	b, err := ReadEdgeBlock(data)
	if err != nil {
		return nil, err
	}
	err = b.Each(func(e *PackedEdge) bool { edges = append(edges, b.Edge(e)); return true })
	return edges, err
}

func TestEdgesReadBackAsTheyWerePacked(t *testing.T) {
	t.Parallel()
	want := goldenEdges()
	p := pack(want)
	for round := range 2 { // a packer that is used again leaves nothing behind
		got, err := unpack(p.Append(nil))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("round %d: %v\ngot  %+v\nwant %+v", round, err, got, want)
		}
		if p.Len() != len(want) || p.First != want[6].Occurred || p.Last != want[7].Occurred || p.Offset != 106 || p.Received != want[7].Received.Micros() {
			t.Errorf("round %d: %d edges from %d to %d, received %d, offset %d", round, p.Len(), p.First, p.Last, p.Received, p.Offset)
		}
		p.Reset()
		for i := range want {
			p.Add(&want[i])
		}
	}
}

// TestTheEdgeBlockFormatIsFrozen holds a block byte for byte: a later Weir writes another version, and reads this one as it is.
func TestTheEdgeBlockFormatIsFrozen(t *testing.T) {
	t.Parallel()
	got := pack(goldenEdges()).Append(nil)
	if want := goldenEdgeBlock(t); !bytes.Equal(got, want) {
		t.Errorf("written as\n%x, want\n%x", got, want)
	}
	if got, err := unpack(goldenEdgeBlock(t)); err != nil || !slices.Equal(got, goldenEdges()) {
		t.Errorf("the frozen block reads as %+v, %v", got, err)
	}
	var bits []uint64
	for _, f := range []EdgeField{EdgesByProfile, EdgesByRule, EdgesBySeverity, EdgesBySignal, EdgesByDevice, EdgesBySeries} {
		bits = append(bits, EdgeBit(f, "7"))
	}
	if want := frozenEdgeBits; !slices.Equal(bits, want) {
		t.Errorf("bits %#x, want %#x", bits, want)
	}
}

func goldenEdgeBlock(t *testing.T) []byte {
	t.Helper()
	b, err := hex.DecodeString(frozenEdgeBlock)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const frozenEdgeBlock = "010461636d6503050006626f696c657203686f74097468726573686f6c64056d616a6f72020006626f696c6572047761726d097468726573686f6c64" +
	"056d616a6f72020006626f696c657206736861726564097468726573686f6c64056d616a6f7202010e656c736577686572652f6c61746506626f696c" +
	"6572046c617465097468726573686f6c6400020006626f696c657203686f74097468726573686f6c64056d616a6f7204040e0264370010026438000e" +
	"0764372f68616c6c0106372f68616c6c00056468616c6c010468616c6c087d00c801a8a2bba2dbffad0600c09abba2dbffad06000000000000605440" +
	"21010a0001027d0002d00f00ce0f01000000000000d0bf8200ac027d0208c03e00c03e0200000000006054407903008fcebbdd830503ffffffffffff" +
	"ef7f7d0402d00ff0a204e0ddbbdd830500000000000000000067bf9d2c"

var frozenEdgeBits = []uint64{0x10000000000000, 0x100000000000, 0x80000, 0x40000, 0x80000000000000, 0x400000}

// sealedEdgeBlock returns a block of the version with this content, damaged or not, and a checksum that fits.
func sealedEdgeBlock(content []byte) []byte {
	b := append([]byte{edgeBlockVersion}, content...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, edgeBlockSums))
}

func TestADamagedEdgeBlockIsAnError(t *testing.T) {
	t.Parallel()
	data := pack(goldenEdges()).Append(nil)
	for i := range data {
		if _, err := unpack(data[:i]); !errors.Is(err, ErrEdgeBlock) {
			t.Fatalf("cut at %d: %v", i, err)
		}
		bad := slices.Clone(data)
		bad[i] ^= 0x10
		if _, err := unpack(bad); !errors.Is(err, ErrEdgeBlock) {
			t.Fatalf("byte %d turned: %v", i, err)
		}
	}
}

func FuzzEdgeBlock(f *testing.F) {
	f.Add(pack(goldenEdges()).Append(nil)[1:])
	f.Fuzz(func(t *testing.T, data []byte) {
		edges, err := unpack(sealedEdgeBlock(data))
		if err == nil && len(edges) > len(data) {
			t.Errorf("%d edges in %d bytes", len(edges), len(data))
		}
	})
}

func BenchmarkEdgeBlock(b *testing.B) {
	edges := make([]Edge, 960)
	for i := range edges {
		reading := i / 5 * 2 // five edges of two readings
		device, rule := reading%50+1, fmt.Sprint("r", i%10)
		edges[i] = Edge{ID: EdgeID{Epoch: 1, Offset: Offset(1000 + reading), Rule: "p/" + rule, Key: fmt.Sprint(device)}, Tenant: "acme", Profile: "p", Version: 1,
			Rule: rule, Kind: "threshold", Signal: EdgeSignal(1 + i%2), Series: fmt.Sprintf("d%05d", device), Device: int64(device), Occurred: Micros(1_790_000_000_000_000 + int64(reading*37)),
			Received: Micros(1_790_000_000_000_900 + int64(reading*36)).Nanos(), Severity: "major"}
		if i%2 == 0 {
			edges[i].Value, edges[i].HasValue = float64(reading*7919%10000)/100, true
		}
	}
	var p EdgePacker
	var data []byte
	b.Run("pack", func(b *testing.B) {
		for b.Loop() {
			p.Reset()
			for i := range edges {
				p.Add(&edges[i])
			}
			data = p.Append(data[:0])
		}
		b.ReportMetric(float64(len(data))/float64(len(edges)), "B/edge")
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(edges)), "ns/edge")
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			blk, err := ReadEdgeBlock(data)
			if err != nil {
				b.Fatal(err)
			}
			_ = blk.Each(func(e *PackedEdge) bool { return e.Value >= 0 || true })
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(edges)), "ns/edge")
	})
}
