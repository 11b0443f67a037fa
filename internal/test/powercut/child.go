//go:build linux && amd64

package powercut

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// childVariable makes the test's binary the program that os.Args[1] names, under the filter. Its value is the descriptor
// on which the test waits for the filter's own.
const childVariable = "WEIR_POWERCUT_CHILD"

// handed are the calls that stop in the kernel until the test has answered for them.
var handed = [...]uint32{unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_UNLINK, unix.SYS_UNLINKAT, unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2}

// Child becomes the program when the process was started by Wrap, and returns at once otherwise. TestMain calls it first.
func Child() {
	fd, err := strconv.Atoi(os.Getenv(childVariable))
	if err != nil {
		return
	}
	err = become(fd)
	fmt.Fprintln(os.Stderr, "powercut:", err)
	os.Exit(1)
}

func become(fd int) error {
	runtime.LockOSThread() // the filter is of the thread that executes the program
	listener, err := filter()
	if err != nil {
		return fmt.Errorf("no filter can be put on system calls: %w", err)
	}
	if err := again(func() error { return unix.Sendmsg(fd, []byte{0}, unix.UnixRights(listener), nil, 0) }); err != nil {
		return err
	}
	unix.CloseOnExec(fd)
	env := []string{}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, childVariable+"=") {
			env = append(env, kv)
		}
	}
	return syscall.Exec(os.Args[1], os.Args[1:], env)
}

// filter puts the filter on this thread and returns where its calls are to be answered.
func filter() (int, error) {
	const auditX86 = 0xc000003e
	n := len(handed)
	code := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 4}, // the architecture
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: auditX86, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number
	}
	for i, nr := range handed {
		code = append(code, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jt: uint8(n - i)})
	}
	code = append(code, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	// A signal must not take back a call that is being answered: Go sends itself many.
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(code)
	if errno != 0 {
		return 0, errno
	}
	return int(fd), nil
}

// again repeats a call that a signal has interrupted.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// receiveFD takes a descriptor from the child.
func receiveFD(f *os.File) (int, error) {
	fd := int(f.Fd())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		return 0, err
	}
	oob := make([]byte, unix.CmsgSpace(4))
	n := 0
	if err := again(func() (err error) {
		_, n, _, _, err = unix.Recvmsg(fd, make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
		return err
	}); err != nil {
		return 0, fmt.Errorf("the program did not come under the filter: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return 0, fmt.Errorf("the program did not come under the filter: %d messages, %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return 0, fmt.Errorf("the program did not come under the filter: %d descriptors, %w", len(fds), err)
	}
	return fds[0], nil
}
