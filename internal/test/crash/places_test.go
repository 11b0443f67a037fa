//go:build linux && amd64

package crash_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/test/need"
	"weir/internal/test/poll"
	"weir/internal/test/powercut"
	"weir/internal/test/seed"
	"weir/internal/test/testweir"
)

// send lets every source send what it has for now, until that is acknowledged, and an alert.
func (w *world) send() {
	w.t.Helper()
	end, sent := w.load("")
	<-sent
	end()
	w.alert()
}

// alert sends an alert, which is kept as a row by its place in the log.
func (w *world) alert() {
	w.t.Helper()
	w.alerts++
	body := fmt.Sprintf(`{"eventType":"Alert","payload":{"entries":[{"type":"a%d","level":1,"message":"m"}]},"credentialType":"ACCESS_TOKEN","credentialId":"acme-h0"}`, w.alerts)
	if !post(http.DefaultClient, w.p, "acme", []byte(body)) {
		w.t.Error("an alert is not taken")
	}
}

// storedAlerts is how many alerts are there.
func (w *world) storedAlerts() int {
	w.t.Helper()
	var got struct {
		AlertEvents struct{ Pagination struct{ TotalRecords int } }
	}
	w.p.Query("event-management", w.tokens["acme"], `{alertEvents(criteria:{pageNumber:1,pageSize:1}){pagination{totalRecords}}}`, nil, &got)
	return got.AlertEvents.Pagination.TotalRecords
}

// acked is what was acknowledged up to now.
func (w *world) acked() map[*source]int {
	out := map[*source]int{}
	for _, s := range w.sources {
		out[s] = s.acked
	}
	return out
}

// lost takes what is there for the books, where something was lost that reached at most back to since. It returns how many
// messages are gone.
func (w *world) lost(since map[*source]int) (gone int) {
	w.t.Helper()
	for _, s := range w.sources {
		gone += s.acked
		s.acked = since[s]
	}
	there := map[*source]int{}
	for tenant := range w.tokens {
		w.checkSums(tenant, there)
	}
	for s, n := range there {
		gone -= n
		s.acked, s.sent = n, n
		s.at = s.at[:min(n, len(s.at))]
	}
	for k := range w.churn.kept {
		w.churn.kept[k] = false
	}
	for k := range w.churn.related {
		w.churn.related[k] = false
	}
	w.churn.reported = 0
	return gone
}

// told checks that the running instance says everywhere that something was lost.
func (w *world) told() {
	w.t.Helper()
	if !strings.Contains(w.p.Stderr(), "a part of the log is lost") {
		w.t.Error("nothing is said of the loss in the log")
	}
	if out, _ := w.p.TryRun("", "doctor"); !strings.Contains(out, "warn  log-losses ") {
		w.t.Errorf("the doctor does not know: %s", out)
	}
	if out, _ := w.p.TryRun("", "ledger", "--json"); !strings.Contains(out, `"gaps"`) {
		w.t.Errorf("the ledger has no gap: %.200s", out)
	}
	resp, err := http.Get(w.p.Metrics + "/metrics")
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var b strings.Builder
	if err := resp.Write(&b); err != nil {
		w.t.Fatal(err)
	}
	if !strings.Contains(b.String(), "\nweir_ingest_lost_records_total ") || strings.Contains(b.String(), "\nweir_ingest_lost_records_total 0\n") {
		w.t.Error("weir_ingest_lost_records_total is missing or 0")
	}
}

// The log is deleted: what the store holds is there, the log goes on above it, nothing that comes is taken for something
// old, and the loss is told.
func TestTheLogIsDeleted(t *testing.T) {
	whole(t)
	t.Parallel()
	w := furnishWith(t, testweir.Options{Dir: t.TempDir()}, seldom, seed.Rand(t))
	w.send()
	if err := w.p.Stop(); err != nil { // a head is written
		t.Fatal(err)
	}
	safe := w.acked()
	w.restart()
	w.check()
	alerts := w.alerts
	w.send()
	w.p.Kill()
	if err := os.RemoveAll(filepath.Join(w.opt.Dir, "data", "spool")); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.told()
	if gone := w.lost(safe); gone == 0 {
		t.Error("nothing was lost: the test shows nothing")
	}
	if got := w.storedAlerts(); got < alerts || got > w.alerts {
		t.Errorf("%d alerts, want %d to %d", got, alerts, w.alerts)
	}
	w.onwards()
}

// The log is that of an hour ago: what it holds is applied, and the rest is as with one that is deleted.
func TestTheLogIsOlderThanTheStore(t *testing.T) {
	whole(t)
	t.Parallel()
	w := furnishWith(t, testweir.Options{Dir: t.TempDir()}, seldom, seed.Rand(t))
	spool := filepath.Join(w.opt.Dir, "data", "spool")
	old := filepath.Join(w.opt.Dir, "old")
	w.send()
	w.p.Kill()
	if err := os.CopyFS(old, os.DirFS(spool)); err != nil {
		t.Fatal(err)
	}
	safe := w.acked()
	w.restart()
	w.send()
	w.p.Kill()
	if err := errors.Join(os.RemoveAll(spool), os.Rename(old, spool)); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.told()
	if gone := w.lost(safe); gone == 0 {
		t.Error("nothing was lost: the test shows nothing")
	}
	w.onwards()
}

// onwards shows that an instance that has lost something goes on as if it had not: everything new is kept, each once, also
// over a kill, and no alert is taken for one that bore its place before.
func (w *world) onwards() {
	w.t.Helper()
	for range 2 {
		before := w.storedAlerts()
		w.send()
		w.alert()
		w.p.Kill()
		w.restart()
		if got := w.storedAlerts(); got != before+2 {
			w.t.Errorf("%d alerts, want %d", got, before+2)
		}
		for tenant := range w.tokens {
			w.checkSums(tenant, map[*source]int{})
		}
		w.checkChurn()
	}
}

// The power fails between a commit of the store and the sync of it: the log is trimmed only behind what was synced.
func TestPowerCutBetweenACommitOfTheStoreAndItsSync(t *testing.T) {
	whole(t)
	t.Parallel()
	r := seed.Rand(t)
	w, m := onMachine(t, r)
	for round := range 4 {
		m.Plan(&powercut.Stop{After: 2 + 3*round, Of: suffix("weir.db-wal")})
		end, _ := w.load("")
		select {
		case <-m.Cut():
		case <-time.After(20 * time.Second):
			t.Error("the store does not sync")
		}
		w.p.Kill()
		end()
		if _, _, err := m.Off(); err != nil {
			t.Fatal(err)
		}
		if err := m.Lose(suffix("weir.db-wal"), false); err != nil { // nothing of it has arrived
			t.Fatal(err)
		}
		m.Plan(nil)
		w.restart()
		w.check()
	}
	w.checkWhole()
}

// onMachine runs a world on a machine whose power may fail.
func onMachine(t *testing.T, r *rand.Rand) (*world, *powercut.Machine) {
	t.Helper()
	return onMachineWith(t, settings, r)
}

func onMachineWith(t *testing.T, config string, r *rand.Rand) (*world, *powercut.Machine) {
	t.Helper()
	w := furnishWith(t, testweir.Options{Dir: t.TempDir()}, config, r)
	if err := w.p.Stop(); err != nil {
		t.Fatal(err)
	}
	m, err := powercut.New(filepath.Join(w.opt.Dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	w.opt.Wrap = m.Wrap
	w.restart()
	return w, m
}

// The disk has lied about the last syncs of the log: what they held is gone, which nobody can help, and nothing else.
func TestTheLastSyncOfTheLogIsLost(t *testing.T) {
	whole(t)
	t.Parallel()
	w, m := onMachine(t, seed.Rand(t))
	w.send()
	safe := w.acked()
	m.Lie(suffix(".span"))
	end, sent := w.load("")
	<-sent
	w.p.Kill()
	end()
	if _, _, err := m.Off(); err != nil {
		t.Fatal(err)
	}
	if err := m.Lose(suffix(".span"), false); err != nil {
		t.Fatal(err)
	}
	m.Lie(nil)
	w.restart()
	w.lost(safe)
	w.onwards()
}

// The disk has lied about the last sync of the store: the log still holds what the store has forgotten, and every reading is
// there. What the API was told meanwhile is gone with the store.
func TestTheLastSyncOfTheStoreIsLost(t *testing.T) {
	whole(t)
	t.Parallel()
	w, m := onMachineWith(t, seldom, seed.Rand(t))
	w.send()
	end, sent := w.load("")
	<-sent
	end()
	// The last sync holds no change of the registry: a database that has lost one is older than its log, and is refused.
	w.p.Run("correct horse battery", "admin", "create", "late@example.org", "--password-file", "-")
	w.p.Kill()
	if _, _, err := m.Off(); err != nil {
		t.Fatal(err)
	}
	if err := m.Lose(suffix("weir.db-wal"), true); err != nil {
		t.Fatal(err)
	}
	w.restart()
	messages := map[*source]int{}
	for tenant := range w.tokens {
		w.checkSums(tenant, messages)
		w.checkFires(tenant, messages)
	}
}

// The disk is full at some moment, and the program is killed at another, or at any of the points: nothing is acknowledged that
// is not kept, and with room it goes on by itself.
func TestTheDiskIsFull(t *testing.T) {
	whole(t)
	t.Parallel()
	r := seed.Rand(t)
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	const size = 48 << 20
	err := unix.Mount("weir-crash", data, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", size))
	need.That(t, err == nil, "a small file system cannot be mounted: %v", err)
	t.Cleanup(func() {
		if err := unix.Unmount(data, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	points := slices.Sorted(maps.Keys(pointsOf(t)))
	file := filepath.Join(t.TempDir(), "plan")
	w := furnish(t, testweir.Options{Dir: dir, Binary: testweir.Tagged(t, "faults"), Env: []string{"FAULTS_PLAN=" + file, shortWaits}}, r)
	w.passing = newPassing(w.p)
	w.churn.full = true
	ballast := filepath.Join(data, "ballast")
	fill := func(leave int64) {
		t.Helper()
		var st unix.Statfs_t
		if err := unix.Statfs(data, &st); err != nil {
			t.Fatal(err)
		}
		n := int64(st.Bavail)*st.Bsize - leave
		if err := os.WriteFile(ballast, make([]byte, max(n, 0)), 0o600); err != nil && !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	for round := range max(4, *kills/10) {
		end, sent := w.load("")
		time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
		fill([]int64{0, 4096, 40 << 10, 300 << 10, 2 << 20}[r.IntN(5)])
		if round%2 == 0 {
			write(t, file, points[r.IntN(len(points))]+" 1\n")
		}
		select {
		case <-sent:
		case <-time.After(time.Duration(300+r.IntN(700)) * time.Millisecond):
		}
		if round%2 == 0 { // killed while it is full
			w.p.Kill()
			end()
			write(t, file, "")
			// It ends and says so, or waits for room: then it goes on by itself once there is some.
			room := time.AfterFunc(3*time.Second, func() { _ = os.Remove(ballast) })
			p, err := testweir.TryStart(t, w.opt)
			room.Stop()
			if err == nil {
				w.p = p
				p.Kill()
			} else if !strings.Contains(err.Error(), "full") && !strings.Contains(err.Error(), "no space") {
				t.Errorf("a start on a full disk says: %v", err)
			}
			if err := os.Remove(ballast); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		} else { // there is room again
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			poll.True(t, "the log takes messages again", func() bool {
				return post(http.DefaultClient, w.p, "churn", []byte(`{"eventType":"Measurement","payload":{"entries":[{"measurements":{"other":"1"}}]}}`))
			})
			w.p.Kill()
			end()
		}
		w.restart()
		w.check()
	}
	w.checkWhole()
	w.passing.checkErased(w, true)
}
