//go:build linux && amd64

package powercut

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Machine runs one program at a time on one folder.
type Machine struct {
	disk *disk

	mu     sync.Mutex
	stop   *Stop // where to stop next; nil: nowhere
	passed int   // syncs that stop has let pass
	lie    func(path string) bool
	synced int // since the program started
	failed error
	at     string        // the sync that was cut off
	cut    chan struct{} // closed when the program has reached stop
	ended  chan struct{} // closed when nothing of the program is watched any more
	theirs *os.File      // the program's end of the way to it
}

// Stop says before which sync the power fails.
type Stop struct {
	After int                    // so many are let pass
	Of    func(path string) bool // of these files and folders; nil: all
}

// New returns a machine whose disk holds what stands in dir.
func New(dir string) (*Machine, error) {
	d, err := newDisk(dir)
	return &Machine{disk: d}, err
}

// Plan says where the power fails next; nil: not by itself. It may be called while the program runs, and reports whether the power
// of that has failed already, by an earlier plan.
func (m *Machine) Plan(s *Stop) (failed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stop, m.passed = s, 0
	return m.at != ""
}

// Lie makes the disk say of these files that they are synced, from now on, while they are not. nil: it is honest.
func (m *Machine) Lie(of func(path string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lie = of
}

// Wrap makes cmd, which is not started yet, run on the machine. It must be the test's own binary that calls Child first.
func (m *Machine) Wrap(cmd *exec.Cmd) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	own, err := os.Executable()
	if err != nil {
		return err
	}
	cmd.Args = append([]string{own}, append([]string{cmd.Path}, cmd.Args[1:]...)...)
	cmd.Path = own
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", childVariable, 3+len(cmd.ExtraFiles)))
	cmd.ExtraFiles = append(cmd.ExtraFiles, theirs)
	m.mu.Lock()
	m.cut, m.ended, m.synced, m.passed, m.failed, m.theirs = make(chan struct{}), make(chan struct{}), 0, 0, nil, theirs
	m.mu.Unlock()
	go m.watch(ours)
	return nil
}

// Cut is closed when the program has reached the planned place. It is killed there.
func (m *Machine) Cut() <-chan struct{} { return m.cut }

// watch answers for the disk until the program is gone.
func (m *Machine) watch(ours *os.File) {
	defer close(m.ended)
	listener, err := receiveFD(ours)
	err = errors.Join(err, ours.Close())
	if err == nil {
		err = m.serve(listener)
		err = errors.Join(err, unix.Close(listener))
	}
	m.mu.Lock()
	m.failed = err
	m.mu.Unlock()
}

func (m *Machine) serve(listener int) error {
	for {
		c, gone, err := receive(listener)
		if err != nil || gone {
			return err
		}
		if c == nil {
			continue // it was interrupted
		}
		goOn, value, err := m.handle(c)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // where the program is gone, its descriptors are
			return fmt.Errorf("system call %d: %w", c.number, err)
		}
		if !goOn {
			close(m.cut)
			// All of its threads; somebody else may have been faster.
			if err := unix.Kill(int(c.pid), unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
			return awaitEnd(listener)
		}
		if err := c.answer(listener, value); err != nil {
			return err
		}
	}
}

// kernelDoes as the value of an answer lets the kernel do the call.
const kernelDoes = 1

// handle does what a call does to the disk. goOn is false when the power fails here.
func (m *Machine) handle(c *call) (goOn bool, value int64, err error) {
	switch c.number {
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		path := c.file(0)
		if !m.disk.holds(path) {
			return true, kernelDoes, nil
		}
		m.mu.Lock()
		lie, stop := m.lie != nil && m.lie(path), m.reached(path)
		m.mu.Unlock()
		switch {
		case stop:
			return false, 0, nil
		case lie:
			return true, 0, nil
		}
		return true, 0, m.disk.sync(c, path)
	case unix.SYS_UNLINK:
		return true, kernelDoes, m.disk.unlink(c.path(unix.AT_FDCWD, 0))
	case unix.SYS_UNLINKAT:
		return true, kernelDoes, m.disk.unlink(c.path(int32(c.args[0]), 1))
	case unix.SYS_RENAME:
		return true, kernelDoes, m.disk.rename(c.path(unix.AT_FDCWD, 0), c.path(unix.AT_FDCWD, 1))
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		return true, kernelDoes, m.disk.rename(c.path(int32(c.args[0]), 1), c.path(int32(c.args[2]), 3))
	}
	return true, kernelDoes, nil
}

// reached counts a sync and reports whether the power fails before it. The caller holds mu.
func (m *Machine) reached(path string) bool {
	m.synced++
	if m.stop == nil || m.stop.Of != nil && !m.stop.Of(path) {
		return false
	}
	m.passed++
	if m.passed <= m.stop.After {
		return false
	}
	m.stop, m.at = nil, "."+strings.TrimPrefix(path, m.disk.root)
	return true
}

// Off waits until the program, which has ended, is no longer watched. Synced is how many syncs it had, at the one that was
// cut off by the plan, "" when none was.
func (m *Machine) Off() (synced int, at string, err error) {
	<-m.ended
	m.mu.Lock()
	defer m.mu.Unlock()
	synced, at, err = m.synced, m.at, errors.Join(m.failed, m.theirs.Close())
	m.at = ""
	return synced, at, err
}
