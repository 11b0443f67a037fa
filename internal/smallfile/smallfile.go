// Package smallfile reads files that may not be what they should be: what a running instance looks at again and again may
// have become a pipe without a writer, a device without an end, or a file that fills the memory. None of them makes the
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

// ErrNotPlain says that what stands at a path is neither a plain file nor a link to one.
var ErrNotPlain = errors.New("is no plain file")

// Read is os.ReadFile for plain files of at most max bytes. Its errors are *fs.PathError.
func Read(path string, max int64) ([]byte, error) {
	// Opening a pipe that nobody writes to would wait for somebody who does.
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
	// Not by its size: it may grow while it is read.
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
