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

// Directory checks that the data directory is there, belongs to the user that Weir runs as, is closed to others, and can
// be written to.
func (m Machine) Directory(dir string) Check {
	return Check{"data-dir", func(context.Context) Finding {
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return m.parent(dir)
		case errors.Is(err, syscall.ENOTDIR):
			return Fail("name another directory with data_dir or --data", "%s cannot be made: what stands on the way is a file", dir)
		case err != nil:
			return Fail("the way to the directory must be open to the user that weir runs as", "%s cannot be looked at: %v", dir, err)
		case !info.IsDir():
			return Fail("name a directory with data_dir or --data", "%s is not a directory", dir)
		}
		if err := m.try(dir); err != nil {
			return m.unwritable(dir, err)
		}
		if mode := info.Mode().Perm(); mode&0o007 != 0 {
			return Warn("chmod o-rwx "+dir, "%s has mode %04o: everybody on the machine may look into it", dir, mode)
		}
		if uid, ok := m.Owner(info); ok && uid != m.User {
			return Warn("run weir as the user that owns the directory, or its files end up with two owners", "%s belongs to user %d, this is user %d",
				dir, uid, m.User)
		}
		return Good("%s, mode %04o, can be written", dir, info.Mode().Perm())
	}}
}

// parent says whether a directory that is not there could be made: by the first start.
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
		hint = "make room on the disk"
	case errors.Is(err, syscall.EROFS):
		hint = readOnlyHint
	}
	return Fail(hint, "%s cannot be written by user %d: %v", dir, m.User, plain(err))
}

// plain is the reason of a file's error, without a name that means nothing to anybody.
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

const readOnlyHint = "mount it for writing; a disk with errors is mounted read-only by the kernel: dmesg tells"

// Kinds of file systems that need a word.
var (
	volatile = []string{"tmpfs", "ramfs"}
	remote   = []string{"9p", "ceph", "afs"}
	refused  = []string{"nfs", "smb"}
)

// Unreliable reports whether a file system of this kind cannot hold a data directory: its locks and syncs do not hold.
func Unreliable(kind string) bool { return slices.Contains(refused, kind) }

// FileSystemKind checks that what lies under the data directory can keep the promise that Weir makes.
func (m Machine) FileSystemKind(dir string) Check {
	return Check{"file-system", func(context.Context) Finding {
		fs, err := m.FileSystem(existing(dir))
		switch {
		case err != nil:
			return Skip("the file system cannot be asked: %v", err)
		case fs.ReadOnly:
			return Fail(readOnlyHint, "%s is mounted read-only", or(fs.Kind, "the file system"))
		case Unreliable(fs.Kind):
			return Fail("move the data directory to a local disk and name it with data_dir: weir does not start here", "%s: its locks and syncs do not hold", fs.Kind)
		case slices.Contains(volatile, fs.Kind):
			return Warn("keep the data directory on a disk", "%s: everything is lost at a reboot", fs.Kind)
		case slices.Contains(remote, fs.Kind):
			return Warn("keep the data directory on a local disk: locks and syncs of network file systems do not always hold", "%s is a network file system", fs.Kind)
		case fs.Kind == "overlay":
			return Warn("mount a volume on the data directory", "overlay: what is written is gone when the container is")
		case fs.Kind == "":
			return Good("a file system of a kind that is not known here")
		}
		return Good("%s", fs.Kind)
	}}
}

// existing is dir, or the nearest directory above it that is there.
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

// What a disk must have left: under minFree nothing can be relied on, and minInodes are used by a log that grows.
const (
	minFree   = 32 << 20
	minInodes = 200
)

// Space checks that the disk has room for the log as large as it may become (growth: the bytes it may still take) and
// for the store beside it.
func (m Machine) Space(dir string, growth int64) Check {
	return Check{"disk-space", func(context.Context) Finding {
		fs, err := m.FileSystem(existing(dir))
		if err != nil {
			return Skip("the file system cannot be asked: %v", err)
		}
		const room = "make room, move data_dir to a larger disk, or lower ingest.spool_max_bytes"
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

// How the sync of the disk is measured: few and small, for every one wears a flash.
const (
	syncs     = 5
	syncBytes = 4096
	slowSync  = 50 * time.Millisecond
)

// Sync measures how long the disk takes to make a page durable: every acknowledgement waits for it.
func (m Machine) Sync(dir string) Check {
	return Check{"disk-sync", func(ctx context.Context) Finding {
		f, err := m.Create(existing(dir))
		if err != nil {
			return Skip("nothing can be written there: %v", plain(err))
		}
		took, err := m.measure(ctx, f)
		if err := errors.Join(err, f.Close(), os.Remove(f.Name())); err != nil {
			return Fail("the disk refuses what the log does for every batch; dmesg may tell why", "a sync failed: %v", plain(err))
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
