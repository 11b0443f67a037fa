package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"weir/backup"
	"weir/config"
	"weir/health"
	"weir/internal/dirlock"
	"weir/model"
	"weir/store"
)

// TakeDataDir makes the data directory when it is not there, readable by its owner only, and takes its lock. One into which
// a copy was being restored is refused.
func TakeDataDir(dir string) (*dirlock.Lock, error) {
	lock, err := lockDataDir(dir)
	if err != nil {
		return nil, err
	}
	if err := backup.Unfinished(dir); err != nil {
		return nil, errors.Join(&model.Error{Message: fmt.Sprintf("%s: %v", dir, err), Err: err, Hint: "restore it again: weir backup restore FILE --data " + dir}, lock.Close())
	}
	return lock, nil
}

// lockDataDir is TakeDataDir for a restore.
func lockDataDir(dir string) (*dirlock.Lock, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, unusable(fmt.Errorf("the data directory cannot be made: %w", err))
	}
	if fs, err := health.ThisMachine().FileSystem(dir); err == nil {
		if err := refuseRemote(dir, fs.Kind); err != nil {
			return nil, err
		}
	}
	lock, err := dirlock.Acquire(dir)
	return lock, unusable(err)
}

// refuseRemote refuses a directory on a file system whose locks and syncs do not hold: two instances would write the same
// files, and what is acknowledged would not be there after a power cut.
func refuseRemote(dir, kind string) error {
	if !health.Unreliable(kind) {
		return nil
	}
	return &model.Error{Message: fmt.Sprintf("the data directory %s is on %s: locks and syncs of this network file system do not hold", dir, kind),
		Hint: "name a directory on a local disk with data_dir or --data; a block device over the network (iSCSI, a cloud volume) is a local disk"}
}

// Unreadable adds what to do about a database that cannot be read.
func Unreadable(dir string, err error) error {
	if !errors.Is(err, store.ErrDamaged) {
		return err
	}
	return &model.Error{Message: err.Error(), Err: err, Hint: StoreHint(dir)}
}

// StoreHint is what to do about a damaged database.
func StoreHint(dir string) string {
	return "stop weir, move the directory away and keep it, and bring back the last backup: weir backup restore FILE --data " + dir +
		"; then look at the disk (dmesg, smartctl): it has changed what was written"
}

// takeOwnDataDir is TakeDataDir for commands.
func takeOwnDataDir(dir string) (*dirlock.Lock, error) {
	if err := refuseRoot(dir); err != nil {
		return nil, err
	}
	return TakeDataDir(dir)
}

// refuseRoot refuses root on the directory of another user: the files that root would make there, of the store for one, keep
// the owner out, whom the instance runs as; and what the owner may have laid there would be followed with the rights of root.
func refuseRoot(dir string) error {
	fi, err := os.Stat(dir)
	if err != nil || os.Geteuid() != 0 {
		return nil // taking it says what is wrong
	}
	s, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || s.Uid == 0 {
		return nil
	}
	name, as := fmt.Sprintf("user %d", s.Uid), fmt.Sprintf("setpriv --reuid %d --regid %d --clear-groups weir …", s.Uid, s.Gid)
	if u, err := user.LookupId(strconv.Itoa(int(s.Uid))); err == nil {
		name, as = u.Username, fmt.Sprintf("runuser -u %s -- weir …", u.Username)
	}
	return &model.Error{Code: model.CodeForbidden, Message: fmt.Sprintf("the data directory %s belongs to %s, and no instance runs on it: what root makes there would keep %[2]s out", dir, name),
		Hint: "run the command as its owner: " + as}
}

// unusable adds what to do about a directory that cannot be made or written.
func unusable(err error) error {
	hint := ""
	switch {
	case errors.Is(err, syscall.EROFS):
		hint = "the file system is mounted read-only: mount it for writing, or name another directory with --data; after a disk error dmesg shows why"
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EEXIST):
		hint = "a file stands in its place: name another directory with --data or data_dir"
	case errors.Is(err, os.ErrPermission):
		hint = fmt.Sprintf("weir runs as user %d: give the directory and everything in it to that user (chown -R), or name another one with --data", os.Geteuid())
	default:
		return err
	}
	return &model.Error{Message: err.Error(), Hint: hint, Err: err}
}

// SocketPath is where the instance of a data directory listens for its operator.
func SocketPath(dir string) string { return filepath.Join(dir, "weir.sock") }

// DBPath is the database of a data directory, SpoolPath the folder of its log, CleanPath the marker of a clean stop.
func DBPath(dir string) string    { return filepath.Join(dir, "weir.db") }
func SpoolPath(dir string) string { return filepath.Join(dir, "spool") }
func CleanPath(dir string) string { return filepath.Join(dir, "clean") }

// RootKeyPath is where the root key lies unless a variable holds it.
func RootKeyPath(cfg config.Config) string {
	if f := cfg.Secrets.RootKeyFile; f != "" {
		return f
	}
	return filepath.Join(cfg.DataDir, "root.key")
}

// Directory is a data directory in which nothing runs. Verbs that can be answered there take its lock.
type Directory struct {
	Config config.Config
	Getenv func(string) string
	Log    *slog.Logger
	Wiring Wiring

	entities *Entities // nil until Open
	closers  []io.Closer
}

// Open takes the lock and opens the database for the verbs about entities, until Close. The error is a NotRunningError for a
// directory that holds no instance: only Make and a start make one.
func (d *Directory) Open(ctx context.Context) error {
	_, err := d.open(ctx)
	return err
}

// Make makes an instance without tenants and accounts in a directory that holds none, and leaves it open.
func (d *Directory) Make(ctx context.Context) error {
	if Exists(d.Config) {
		return &model.Error{Code: model.CodeConflict, Message: d.Config.DataDir + " holds an instance already", Hint: "start it with weir run, or name another directory with --data"}
	}
	_, err := d.take(ctx)
	return err
}

func (d *Directory) open(ctx context.Context) (*Entities, error) {
	switch {
	case d.entities != nil:
		return d.entities, nil
	case !Exists(d.Config):
		return nil, notRunning(d.Config.DataDir)
	}
	return d.take(ctx)
}

func (d *Directory) take(ctx context.Context) (*Entities, error) {
	lock, err := takeOwnDataDir(d.Config.DataDir)
	if err != nil {
		return nil, err
	}
	e, st, err := d.Wiring.OpenEntities(ctx, d.Config, d.Getenv, d.Log)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	d.entities, d.closers = e, []io.Closer{st, lock}
	return e, nil
}

// Close closes what Open has opened.
func (d *Directory) Close() (err error) {
	for _, c := range d.closers {
		err = errors.Join(err, c.Close())
	}
	d.entities, d.closers = nil, nil
	return err
}
