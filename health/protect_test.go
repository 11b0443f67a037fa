package health

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestNamesAreResolvedOnlyWhereThereAreAny(t *testing.T) {
	t.Parallel()
	asked := 0
	resolve := func(_ context.Context, host string) ([]string, error) {
		asked++
		if host == "weir.example.org" {
			return []string{"192.0.2.1"}, nil
		}
		return nil, errors.New("no such host")
	}
	holds(t, Names([]string{"", ":8080", "127.0.0.1:1883", "[::1]:1", "http://192.0.2.7:8080", "localhost:3"}, resolve).Look(t.Context()), Skipped, "no configured value", "")
	if asked != 0 {
		t.Errorf("%d names were asked for", asked)
	}
	holds(t, Names([]string{"https://weir.example.org/x"}, resolve).Look(t.Context()), OK, "weir.example.org", "")
	holds(t, Names([]string{"https://weir.example.org", "gone.example.org:1883"}, resolve).Look(t.Context()), Warning, "gone.example.org: no such host", "resolv.conf")
}

func TestFilesThatOthersMayReadOrOwn(t *testing.T) {
	t.Parallel()
	m, dir := sound(), t.TempDir()
	m.User = 7
	m.Owner = func(os.FileInfo) (int, bool) { return 7, true }
	path := filepath.Join(dir, "weir.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	holds(t, m.FileModes(dir).Look(t.Context()), OK, "1 file", "")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	holds(t, m.FileModes(dir).Look(t.Context()), Warning, "weir.db (0644)", "chmod -R o-rwx")
	m.User = 8
	holds(t, m.FileModes(dir).Look(t.Context()), Warning, "weir.db (user 7)", "chown -R 8")
	holds(t, m.FileModes(filepath.Join(dir, "none")).Look(t.Context()), Skipped, "no directory", "")
}

func TestADiskIsReportedByItsKind(t *testing.T) {
	t.Parallel()
	m := sound()
	for text, d := range map[string]Disk{"SD card or eMMC": {Name: "mmcblk0"}, "a rotating disk": {Name: "sda", Rotating: true}, "does not rotate": {Name: "nvme0n1"}} {
		m.Disk = func(string) (Disk, error) { return d, nil }
		holds(t, m.DiskKind(".").Look(t.Context()), OK, text, "")
	}
	m.Disk = func(string) (Disk, error) { return Disk{}, nil }
	holds(t, m.DiskKind(".").Look(t.Context()), Skipped, "no disk", "")
}
