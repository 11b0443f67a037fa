package app_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/test/poll"
	"weir/internal/test/seed"
	"weir/internal/test/testweir"
	"weir/spool/bolt"
)

// backupKills is how many backups are killed before one is let to its end.
const backupKills = 12

// TestABackupTakenAtFullSpeedIsRestoredWithEverythingThatWasAcknowledgedBefore: eight devices send as fast as they are
// answered while backups are killed at random moments, and the last is made. It comes back in another directory with every
// number that was acknowledged before it began, none twice and none left out, with the rules and the ledger that follow from
// them; and the devices go on there.
func TestABackupTakenAtFullSpeedIsRestoredWithEverythingThatWasAcknowledgedBefore(t *testing.T) {
	t.Parallel()
	p := testweir.Start(t, testweir.Options{Dir: t.TempDir(), Config: killConfig})
	senders := furnish(t, p)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, s := range senders {
		wg.Go(func() { s.run(p, stop) })
	}
	out := t.TempDir()
	file := filepath.Join(out, "weir.backup")
	r := seed.Rand(t)
	within := int64(150 * time.Millisecond)
	for kills := 0; kills < backupKills; {
		cmd := exec.Command(testweir.Binary(t), "backup", "create", file, "--rate", "2MiB", "--config", p.Config)
		cmd.Env = testweir.Environ()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(r.Int64N(within + 1))) // the random moment
		_ = cmd.Process.Kill()
		if err := cmd.Wait(); err == nil { // it was complete already, so the next is killed earlier
			within /= 2
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			continue
		}
		nothingIn(t, out)
		if cmd.ProcessState.ExitCode() == -1 { // else it was refused, because the one before is still being made
			kills++
		}
	}
	floor := make([]int, len(senders))
	for i, s := range senders {
		floor[i] = int(s.seen.Load())
	}
	began := time.Now().Truncate(time.Second)
	var made struct {
		Size int64
		Log  struct{ Epoch uint32 }
	}
	poll.Until(t, "the instance has noticed that the last one was killed", func() error {
		text, err := p.TryRun("", "backup", "create", file, "--json")
		if err != nil && !strings.Contains(text, "being made already") {
			t.Fatal(err, text)
		}
		if err == nil {
			err = json.Unmarshal([]byte(text), &made)
		}
		return err
	})
	if made.Size == 0 {
		t.Fatal("an empty backup was made")
	}
	close(stop)
	wg.Wait()
	p.Kill()
	p.Run("", "backup", "verify", file)

	q := testweir.Options{Dir: t.TempDir(), Config: killConfig}
	restore(t, file, q, filepath.Join(p.Dir, "data", "root.key"))
	p = testweir.Start(t, q)
	token := p.SignIn("acme")
	for i, s := range senders {
		before := s.acked
		s.acked = len(numbers(t, p, token, s.device))
		s.sent = s.acked
		if s.acked < floor[i] || s.acked > before+window {
			t.Errorf("%s: %d readings; %d were acknowledged before the backup, %d in all", s.device, s.acked, floor[i], before)
		}
	}
	check(t, p, senders)
	var ledger struct {
		Gaps []struct{ From, To time.Time }
	}
	p.RunJSON(&ledger, "ledger")
	if len(ledger.Gaps) != 1 || ledger.Gaps[0].From.Before(began) || ledger.Gaps[0].To.Before(ledger.Gaps[0].From) {
		t.Errorf("gaps since %s: %+v", began, ledger.Gaps)
	}

	stop = make(chan struct{})
	restored := make([]int64, len(senders))
	for i, s := range senders {
		restored[i] = int64(s.acked)
		s.seen.Store(restored[i])
		wg.Go(func() { s.run(p, stop) })
	}
	for i, s := range senders {
		poll.True(t, s.device+" goes on", func() bool { return s.seen.Load() > restored[i] })
	}
	close(stop)
	wg.Wait()
	check(t, p, senders)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	inv, err := bolt.Inspect(t.Context(), filepath.Join(q.Dir, "data", "spool"))
	if err != nil || inv.Epoch <= made.Log.Epoch {
		t.Errorf("the restored one goes on in epoch %d, the original was in %d: %v", inv.Epoch, made.Log.Epoch, err)
	}
}

// TestABackupEndsWithTheInstance: what was killed or stopped in the middle of a copy leaves no file.
func TestABackupEndsWithTheInstance(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testweir.Proc) error{
		"killed":  func(p *testweir.Proc) error { p.Kill(); return nil },
		"stopped": (*testweir.Proc).Stop,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := testweir.Start(t, testweir.Options{Dir: t.TempDir()})
			out := t.TempDir()
			cmd := exec.Command(testweir.Binary(t), "backup", "create", filepath.Join(out, "weir.backup"), "--rate", "32KiB", "--config", p.Config)
			cmd.Env = testweir.Environ()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			awaitBusy(t, p)
			if err := end(p); err != nil {
				t.Errorf("the instance: %v", err)
			}
			if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("the backup ended with %v", err)
			}
			nothingIn(t, out)
		})
	}
}

// awaitBusy waits until a backup is being made.
func awaitBusy(t *testing.T, p *testweir.Proc) {
	t.Helper()
	poll.True(t, "a backup is being made", func() bool {
		resp, err := http.Get(p.Metrics + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		return err == nil && bytes.Contains(text, []byte("\nweir_backup_running 1\n"))
	})
}

func nothingIn(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Fatalf("left behind: %v, %v", entries, err)
	}
}

func restore(t *testing.T, file string, o testweir.Options, key string) {
	t.Helper()
	cmd := exec.Command(testweir.Binary(t), "backup", "restore", file, "--root-key-file", key, "--config", testweir.WriteConfig(t, o.Dir, o.Config))
	cmd.Env = testweir.Environ()
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("%w\n%s", err, text))
	}
}
