package health

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Directory checks that the data directory exists, belongs to the user that Weir runs as, is closed to others, and can
// be written.
func (m Machine) Directory(dir string) Check {
	return Check{"data-dir", func(context.Context) Finding {
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return m.parent(dir)
		case errors.Is(err, syscall.ENOTDIR):
			return Fail("name another directory with data_dir or --data", "%s cannot be created: a parent path is a file", dir)
		case err != nil:
			return Fail("the user that weir runs as needs access to every parent directory", "%s cannot be accessed: %v", dir, err)
		case !info.IsDir():
			return Fail("name a directory with data_dir or --data", "%s is not a directory", dir)
		}
		if err := m.try(dir); err != nil {
			return m.unwritable(dir, err)
		}
		if mode := info.Mode().Perm(); mode&0o007 != 0 {
			return Warn("chmod o-rwx "+dir, "%s has mode %04o: every user of the machine can read it", dir, mode)
		}
		if uid, ok := m.Owner(info); ok && uid != m.User {
			return Warn("run weir as the user that owns the directory, otherwise its files get two owners", "%s belongs to user %d, this is user %d",
				dir, uid, m.User)
		}
		return Good("%s, mode %04o, can be written", dir, info.Mode().Perm())
	}}
}

// parent reports whether the first start can create a missing directory.
func (m Machine) parent(dir string) Finding {
	at := dir
	for {
		at = filepath.Dir(at)
		_, err := os.Stat(at)
		if errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
			continue
		}
		break
	}
	if err := m.try(at); err != nil {
		return m.unwritable(dir, err)
	}
	return Good("%s does not exist yet; the first start makes it", dir)
}

func (m Machine) unwritable(dir string, err error) Finding {
	hint := "give the directory to the user that weir runs as, or name another one with data_dir or --data"
	switch {
	case lacksRoom(err):
		hint = "free some disk space"
	case errors.Is(err, syscall.EROFS):
		hint = readOnlyHint
	}
	return Fail(hint, "%s cannot be written by user %d: %v", dir, m.User, plain(err))
}

// plain is the reason of a file's error, without the temporary name.
func plain(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// try writes a file into dir and removes it.
func (m Machine) try(dir string) error {
	f, err := m.Create(dir)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte("x"))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

const readOnlyHint = "mount it for writing; a disk with errors is mounted read-only by the kernel: see dmesg"

// Kinds of file systems with a finding of their own.
var (
	volatile = []string{"tmpfs", "ramfs"}
	remote   = []string{"9p", "ceph", "afs"}
	refused  = []string{"nfs", "smb"}
)

// Unreliable reports whether a file system of this kind cannot hold a data directory: its locks and syncs are not reliable.
func Unreliable(kind string) bool { return slices.Contains(refused, kind) }

// FileSystemKind checks that the file system under the data directory is durable.
func (m Machine) FileSystemKind(dir string) Check {
	return Check{"file-system", func(context.Context) Finding {
		fs, err := m.FileSystem(existing(dir))
		switch {
		case err != nil:
			return Skip("the state of the file system is unknown: %v", err)
		case fs.ReadOnly:
			return Fail(readOnlyHint, "%s is mounted read-only", or(fs.Kind, "the file system"))
		case Unreliable(fs.Kind):
			return Fail("move the data directory to a local disk and name it with data_dir: weir does not start here", "%s: its locks and syncs are not reliable", fs.Kind)
		case slices.Contains(volatile, fs.Kind):
			return Warn("keep the data directory on a disk", "%s: everything is lost at a reboot", fs.Kind)
		case slices.Contains(remote, fs.Kind):
			return Warn("keep the data directory on a local disk: locks and syncs of network file systems are not always reliable", "%s is a network file system", fs.Kind)
		case fs.Kind == "overlay":
			return Warn("mount a volume on the data directory", "overlay: the data is lost with the container")
		case fs.Kind == "":
			return Good("the kind of the file system is unknown")
		}
		return Good("%s", fs.Kind)
	}}
}

// existing is dir, or the nearest directory above it that exists.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// The free space that a disk must have: below minFree no write is reliable, and a growing log uses minInodes.
const (
	minFree   = 32 << 20
	minInodes = 200
)

// Space checks that the disk has space for the log at its maximum size (growth: the bytes it may still take) and
// for the store in addition.
func (m Machine) Space(dir string, growth int64) Check {
	return Check{"disk-space", func(context.Context) Finding {
		fs, err := m.FileSystem(existing(dir))
		if err != nil {
			return Skip("the state of the file system is unknown: %v", err)
		}
		const room = "free disk space, move data_dir to a larger disk, or lower ingest.spool_max_bytes"
		switch need := uint64(max(growth, 0)) + minFree; {
		case fs.FreeBytes < minFree:
			return Fail(room, "the disk is nearly full: %s of %s are free, at least %s are needed", Bytes(fs.FreeBytes), Bytes(fs.Bytes), Bytes(minFree))
		case fs.Inodes > 0 && fs.FreeInodes < minInodes:
			return Fail("remove small files from the disk", "%d of %d inodes are free: no new files can be made soon", fs.FreeInodes, fs.Inodes)
		case fs.FreeBytes < need:
			return Warn(room, "%s of %s are free; a log that fills up needs %s", Bytes(fs.FreeBytes), Bytes(fs.Bytes), Bytes(need))
		}
		return Good("%s of %s are free", Bytes(fs.FreeBytes), Bytes(fs.Bytes))
	}}
}

// The measurement of a sync: few and small, because each one wears a flash.
const (
	syncs     = 5
	syncBytes = 4096
	slowSync  = 50 * time.Millisecond
)

// Sync measures how long the disk takes to make a page durable: every acknowledgement waits for a sync.
func (m Machine) Sync(dir string) Check {
	return Check{"disk-sync", func(ctx context.Context) Finding {
		f, err := m.Create(existing(dir))
		if err != nil {
			return Skip("nothing can be written there: %v", plain(err))
		}
		took, err := m.measure(ctx, f)
		if err := errors.Join(err, f.Close(), os.Remove(f.Name())); err != nil {
			return Fail("the log needs a sync for every batch; dmesg may show the reason", "a sync failed: %v", plain(err))
		}
		slices.Sort(took)
		median := took[len(took)/2]
		told := median.Round(10 * time.Microsecond)
		if median > slowSync {
			return Warn("acknowledgements wait for it; spool.commit_interval trades latency for fewer syncs, a better disk is the cure",
				"a sync takes %s (median of %d)", told, len(took))
		}
		return Good("a sync takes %s (median of %d)", told, len(took))
	}}
}

// measure syncs a few pages, fewer when time runs out, at least one.
func (m Machine) measure(ctx context.Context, f File) ([]time.Duration, error) {
	var took []time.Duration
	page := make([]byte, syncBytes)
	for len(took) < syncs && (len(took) == 0 || ctx.Err() == nil) {
		if _, err := f.Write(page); err != nil {
			return append(took, 0), err
		}
		began := m.Now()
		if err := f.Sync(); err != nil {
			return append(took, 0), err
		}
		took = append(took, m.Now().Sub(began))
	}
	return took, nil
}
