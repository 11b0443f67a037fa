package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"time"

	"weir/backup"
	"weir/ingest"
	"weir/internal/dirlock"
	"weir/model"
	"weir/spool"
	"weir/store"
)

// Verification is what a recount of the ledger has found.
type Verification struct {
	Balanced bool         `json:"balanced"`
	Head     model.Offset `json:"head"` // newest record that the store contains
	Last     model.Offset `json:"last"` // newest record of the log
	Hours    int          `json:"hours"`
	Messages int64        `json:"messages"` // stored, recounted
	Readings int64        `json:"readings"`
	Waiting  int64        `json:"waiting"` // messages of the log that the store does not contain yet
	Wrongs   []Imbalance  `json:"wrongs"`
	// Unlisted is how many more there are.
	Unlisted int   `json:"unlisted,omitempty"`
	Gaps     []Gap `json:"gaps,omitempty"`
	// Untold is how many dead letters were counted and have left: nothing can be said of them any more.
	Untold int64 `json:"deadLettersLeft,omitempty"`
	// Expired is how many readings are short that retention accounts for.
	Expired int64 `json:"readingsExpired,omitempty"`
}

// Imbalance is one thing that does not balance. Messages and readings are missing when positive, too many when negative.
type Imbalance struct {
	Kind      string     `json:"kind"`
	Tenant    string     `json:"tenant,omitempty"`
	Transport string     `json:"transport,omitempty"`
	Hour      *time.Time `json:"hour,omitempty"`
	Row       string     `json:"row,omitempty"`
	Messages  int64      `json:"messages"`
	Readings  int64      `json:"readings"`
	Text      string     `json:"text"`
}

// VerifyStep is a look at a recount under way: how far it is, or what it has found.
type VerifyStep struct {
	Done  int64         `json:"done"` // rows
	All   int64         `json:"all"`
	Found *Verification `json:"found,omitempty"`
	Error string        `json:"error,omitempty"`
}

// deadSince is the first hour of which every dead letter must still be there.
func deadSince(retention time.Duration, now time.Time) int64 {
	if retention <= 0 {
		return 0
	}
	return model.NanosOf(now.Add(-retention)).Hour() + 1
}

func verificationOf(v *ingest.Verdict) *Verification {
	out := &Verification{Head: v.Checkpoint, Last: max(v.Last, v.Checkpoint), Hours: v.Lines, Messages: v.Messages, Readings: v.Readings, Waiting: v.Waiting,
		Unlisted: v.More, Untold: v.Removed, Expired: v.Expired, Wrongs: []Imbalance{}}
	for _, w := range v.Wrongs {
		out.Wrongs = append(out.Wrongs, imbalance(w))
	}
	out.Balanced = len(out.Wrongs) == 0
	return out
}

func imbalance(w ingest.Wrong) Imbalance {
	i := Imbalance{Kind: w.Kind, Tenant: w.Tenant, Transport: w.Transport, Row: w.Row, Messages: w.Messages, Readings: w.Readings, Text: w.Text}
	if w.Hour != 0 {
		i.Hour = new(time.Unix(w.Hour*3600, 0).UTC())
	}
	return i
}

// verifyLedger recounts a running instance.
func (o *Operator) verifyLedger(ctx context.Context, progress func(done, all int64)) (*Verification, error) {
	release := o.deps.Spool.HoldTrim() // before the checkpoint is read: the log after it must still be there
	defer release()
	v := &ingest.Verifier{Store: o.deps.Store.For(store.Bulk), DeadSince: deadSince(o.deps.Effective().History.DeadLetterRetention, time.Now()), Progress: progress,
		Batches: func(ctx context.Context, from model.Offset, f func(*spool.Batch) error) error {
			return ingest.LogBatches(ctx, o.deps.Spool, from, f)
		}}
	verdict, err := v.Verify(ctx)
	if err != nil {
		return nil, err
	}
	out := verificationOf(verdict)
	if out.Gaps, err = gapsOf(ctx, o.deps.Store); err != nil {
		return nil, err
	}
	return out, o.addLive(ctx, out)
}

// addLive adds the hours that do not balance in memory: what the applier has lost since the last checkpoint.
func (o *Operator) addLive(ctx context.Context, out *Verification) error {
	wrong, _, err := o.deps.Applier.Ledger().Imbalances(ctx)
	if err != nil {
		return err
	}
	for i := range wrong {
		e := ledgerEntry(&wrong[i])
		if slices.ContainsFunc(out.Wrongs, func(w Imbalance) bool {
			return w.Kind == ingest.WrongMessages && w.Hour != nil && w.Hour.Equal(e.Hour) && w.Tenant == e.Tenant && w.Transport == e.Transport
		}) {
			continue
		}
		out.Balanced = false
		out.Wrongs = append(out.Wrongs, Imbalance{Kind: ingest.WrongMessages, Tenant: e.Tenant, Transport: e.Transport, Hour: &e.Hour, Messages: e.Missing,
			Text: "received, and have no outcome (seen in memory, not yet in the store)"})
	}
	return nil
}

func gapsOf(ctx context.Context, st reader) (out []Gap, err error) {
	err = st.Read(ctx, func(tx store.Tx) error {
		gaps, err := store.LedgerGaps(tx, shownGaps)
		for _, g := range gaps {
			out = append(out, Gap{g.From.Time(), g.To.Time()})
		}
		return err
	})
	return out, err
}

// recount is a verification under way, as a stream of steps.
type recount struct {
	steps chan VerifyStep
	end   context.CancelFunc
}

// Recount is the recount of the ledger that runs, or the last one since the start.
type Recount struct {
	Started time.Time
	Ended   *time.Time // nil while it runs
	Done    int64      // rows
	All     int64
	Found   *Verification // nil while it runs, and where it failed
	Error   string        // why it failed
}

// recounts has at most one recount at a time: each keeps the store from shortening its write-ahead log.
type recounts struct {
	running sync.Mutex
	mu      sync.Mutex
	last    *Recount
}

var errRecounting = &model.Error{Code: model.CodeUnavailable, Message: "a recount is under way already", Hint: "wait for it to end"}

func (r *recounts) note(fn func(*Recount)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn(r.last)
}

// verify recounts, and keeps how far it is and what it has found. The caller holds running.
func (r *recounts) verify(ctx context.Context, recount func(context.Context, func(done, all int64)) (*Verification, error), progress func(done, all int64)) (*Verification, error) {
	r.mu.Lock()
	r.last = &Recount{Started: time.Now().UTC()}
	r.mu.Unlock()
	found, err := recount(ctx, func(done, all int64) {
		r.note(func(now *Recount) { now.Done, now.All = done, all })
		progress(done, all)
	})
	r.note(func(now *Recount) {
		now.Ended, now.Found = new(time.Now().UTC()), found
		if err != nil {
			now.Found, now.Error = nil, err.Error()
		}
	})
	return found, err
}

// StartRecount begins a recount of the ledger and returns: LastRecount says how far it is.
func (o *Operator) StartRecount() error {
	if !o.recounts.running.TryLock() {
		return errRecounting
	}
	begun := make(chan struct{})
	o.deps.Aside(func(life context.Context) {
		defer o.recounts.running.Unlock()
		_, _ = o.recounts.verify(life, func(ctx context.Context, progress func(done, all int64)) (*Verification, error) { // it is kept
			close(begun)
			return o.verifyLedger(ctx, progress)
		}, func(int64, int64) {})
	})
	<-begun
	return nil
}

// LastRecount is the recount that runs, or the last one since the start; nil for none.
func (o *Operator) LastRecount() *Recount {
	o.recounts.mu.Lock()
	defer o.recounts.mu.Unlock()
	if o.recounts.last == nil {
		return nil
	}
	return new(*o.recounts.last)
}

// openRecount begins a recount.
func (o *Operator) openRecount(ctx context.Context, _ None) (source[VerifyStep], error) {
	if !o.recounts.running.TryLock() {
		return nil, errRecounting
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &recount{steps: make(chan VerifyStep, 1), end: cancel}
	o.deps.Background(func() {
		defer o.recounts.running.Unlock()
		r.run(ctx, func(ctx context.Context, progress func(done, all int64)) (*Verification, error) {
			return o.recounts.verify(ctx, o.verifyLedger, progress)
		})
	})
	return r, nil
}

func (r *recount) run(ctx context.Context, verify func(context.Context, func(done, all int64)) (*Verification, error)) {
	defer close(r.steps)
	found, err := verify(ctx, func(done, all int64) {
		select {
		case r.steps <- VerifyStep{Done: done, All: all}:
		default: // the peer has not read the last one yet
		}
	})
	last := VerifyStep{Found: found}
	if err != nil {
		last = VerifyStep{Error: err.Error()}
	}
	select {
	case r.steps <- last:
	case <-ctx.Done():
	}
}

// Next implements source.
func (r *recount) Next(ctx context.Context) (VerifyStep, error) {
	select {
	case s, open := <-r.steps:
		if !open {
			return s, io.EOF
		}
		return s, nil
	case <-ctx.Done():
		return VerifyStep{}, ctx.Err()
	}
}

// Close implements source.
func (r *recount) Close() { r.end() }

// RecountVerb is a recount of the ledger as a stream of its progress.
type RecountVerb struct{ StreamVerb[None, VerifyStep] }

// Ask recounts what is stored and reports to progress how far it is.
func (v *RecountVerb) Ask(ctx context.Context, to Target, progress func(done, all int64)) (*Verification, error) {
	c, running := to.(*Client)
	if !running {
		return to.(*Directory).verifyLedger(ctx, progress)
	}
	s, err := v.Follow(ctx, c, None{})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for {
		step, err := s.Next(ctx)
		switch {
		case err != nil:
			return nil, err
		case step.Error != "":
			return nil, errors.New(step.Error)
		case step.Found != nil:
			return step.Found, nil
		}
		progress(step.Done, step.All)
	}
}

// verifyLedger recounts a data directory in which nothing runs. Nothing in it is changed; the lock is held meanwhile.
func (d *Directory) verifyLedger(ctx context.Context, progress func(done, all int64)) (_ *Verification, err error) {
	cfg := d.Config
	if !Exists(cfg) {
		return nil, notRunning(cfg.DataDir)
	}
	lock, err := dirlock.Acquire(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	st, err := d.Wiring.InspectStore(ctx, DBPath(cfg.DataDir))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if st.Pending() > 0 {
		return nil, &model.Error{Code: model.CodeUnavailable, Message: "the directory was written by an older Weir",
			Hint: "start this one on it once, or recount it with the one that wrote it"}
	}
	if err := d.sameLog(ctx, st); err != nil {
		return nil, err
	}
	v := &ingest.Verifier{Store: storeReader{st}, DeadSince: deadSince(cfg.History.DeadLetterRetention, time.Now()), Progress: progress,
		Batches: func(ctx context.Context, from model.Offset, f func(*spool.Batch) error) error {
			return d.Wiring.WalkLog(ctx, SpoolPath(cfg.DataDir), from, f)
		}}
	verdict, err := v.Verify(ctx)
	if err != nil {
		return nil, err
	}
	out := verificationOf(verdict)
	out.Gaps, err = gapsOf(ctx, st)
	return out, err
}

// sameLog refuses a log that belongs to another store: nothing of the two could be compared.
func (d *Directory) sameLog(ctx context.Context, st backup.Inspector) error {
	var pair [16]byte
	var paired bool
	if err := st.Read(ctx, func(tx store.Tx) (err error) {
		pair, paired, err = store.PairID(tx)
		return err
	}); err != nil || !paired {
		return err
	}
	ended, cancel := context.WithCancel(ctx)
	cancel() // no batch needs to be read for the id
	inv, err := d.Wiring.InspectLog(ended, SpoolPath(d.Config.DataDir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case inv.PairID != pair:
		return fmt.Errorf("%w: bring log and store back from the same copy", spool.ErrForeign)
	}
	return nil
}
