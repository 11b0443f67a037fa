package dirlock

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"weir/internal/test/need"
)

func TestOneOwnerAtATime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Acquire(dir)
	if le, ok := errors.AsType[*LockedError](err); !ok || le.PID != os.Getpid() || le.Dir != dir {
		t.Errorf("got %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err = Acquire(dir)
	if err != nil {
		t.Fatalf("after the owner let go: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestADirectoryThatIsNotThere(t *testing.T) {
	t.Parallel()
	if _, err := Acquire(t.TempDir() + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestADirectoryIsFreeAtOnceDespiteACopyOfTheDescriptor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := syscall.Dup(int(l.f.Fd())) // what a process that is being started has
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(copied)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// Whoever has the directory could otherwise have root cut off any file of the machine.
func TestALockThatLeadsElsewhereIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, lay := range map[string]func(from, to string) error{"symbolic link": os.Symlink, "second name": os.Link,
		"pipe": func(_, to string) error { return syscall.Mkfifo(to, 0o600) }} {
		dir := t.TempDir()
		precious := filepath.Join(t.TempDir(), "precious")
		if err := errors.Join(os.WriteFile(precious, []byte("precious"), 0o600), os.Mkdir(filepath.Join(dir, "data"), 0o700)); err != nil {
			t.Fatal(err)
		}
		if err := lay(precious, filepath.Join(dir, "data", Name)); err != nil {
			t.Fatal(err)
		}
		if l, err := Acquire(filepath.Join(dir, "data")); err == nil {
			t.Errorf("%s: taken for a lock", name)
			_ = l.Close()
		}
		if b, err := os.ReadFile(precious); string(b) != "precious" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

func TestALockThatRootMakesBelongsToTheOwnerOfTheDirectory(t *testing.T) {
	t.Parallel()
	need.That(t, os.Geteuid() == 0, "only root can try it")
	dir := t.TempDir()
	if err := os.Chown(dir, 12345, 12346); err != nil {
		t.Fatal(err)
	}
	l, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fi, err := os.Stat(filepath.Join(dir, Name))
	if err != nil {
		t.Fatal(err)
	}
	if s := fi.Sys().(*syscall.Stat_t); s.Uid != 12345 || s.Gid != 12346 {
		t.Errorf("it belongs to %d:%d", s.Uid, s.Gid)
	}
}
