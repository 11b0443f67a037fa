package operate

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/config"
	"weir/health"
	"weir/model"
)

// kept writes files of a backup directory, one an hour, oldest first.
func kept(t *testing.T, dir string, names ...string) time.Time {
	t.Helper()
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range names {
		at = at.Add(time.Hour)
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(name), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	return at
}

func namesOf(files []KeptBackup) (names []string) {
	for _, f := range files {
		names = append(names, f.Name)
	}
	return names
}

func TestOnlyBackupsOfTheDirectoryAreListed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept(t, dir, "weir-1.backup", "scheduled-2.backup.gz", "other.txt", ".hidden.backup", "root.key")
	if err := errors.Join(os.Symlink("/etc/passwd", filepath.Join(dir, "link.backup")), os.Mkdir(filepath.Join(dir, "folder.backup"), 0o700)); err != nil {
		t.Fatal(err)
	}
	files, _, err := keptBackups(dir)
	if got := namesOf(files); err != nil || !slices.Equal(got, []string{"scheduled-2.backup.gz", "weir-1.backup"}) || !files[0].Scheduled || files[1].Scheduled {
		t.Errorf("%v, %v", got, err)
	}
	for _, name := range []string{"link.backup", "folder.backup", "other.txt", "../d/weir-1.backup", "", ".hidden.backup", "none.backup"} {
		if _, err := statBackup(dir, name); model.CodeOf(err) != model.CodeNotFound {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := statBackup(dir, "weir-1.backup"); err != nil {
		t.Error(err)
	}
	if files, _, err := keptBackups(filepath.Join(dir, "none")); err != nil || len(files) != 0 {
		t.Errorf("a directory that is not there: %v, %v", files, err)
	}
}

func TestAVerificationCountsForTheFileThatWasVerified(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := kept(t, dir, "weir-1.backup")
	write := func(p BackupProof) {
		t.Helper()
		b, err := json.Marshal(p)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "weir-1.backup"+proofSuffix), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	size := int64(len("weir-1.backup"))
	for _, c := range []struct {
		proof BackupProof
		want  bool
	}{
		{BackupProof{At: at.Add(time.Minute), Bytes: size, Restorable: true}, true},
		{BackupProof{At: at.Add(-time.Minute), Bytes: size, Restorable: true}, false},
		{BackupProof{At: at.Add(time.Minute), Bytes: size + 1, Restorable: true}, false},
	} {
		write(c.proof)
		files, _, err := keptBackups(dir)
		if err != nil || (files[0].Verified != nil) != c.want {
			t.Errorf("%+v: %+v, %v", c.proof, files, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "weir-1.backup"+proofSuffix), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if files, _, err := keptBackups(dir); err != nil || files[0].Verified != nil {
		t.Errorf("what does not read: %+v, %v", files, err)
	}
}

func TestOnlyTheOldestOfThoseThatWereMadeByItselfLeave(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept(t, dir, "scheduled-1.backup", "weir-1.backup", "scheduled-2.backup", "scheduled-3.backup")
	if err := os.WriteFile(filepath.Join(dir, "scheduled-1.backup"+proofSuffix), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := dropOldest(dir, 2); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	if err != nil || strings.Join(names, " ") != "scheduled-2.backup scheduled-3.backup weir-1.backup" {
		t.Errorf("%v, %v", names, err)
	}
}

func TestTheNextBackupIsDueAfterTheLastThatWasMadeByItself(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	files := []KeptBackup{{Name: "weir-2.backup", Modified: at.Add(time.Hour)}, {Name: "scheduled-1.backup", Scheduled: true, Modified: at}}
	for _, c := range []struct {
		files   []KeptBackup
		failure *BackupFailure
		want    time.Duration
	}{
		{files, nil, day},
		{files[:1], nil, -time.Hour}, // the start
		{files, &BackupFailure{What: taskMake, At: at.Add(day)}, day + time.Hour},
		{files, &BackupFailure{What: taskVerify, At: at.Add(day)}, day},
		{files, &BackupFailure{What: taskMake, At: at}, day},
	} {
		if got := nextBackup(c.files, c.failure, day, at.Add(-time.Hour)); !got.Equal(at.Add(c.want)) {
			t.Errorf("%+v: %s, want %s", c, got, at.Add(c.want))
		}
	}
}

func TestTheScheduleOfBackupsIsLookedAt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := config.Default()
	cfg.DataDir = dir
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	look := func(failure *BackupFailure, now time.Time, result health.Result, text string) {
		t.Helper()
		f, wrong := scheduleFinding(cfg, failure, now)
		if wrong != (result != "") || f.Result != result || !strings.Contains(f.Text, text) {
			t.Errorf("%+v, %v; want %s %s", f, wrong, result, text)
		}
	}
	look(nil, at, "", "")
	look(&BackupFailure{At: at, What: taskMake, Text: "no space"}, at, health.Failure, "no space")
	cfg.Backup.Every = 24 * time.Hour
	look(nil, at, "", "")
	backups := filepath.Join(dir, "backups")
	if err := os.Mkdir(backups, 0o700); err != nil {
		t.Fatal(err)
	}
	made := kept(t, backups, "scheduled-1.backup")
	look(nil, made.Add(time.Hour), health.Warning, "lie on the disk of the data")
	look(nil, made.Add(50*time.Hour), health.Warning, "backup.every is 24h")
}

func TestADownloadLinkIsUsedOnceWithinAMinute(t *testing.T) {
	t.Parallel()
	var d downloads
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	ticket := func(l BackupLink) string { return strings.TrimPrefix(l.Path, "download/") }
	first := d.add("a.backup", now)
	if len(ticket(first)) != 32 || !first.Expires.Equal(now.Add(time.Minute)) {
		t.Errorf("%+v", first)
	}
	if got := d.take(ticket(first), now.Add(time.Minute-1)); got != "a.backup" {
		t.Errorf("within its minute: %q", got)
	}
	if got := d.take(ticket(first), now); got != "" {
		t.Errorf("a second time: %q", got)
	}
	late := d.add("a.backup", now)
	if got := d.take(ticket(late), now.Add(time.Minute)); got != "" {
		t.Errorf("after its minute: %q", got)
	}
	if d.take("", now) != "" || d.take("x", now) != "" {
		t.Error("no ticket leads to a file")
	}
	oldest := d.add("0.backup", now)
	for i := range maxLinks {
		d.add(fmt.Sprint(i+1, ".backup"), now.Add(time.Duration(i+1)*time.Millisecond))
	}
	if n := d.open(now); n != maxLinks {
		t.Errorf("%d links", n)
	}
	if d.take(ticket(oldest), now) != "" {
		t.Error("the oldest stays although there are too many")
	}
}
