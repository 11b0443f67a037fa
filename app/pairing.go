package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"weir/ingest"
	"weir/model"
	"weir/operate"
	"weir/spool"
	"weir/store"
)

// paired is what the store says about the log that belongs to it.
type paired struct {
	id      [16]byte
	known   bool // an id was ever given
	head    model.Offset
	highest model.Offset // that any result knows
	epoch   uint32
	changes uint64 // of the registry
}

func (s *logStore) readPairing(ctx context.Context) (p paired, err error) {
	err = s.store.db.Read(ctx, func(tx store.Tx) (err error) {
		if p.id, p.known, err = store.PairID(tx); err != nil {
			return err
		}
		if p.head, _, err = store.CheckpointState(tx); err != nil {
			return err
		}
		if p.highest, err = store.HighestOffset(tx); err != nil {
			return err
		}
		if p.epoch, err = store.LogEpoch(tx); err != nil {
			return err
		}
		p.changes, err = store.ControlSequence(tx)
		return err
	})
	return p, err
}

// orphaned refuses a log whose database is gone: a new one would know none of the devices that the records name, and would
// take every acknowledged message for that of an unauthenticated sender.
func orphaned(dir string) error {
	// Only a log that holds records makes a missing database an error.
	log, err := logAtRest(operate.SpoolPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		if first, last := log.Bounds(); last < first {
			return nil // a first start that was cut short
		}
	}
	// A database that is there but has no pair id lost its write-ahead log.
	if !noDatabase(dir) {
		return &model.Error{Message: fmt.Sprintf("%s does not know the log beside it, which holds records: what was written last is missing with %[1]s-wal", operate.DBPath(dir)),
			Hint: "put weir.db-wal back as it was, beside weir.db; or move the directory away and bring back a backup: weir backup restore FILE --data " + dir}
	}
	return &model.Error{Message: fmt.Sprintf("%s is gone, and the log beside it holds records of it", operate.DBPath(dir)),
		Hint: "put weir.db (with weir.db-wal, if there was one) back as it was; or move the directory away and bring back a backup: " +
			"weir backup restore FILE --data " + dir + "; or, to begin with nothing, move the directory away"}
}

// checkSpoolPath refuses a file in the place of the directory of the log.
func checkSpoolPath(path string) error {
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return nil
	}
	return &model.Error{Message: path + " is a file, the directory of the log was expected",
		Hint: "move it away and put the directory back as it was; where there was none, the start makes it"}
}

// noDatabase reports whether there is no database, or an empty file in its place.
func noDatabase(dir string) bool {
	info, err := os.Stat(operate.DBPath(dir))
	return errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0
}

// openLog opens the log that belongs to the store. One of another store is set aside, so that nothing of it is lost; what
// is missing or cannot be read is skipped, noted and reported.
func (s *logStore) openLog(p *paired, o logOptions) (err error) {
	path := operate.SpoolPath(s.cfg.DataDir)
	// Offsets never repeat: results know some up to highest, so the log begins after it at the least.
	o.MinOffset, o.MinEpoch, o.PairID, o.Mend = p.highest, max(o.MinEpoch, p.epoch+1), p.id, true
	s.log, s.began, err = openSpool(s.cfg.DataDir, o)
	// Rename rather than refuse: the instance starts, and the log is kept for the operator.
	if errors.Is(err, spool.ErrForeign) {
		aside := fmt.Sprintf("%s.foreign-%s", path, time.Now().UTC().Format("20060102T150405Z"))
		if err := os.Rename(path, aside); err != nil {
			return err
		}
		s.foreign = aside
		s.base.log.Error("the log belonged to another store; it is set aside, nothing of it is applied", "as", aside)
		s.log, s.began, err = openSpool(s.cfg.DataDir, o)
	}
	return err
}

// findLoss is what a new life of the log lost, nil when nothing was.
func (s *logStore) findLoss(p *paired) *ingest.LogGap {
	// A copy lost nothing, and a store without a log had nothing to lose.
	b := s.began
	if b == nil || b.copied || !p.known {
		return nil
	}
	// Lost is what lies between the newest record that either side knew and the first of the new life.
	h := &ingest.LogGap{First: max(p.head, b.last) + 1, Last: b.next - 1, Why: b.why}
	switch {
	case s.foreign != "":
		h.Why = "the log belonged to another store; it is kept as " + filepath.Base(s.foreign)
	case b.damage != nil:
		h.Why += ": " + b.damage.Error()
	}
	return h
}

// pair ties store and log together. What is lost is noted with the new epoch: a start that is cut short afterwards finds it
// there, and the applier, which meets only what it reads after it, need not.
func (s *logStore) pair(ctx context.Context, p *paired) error {
	id := s.log.PairID()
	epoch := s.log.Epoch()
	s.gap, s.changes = s.findLoss(p), p.changes
	if s.gap == nil {
		return errors.Join(s.storePairing(ctx, p, id, epoch), s.knownGap(ctx, p))
	}
	return s.store.db.Write(ctx, store.Durable, func(tx store.Tx) error {
		// The loss and the new epoch are one transaction: neither is stored without the other.
		received, err := ingest.ReceivedAtCheckpoint(tx)
		if err != nil {
			return err
		}
		loss := store.LogLoss{At: model.MicrosOf(time.Now()), First: s.gap.First, Last: s.gap.Last, Why: s.gap.Why}
		if s.gap.Fresh, err = ingest.NoteLoss(tx, loss, received); err != nil {
			return err
		}
		return errors.Join(store.SetLogEpoch(tx, epoch), store.SetPairID(tx, id))
	})
}

// storePairing notes which log the results follow from.
func (s *logStore) storePairing(ctx context.Context, p *paired, id [16]byte, epoch uint32) error {
	if p.known && epoch == p.epoch {
		return nil
	}
	return s.store.db.Write(ctx, store.Durable, func(tx store.Tx) error {
		return errors.Join(store.SetLogEpoch(tx, epoch), store.SetPairID(tx, id))
	})
}

// knownGap looks for a loss that was noted before and after which no checkpoint has been written since: the log begins after
// it, or holds nothing after it.
func (s *logStore) knownGap(ctx context.Context, p *paired) error {
	first, last := s.log.Bounds()
	return s.store.db.Read(ctx, func(tx store.Tx) error {
		ls, err := store.LogLosses(tx)
		for _, l := range ls {
			// A loss is met again where the checkpoint lies before it and nothing of the log lies between.
			before := first > p.head+1 && l.First <= p.head+1 && l.Last+1 >= first
			after := l.Last > p.head && l.Last == last
			if before || after {
				s.gap = &ingest.LogGap{First: l.First, Last: l.Last, Why: l.Why}
			}
		}
		return err
	})
}

// explainOlderStore adds what to do about a database that is older than its log. Where the log begins after the next record that the results
// need, a file of it may be missing instead: an empty one of its name lets the start name it as lost and read the others.
func explainOlderStore(dir string, err error, checkpoint, first model.Offset) error {
	if !errors.Is(err, ingest.ErrStoreOlder) {
		return err
	}
	// Offer what fits: the second way only where a file of the log may be missing.
	hint := "put the newer weir.db back; or bring back a whole backup, log and all, into an empty directory: weir backup restore FILE --data DIR; "
	if first > checkpoint+1 {
		hint += "or, where the database is right and a file of the log is missing, make an empty one of its name, and the start names its records as lost and reads the others: touch " +
			filepath.Join(operate.SpoolPath(dir), logFileName(checkpoint+1)) + "; "
	}
	return &model.Error{Message: err.Error(), Err: err, Hint: hint + "to go on with this database, move " + operate.SpoolPath(dir) + " away: what came after it is in that log alone then"}
}
