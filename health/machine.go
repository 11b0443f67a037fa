package health

import (
	"io"
	"os"
	"time"
)

// Machine is what the checks ask of the operating system.
type Machine struct {
	Now func() time.Time
	// FileSystem describes the file system that a path lies on.
	FileSystem func(path string) (FileSystem, error)
	// ClockState says whether something keeps the clock right, and who says so.
	ClockState func() (synchronized bool, by string, err error)
	// Written is how many bytes this process has had written to disks since it started.
	Written func() (int64, error)
	// OpenFiles is how many files this process may have open.
	OpenFiles func() (uint64, error)
	// Create makes a file to be written and removed again.
	Create func(dir string) (File, error)
	// Owner is the user that a file belongs to; ok is false where there is no such thing.
	Owner func(os.FileInfo) (uid int, ok bool)
	// User is the user that this process runs as.
	User int
}

// File is a file of Machine.Create.
type File interface {
	io.Writer
	io.Closer
	Sync() error
	Name() string
}

// FileSystem is what is known of a file system. Inodes are 0 where it has no bound of them.
type FileSystem struct {
	Kind               string // ext4, tmpfs, nfs, …; "" when it is not known
	ReadOnly           bool
	Bytes, FreeBytes   uint64 // free: for this user
	Inodes, FreeInodes uint64
}

// ThisMachine asks the operating system itself.
func ThisMachine() Machine {
	return Machine{Now: time.Now, FileSystem: fileSystem, ClockState: clockState, Written: written, OpenFiles: openFiles, Owner: owner, User: os.Geteuid(),
		Create: func(dir string) (File, error) { return os.CreateTemp(dir, ".doctor-*") }}
}
