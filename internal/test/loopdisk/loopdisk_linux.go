package loopdisk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Make makes a disk of size bytes, with its image below dir.
func Make(dir string, size int64) (*Disk, error) {
	d := &Disk{Dir: filepath.Join(dir, "disk"), image: filepath.Join(dir, "disk.img")}
	if err := os.Mkdir(d.Dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Create(d.image)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return nil, err
	}
	// Everything is initialized at once, so that the kernel writes nothing later on its own.
	if err := run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", d.image); err != nil {
		return nil, err
	}
	// The loop device goes away with the mount.
	if err := run("mount", "-o", "loop", d.image, d.Dir); err != nil {
		return nil, err
	}
	var st syscall.Stat_t
	if err := syscall.Stat(d.Dir, &st); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.major, d.minor = unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev))
	return d, nil
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Close unmounts the disk, which removes its loop device, and removes its image.
func (d *Disk) Close() error {
	var unlimited error
	if d.limited {
		unlimited = d.throttle(0)
	}
	return errors.Join(unlimited, unix.Unmount(d.Dir, unix.MNT_DETACH), os.Remove(d.Dir), os.Remove(d.image))
}

// Written is what the device has taken in bytes, the file system's journal included. What is still to be written is written first.
func (d *Disk) Written() (int64, error) {
	syscall.Sync()
	return d.Taken()
}

// Taken is Written without what is still to be written.
func (d *Disk) Taken() (int64, error) {
	b, err := os.ReadFile("/proc/diskstats")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) { // its numbers, its name, four figures of reads, two of writes, sectors written
		f := strings.Fields(line)
		if len(f) >= 10 && f[0] == fmt.Sprint(d.major) && f[1] == fmt.Sprint(d.minor) {
			sectors, err := strconv.ParseInt(f[9], 10, 64)
			return sectors * 512, err
		}
	}
	return 0, fmt.Errorf("the kernel has no statistics for device %d:%d", d.major, d.minor)
}

// throttles are the files of the root group of cgroup v1, which holds for the whole machine: for the writes of the kernel's own
// threads, too, among them the journal's. Version 2 has no limit for its root group.
var throttles = []string{"/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device", "/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device"}

func (d *Disk) throttle(bytesPerSecond int64) error {
	for _, file := range throttles {
		if err := os.WriteFile(file, fmt.Appendf(nil, "%d:%d %d", d.major, d.minor, bytesPerSecond), 0); err != nil {
			return err
		}
	}
	return nil
}

// Limit makes the disk read and write so many bytes a second at most, and checks that it does.
func (d *Disk) Limit(bytesPerSecond int64) error {
	if err := d.throttle(bytesPerSecond); err != nil {
		return fmt.Errorf("the blkio controller of cgroup v1 is needed to slow a disk down: %w", err)
	}
	d.limited = true
	probe := filepath.Join(d.Dir, "probe")
	began := time.Now()
	f, err := os.Create(probe)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, bytesPerSecond/2))
	if err := errors.Join(err, f.Sync(), f.Close(), os.Remove(probe)); err != nil {
		return err
	}
	if took := time.Since(began); took < time.Second/4 {
		return fmt.Errorf("the limit of the disk has no effect: half a second's bytes were written in %v", took)
	}
	return nil
}
