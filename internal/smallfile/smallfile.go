// Package smallfile reads files of uncertain kind: a file that a running instance reads again and again may
// have become a pipe without a writer, an endless device, or a file that exceeds the memory. None of them makes the
// reader wait or grow.
package smallfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNotPlain means that a path is neither a plain file nor a link to one.
var ErrNotPlain = errors.New("is no plain file")

// Read is os.ReadFile for plain files of at most max bytes. Its errors are *fs.PathError.
func Read(path string, max int64) ([]byte, error) {
	// Opening a pipe without a writer would wait for one.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case fi.IsDir():
		return nil, refused(path, syscall.EISDIR)
	case !fi.Mode().IsRegular():
		return nil, refused(path, ErrNotPlain)
	}
	// Not by its size: it may grow during the read.
	b, err := io.ReadAll(io.LimitReader(f, max+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > max {
		return nil, refused(path, fmt.Errorf("is larger than %d KiB", max>>10))
	}
	return b, nil
}

func refused(path string, why error) error { return &fs.PathError{Op: "read", Path: path, Err: why} }
