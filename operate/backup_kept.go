package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"weir/backup"
	"weir/config"
	"weir/health"
	"weir/internal/smallfile"
	"weir/model"
)

// Names in the backup directory: what the instance has made by itself, what somebody asked for, and what a verification has found.
const (
	backupSuffix    = ".backup"
	scheduledPrefix = "scheduled-"
	askedPrefix     = "weir-"
	proofSuffix     = ".verified.json"
	scratchPrefix   = "weir-verify-" // of backup.Verify
	backupTime      = "20060102T150405Z"
)

// backupName is a file that is listed as a backup: nothing else in the directory is shown, sent or deleted.
var backupName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,150}\.backup(\.gz)?$`)

// Bounds of the backup directory.
const (
	shownBackups    = 1000
	maxProof        = 64 << 10
	backupRetry     = time.Hour // after an attempt that failed
	backupLook      = time.Minute
	shownBackupFind = 20 // findings of a verification that are kept
)

// tarType is the type of an archive.
const tarType = "application/x-tar"

// KeptBackup is a file in the backup directory.
type KeptBackup struct {
	Name      string    `json:"name"`
	Bytes     int64     `json:"bytes"`
	Modified  time.Time `json:"modifiedTime"`
	Scheduled bool      `json:"scheduled"` // the instance has made it by itself, and removes it again
	// Verified is what the last verification has found, nil without one.
	Verified *BackupProof `json:"verified,omitempty"`
}

// BackupProof is what a verification of a backup has found.
type BackupProof struct {
	At         time.Time `json:"at"`
	Bytes      int64     `json:"bytes"` // of the file then
	Restorable bool      `json:"restorable"`
	Findings   []string  `json:"findings,omitempty"`
	Instance   string    `json:"instance,omitempty"`
	Version    string    `json:"version,omitempty"`
	Created    time.Time `json:"createdAt"`
	RootKey    string    `json:"rootKey,omitempty"`
	HasRootKey bool      `json:"hasRootKey,omitempty"`
	Tenants    int64     `json:"tenants"`
	Devices    int64     `json:"devices"`
	Messages   int64     `json:"messages"`
}

// BackupFailure is an attempt that failed.
type BackupFailure struct {
	At   time.Time `json:"at"`
	What string    `json:"what"` // make or verify
	Name string    `json:"name"`
	Text string    `json:"text"`
}

// BackupProgress is a backup that is being made or verified.
type BackupProgress struct {
	What    string    `json:"what"` // make or verify
	Name    string    `json:"name"`
	Started time.Time `json:"startedTime"`
	Done    int64     `json:"doneBytes"`
	Bytes   int64     `json:"bytes"` // about how many there will be
}

// Backups is the backup directory and what is done there.
type Backups struct {
	Directory string          `json:"directory"`
	Every     time.Duration   `json:"-"`
	Keep      int             `json:"keep"`
	Next      *time.Time      `json:"nextTime,omitempty"` // of a backup that the instance makes by itself
	Running   *BackupProgress `json:"running,omitempty"`
	Failure   *BackupFailure  `json:"failure,omitempty"` // of the last attempt since the start
	Files     []KeptBackup    `json:"files"`             // newest first
	Unlisted  int             `json:"unlisted,omitempty"`
}

// backupTask is a backup that is being made or verified.
type backupTask struct {
	what, name string
	started    time.Time
	bytes      int64
	done       atomic.Int64
}

func (t *backupTask) progress() *BackupProgress {
	return &BackupProgress{What: t.what, Name: t.name, Started: t.started, Done: t.done.Load(), Bytes: t.bytes}
}

// BackupDirectory is where an instance keeps the backups that it makes.
func BackupDirectory(cfg config.Config) string {
	if d := cfg.Backup.Directory; d != "" {
		return d
	}
	return filepath.Join(cfg.DataDir, "backups")
}

// keptBackups lists the backup directory, newest first. One that is not there is empty.
func keptBackups(dir string) (files []KeptBackup, unlisted int, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return []KeptBackup{}, 0, nil
	}
	files = []KeptBackup{}
	for _, e := range entries {
		if !e.Type().IsRegular() || !backupName.MatchString(e.Name()) {
			continue
		}
		info, err := e.Info()
		if err != nil { // it was deleted meanwhile
			continue
		}
		files = append(files, KeptBackup{Name: e.Name(), Bytes: info.Size(), Modified: info.ModTime().UTC(), Scheduled: strings.HasPrefix(e.Name(), scheduledPrefix)})
	}
	slices.SortFunc(files, func(a, b KeptBackup) int {
		if c := b.Modified.Compare(a.Modified); c != 0 {
			return c
		}
		return strings.Compare(b.Name, a.Name)
	})
	if unlisted = len(files) - shownBackups; unlisted > 0 {
		files = files[:shownBackups]
	}
	for i := range files {
		files[i].Verified = readProof(dir, &files[i])
	}
	return files, max(unlisted, 0), err
}

// readProof returns what a verification has found of the very file that lies there, nil for nothing.
func readProof(dir string, f *KeptBackup) *BackupProof {
	b, err := smallfile.Read(filepath.Join(dir, f.Name+proofSuffix), maxProof)
	p := &BackupProof{}
	if err != nil || json.Unmarshal(b, p) != nil || p.Bytes != f.Bytes || p.At.Before(f.Modified) {
		return nil
	}
	return p
}

func backupsIn(cfg config.Config) (*Backups, error) {
	b := &Backups{Directory: BackupDirectory(cfg), Every: cfg.Backup.Every, Keep: cfg.Backup.Keep}
	if abs, err := filepath.Abs(b.Directory); err == nil {
		b.Directory = abs
	}
	var err error
	if b.Files, b.Unlisted, err = keptBackups(b.Directory); err != nil {
		return nil, model.Errorf(model.CodeUnavailable, "unavailable: the backup directory cannot be read: %v", err)
	}
	return b, nil
}

// Backups lists the backup directory and what is done there.
func (o *Operator) Backups() (*Backups, error) {
	cfg := *o.deps.Effective()
	b, err := backupsIn(cfg)
	if err != nil {
		return nil, err
	}
	if t := o.backups.now.Load(); t != nil {
		b.Running = t.progress()
	}
	b.Failure = o.backups.failure.Load()
	if cfg.Backup.Every > 0 {
		b.Next = new(nextBackup(b.Files, b.Failure, cfg.Backup.Every, o.deps.Started))
	}
	return b, nil
}

func (o *Operator) listBackups(context.Context, None) (*Backups, error) { return o.Backups() }

func (d *Directory) listBackups(context.Context, None) (*Backups, error) { return backupsIn(d.Config) }

// nextBackup is when the instance makes the next backup by itself.
func nextBackup(files []KeptBackup, failure *BackupFailure, every time.Duration, started time.Time) time.Time {
	next := started
	if i := slices.IndexFunc(files, func(f KeptBackup) bool { return f.Scheduled }); i >= 0 {
		next = files[i].Modified.Add(every)
	}
	if failure != nil && failure.What == taskMake && failure.At.Add(min(backupRetry, every)).After(next) {
		next = failure.At.Add(min(backupRetry, every))
	}
	return next.UTC()
}

// What is done in the backup directory.
const (
	taskMake   = "make"
	taskVerify = "verify"
)

// RunBackups makes backups as backup.every says, until ctx ends.
func (o *Operator) RunBackups(ctx context.Context) error {
	t := time.NewTicker(backupLook)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			o.BackupIfDue(time.Now())
		}
	}
}

// BackupIfDue begins a backup where one is due at a time. What fails is kept for the finding.
func (o *Operator) BackupIfDue(now time.Time) {
	b, err := o.Backups()
	switch {
	case err != nil:
		if o.deps.Effective().Backup.Every > 0 {
			o.backupFailed(taskMake, "", err)
		}
	case b.Every > 0 && b.Running == nil && !now.Before(*b.Next):
		if err := o.CreateBackup(true); err != nil && model.CodeOf(err) != model.CodeConflict {
			o.backupFailed(taskMake, "", err)
		}
	}
}

func (o *Operator) backupFailed(what, name string, err error) {
	o.backups.failure.Store(&BackupFailure{At: time.Now().UTC(), What: what, Name: name, Text: err.Error()})
	if what == taskMake {
		o.backups.metrics.WithLabelValues(backupFailed).Inc()
	}
	o.deps.Log.Error("a backup failed", "step", what, "file", name, "error", err)
}

// CreateBackup begins a backup in the backup directory and returns. The error is CodeConflict while another one is made or verified, and
// CodeUnavailable where the directory does not take it.
func (o *Operator) CreateBackup(scheduled bool) error {
	dir := BackupDirectory(*o.deps.Effective())
	prefix := askedPrefix
	if scheduled {
		prefix = scheduledPrefix
	}
	name := prefix + time.Now().UTC().Format(backupTime) + backupSuffix
	bytes := o.deps.Store.Stats().Bytes + o.deps.Spool.Stats().DiskBytes
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return model.Errorf(model.CodeUnavailable, "unavailable: the backup directory cannot be made: %v", err)
	}
	if err := hasSpace(dir, bytes); err != nil {
		return err
	}
	return o.inBackups(&backupTask{what: taskMake, name: name, bytes: bytes}, func(ctx context.Context, t *backupTask) error {
		return o.makeKept(ctx, dir, t)
	})
}

// makeKept makes a backup in the directory, notes it and removes those that it replaces.
func (o *Operator) makeKept(ctx context.Context, dir string, t *backupTask) error {
	src, err := o.backupSource(BackupQuery{})
	if err != nil {
		return err
	}
	d, err := backup.NewDraft(filepath.Join(dir, t.name))
	if err != nil {
		return err
	}
	made, err := backup.Write(ctx, passing{d, &t.done}, src, 0)
	if err != nil {
		return errors.Join(err, d.Drop())
	}
	if err := d.Keep(); err != nil {
		return err
	}
	if _, err := o.noteBackup(ctx, LastBackup{At: made.Created, Bytes: t.done.Load(), Seconds: time.Since(t.started).Seconds()}); err != nil {
		return err
	}
	o.deps.Log.Info("a backup was made", "file", filepath.Join(dir, t.name), "bytes", t.done.Load())
	if !strings.HasPrefix(t.name, scheduledPrefix) {
		return nil
	}
	return dropOldest(dir, o.deps.Effective().Backup.Keep)
}

// dropOldest removes what the instance has made by itself but the newest.
func dropOldest(dir string, keep int) error {
	files, _, err := keptBackups(dir)
	files = slices.DeleteFunc(files, func(f KeptBackup) bool { return !f.Scheduled })
	for _, f := range files[min(keep, len(files)):] {
		err = errors.Join(err, removeBackup(dir, f.Name))
	}
	return err
}

// VerifyBackup begins a verification of a file of the backup directory and returns: what it finds is in Backups.
func (o *Operator) VerifyBackup(name string) error {
	dir := BackupDirectory(*o.deps.Effective())
	info, err := statBackup(dir, name)
	if err != nil {
		return err
	}
	unpacked := info.Size()
	if strings.HasSuffix(name, ".gz") {
		unpacked *= 4
	}
	if err := hasSpace(dir, unpacked); err != nil {
		return err
	}
	return o.inBackups(&backupTask{what: taskVerify, name: name, bytes: info.Size()}, func(ctx context.Context, t *backupTask) error {
		return o.verifyKept(ctx, dir, t)
	})
}

func (o *Operator) verifyKept(ctx context.Context, dir string, t *backupTask) error {
	left, err := filepath.Glob(filepath.Join(dir, scratchPrefix+"*"))
	for _, old := range left { // of a process that was killed
		err = errors.Join(err, os.RemoveAll(old))
	}
	if err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(dir, t.name))
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := backup.Verify(ctx, o.deps.Wiring, passing{f, &t.done}, dir)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	text, err := json.Marshal(proofOf(r, info.Size(), time.Now().UTC()))
	if err != nil {
		return err
	}
	path := filepath.Join(dir, t.name+proofSuffix)
	if err := os.WriteFile(path+".part", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

func proofOf(r *backup.Report, bytes int64, at time.Time) BackupProof {
	p := BackupProof{At: at, Bytes: bytes, Restorable: len(r.Findings) == 0}
	for _, f := range r.Findings[:min(len(r.Findings), shownBackupFind)] {
		p.Findings = append(p.Findings, fmt.Sprintf("%.1000s", f))
	}
	if m := r.Manifest; m != nil {
		p.Instance, p.Version, p.Created, p.RootKey, p.HasRootKey = m.Instance, m.Version, m.Created, m.RootKey.ID, m.RootKey.Included
	}
	if c := r.Counts; c != nil {
		p.Tenants, p.Devices, p.Messages = c.Tenants, c.Devices, c.Messages
	}
	return p
}

// DeleteBackup deletes a file of the backup directory.
func (o *Operator) DeleteBackup(name string) error {
	if !o.backups.running.TryLock() {
		return errBackupBusy()
	}
	defer o.backups.running.Unlock()
	dir := BackupDirectory(*o.deps.Effective())
	if _, err := statBackup(dir, name); err != nil {
		return err
	}
	return removeBackup(dir, name)
}

func removeBackup(dir, name string) error {
	err := os.Remove(filepath.Join(dir, name+proofSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(os.Remove(filepath.Join(dir, name)), err)
}

// statBackup looks at a file of the backup directory. The error is CodeNotFound for one that is not there, or is no backup by its name.
func statBackup(dir, name string) (os.FileInfo, error) {
	if !backupName.MatchString(name) {
		return nil, model.NotFound("backup", name)
	}
	info, err := os.Lstat(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil, model.NotFound("backup", name)
	}
	return info, err
}

// inBackups does something in the backup directory in the background, one at a time.
func (o *Operator) inBackups(t *backupTask, do func(context.Context, *backupTask) error) error {
	if !o.backups.running.TryLock() {
		return errBackupBusy()
	}
	t.started = time.Now().UTC()
	o.backups.now.Store(t)
	o.backups.busy.Set(1)
	o.deps.Aside(func(life context.Context) {
		defer o.backups.running.Unlock()
		defer o.backups.busy.Set(0)
		defer o.backups.now.Store(nil)
		switch err := do(life, t); {
		case err == nil:
			o.backups.failure.Store(nil)
		case life.Err() == nil:
			o.backupFailed(t.what, t.name, err)
		}
	})
	return nil
}

// hasSpace refuses a copy that would leave the disk without what the instance itself needs.
func hasSpace(dir string, bytes int64) error {
	fs, err := health.ThisMachine().FileSystem(dir)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return model.Errorf(model.CodeUnavailable, "unavailable: the space of the backup directory is not known: %v", err)
	}
	spare := min(uint64(spareSpace), fs.Bytes/10)
	if fs.FreeBytes < uint64(bytes)+spare {
		return &model.Error{Code: model.CodeUnavailable, Message: fmt.Sprintf("unavailable: the backup directory has %s free, and about %s are needed with %s to spare",
			health.Bytes(int64(fs.FreeBytes)), health.Bytes(bytes), health.Bytes(int64(spare))), Hint: "delete backups that are not needed, or set backup.directory to a larger disk"}
	}
	return nil
}

// spareSpace is what a backup leaves of a disk.
const spareSpace = 128 << 20

// passing is a file that counts the bytes that pass.
type passing struct {
	f    io.ReadWriter
	done *atomic.Int64
}

func (c passing) Write(b []byte) (int, error) {
	n, err := c.f.Write(b)
	c.done.Add(int64(n))
	return n, err
}

func (c passing) Read(b []byte) (int, error) {
	n, err := c.f.Read(b)
	c.done.Add(int64(n))
	return n, err
}

// scheduleFinding is what is wrong with the backups that the instance makes by itself.
func scheduleFinding(cfg config.Config, failure *BackupFailure, now time.Time) (health.Finding, bool) {
	every := cfg.Backup.Every
	if failure != nil {
		return health.Fail("weir backup list; look at the space and the owner of backup.directory", "the last attempt to %s one failed at %s: %s", failure.What,
			failure.At.Format(time.RFC3339), failure.Text), true
	}
	if every <= 0 {
		return health.Finding{}, false
	}
	dir := BackupDirectory(cfg)
	files, _, err := keptBackups(dir)
	if err != nil {
		return health.Fail("make it, and give it to the user that weir runs as", "the backup directory cannot be read: %v", err), true
	}
	if i := slices.IndexFunc(files, func(f KeptBackup) bool { return f.Scheduled }); i >= 0 && now.Sub(files[i].Modified) > 2*every+backupRetry {
		return health.Warn("look at the log of weir for why", "the last one that was made by itself is of %s, and backup.every is %s", files[i].Modified.Format(time.RFC3339), every), true
	}
	if i := slices.IndexFunc(files, func(f KeptBackup) bool { return f.Verified != nil && !f.Verified.Restorable }); i >= 0 {
		return health.Fail("weir backup create FILE makes another one; delete this one", "%s cannot be restored: %s", files[i].Name, strings.Join(files[i].Verified.Findings, "; ")), true
	}
	if len(files) > 0 && sameDisk(dir, cfg.DataDir) {
		return health.Warn("set backup.directory to another disk, or copy the files to another machine", "those that are made every %s lie on the disk of the data: one that fails takes both",
			every), true
	}
	return health.Finding{}, false
}

// sameDisk reports whether two paths are on one file system.
func sameDisk(a, b string) bool {
	device := func(path string) (any, bool) {
		info, err := os.Stat(path)
		if err != nil {
			return nil, false
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil, false
		}
		return st.Dev, true
	}
	x, first := device(a)
	y, second := device(b)
	return first && second && x == y
}
