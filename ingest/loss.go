package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"weir/model"
	"weir/rules"
	"weir/spool"
	"weir/store"
)

// Hole is a part of the log that cannot be read: First to Last. Fresh says that it was found, and noted in the store, just now.
type LogGap struct {
	First, Last model.Offset
	Why         string
	Fresh       bool
}

// ErrStoreOlder: the store knows less than the log takes for granted.
var ErrStoreOlder = errors.New("ingest: the database is older than the log")

// next returns the next batch, and goes past what cannot be read: it is noted in the store and told, and what the store
// knows of the registry behind it holds. A disk that cannot be read at the moment is asked again.
func (a *Applier) next(ctx context.Context, r *spool.Reader) (b *spool.Batch, err error) {
	for {
		if h := a.Gap; h != nil && a.Applied()+1 >= h.First {
			a.Gap = nil
			if h.Last > a.Applied() {
				if err := a.passOver(ctx, r, *h); err != nil {
					return nil, err
				}
			}
		}
		b, err = a.read(ctx, *r)
		damage, damaged := errors.AsType[*spool.DamageError](err)
		switch {
		case damaged && damage.Next > a.Applied()+1:
			err = a.passOver(ctx, r, LogGap{First: a.Applied() + 1, Last: damage.Next - 1, Why: damage.File + ": " + damage.Reason})
		case err == nil && b.First > a.Applied()+1:
			return b, a.passOver(ctx, nil, LogGap{First: a.Applied() + 1, Last: b.First - 1, Why: "records are missing"})
		case err == nil:
			return b, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// read is Next, asked again as long as the disk cannot be read.
func (a *Applier) read(ctx context.Context, r spool.Reader) (b *spool.Batch, err error) {
	if b, err = r.Next(ctx); err == nil || final(ctx, err) {
		return b, err
	}
	var end error
	err = a.insist(ctx, "the log cannot be read", func() error {
		if b, end = r.Next(ctx); final(ctx, end) {
			return nil
		}
		return end
	})
	return b, errors.Join(err, end)
}

// final reports whether asking again for the next batch would be of no use.
func final(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || errors.Is(err, spool.ErrClosed) || errors.Is(err, spool.ErrTrimmed) || errors.Is(err, spool.ErrVersion) || errors.Is(err, spool.ErrDamaged))
}

// passOver goes on behind a hole. r, where it is not nil, is set behind it.
func (a *Applier) passOver(ctx context.Context, r *spool.Reader, h LogGap) error {
	fresh := false
	now := a.Received()
	loss := store.LogLoss{At: a.found().Micros(), First: h.First, Last: h.Last, Why: h.Why}
	err := a.insist(ctx, "what was lost of the log cannot be noted", func() error {
		return a.Store.Write(ctx, store.Durable, func(tx store.Tx) (err error) {
			fresh, err = NoteLoss(tx, loss, now)
			return err
		})
	})
	if err != nil {
		return err
	}
	if fresh || h.Fresh {
		a.metrics.lost.Add(float64(loss.Records()))
	}
	a.Logger.Error("a part of the log is lost: its records cannot be read", "first", h.First, "last", h.Last, "why", h.Why)
	a.parts = parts{lost: true}
	a.applied.Store(uint64(h.Last))
	if err := a.catchUpView(ctx, h.Last); err != nil || r == nil {
		return err
	}
	next, err := a.Log.Reader(h.Last + 1)
	if err != nil {
		return err
	}
	(*r).Close()
	*r = readAhead(next, a.lastStart)
	return nil
}

// NoteLoss notes a loss, and the gap that it leaves in the ledger since the last that was received before. fresh is false
// when it is known.
func NoteLoss(tx store.Tx, l store.LogLoss, received model.Nanos) (fresh bool, err error) {
	if fresh, err = store.AddLogLoss(tx, l); err != nil || !fresh {
		return false, err
	}
	return true, store.AddLedgerGap(tx, store.LedgerGap{From: min(received.Micros(), l.At), To: l.At})
}

// found is when a loss is found.
func (a *Applier) found() model.Nanos {
	if a.Clock != nil {
		return a.Clock.Stamp().Wall
	}
	return a.lastReceived
}

// catchUpView takes the registry as the store knows it at a place: changes within a hole that were in force before the
// start are.
func (a *Applier) catchUpView(ctx context.Context, at model.Offset) error {
	view := NewView()
	if err := a.insist(ctx, "the registry cannot be read", func() error {
		return a.Store.Read(ctx, func(tx store.Tx) error {
			view = NewView()
			return store.ViewAsOf(tx, at, func(r store.ViewRow) (err error) {
				if r.Kind == viewControlSequence {
					a.sequence, err = strconv.ParseUint(string(r.Body), 10, 64)
					return err
				}
				return view.Set(r.Kind, r.Key, r.Body)
			})
		})
	}); err != nil {
		return err
	}
	a.viewMu.Lock()
	before := a.view
	a.view = view
	a.viewMu.Unlock()
	a.rulesMu.Lock()
	defer a.rulesMu.Unlock()
	a.batch = &effects{epoch: a.epoch}
	place := rules.Position{Epoch: a.epoch, Offset: at, Received: a.lastReceived, Listening: a.listening}
	for _, id := range slices.Sorted(maps.Keys(before.profiles)) {
		if view.profiles[id] == nil {
			a.installProfile(place, "", viewBefore{id: id, profile: before.profiles[id]})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(view.profiles)) {
		if p := before.profiles[id]; p == nil || p.Version != view.profiles[id].Version {
			a.installProfile(place, "", viewBefore{id: id, profile: p})
		}
	}
	return a.commit(ctx, at)
}

// reader opens the log behind the head. Where the log begins further on, and no hole says why, somebody has put an older
// database in place: row ids that records bear would mean others by now, so nothing may be applied.
func (a *Applier) reader() (spool.Reader, error) {
	from := a.head.offset + 1
	first, _ := a.Log.Bounds()
	if h := a.Gap; from < first && h != nil && h.First <= from && h.Last+1 >= first {
		from = first
	}
	r, err := a.Log.Reader(from)
	if errors.Is(err, spool.ErrTrimmed) {
		return nil, fmt.Errorf("%w: it ends at record %d, the log begins with record %d", ErrStoreOlder, a.head.offset, first)
	}
	if err != nil {
		return nil, fmt.Errorf("ingest: the log behind the results cannot be read: %w", err)
	}
	return readAhead(r, a.lastStart), nil
}
