// Package dirlock lets one process at a time own a data directory.
package dirlock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"weir/internal/smallfile"
)

// Name is the name of the lock file in a data directory.
const Name = "lock"

// LockedError means that another process owns the directory.
type LockedError struct {
	Dir string
	PID int // of the owner, 0 when it is not known
}

func (e *LockedError) Error() string {
	if e.PID > 0 {
		return fmt.Sprintf("the data directory %s is in use by process %d", e.Dir, e.PID)
	}
	return fmt.Sprintf("the data directory %s is in use by another process", e.Dir)
}

// errHeld is the error of the system's lock when another process has it.
var errHeld = errors.New("held")

// Lock is the ownership of a directory. It ends with Close, or with the process.
type Lock struct{ f *os.File }

// Acquire locks the directory, which must exist. The error is a *LockedError when another process has it.
func Acquire(dir string) (*Lock, error) {
	path := filepath.Join(dir, Name)
	f, err := open(dir, path)
	if err != nil {
		return nil, unwritable(dir, err)
	}
	if err := lock(f); err != nil {
		defer f.Close()
		if errors.Is(err, errHeld) {
			return nil, &LockedError{Dir: dir, PID: owner(path)}
		}
		return nil, fmt.Errorf("the lock of %s cannot be taken: %w", dir, err)
	}
	if err := errors.Join(f.Truncate(0), write(f)); err != nil {
		return nil, errors.Join(unwritable(dir, err), f.Close())
	}
	return &Lock{f}, nil
}

// unwritable adds the directory and the file to an error.
func unwritable(dir string, err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("the data directory %s cannot be used: %s: %w", dir, e.Path, e.Err)
	}
	return fmt.Errorf("the data directory %s cannot be used: %w", dir, err)
}

func write(f *os.File) error {
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func owner(path string) int {
	b, err := smallfile.Read(path, 64)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

// Owner returns the process that owns a directory, 0 when there is none or it is unknown. It takes no lock, so that it
// does not disturb the owner.
func Owner(dir string) int {
	path := filepath.Join(dir, Name)
	pid := owner(path)
	if pid == 0 || !holds(pid, path) {
		return 0
	}
	return pid
}

// Close releases the directory. The file stays: removing it would let two processes lock two files of one name.
func (l *Lock) Close() error { return errors.Join(unlock(l.f), l.f.Close()) }
