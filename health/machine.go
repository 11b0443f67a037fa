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
	// Disk is what lies under the file system of a path; its name is "" when that is no disk of this machine.
	Disk func(path string) (Disk, error)
	// ClockState says whether something keeps the clock right, and who says so.
	ClockState func() (synchronized bool, by string, err error)
	// Written is how many bytes this process has had written to disks since it started.
	Written func() (int64, error)
	// Traces are what tells one life of the machine, and deaths in it, from another.
	Traces func() Traces
	// OpenFiles is how many files this process may have open.
	OpenFiles func() (uint64, error)
	// Create makes a file to be written and removed again.
	Create func(dir string) (File, error)
	// Owner is the user that a file belongs to; ok is false where there is no such thing.
	Owner func(os.FileInfo) (uid int, ok bool)
	// User is the user that this process runs as.
	User int
}

// Traces tell what may have ended a process: they are noted while it runs and held against those of the next start.
type Traces struct {
	Boot     string `json:"boot,omitempty"` // of the kernel: another one after each start of the machine
	OOMKills int64  `json:"oomKills"`       // processes that the kernel has ended for want of memory, in the container or since its start
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
	return Machine{Now: time.Now, FileSystem: fileSystem, Disk: disk, ClockState: clockState, Written: written, Traces: traces, OpenFiles: openFiles, Owner: owner, User: os.Geteuid(),
		Create: func(dir string) (File, error) { return os.CreateTemp(dir, ".doctor-*") }}
}
