package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/test/need"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// within runs an instance in a control group of its own that may use so much memory.
func within(t *testing.T, bytes int64) []string {
	t.Helper()
	root, limit := "/sys/fs/cgroup", "memory.max"
	if _, err := os.Stat(filepath.Join(root, "memory", "memory.limit_in_bytes")); err == nil { // the first version
		root, limit = filepath.Join(root, "memory"), "memory.limit_in_bytes"
	}
	dir := filepath.Join(root, fmt.Sprintf("weir-test-%d-%s", os.Getpid(), strings.ToLower(t.Name())))
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		t.Cleanup(func() {
			poll.Until(t, "the end of the control group", func() error { return os.Remove(dir) })
		})
		err = os.WriteFile(filepath.Join(dir, limit), fmt.Append(nil, bytes), 0o644)
	}
	need.That(t, err == nil, "no control group for memory can be made here: %v", err)
	return []string{"/bin/sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(dir, "cgroup.procs")}
}

// TestAProcessThatTheSystemEndsForWantOfMemory: the start after it says so, and nothing acknowledged is lost.
func TestAProcessThatTheSystemEndsForWantOfMemory(t *testing.T) {
	t.Parallel()
	tn := paired(t)
	// With no memory to speak of it does not get far. What the one before has noted is what counts.
	_, err := testweir.TryStart(t, testweir.Options{Dir: tn.Dir, Config: generous + "limits: {memory: 64MiB}\n", Under: within(t, 5<<20)})
	if err == nil {
		t.Fatal("it lives with 5 MiB")
	}
	if !strings.Contains(err.Error(), "signal: killed") {
		t.Fatal(err)
	}
	tn = tn.again()
	poll.Until(t, "the evidence", func() error {
		return says(tn.Run("", "status"), "the last stop was not a clean one", "for want of memory")
	})
	if _, err := os.Stat(tn.path("running.json")); err != nil {
		t.Error(err)
	}
	tn.arrived(1)
	tn.worksOn(3)
}

// TestAFloodWithinLittleMemoryEndsNothing: what it holds follows limits.memory, which leaves room for the rest.
func TestAFloodWithinLittleMemoryEndsNothing(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: generous + "limits: {memory: 96MiB}\n", Under: within(t, 192<<20)})
	tn := w.tenant(t, "acme")
	tn.plain("d")
	c := tn.connect("d")
	n := 0
	for i := range 300 {
		c.send(many("temp", i*200, 200))
		n += 200
		if resp := tn.post(tn.bulk(4)); resp.StatusCode != 202 {
			t.Fatalf("%s", resp.Status)
		}
		n += 4 * 256
	}
	poll.Until(t, "all readings", func() error {
		if _, total := tn.measurements(map[string]any{"pageSize": 1}); total != n {
			return fmt.Errorf("%d of %d", total, n)
		}
		return nil
	})
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
}
