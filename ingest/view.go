package ingest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"weir/model"
)

// View is the registry as of a place in the log: what a record is resolved against. It belongs to the applier and is
// changed by control records only.
type View struct {
	tenants  map[string]*tenantView
	types    map[int64]model.DeviceTypeView
	profiles map[int64]*profileView
}

type tenantView struct {
	model.TenantView
	known   bool // false while only devices of it were seen
	devices map[string]model.DeviceView
}

// profileView is the active version of a profile with its metrics at hand.
type profileView struct {
	model.ProfileView
	metrics map[string]*model.MetricView
}

// NewView returns an empty view.
func NewView() *View {
	return &View{tenants: map[string]*tenantView{}, types: map[int64]model.DeviceTypeView{}, profiles: map[int64]*profileView{}}
}

// viewVersion is the format version of the bodies that this Weir writes.
const viewVersion = 1

// Set applies one change; a nil body ends the row.
func (v *View) Set(kind model.ViewKind, key string, body []byte) error {
	var err error
	switch kind {
	case model.ViewTenant:
		err = v.setTenant(key, body)
	case model.ViewDevice:
		err = v.setDevice(key, body)
	case model.ViewDeviceType:
		err = setByID(v.types, key, body, func(t model.DeviceTypeView) (model.DeviceTypeView, int) { return t, t.V })
	case model.ViewProfile:
		err = setByID(v.profiles, key, body, func(p model.ProfileView) (*profileView, int) { return newProfileView(p), p.V })
	default:
		err = fmt.Errorf("unknown kind")
	}
	if err != nil {
		return fmt.Errorf("view row %s %q: %w", kind, key, err)
	}
	return nil
}

func (v *View) setTenant(key string, body []byte) error {
	t := v.tenant(key)
	if body == nil {
		if t.known = false; len(t.devices) == 0 {
			delete(v.tenants, key)
		}
		return nil
	}
	t.TenantView, t.known = model.TenantView{}, true
	return decodeBody(body, &t.TenantView, func() int { return t.V })
}

func (v *View) tenant(key string) *tenantView {
	t := v.tenants[key]
	if t == nil {
		t = &tenantView{devices: map[string]model.DeviceView{}}
		v.tenants[key] = t
	}
	return t
}

func (v *View) setDevice(key string, body []byte) error {
	tenant, device, ok := strings.Cut(key, "/")
	if !ok {
		return fmt.Errorf("key names no device")
	}
	t := v.tenant(tenant)
	if body == nil {
		delete(t.devices, device)
		return nil
	}
	var d model.DeviceView
	if err := decodeBody(body, &d, func() int { return d.V }); err != nil {
		return err
	}
	t.devices[device] = d
	return nil
}

func setByID[B, T any](rows map[int64]T, key string, body []byte, make func(B) (T, int)) error {
	id, err := strconv.ParseInt(key, 10, 64)
	if err != nil {
		return err
	}
	if body == nil {
		delete(rows, id)
		return nil
	}
	var b B
	if err := json.Unmarshal(body, &b); err != nil {
		return err
	}
	row, version := make(b)
	if version > viewVersion {
		return fmt.Errorf("format version %d, this Weir knows %d", version, viewVersion)
	}
	rows[id] = row
	return nil
}

func decodeBody(body []byte, into any, version func() int) error {
	if err := json.Unmarshal(body, into); err != nil {
		return err
	}
	if version() > viewVersion {
		return fmt.Errorf("format version %d, this Weir knows %d", version(), viewVersion)
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

// resolved is what a record's names mean at its place.
type resolved struct {
	tenant    *tenantView
	device    model.DeviceView
	profileID int64 // 0 when the device has no published profile
	profile   *profileView
}

// resolve returns what tenant and device mean; the reason says what does not exist.
func (v *View) resolve(tenant, device string) (resolved, Reason) {
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

// viewControlSequence is the kind of the row that holds the highest control sequence in force; only the applier writes it.
const viewControlSequence model.ViewKind = "control-sequence"

func sequenceBody(seq uint64) []byte { return strconv.AppendUint(nil, seq, 10) }

// viewBefore is what a view row meant before a change.
type viewBefore struct {
	id         int64 // of a row keyed by id
	device     model.DeviceView
	deviceType model.DeviceTypeView
	profile    *profileView
}

// snapshot returns what the row of a change means now.
func (v *View) snapshot(c *model.ViewChange) viewBefore {
	var b viewBefore
	switch c.Kind {
	case model.ViewDevice:
		b.device = v.device(c.Key)
	case model.ViewDeviceType:
		b.id, _ = strconv.ParseInt(c.Key, 10, 64)
		b.deviceType = v.types[b.id]
	case model.ViewProfile:
		b.id, _ = strconv.ParseInt(c.Key, 10, 64)
		b.profile = v.profiles[b.id]
	}
	return b
}

func (v *View) device(key string) model.DeviceView {
	tenant, device, _ := strings.Cut(key, "/")
	if t := v.tenants[tenant]; t != nil {
		return t.devices[device]
	}
	return model.DeviceView{}
}
