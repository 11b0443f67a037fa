package health

import (
	"io"
	"os"
	"time"
)

// Machine is the interface of the checks to the operating system.
type Machine struct {
	Now func() time.Time
	// FileSystem describes the file system that a path lies on.
	FileSystem func(path string) (FileSystem, error)
	// Disk is the disk under the file system of a path; its name is "" when that is no disk of this machine.
	Disk func(path string) (Disk, error)
	// ClockState reports whether a service synchronizes the clock, and the source of that information.
	ClockState func() (synchronized bool, by string, err error)
	// Written is the number of bytes that this process has written to disks since it started.
	Written func() (int64, error)
	// Traces distinguish one start of the machine, and its out-of-memory kills, from another.
	Traces func() Traces
	// OpenFiles is the maximum number of files that this process may have open.
	OpenFiles func() (uint64, error)
	// Create creates a file for writing.
	Create func(dir string) (File, error)
	// Owner is the user that a file belongs to; ok is false where the system has no owners.
	Owner func(os.FileInfo) (uid int, ok bool)
	// User is the user that this process runs as.
	User int
}

// Traces show what may have ended a process: they are recorded while it runs and compared with those of the next start.
type Traces struct {
	Boot     string `json:"boot,omitempty"` // boot id of the kernel: a new one after each start of the machine
	OOMKills int64  `json:"oomKills"`       // processes that the kernel has killed for lack of memory, in the container or since its start
}

// File is a file of Machine.Create.
type File interface {
	io.Writer
	io.Closer
	Sync() error
	Name() string
}

// FileSystem describes a file system. Inodes are 0 when their number is unlimited.
type FileSystem struct {
	Kind               string // ext4, tmpfs, nfs, …; "" when unknown
	ReadOnly           bool
	Bytes, FreeBytes   uint64 // free: for this user
	Inodes, FreeInodes uint64
}

// ThisMachine uses the operating system.
func ThisMachine() Machine {
	return Machine{Now: time.Now, FileSystem: fileSystem, Disk: disk, ClockState: clockState, Written: written, Traces: traces, OpenFiles: openFiles, Owner: owner, User: os.Geteuid(),
		Create: func(dir string) (File, error) { return os.CreateTemp(dir, ".doctor-*") }}
}
