package memory

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheLeastOfMachineAndContainerCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		meminfo, cgroup string
		want            int64
	}{
		{"MemTotal:  524288 kB\n", "", 256 << 20},
		{"MemTotal:  8388608 kB\n", "209715200\n", 209715200 / 10 * 9},
		{"MemTotal:  8388608 kB\n", "max\n", Most},
		{"", "", Most},
		{"MemTotal:  65536 kB\n", "", Least},
	} {
		root := t.TempDir()
		write(t, filepath.Join(root, "proc/meminfo"), c.meminfo)
		write(t, filepath.Join(root, "sys/fs/cgroup/memory.max"), c.cgroup)
		if got := Detect(root); got != c.want {
			t.Errorf("%q, %q: got %d, want %d", c.meminfo, c.cgroup, got, c.want)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAnAccountKnowsWhatItsPartHolds(t *testing.T) {
	t.Parallel()
	a := New(512<<20, nil)
	acc := a.Open("head", a.Share(200, 4<<20, 64<<20))
	acc.Grow(100)
	acc.Shrink(30)
	if acc.Held() != 70 || acc.Budget() != 64<<20 || a.Share(1, 8<<20, 1<<30) != 8<<20 {
		t.Errorf("held %d, budget %d", acc.Held(), acc.Budget())
	}
}

func TestWhatIsAvailableIsTheLeastOfMachineAndContainer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		meminfo, cgroup string
		want            int64
	}{{"MemTotal: 1024 kB", "max", 1 << 20}, {"MemTotal: 1024 kB", "524288", 1 << 19}, {"MemTotal: 1024 kB", "2097152", 1 << 20}, {"", "524288", 1 << 19}, {"", "", 0}} {
		root := t.TempDir()
		write(t, filepath.Join(root, "proc/meminfo"), c.meminfo)
		write(t, filepath.Join(root, "sys/fs/cgroup/memory.max"), c.cgroup)
		if got := Available(root); got != c.want {
			t.Errorf("%q, %q: got %d, want %d", c.meminfo, c.cgroup, got, c.want)
		}
	}
}
