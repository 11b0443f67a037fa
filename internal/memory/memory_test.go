package memory

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestTheLeastOfMachineAndContainerCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		meminfo, cgroup string
		want            int64
	}{
		{"MemTotal:  524288 kB\n", "", 256 << 20},
		{"MemTotal:  8388608 kB\n", "209715200\n", 209715200 / 10 * 9},
		{"MemTotal:  8388608 kB\n", "max\n", maxLimit()},
		{"", "", maxLimit()},
		{"MemTotal:  98304 kB\n", "", MinLimit},
		{"MemTotal:  65536 kB\n", "", 48 << 20},
		{"MemTotal:  8388608 kB\n", "50331648\n", 50331648 / 10 * 9},
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
	acc := a.Open("head", 64<<20)
	acc.Grow(100)
	acc.Shrink(30)
	if acc.Held() != 70 || acc.Budget() != 64<<20 {
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

func TestTheLeastOfTheControlGroupAndThoseAboveItCounts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		self  string
		files map[string]string
		want  int64
	}{
		"a service of systemd": {"0::/system.slice/weir.service\n", map[string]string{"sys/fs/cgroup/system.slice/weir.service/memory.max": "200000000"}, 200000000},
		"the slice above it": {"0::/system.slice/weir.service\n", map[string]string{"sys/fs/cgroup/system.slice/weir.service/memory.max": "max",
			"sys/fs/cgroup/system.slice/memory.max": "300000000"}, 300000000},
		"memory.high": {"0::/weir\n", map[string]string{"sys/fs/cgroup/weir/memory.max": "400000000", "sys/fs/cgroup/weir/memory.high": "100000000"}, 100000000},
		"version 1": {"5:cpu,cpuacct:/a\n4:memory:/docker/b\n", map[string]string{"sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes": "500000000",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1"}, 500000000},
		"a container, which is its own root": {"0::/\n", map[string]string{"sys/fs/cgroup/memory.max": "600000000"}, 600000000},
		"no limit":                           {"0::/weir\n", map[string]string{"sys/fs/cgroup/weir/memory.max": "max"}, 0},
		"a path that leads out":              {"0::/../../etc\n", nil, 0},
	} {
		root := t.TempDir()
		write(t, filepath.Join(root, "proc/self/cgroup"), c.self)
		for file, text := range c.files {
			write(t, filepath.Join(root, file), text)
		}
		if got := Available(root); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

func TestSharesAddUpToNoMoreThanThereIs(t *testing.T) {
	t.Parallel()
	shares := []Share{{"a", 500, 10, 1000}, {"b", 300, 20, 100}, {"c", 200, 0, 1 << 40}}
	for bytes, want := range map[int64]map[string]int64{30: {"a": 10, "b": 20, "c": 0}, 1030: {"a": 510, "b": 100, "c": 200}, 10_030: {"a": 1000, "b": 100, "c": 2000}, 5: {"a": 10, "b": 20, "c": 0}} {
		if got := Divide(bytes, shares); !maps.Equal(got, want) {
			t.Errorf("of %d: %v, want %v", bytes, got, want)
		}
	}
}

func TestAPartIsAskedWhatItHolds(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	a := New(512<<20, reg)
	a.OpenFunc("tail", 10, func() int64 { return 7 })
	a.OpenFunc("buffers", 20, nil)
	ps := a.Parts()
	if len(ps) != 2 || *ps[0].Held != 7 || ps[0].Budget != 10 || ps[1].Held != nil {
		t.Errorf("%+v", ps)
	}
	want := "# HELP weir_memory_held_bytes Memory held by a part, by its own estimate.\n# TYPE weir_memory_held_bytes gauge\nweir_memory_held_bytes{part=\"tail\"} 7\n"
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "weir_memory_held_bytes"); err != nil {
		t.Error(err)
	}
}
