package faults_test

import (
	"debug/elf"
	"strings"
	"testing"

	"weir/internal/test/need"
	"weir/internal/test/testweir"
)

// The program that is shipped holds nothing of the points; that the other build does shows that the look finds them.
func TestTheShippedProgramHasNoPoints(t *testing.T) {
	t.Parallel()
	if got := ours(t, testweir.Binary(t)); len(got) > 0 {
		t.Errorf("it holds %v", got)
	}
	if len(ours(t, testweir.Tagged(t, "faults"))) == 0 {
		t.Error("the build with the tag holds nothing either")
	}
}

// ours are the symbols of the package in a binary.
func ours(t *testing.T, path string) (out []string) {
	t.Helper()
	f, err := elf.Open(path)
	need.That(t, err == nil, "%s has no symbols that can be read here: %v", path, err)
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if strings.HasPrefix(s.Name, "weir/internal/faults.") {
			out = append(out, s.Name)
		}
	}
	return out
}
