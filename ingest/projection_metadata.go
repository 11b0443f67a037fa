package ingest

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"weir/ingest/view"
	"weir/model"
	"weir/rules"
	"weir/store"
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

// Record implements Projection: it writes the row of a change, and that of a set of anchors which an event bears first.
func (m *metadataProjection) Record(_ context.Context, e *Event, out *Effects) error {
	if c := e.Change; c != nil && !c.stored {
		kind, key, body, from, at := c.Kind, c.Key, c.Body, e.At.Offset, e.At.Received.Micros()
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

// Freeze implements Projection. What was recorded is committed.
func (m *metadataProjection) Freeze(Checkpoint) {
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

func (m *metadataProjection) anchorsOf(ctx context.Context, tenantID int64, sets []int64) (found map[int64][]model.Anchor, err error) {
	if len(sets) == 0 {
		return nil, nil
	}
	err = m.queries.Read(ctx, func(tx store.Tx) (err error) {
		found, err = store.AnchorsOf(tx, tenantID, sets)
		return err
	})
	if err != nil || len(found) == len(sets) {
		return found, err
	}
	m.mu.RLock() // an event can be queried a moment before its set is committed
	defer m.mu.RUnlock()
	m.view.AnchorSets(func(s *view.AnchorSet) {
		if s.TenantID == tenantID && s.Number != 0 && slices.Contains(sets, s.Number) {
			found[s.Number] = s.Anchors
		}
	})
	return found, nil
}

func (m *metadataProjection) setsWith(ctx context.Context, tenantID int64, anchor model.Anchor) (sets []int64, err error) {
	err = m.queries.Read(ctx, func(tx store.Tx) (err error) {
		sets, err = store.AnchorSetsWith(tx, tenantID, anchor)
		return err
	})
	if err != nil {
		return nil, err
	}
	m.mu.RLock()
	m.view.AnchorSets(func(s *view.AnchorSet) {
		if s.TenantID == tenantID && s.Number != 0 && slices.Contains(s.Anchors, anchor) {
			sets = append(sets, s.Number)
		}
	})
	m.mu.RUnlock()
	slices.Sort(sets)
	return slices.Compact(sets), nil
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
