package series

import (
	"encoding/hex"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// goldenColumns are readings that use every part of the format.
func goldenColumns() map[string]*columns {
	mixed := &columns{Times: []int64{1_790_035_200_000_000, 1_790_035_200_000_000, 1_790_035_210_000_000, 1_790_035_219_950_000, -5},
		Values:   []float64{21.5, -0.25, math.Copysign(0, -1), 0.1 + 0.2, 1e300},
		Received: []int64{1_790_035_200_001_500, 1_790_035_200_001_700, 1_790_035_210_001_400, 1_790_035_219_951_000, 1_790_035_219_951_000},
		Offsets:  []int64{100, 100, 1_103, 2_099, 2_100}, Indexes: []int64{0, 1, 0, 0, 255},
		Classifiers: []int64{0, 1, 6, 0, 0}, AltIDs: []string{"", "a-1", "a-2", "", "é"}}
	return map[string]*columns{"sensor": sensor(40, 9), "mixed": mixed, "one": sensor(1, 4)}
}

// golden compares a blob with its file, or writes it. The files are the format: bytes that a released Weir has written
// must be read for ever, so that an encoder that comes to other bytes gets new files beside these.
func golden(t *testing.T, name string, blob []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name+".hex")
	if *update {
		if err := os.WriteFile(path, []byte(hex.EncodeToString(blob)+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
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

func TestRowsOfVersion1AreReadForEver(t *testing.T) {
	var e encoder
	for name, c := range goldenColumns() {
		var got columns
		if err := decodeChunk(golden(t, "chunk-v1-"+name, e.appendChunk(nil, c)), &got, everything); err != nil || !sameColumns(c, &got) {
			t.Errorf("%s: %v, got %+v", name, err, got)
		}
	}
	b := blockBuilder{enc: &e}
	runs := []*columns{sensor(5, 1), sensor(1, 2), sensor(7, 3)}
	sets := []*labels{{source: "mqtt1", unit: "°C", dataType: "double"}, {source: "http1"}, {source: "mqtt1", unit: "°C", dataType: "double", anchors: 3, profile: 8}}
	for i, c := range runs {
		b.add(int64(512+i*i), sets[i], c)
	}
	got, err := decodeBlock(golden(t, "block-v1", b.blob()))
	if err != nil || len(got.entries) != len(runs) {
		t.Fatal(err)
	}
	for i := range got.entries {
		var c columns
		en := &got.entries[i]
		if err := got.decode(en, &c, everything); err != nil || !sameColumns(runs[i], &c) || *en.labels != *sets[i] || en.series != int64(512+i*i) {
			t.Errorf("run %d: %v, %+v", i, err, en)
		}
	}
}
