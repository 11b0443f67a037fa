//go:build linux && amd64

package powercut

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call is a system call that waits for its answer, as the kernel gives it (struct seccomp_notif).
type call struct {
	id     uint64
	pid    uint32
	flags  uint32
	number int32
	arch   uint32
	ip     uint64
	args   [6]uint64
}

// answer is struct seccomp_notif_resp.
type answer struct {
	id    uint64
	value int64
	err   int32
	flags uint32
}

// receive waits for the next call. gone says that the program has ended; nil without it, that the call was taken back.
func receive(listener int) (c *call, gone bool, err error) {
	fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, -1); err != nil {
		if errors.Is(err, unix.EINTR) {
			return nil, false, nil
		}
		return nil, false, err
	}
	if fds[0].Revents&unix.POLLIN == 0 {
		return nil, true, nil
	}
	c = &call{}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(c)))
	switch errno {
	case 0:
		return c, false, nil
	case unix.ENOENT, unix.EINTR: // its thread is gone
		return nil, false, nil
	}
	return nil, false, errno
}

// awaitEnd leaves every call where it is until the program is gone.
func awaitEnd(listener int) error {
	for {
		fds := []unix.PollFd{{Fd: int32(listener)}} // its end is told unasked
		if _, err := unix.Poll(fds, -1); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// answer lets the call go on: with value kernelDoes by doing it, otherwise with that value as its result.
func (c *call) answer(listener int, value int64) error {
	a := answer{id: c.id, value: value}
	if value == kernelDoes {
		a = answer{id: c.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&a)))
	if errno != 0 && errno != unix.ENOENT {
		return errno
	}
	return nil
}

// link is where the descriptor that the call was given stands in /proc.
func (c *call) link(arg int) string { return fmt.Sprintf("/proc/%d/fd/%d", c.pid, int32(c.args[arg])) }

// file is the path of the file that a call is about.
func (c *call) file(arg int) string {
	path, err := os.Readlink(c.link(arg))
	if err != nil {
		return ""
	}
	return path
}

// path is the path in an argument, as seen from the folder dirfd.
func (c *call) path(dirfd int32, arg int) string {
	path := c.text(c.args[arg])
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	at := fmt.Sprintf("/proc/%d/cwd", c.pid)
	if dirfd != unix.AT_FDCWD {
		at = fmt.Sprintf("/proc/%d/fd/%d", c.pid, dirfd)
	}
	dir, err := os.Readlink(at)
	if err != nil {
		return ""
	}
	return filepath.Join(dir, path)
}

// text reads a string out of the program's memory.
func (c *call) text(at uint64) string {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", c.pid))
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, 4096)
	n, _ := f.ReadAt(b, int64(at)) // it may end before
	s, _, _ := bytes.Cut(b[:n], []byte{0})
	return string(s)
}
