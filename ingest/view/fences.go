package view

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"weir/model"
	"weir/registry/geometry"
)

// fences are the geofences of a tenant.
type fences struct {
	version  int64
	geometry map[string]*fence // by token
	set      *FenceSet         // nil after a change
}

// fence is a geometry, read when it is first asked for.
type fence struct {
	text    string // "" once it is read
	polygon *geometry.Polygon
}

// FenceSet is the set of geofences of a tenant as of an offset. It is immutable.
type FenceSet struct {
	Version int64
	Fences  map[string]*geometry.Polygon // by token
}

func (v *View) setFence(c *Change) (err error) {
	id, token, _ := strings.Cut(c.Key, "/")
	if c.TenantID, err = strconv.ParseInt(id, 10, 64); err != nil || token == "" {
		return errors.Join(errors.New("key names no fence"), err)
	}
	if c.Body == nil {
		v.changeFences(c.TenantID, func(f *fences) { delete(f.geometry, token) })
		return nil
	}
	var b model.FenceView
	if err := decode(c.Body, &b, func() int { return b.V }); err != nil {
		return err
	}
	v.changeFences(c.TenantID, func(f *fences) { f.geometry[token] = &fence{text: b.Geometry} })
	return nil
}

func (v *View) setFenceSet(c *Change) (err error) {
	if c.TenantID, err = strconv.ParseInt(c.Key, 10, 64); err != nil {
		return err
	}
	var b model.FenceSetView
	if c.Body != nil {
		if err := decode(c.Body, &b, func() int { return b.V }); err != nil {
			return err
		}
	}
	v.changeFences(c.TenantID, func(f *fences) { f.version = b.Version })
	return nil
}

func (v *View) changeFences(tenant int64, change func(*fences)) {
	f := v.fences[tenant]
	if f == nil {
		f = &fences{geometry: map[string]*fence{}}
		v.fences[tenant] = f
	}
	f.set = nil
	if change(f); f.version == 0 && len(f.geometry) == 0 {
		delete(v.fences, tenant)
	}
}

// Fences returns the set of geofences of a tenant; version 0 is empty. It remembers the set, and each geometry that it has read: their
// memory is counted with the rows.
func (v *View) Fences(tenant int64) (*FenceSet, error) {
	f := v.fences[tenant]
	if f == nil {
		return &FenceSet{}, nil
	}
	if f.set != nil {
		return f.set, nil
	}
	set := &FenceSet{Version: f.version, Fences: make(map[string]*geometry.Polygon, len(f.geometry))}
	for token, one := range f.geometry {
		if one.polygon == nil {
			polygon, err := geometry.Parse(one.text)
			if err != nil {
				return nil, fmt.Errorf("fence %q of tenant %d: %w", token, tenant, err)
			}
			one.polygon, one.text = polygon, ""
		}
		set.Fences[token] = one.polygon
	}
	f.set = set
	return set, nil
}

// Inside reports whether a position is inside of a geofence of a tenant. known is false where there is no such fence, or none that this
// Weir can read.
func (v *View) Inside(tenant int64, fence string, lon, lat float64) (inside, known bool) {
	set, err := v.Fences(tenant)
	if err != nil {
		return false, false
	}
	p := set.Fences[fence]
	return p != nil && p.Contains(lon, lat), p != nil
}
