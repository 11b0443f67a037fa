package operate

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestNetworkFileSystemsAreRefused(t *testing.T) {
	t.Parallel()
	for kind, refused := range map[string]bool{"nfs": true, "smb": true, "ext4": false, "tmpfs": false, "": false} {
		t.Run(kind, func(t *testing.T) {
			err := refuseRemote("/data", kind)
			if (err != nil) != refused || refused && !strings.Contains(err.Error(), "/data is on "+kind) {
				t.Errorf("%s: %v", kind, err)
			}
		})
	}
}

var checkID = regexp.MustCompile(`(?:ID: |Check\{|stored\(|f\.ID = )"([a-z-]+)"`)

// TestEveryFindingStandsInTroubleshooting: the page has a heading for each id.
func TestEveryFindingStandsInTroubleshooting(t *testing.T) {
	t.Parallel()
	page := read(t, "../docs/troubleshooting.md")
	ids := 0
	for _, pattern := range []string{"*.go", "../health/*.go", "../cli/doctor.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, m := range checkID.FindAllStringSubmatch(read(t, file), -1) {
				if ids++; !strings.Contains(page, "\n| `"+m[1]+"` | ") {
					t.Errorf("%s: docs/troubleshooting.md has no row for %s", file, m[1])
				}
			}
		}
	}
	if ids < 25 {
		t.Errorf("only %d ids were found", ids)
	}
}

var (
	rowOfTests = regexp.MustCompile(`(?m)^\| .* \| ([^|]*(?:Test[A-Z]|\.txtar)[^|]*) \|$`)
	testName   = regexp.MustCompile(`Test[A-Za-z0-9]+|[a-z-]+\.txtar`)
	testFunc   = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
)

// TestWhatHappensWhenIsShown: every test that the table names is there.
func TestWhatHappensWhenIsShown(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	if err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir():
			return err
		case strings.HasSuffix(path, ".txtar"):
			there[d.Name()] = true
		case strings.HasSuffix(path, "_test.go"):
			for _, m := range testFunc.FindAllStringSubmatch(read(t, path), -1) {
				there[m[1]] = true
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	rows := rowOfTests.FindAllStringSubmatch(read(t, "../docs/troubleshooting.md"), -1)
	if len(rows) < 15 {
		t.Errorf("only %d rows name a test", len(rows))
	}
	for _, row := range rows {
		for _, name := range testName.FindAllString(row[1], -1) {
			if !there[name] {
				t.Errorf("there is no %s", name)
			}
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
