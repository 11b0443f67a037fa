package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"weir/ingest/view"
	"weir/model"
	"weir/rules"
	"weir/store"
	"weir/store/caused"
)

// viewControlSequence is the kind of the row that holds the newest sequence of changes that is effective.
const viewControlSequence model.ViewKind = "control-sequence"

// metadataProjection is the metadata view: what records are resolved against, as of an offset. Metadata changes in the log
// move it and nothing else does. A row says from and up to which offset it is effective. It also numbers the sets of anchors
// that events bear, in the order of the log.
type metadataProjection struct {
	ProjectionBase
	queries  store.Store
	store    store.Store // with readers of the applier's own
	retry    *retrier
	mu       sync.RWMutex // the applier alone changes the view, and reads it without
	view     *view.View
	sequence uint64 // newest that is effective
	lastSet  int64  // highest number of a set of anchors
	held     atomic.Int64
	parts    parts
	at       model.Offset // of the checkpoint that is written
}

func newMetadataProjection(deps *ApplyDeps, retry *retrier) *metadataProjection {
	return &metadataProjection{queries: deps.Queries, store: deps.Store, retry: retry, view: view.New()}
}

// Load implements Projection.
func (m *metadataProjection) Load(tx store.Tx, at Checkpoint) (err error) {
	if m.lastSet, err = store.LastAnchorSet(tx); err != nil {
		return err
	}
	if m.view, m.sequence, err = loadMetadata(tx, at.Offset); err == nil {
		m.held.Store(m.view.Memory())
	}
	return err
}

// MetadataBytes is about how much memory the metadata view takes.
func (a *Applier) MetadataBytes() int64 { return a.results.metadata.held.Load() }

// loadMetadata reads the view as of an offset, and the newest sequence that is effective there.
func loadMetadata(tx store.Tx, at model.Offset) (v *view.View, sequence uint64, err error) {
	v = view.New()
	err = store.ViewAsOf(tx, at, func(r store.ViewRow) (err error) {
		if r.Kind == viewControlSequence {
			sequence, err = strconv.ParseUint(string(r.Body), 10, 64)
			return err
		}
		_, err = v.Set(r.Kind, r.Key, r.Body)
		return err
	})
	return v, sequence, err
}

// set applies one change to the view and returns the change as the projections need it.
func (m *metadataProjection) set(c *model.ViewChange) (*MetadataChange, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change, err := m.view.Set(c.Kind, c.Key, c.Body)
	if err != nil {
		return nil, err
	}
	m.held.Store(m.view.Memory())
	return &MetadataChange{Change: *change}, nil
}

// stamp returns what the events of a device bear.
func (m *metadataProjection) stamp(what view.Resolved) *view.AnchorSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.Stamp(what.Tenant.ID, what.Device.ID)
}

// Record implements Projection: it writes the row of a change, and that of a set of anchors which an event bears first.
func (m *metadataProjection) Record(_ context.Context, e *Event, out *Effects) error {
	if c := e.Change; c != nil && !c.stored {
		kind := c.Kind
		key := c.Key
		body := c.Body
		from := e.At.Offset
		at := e.At.Received.Micros()
		out.Step(func(tx store.Tx) error { return store.SetView(tx, kind, key, body, from, at) })
	}
	if e.newAnchors {
		row := anchorRow(e.anchors)
		out.Step(func(tx store.Tx) error { return store.InsertAnchorSet(tx, row) })
	}
	return nil
}

func anchorRow(s *view.AnchorSet) store.AnchorSet {
	return store.AnchorSet{Number: s.Number, TenantID: s.TenantID, Members: s.Members, Anchors: s.Anchors}
}

// Registrar changes the registry as messages of devices say. Its functions take part in the change that ctx belongs to. A
// *model.Error refuses the message; any other error is a fault. by is the device, with its tenant.
type Registrar interface {
	// Report sets and removes CLIENT attributes of a device, by its row id.
	Report(ctx context.Context, by *model.Principal, device int64, r *model.Report) error
	// Relate relates a device to what r names; token is that of the new relationship.
	Relate(ctx context.Context, by *model.Principal, device int64, token string, r *model.Relationship) error
}

// cause makes the change of the registry that a message causes, once: a replay finds how it ended. logged is the
// sequence of rows of the view that went into the control table, too, because another change is on its way through the log; 0 for none.
//
// What the disk refuses is tried again with the commit, it says nothing about the message.
func (m *metadataProjection) cause(tx store.Tx, r Registrar, e *Event) (made caused.Ending, logged uint64, err error) {
	// A replay must not change the registry again: it takes the ending from then.
	known, err := caused.Known(tx, e.At.Offset)
	switch {
	case err != nil:
		return made, 0, err
	case known != nil:
		return *known, 0, nil
	case r == nil:
		return caused.Ending{Reason: string(ReasonNoConsumer), Why: "nothing here keeps attributes and relationships"}, 0, nil
	}
	rec := e.Record
	// The change is made in the name of the device.
	by := model.Service("device:"+rec.Device, rec.Tenant, e.TenantID, model.DeviceRead, model.DeviceWrite)
	made.Views, logged, err = store.Within(tx, by, rec.Received.Wall.Micros(), m.sequence, func(c *store.Change) error {
		if rec.Kind == model.KindDeviceReport {
			return r.Report(c.Context(), by, e.DeviceID, rec.Report)
		}
		return r.Relate(c.Context(), by, e.DeviceID, fmt.Sprintf("event-%d-%d", e.At.Epoch, e.At.Offset), rec.Message.Relationship)
	})
	// The registry refuses the message, which becomes a dead letter. Other errors are tried again.
	if refused, ok := errors.AsType[*model.Error](err); ok && !errors.Is(err, store.ErrFull) && !errors.Is(err, store.ErrUnwritable) {
		made, err = caused.Ending{Reason: string(reasonOf(refused)), Why: refused.Message}, nil
	}
	if err == nil {
		// Noted with the change, in one transaction.
		err = caused.Note(tx, e.At.Offset, &made)
	}
	return made, logged, err
}

// reasonOf is why a message is a dead letter whose change the registry refuses.
func reasonOf(refused *model.Error) Reason {
	switch refused.Code {
	case model.CodeLimitExceeded, model.CodeUnavailable, model.CodeThrottled:
		return ReasonOverLimit
	}
	return ReasonRelationship
}

// Publish implements Projection: no replay meets again what lies before the checkpoint.
func (m *metadataProjection) Publish(tx store.Tx) error { return caused.Remove(tx, m.at) }

// Freeze implements Projection. What was recorded is committed.
func (m *metadataProjection) Freeze(at Checkpoint) {
	m.at = at.Offset
	m.dropAnchorSets()
}

// committed notes that what was recorded is committed.
func (m *metadataProjection) committed() {
	if m.view.StampsAreMany() {
		m.dropAnchorSets()
	}
	m.held.Store(m.view.Memory())
}

func (m *metadataProjection) dropAnchorSets() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.view.DropAnchorSets()
}

// number gives the anchors of a stored event their number: that of the same set in the store, or the next one, which its row is
// yet to be written for.
func (m *metadataProjection) number(ctx context.Context, e *Event) error {
	s := e.anchors
	if s == nil || s.Number != 0 {
		return nil
	}
	// Read outside of the lock: queries need it.
	var number int64
	if err := m.retry.until(ctx, "the anchors of a device cannot be read", func() error {
		return m.store.Read(ctx, func(tx store.Tx) (err error) {
			number, err = store.FindAnchorSet(tx, s.TenantID, s.Members)
			return err
		})
	}); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// The set is new; its row is written with the event.
	if number == 0 {
		m.lastSet++
		number, e.newAnchors = m.lastSet, true
	}
	s.Number = number
	return nil
}

// AnchorsOf returns the anchors of some of a tenant's sets, by their number.
func (a *Applier) AnchorsOf(ctx context.Context, tenantID int64, sets []int64) (map[int64][]model.Anchor, error) {
	return a.results.metadata.anchorsOf(ctx, tenantID, sets)
}

// AnchorSetsWith returns the numbers of a tenant's sets that an anchor is in, sorted.
func (a *Applier) AnchorSetsWith(ctx context.Context, tenantID int64, anchor model.Anchor) ([]int64, error) {
	return a.results.metadata.setsWith(ctx, tenantID, anchor)
}

// anchorsOf looks into the view before it looks into the store: a set leaves the view only after it is committed, so what is no longer
// in the view is in the store by then. The other way round, a set that is committed and dropped in between would be in neither.
func (m *metadataProjection) anchorsOf(ctx context.Context, tenantID int64, sets []int64) (found map[int64][]model.Anchor, err error) {
	if len(sets) == 0 {
		return nil, nil
	}
	found = map[int64][]model.Anchor{}
	m.numbered(tenantID, func(s *view.AnchorSet) {
		if slices.Contains(sets, s.Number) {
			found[s.Number] = s.Anchors
		}
	})
	// Most sets are in memory.
	if len(found) == len(sets) {
		return found, nil
	}
	err = m.queries.Read(ctx, func(tx store.Tx) error {
		stored, err := store.AnchorsOf(tx, tenantID, sets)
		maps.Copy(found, stored)
		return err
	})
	return found, err
}

// setsWith looks in the order of anchorsOf.
func (m *metadataProjection) setsWith(ctx context.Context, tenantID int64, anchor model.Anchor) (sets []int64, err error) {
	m.numbered(tenantID, func(s *view.AnchorSet) {
		if slices.Contains(s.Anchors, anchor) {
			sets = append(sets, s.Number)
		}
	})
	err = m.queries.Read(ctx, func(tx store.Tx) error {
		stored, err := store.AnchorSetsWith(tx, tenantID, anchor)
		sets = append(sets, stored...)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(sets)
	return slices.Compact(sets), nil
}

// numbered calls f with the sets of a tenant in the view that have a number: an event can be queried a moment before its set is committed.
func (m *metadataProjection) numbered(tenantID int64, f func(*view.AnchorSet)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	m.view.AnchorSets(func(s *view.AnchorSet) {
		if s.TenantID == tenantID && s.Number != 0 {
			f(s)
		}
	})
}

// passed notes that all changes of a sequence are effective from a record on.
func (m *metadataProjection) passed(sequence uint64, from rules.Position, out *Effects) {
	m.sequence, out.sequence = sequence, sequence
	body := strconv.AppendUint(nil, sequence, 10)
	out.Step(func(tx store.Tx) error {
		return store.SetView(tx, viewControlSequence, "", body, from.Offset, from.Received.Micros())
	})
}

// reload takes the view as the store knows it at an offset, and returns how the profiles have changed since: the removed ones,
// then those with another version, both by id.
func (m *metadataProjection) reload(tx store.Tx, at model.Offset) (changes []*MetadataChange, err error) {
	after, sequence, err := loadMetadata(tx, at)
	if err != nil {
		return nil, err
	}
	// Replace the view at once, so that queries see either the old or the new one.
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range view.ProfileChanges(m.view, after) {
		changes = append(changes, &MetadataChange{Change: *c, stored: true})
	}
	m.view, m.sequence = after, sequence
	m.held.Store(after.Memory())
	return changes, nil
}

// silence is how long a device may be silent before its inferred presence ends: the value of its profile, otherwise standard.
func (m *metadataProjection) silence(tenant, device string, standard time.Duration) time.Duration {
	m.mu.RLock()
	defer m.mu.RUnlock()
	what := m.view.Resolve(tenant, device)
	if what.Profile == nil || what.Profile.InactivityTimeout == 0 {
		return standard
	}
	return time.Duration(what.Profile.InactivityTimeout) * time.Second
}

// profileOf finds the active version of a tenant's profile by their tokens.
func (m *metadataProjection) profileOf(tenant, profile string) (tenantID, id int64, ok bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.view.ProfileOf(tenant, profile)
}

// MetadataChange is a change of one row of the metadata, as of the offset of its event.
type MetadataChange struct {
	view.Change
	stored bool // read from the store after a gap of the log
}

// EndsTenant reports whether the change ends a tenant: it is deleted, and what it had has ended before.
func (c *MetadataChange) EndsTenant() bool {
	return c != nil && c.Kind == model.ViewTenant && c.Body == nil
}
