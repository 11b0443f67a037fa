package operate

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Between listening and a chmod another user could have connected, where the umask allows that. Not parallel: the umask is
// that of the process.
func TestTheSocketIsItsOwnersFromTheFirstMoment(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := filepath.Join(t.TempDir(), "sock")
	l, err := alone().Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if fi.Mode().Perm() != 0o600 {
		t.Errorf("it is %v", fi.Mode())
	}
}
