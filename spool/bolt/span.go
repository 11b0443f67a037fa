package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"weir/model"
	"weir/spool"
)

// Names inside a span's file. Batches are sub-buckets of the root named by their first offset; the span's own record
// is in a bucket whose name sorts before all of them.
const (
	keySize     = 8
	spanBucket  = "\x00"
	spanKey     = "m"
	batchKey    = "r"
	spanSuffix  = ".span"
	aheadName   = "next.tmp"
	lockTimeout = time.Second
	growBytes   = 4 << 20 // a file grows in steps of this much (sparse), each with an fsync of its own
)

// span is one bbolt file. It holds the batches from its begin up to where the next span begins: batches in it beyond
// that offset were never acknowledged and do not exist.
type span struct {
	dir   string
	begin model.Offset
	disk  int64 // guarded by Log.mu

	// doubtful is set by the committer when a commit failed after it began: the state of the disk is unknown, so the
	// file is never written again.
	doubtful bool

	mu   sync.Mutex
	db   *bbolt.DB
	refs int
	// broken is set when bbolt panicked over the file's pages. It may still hold its locks: the handle is abandoned, not
	// even closed.
	broken error
	raw    *os.File // of leafAt
	rescue *salvage // the salvaged part of a damaged file, nil until it is needed

	// abandoned is set by a reader that has found damage: the file is not written any more.
	abandoned atomic.Bool
}

// FileName is the name of the file of a log that begins with a record.
func FileName(begin model.Offset) string { return fmt.Sprintf("%016x", uint64(begin)) + spanSuffix }

// spanBegin parses the offset in a file's name.
func spanBegin(name string) (model.Offset, bool) {
	if len(name) != 16+len(spanSuffix) || name[16:] != spanSuffix {
		return 0, false
	}
	n, err := strconv.ParseUint(name[:16], 16, 64)
	return model.Offset(n), err == nil && FileName(model.Offset(n)) == name
}

func (s *span) name() string { return FileName(s.begin) }
func (s *span) path() string { return filepath.Join(s.dir, s.name()) }

func batchName(first model.Offset) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, keySize), uint64(first))
}

// acquire opens the file for reading unless it is open already, and counts one more user.
func (s *span) acquire() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	if s.db == nil {
		err := examine(s.path(), pageFile.checkBranches)
		if err != nil {
			return err
		}
		if s.db, err = openFile(s.path(), false, 0, false); err != nil {
			return err
		}
	}
	s.refs++
	return nil
}

// release counts one user less; the last one closes the file.
func (s *span) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refs--
	if s.refs > 0 {
		return nil
	}
	var err error
	if s.rescue != nil {
		err = s.rescue.close()
		s.rescue = nil
	}
	if s.raw != nil {
		err = errors.Join(err, s.raw.Close())
		s.raw = nil
	}
	db := s.db
	s.db = nil
	if db == nil || s.broken != nil {
		return err
	}
	return errors.Join(err, db.Close())
}

// view runs fn in a read transaction. fn must copy what it keeps. The caller has acquired the span.
func (s *span) view(fn func(tx *bbolt.Tx) error) error {
	s.mu.Lock()
	db, broken := s.db, s.broken
	s.mu.Unlock()
	if broken != nil {
		return broken
	}
	err := guard(s.name(), func() error { return db.View(fn) })
	s.condemn(err)
	return err
}

func (s *span) condemn(err error) {
	if p, ok := errors.AsType[*pageError](err); ok {
		s.mu.Lock()
		s.broken = p
		s.mu.Unlock()
	}
}

// errNotSynced means that Options.Sync returned no error without calling sync.
var errNotSynced = errors.New("the durable step was left out")

// commit writes one batch and makes it durable. Only the committer calls it, with the span acquired for writing.
func (s *span) commit(first model.Offset, value []byte, around func(func() error) error) error {
	var tx *bbolt.Tx
	err := guard(s.name(), func() (err error) {
		tx, err = s.db.Begin(true)
		if err != nil {
			return err
		}
		b, err := tx.CreateBucket(batchName(first))
		if err != nil {
			return err
		}
		return b.Put([]byte(batchKey), value)
	})
	if err == nil {
		err = s.sync(tx, around)
	}
	if err != nil && tx != nil && !s.doubtful {
		// Nothing was written. After a failed rollback the file is not usable.
		if e := guard(s.name(), tx.Rollback); e != nil {
			s.doubtful = true
			err = errors.Join(err, e)
		}
	}
	if _, ok := errors.AsType[*pageError](err); ok || tx == nil {
		s.doubtful = true
	}
	s.condemn(err)
	return err
}

// sync is the durable step of commit, inside Options.Sync.
func (s *span) sync(tx *bbolt.Tx, around func(func() error) error) error {
	var once sync.Once
	synced := errNotSynced
	err := around(func() error {
		once.Do(func() {
			s.doubtful = true
			synced = guard(s.name(), tx.Commit)
		})
		return synced
	})
	if err == nil {
		err = synced
	}
	if err == nil {
		s.doubtful = false
	}
	return err
}

// extent returns the size of the file's pages.
func (s *span) extent() (int64, error) {
	var n int64
	err := s.view(func(tx *bbolt.Tx) error {
		n = tx.Size()
		return nil
	})
	return n, err
}

// stored is a batch's bytes in a span.
type stored struct {
	first model.Offset // by its name
	next  model.Offset // name of the next batch in the span, 0 when it is the last
	value []byte
}

// find copies the batch that contains the record at from or, failing that, the first one after it, of those below
// limit. It returns nil when there is none.
func (s *span) find(from, limit model.Offset) (*stored, error) {
	exact, err := s.seek(from, limit)
	if err != nil || (exact != nil && exact.first == from) {
		return exact, err
	}
	before, err := s.before(from)
	if err != nil || before == nil || before.first >= limit {
		return exact, err
	}
	b, err := before.decode(s)
	if err != nil {
		return nil, err
	}
	if b.Last() >= from {
		return before, nil
	}
	return exact, nil
}

// seek copies the first batch that begins at or after from.
func (s *span) seek(from, limit model.Offset) (out *stored, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		c := tx.Cursor()
		k, _ := c.Seek(batchName(from))
		out, err = s.copyBatch(tx, c, k, limit)
		return err
	})
	return out, s.located(err, from)
}

// keyBefore moves the cursor to the last batch that begins before from and returns its key, nil when there is none.
func keyBefore(c *bbolt.Cursor, from model.Offset) []byte {
	k, _ := c.Seek(batchName(from))
	if k == nil {
		k, _ = c.Last()
	} else {
		k, _ = c.Prev()
	}
	return k
}

// before copies the last batch that begins before from.
func (s *span) before(from model.Offset) (out *stored, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		c := tx.Cursor()
		out, err = s.copyBatch(tx, c, keyBefore(c, from), from)
		return err
	})
	return out, s.located(err, from)
}

// header returns the header of the last batch that begins before from, nil when there is none. It reads one page.
func (s *span) header(from model.Offset) (h *batchHeader, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		k := keyBefore(tx.Cursor(), from)
		if len(k) != keySize {
			return nil
		}
		value, err := s.valueOf(tx, k)
		if err != nil {
			return err
		}
		got, err := peekBatch(value)
		if err == nil {
			h = &got
		}
		return err
	})
	return h, s.located(err, from)
}

func (s *span) copyBatch(tx *bbolt.Tx, c *bbolt.Cursor, k []byte, limit model.Offset) (*stored, error) {
	if len(k) != keySize {
		return nil, nil
	}
	out := &stored{first: model.Offset(binary.BigEndian.Uint64(k))}
	if out.first >= limit {
		return nil, nil
	}
	value, err := s.valueOf(tx, k)
	if err != nil {
		return nil, err
	}
	out.value = append(out.value, value...)
	if k, _ := c.Next(); len(k) == keySize {
		out.next = model.Offset(binary.BigEndian.Uint64(k))
	}
	return out, nil
}

// valueOf returns the stored form of the batch named k, nil when there is none. A sub-bucket is one leaf: bbolt would follow
// any other page without a check.
func (s *span) valueOf(tx *bbolt.Tx, k []byte) ([]byte, error) {
	b := tx.Bucket(k)
	if b == nil {
		return nil, nil
	}
	if root := b.Root(); root != 0 {
		if err := s.leafAt(uint64(root), tx.Size()); err != nil {
			return nil, err
		}
	}
	value := b.Get([]byte(batchKey))
	if len(value) > maxBatch {
		return nil, errForm
	}
	return value, nil
}

// leafAt checks that a page of the file is a leaf.
func (s *span) leafAt(id uint64, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.raw == nil {
		f, err := os.Open(s.path())
		if err != nil {
			return err
		}
		s.raw = f
	}
	p, err := newPageFile(s.raw, size).head(id)
	if err == nil && p.flags != leafFlag {
		err = fmt.Errorf("%w: page %d is no leaf", errPage, id)
	}
	return err
}

// decode checks and decodes the batch; damage is reported with file and offset.
func (st *stored) decode(s *span) (*spool.Batch, error) {
	b, h, err := decodeBatch(st.value)
	if err == nil && h.first != st.first {
		err = fmt.Errorf("holds the batch of offset %d", h.first)
	}
	if err == nil && st.next != 0 && h.last() >= st.next {
		err = errForm
	}
	if err != nil {
		return nil, s.damage(err, st.first, st.next)
	}
	b.Weight = int64(h.weight)
	return b, nil
}

// located converts errors of bbolt that mean damage into damage.
func (s *span) located(err error, offset model.Offset) error {
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, located := errors.AsType[*spool.DamageError](err); located {
		return err
	}
	return s.damage(err, offset, 0)
}

func (s *span) damage(err error, offset, next model.Offset) error {
	if errors.Is(err, spool.ErrVersion) {
		return fmt.Errorf("%w (%s, offset %d)", err, s.name(), offset)
	}
	return &spool.DamageError{File: s.name(), Offset: offset, Next: next, Reason: err.Error()}
}

// openFile opens a span's file. Reading opens it read-only: bbolt then loads no list of free pages, which for a file
// without one would be a walk through all of it.
func openFile(path string, write bool, mapBytes int64, unsafe bool) (db *bbolt.DB, err error) {
	name := filepath.Base(path)
	info, err := os.Stat(path)
	if err == nil && info.Size() < 4*pageSize {
		return nil, &spool.DamageError{File: name, Reason: "shorter than its first pages"}
	}
	if err != nil && (!write || !errors.Is(err, os.ErrNotExist)) {
		return nil, fmt.Errorf("spool: %w", err)
	}
	err = guard(name, func() (err error) {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout:  lockTimeout,
			ReadOnly: !write,
			PageSize: pageSize,
			// Nothing is ever deleted inside a span, so it has few free pages: a list of them on disk would
			// cost each commit one page more and save nothing, since a large span is never reopened for
			// writing. bbolt keeps only the map kind of list.
			NoFreelistSync: true,
			FreelistType:   bbolt.FreelistMapType,
			// Mapped once at its full size, so that growing never waits for the end of a reader's transaction.
			InitialMmapSize: int(mapBytes),
			NoStatistics:    true,
			NoSync:          unsafe,
			NoGrowSync:      unsafe,
		})
		return err
	})
	switch {
	case err == nil:
		db.AllocSize = growBytes
		return db, nil
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("spool: %s is in use by another process: %w", name, err)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return nil, &spool.DamageError{File: name, Reason: err.Error()}
	}
	return nil, fmt.Errorf("spool: %s: %w", name, err)
}

// examine checks the pages of a file before bbolt opens it.
func examine(path string, check func(pageFile) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	info, err := f.Stat()
	if err == nil && info.Size() < 4*pageSize {
		err = errors.New("shorter than its first pages")
	}
	if err == nil {
		err = check(newPageFile(f, info.Size()))
	}
	if err != nil {
		err = &spool.DamageError{File: filepath.Base(path), Reason: err.Error()}
	}
	return errors.Join(err, f.Close())
}

// identity is a span's own record.
type identity struct {
	epoch uint32
	pair  [16]byte
}

const (
	identityVersion = 1
	identitySize    = 2 + 4 + 16 + checksumSize
)

// encode returns version, flags, epoch, pair id, CRC-32C.
func (id identity) encode() []byte {
	b := append(make([]byte, 0, identitySize), identityVersion, 0)
	b = binary.BigEndian.AppendUint32(b, id.epoch)
	b = append(b, id.pair[:]...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeIdentity(b []byte) (identity, error) {
	switch {
	case len(b) > 0 && b[0] > identityVersion:
		return identity{}, fmt.Errorf("%w: span of version %d", spool.ErrVersion, b[0])
	case len(b) != identitySize:
		return identity{}, errors.New("span record missing or of the wrong length")
	}
	end := identitySize - checksumSize
	if b[0] != identityVersion || b[1] != 0 || crc32.Checksum(b[:end], castagnoli) != binary.BigEndian.Uint32(b[end:]) {
		return identity{}, errors.New("span record damaged")
	}
	id := identity{epoch: binary.BigEndian.Uint32(b[2:])}
	copy(id.pair[:], b[6:])
	return id, nil
}

func (s *span) identity() (id identity, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		var value []byte
		if b := tx.Bucket([]byte(spanBucket)); b != nil {
			value = b.Get([]byte(spanKey))
		}
		id, err = decodeIdentity(value)
		return err
	})
	return id, s.located(err, s.begin)
}

// makeAhead creates an empty span under a temporary name.
func makeAhead(dir string, id identity, mapBytes int64, unsafe bool) (*bbolt.DB, error) {
	path := filepath.Join(dir, aheadName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("spool: %w", err)
	}
	db, err := openFile(path, true, mapBytes, unsafe)
	if err != nil {
		return nil, err
	}
	err = guard(aheadName, func() error {
		return db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket([]byte(spanBucket))
			if err != nil {
				return err
			}
			return b.Put([]byte(spanKey), id.encode())
		})
	})
	if err != nil {
		return nil, fmt.Errorf("spool: making the next span: %w", errors.Join(err, db.Close()))
	}
	return db, nil
}

// pageError is a panic of bbolt or a fault in its mapping: damaged pages.
type pageError struct {
	name  string
	cause any
}

func (e *pageError) Error() string {
	return fmt.Sprintf("%v: %s: unreadable pages: %v", spool.ErrDamaged, e.name, e.cause)
}

func (e *pageError) Unwrap() error { return spool.ErrDamaged }

// guard runs a call of bbolt, which panics over damaged pages, and faults when the file is shorter than expected or
// the disk cannot be read: damage in one file must not end the process.
func guard(name string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = &pageError{name, cause}
		}
	}()
	return fn()
}
