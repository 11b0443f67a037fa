package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/backup"
	"weir/config"
	"weir/health"
	"weir/internal/rootkey"
	"weir/internal/smallfile"
	"weir/model"
)

// BackupQuery says how a copy is made.
type BackupQuery struct {
	WithRootKey bool   `json:"withRootKey,omitempty"`
	Rate        int64  `json:"rate,omitempty"`    // bytes a second, 0: as fast as it goes
	Version     string `json:"version,omitempty"` // of the binary that asks; only where no instance runs
}

// BackupMade is what a copy holds.
type BackupMade struct {
	backup.Header
	StoreOffset model.Offset `json:"storeOffset"`
	Log         backup.Log   `json:"log"`
	Files       int          `json:"files"`
	Bytes       int64        `json:"bytes"` // of the files, before they are compressed
}

func made(m *backup.Manifest) *BackupMade {
	return &BackupMade{Header: m.Header, StoreOffset: m.StoreOffset, Log: m.Log, Files: len(m.Files), Bytes: m.Bytes()}
}

// backupEnd follows a copy on its way over the socket: without it the copy is not whole.
type backupEnd struct {
	Made  *BackupMade `json:"made,omitempty"`
	Error *wireError  `json:"error,omitempty"`
}

// Headers of an answer that is a copy: about how many bytes it will have, and how it ended.
const (
	aboutHeader = "Weir-About"
	endTrailer  = "Weir-End"
)

// BackupVerb sends a copy of the instance. One at a time: two would only make each other slower.
type BackupVerb struct{ Name string }

func (v *BackupVerb) path() string { return v.Name }

func (v *BackupVerb) handler(s *Server) http.Handler {
	o := s.o
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q BackupQuery
		if !readCommand(w, r, maxCommandBytes, &q) {
			return
		}
		if !o.backups.running.TryLock() {
			s.failed(w, r, errBackupBusy())
			return
		}
		defer o.backups.running.Unlock()
		o.backups.busy.Set(1)
		defer o.backups.busy.Set(0)
		src, err := o.backupSource(q)
		if err != nil {
			s.failed(w, r, err)
			return
		}
		ctx, _, done := s.untilStop(w, r)
		defer done()
		w.Header().Set("Content-Type", tarType)
		w.Header().Set("Trailer", endTrailer)
		w.Header().Set(aboutHeader, strconv.FormatInt(o.deps.Store.Stats().Bytes+o.deps.Spool.Stats().DiskBytes, 10))
		w.WriteHeader(http.StatusOK)
		m, err := backup.Write(ctx, w, src, q.Rate)
		s.endBackup(ctx, w, m, err)
	})
}

// Ask writes a copy to w. about is given the number of bytes to expect.
func (v *BackupVerb) Ask(ctx context.Context, to Target, q BackupQuery, w io.Writer, about func(int64)) (*BackupMade, error) {
	c, running := to.(*Client)
	if !running {
		return to.(*Directory).backup(ctx, q, w, about)
	}
	q.Version = ""
	resp, err := c.post(ctx, v.Name, q)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if n, err := strconv.ParseInt(resp.Header.Get(aboutHeader), 10, 64); err == nil {
		about(n)
	}
	_, copied := io.Copy(w, resp.Body)
	var end backupEnd
	if text := resp.Trailer.Get(endTrailer); text != "" {
		if err := json.Unmarshal([]byte(text), &end); err != nil {
			return nil, err
		}
	}
	switch {
	case end.Error != nil:
		return nil, end.Error.err()
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case copied != nil && !errors.Is(copied, io.ErrUnexpectedEOF):
		return nil, copied
	case copied != nil || end.Made == nil:
		return nil, errors.New("the instance broke off: it was stopped or killed")
	}
	return end.Made, nil
}

// noteBackup keeps that a copy is where it was meant to be.
func (o *Operator) noteBackup(_ context.Context, last LastBackup) (None, error) {
	o.backups.metrics.WithLabelValues(backupMade).Inc()
	o.backups.last.Store(&last)
	return None{}, last.write(o.deps.Config.DataDir)
}

func (d *Directory) noteBackup(_ context.Context, last LastBackup) (None, error) {
	return None{}, last.write(d.Config.DataDir)
}

// endBackup writes after the copy how it ended.
func (s *Server) endBackup(ctx context.Context, w http.ResponseWriter, m *backup.Manifest, err error) {
	var end backupEnd
	switch {
	case err == nil:
		end.Made = made(m)
	case s.streaming.Err() != nil:
		end.Error = &wireError{Message: "the instance is stopping"}
	default:
		end.Error = new(wireErrorOf(err))
	}
	if err != nil {
		s.o.backups.metrics.WithLabelValues(backupFailed).Inc()
		if ctx.Err() == nil {
			s.o.deps.Log.Error("a backup failed", "error", err)
		}
	}
	text, _ := json.Marshal(end) // plain fields
	w.Header().Set(endTrailer, string(text))
}

func (o *Operator) backupSource(q BackupQuery) (backup.Source, error) {
	src := backup.Source{Instance: o.deps.Config.Instance.ID, Version: o.deps.Version, Store: o.deps.Store, Log: o.deps.Spool, Strained: o.strained(), Now: time.Now}
	if q.WithRootKey {
		k, err := rootkey.Look(rootkey.Options{File: RootKeyPath(o.deps.Config), Env: o.deps.Getenv("WEIR_ROOT_KEY"), SealedUnder: o.deps.Vault.KeyID()})
		if err != nil {
			return src, err
		}
		src.RootKey = &k.Key
	}
	return src, nil
}

// A copy holds the log from being trimmed. When the log has grown by so many percent of its budget meanwhile and is so full,
// devices would soon be refused for the sake of the copy, which is given up instead.
const (
	strainGrowth = 10
	strainFull   = 85
)

func (o *Operator) strained() func() error {
	began := o.deps.Spool.Stats().Bytes
	return func() error {
		s := o.deps.Spool.Stats()
		if (s.Bytes-began)*100 < s.MaxBytes*strainGrowth || s.Bytes*100 < s.MaxBytes*strainFull {
			return nil
		}
		return &model.Error{Code: model.CodeUnavailable, Message: "the backup was given up: the log, which it holds, is filling up",
			Hint: "give it a higher --rate, make it at a quieter hour, or raise ingest.spool_max_bytes"}
	}
}

// backup writes a copy of a directory in which nothing runs.
func (d *Directory) backup(ctx context.Context, q BackupQuery, w io.Writer, about func(int64)) (_ *BackupMade, err error) {
	cfg := d.Config
	if !Exists(cfg) {
		return nil, notRunning(cfg.DataDir)
	}
	lock, err := takeOwnDataDir(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	st, err := d.Wiring.InspectStore(ctx, DBPath(cfg.DataDir))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	src := backup.Source{Instance: cfg.Instance.ID, Version: q.Version, Store: st, Now: time.Now}
	switch log, err := d.Wiring.LogAtRest(SpoolPath(cfg.DataDir)); {
	case err == nil:
		src.Log = log
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if q.WithRootKey {
		k, err := rootkey.Look(rootkey.Options{File: RootKeyPath(cfg), Env: d.Getenv("WEIR_ROOT_KEY")})
		if err != nil {
			return nil, err
		}
		src.RootKey = &k.Key
	}
	about(sizeOf(DBPath(cfg.DataDir)) + sizeOf(SpoolPath(cfg.DataDir)))
	m, err := backup.Write(ctx, w, src, q.Rate)
	if err != nil {
		return nil, err
	}
	return made(m), nil
}

// RestoreQuery says where the root key is that a copy does not hold.
type RestoreQuery struct {
	RootKeyFile string
}

// Restore brings an archive back into the directory, which must be empty or not be there.
func (d *Directory) Restore(ctx context.Context, q RestoreQuery, r io.Reader) (_ *backup.Report, err error) {
	cfg, dir := d.Config, d.Config.DataDir
	if err := refuseRoot(dir); err != nil {
		return nil, err
	}
	if err := backup.Empty(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, notEmpty(dir, err)
	}
	lock, err := lockDataDir(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := backup.Empty(dir); err != nil { // another process may have been quicker
		return nil, notEmpty(dir, err)
	}
	return backup.Restore(ctx, d.Wiring, r, dir, func(h backup.Header) (*rootkey.Key, error) {
		return keyOf(h, cfg, d.Getenv("WEIR_ROOT_KEY"), q.RootKeyFile)
	})
}

func notEmpty(dir string, err error) error {
	if !errors.Is(err, backup.ErrNotEmpty) {
		return unusable(err)
	}
	return &model.Error{Code: model.CodeConflict, Message: dir + ": " + err.Error(), Err: err,
		Hint: "a backup is restored into a directory that is empty or not there: name another one with --data, or move this one away"}
}

// keyOf finds the root key that a copy needs and does not hold. It is put into the directory only when it was given as a
// file for this once: where a variable or secrets.root_key_file says where it is, the start finds it there, too.
func keyOf(h backup.Header, cfg config.Config, env, file string) (*rootkey.Key, error) {
	o := rootkey.Options{File: file, Env: env, SealedUnder: h.RootKey.ID}
	switch {
	case file != "":
		o.Env = ""
	case env == "":
		o.File = cfg.Secrets.RootKeyFile
	}
	if o.Env == "" && o.File == "" {
		return nil, &model.Error{Message: fmt.Sprintf("the root key %s is not in the backup", h.RootKey.ID), Err: &rootkey.MissingError{ID: h.RootKey.ID, From: "the backup"},
			Hint: "what is sealed cannot be read without it: give its file with --root-key-file, or the key in WEIR_ROOT_KEY"}
	}
	k, err := rootkey.Load(o) // makes none: the copy has things sealed
	if err != nil || file == "" {
		return nil, err
	}
	return &k.Key, nil
}

// VerifyBackup reads an archive to its end and opens the copies in a folder of its own under scratch.
func (d *Directory) VerifyBackup(ctx context.Context, r io.Reader, scratch string) (*backup.Report, error) {
	return backup.Verify(ctx, d.Wiring, r, scratch)
}

// LastBackup is the last copy that was kept.
type LastBackup struct {
	At      time.Time `json:"at"`
	Bytes   int64     `json:"bytes"` // as it was kept
	Seconds float64   `json:"seconds"`
}

// lastBackupPath is where it is noted. It is no part of a copy: a restored directory was never backed up.
func lastBackupPath(dir string) string { return filepath.Join(dir, "last-backup.json") }

// maxNote bounds what is read of it.
const maxNote = 4 << 10

func (l LastBackup) write(dir string) error {
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	part := lastBackupPath(dir) + ".part"
	if err := os.WriteFile(part, b, 0o600); err != nil {
		return err
	}
	return os.Rename(part, lastBackupPath(dir))
}

// readLastBackup returns nil when there was none, or its note does not read.
func readLastBackup(dir string) *LastBackup {
	b, err := smallfile.Read(lastBackupPath(dir), maxNote)
	l := &LastBackup{}
	if err != nil || json.Unmarshal(b, l) != nil {
		return nil
	}
	return l
}

// Outcomes of a backup.
const (
	backupMade   = "made"
	backupFailed = "failed"
)

// backups is what an instance knows of its copies.
type backups struct {
	running sync.Mutex                    // one is made, verified or deleted at a time
	last    atomic.Pointer[LastBackup]    // nil: none
	now     atomic.Pointer[backupTask]    // what is done in the backup directory, nil for nothing
	failure atomic.Pointer[BackupFailure] // of the last attempt in the backup directory; nil: it did not fail
	links   downloads
	metrics *prometheus.CounterVec
	busy    prometheus.Gauge
}

func errBackupBusy() error {
	return &model.Error{Code: model.CodeConflict, Message: "a backup is being made or verified already", Hint: "wait for it, or stop it"}
}

func (b *backups) init(reg prometheus.Registerer) {
	b.metrics = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_backups_total", Help: "Backups since the start by outcome."}, []string{"outcome"})
	b.metrics.WithLabelValues(backupMade)
	b.metrics.WithLabelValues(backupFailed)
	b.busy = prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_backup_running", Help: "1 while a backup is being made."})
	reg.MustRegister(b.metrics, b.busy,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_backup_links", Help: "Download links of backups that were made and not used yet."},
			func() float64 { return float64(b.links.open(time.Now())) }),
		b.gauge("weir_backup_last_timestamp_seconds", "Time of the last backup, 0 for never.", func(l *LastBackup) float64 { return float64(l.At.Unix()) }),
		b.gauge("weir_backup_last_size_bytes", "Size of the last backup file.", func(l *LastBackup) float64 { return float64(l.Bytes) }),
		b.gauge("weir_backup_last_duration_seconds", "Duration of the last backup.", func(l *LastBackup) float64 { return l.Seconds }))
}

func (b *backups) gauge(name, help string, of func(*LastBackup) float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		if l := b.last.Load(); l != nil {
			return of(l)
		}
		return 0
	})
}

// backupAge is from when on a backup is worth a word.
const backupAge = 31 * 24 * time.Hour

func backupCheck(cfg config.Config, failure *BackupFailure, now func() time.Time) health.Check {
	return health.Check{ID: "backup", Look: func(context.Context) health.Finding {
		if f, wrong := scheduleFinding(cfg, failure, now()); wrong {
			return f
		}
		return backupFinding(cfg.DataDir, now())
	}}
}

func backupFinding(dir string, now time.Time) health.Finding {
	const hint = "weir backup create FILE, and keep the file on another machine"
	if err := backup.Unfinished(dir); err != nil {
		return health.Fail("restore it again: weir backup restore FILE --data "+dir, "%v", err)
	}
	l := readLastBackup(dir)
	if l == nil {
		return health.Warn(hint, "there is none yet")
	}
	text := "the last one was made at " + l.At.UTC().Format(time.RFC3339) + ", " + health.Bytes(l.Bytes)
	if now.Sub(l.At) > backupAge {
		return health.Warn(hint, "%s: more than a month ago", text)
	}
	return health.Good("%s", text)
}
