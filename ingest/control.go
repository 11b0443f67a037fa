package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/faults"
	"weir/model"
	"weir/spool"
	"weir/store"
)

// controlWait is how long a mutation waits for Apply to pass its record before it returns with the change stored.
const controlWait = time.Second

// Controller appends metadata changes to the log: the rows that transactions left in the control table, in sequence, as many at once
// as wait. It removes them once they are synced. A crash between the two appends a row twice; Apply ignores
// a sequence that it has seen.
type Controller struct {
	store  store.Store
	log    spool.Log
	stamp  func() model.Stamp
	logger *slog.Logger
	nudge  chan struct{}
	weak   atomic.Uint64 // the last sequence that was committed with results, which a power cut may take back
	began  bool          // Drain has made durable what the process before this one left

	mu      sync.Mutex
	follows bool // the applier has applied what was there at the start: it passes a record as soon as it is appended
	passed  uint64
	waiting map[uint64][]chan struct{}
}

// NewController returns a controller. passed is the highest sequence that the results already contain.
func NewController(st store.Store, log spool.Log, stamp func() model.Stamp, logger *slog.Logger) *Controller {
	return &Controller{
		store:   st,
		log:     log,
		stamp:   stamp,
		logger:  logger,
		nudge:   make(chan struct{}, 1),
		waiting: map[uint64][]chan struct{}{},
	}
}

// Run appends control rows until ctx ends. A log that refuses is tried again: control rows wait in the store.
func (c *Controller) Run(ctx context.Context) error {
	const retry = time.Second
	for {
		if err := c.Drain(ctx); err != nil && ctx.Err() == nil {
			c.logger.Error("a change of the registry cannot be appended to the log; it is tried again", "error", err, "retry", retry.String())
			select {
			case <-time.After(retry):
			case <-ctx.Done():
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.nudge:
		}
	}
}

// maxGathered is how many control rows one append gathers, and about how many bytes; with the last row it stays below
// spool.MaxGroup.
const (
	maxGathered      = spool.MaxGroupEntries
	maxGatheredBytes = spool.MaxGroup - spool.MaxRecord
)

// Drain appends what is in the control table now; one call at a time. What waits there together is appended and synced together. The listeners open
// after it, so that no reading overtakes a change that was made while nothing ran or by the files of a site.
func (c *Controller) Drain(ctx context.Context) error {
	for {
		var rows []model.Control
		err := c.store.Read(ctx, func(tx store.Tx) (err error) {
			rows, err = store.PendingControl(tx, 0, maxGathered)
			return err
		})
		// A change is appended with all its parts or not at all.
		if rows = wholeSequences(rows); err != nil || len(rows) == 0 {
			return err
		}
		// The store must have the rows for good before the log has them.
		if err := c.makeDurable(ctx, rows); err != nil {
			return err
		}
		for rest := rows; len(rest) > 0; {
			if rest, err = c.append(ctx, rest); err != nil {
				return err
			}
		}
		faults.Point("control.appended")
		// While a start replays, mutations return here.
		c.appended(rows[len(rows)-1].Sequence)
		// Only after the sync: a crash before it appends the rows again.
		if err := c.remove(ctx, rows); err != nil {
			return err
		}
		faults.Point("control.removed")
	}
}

// makeDurable makes rows durable that may not be so. The log must hold no change that a power cut takes back from the store: its sequence
// would be given to another change, and a start would find a log with a change that the store never numbered.
func (c *Controller) makeDurable(ctx context.Context, rows []model.Control) error {
	if c.began && rows[0].Sequence > c.weak.Load() {
		return nil
	}
	// A durable transaction makes everything before it durable, too.
	err := c.store.Write(ctx, store.Durable, func(tx store.Tx) error {
		return store.NoteControlDurable(tx, rows[len(rows)-1].Sequence)
	})
	c.began = c.began || err == nil
	return err
}

// noteUndurable notes that rows up to a sequence are about to be committed with results.
func (c *Controller) noteUndurable(sequence uint64) { c.weak.Store(sequence) }

// wholeSequences leaves out the parts at the end whose last part is not there. A sequence has fewer parts than are gathered.
func wholeSequences(rows []model.Control) []model.Control {
	for n := len(rows); n > 0; n-- {
		if rows[n-1].Part == rows[n-1].Parts-1 {
			return rows[:n]
		}
	}
	return nil
}

// append appends the first rows in one batch of the log, waits until it is synced and returns the others.
func (c *Controller) append(ctx context.Context, rows []model.Control) (rest []model.Control, err error) {
	synced := make(chan error, 1)
	var group []spool.Entry
	for bytes := 0; len(group) < min(len(rows), maxGathered) && bytes < maxGatheredBytes; {
		r := &model.Record{Kind: model.KindControl, Received: c.stamp(), Control: &rows[len(group)]}
		// Exempt from the bound of the log: a change is taken while messages are refused.
		e := spool.Entry{Data: model.AppendRecord(nil, r), Value: r, Exempt: true, Done: func(model.Offset, error) {}}
		group, bytes = append(group, e), bytes+len(e.Data)
	}
	group[len(group)-1].Done = func(_ model.Offset, err error) { synced <- err } // all are stored, or none
	if err := c.log.Append(ctx, group...); err != nil {
		return nil, err
	}
	return rows[len(group):], <-synced
}

// remove removes rows that are in the log. It need not be durable: a row that is back after a crash is appended twice.
func (c *Controller) remove(ctx context.Context, rows []model.Control) error {
	return c.store.Write(ctx, store.Results, func(tx store.Tx) error {
		return store.RemoveControl(tx, rows[len(rows)-1].Sequence)
	})
}

// follow notes that the applier has applied what was there at the start.
func (c *Controller) follow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.follows = true
}

// appended notes that a sequence is in the log. While the applier replays what was there at the start that is all a mutation
// waits for: whatever comes in afterwards is judged after it.
func (c *Controller) appended(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.follows {
		c.pass(seq)
	}
}

// Passed notes that Apply has passed a sequence.
func (c *Controller) Passed(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pass(seq)
}

// pass lets the mutations go on that wait for a sequence. It needs the lock.
func (c *Controller) pass(seq uint64) {
	c.passed = max(c.passed, seq)
	for s, chans := range c.waiting {
		if s <= seq {
			for _, ch := range chans {
				close(ch)
			}
			delete(c.waiting, s)
		}
	}
}

// Mutate implements store.Writer on a running instance: it runs fn in one durable transaction and returns when Apply has
// passed the change's record, or after a second with the change stored. While a start is replayed it returns once the record
// is in the log.
func (c *Controller) Mutate(ctx context.Context, by *model.Principal, fn func(*store.Change) error) error {
	seq, err := store.Mutate(ctx, c.store, by, func() time.Time { return c.stamp().Wall.Time() }, fn)
	if err != nil || seq == 0 {
		return err
	}
	faults.Point("control.stored")
	c.wake()
	// Returning early is no error: the change is stored and will be applied.
	select {
	case <-c.reached(seq):
	case <-time.After(controlWait):
	case <-ctx.Done():
	}
	return nil
}

var _ store.Writer = (*Controller)(nil)

// wake lets Run look for rows in the control table.
func (c *Controller) wake() {
	select {
	case c.nudge <- struct{}{}:
	default:
	}
}

func (c *Controller) reached(seq uint64) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := make(chan struct{})
	// It may have been passed before the caller came to wait.
	if seq <= c.passed {
		close(ch)
		return ch
	}
	c.waiting[seq] = append(c.waiting[seq], ch)
	return ch
}

// open reports whether parts of a sequence are still missing.
func (p *parts) open() bool { return p.next > 0 }

// ControlParts gathers the changes of the registry that a log holds, for another reader than the applier. The zero value begins anywhere.
type ControlParts struct{ parts }

// Add takes the next part, and returns the changes with the last one of a sequence. A sequence of which a part was not seen is left out.
func (p *ControlParts) Add(c *model.Control) []model.ViewChange {
	if p.next == 0 && c.Part != 0 {
		return nil
	}
	changes, _, err := p.add(c)
	if err != nil {
		p.parts = parts{}
		return nil
	}
	return changes
}

// parts gathers the parts of a control sequence until the last one is there.
type parts struct {
	seq  uint64
	next uint16
	body []byte
	lost bool // the log has a gap here: parts whose first one is missing are no error
}

// add takes one part. complete is true with the last; a part that does not follow is an error, a first part begins again.
func (p *parts) add(c *model.Control) (changes []model.ViewChange, complete bool, err error) {
	// After a gap the rest of a change whose beginning is lost is skipped.
	if p.lost && c.Part != 0 {
		return nil, false, nil
	}
	// A first part begins again: a crash may have ended the sequence before its last part.
	if c.Part == 0 {
		*p = parts{seq: c.Sequence}
	}
	if c.Sequence != p.seq || c.Part != p.next {
		return nil, false, fmt.Errorf("metadata change %d part %d does not follow part %d of %d", c.Sequence, c.Part, int(p.next)-1, p.seq)
	}
	p.next++
	p.body = append(p.body, c.Body...)
	if p.next < c.Parts {
		return nil, false, nil
	}
	// The last part completes the body.
	if changes, err = store.DecodeViewChanges(p.body); err != nil {
		return nil, false, fmt.Errorf("metadata change %d: %w", c.Sequence, err)
	}
	*p = parts{}
	return changes, true, nil
}
