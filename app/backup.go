package app

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
	"time"

	"weir/backup"
	"weir/config"
	"weir/internal/rootkey"
	"weir/internal/smallfile"
	"weir/model"
	"weir/spool/bolt"
	"weir/store/sqlite"
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

// backup sends a copy of the instance. One at a time: two would only make one another slower.
func (in *Instance) backup() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q BackupQuery
		if !readCommand(w, r, maxCommandBytes, &q) {
			return
		}
		if !in.backups.running.TryLock() {
			in.failedCommand(w, r, &model.Error{Code: model.CodeConflict, Message: "a backup is being made already", Hint: "wait for it, or stop it"})
			return
		}
		defer in.backups.running.Unlock()
		in.backups.busy.Set(1)
		defer in.backups.busy.Set(0)
		src, err := in.backupSource(q)
		if err != nil {
			in.failedCommand(w, r, err)
			return
		}
		ctx, _, done := in.untilStop(w, r)
		defer done()
		w.Header().Set("Content-Type", "application/x-tar")
		w.Header().Set("Trailer", endTrailer)
		w.Header().Set(aboutHeader, strconv.FormatInt(in.store.Stats().Bytes+in.spool.Stats().DiskBytes, 10))
		w.WriteHeader(http.StatusOK)
		m, err := backup.Write(ctx, w, src, q.Rate)
		in.endBackup(ctx, w, m, err)
	})
}

// endBackup says behind the copy how it ended.
func (in *Instance) endBackup(ctx context.Context, w http.ResponseWriter, m *backup.Manifest, err error) {
	var end backupEnd
	switch {
	case err == nil:
		end.Made = made(m)
	case in.streaming.Err() != nil:
		end.Error = &wireError{Message: "the instance is stopping"}
	default:
		end.Error = new(wireErrorOf(err))
	}
	if err != nil {
		in.backups.metrics.WithLabelValues(backupFailed).Inc()
		if ctx.Err() == nil {
			in.log.Error("a backup failed", "error", err)
		}
	}
	text, _ := json.Marshal(end) // plain fields
	w.Header().Set(endTrailer, string(text))
}

func (in *Instance) backupSource(q BackupQuery) (backup.Source, error) {
	src := backup.Source{Instance: in.cfg.Instance.ID, Version: in.opt.Version, Store: in.store, Log: in.spool, Strained: in.strained(), Now: time.Now}
	if q.WithRootKey {
		k, err := rootkey.Look(rootkey.Options{File: in.rootKeyPath(), Env: in.opt.Getenv("WEIR_ROOT_KEY"), SealedUnder: in.vault.KeyID()})
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

func (in *Instance) strained() func() error {
	began := in.spool.Stats().Bytes
	return func() error {
		s := in.spool.Stats()
		if (s.Bytes-began)*100 < s.MaxBytes*strainGrowth || s.Bytes*100 < s.MaxBytes*strainFull {
			return nil
		}
		return &model.Error{Code: model.CodeUnavailable, Message: "the backup was given up: the log, which it holds, is filling up",
			Hint: "give it a higher --rate, make it at a quieter hour, or raise ingest.spool_max_bytes"}
	}
}

func (in *Instance) backupVerbs() map[string]http.Handler {
	return map[string]http.Handler{
		"backup": in.backup(),
		"backup-kept": verb(in, func(_ context.Context, last LastBackup) (struct{}, error) {
			in.backups.metrics.WithLabelValues(backupMade).Inc()
			in.backups.last.Store(&last)
			return struct{}{}, last.write(in.cfg.DataDir)
		}),
	}
}

// Backup writes a copy of the instance to w. about is told how many bytes to expect.
func (c *Client) Backup(ctx context.Context, q BackupQuery, w io.Writer, about func(int64)) (*BackupMade, error) {
	q.Version = ""
	resp, err := c.post(ctx, "backup", q)
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

// BackupKept tells the instance that a copy is where it was meant to be.
func (c *Client) BackupKept(ctx context.Context, last LastBackup) error {
	_, err := call[struct{}](ctx, c, "backup-kept", last)
	return err
}

// OfflineBackup writes a copy of a directory in which nothing runs.
func OfflineBackup(ctx context.Context, cfg config.Config, getenv func(string) string, q BackupQuery, w io.Writer, about func(int64)) (_ *BackupMade, err error) {
	lock, err := takeOwnDataDir(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	st, err := sqlite.Inspect(ctx, dbPath(cfg.DataDir))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	src := backup.Source{Instance: cfg.Instance.ID, Version: q.Version, Store: st, Now: time.Now}
	switch log, err := bolt.AtRest(spoolPath(cfg.DataDir)); {
	case err == nil:
		src.Log = log
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if q.WithRootKey {
		k, err := rootkey.Look(rootkey.Options{File: (&Instance{cfg: cfg}).rootKeyPath(), Env: getenv("WEIR_ROOT_KEY")})
		if err != nil {
			return nil, err
		}
		src.RootKey = &k.Key
	}
	about(sizeOf(dbPath(cfg.DataDir)) + sizeOf(spoolPath(cfg.DataDir)))
	m, err := backup.Write(ctx, w, src, q.Rate)
	if err != nil {
		return nil, err
	}
	return made(m), nil
}

// OfflineBackupKept notes where nothing runs that a copy is where it was meant to be.
func OfflineBackupKept(cfg config.Config, last LastBackup) error { return last.write(cfg.DataDir) }

// RestoreQuery says where the root key is that a copy does not hold.
type RestoreQuery struct {
	RootKeyFile string
}

// Restore brings an archive back into the data directory of cfg, which must be empty or not be there.
func Restore(ctx context.Context, cfg config.Config, getenv func(string) string, q RestoreQuery, r io.Reader) (_ *backup.Report, err error) {
	dir := cfg.DataDir
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
	if err := backup.Empty(dir); err != nil { // somebody may have been quicker
		return nil, notEmpty(dir, err)
	}
	return backup.Restore(ctx, r, dir, func(h backup.Header) (*rootkey.Key, error) {
		return keyOf(h, cfg, getenv("WEIR_ROOT_KEY"), q.RootKeyFile)
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
