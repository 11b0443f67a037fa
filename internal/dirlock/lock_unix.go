//go:build unix

package dirlock

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// open opens the lock file, or creates it. A file that root creates in another user's directory is given to that user,
// who could not open it otherwise. Links are not followed: the owner of the directory could make root write to any file.
func open(dir, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		return f, give(f, dir)
	}
	if !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if f, err = os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0); err != nil {
		return nil, err
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() || fi.Sys().(*syscall.Stat_t).Nlink != 1 {
		return nil, errors.Join(err, f.Close(), &fs.PathError{Op: "open", Path: path, Err: errStrange})
	}
	return f, nil
}

var errStrange = errors.New("is no lock: a file of its own must stand here, or none")

// give changes the owner of root's new file to the owner of the directory.
func give(f *os.File, dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner := fi.Sys().(*syscall.Stat_t)
	return f.Chown(int(owner.Uid), int(owner.Gid))
}

func lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errHeld
	}
	return err
}

// unlock releases the lock even if another process has the file open: a process being started has, for a moment, a copy
// of every descriptor, and would otherwise prolong the lock.
func unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }
