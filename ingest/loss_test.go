package ingest

import (
	"context"
	"testing"
	"time"

	"weir/model"
	"weir/spool"
	"weir/store"
)

// holed is a log of which some records cannot be read.
type holed struct {
	spool.Log
	first, last model.Offset
}

func (l *holed) Reader(from model.Offset) (spool.Reader, error) {
	r, err := l.Log.Reader(from)
	return &holedReader{r, l}, err
}

type holedReader struct {
	spool.Reader
	of *holed
}

func (r *holedReader) Next(ctx context.Context) (*spool.Batch, error) {
	return r.look(r.Reader.Next(ctx))
}
func (r *holedReader) TryNext() (*spool.Batch, error) { return r.look(r.Reader.TryNext()) }

func (r *holedReader) look(b *spool.Batch, err error) (*spool.Batch, error) {
	if b != nil && b.First <= r.of.last && b.Last() >= r.of.first {
		return nil, &spool.DamageError{File: "a.span", Offset: b.First, Next: r.of.last + 1, Reason: "a test"}
	}
	return b, err
}

// TestAHoleIsGonePastAndTheRegistryInsideItHolds: the records of the hole are lost and noted once, those behind it are
// judged by the registry that the hole has changed.
func TestAHoleIsGonePastAndTheRegistryInsideItHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1)
	_, control := w.log.Bounds()
	w.send(w.arrival(1, temp(20)))
	w.apply()
	before := w.ledger()[store.OutcomeStored]
	for range 2 {
		w.restart() // nothing is in a head: everything is read again
		a := w.newApplier(&holed{w.log, 1, control}, w.db)
		w.applier, w.control = a, a.deps.Controller
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		for !a.CaughtUp() {
			select {
			case err := <-done:
				t.Fatalf("the applier ended: %v", err)
			case <-time.After(time.Millisecond):
			}
		}
		end()
		w.must(<-done)
		if got := w.ledger(); got[store.OutcomeStored] != before || got[store.OutcomeDeadLetter] != 0 {
			t.Errorf("behind the hole: %v", got)
		}
		var losses []store.LogLoss
		w.must(w.db.Read(t.Context(), func(tx store.Tx) (err error) {
			losses, err = store.LogLosses(tx)
			return err
		}))
		if len(losses) != 1 || losses[0].First != 1 || losses[0].Last != control || losses[0].Why != "a.span: a test" {
			t.Errorf("noted: %+v", losses)
		}
	}
}

// TestALogWithChangesThatTheStoreNeverNumberedIsRefused: it belongs to a newer store.
func TestALogWithChangesThatTheStoreNeverNumberedIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1)
	w.restart()
	w.applier.deps.Changes = new(uint64(0))
	r, err := w.log.Reader(1)
	w.must(err)
	defer r.Close()
	b, err := r.TryNext()
	w.must(err)
	if err := w.applier.apply(t.Context(), b); err == nil {
		t.Fatal("applied")
	}
}
