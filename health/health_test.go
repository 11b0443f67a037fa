package health

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/test/loopback"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// sound is a machine with nothing wrong.
func sound() Machine {
	m := ThisMachine()
	m.Now = func() time.Time { return noon }
	m.FileSystem = func(string) (FileSystem, error) {
		return FileSystem{Kind: "ext4", Bytes: 64 << 30, FreeBytes: 32 << 30, Inodes: 1 << 20, FreeInodes: 1 << 19}, nil
	}
	m.ClockState = func() (bool, string, error) { return true, "a test", nil }
	m.OpenFiles = func() (uint64, error) { return 1 << 20, nil }
	return m
}

// holds fails unless a finding has the result and says both texts.
func holds(t *testing.T, f Finding, want Result, text, hint string) {
	t.Helper()
	if f.Result != want || !strings.Contains(f.Text, text) || !strings.Contains(f.Hint, hint) {
		t.Errorf("got %s: %s (hint: %s)\nwant %s: …%s… (hint: …%s…)", f.Result, f.Text, f.Hint, want, text, hint)
	}
	if (f.Result == Warning || f.Result == Failure) && f.Hint == "" {
		t.Errorf("%q says nothing of what to do", f.Text)
	}
}

func TestAReportIsAsBadAsItsWorstFinding(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		results []Result
		want    Result
	}{{nil, ""}, {[]Result{Skipped}, OK}, {[]Result{OK, Skipped}, OK}, {[]Result{Warning, OK}, Warning}, {[]Result{Failure, Warning, Skipped}, Failure}} {
		var r Report
		for _, x := range c.results {
			r.Add(Finding{Result: x})
		}
		if r.Result != c.want {
			t.Errorf("%v: %q, not %q", c.results, r.Result, c.want)
		}
	}
}

func TestACheckThatHangsIsLeftBehindAndTheRestIsLookedAt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		defer close(stuck)
		r := Examine(t.Context(), time.Second, []Check{
			{"stuck", func(context.Context) Finding { <-stuck; return Good("") }},
			{"slow", func(ctx context.Context) Finding { <-ctx.Done(); return Skip("%v", ctx.Err()) }},
			{"fine", func(context.Context) Finding { return Good("well") }},
		})
		holds(t, r.Findings[0], Warning, "no answer within 1s", "hanging")
		holds(t, r.Findings[1], Skipped, "deadline", "")
		holds(t, r.Findings[2], OK, "well", "")
		if r.Findings[2].ID != "fine" || r.Result != Warning {
			t.Errorf("%+v", r)
		}
	})
}

func TestWhenTheTimeIsOverTheRestIsSkipped(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	end()
	r := Examine(ctx, time.Second, []Check{{"late", func(context.Context) Finding { return Fail("", "looked") }}})
	holds(t, r.Findings[0], Skipped, "no time was left", "")
}

func TestADataDirectory(t *testing.T) {
	t.Parallel()
	private := func(t *testing.T) string {
		dir := filepath.Join(t.TempDir(), "data")
		if err := os.Mkdir(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for name, c := range map[string]struct {
		prepare    func(t *testing.T, m *Machine) string
		want       Result
		text, hint string
	}{
		"sound":     {func(t *testing.T, _ *Machine) string { return private(t) }, OK, "mode 0750, can be written", ""},
		"not there": {func(t *testing.T, _ *Machine) string { return filepath.Join(t.TempDir(), "a", "b") }, OK, "the first start makes it", ""},
		"a file": {func(t *testing.T, _ *Machine) string {
			p := filepath.Join(t.TempDir(), "f")
			_ = os.WriteFile(p, nil, 0o600)
			return p
		}, Failure, "is not a directory", "data_dir"},
		"under a file": {func(t *testing.T, _ *Machine) string {
			p := filepath.Join(t.TempDir(), "f")
			_ = os.WriteFile(p, nil, 0o600)
			return filepath.Join(p, "data")
		}, Failure, "a parent path is a file", "another directory"},
		"read-only": {func(t *testing.T, m *Machine) string {
			m.Create = func(dir string) (File, error) {
				return nil, &fs.PathError{Op: "open", Path: dir + "/.doctor-1", Err: syscall.EROFS}
			}
			return private(t)
		}, Failure, "cannot be written by user", "mount it for writing"},
		"full": {func(t *testing.T, m *Machine) string {
			m.Create = func(string) (File, error) { return nil, syscall.ENOSPC }
			return private(t)
		}, Failure, "no space left", "free some disk space"},
		"open to all": {func(t *testing.T, _ *Machine) string {
			dir := private(t)
			_ = os.Chmod(dir, 0o755)
			return dir
		}, Warning, "mode 0755", "chmod o-rwx"},
		"of somebody else": {func(t *testing.T, m *Machine) string {
			m.Owner = func(os.FileInfo) (int, bool) { return 4711, true }
			return private(t)
		}, Warning, "belongs to user 4711", "two owners"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := sound()
			dir := c.prepare(t, &m)
			holds(t, m.Directory(dir).Look(t.Context()), c.want, c.text, c.hint)
			if left, _ := filepath.Glob(filepath.Join(dir, ".doctor-*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestFileSystemsThatDoNotKeepWhatTheyTake(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fs         FileSystem
		want       Result
		text, hint string
	}{
		"disk":      {FileSystem{Kind: "ext4"}, OK, "ext4", ""},
		"unknown":   {FileSystem{}, OK, "is unknown", ""},
		"read-only": {FileSystem{Kind: "ext4", ReadOnly: true}, Failure, "mounted read-only", "dmesg"},
		"tmpfs":     {FileSystem{Kind: "tmpfs"}, Warning, "lost at a reboot", "on a disk"},
		"nfs":       {FileSystem{Kind: "nfs"}, Failure, "syncs are not reliable", "local disk"},
		"smb":       {FileSystem{Kind: "smb"}, Failure, "syncs are not reliable", "local disk"},
		"9p":        {FileSystem{Kind: "9p"}, Warning, "network file system", "local disk"},
		"overlay":   {FileSystem{Kind: "overlay"}, Warning, "lost with the container", "volume"},
	} {
		m := sound()
		m.FileSystem = func(string) (FileSystem, error) { return c.fs, nil }
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holds(t, m.FileSystemKind(t.TempDir()).Look(t.Context()), c.want, c.text, c.hint)
		})
	}
	m := sound()
	m.FileSystem = func(string) (FileSystem, error) { return FileSystem{}, errors.ErrUnsupported }
	holds(t, m.FileSystemKind(".").Look(t.Context()), Skipped, "unsupported", "")
}

func TestADiskThatFillsUp(t *testing.T) {
	t.Parallel()
	const growth = 1 << 30
	for name, c := range map[string]struct {
		free, inodes uint64
		want         Result
		text         string
	}{
		"room":         {2 << 30, 1 << 19, OK, "2.0 GiB of 64 GiB are free"},
		"not enough":   {512 << 20, 1 << 19, Warning, "a log that fills up needs 1.0 GiB"},
		"nearly full":  {31 << 20, 1 << 19, Failure, "nearly full: 31 MiB of 64 GiB"},
		"full":         {0, 1 << 19, Failure, "0 B of 64 GiB"},
		"out of files": {2 << 30, 10, Failure, "10 of 1048576 inodes"},
	} {
		m := sound()
		m.FileSystem = func(string) (FileSystem, error) {
			return FileSystem{Bytes: 64 << 30, FreeBytes: c.free, Inodes: 1 << 20, FreeInodes: c.inodes}, nil
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holds(t, m.Space(t.TempDir(), growth).Look(t.Context()), c.want, c.text, "")
		})
	}
	m := sound()
	m.FileSystem = func(string) (FileSystem, error) { return FileSystem{Bytes: 1 << 30, FreeBytes: 1 << 29}, nil } // btrfs bounds no inodes
	holds(t, m.Space(".", 0).Look(t.Context()), OK, "512 MiB", "")
}

// slow is a file on a disk that takes its time.
type slow struct {
	*os.File
	took time.Duration
	fail error
}

func (s slow) Sync() error {
	time.Sleep(s.took) // synctest's clock
	return s.fail
}

func TestTheSyncOfTheDiskIsMeasured(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		took time.Duration
		fail error
		want Result
		text string
	}{
		"fast":  {2 * time.Millisecond, nil, OK, "takes 2ms (median of 5)"},
		"slow":  {120 * time.Millisecond, nil, Warning, "takes 120ms (median of 5)"},
		"stuck": {3 * time.Second, nil, Warning, "takes 3s (median of 1)"},
		"bad":   {0, syscall.EIO, Failure, "input/output error"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := sound()
				m.Now = time.Now
				m.Create = func(dir string) (File, error) {
					f, err := os.CreateTemp(dir, ".doctor-*")
					return slow{f, c.took, c.fail}, err
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				holds(t, m.Sync(dir).Look(ctx), c.want, c.text, "")
			})
		})
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	m := sound()
	m.Create = func(string) (File, error) { return nil, &fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES} }
	holds(t, m.Sync(dir).Look(t.Context()), Skipped, "nothing can be written there: permission denied", "")
}

func TestAClockThatCannotBeBelieved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "weir.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	built := noon.Add(-time.Hour)
	for name, c := range map[string]struct {
		now, written time.Time
		synchronized bool
		err          error
		want         Result
		text, hint   string
	}{
		"right":          {noon, noon.Add(-time.Minute), true, nil, OK, "synchronized (a test)", ""},
		"1970":           {time.Unix(60, 0), time.Unix(0, 0), true, nil, Failure, "1970-01-01T00:01:00Z, and this binary was made 2026", "set the clock"},
		"gone back":      {noon, noon.Add(time.Hour), true, nil, Failure, "the data directory was written 2026-06-01T13:00:00Z", "set the clock"},
		"a little back":  {noon, noon.Add(time.Minute), true, nil, OK, "synchronized", ""},
		"nobody's":       {noon, noon, false, nil, Warning, "is not synchronized", "chrony"},
		"nobody can say": {noon, noon, false, syscall.EPERM, OK, "is unknown", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.Chtimes(filepath.Join(dir, "weir.db"), c.written, c.written); err != nil {
				t.Fatal(err)
			}
			m := sound()
			m.Now = func() time.Time { return c.now }
			m.ClockState = func() (bool, string, error) { return c.synchronized, "a test", c.err }
			holds(t, m.Clock(built, dir, filepath.Join(dir, "none")).Look(t.Context()), c.want, c.text, c.hint)
		})
	}
}

func TestALimitOfOpenFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit uint64
		err   error
		want  Result
		text  string
	}{
		"enough":    {1 << 20, nil, OK, "1048576 files"},
		"too few":   {1024, nil, Warning, "1024 files may be open, broker.max_connections is 1000"},
		"unlimited": {1<<64 - 1, nil, OK, "no limit"},
		"unknown":   {0, errors.ErrUnsupported, Skipped, "is unknown"},
	} {
		m := sound()
		m.OpenFiles = func() (uint64, error) { return c.limit, c.err }
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holds(t, m.OpenFileLimit(1000).Look(t.Context()), c.want, c.text, "")
		})
	}
}

func TestMoreMemoryThanThereIs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mem  Memory
		want Result
		text string
	}{
		"worked out":           {Memory{Limit: 1 << 30, Runtime: 1 << 30, Available: 2 << 30}, OK, "limit 1.0 GiB, derived from 2.0 GiB"},
		"no runtime limit":     {Memory{Limit: 1 << 30, Runtime: 1<<63 - 1, Available: 2 << 30}, OK, "limit 1.0 GiB"},
		"unknown":              {Memory{Limit: 1 << 30, Runtime: 1 << 30, Configured: true}, OK, "limit 1.0 GiB, set by limits.memory"},
		"limits.memory":        {Memory{Limit: 4 << 30, Runtime: 4 << 30, Configured: true, Available: 2 << 30}, Warning, "set by limits.memory; 2.0 GiB are available"},
		"GOMEMLIMIT":           {Memory{Limit: 1 << 30, Runtime: 3 << 30, Available: 2 << 30}, Warning, "GOMEMLIMIT is 3.0 GiB"},
		"GOMEMLIMIT, and room": {Memory{Limit: 1 << 30, Runtime: 1 << 29, Available: 2 << 30}, OK, "GOMEMLIMIT is 512 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holds(t, MemoryLimit(c.mem).Look(t.Context()), c.want, c.text, "")
		})
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken, closed := Listener{Key: "listeners.mqtt", Address: l.Addr().String()}, Listener{Key: "listeners.api", Address: loopback.Refusing(t)}
	defer l.Close()
	none := Listener{Key: "listeners.ingest"}
	holds(t, PortsFree([]Listener{taken, none}).Look(t.Context()), Failure, fmt.Sprintf("listeners.mqtt %s: address already in use", l.Addr()), "ss -ltnp")
	holds(t, PortsFree([]Listener{{Key: "listeners.api", Address: "127.0.0.1:0"}}).Look(t.Context()), OK, "are free", "")
	holds(t, PortsFree([]Listener{none}).Look(t.Context()), Warning, "no listener is configured", "listeners")
	holds(t, PortsAnswer([]Listener{taken, none}).Look(t.Context()), OK, "answer", "")
	holds(t, PortsAnswer([]Listener{taken, closed}).Look(t.Context()), Failure, "listeners.api "+closed.Address+": connection refused", "log")
}

func TestListenersThatEverybodyReaches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address string
		want    Result
	}{{":1883", Warning}, {"0.0.0.0:1883", Warning}, {"[::]:1883", Warning}, {"127.0.0.1:1883", OK}, {"192.168.1.2:1883", OK}, {"", OK}} {
		f := Exposure([]Listener{{Key: "listeners.mqtt", Address: c.address}, {Key: "listeners.api", Address: "127.0.0.1:8080"}, {Key: "listeners.mqtts", Address: ":8883", TLS: true}}).Look(t.Context())
		holds(t, f, c.want, "", "")
		if c.want == Warning && f.Text != "on every interface without TLS: listeners.mqtt" {
			t.Error(f.Text)
		}
	}
	holds(t, DeviceAuth("disabled").Look(t.Context()), Warning, "can send as any device", "required")
	holds(t, DeviceAuth("required").Look(t.Context()), OK, "required", "")
}

func TestACertificateByItsAge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	for _, c := range []struct {
		name  string
		left  time.Duration
		begun time.Duration // ago
		bad   string
		want  Result
		text  string
		hint  string
	}{
		{"fresh", 90 * day, day, "", OK, "good for 90 days", ""},
		{"over 30 days", 30*day + time.Hour, day, "", OK, "", ""},
		{"under 30 days", 30*day - time.Hour, day, "", Warning, "expires in 29 days", "renew"},
		{"over", -time.Second, day, "", Failure, "has expired", "renew"},
		{"not yet", 90 * day, -time.Hour, "", Failure, "good only from", "clock"},
		{"not replaced", 10 * day, day, "tls.key_file: is not the key of the certificate", Failure, "tls.key_file", "for 10 days"},
	} {
		p := Pair{File: "gw.pem", NotBefore: now.Add(-c.begun), NotAfter: now.Add(c.left), Problem: c.bad}
		f := Certificate(func() Pair { return p }, func() time.Time { return now }).Look(t.Context())
		t.Log(c.name)
		holds(t, f, c.want, c.text, c.hint)
	}
	doubtful := Pair{File: "gw.pem", NotBefore: now.Add(-day), NotAfter: now.Add(90 * day), Doubts: []string{"it names no host", "it is not for servers"}}
	holds(t, Certificate(func() Pair { return doubtful }, func() time.Time { return now }).Look(t.Context()), Warning, "clients may refuse gw.pem: it names no host; it is not for servers", "first")
	holds(t, Certificate(func() Pair { return Pair{Problem: "gone"} }, time.Now).Look(t.Context()), Failure, "cannot be served: gone", "both files")
}

func TestThisMachineAnswers(t *testing.T) {
	t.Parallel()
	m := ThisMachine()
	if _, err := m.FileSystem("."); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	if n, err := m.OpenFiles(); err == nil && n == 0 {
		t.Error("no file may be open")
	}
	if s := Facts("."); !strings.Contains(s, "cpus") {
		t.Error(s)
	}
}

func TestNumbersAreWrittenForPeople(t *testing.T) {
	t.Parallel()
	if got := Count(0, "hour") + Count(1, "hour") + Count(int64(2), "hour"); got != "0 hours1 hour2 hours" {
		t.Error(got)
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 10 << 10: "10 KiB", 5000 << 40: "5000 TiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %q, not %q", n, got, want)
		}
	}
}
