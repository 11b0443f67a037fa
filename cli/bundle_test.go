package cli

import (
	"errors"
	"io/fs"
	"testing"
	"time"

	"weir/operate"
)

// TestTwoBundlesOfOneSecondHaveNamesOfTheirOwn: the name has the time, and a file is never overwritten.
func TestTwoBundlesOfOneSecondHaveNamesOfTheirOwn(t *testing.T) {
	t.Chdir(t.TempDir())
	files := []operate.BundleFile{{Name: "version.json", Body: []byte("{}")}}
	for _, want := range []string{"b.tar.gz", "b-2.tar.gz", "b-3.tar.gz"} {
		if file, err := writeUnnamed("b", time.Unix(1, 0), files); file != want || err != nil {
			t.Fatalf("%s, %v, want %s", file, err, want)
		}
	}
	for n := 4; n <= sameSecond; n++ {
		if _, err := writeUnnamed("b", time.Unix(1, 0), files); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := writeUnnamed("b", time.Unix(1, 0), files); !errors.Is(err, fs.ErrExist) {
		t.Errorf("%v", err)
	}
}
