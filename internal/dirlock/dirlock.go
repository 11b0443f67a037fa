// Package dirlock lets one process at a time own a data directory.
package dirlock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Name is the name of the lock file in a data directory.
const Name = "lock"

// LockedError says that another process owns the directory.
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

// errHeld is what the system's lock says when somebody else has it.
var errHeld = errors.New("held")

// Lock is the ownership of a directory. It ends with Close, or with the process, however that ends.
type Lock struct{ f *os.File }

// Acquire takes the directory, which must exist. The error is a *LockedError when another process has it.
func Acquire(dir string) (*Lock, error) {
	path := filepath.Join(dir, Name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		defer f.Close()
		if errors.Is(err, errHeld) {
			return nil, &LockedError{Dir: dir, PID: owner(path)}
		}
		return nil, fmt.Errorf("the lock of %s cannot be taken: %w", dir, err)
	}
	if err := errors.Join(f.Truncate(0), write(f)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Lock{f}, nil
}

func write(f *os.File) error {
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func owner(path string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

// Close gives the directory back. The file stays: removing it would let two processes lock two files of one name.
func (l *Lock) Close() error { return l.f.Close() }
