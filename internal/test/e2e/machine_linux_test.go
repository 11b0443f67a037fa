package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/test/need"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// limited is an instance that may have so many files open. Its limit is set by a wrapper, so that the program sees it
// from its first moment on.
func limited(t *testing.T, files int) testweir.Options {
	t.Helper()
	prlimit := need.Program(t, "prlimit")
	return testweir.Options{Config: generous, Under: []string{prlimit, fmt.Sprintf("--nofile=%d:%d", files, files)}}
}

func TestTooFewOpenFilesAreRefusedWithAHint(t *testing.T) {
	t.Parallel()
	_, err := testweir.TryStart(t, limited(t, 64))
	if err == nil || says(err.Error(), "allows this process 64 open files: weir needs 128", "hint: raise the limit: LimitNOFILE=") != nil {
		t.Fatalf("started with %v", err)
	}
}

// TestMoreConnectionsThanOpenFilesAllow: those that are there go on, the others are refused, the log changes its file
// meanwhile and everything acknowledged is stored.
func TestMoreConnectionsThanOpenFilesAllow(t *testing.T) {
	t.Parallel()
	o := limited(t, 256)
	o.Config += "ingest: {spool_max_bytes: 16MiB}\nspool: {replay_bytes: 1MiB}\n"
	w := start(t, o)
	if status := w.Run("", "status"); !strings.Contains(status, " at most 120\n") {
		t.Fatalf("120 connections were expected:\n%s", status)
	}
	tn := w.tenant(t, "acme")
	tn.plain("d", "e")
	c := tn.connect("d")
	refused := 0
	for i := range 300 {
		one, code, err := testweir.ConnectMQTT(w.MQTT, fmt.Sprintf("weir:acme:e:%d", i), "acme:"+tn.secret("e"), "")
		if err != nil || code != 0 || one == nil {
			refused++
			continue
		}
		t.Cleanup(func() { _ = one.Close() })
	}
	if refused == 0 {
		t.Error("nobody was refused")
	}
	n := 0
	for i := range 200 { // several spans of 2 MiB
		c.send(many("temp", i*100, 100))
		n += 100
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.PID()))
	if err != nil || len(open) > 250 {
		t.Errorf("%d files are open, %v", len(open), err)
	}
	if _, total := tn.measurements(map[string]any{"pageSize": 1}); total > n {
		t.Errorf("%d readings", total)
	}
	poll.Until(t, "all readings", func() error {
		if _, total := tn.measurements(map[string]any{"pageSize": 1}); total != n {
			return fmt.Errorf("%d of %d", total, n)
		}
		return nil
	})
}

// disk is a small file system of the test's own.
func disk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir).CombinedOutput()
	need.That(t, err == nil, "file systems cannot be mounted here: %s", out)
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
	return dir
}

// fill takes all the room that is left on a disk.
func fill(t *testing.T, dir string) (release func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	_ = f.Close()
	return func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

// flood sends readings over HTTP until one is refused, and returns how many were kept.
func (tn *tenant) flood(most int) (kept, status int) {
	tn.t.Helper()
	for range most {
		resp := tn.post(measured("temp", "1", tn.as("d")))
		_ = resp.Body.Close()
		if status = resp.StatusCode; status != 202 {
			return kept, status
		}
		kept++
	}
	return kept, status
}

// TestAFullDiskRefusesAndTellsAndGoesOnByItself: nothing acknowledged is lost.
func TestAFullDiskRefusesAndTellsAndGoesOnByItself(t *testing.T) {
	t.Parallel()
	dir := disk(t, "48m")
	w := start(t, testweir.Options{Dir: dir, Config: generous + "ingest: {spool_max_bytes: 16MiB}\nspool: {replay_bytes: 1MiB}\n"})
	tn := w.tenant(t, "acme")
	tn.plain("d")
	kept, _ := tn.flood(20)
	release := fill(t, dir)
	more, status := tn.flood(50_000)
	kept += more
	if status != 503 {
		t.Fatalf("a full disk is answered %d", status)
	}
	poll.Until(t, "a finding", func() error {
		out, _ := tn.TryRun("", "doctor")
		return says(out, "fail  disk-space", "free disk space")
	})
	poll.Until(t, "the status", func() error { // the reserve of the disk is looked at five times a second: an append may be first
		status := tn.Run("", "status")
		if says(status, "new messages are refused: the disk has little room left", "spool.disk_reserve") == nil {
			return nil
		}
		return says(status, "the log refuses appends", "no space left on device")
	})
	release()
	poll.Until(t, "room", func() error {
		n, status := tn.flood(1)
		if kept += n; status != 202 {
			return fmt.Errorf("%d", status)
		}
		return nil
	})
	poll.Until(t, "all that was acknowledged", func() error {
		if _, total := tn.measurements(map[string]any{"pageSize": 1}); total != kept {
			return fmt.Errorf("%d of %d", total, kept)
		}
		return nil
	})
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
}

// TestOnASmallFullDiskThingsCanBeUndone: the write-ahead log of the database is long when the disk becomes full, and must be written
// back before it can begin again.
func TestOnASmallFullDiskThingsCanBeUndone(t *testing.T) {
	t.Parallel()
	dir := disk(t, "200m")
	w := start(t, testweir.Options{Dir: dir, Config: generous})
	tn := w.tenant(t, "acme")
	tn.plain("first")
	bulk := func(template string, n int) {
		t.Helper()
		tn.devices(`mutation($r: DeviceBulkCreateRequest!) { createDevices(request: $r) { token } }`,
			map[string]any{"r": map[string]any{"deviceTypeToken": "plain", "count": n, "tokenTemplate": template}})
	}
	bulk("d-{n}", 20)
	for i := range 20 { // what the log holds belongs behind the end of the database
		bulk(fmt.Sprintf("more-%d-{n}", i), 100)
	}
	poll.Until(t, "the spare", func() error { _, err := os.Stat(filepath.Join(dir, "data", "weir.db-spare")); return err })
	defer fill(t, dir)()
	deleted := 0
	for i := range 6 { // each waits a second for a log that takes nothing
		var out struct{ DeleteDevice bool }
		if err := tn.TryQuery("device-management", tn.token, `mutation($t: String!) { deleteDevice(token: $t) }`, map[string]any{"t": fmt.Sprintf("d-%d", i+1)}, &out); err == nil && out.DeleteDevice {
			deleted++
		} else if i == 0 {
			t.Errorf("the first: %v, %v", out, err)
		}
	}
	if deleted != 6 {
		t.Errorf("%d of 6 devices can be deleted", deleted)
	}
	tn.SignIn("acme")
}

// TestADiskThatTurnsReadOnly: the kernel does that to a disk with errors. What is not stored is not acknowledged, and what
// was acknowledged is there once the disk can be written again.
func TestADiskThatTurnsReadOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	image, at := filepath.Join(t.TempDir(), "image"), filepath.Join(dir, "data")
	if err := os.Mkdir(at, 0o750); err != nil {
		t.Fatal(err)
	}
	mount := func(args ...string) {
		t.Helper()
		out, err := exec.Command("mount", append(args, at)...).CombinedOutput()
		need.That(t, err == nil, "a disk image cannot be mounted here: %s", out)
	}
	for _, args := range [][]string{{"truncate", "-s", "64M", image}, {need.Program(t, "mkfs.ext4"), "-q", image}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
	}
	mount("-o", "loop", image)
	t.Cleanup(func() { _ = exec.Command("umount", "-l", at).Run() })
	o := testweir.Options{Dir: dir, Config: generous + "ingest: {spool_max_bytes: 16MiB}\nspool: {replay_bytes: 1MiB}\n"}
	w := start(t, o)
	tn := w.tenant(t, "acme")
	tn.plain("d")
	kept, _ := tn.flood(20)
	tn.arrived(kept)
	mount("-o", "remount,abort")
	more, status := tn.flood(50)
	if status != 503 {
		t.Fatalf("%d more were kept, then %d", more, status)
	}
	kept += more
	poll.Until(t, "a finding", func() error {
		out, _ := tn.TryRun("", "doctor")
		return says(out, "read-only file system", "hint: mount it for writing")
	})
	poll.Until(t, "health", func() error {
		out, _ := tn.TryRun("", "health")
		return says(out, "degraded", "the log refuses appends")
	})
	w.Kill()
	if _, err := testweir.TryStart(t, o); err == nil || says(err.Error(), "read-only file system", "hint: the file system is mounted read-only") != nil {
		t.Fatalf("on a read-only disk: %v", err)
	}
	if out, err := exec.Command("umount", at).CombinedOutput(); err != nil {
		t.Fatalf("umount: %v %s", err, out)
	}
	mount("-o", "loop", image)
	w = &world{Proc: testweir.Start(t, o)}
	w.login()
	if got := len(w.enter(t, "acme").arrived(kept)); got != kept {
		t.Errorf("%d of %d", got, kept)
	}
}
