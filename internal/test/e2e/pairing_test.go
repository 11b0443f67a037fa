package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/test/conformance"

	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// paired is an instance that has stored one reading of a device, and whose newest records are applied but in no head yet:
// it was killed.
func paired(t *testing.T) *tenant {
	t.Helper()
	w := start(t, testweir.Options{Config: generous})
	tn := w.tenant(t, "acme")
	tn.plain("d")
	tn.kept(measured("temp", "1", tn.as("d")))
	tn.arrived(1)
	w.Kill()
	return tn
}

// again starts the instance of a tenant anew.
func (tn *tenant) again() *tenant {
	tn.t.Helper()
	p, err := testweir.TryStart(tn.t, testweir.Options{Dir: tn.Dir, Config: generous})
	if err != nil {
		tn.t.Fatal(err)
	}
	w := &world{Proc: p}
	w.login()
	return w.enter(tn.t, tn.name)
}

func (tn *tenant) path(name string) string { return filepath.Join(tn.Dir, "data", name) }

// spans are the files of the log.
func (tn *tenant) spans() []string {
	names, _ := filepath.Glob(tn.path("spool/*.span"))
	return names
}

// worksOn shows that a device that was known before is known still, and its readings are stored.
func (tn *tenant) worksOn(readings int) {
	tn.t.Helper()
	tn.kept(measured("temp", "2", tn.as("d")))
	tn.applied("d")
	tn.arrived(readings)
}

// tellsOfALoss holds status, doctor and the alert.
func (tn *tenant) tellsOfALoss(why string) {
	tn.t.Helper()
	status := tn.Run("", "status")
	if !strings.Contains(status, "lost of the log: ") || !strings.Contains(status, why) || !strings.Contains(status, "DurableLostUnread") {
		poll.Until(tn.t, "the loss in the status", func() error { return says(tn.Run("", "status"), "lost of the log: ", why) })
	}
	if out, err := tn.TryRun("", "doctor"); !strings.Contains(out, "warn  log-losses") || !strings.Contains(out, why) {
		tn.t.Errorf("doctor: %v\n%s", err, out)
	}
}

func says(text string, wanted ...string) error {
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			return &missingText{w, text}
		}
	}
	return nil
}

type missingText struct{ wanted, in string }

func (m *missingText) Error() string { return "no " + m.wanted + " in " + m.in }

func TestALogThatIsMissingIsReplacedAndTheLossTold(t *testing.T) {
	t.Parallel()
	tn := paired(t)
	if err := os.RemoveAll(tn.path("spool")); err != nil {
		t.Fatal(err)
	}
	tn = tn.again()
	tn.tellsOfALoss("there was no log")
	tn.worksOn(2) // the new one and the marker; the reading that was in the log alone is the loss
	if err := tn.Stop(); err != nil {
		t.Fatal(err)
	}
	tn = tn.again()
	tn.tellsOfALoss("there was no log") // a restart forgets nothing
	tn.arrived(2)
}

func TestALogOfAnotherStoreIsSetAsideAndNothingOfItApplied(t *testing.T) {
	t.Parallel()
	tn, other := paired(t), paired(t)
	if err := os.RemoveAll(tn.path("spool")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(tn.path("spool"), os.DirFS(other.path("spool"))); err != nil {
		t.Fatal(err)
	}
	tn = tn.again()
	tn.tellsOfALoss("belonged to another store")
	tn.worksOn(2)
	if aside, _ := filepath.Glob(tn.path("spool.foreign-*/*.span")); len(aside) != len(other.spans()) {
		t.Errorf("set aside: %v", aside)
	}
}

func TestALogThatIsShorterThanTheResultsIsContinuedAboveThem(t *testing.T) {
	t.Parallel()
	tn := paired(t)
	tn = tn.again() // everything is applied
	older := t.TempDir()
	if err := tn.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(older, os.DirFS(tn.path("spool"))); err != nil {
		t.Fatal(err)
	}
	tn = tn.again()
	tn.worksOn(3)
	if err := tn.Stop(); err != nil { // the head is written
		t.Fatal(err)
	}
	if err := os.RemoveAll(tn.path("spool")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(tn.path("spool"), os.DirFS(older)); err != nil {
		t.Fatal(err)
	}
	tn = tn.again()
	tn.tellsOfALoss("ended before what is known of it")
	tn.worksOn(5)
}

// TestADamagedLogIsGonePast: whatever of it, the instance comes up, says what is lost and goes on.
func TestADamagedLogIsGonePast(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(b []byte) []byte{
		"emptied":      func([]byte) []byte { return nil },
		"cut off":      func(b []byte) []byte { return b[:len(b)/2/4096*4096] },
		"overwritten":  func(b []byte) []byte { return bytes.Repeat([]byte{0xa5}, len(b)) },
		"not a log":    func([]byte) []byte { return bytes.Repeat([]byte("hello\n"), 9999) },
		"a first page": func(b []byte) []byte { clear(b[:4096]); return b },
		"both of them": func(b []byte) []byte { clear(b[:8192]); return b },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := paired(t)
			spans := tn.spans()
			content, err := os.ReadFile(spans[len(spans)-1])
			if err == nil {
				err = os.WriteFile(spans[len(spans)-1], damage(content), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			tn = tn.again()
			switch name {
			case "a first page", "cut off": // all of it may be there
			case "both of them":
				tn.tellsOfALoss("could not be read")
				tn.worksOn(3) // the batches were found without the pages that lead to them
			default:
				tn.tellsOfALoss("could not be read")
				tn.worksOn(2)
			}
		})
	}
}

// TestAStallAndALossOfTheLogAreReported: while nothing is applied the metric of DurableStalledBehindStream says so; when the
// records that waited cannot be read at the next start, that of DurableLostUnread does. Log, status and the rules agree.
func TestAStallAndALossOfTheLogAreReported(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: generous})
	tn := w.tenant(t, "stalled")
	tn.plain("d")
	tn.kept(measured("temp", "1", tn.as("d")))
	tn.arrived(1)
	rules := w.Run("", "alerts")
	const stalled, lost = "weir_ingest_applier_stalled", "weir_log_recent_gaps"
	if err := says(rules, "alert: DurableStalledBehindStream", stalled+" > 0", "alert: DurableLostUnread", lost+" > 0"); err != nil {
		t.Error(err)
	}
	if a, b := w.metric(t, stalled), w.metric(t, lost); a != 0 || b != 0 {
		t.Errorf("%s %v, %s %v before anything happened", stalled, a, lost, b)
	}
	release := holdDatabase(t, w)
	tn.kept(`{"eventType":"Alert","payload":{"entries":[{"type":"smoke","level":3}]},` + tn.as("d") + `}`) // a row with its batch
	poll.Until(t, "the stall in the metrics and in the log", func() error {
		if w.metric(t, stalled) != 1 {
			return errors.New("the metric says 0")
		}
		return says(w.Stderr(), "database is locked")
	})
	w.Kill()
	release()
	for _, span := range tn.spans() {
		content, err := os.ReadFile(span)
		if err == nil {
			err = os.WriteFile(span, bytes.Repeat([]byte{0xa5}, len(content)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	tn = tn.again()
	tn.tellsOfALoss("could not be read")
	if err := says(tn.Stderr(), "a part of the log is lost"); err != nil {
		t.Error(err)
	}
	poll.Until(t, "the loss in the metrics, and the end of the stall", func() error {
		if a, b := tn.metric(t, stalled), tn.metric(t, lost); a != 0 || b == 0 {
			return fmt.Errorf("%s %v, %s %v", stalled, a, lost, b)
		}
		return nil
	})
	tn.kept(measured("temp", "9", tn.as("d")))
	tn.applied("d")
	conformance.Shown(t, "S2-034")
}

// TestALogWithoutItsDatabaseIsLeftAlone: its records would be taken for those of strangers.
func TestALogWithoutItsDatabaseIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]func(*tenant) error{
		"removed": func(tn *tenant) error { return os.Remove(tn.path("weir.db")) },
		"emptied": func(tn *tenant) error { return os.Truncate(tn.path("weir.db"), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := paired(t)
			if err := os.Rename(tn.path("weir.db"), tn.path("kept")); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(tn.path("kept")); err != nil || os.WriteFile(tn.path("weir.db"), b, 0o600) != nil {
				t.Fatal(err)
			}
			wal := tn.path("weir.db-wal")
			if err := os.Rename(wal, tn.path("kept-wal")); err != nil {
				t.Fatal(err)
			}
			if err := gone(tn); err != nil {
				t.Fatal(err)
			}
			_, err := testweir.TryStart(t, testweir.Options{Dir: tn.Dir, Config: generous})
			if err == nil || says(err.Error(), "weir.db is gone, and the log beside it holds records of it", "hint: put weir.db", "weir backup restore FILE --data") != nil {
				t.Fatalf("started with %v", err)
			}
			for from, to := range map[string]string{"kept": "weir.db", "kept-wal": "weir.db-wal"} {
				if err := os.Rename(tn.path(from), tn.path(to)); err != nil {
					t.Fatal(err)
				}
			}
			tn = tn.again()
			tn.worksOn(3) // nothing was lost by the attempt
		})
	}
}

// TestADatabaseOlderThanTheLogIsRefused: the row ids in the log mean others by now.
func TestADatabaseOlderThanTheLogIsRefused(t *testing.T) {
	t.Parallel()
	tn := paired(t)
	tn = tn.again()
	if err := tn.Stop(); err != nil {
		t.Fatal(err)
	}
	older, err := os.ReadFile(tn.path("weir.db"))
	if err != nil {
		t.Fatal(err)
	}
	tn = tn.again()
	tn.device("e", "plain")
	tn.worksOn(3)
	tn.Kill()
	if err := os.WriteFile(tn.path("weir.db"), older, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"weir.db-wal", "weir.db-shm"} {
		_ = os.Remove(tn.path(name))
	}
	_, err = testweir.TryStart(t, testweir.Options{Dir: tn.Dir, Config: generous})
	if err == nil || says(err.Error(), "the database is older than the log", "hint: put the newer weir.db back") != nil {
		t.Fatalf("started with %v", err)
	}
}
