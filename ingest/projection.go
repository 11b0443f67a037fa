package ingest

import (
	"context"
	"slices"

	"weir/ingest/view"
	"weir/model"
	"weir/rules"
	"weir/series"
	"weir/store"
)

// Projection is one result of the log: what it means that a record was applied, how that is kept, and how it is found
// again. A projection is a function of the records up to an offset and of what its own rows held at the checkpoint before;
// it asks no wall clock, no randomness and no network, so that a replay of the same records gives the same rows.
//
// What others must see at once goes into the transaction of the batch (Effects.Step). It is written again by a replay, so it
// must be harmless then: unique by offset, or compared with what is there. What is cheap to rebuild waits in memory and is
// written with a checkpoint:
//
//	Record … Record ─ Freeze ─► Write ─► Publish ─► Release
//	                  (applier) (another goroutine, while Record goes on)
//
// A process may end between any two of these steps. Before Publish is committed, nothing that Write left may be seen by a
// reader, and Write removes what an attempt before it left. After that commit the log before the checkpoint may go.
//
// Embed ProjectionBase and define the steps that the result needs.
type Projection interface {
	// Load takes in what the store holds as of the checkpoint, before the first record.
	Load(tx store.Tx, at Checkpoint) error
	// Record takes in a resolved record: a message whatever its outcome, a presence transition that counts, or a change of
	// the metadata. e is valid until Record returns.
	Record(ctx context.Context, e *Event, out *Effects) error
	// RemoveDevice removes what is alive of the device e.DeviceID, which the change e.Change has ended. History stays.
	RemoveDevice(ctx context.Context, e *Event, out *Effects) error
	// Freeze sets aside what waits in memory, as of the checkpoint to be written.
	Freeze(at Checkpoint)
	// Write writes what was set aside under the generation of that checkpoint, which no reader sees yet. It is called again
	// when it or Publish has failed.
	Write(ctx context.Context, write WriteFunc) error
	// Publish is the projection's part of the small durable transaction that moves the checkpoint. It may be called again.
	Publish(tx store.Tx) error
	// Release drops what was set aside and removes the rows that the published ones replace. After an error the next
	// checkpoint removes them.
	Release(ctx context.Context, write WriteFunc) error
}

// Pending is implemented by a projection that may hold much in memory: a checkpoint is due when all of them together pass a
// bound.
type Pending interface {
	// PendingBytes is the memory of what waits to be frozen. It must follow from the records since the last Freeze.
	PendingBytes() int64
}

// Timed is implemented by a projection that acts as listening time passes.
type Timed interface {
	// Advance is called before each record, of any kind, with its position.
	Advance(at rules.Position, out *Effects)
	// Due is the listening time at which it acts next, 0 for never: a record is appended then if none arrives.
	Due() rules.Listening
}

// EdgeFollower is implemented by a projection that follows the edges of rules.
type EdgeFollower interface {
	// Edges takes in the edges of a batch that were not there yet, those of records, timers and removals, in the transaction that stores
	// them. It runs again when the transaction is tried again, and not again once it is committed: a replay finds the edges there.
	Edges(tx store.Tx, edges []model.Edge) error
}

// WriteFunc runs a function in one transaction of the store that takes a few milliseconds.
type WriteFunc func(func(store.Tx) error) error

// ProjectionBase is a projection that does nothing in any step.
type ProjectionBase struct{}

func (ProjectionBase) Load(store.Tx, Checkpoint) error                      { return nil }
func (ProjectionBase) Record(context.Context, *Event, *Effects) error       { return nil }
func (ProjectionBase) RemoveDevice(context.Context, *Event, *Effects) error { return nil }
func (ProjectionBase) Freeze(Checkpoint)                                    {}
func (ProjectionBase) Write(context.Context, WriteFunc) error               { return nil }
func (ProjectionBase) Publish(store.Tx) error                               { return nil }
func (ProjectionBase) Release(context.Context, WriteFunc) error             { return nil }

var _ Projection = ProjectionBase{}

// results are the projections of Weir. Those with a field are asked by resolution or from outside.
type results struct {
	metadata *metadataProjection
	readings *seriesProjection
	presence *presenceProjection
	rules    *ruleProjection
	activity *activityProjection
	seen     *seenProjection
	ledger   *ledgerProjection
	spans    *spanProjection
	dead     *deadLetterProjection

	all       []Projection   // in the order in which they record, write and publish
	pending   []Pending      // of them
	timed     []Timed        // of them
	followers []EdgeFollower // of them
	alarms    Alarms         // of them; nil: rules perform no action
}

// newResults makes the list of projections: what is added to it is a result of the log.
func newResults(cfg *ApplyConfig, deps *ApplyDeps, m *applyMetrics, retry *retrier) *results {
	r := &results{
		alarms:   alarmsOf(deps.Projections),
		metadata: newMetadataProjection(deps, retry),
		activity: newActivityProjection(),
		ledger:   newLedgerProjection(m),
		seen:     newSeenProjection(cfg, m),
		readings: &seriesProjection{series: deps.Series, retry: retry},
		presence: newPresenceProjection(deps.Store, retry),
	}
	r.rules = newRuleProjection(deps, r.metadata, r.alarms, cfg.RestartGrace, m)
	r.spans = newSpanProjection(deps.Rules)
	r.dead = newDeadLetterProjection(cfg, m)
	r.all = append([]Projection{
		r.metadata, // before rules, whose state refers to it
		r.readings,
		&eventProjection{answers: deps.Answers, ordered: deps.Ordered, dead: r.dead},
		r.presence,
		r.rules,
		r.activity,
		r.seen,
		r.dead,
		r.ledger,
		r.spans,
	}, deps.Projections...)
	// Sort out once which of them have optional parts.
	for _, p := range r.all {
		if p, ok := p.(Pending); ok {
			r.pending = append(r.pending, p)
		}
		if p, ok := p.(Timed); ok {
			r.timed = append(r.timed, p)
		}
		if p, ok := p.(EdgeFollower); ok {
			r.followers = append(r.followers, p)
		}
	}
	return r
}

// RemoveDeviceRows removes what is alive of a device among the results' rows. The transaction that deletes the device runs it,
// also where no applier does; the projections remove it again when its change is applied (Projection.RemoveDevice).
func RemoveDeviceRows(tx store.Tx, _, device int64) error {
	if err := store.DeleteDeviceState(tx, device); err != nil {
		return err
	}
	return store.DeleteLatest(tx, device)
}

// advance lets listening time pass up to the position of a record.
func (r *results) advance(at rules.Position, out *Effects) {
	for _, p := range r.timed {
		p.Advance(at, out)
	}
}

// due is the listening time at which a projection acts next, 0 for never.
func (r *results) due() (due rules.Listening) {
	for _, p := range r.timed {
		if d := p.Due(); d != 0 && (due == 0 || d < due) {
			due = d
		}
	}
	return due
}

// record lets every projection take in an event.
func (r *results) record(ctx context.Context, e *Event, out *Effects) error {
	for _, p := range r.all {
		if err := p.Record(ctx, e, out); err != nil {
			return err
		}
	}
	return nil
}

// removeDevice lets every projection remove a device.
func (r *results) removeDevice(ctx context.Context, e *Event, out *Effects) error {
	for _, p := range r.all {
		if err := p.RemoveDevice(ctx, e, out); err != nil {
			return err
		}
	}
	return nil
}

// pendingBytes is the memory of what waits to be written.
func (r *results) pendingBytes() (n int64) {
	for _, p := range r.pending {
		n += p.PendingBytes()
	}
	return n
}

// Event is a record as the projections see it, resolved once: its names against the metadata as of its offset, its times
// against the limits, its outcome against what was seen before. It belongs to the applier, which uses it again for the next.
type Event struct {
	At     rules.Position
	Record *model.Record // nil for a change that lay in a gap of the log; its receive time is resolved

	// Row ids of what the record's names mean, 0 where they mean nothing.
	TenantID, DeviceID, DeviceType, ProfileID int64
	profile                                   *view.Profile   // active version of the device's profile, nil for none
	anchors                                   *view.AnchorSet // of the device, nil for none
	newAnchors                                bool            // this event bears them first

	// Outcome of a message, "" for everything else, and why it is not store.OutcomeStored.
	Outcome store.Outcome
	Reason  Reason
	Why     string
	// Occurred is the event time of each entry of a stored message: of its measurements, locations or alerts.
	Occurred []model.Micros
	// SetAside are the readings of a stored message that a series limit kept out: its Record lacks them.
	SetAside []model.Reading
	// OutOfRange is how many readings of a stored message were outside their range: they have a mark.
	OutOfRange int
	outside    bool     // a value is outside its range, which does not refuse it
	stored     bool     // the outcome is store.OutcomeStored
	repeat     bool     // a repeat of the transport, which is not remembered again
	firing     bool     // an edge of a rule that a site has judged, which was not known
	causing    bool     // a message whose outcome is that of the change of the registry which it causes
	altID      [16]byte // hash of the key, of a message with an altId that may be stored

	// Transition is what a presence record changes.
	Transition *Transition
	// Change is one change of the metadata; a record with several is an event for each.
	Change *MetadataChange
}

// Stored reports whether the event is a message that is kept, or a device report that is applied.
func (e *Event) Stored() bool { return e.stored }

// kept returns the message that is kept, nil when the event is none.
func (e *Event) kept() *model.Message {
	if !e.stored {
		return nil
	}
	return e.Record.Message
}

// Effects is what one batch leaves in the store at once. It may be lost in a power cut: the log is kept until a checkpoint
// that was synced holds what follows from it.
type Effects struct {
	sequence  uint64 // newest metadata change that the batch made effective
	steps     []func(store.Tx) error
	edges     []model.Edge
	fresh     []model.Edge   // edges that were not there yet
	acts      acts           // what the actions of edges come to
	followers []EdgeFollower // take the fresh edges
	watched   func() bool    // whether a client waits for points; nil: none does
	points    []series.Point
	endings   []ending // while a client watches
}

// Step adds a part to the transaction of the batch. It runs again when the transaction is tried again.
func (e *Effects) Step(f func(store.Tx) error) { e.steps = append(e.steps, f) }

// Edge adds an edge: it is kept in the transaction of the batch, once, and subscribers get it after the commit.
func (e *Effects) Edge(edge model.Edge) { e.edges = append(e.edges, edge) }

// Readings adds readings that subscribers get after the commit. They are copied.
func (e *Effects) Readings(points []series.Point) {
	if e.watched != nil && e.watched() {
		e.points = append(e.points, points...)
	}
}

// leave takes out the edges of a record, the newest, and what their actions come to: what a record fires is stored at once, and is
// known by its offset then.
func (e *Effects) leave(at model.Offset) (fired Effects) {
	// They are the newest, and all at the end.
	fired.edges = cutTail(&e.edges, func(x *model.Edge) bool { return x.ID.Offset < at })
	fired.acts.alarms = e.acts.alarms
	fired.acts.contributions = cutTail(&e.acts.contributions, func(x *model.Contribution) bool { return x.Edge.Offset < at })
	fired.acts.orders = cutTail(&e.acts.orders, func(x *model.Order) bool { return x.Edge.Offset < at })
	fired.acts.stale = cutTail(&e.acts.stale, func(x *staleAction) bool { return x.edge.Offset < at })
	return fired
}

// cutTail removes what follows the last that stays, and returns a copy of it.
func cutTail[T any](all *[]T, stays func(*T) bool) []T {
	n := len(*all)
	for n > 0 && !stays(&(*all)[n-1]) {
		n--
	}
	tail := slices.Clone((*all)[n:])
	*all = (*all)[:n]
	return tail
}

// take puts in what leave has taken out. Nothing is in yet.
func (e *Effects) take(fired Effects) { e.edges, e.acts = append(e.edges, fired.edges...), fired.acts }

func (e *Effects) empty() bool { return len(e.steps) == 0 && len(e.edges) == 0 && e.acts.empty() }

// write runs inside the transaction, again when an attempt before it failed.
func (e *Effects) write(tx store.Tx) (err error) {
	for _, f := range e.steps {
		if err := f(tx); err != nil {
			return err
		}
	}
	if err := e.writeEdges(tx); err != nil {
		return err
	}
	return e.acts.write(tx)
}

// writeEdges stores the edges, and lets those who follow them see which of them are new.
func (e *Effects) writeEdges(tx store.Tx) (err error) {
	if len(e.edges) == 0 {
		return nil
	}
	// A replay finds the edges there: followers see each only once.
	e.fresh, err = store.AddEdges(tx, e.edges)
	if err != nil || len(e.fresh) == 0 {
		return err
	}
	for _, f := range e.followers {
		if err := f.Edges(tx, e.fresh); err != nil {
			return err
		}
	}
	return nil
}
