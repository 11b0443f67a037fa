// Package backup makes a consistent copy of an instance, running or not, proves a copy whole, and brings one back.
//
// An archive is a tar. Its first file says what it is (Head), then come the database, the files of the log and, if that was
// asked for, the root key; the last file is the table of contents with sizes and sums (Manifest), so that an archive that
// was cut off is never taken for a whole one. It is written in one pass and read in one pass: nothing is kept twice on the
// disk that is copied, and memory does not grow with the data.
//
// The order is what makes it consistent: the log is held from being trimmed, the database is copied as of one moment, then
// the log. So the log of a copy reaches at least as far as its database, and back to what the database does not hold.
package backup

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"weir/internal/faults"
	"weir/internal/rootkey"
	"weir/model"
	"weir/spool"
	"weir/store"
)

// Format is the version of the archive that this Weir writes, and the newest that it reads.
const Format = 1

// Names in an archive; what stands under logFolder are the files of the log.
const (
	headName     = "weir-backup.json"
	storeName    = "weir.db"
	logFolder    = "spool/"
	keyName      = "root.key"
	manifestName = "manifest.json"
)

// Errors of an archive.
var (
	// ErrVersion is returned when a newer Weir has written the archive.
	ErrVersion = errors.New("backup: newer format")
	// ErrForeign is returned when the file is not a backup.
	ErrForeign = errors.New("backup: not a backup of Weir")
	// ErrDamaged is returned when an archive is not what was written.
	ErrDamaged = errors.New("backup: damaged")
)

// DamageError is an ErrDamaged with its place.
type DamageError struct {
	File   string // of the archive, "" when it is not known which
	Reason string
	// Head: the beginning does not read, so that the file may also be no backup at all.
	Head bool
}

func (e *DamageError) Error() string {
	if e.File == "" {
		return fmt.Sprintf("%v: %s", ErrDamaged, e.Reason)
	}
	return fmt.Sprintf("%v: %s: %s", ErrDamaged, e.File, e.Reason)
}

// Is makes errors.Is(err, ErrForeign) hold, too, where nothing but remains of the beginning says that this was a backup.
func (e *DamageError) Is(target error) bool { return e.Head && target == ErrForeign }

// Unwrap makes errors.Is(err, ErrDamaged) hold.
func (e *DamageError) Unwrap() error { return ErrDamaged }

// Header is the first file of an archive.
type Header struct {
	Format   int       `json:"format"`
	Instance string    `json:"instance"`
	Version  string    `json:"version"` // of the Weir that wrote it
	Created  time.Time `json:"created"`
	// PairID is what database and log have in common, in hex; "" where nothing has run yet and there is no log.
	PairID  string `json:"pairId,omitempty"`
	RootKey Key    `json:"rootKey"`
}

// Key says which root key the secrets of a copy are sealed under.
type Key struct {
	ID       string `json:"id,omitempty"` // "" while nothing is sealed
	Included bool   `json:"included"`
}

// Manifest is the last file of an archive: what the others must be.
type Manifest struct {
	Header
	// StoreOffset is up to where the database holds the readings of the log.
	StoreOffset model.Offset `json:"storeOffset"`
	Log         Log          `json:"log"`
	Files       []File       `json:"files"`
}

// Log is what the log of a copy holds at least.
type Log struct {
	Epoch uint32       `json:"epoch"`
	First model.Offset `json:"first"`
	Last  model.Offset `json:"last"`
}

// File is one file of an archive.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Bytes is what the files take together.
func (m *Manifest) Bytes() int64 {
	var n int64
	for _, f := range m.Files {
		n += f.Bytes
	}
	return n
}

// Source is an instance that is copied.
type Source struct {
	Instance, Version string
	Store             Store
	Log               LogSource // nil: nothing has run yet
	// RootKey goes into the copy; nil leaves it out.
	RootKey *rootkey.Key
	// Strained says that the instance can no longer bear the copy, nil that it can; nil func: it always can.
	Strained func() error
	Now      func() time.Time
}

// Store copies a database as of one moment.
type Store interface {
	Copy(ctx context.Context, fn func(tx store.Tx, bytes int64, write func(io.Writer) error) error) error
}

// LogSource copies a log.
type LogSource interface {
	HoldTrim() (release func())
	Bounds() (first, last model.Offset)
	Epoch() uint32
	PairID() [16]byte
	Copy(ctx context.Context, each func(spool.File) error) error
}

// Write writes a copy of src to w, at most rate bytes a second (0: as fast as it goes), and returns what it holds. What was
// acknowledged before the call is in it.
func Write(ctx context.Context, w io.Writer, src Source, rate int64) (*Manifest, error) {
	if src.Log != nil {
		defer src.Log.HoldTrim()()
	}
	a := newArchive(&paced{ctx: ctx, w: w, rate: rate, strained: src.Strained}, src.Now().UTC().Truncate(time.Second))
	m := &Manifest{}
	if err := src.Store.Copy(ctx, func(tx store.Tx, bytes int64, write func(io.Writer) error) error {
		if err := m.describe(tx, src, a.at); err != nil {
			return err
		}
		if err := a.json(headName, m.Header); err != nil {
			return err
		}
		return a.add(storeName, bytes, write)
	}); err != nil {
		return nil, err
	}
	faults.Point("backup.store")
	if src.Log != nil {
		m.Log.Epoch = src.Log.Epoch()
		m.Log.First, m.Log.Last = src.Log.Bounds()
		if err := src.Log.Copy(ctx, func(f spool.File) error { return a.add(logFolder+f.Name, f.Bytes, f.Write) }); err != nil {
			return nil, err
		}
	}
	if src.RootKey != nil {
		if err := a.bytes(keyName, keyText(*src.RootKey)); err != nil {
			return nil, err
		}
	}
	faults.Point("backup.log")
	m.Files = a.files
	return m, errors.Join(a.json(manifestName, m), a.tar.Close())
}

// describe fills in what the database says of itself.
func (m *Manifest) describe(tx store.Tx, src Source, at time.Time) error {
	m.Header = Header{Format: Format, Instance: src.Instance, Version: src.Version, Created: at}
	pair, paired, err := store.PairID(tx)
	if err != nil {
		return err
	}
	switch {
	case paired && src.Log == nil:
		return errors.New("the log is missing: what was acknowledged and is not yet in the database is lost; weir doctor says more")
	case paired && src.Log.PairID() != pair, !paired && src.Log != nil:
		return fmt.Errorf("%w: log and database are not of one instance", spool.ErrForeign)
	case paired:
		m.PairID = hex.EncodeToString(pair[:])
	}
	if m.StoreOffset, _, err = store.CheckpointState(tx); err != nil {
		return err
	}
	if m.RootKey.ID, err = store.RootKeyID(tx); err != nil {
		return err
	}
	if m.RootKey.Included = src.RootKey != nil; m.RootKey.Included && src.RootKey.ID() != m.RootKey.ID {
		return &rootkey.MissingError{ID: m.RootKey.ID, Found: src.RootKey.ID(), From: "the root key of the copy"}
	}
	return nil
}
