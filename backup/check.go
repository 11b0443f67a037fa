package backup

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"weir/model"
	"weir/store"
)

// Drivers open what a copy holds for reading.
type Drivers interface {
	// InspectStore opens a database; fs.ErrNotExist when there is none.
	InspectStore(ctx context.Context, path string) (Inspector, error)
	// InspectLog reads the log in a folder, newest batch first, until ctx ends; fs.ErrNotExist when there is none.
	InspectLog(ctx context.Context, dir string) (*LogInventory, error)
}

// Inspector reads a database and changes nothing in it.
type Inspector interface {
	Store
	Read(ctx context.Context, fn func(store.Tx) error) error
	// Check reads the whole database and returns store.ErrDamaged when it does not hang together.
	Check(ctx context.Context) error
	// Pending is how many migrations the next start will make.
	Pending() int
	Close() error
}

// LogInventory is what the folder of a log holds that nothing has open.
type LogInventory struct {
	Epoch       uint32
	PairID      [16]byte
	First, Last model.Offset
	DiskBytes   int64
	Batches     int  // that were read and found whole
	Complete    bool // every batch was read
}

// Report is what a check of an archive has found.
type Report struct {
	*Manifest
	// Findings are what is wrong; none: it can be restored.
	Findings []string `json:"findings"`
	Counts   *Counts  `json:"counts,omitempty"` // nil where the database could not be read
}

// Counts say what a copy holds.
type Counts struct {
	Tenants int64 `json:"tenants"`
	Devices int64 `json:"devices"`
	// Messages are those that the ledger of the copy has as stored, Readings those in them.
	Messages int64 `json:"messages"`
	Readings int64 `json:"readings"`
	// Records are those of the log that the database does not hold yet: the start applies them.
	Records uint64 `json:"records"`
	Batches int    `json:"batches"` // of the log, each read and whole
}

func (r *Report) find(format string, args ...any) {
	r.Findings = append(r.Findings, fmt.Sprintf(format, args...))
}

// Verify reads a whole archive and opens the copies in a folder of its own under scratch, "" for that of the system, which it
// removes. The error is for what kept it from looking; what it found is in the report.
func Verify(ctx context.Context, d Drivers, r io.Reader, scratch string) (_ *Report, err error) {
	dir, err := os.MkdirTemp(scratch, "weir-verify-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m, err := Read(&ending{ctx, r}, &unpacker{dir: dir})
	if errors.Is(err, ErrDamaged) {
		return &Report{Findings: []string{strings.TrimPrefix(err.Error(), ErrDamaged.Error()+": ")}}, nil
	}
	if err != nil {
		return nil, err
	}
	report := check(ctx, d, dir, m)
	return report, ctx.Err()
}

// ending is a reader that ends with a context.
type ending struct {
	ctx context.Context
	r   io.Reader
}

func (e *ending) Read(b []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	return e.r.Read(b)
}

// unpacker writes the files of an archive into a folder.
type unpacker struct {
	dir    string
	accept func(Header) error // nil: any
	sync   bool
}

// Head implements Receiver.
func (u *unpacker) Head(h Header) error {
	if u.accept != nil {
		if err := u.accept(h); err != nil {
			return err
		}
	}
	return os.MkdirAll(filepath.Join(u.dir, filepath.FromSlash(logFolder)), 0o700)
}

// File implements Receiver.
func (u *unpacker) File(name string, bytes int64, r io.Reader) error {
	f, err := os.OpenFile(filepath.Join(u.dir, filepath.FromSlash(name)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, r, bytes)
	if err == nil && u.sync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// check opens the copies in dir: each must be whole, and they must belong together.
func check(ctx context.Context, d Drivers, dir string, m *Manifest) *Report {
	r := &Report{Manifest: m, Findings: []string{}}
	r.checkStore(ctx, d, filepath.Join(dir, storeName))
	r.checkLog(ctx, d, filepath.Join(dir, filepath.FromSlash(logFolder)))
	return r
}

func (r *Report) checkStore(ctx context.Context, d Drivers, path string) {
	o, err := d.InspectStore(ctx, path)
	if err != nil {
		r.find("the database does not open: %v", err)
		return
	}
	defer o.Close() // nothing was written
	if err := o.Check(ctx); err != nil {
		r.find("the database is damaged: %v", err)
		return
	}
	if err := o.Read(ctx, r.compareStore); err != nil {
		r.find("the database cannot be read: %v", err)
	}
}

// compareStore holds what the database says of itself against the manifest, and counts.
func (r *Report) compareStore(tx store.Tx) error {
	pair, paired, err := store.PairID(tx)
	if err != nil {
		return err
	}
	if paired != (r.PairID != "") || paired && hex.EncodeToString(pair[:]) != r.PairID {
		r.find("the database is of another instance than the backup says")
	}
	offset, _, err := store.CheckpointState(tx)
	if err != nil {
		return err
	}
	if offset != r.StoreOffset {
		r.find("the database holds records up to %d, the backup says %d", offset, r.StoreOffset)
	}
	key, err := store.RootKeyID(tx)
	if err != nil {
		return err
	}
	if key != r.RootKey.ID {
		r.find("the database is sealed under the root key %s, the backup says %s", key, r.RootKey.ID)
	}
	r.Counts = &Counts{}
	return r.Counts.read(tx)
}

func (c *Counts) read(tx store.Tx) error {
	h, err := store.ReadHoldings(tx)
	c.Tenants, c.Devices, c.Messages, c.Readings = h.Tenants, h.Devices, h.Messages, h.Readings
	return err
}

func (r *Report) checkLog(ctx context.Context, d Drivers, dir string) {
	inv, err := d.InspectLog(ctx, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if r.PairID != "" {
			r.find("the log is missing")
		}
		return
	case err != nil:
		r.find("the log is damaged: %v", err)
		return
	case !inv.Complete:
		return // the context has ended
	}
	if r.Counts != nil {
		r.Counts.Batches = inv.Batches
		if inv.Last > r.StoreOffset {
			r.Counts.Records = uint64(inv.Last - r.StoreOffset)
		}
	}
	r.compareLog(inv)
}

// compareLog holds the log against the manifest and the database.
func (r *Report) compareLog(inv *LogInventory) {
	if hex.EncodeToString(inv.PairID[:]) != r.PairID {
		r.find("the log is of another instance than the database")
	}
	if inv.Epoch != r.Log.Epoch || inv.Last < r.Log.Last {
		r.find("the log ends at record %d of epoch %d, the backup says %d of epoch %d", inv.Last, inv.Epoch, r.Log.Last, r.Log.Epoch)
	}
	if inv.Last < r.StoreOffset {
		r.find("the log ends at record %d, the database knows up to %d", inv.Last, r.StoreOffset)
	}
	if inv.First > r.StoreOffset+1 {
		r.find("records %d to %d are neither in the database nor in the log", r.StoreOffset+1, inv.First-1)
	}
}
