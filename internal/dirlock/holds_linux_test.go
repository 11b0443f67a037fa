package dirlock

import (
	"os"
	"testing"
)

func TestTheOwnerIsReportedWithoutTakingTheLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if pid := Owner(dir); pid != 0 {
		t.Errorf("a directory that nobody had: %d", pid)
	}
	l, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	if pid := Owner(dir); pid != os.Getpid() {
		t.Errorf("while this process has it: %d", pid)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if pid := Owner(dir); pid != 0 {
		t.Errorf("after it was given back: %d", pid)
	}
}

func TestALockIsFoundInTheListOfTheKernel(t *testing.T) {
	t.Parallel()
	const locks = `1: POSIX  ADVISORY  WRITE 708 fd:01:1573 0 EOF
2: FLOCK  ADVISORY  WRITE 709 fd:01:1574 0 EOF
2: -> FLOCK  ADVISORY  WRITE 710 fd:01:1574 0 EOF
`
	for _, c := range []struct {
		pid   int
		inode uint64
		want  bool
	}{{709, 1574, true}, {708, 1573, false}, {709, 1573, false}, {709, 574, false}, {710, 1574, false}} {
		if got := listed(locks, c.pid, c.inode); got != c.want {
			t.Errorf("process %d, inode %d: %v", c.pid, c.inode, got)
		}
	}
}
