// Package loopdisk makes a disk for one test or measurement: an ext4 with a journal on a loop device, whose written bytes the
// kernel counts apart from all others, and whose rate can be limited. It needs Linux and root.
package loopdisk

// Disk is a mounted file system on a loop device of its own.
type Disk struct {
	Dir          string // where it is mounted
	image        string
	major, minor uint32
	limited      bool
}
