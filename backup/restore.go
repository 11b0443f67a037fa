package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weir/internal/dirlock"
	"weir/internal/rootkey"
)

// unfinished is the folder in which a copy is unpacked and proved before it is put in place. While it is there the
// directory is no instance.
const unfinished = "restore.unfinished"

// restoredName is the file that describes the restore to the first start after it.
const restoredName = "restored.json"

// Restored is what the first start after a restore needs to know.
type Restored struct {
	Format  int       `json:"format"`
	Created time.Time `json:"created"` // of the backup
	At      time.Time `json:"at"`      // when it was restored
	Epoch   uint32    `json:"epoch"`   // of the log at least from now on
}

// Problems of a directory.
var (
	// ErrNotEmpty is returned when the directory of a restore is not empty.
	ErrNotEmpty = errors.New("backup: the directory is not empty")
	// ErrUnfinished is returned when a restore into the directory did not end.
	ErrUnfinished = errors.New("backup: a restore into this directory was cut short")
)

// ProofError is a copy that was read whole and is nevertheless not fit: its findings.
type ProofError struct{ Findings []string }

func (e *ProofError) Error() string {
	return "the backup is not fit to be restored: " + strings.Join(e.Findings, "; ")
}

// Unfinished says whether a restore into dir was cut short: the error is ErrUnfinished.
func Unfinished(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, unfinished)); err == nil {
		return ErrUnfinished
	}
	return nil
}

// Empty says whether a copy can be restored into dir: it holds nothing, or what a restore that was cut short has left.
func Empty(dir string) error {
	if Unfinished(dir) != nil {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !slices.Contains([]string{dirlock.Name, "lost+found"}, e.Name()) {
			return fmt.Errorf("%w: %s is in it", ErrNotEmpty, e.Name())
		}
	}
	return nil
}

// Restore brings an archive back into dir, which is Empty and whose lock the caller holds. Nothing is in place before all
// of it was read and proved. key is asked for the root key where the archive holds none: it returns the key to be put into
// the directory, or nil when the instance finds it elsewhere, and refuses another one than the head names.
func Restore(ctx context.Context, d Drivers, r io.Reader, dir string, key func(Header) (*rootkey.Key, error)) (_ *Report, err error) {
	if err := clean(dir); err != nil {
		return nil, err
	}
	at := filepath.Join(dir, unfinished)
	if err := os.Mkdir(at, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, clean(dir))
		}
	}()
	var given *rootkey.Key
	m, err := Read(&ending{ctx, r}, &unpacker{dir: at, sync: true, accept: func(h Header) (err error) {
		if h.RootKey.ID != "" && !h.RootKey.Included {
			given, err = key(h)
		}
		return err
	}})
	if err != nil {
		return nil, err
	}
	report := check(ctx, d, at, m)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(report.Findings) > 0 {
		return nil, &ProofError{report.Findings}
	}
	return report, settle(dir, at, m, given)
}

// settle moves the verified files into place. The folder goes last, so that a directory without it is complete.
func settle(dir, at string, m *Manifest, key *rootkey.Key) error {
	if key != nil {
		if err := writeFile(filepath.Join(at, keyName), keyText(*key)); err != nil {
			return err
		}
	}
	if err := checkKey(filepath.Join(at, keyName), m.RootKey.ID); err != nil {
		return err
	}
	now := time.Now().UTC()
	note, err := json.Marshal(Restored{Format: 1, Created: m.Created, At: now, Epoch: nextEpoch(m.Log.Epoch, now)})
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(at, restoredName), note); err != nil {
		return err
	}
	for _, name := range placed {
		err := os.Rename(filepath.Join(at, name), filepath.Join(dir, name))
		if err != nil && !(errors.Is(err, fs.ErrNotExist) && name == keyName) {
			return err
		}
	}
	// The files that opening the database left next to it hold nothing that the database lacks.
	return errors.Join(syncDir(filepath.Join(dir, filepath.Clean(logFolder))), syncDir(dir), os.RemoveAll(at), syncDir(dir))
}

// placed is what a restore puts into a directory.
var placed = []string{restoredName, keyName, filepath.Clean(logFolder), storeName}

// checkKey looks at the key that is put into the directory, if one is.
func checkKey(path, id string) error {
	k, err := rootkey.Look(rootkey.Options{File: path})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case k.Key.ID() != id:
		return &rootkey.MissingError{ID: id, Found: k.Key.ID(), From: "the backup"}
	}
	return nil
}

// nextEpoch is an epoch that no other life of the instance has: not that of the original, which went on after the backup, nor
// that of another restore of the same one. The clock distinguishes them if it is set.
func nextEpoch(epoch uint32, now time.Time) uint32 {
	return max(epoch+1, uint32(now.Unix()))
}

// clean removes what an unfinished restore has left. The directory was empty before, and while the folder is there no
// instance starts in it, so all of this is ours.
func clean(dir string) error {
	if Unfinished(dir) == nil {
		return nil
	}
	for _, name := range placed {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return errors.Join(syncDir(dir), os.RemoveAll(filepath.Join(dir, unfinished)))
}

// ReadRestored returns the note of a restore that no start has taken up yet, nil when there is none.
func ReadRestored(dir string) (*Restored, error) {
	b, err := os.ReadFile(filepath.Join(dir, restoredName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &Restored{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w", restoredName, err)
	}
	if r.Format != 1 {
		return nil, fmt.Errorf("%w: %s has format %d", ErrVersion, restoredName, r.Format)
	}
	return r, nil
}

// TakenUp removes the note: the new life has begun.
func TakenUp(dir string) error {
	return errors.Join(os.Remove(filepath.Join(dir, restoredName)), syncDir(dir))
}

// writeFile writes a small file for its owner alone, durably.
func writeFile(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
