package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ticks is USER_HZ, which is 100 on every Linux that Go runs on.
const ticks = 100

// cpuTime is what the process has had of the processors, kernel included.
func cpuTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseCPU(b)
}

func parseCPU(stat []byte) (time.Duration, error) {
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // the name may hold spaces
	if len(f) < 13 {
		return 0, fmt.Errorf("stat: %q", stat)
	}
	user, err := strconv.ParseInt(string(f[11]), 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(string(f[12]), 10, 64)
	return time.Duration(user+system) * time.Second / ticks, err
}

// busy is what all programs together have had of the processors since the machine started.
func busy() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseBusy(string(b))
}

// parseBusy adds user, nice, system, irq, softirq and steal of the first line; idle and iowait are no work, and what guests
// had stands in user already.
func parseBusy(stat string) (time.Duration, error) {
	line, _, _ := strings.Cut(stat, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat: %q", line)
	}
	var sum int64
	for _, i := range []int{1, 2, 3, 6, 7, 8} {
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks, nil
}

// procField reads a number from a file of "name: number" lines.
func procField(file, name string) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			f := strings.Fields(v)
			return strconv.ParseInt(f[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, name)
}

// anonymous is the memory of a process without the pages of files, in bytes.
func anonymous(pid int) (int64, error) {
	n, err := procField(fmt.Sprintf("/proc/%d/status", pid), "RssAnon")
	return n << 10, err
}

// written is what the process has caused to be written to the disk, in bytes.
func written(pid int) (int64, error) {
	return procField(fmt.Sprintf("/proc/%d/io", pid), "write_bytes")
}

// sectors is how much was written to the block device that holds dir since the machine started, in sectors of 512 bytes;
// what is still to be written is written before. ok is false where the kernel has no such device.
func sectors(dir string) (n int64, ok bool, err error) {
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		return 0, false, err
	}
	syscall.Sync()
	b, err := os.ReadFile("/proc/diskstats")
	if err != nil {
		return 0, false, err
	}
	return parseSectors(string(b), unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)))
}

// parseSectors finds the line of a device: its numbers, its name, four figures of reads, two of writes, sectors written.
func parseSectors(stats string, major, minor uint32) (n int64, ok bool, err error) {
	for line := range strings.Lines(stats) {
		f := strings.Fields(line)
		if len(f) >= 10 && f[0] == fmt.Sprint(major) && f[1] == fmt.Sprint(minor) {
			n, err = strconv.ParseInt(f[9], 10, 64)
			return n, err == nil, err
		}
	}
	return 0, false, nil
}

// onDisk is what the files under dir take of the disk, in bytes; only those whose path fits when match is not nil.
func onDisk(dir string, match func(path string) bool) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || match != nil && !match(p) {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			sum += st.Blocks * 512
		}
		return nil
	})
	return sum, err
}

// machine says on what the figures were measured.
func machine(dir string) string {
	model := runtime.GOARCH
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				model = strings.TrimSpace(v)
				break
			}
		}
	}
	mem, _ := procField("/proc/meminfo", "MemTotal") // shown as 0 where there is none
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	release, _, _ := strings.Cut(strings.TrimSpace(string(kernel)), "-")
	return fmt.Sprintf("%d × %s, %d GB, Linux %s, %s, %s", runtime.NumCPU(), model, (mem+1<<19)>>20, release, fileSystem(dir), runtime.Version())
}

// fileSystem names the kind of file system that dir lies on.
func fileSystem(dir string) string {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return "unknown file system"
	}
	switch uint32(st.Type) {
	case 0xef53:
		return "ext4"
	case 0x58465342:
		return "xfs"
	case 0x9123683e:
		return "btrfs"
	case 0x01021994:
		return "tmpfs (nothing is really synced)"
	case 0x794c7630:
		return "overlay"
	}
	return fmt.Sprintf("file system %#x", uint32(st.Type))
}
