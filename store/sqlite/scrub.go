package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"weir/store"
)

// Scrub makes the files of the database hold nothing that was removed before it is called. Each call of what it returns takes one
// step of so many bytes and returns how much is left, 0 once nothing is: free pages are given back to the file system, then each
// page is freed of what none of its rows uses, at last the write-ahead log, which repeats older pages, begins again. A reader of an older
// state delays that: left stays the same.
//
// That removed rows are overwritten (secure_delete) is not enough: SQLite leaves the former content in the gap of a page whose
// rows it has moved to another one, in the rest of the last page of a long row, and in free pages.
//
// The pages are taken from the last to the first. What the instance does meanwhile moves rows between pages, and whole pages towards
// the beginning of the file, so what was not looked at yet never gets to where it is not looked at any more.
func (db *DB) Scrub(bytes int64) func(context.Context) (left int64, err error) {
	s := &scrub{db: db, bytes: bytes}
	s.step = s.giveBack
	return func(ctx context.Context) (int64, error) { return s.step(ctx) }
}

type scrub struct {
	db    *DB
	bytes int64 // of a step
	next  int64 // number of the page to look at next
	step  func(context.Context) (left int64, err error)
}

func (s *scrub) giveBack(ctx context.Context) (left int64, err error) {
	if _, err := s.db.GiveBack(ctx, s.bytes); err != nil {
		return 0, err
	}
	var free, size int64
	if err := s.db.Read(ctx, func(tx store.Tx) error {
		if free, size, err = freePages(tx); err != nil {
			return err
		}
		return tx.QueryRow(`PRAGMA page_count`).Scan(&s.next)
	}); err != nil {
		return 0, err
	}
	if free == 0 {
		s.step = s.clean
	}
	return (free+s.next)*size + 1, nil
}

func (s *scrub) clean(ctx context.Context) (left int64, err error) {
	var unclean []int64
	from, size := int64(0), int64(0)
	if err := s.db.Read(ctx, func(tx store.Tx) error {
		p, err := openPages(tx)
		if err != nil {
			return err
		}
		size = p.size
		s.next = min(s.next, p.count) // pages may have been given back meanwhile
		from = max(s.next-s.bytes/size, 0)
		for n := s.next; n > from; n-- {
			if changed, _, err := p.cleaned(n); err != nil {
				return err
			} else if changed {
				unclean = append(unclean, n)
			}
		}
		return nil
	}); err != nil {
		return 0, err
	}
	if len(unclean) > 0 {
		if err := s.db.Write(ctx, store.Results, func(tx store.Tx) error {
			p, err := openPages(tx)
			if err != nil {
				return err
			}
			for _, n := range unclean {
				if err := p.clean(n); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return 0, err
		}
	}
	if s.next = from; s.next == 0 {
		s.step = s.empty
	}
	return s.next*size + 1, nil
}

func (s *scrub) empty(ctx context.Context) (left int64, err error) {
	k := s.db.ckpt
	k.run(k.conn, "PASSIVE", checkpointWait) // writers wait for what is left after it only
	if restarted, err := k.restart(); err != nil || !restarted {
		return 1, err
	}
	if begun, err := s.begin(ctx); err != nil || !begun {
		return 1, err
	}
	if long, err := s.db.tooLong(ctx); err != nil || long {
		return 1, err
	}
	return 0, nil
}

// begin begins the write-ahead log again with a durable commit, after which its file holds nothing of what was in it. That the file is
// made empty at once (a checkpoint with TRUNCATE) would not do: until its next sync a power failure may leave the former begin of
// the log without its end, and that is older than the database.
func (s *scrub) begin(ctx context.Context) (begun bool, err error) {
	before, err := walSalt(s.db.path)
	if err != nil {
		return false, err
	}
	limit := func(bytes int, and string) error {
		return s.db.Write(ctx, store.Durable, func(tx store.Tx) error {
			var set int
			if err := tx.QueryRow(fmt.Sprintf(`PRAGMA journal_size_limit = %d`, bytes)).Scan(&set); err != nil || and == "" {
				return err
			}
			_, err := tx.Exec(and)
			return err
		})
	}
	var version int64
	if err := s.db.Read(ctx, func(tx store.Tx) error { return tx.QueryRow(`PRAGMA user_version`).Scan(&version) }); err != nil {
		return false, err
	}
	err = limit(0, fmt.Sprintf(`PRAGMA user_version = %d`, version)) // a write that changes nothing
	if err = errors.Join(err, limit(walKeepBytes, "")); err != nil {
		return false, err
	}
	after, err := walSalt(s.db.path)
	return after != before, err
}

// walSalt is what distinguishes the frames of a write-ahead log from those that were in its file before ("WAL File Format"); 0 for an
// empty file.
func walSalt(path string) (salt uint64, err error) {
	f, err := os.Open(path + "-wal")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var b [8]byte
	if _, err := f.ReadAt(b[:], 16); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return binary.BigEndian.Uint64(b[:]), nil
}
