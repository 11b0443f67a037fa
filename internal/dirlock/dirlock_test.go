package dirlock

import (
	"errors"
	"os"
	"testing"
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
