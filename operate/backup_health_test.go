package operate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/health"
)

func TestABackupThatIsMissingOrOldIsWorthAWord(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		age  time.Duration // 0: none
		want health.Result
		text string
	}{
		{0, health.Warn("", "").Result, "none yet"},
		{time.Hour, health.Good("").Result, "2026-02-28T23:00:00Z, 4.0 KiB"},
		{30 * 24 * time.Hour, health.Good("").Result, "2026-01-30"},
		{32 * 24 * time.Hour, health.Warn("", "").Result, "more than a month ago"},
	} {
		if c.age > 0 {
			if err := (LastBackup{At: now.Add(-c.age), Bytes: 4096, Seconds: 1}).write(dir); err != nil {
				t.Fatal(err)
			}
		}
		if f := backupFinding(dir, now); f.Result != c.want || !strings.Contains(f.Text, c.text) {
			t.Errorf("%s old: %+v", c.age, f)
		}
	}
	if err := os.WriteFile(lastBackupPath(dir), []byte("what"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f := backupFinding(dir, now); f.Result != health.Warn("", "").Result {
		t.Errorf("a note that does not read: %+v", f)
	}
	if err := os.Mkdir(filepath.Join(dir, "restore.unfinished"), 0o700); err != nil {
		t.Fatal(err)
	}
	if f := backupFinding(dir, now); f.Result != health.Fail("", "").Result {
		t.Errorf("a restore that was cut short: %+v", f)
	}
}
