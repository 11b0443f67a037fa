// Package view holds the metadata as of an offset of the log: what the names of a record mean, and what its readings are
// judged by. Metadata changes in the log move it and nothing else does. It is not safe for concurrent use.
//
//	view.go        tenants, devices, types, profiles; how a record's names resolve
//	anchors.go     what tracked relationships of devices lead to; sets of anchors
//	attributes.go  attributes of devices
//	groups.go      published versions of groups, memberships; what events bear
//	fences.go      sets of geofences
//	sites.go       which rules edges judge
package view

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"weir/model"
	"weir/registry/selector"
)

// version is the newest format version of the bodies.
const version = 1

// View is the metadata as of an offset.
type View struct {
	Tenants  map[string]*Tenant // by token
	Types    map[int64]model.DeviceTypeView
	Profiles map[int64]*Profile

	anchors map[int64]*AnchorSet // of the devices that have any
	sets    map[string]*AnchorSet
	stamped int64 // bytes of the sets that groups make

	devices     map[int64]*device
	keys, texts texts // of attributes

	groups    map[int64]*groups // by tenant
	groupRows map[string]*group
	states    uint64
	selectors selector.Compiler

	fences map[int64]*fences // by tenant

	sites map[int64]map[string][]model.SiteRun // by tenant and installation

	rows map[rowKey]int64 // memory of those for which the body decides
	held int64            // memory of all
}

// rowKey names a row.
type rowKey struct {
	kind model.ViewKind
	key  string
}

// Memory is about how many bytes the view takes.
func (v *View) Memory() int64 { return v.held + v.stamped }

// Tenant is a tenant with its devices.
type Tenant struct {
	model.TenantView
	known   bool // false while only devices of it were seen
	devices map[string]model.DeviceView
}

// Profile is the active version of a profile with its metrics by the names under which readings of them are sent: by key, and by source names.
type Profile struct {
	model.ProfileView
	Metrics map[string]*model.MetricView
	Renames bool // a metric has source names
}

// New returns an empty view.
func New() *View {
	return &View{Tenants: map[string]*Tenant{}, Types: map[int64]model.DeviceTypeView{}, Profiles: map[int64]*Profile{},
		anchors: map[int64]*AnchorSet{}, sets: map[string]*AnchorSet{}, devices: map[int64]*device{}, keys: newTexts(), texts: newTexts(),
		groups: map[int64]*groups{}, groupRows: map[string]*group{}, states: ownState, fences: map[int64]*fences{}, sites: map[int64]map[string][]model.SiteRun{}, rows: map[rowKey]int64{}}
}

// Change is a change of one row of the view. The rows of the same metadata change that come after it in the record are not
// changed yet.
type Change struct {
	Kind model.ViewKind
	Key  string
	Body []byte // nil: the row ends

	TenantID, ID int64  // of the row; the tenant of devices and groups only
	Group        string // token, of a version of a group

	// What the row said before, by kind, and what a device's says now.
	Device     model.DeviceView
	DeviceNow  model.DeviceView
	DeviceType model.DeviceTypeView
	Profile    *Profile
	// Left are the anchors of a device that its row named before and does not name now.
	Left []model.Anchor
}

// DeviceID returns the row ids of tenant and device when the change is one of a device.
func (c *Change) DeviceID() (tenant, device int64) {
	if c.Kind != model.ViewDevice {
		return 0, 0
	}
	return c.TenantID, c.ID
}

// EndsDevice reports whether the change ends a device that the view knew.
func (c *Change) EndsDevice() bool {
	return c.Kind == model.ViewDevice && c.Body == nil && c.Device.ID != 0
}

// setter is the list of the kinds of rows: each takes a change in and leaves in it what the row said before.
func (v *View) setter(k model.ViewKind) func(*Change) error {
	switch k {
	case model.ViewTenant:
		return v.setTenant
	case model.ViewDevice:
		return v.setDevice
	case model.ViewDeviceType:
		return v.setDeviceType
	case model.ViewProfile:
		return v.setProfile
	case model.ViewAnchors:
		return v.setAnchors
	case model.ViewAttribute:
		return v.setAttribute
	case model.ViewMemberships:
		return v.setMemberships
	case model.ViewGroup:
		return v.setGroup
	case model.ViewFence:
		return v.setFence
	case model.ViewFenceSet:
		return v.setFenceSet
	case model.ViewSite:
		return v.setSite
	}
	return func(*Change) error { return errors.New("unknown kind") }
}

// Set applies one change; a nil body ends the row. Errors: a kind or a version of a body that this Weir does not know, and a
// body that is none.
func (v *View) Set(kind model.ViewKind, key string, body []byte) (*Change, error) {
	c := &Change{Kind: kind, Key: key, Body: body}
	before := v.memory(kind, key)
	if err := v.setter(kind)(c); err != nil {
		return nil, fmt.Errorf("view row %s %q: %w", kind, key, err)
	}
	v.account(c, before)
	return c, nil
}

// memory is what a row takes now.
func (v *View) memory(kind model.ViewKind, key string) int64 {
	exists := false
	switch kind {
	case model.ViewTenant:
		t := v.Tenants[key]
		exists = t != nil && t.known
	case model.ViewDevice:
		tenant, device, _ := strings.Cut(key, "/")
		if t := v.Tenants[tenant]; t != nil {
			_, exists = t.devices[device]
		}
	case model.ViewDeviceType:
		if id, err := strconv.ParseInt(key, 10, 64); err == nil {
			_, exists = v.Types[id]
		}
	case model.ViewAttribute: // setAttribute counts it
	default:
		return v.rows[rowKey{kind, key}]
	}
	if !exists {
		return 0
	}
	return model.ViewChange{Kind: kind, Key: key}.Memory()
}

// account counts the memory of a row that took so much before the change.
func (v *View) account(c *Change, before int64) {
	if c.Kind == model.ViewAttribute {
		return
	}
	var now int64
	if c.Body != nil {
		now = model.ViewChange{Kind: c.Kind, Key: c.Key, Body: c.Body}.Memory()
	}
	v.held += now - before
	switch c.Kind {
	case model.ViewTenant, model.ViewDevice, model.ViewDeviceType: // each row of these takes the same
	default:
		if now == 0 {
			delete(v.rows, rowKey{c.Kind, c.Key})
		} else {
			v.rows[rowKey{c.Kind, c.Key}] = now
		}
	}
}

func (v *View) setTenant(c *Change) error {
	t := v.tenant(c.Key)
	if c.Body == nil {
		if t.known = false; len(t.devices) == 0 {
			delete(v.Tenants, c.Key)
		}
		return nil
	}
	t.TenantView, t.known = model.TenantView{}, true
	return decode(c.Body, &t.TenantView, func() int { return t.V })
}

func (v *View) tenant(token string) *Tenant {
	t := v.Tenants[token]
	if t == nil {
		t = &Tenant{devices: map[string]model.DeviceView{}}
		v.Tenants[token] = t
	}
	return t
}

func (v *View) setDevice(c *Change) error {
	tenant, device, ok := strings.Cut(c.Key, "/")
	if !ok {
		return errors.New("key names no device")
	}
	t := v.tenant(tenant)
	c.TenantID, c.Device = t.ID, t.devices[device]
	if c.Body == nil {
		c.ID = c.Device.ID
		v.anchor(c.ID, nil)
		if d := v.devices[c.ID]; d != nil {
			v.unstamp(d)
			v.tidy(c.ID)
		}
		delete(t.devices, device)
		return nil
	}
	var d model.DeviceView
	if err := decode(c.Body, &d, func() int { return d.V }); err != nil {
		return err
	}
	c.ID, c.DeviceNow = d.ID, d
	t.devices[device] = d
	return nil
}

func (v *View) setDeviceType(c *Change) error {
	return setByID(v.Types, c, &c.DeviceType, func(t model.DeviceTypeView) (model.DeviceTypeView, int) { return t, t.V })
}

func (v *View) setProfile(c *Change) error {
	return setByID(v.Profiles, c, &c.Profile, func(p model.ProfileView) (*Profile, int) { return newProfile(p), p.V })
}

// setByID sets a row that is keyed by an id.
func setByID[B, T any](rows map[int64]T, c *Change, before *T, newRow func(B) (row T, version int)) (err error) {
	if c.ID, err = strconv.ParseInt(c.Key, 10, 64); err != nil {
		return err
	}
	*before = rows[c.ID]
	if c.Body == nil {
		delete(rows, c.ID)
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
	rows[c.ID] = row
	return nil
}

func decode(body []byte, into any, version func() int) error {
	if err := json.Unmarshal(body, into); err != nil {
		return err
	}
	return checkVersion(version())
}

func checkVersion(v int) error {
	if v > version {
		return fmt.Errorf("format version %d, this Weir knows %d", v, version)
	}
	return nil
}

func newProfile(p model.ProfileView) *Profile {
	pv := &Profile{ProfileView: p, Metrics: make(map[string]*model.MetricView, len(p.Metrics))}
	for i := range pv.ProfileView.Metrics {
		m := &pv.ProfileView.Metrics[i]
		pv.Metrics[m.Key] = m
		for _, name := range m.SourceNames {
			pv.Metrics[name], pv.Renames = m, true
		}
	}
	return pv
}

// Resolved is what a record's names mean at its offset. The device exists when the tenant does and the device's id is not 0.
type Resolved struct {
	Tenant    *Tenant // nil: there is none of that name, or it is disabled
	Device    model.DeviceView
	ProfileID int64 // 0 when the device has no published profile
	Profile   *Profile
}

// Resolve returns what tenant and device mean.
func (v *View) Resolve(tenant, device string) Resolved {
	t := v.Tenants[tenant]
	if t == nil || !t.known || !t.Enabled {
		return Resolved{}
	}
	d, ok := t.devices[device]
	if !ok {
		return Resolved{Tenant: t}
	}
	r := Resolved{Tenant: t, Device: d}
	if id := v.Types[d.Type].Profile; id != 0 {
		if r.Profile = v.Profiles[id]; r.Profile != nil {
			r.ProfileID = id
		}
	}
	return r
}

// ProfileOf finds the active version of a tenant's profile by their tokens.
func (v *View) ProfileOf(tenant, profile string) (tenantID, id int64, ok bool) {
	t := v.Tenants[tenant]
	if t == nil {
		return 0, 0, false
	}
	for id, p := range v.Profiles {
		if p.Tenant == tenant && p.Token == profile {
			return t.ID, id, true
		}
	}
	return 0, 0, false
}

// ProfileChanges returns the changes from one view to another: removed profiles, then those with another version, by id.
func ProfileChanges(before, after *View) (out []*Change) {
	change := func(id int64) {
		out = append(out, &Change{Kind: model.ViewProfile, ID: id, Profile: before.Profiles[id]})
	}
	for _, id := range slices.Sorted(maps.Keys(before.Profiles)) {
		if after.Profiles[id] == nil {
			change(id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(after.Profiles)) {
		if p := before.Profiles[id]; p == nil || p.Version != after.Profiles[id].Version {
			change(id)
		}
	}
	return out
}

// Member is a device of a profile.
type Member struct {
	ID, Type int64
	Token    string
}

// Roster returns the devices of the types that have a profile, by id.
func (v *View) Roster(profile int64) []Member {
	p := v.Profiles[profile]
	if p == nil || v.Tenants[p.Tenant] == nil {
		return nil
	}
	var all []Member
	for token, d := range v.Tenants[p.Tenant].devices {
		if v.Types[d.Type].Profile == profile {
			all = append(all, Member{d.ID, d.Type, token})
		}
	}
	slices.SortFunc(all, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return all
}
