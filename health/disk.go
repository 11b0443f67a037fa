package health

import (
	"context"
	"strings"
)

// Disk is the device under a file system.
type Disk struct {
	Name     string // as the kernel calls it: sda, nvme0n1, mmcblk0
	Rotating bool
}

// DiskKind tells what kind of disk lies under the data directory: what a flush costs, and whether it wears.
func (m Machine) DiskKind(dir string) Check {
	return Check{"disk-kind", func(context.Context) Finding {
		d, err := m.Disk(existing(dir))
		switch {
		case err != nil:
			return Skip("the disk cannot be asked: %v", plain(err))
		case d.Name == "":
			return Skip("no disk of this machine lies under the directory")
		case strings.HasPrefix(d.Name, "mmcblk"):
			return Good("%s, an SD card or eMMC: it wears; spool.commit_interval and the check disk-wear are about it", d.Name)
		case d.Rotating:
			return Good("%s, which the system takes for one that rotates: a flush takes ten milliseconds or so", d.Name)
		}
		return Good("%s, which does not rotate", d.Name)
	}}
}
