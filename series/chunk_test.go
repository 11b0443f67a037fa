package series

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"weir/internal/pack"
	"weir/store"
)

// sameColumns compares bit by bit: 0 and -0 differ. Texts that are all empty are none.
func sameColumns(a, b *columns) bool {
	bitsOf := func(v []float64) []uint64 {
		out := make([]uint64, len(v))
		for i, x := range v {
			out[i] = math.Float64bits(x)
		}
		return out
	}
	return slices.Equal(a.Times, b.Times) && slices.Equal(bitsOf(a.Values), bitsOf(b.Values)) && slices.Equal(a.Received, b.Received) &&
		slices.Equal(a.Offsets, b.Offsets) && slices.Equal(a.Indexes, b.Indexes) &&
		slices.Equal(some(a.Classifiers, 0, a.len()), some(b.Classifiers, 0, b.len())) &&
		slices.Equal(some(a.AltIDs, 0, a.len()), some(b.AltIDs, 0, b.len()))
}

// anyColumns draws readings of every awkward kind: extreme, equal and disordered times, decimals, noise, negative zero.
func anyColumns(t *rapid.T) *columns {
	n := rapid.IntRange(1, 60).Draw(t, "n")
	c := &columns{}
	c.resize(n)
	ints := func(name string) []int64 {
		g := rapid.OneOf(
			rapid.Just(rapid.Int64().Draw(t, name+" same")),
			rapid.Int64Range(-3, 3), rapid.Int64Range(1_790_000_000_000_000, 1_790_000_000_100_000), rapid.Int64(),
			rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64, 0}),
			rapid.Map(rapid.Int64Range(-1000, 1000), func(v int64) int64 { return v * 1_000_000 }))
		if rapid.Bool().Draw(t, name+" uniform") {
			g = rapid.Map(rapid.Int64Range(0, 200), func(v int64) int64 { return 10_000_000 * v })
		}
		return rapid.SliceOfN(g, n, n).Draw(t, name)
	}
	c.Times, c.Received, c.Offsets, c.Indexes = ints("times"), ints("received"), ints("offsets"), ints("indexes")
	values := rapid.OneOf(rapid.Map(rapid.Int64Range(-100_000, 100_000), func(v int64) float64 { return float64(v) / 100 }),
		rapid.SampledFrom([]float64{0, math.Copysign(0, -1), math.MaxFloat64, math.SmallestNonzeroFloat64, 0.1 + 0.2, 1 << 53, 1e300, -1e-300}),
		rapid.Float64())
	if rapid.Bool().Draw(t, "decimal") {
		values = rapid.Map(rapid.Int64Range(-100_000, 100_000), func(v int64) float64 { return float64(v) / 1000 })
	}
	c.Values = rapid.SliceOfN(values, n, n).Draw(t, "values")
	if rapid.Bool().Draw(t, "classified") {
		c.Classifiers = rapid.SliceOfN(rapid.Int64Range(0, 1<<33), n, n).Draw(t, "classifiers")
	}
	if rapid.Bool().Draw(t, "altIds") {
		c.AltIDs = rapid.SliceOfN(anyAltID(t), n, n).Draw(t, "alts")
	}
	return c
}

// anyAltID draws what the altIds of a series are like: counters with and without zeros, digits of one length, anything.
func anyAltID(t *rapid.T) *rapid.Generator[string] {
	kinds := []*rapid.Generator[string]{rapid.StringN(0, 20, 128), rapid.StringMatching(`m[0-9]{1,20}`), rapid.StringMatching(`m[0-9]{4}`),
		rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}`), rapid.StringMatching(`[0-9A-F]{6}`), rapid.StringMatching(`01J[0-9A-HJKMNP-TV-Z]{8}`),
		rapid.StringMatching(`[A-Za-z0-9_-]{6}`), rapid.Just("again"), rapid.Map(rapid.Int64(), func(n int64) string { return strconv.FormatInt(n, 10) })}
	g := rapid.SampledFrom(kinds).Draw(t, "altId kind")
	if rapid.Bool().Draw(t, "gaps") {
		g = rapid.OneOf(g, rapid.Just(""))
	}
	return g
}

func TestAChunkDecodesToWhatWasEncoded(t *testing.T) {
	var e encoder
	rapid.Check(t, func(t *rapid.T) {
		c := anyColumns(t)
		blob := e.appendChunk(nil, c)
		var got columns
		if err := decodeChunk(blob, &got, everything); err != nil {
			t.Fatal(err)
		}
		if !sameColumns(c, &got) {
			t.Fatalf("got %+v, want %+v", got, *c)
		}
		for _, d := range []depth{timesOnly, timesAndValues} {
			if err := decodeChunk(blob, &got, d); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Times, c.Times) {
				t.Fatalf("depth %d: times differ", d)
			}
		}
	})
}

func TestABlockDecodesToWhatWasEncoded(t *testing.T) {
	var e encoder
	rapid.Check(t, func(t *rapid.T) {
		b := blockBuilder{enc: &e}
		var want []*columns
		sets := []*labels{{source: "mqtt1", unit: "°C", dataType: "double"}, {source: "http1"}, {source: "mqtt1", anchors: 7, profile: 9}}
		series := rapid.Int64Range(0, 1<<40).Draw(t, "base")
		for range rapid.IntRange(1, 6).Draw(t, "runs") {
			c := anyColumns(t)
			slices.Sort(c.Times)
			if c.Times[len(c.Times)-1]-c.Times[0] < 0 {
				c.Times = slices.Repeat([]int64{5}, c.len()) // a span past int64 is no day
			}
			series += rapid.Int64Range(0, 3).Draw(t, "step")
			b.add(series, sets[len(want)%len(sets)], c)
			want = append(want, c)
		}
		got, err := decodeBlock(b.blob())
		if err != nil || len(got.entries) != len(want) {
			t.Fatalf("%d entries, %v", len(got.entries), err)
		}
		for i := range got.entries {
			en := &got.entries[i]
			var c columns
			if err := got.decode(en, &c, everything); err != nil {
				t.Fatal(err)
			}
			if !sameColumns(want[i], &c) || *en.labels != *sets[i%len(sets)] || en.series != b.entries[i].series {
				t.Fatalf("run %d: got %+v, want %+v", i, c, *want[i])
			}
		}
	})
}

func TestADamagedOrNewerBlobIsAnErrorAndNeverANumber(t *testing.T) {
	var e encoder
	chunk := e.appendChunk(nil, sensor(100, 1))
	b := blockBuilder{enc: &e}
	b.add(1, &labels{source: "mqtt1"}, sensor(5, 1))
	b.add(2, &labels{source: "http1"}, sensor(7, 2))
	for name, tc := range map[string]struct {
		blob   []byte
		newest byte
		decode func([]byte) error
	}{
		"chunk": {chunk, chunkVersion, func(b []byte) error { return decodeChunk(b, &columns{}, everything) }},
		"block": {b.blob(), blockVersion, func(b []byte) error { _, err := decodeBlock(b); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.decode(tc.blob); err != nil {
				t.Fatal(err)
			}
			for i := range tc.blob {
				for bit := range 8 {
					bad := slices.Clone(tc.blob)
					bad[i] ^= 1 << bit
					if err := tc.decode(bad); !errors.Is(err, pack.ErrForm) {
						t.Fatalf("bit %d of byte %d flipped: %v", bit, i, err)
					}
				}
				if err := tc.decode(tc.blob[:i]); !errors.Is(err, pack.ErrForm) {
					t.Fatalf("cut at %d: %v", i, err)
				}
			}
			newer := slices.Clone(tc.blob)
			newer[0] = tc.newest + 1
			if err := tc.decode(resealed(newer)); !errors.Is(err, store.ErrVersion) {
				t.Fatalf("newer version: %v", err)
			}
		})
	}
}

func resealed(blob []byte) []byte {
	blob = slices.Clone(blob)
	body := blob[:len(blob)-4]
	binary.LittleEndian.PutUint32(blob[len(blob)-4:], crc32.Checksum(body, castagnoli))
	return blob
}

// sensor is a sensor of two decimals that stamps its readings every 10 s ± 50 ms, in milliseconds, and is heard 2 to 12
// ms later among a thousand others.
func sensor(n int, seed uint64) *columns {
	r := rand.New(rand.NewPCG(seed, seed))
	c := &columns{}
	c.resize(n)
	value := int64(2000 + r.IntN(1000))
	for i := range n {
		c.Times[i] = 1_790_000_000_000_000 + int64(i)*10_000_000 + 1000*(r.Int64N(101)-50)
		c.Received[i] = c.Times[i] + 2000 + r.Int64N(10_000)
		c.Offsets[i] = 1_000_000 + int64(i)*1000 + r.Int64N(11) - 5
		c.Indexes[i] = 0
		value += r.Int64N(41) - 20
		c.Values[i] = float64(value) / 100
	}
	return c
}

func TestATwoDecimalSensorTakesAtMostFiveBytesAReading(t *testing.T) {
	var e encoder
	const n = 512
	size := func(change func(*columns, *rand.Rand)) float64 {
		c, r := sensor(n, 3), rand.New(rand.NewPCG(1, 2))
		if change != nil {
			change(c, r)
		}
		return float64(len(e.appendChunk(nil, c))) / n
	}
	asBrief := size(nil)
	t.Logf("stamps in ms, received in µs: %.2f bytes/reading", asBrief)
	t.Logf("stamps in µs, received in µs: %.2f", size(func(c *columns, r *rand.Rand) {
		for i := range c.Times {
			j := r.Int64N(1000)
			c.Times[i] += j
			c.Received[i] += j
		}
	}))
	t.Logf("no stamps (event time is receive time): %.2f", size(func(c *columns, _ *rand.Rand) { copy(c.Times, c.Received) }))
	t.Logf("noisy float64 values: %.2f", size(func(c *columns, r *rand.Rand) {
		for i := range c.Values {
			c.Values[i] = 20 + r.NormFloat64()
		}
	}))
	if asBrief > 5 {
		t.Fatalf("%.2f bytes a reading", asBrief)
	}
}

// The readings of a large fleet come to a few for each series before a head is written.
func TestShortRunsThatAreAlikeTakeHardlyMoreThanLongOnes(t *testing.T) {
	b := blockBuilder{enc: &encoder{}}
	for i := range 128 {
		b.add(int64(i), &labels{source: "mqtt1", unit: "°C", dataType: "double"}, sensor(5, uint64(i)))
	}
	if each := float64(len(b.blob())) / (128 * 5); each > 5 {
		t.Fatalf("%.2f bytes a reading", each)
	}
}

func FuzzDecodeChunk(f *testing.F) {
	var e encoder
	for i := range uint64(4) {
		c := sensor(1+20*int(i), i)
		switch i {
		case 1:
			c.Values[3] = math.Copysign(0, -1)
		case 2:
			c.AltIDs = make([]string, c.len())
			c.AltIDs[2] = "again"
			c.Classifiers = make([]int64, c.len())
			c.Classifiers[1] = 5
		case 3:
			c.Times[0], c.Times[1] = math.MinInt64, math.MaxInt64
		}
		blob := e.appendChunk(nil, c)
		f.Add(blob[:len(blob)-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var c, again columns
		if err := decodeChunk(sealed(slices.Clone(body), 0), &c, everything); err != nil {
			return
		}
		var e encoder
		if err := decodeChunk(e.appendChunk(nil, &c), &again, everything); err != nil || !sameColumns(&c, &again) {
			t.Fatalf("%v: %+v became %+v", err, c, again)
		}
	})
}

func FuzzDecodeBlock(f *testing.F) {
	var e encoder
	b := blockBuilder{enc: &e}
	b.add(1, &labels{source: "mqtt1", unit: "V"}, sensor(5, 1))
	b.add(2, &labels{source: "http1"}, sensor(7, 2))
	blob := b.blob()
	f.Add(blob[:len(blob)-4])
	for _, runs := range [][]goldenRun{alikeRuns(), mixedRuns()} {
		b.reset()
		for i, r := range runs {
			b.add(int64(i), r.labels, r.columns)
		}
		blob := b.blob()
		f.Add(blob[:len(blob)-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b, err := decodeBlock(sealed(slices.Clone(body), 0))
		if err != nil {
			return
		}
		var c columns
		for i := range b.entries {
			_ = b.decode(&b.entries[i], &c, everything)
		}
	})
}

func BenchmarkEncodeChunk(b *testing.B) {
	var e encoder
	c := sensor(512, 1)
	var dst []byte
	for b.Loop() {
		dst = e.appendChunk(dst[:0], c)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/512, "ns/reading")
	b.ReportMetric(float64(len(dst))/512, "bytes/reading")
}

func BenchmarkDecodeChunk(b *testing.B) {
	var e encoder
	blob := e.appendChunk(nil, sensor(512, 1))
	for name, d := range map[string]depth{"times": timesOnly, "values": timesAndValues, "everything": everything} {
		b.Run(name, func(b *testing.B) {
			var c columns
			for b.Loop() {
				if err := decodeChunk(blob, &c, d); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/512, "ns/reading")
		})
	}
}
