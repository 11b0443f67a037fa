//go:build unix

package smallfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestAPlainFileAndALinkToOneAreRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("text"), 0o600), os.Symlink("file", link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link} {
		if b, err := Read(path, 4); err != nil || string(b) != "text" {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
	if _, err := Read(file, 3); err == nil || !strings.HasSuffix(err.Error(), "is larger than 0 KiB") {
		t.Errorf("one byte too long: %v", err)
	}
	if _, err := Read(filepath.Join(dir, "none"), 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is not there: %v", err)
	}
}

// A test that waits here for ever has found the hole again.
func TestWhatIsNoPlainFileIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink("pipe", link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, link, "/dev/zero"} {
		if _, err := Read(path, 1<<20); !errors.Is(err, ErrNotPlain) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Read(dir, 1<<20); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("a directory: %v", err)
	}
}
