package backup

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openFiles is where a file that has no name is found to be given one.
const openFiles = "/proc/self/fd"

// nameless makes a file without a name in dir.
func nameless(dir string) (*os.File, error) {
	if _, err := os.Stat(openFiles); err != nil {
		return nil, err
	}
	return os.OpenFile(dir, os.O_WRONLY|unix.O_TMPFILE, 0o600)
}

// name gives a nameless file its name, unless a file has it.
func name(f *os.File, path string) error {
	err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("%s/%d", openFiles, f.Fd()), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return &os.LinkError{Op: "link", Old: "backup", New: path, Err: err}
	}
	return nil
}
