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

// DiskKind reports the kind of disk under the data directory: what a flush costs, and whether it wears.
func (m Machine) DiskKind(dir string) Check {
	return Check{"disk-kind", func(context.Context) Finding {
		d, err := m.Disk(existing(dir))
		switch {
		case err != nil:
			return Skip("the disk is unknown: %v", plain(err))
		case d.Name == "":
			return Skip("no disk of this machine lies under the directory")
		case strings.HasPrefix(d.Name, "mmcblk"):
			return Good("%s, an SD card or eMMC: it wears; see spool.commit_interval and the check disk-wear", d.Name)
		case d.Rotating:
			return Good("%s, a rotating disk by the system's account: a flush takes about ten milliseconds", d.Name)
		}
		return Good("%s, which does not rotate", d.Name)
	}}
}
