package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/model"
	"weir/store"
)

// viewControlSequence is the kind of the row that holds the newest sequence of changes that is effective.
const viewControlSequence model.ViewKind = "control-sequence"

// viewVersion is the newest format version of the bodies.
const viewVersion = 1

// metadataProjection is the metadata view: what records are resolved against, as of an offset. Metadata changes in the log
// move it and nothing else does. A row says from and up to which offset it is effective.
type metadataProjection struct {
	ProjectionBase
	mu       sync.RWMutex // the applier alone changes the view, and reads it without
	view     *metadataView
	sequence uint64 // newest that is effective
	parts    parts
}

func newMetadataProjection() *metadataProjection { return &metadataProjection{view: newMetadataView()} }

// Load implements Projection.
func (m *metadataProjection) Load(tx store.Tx, at Checkpoint) (err error) {
	m.view, m.sequence, err = loadMetadata(tx, at.Offset)
	return err
}

// loadMetadata reads the view as of an offset, and the newest sequence that is effective there.
func loadMetadata(tx store.Tx, at model.Offset) (view *metadataView, sequence uint64, err error) {
	view = newMetadataView()
	err = store.ViewAsOf(tx, at, func(r store.ViewRow) (err error) {
		if r.Kind == viewControlSequence {
			sequence, err = strconv.ParseUint(string(r.Body), 10, 64)
			return err
		}
		return view.load(r.Kind, r.Key, r.Body)
	})
	return view, sequence, err
}

// set applies one change to the view and returns the change as the projections need it.
func (m *metadataProjection) set(c *model.ViewChange) (*MetadataChange, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.set(c.Kind, c.Key, c.Body)
}

// Record implements Projection: it writes the row of a change.
func (m *metadataProjection) Record(_ context.Context, e *Event, out *Effects) error {
	if c := e.Change; c != nil && !c.stored {
		kind, key, body, from := c.Kind, c.Key, c.Body, e.At.Offset
		out.Step(func(tx store.Tx) error { return store.SetView(tx, kind, key, body, from) })
	}
	return nil
}

// passed notes that all changes of a sequence are effective from an offset on.
func (m *metadataProjection) passed(sequence uint64, from model.Offset, out *Effects) {
	m.sequence, out.sequence = sequence, sequence
	body := strconv.AppendUint(nil, sequence, 10)
	out.Step(func(tx store.Tx) error { return store.SetView(tx, viewControlSequence, "", body, from) })
}

// reload takes the view as the store knows it at an offset, and returns how the profiles have changed since: the removed ones,
// then those with another version, both by id.
func (m *metadataProjection) reload(tx store.Tx, at model.Offset) ([]*MetadataChange, error) {
	view, sequence, err := loadMetadata(tx, at)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	changes := profileChanges(m.view, view)
	m.view, m.sequence = view, sequence
	return changes, nil
}

// profileChanges returns the changes between two views: removed profiles, then those with another version, by id.
func profileChanges(before, after *metadataView) (out []*MetadataChange) {
	change := func(id int64) {
		out = append(out, &MetadataChange{Kind: model.ViewProfile, id: id, stored: true, profile: before.profiles[id]})
	}
	for _, id := range slices.Sorted(maps.Keys(before.profiles)) {
		if after.profiles[id] == nil {
			change(id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(after.profiles)) {
		if p := before.profiles[id]; p == nil || p.Version != after.profiles[id].Version {
			change(id)
		}
	}
	return out
}

// silence is how long a device may be silent before its inferred presence ends: the value of its profile, otherwise standard.
func (m *metadataProjection) silence(tenant, device string, standard time.Duration) time.Duration {
	m.mu.RLock()
	defer m.mu.RUnlock()
	what, _ := m.view.resolve(tenant, device)
	if what.profile == nil || what.profile.InactivityTimeout == 0 {
		return standard
	}
	return time.Duration(what.profile.InactivityTimeout) * time.Second
}

// profileOf finds the active version of a tenant's profile by their tokens.
func (m *metadataProjection) profileOf(tenant, profile string) (tenantID, id int64, ok bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	t := m.view.tenants[tenant]
	if t == nil {
		return 0, 0, false
	}
	for id, p := range m.view.profiles {
		if p.Tenant == tenant && p.Token == profile {
			return t.ID, id, true
		}
	}
	return 0, 0, false
}

// metadataView is the registry as of an offset.
type metadataView struct {
	tenants  map[string]*tenantView
	types    map[int64]model.DeviceTypeView
	profiles map[int64]*profileView
}

type tenantView struct {
	model.TenantView
	known   bool // false while only devices of it were seen
	devices map[string]model.DeviceView
}

// profileView is the active version of a profile with its metrics by key.
type profileView struct {
	model.ProfileView
	metrics map[string]*model.MetricView
}

func newMetadataView() *metadataView {
	return &metadataView{tenants: map[string]*tenantView{}, types: map[int64]model.DeviceTypeView{}, profiles: map[int64]*profileView{}}
}

// MetadataChange is a change of one row of the metadata, as of the offset of its event. The rows of the same change that
// come after it in the record are not changed yet.
type MetadataChange struct {
	Kind model.ViewKind
	Key  string
	Body []byte // nil: the row ends

	tenantID, id int64 // of the row; the tenant of devices only
	stored       bool  // read from the store after a gap of the log

	// What the row said before, by kind, and what a device's says now.
	device     model.DeviceView
	deviceNow  model.DeviceView
	deviceType model.DeviceTypeView
	profile    *profileView
}

// deviceID returns the row ids of tenant and device when the change is one of a device.
func (c *MetadataChange) deviceID() (tenant, device int64) {
	if c.Kind != model.ViewDevice {
		return 0, 0
	}
	return c.tenantID, c.id
}

// endsDevice reports whether the change ends a device that the view knew.
func (c *MetadataChange) endsDevice() bool {
	return c.Kind == model.ViewDevice && c.Body == nil && c.device.ID != 0
}

// setter is the list of the kinds of rows: each takes a change in and leaves in it what the row said before.
func (v *metadataView) setter(k model.ViewKind) func(*MetadataChange) error {
	switch k {
	case model.ViewTenant:
		return v.setTenant
	case model.ViewDevice:
		return v.setDevice
	case model.ViewDeviceType:
		return v.setDeviceType
	case model.ViewProfile:
		return v.setProfile
	}
	return func(*MetadataChange) error { return fmt.Errorf("unknown kind") }
}

// set applies one change; a nil body ends the row.
func (v *metadataView) set(kind model.ViewKind, key string, body []byte) (*MetadataChange, error) {
	c := &MetadataChange{Kind: kind, Key: key, Body: body}
	if err := v.setter(kind)(c); err != nil {
		return nil, fmt.Errorf("view row %s %q: %w", kind, key, err)
	}
	return c, nil
}

func (v *metadataView) load(kind model.ViewKind, key string, body []byte) error {
	_, err := v.set(kind, key, body)
	return err
}

func (v *metadataView) setTenant(c *MetadataChange) error {
	t := v.tenant(c.Key)
	if c.Body == nil {
		if t.known = false; len(t.devices) == 0 {
			delete(v.tenants, c.Key)
		}
		return nil
	}
	t.TenantView, t.known = model.TenantView{}, true
	return decodeBody(c.Body, &t.TenantView, func() int { return t.V })
}

func (v *metadataView) tenant(token string) *tenantView {
	t := v.tenants[token]
	if t == nil {
		t = &tenantView{devices: map[string]model.DeviceView{}}
		v.tenants[token] = t
	}
	return t
}

func (v *metadataView) setDevice(c *MetadataChange) error {
	tenant, device, ok := strings.Cut(c.Key, "/")
	if !ok {
		return fmt.Errorf("key names no device")
	}
	t := v.tenant(tenant)
	c.tenantID, c.device = t.ID, t.devices[device]
	if c.Body == nil {
		c.id = c.device.ID
		delete(t.devices, device)
		return nil
	}
	var d model.DeviceView
	if err := decodeBody(c.Body, &d, func() int { return d.V }); err != nil {
		return err
	}
	c.id, c.deviceNow = d.ID, d
	t.devices[device] = d
	return nil
}

func (v *metadataView) setDeviceType(c *MetadataChange) error {
	return setByID(v.types, c, &c.deviceType, func(t model.DeviceTypeView) (model.DeviceTypeView, int) { return t, t.V })
}

func (v *metadataView) setProfile(c *MetadataChange) error {
	return setByID(v.profiles, c, &c.profile, func(p model.ProfileView) (*profileView, int) { return newProfileView(p), p.V })
}

// setByID sets a row that is keyed by an id.
func setByID[B, T any](rows map[int64]T, c *MetadataChange, before *T, newRow func(B) (row T, version int)) (err error) {
	if c.id, err = strconv.ParseInt(c.Key, 10, 64); err != nil {
		return err
	}
	*before = rows[c.id]
	if c.Body == nil {
		delete(rows, c.id)
		return nil
	}
	var b B
	if err := json.Unmarshal(c.Body, &b); err != nil {
		return err
	}
	row, version := newRow(b)
	if err := checkVersion(version); err != nil {
		return err
	}
	rows[c.id] = row
	return nil
}

func decodeBody(body []byte, into any, version func() int) error {
	if err := json.Unmarshal(body, into); err != nil {
		return err
	}
	return checkVersion(version())
}

func checkVersion(v int) error {
	if v > viewVersion {
		return fmt.Errorf("format version %d, this Weir knows %d", v, viewVersion)
	}
	return nil
}

func newProfileView(p model.ProfileView) *profileView {
	pv := &profileView{ProfileView: p, metrics: make(map[string]*model.MetricView, len(p.Metrics))}
	for i := range pv.Metrics {
		pv.metrics[pv.Metrics[i].Key] = &pv.Metrics[i]
	}
	return pv
}

// resolved is what a record's names mean at its offset.
type resolved struct {
	tenant    *tenantView
	device    model.DeviceView
	profileID int64 // 0 when the device has no published profile
	profile   *profileView
}

// resolve returns what tenant and device mean; the reason says what does not exist.
func (v *metadataView) resolve(tenant, device string) (resolved, Reason) {
	t := v.tenants[tenant]
	if t == nil || !t.known || !t.Enabled {
		return resolved{}, ReasonUnknownTenant
	}
	d, ok := t.devices[device]
	if !ok {
		return resolved{tenant: t}, ReasonUnknownDevice
	}
	r := resolved{tenant: t, device: d}
	if id := v.types[d.Type].Profile; id != 0 {
		if r.profile = v.profiles[id]; r.profile != nil {
			r.profileID = id
		}
	}
	return r, ReasonNone
}
