package series

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/test/made"

	"weir/internal/pack"
	"weir/model"
)

// goldenColumns are readings that use every part of the format.
func goldenColumns() map[string]*columns {
	mixed := &columns{Times: []int64{1_790_035_200_000_000, 1_790_035_200_000_000, 1_790_035_210_000_000, 1_790_035_219_950_000, -5},
		Values:   []float64{21.5, -0.25, math.Copysign(0, -1), 0.1 + 0.2, 1e300},
		Received: []int64{1_790_035_200_001_500, 1_790_035_200_001_700, 1_790_035_210_001_400, 1_790_035_219_951_000, 1_790_035_219_951_000},
		Offsets:  []int64{100, 100, 1_103, 2_099, 2_100}, Indexes: []int64{0, 1, 0, 0, 255},
		Classifiers: []int64{0, 1, 6, 0, 0}, AltIDs: []string{"", "a-1", "a-2", "", "é"}}
	return map[string]*columns{"sensor": sensor(40, 9), "mixed": mixed, "one": sensor(1, 4)}
}

// newColumns are readings that use what version 1 has not.
func newColumns() map[string]*columns {
	noise, counted, random := sensor(40, 9), sensor(40, 9), sensor(40, 9)
	r := rand.New(rand.NewPCG(1, 2))
	counted.AltIDs, random.AltIDs = make([]string, 40), make([]string, 40)
	for i := range 40 {
		noise.Values[i] = math.Float64frombits(r.Uint64() &^ (1 << 62))
		if i%3 == 0 {
			counted.AltIDs[i] = fmt.Sprintf("m-%03d", i)
		}
		random.AltIDs[i] = fmt.Sprintf("0191b2c3-%04x-7%03x-a%03x-%012x", r.Uint32()>>16, r.Uint32()>>20, r.Uint32()>>20, r.Uint64()>>16)
	}
	return map[string]*columns{"noise": noise, "counted": counted, "random": random}
}

// golden compares a blob with its file, or writes it. The files are the format: bytes that a released Weir has written
// must be read for ever, so that an encoder that comes to other bytes gets new files beside these.
func golden(t *testing.T, name string, blob []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name+".hex")
	if made.Update() {
		made.Write(t, path, []byte(hex.EncodeToString(blob)+"\n"))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(blob) {
		t.Errorf("%s: the encoder writes other bytes than the golden ones", name)
	}
	return want
}

// written reads a golden file that nothing writes any more.
func written(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	blob, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return blob
}

func TestRowsOfVersion1AreReadForEver(t *testing.T) {
	for name, c := range goldenColumns() {
		sameChunk(t, name, written(t, "chunk-v1-"+name), c)
	}
	sameBlock(t, written(t, "block-v1"), goldenRuns())
}

func TestRowsOfVersion2AreReadForEver(t *testing.T) {
	var e encoder
	all := goldenColumns()
	maps.Copy(all, newColumns())
	for name, c := range all {
		sameChunk(t, name, golden(t, "chunk-v2-"+name, e.appendChunk(nil, c)), c)
	}
	sameBlock(t, written(t, "block-v2"), goldenRuns())
}

func TestBlocksOfVersion3AreReadForEver(t *testing.T) {
	for name, runs := range map[string][]goldenRun{"runs": goldenRuns(), "alike": alikeRuns(), "mixed": mixedRuns()} {
		b := blockBuilder{enc: &encoder{}}
		for i, r := range runs {
			b.add(int64(512+i*i), r.labels, r.columns)
		}
		sameBlock(t, golden(t, "block-v3-"+name, b.blob()), runs)
	}
}

func sameChunk(t *testing.T, name string, blob []byte, want *columns) {
	t.Helper()
	var got columns
	if err := decodeChunk(blob, &got, everything); err != nil || !sameColumns(want, &got) {
		t.Errorf("%s: %v, got %+v", name, err, got)
	}
}

type goldenRun struct {
	*columns
	labels *labels
}

func goldenRuns() []goldenRun {
	return []goldenRun{{sensor(5, 1), &labels{source: "mqtt1", unit: "°C", dataType: "double"}}, {sensor(1, 2), &labels{source: "http1"}},
		{sensor(7, 3), &labels{source: "mqtt1", unit: "°C", dataType: "double", anchors: 3, profile: 8}}}
}

// alikeRuns share what runs can share, their altIds too.
func alikeRuns() []goldenRun {
	l := &labels{source: "mqtt1", unit: "°C", dataType: "double"}
	var runs []goldenRun
	for i := range uint64(12) {
		c := sensor(9, i)
		c.AltIDs = make([]string, c.len())
		for j := 0; j < c.len(); j += 3 {
			c.AltIDs[j] = fmt.Sprintf("m%d", j)
		}
		runs = append(runs, goldenRun{c, l})
	}
	return runs
}

// mixedRuns have nothing in common: each kind of value, a device that is rarely heard, one with a clock that is wrong,
// classifiers, and altIds that each device makes in its own way.
func mixedRuns() []goldenRun {
	l := &labels{source: "http1"}
	noise, rare, whole, wrong, constant := sensor(9, 1), sensor(2, 2), sensor(9, 3), sensor(7, 4), sensor(12, 5)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range noise.Values {
		noise.Values[i] = math.Float64frombits(r.Uint64() &^ (1 << 62))
	}
	rare.Times[1] += 3_000_000_000
	rare.Received[1] += 3_000_000_000
	whole.Classifiers = make([]int64, whole.len())
	for i := range whole.Values {
		whole.Values[i], whole.Classifiers[i] = float64(1_000_000*i), int64(i%3)
	}
	for i := range wrong.Received {
		wrong.Received[i] += 3_600_000_000
	}
	for i := range constant.Values {
		constant.Values[i], constant.Times[i] = 1, constant.Times[0]+int64(i)*60_000_000
		constant.Received[i] = constant.Times[i]
	}
	runs := []goldenRun{{noise, l}, {rare, l}, {whole, l}, {wrong, l}, {constant, l}}
	for i, run := range runs {
		run.AltIDs = make([]string, run.len())
		for j := range run.AltIDs {
			run.AltIDs[j] = fmt.Sprintf("device-%c%c-%06d", 'a'+i, 'z'-i, 1000*i+j)
		}
	}
	return runs
}

func sameBlock(t *testing.T, blob []byte, runs []goldenRun) {
	t.Helper()
	got, err := decodeBlock(blob)
	if err != nil || len(got.entries) != len(runs) {
		t.Fatal(err)
	}
	for i := range got.entries {
		var c columns
		en := &got.entries[i]
		if err := got.decode(en, &c, everything); err != nil || !sameColumns(runs[i].columns, &c) || *en.labels != *runs[i].labels ||
			en.series != int64(512+i*i) {
			t.Errorf("run %d: %v, %+v", i, err, en)
		}
	}
}

// markedRuns are runs of one series with and without a mark, as a sensor leaves them that was out of its range for a while.
func markedRuns() []goldenRun {
	runs := goldenRuns()[:1]
	for _, mark := range []model.RangeMark{model.Flagged, model.Clamped} {
		l := *runs[0].labels
		l.mark = mark
		runs = append(runs, goldenRun{sensor(3+int(mark), uint64(mark)), &l})
	}
	return runs
}

func TestMarkedRowsAreReadForEver(t *testing.T) {
	t.Parallel()
	var e encoder
	for name, c := range goldenColumns() {
		plain := e.appendChunk(nil, c)
		for _, mark := range []model.RangeMark{model.Flagged, model.Clamped} {
			blob := golden(t, fmt.Sprintf("chunk-v3-%s-%s", name, strings.ToLower(mark.String())), markedChunk(plain, mark))
			sameChunk(t, name, blob, c)
			if got := chunkMark(blob); got != mark {
				t.Errorf("%s: mark %v, want %v", name, got, mark)
			}
		}
	}
	runs := markedRuns()
	b := blockBuilder{enc: &encoder{}}
	for i, r := range runs {
		b.add(int64(512+i*i), r.labels, r.columns)
	}
	sameBlock(t, golden(t, "block-v4-marked", b.blob()), runs)
}

// What has no mark is written as before there were any.
func TestRowsWithoutAMarkCostNothingMore(t *testing.T) {
	t.Parallel()
	var e encoder
	plain := e.appendChunk(nil, sensor(40, 9))
	if blob := markedChunk(plain, model.InRange); blob[0] != plainChunk || &blob[0] != &plain[0] {
		t.Errorf("version %d, %d bytes instead of %d", blob[0], len(blob), len(plain))
	}
	if marked := markedChunk(plain, model.Flagged); len(marked) != len(plain)+1 {
		t.Errorf("a marked chunk has %d bytes, one without a mark %d", len(marked), len(plain))
	}
	b := blockBuilder{enc: &encoder{}}
	b.add(1, &labels{source: "mqtt1"}, sensor(5, 1))
	if blob := b.blob(); blob[0] != plainBlock {
		t.Errorf("a block without a mark has version %d", blob[0])
	}
}

func TestAnUnknownMarkIsAnErrorAndNeverAReading(t *testing.T) {
	t.Parallel()
	var e encoder
	blob := markedChunk(e.appendChunk(nil, sensor(5, 1)), model.MaxRangeMark+1)
	if err := decodeChunk(blob, &columns{}, everything); !errors.Is(err, pack.ErrForm) {
		t.Error(err)
	}
	b := blockBuilder{enc: &encoder{}}
	b.add(1, &labels{source: "mqtt1", mark: model.MaxRangeMark + 1}, sensor(5, 1))
	if _, err := decodeBlock(b.blob()); !errors.Is(err, pack.ErrForm) {
		t.Error(err)
	}
}
