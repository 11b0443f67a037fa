package health

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// kinds names file systems by the magic number that statfs gives.
var kinds = map[uint32]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.F2FS_SUPER_MAGIC: "f2fs",
	unix.TMPFS_MAGIC: "tmpfs", 0x858458f6: "ramfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.NFS_SUPER_MAGIC: "nfs",
	unix.SMB_SUPER_MAGIC: "smb", 0xfe534d42: "smb", 0xff534d42: "smb", 0x65735546: "fuse", unix.V9FS_MAGIC: "9p", unix.CEPH_SUPER_MAGIC: "ceph",
	unix.AFS_SUPER_MAGIC: "afs", unix.SQUASHFS_MAGIC: "squashfs", unix.MSDOS_SUPER_MAGIC: "vfat", 0x24051905: "ubifs", 0x72b6: "jffs2",
	0x2fc12fc1: "zfs", 0xca451a4e: "bcachefs",
}

func fileSystem(path string) (FileSystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return FileSystem{}, err
	}
	block := uint64(st.Bsize)
	return FileSystem{Kind: kinds[uint32(st.Type)], ReadOnly: uint64(st.Flags)&unix.ST_RDONLY != 0, Bytes: st.Blocks * block,
		FreeBytes: st.Bavail * block, Inodes: st.Files, FreeInodes: st.Ffree}, nil
}

// clockState asks the kernel, which time services keep informed; systemd's own service leaves a marker file as well.
func clockState() (synchronized bool, by string, err error) {
	if _, err := os.Stat("/run/systemd/timesync/synchronized"); err == nil {
		return true, "systemd-timesyncd", nil
	}
	state, err := unix.Adjtimex(&unix.Timex{})
	if err != nil {
		return false, "", err
	}
	const unsynchronized = 5 // TIME_ERROR
	return state != unsynchronized, "the kernel", nil
}

func openFiles() (uint64, error) {
	var l unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l)
	return l.Cur, err
}

func owner(info os.FileInfo) (uid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}

// lacksRoom reports whether an error means that the disk is full.
func lacksRoom(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// traces reads the id of this boot, and how many processes the kernel has killed for lack of memory: it counts them for the
// machine and for each control group.
func traces() Traces {
	t := Traces{OOMKills: max(counted("/proc/vmstat", "oom_kill"), counted("/sys/fs/cgroup/memory.events", "oom_kill"))}
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		t.Boot = strings.TrimSpace(string(b))
	}
	return t
}

// counted reads the number behind a name, 0 when it is not there.
func counted(path, name string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			n, _ := strconv.ParseInt(f[1], 10, 64) // 0 where it is no number
			return n
		}
	}
	return 0
}

// disk asks the kernel for the device with the number of a path's file system. A partition belongs to its disk.
func disk(path string) (Disk, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Disk{}, err
	}
	dev := uint64(st.Dev)
	if unix.Major(dev) == 0 { // of no device: tmpfs, overlay, a network
		return Disk{}, nil
	}
	at, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev)))
	if err != nil {
		return Disk{}, err
	}
	if _, err := os.Stat(filepath.Join(at, "partition")); err == nil {
		at = filepath.Dir(at)
	}
	rotating, err := os.ReadFile(filepath.Join(at, "queue/rotational"))
	return Disk{Name: filepath.Base(at), Rotating: strings.TrimSpace(string(rotating)) == "1"}, err
}
