package loopdisk

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"weir/internal/test/need"
)

// TestADiskCountsAndLimits: what is written to it is counted, and takes its time.
func TestADiskCountsAndLimits(t *testing.T) {
	d, err := Make(t.TempDir(), 64<<20)
	need.That(t, err == nil, "a disk of its own cannot be made: %v", err)
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	const rate, size = 4 << 20, 4 << 20
	err = d.Limit(rate)
	need.That(t, err == nil, "%v", err)
	before, err := d.Written()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := os.WriteFile(filepath.Join(d.Dir, "file"), make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	after, err := d.Written()
	if err != nil {
		t.Fatal(err)
	}
	if n := after - before; n < size || n > size*3/2 {
		t.Errorf("%d bytes were counted for %d", n, size)
	}
	if took := time.Since(began); took < time.Second/2 { // a limit makes it longer, whatever the machine does
		t.Errorf("%d bytes at %d a second took %v", size, rate, took)
	}
}
