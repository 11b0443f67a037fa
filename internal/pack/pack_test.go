package pack

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestTextsTakeNoMoreThanTheirDigits(t *testing.T) {
	t.Parallel()
	const n = 100
	texts := func(f func(int) string) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = f(i)
		}
		return out
	}
	random := func(i int) uint64 { return (uint64(i) + 1) * 0x9e3779b97f4a7c15 }
	for name, c := range map[string]struct {
		texts []string
		most  float64 // bytes for each
	}{
		"counters":            {texts(func(i int) string { return fmt.Sprintf("m%d", 3*i) }), 0.1},
		"counters with zeros": {texts(func(i int) string { return fmt.Sprintf("run-7/%06d", i) }), 0.2},
		"a third of them":     {texts(func(i int) string { return strings.Repeat(fmt.Sprint("m", i), 1-min(i%3, 1)) }), 0.15},
		"hex":                 {texts(func(i int) string { return fmt.Sprintf("%016x", random(i)) }), 8.3},
		"UUIDs": {texts(func(i int) string {
			return fmt.Sprintf("%08x-0000-4000-a000-%012x", uint32(random(i)), random(2*i)>>16)
		}), 10.6},
		"ULIDs":                {texts(func(i int) string { return fmt.Sprintf("01J%010d", random(i)%1e10) }), 5.3},
		"capitals of base64":   {texts(func(i int) string { return fmt.Sprintf("%c_z-%c", 'A'+rune(i%26), 'a'+rune(i%23)) }), 1.8},
		"anything of a length": {texts(func(i int) string { return fmt.Sprintf("é%c!", 'A'+rune(i%26)) }), 1.2},
		"the same":             {texts(func(int) string { return "again" }), 0.2},
		"of many lengths":      {texts(func(i int) string { return strings.Repeat("x", 1+i%7) + "y" }), 4},
		"none":                 {make([]string, n), 0.02},
		"numbers past int64":   {texts(func(i int) string { return fmt.Sprintf("9%025d", i) }), 1.5},
		"the longest":          {[]string{strings.Repeat("9", MaxText), "8"}, MaxText},
	} {
		t.Run(name, func(t *testing.T) {
			var e Encoder
			got := make([]string, len(c.texts))
			b := e.AppendTexts(nil, c.texts)
			if rest, err := DecodeTexts(append(b, 7), got); err != nil || len(rest) != 1 || !slices.Equal(got, c.texts) {
				t.Fatalf("%v, %d bytes left: %q", err, len(rest), got)
			}
			if each := float64(len(b)) / float64(len(c.texts)); each > c.most {
				t.Errorf("%.2f bytes each", each)
			}
		})
	}
}

func TestValuesWithoutAPatternTakeWhatTheyHold(t *testing.T) {
	t.Parallel()
	v := make([]float64, 200)
	for i := range v {
		v[i] = math.Float64frombits((uint64(i)+1)*0x9e3779b97f4a7c15>>12 | uint64(1020+i%8)<<52 | uint64(i%2)<<63)
	}
	v[7], v[8], v[9] = math.Inf(-1), math.SmallestNonzeroFloat64, math.Copysign(0, -1)
	var e Encoder
	got := make([]float64, len(v))
	b := e.AppendFloats(nil, v)
	if rest, err := DecodeFloats(b, got, make([]int64, len(v))); err != nil || len(rest) != 0 {
		t.Fatalf("%v, %d bytes left", err, len(rest))
	}
	for i := range v {
		if math.Float64bits(v[i]) != math.Float64bits(got[i]) {
			t.Fatalf("%v became %v", v[i], got[i])
		}
	}
	if each := float64(len(b)) / float64(len(v)); each > 7.5 {
		t.Errorf("%.2f bytes each", each)
	}
}

func FuzzDecodeTexts(f *testing.F) {
	var e Encoder
	for _, texts := range [][]string{{"m1", "", "m2"}, {"0a", "ff"}, {"x", "yz"}, {""}} {
		f.Add(e.AppendTexts(nil, texts), uint8(len(texts)))
	}
	f.Fuzz(func(t *testing.T, b []byte, n uint8) {
		texts := make([]string, 1+int(n))
		if _, err := DecodeTexts(b, texts); err != nil {
			return
		}
		var e Encoder
		again := make([]string, len(texts))
		if rest, err := DecodeTexts(e.AppendTexts(nil, texts), again); err != nil || len(rest) != 0 || !slices.Equal(texts, again) {
			t.Fatalf("%v: %q became %q", err, texts, again)
		}
	})
}

// Groups that are alike have base and parameter in common, others their own; and each comes back, empty ones and extreme
// numbers too.
func TestGroupsHaveInCommonWhatTheyCan(t *testing.T) {
	t.Parallel()
	const each, groups = 9, 100
	numbers := func(f func(group, i int) int64) (v []int64, ends []int) {
		for g := range groups {
			for i := range each {
				v = append(v, f(g, i))
			}
			ends = append(ends, len(v))
		}
		return v, ends
	}
	noise := func(i, n int) int64 { return int64((uint64(i) + 1) * 0x9e3779b97f4a7c15 >> 33 % uint64(n)) }
	for name, c := range map[string]struct {
		f    func(group, i int) int64
		most float64 // bits for each
	}{
		"one for all":         {func(int, int) int64 { return 10_000_000 }, 0.1},
		"noise alike":         {func(g, i int) int64 { return 10_000_000 + noise(100*g+i, 64) }, 7.3},
		"in thousands":        {func(g, i int) int64 { return 1000 * noise(100*g+i, 64) }, 7.3},
		"a base each":         {func(g, i int) int64 { return noise(g, 1<<30) + noise(100*g+i, 64) }, 11.5},
		"a width each":        {func(g, i int) int64 { return noise(100*g+i, 1<<(2+g%16)) }, 13.5},
		"constant, each":      {func(g, i int) int64 { return noise(g, 1<<30) }, 4},
		"the ends of numbers": {func(g, i int) int64 { return [...]int64{math.MinInt64, math.MaxInt64, 0}[(g+i)%3] }, 100},
	} {
		t.Run(name, func(t *testing.T) {
			var e Encoder
			v, ends := numbers(c.f)
			ends = append([]int{0}, append(ends, len(v))...) // an empty one at each end
			g, _ := e.FitGroups(v, ends)
			b := e.AppendGroups(nil, &g)
			size := len(b)
			back, rest, err := DecodeGroups(append(b, 7), len(ends))
			if err != nil || len(rest) != 1 {
				t.Fatal(err, len(rest))
			}
			start := 0
			for i, end := range ends {
				w := NewBitWriter(nil)
				g.Write(w, i, v[start:end])
				stream, got := w.Finish(), make([]int64, end-start)
				r := NewBitReader(stream)
				back.Read(r, i, got)
				if rest, err := r.End(stream); err != nil || len(rest) > 0 || !slices.Equal(got, v[start:end]) {
					t.Fatalf("group %d: %v, %d bytes left: %v", i, err, len(rest), got)
				}
				size += len(stream)
				start = end
			}
			if bits := float64(8*size) / float64(len(v)); bits > c.most {
				t.Errorf("%.2f bits each", bits)
			}
		})
	}
}
