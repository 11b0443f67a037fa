package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/test/conformance"
	"weir/internal/test/need"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// small is an instance whose log is as small as it may be, and whose ceiling is a store of readings that hardly refills.
const small = `
ingest: {spool_max_bytes: 16MiB}
spool: {replay_bytes: 1MiB}
governance: {ingest_messages_per_second: 1, ingest_burst: 250000}
`

// holdDatabase takes the place of the database's writer, as another process could, until release is called. The lock is
// that of SQLite's write-ahead log: a byte of the shared-memory file (https://sqlite.org/walformat.html, section 2.3).
func holdDatabase(t *testing.T, w *world) (release func()) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(w.Dir, "data", "weir.db-shm"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	const writeLock = 120
	poll.Until(t, "the write lock", func() error {
		return unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: writeLock, Len: 1})
	})
	t.Cleanup(func() { _ = f.Close() })
	return func() { _ = f.Close() } // which gives the lock back
}

// bulk is an array of n events that take some 35 KB each in the log and 256 readings of the ceiling.
func (tn *tenant) bulk(n int) string {
	entries := make([]string, 256)
	for i := range entries {
		entries[i] = fmt.Sprintf(`{"measurements":{%q:"1"}}`, strings.Repeat("m", 120))
	}
	event := `{"eventType":"Measurement","payload":{"entries":[` + strings.Join(entries, ",") + `]},` + tn.as("d") + `}`
	return "[" + strings.Join(slicesOf(event, n), ",") + "]"
}

func slicesOf(s string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = s
	}
	return out
}

// While the pipeline stands still the log fills up: HTTP is told so and keeps nothing, a tenant over its ceiling hears of
// that first, and MQTT events wait in what is left.
func TestBackpressure(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: small})
	tn, poor := w.tenant(t, "rich"), w.tenant(t, "poor")
	tn.plain("d")
	poor.plain("d")
	status := func(tn *tenant, body string) (int, string) {
		t.Helper()
		resp := tn.post(body)
		return resp.StatusCode, resp.Header.Get("Retry-After")
	}
	release := holdDatabase(t, w)
	bulk, kept := tn.bulk(24), 0
	for {
		code, retry := status(tn, bulk)
		if code == http.StatusAccepted {
			kept += 24
			continue
		}
		if code != http.StatusServiceUnavailable || retry != "10" {
			t.Fatalf("after %d events: %d, Retry-After %q", kept, code, retry)
		}
		break
	}
	conformance.Shown(t, "S2-019")
	for range 100 {
		code, retry := status(tn, bulk)
		if code == http.StatusServiceUnavailable && retry == "10" {
			continue
		}
		if code != http.StatusTooManyRequests || retry != "1" {
			t.Fatalf("over the ceiling during backpressure: %d, Retry-After %q", code, retry)
		}
		if code, _ := status(poor, measured("temp", "1", poor.as("d"))); code != http.StatusServiceUnavailable {
			t.Errorf("another tenant: %d", code)
		}
		conformance.Shown(t, "S2-020")
		break
	}
	c := poor.connect("d")
	c.send(measured("temp", "7"))
	if _, total := poor.measurements(nil); total != 0 {
		t.Errorf("%d readings: the pipeline does not stand still", total)
	}
	release()
	if all := poor.arrived(1); all[0].Value != 7 {
		t.Errorf("%+v", all)
	}
	conformance.Shown(t, "S2-032")
	poll.Until(t, "room in the log", func() error {
		if code, _ := status(poor, measured("temp", "8", poor.as("d"))); code != http.StatusAccepted {
			return fmt.Errorf("%d", code)
		}
		return nil
	})
	poor.arrived(2)
	if _, total := tn.measurements(map[string]any{"pageSize": 1}); total != kept*256 {
		t.Errorf("%d readings are stored of %d that were kept", total, kept*256)
	}
}

// A hand-over that fails is told by 503 without Retry-After; sent again, the same event is stored once.
func TestAFailedHandOver(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: generous})
	tn := w.tenant(t, "failing")
	tn.plain("d")
	tn.kept(measured("temp", "1", tn.as("d")))
	tn.arrived(1)
	// The disk is full: no file of the process may grow any more.
	var old unix.Rlimit
	err := unix.Prlimit(w.PID(), unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: unix.RLIM_INFINITY}, &old)
	need.That(t, err == nil, "the limits of another process cannot be set here: %v", err)
	event := measured("temp", "2", tn.as("d"), `"altId":"again"`, at(time.Now().Truncate(time.Second)))
	resp := tn.post(event)
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "" {
		var b bytes.Buffer
		_, _ = b.ReadFrom(resp.Body)
		t.Fatalf("%s, Retry-After %q, %s", resp.Status, resp.Header.Get("Retry-After"), b.String())
	}
	conformance.Shown(t, "S2-021")
	if err := unix.Prlimit(w.PID(), unix.RLIMIT_FSIZE, &old, nil); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "the log takes events again", func() error {
		if resp := tn.post(event); resp.StatusCode != http.StatusAccepted {
			return fmt.Errorf("%s", resp.Status)
		}
		return nil
	})
	tn.kept(event)
	tn.applied("d")
	tn.arrived(3) // the first, the one sent again, the marker
	conformance.Shown(t, "S2-022")
}
