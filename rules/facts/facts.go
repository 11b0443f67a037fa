// Package facts shows to rules what the registry knew at the place of a sample: attributes and anchors of its device, its groups, and
// the geofences of its tenant.
package facts

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"weir/model"
)

// Facts answers as of the place of a record.
type Facts interface {
	// Number is the number that rules see under the key of an attribute: that of the scope SERVER, else that of SHARED.
	Number(device int64, key string) (n float64, ok bool)
	// Numbers are those of all attributes of a device, nil for none.
	Numbers(device int64) map[string]float64
	// InGroup reports whether a device is a member of a published version of a group. known is false where it cannot be told.
	InGroup(tenant, device int64, token string, version int) (member, known bool)
	// Inside reports whether a position is inside of a geofence of a tenant. known is false where there is no such fence.
	Inside(tenant int64, fence string, lon, lat float64) (inside, known bool)
}

// None is what is known where nothing is: no device has an attribute or is in a group, no tenant has a fence.
type None struct{}

var _ Facts = None{}

func (None) Number(int64, string) (float64, bool)                        { return 0, false }
func (None) Numbers(int64) map[string]float64                            { return nil }
func (None) InGroup(int64, int64, string, int) (bool, bool)              { return false, true }
func (None) Inside(int64, string, float64, float64) (inside, known bool) { return false, false }

// Attributes is attr of an expression.
func Attributes(f Facts, device int64) ref.Val {
	return &lookup[float64]{
		find: func(key string) (float64, bool) { return f.Number(device, key) },
		all:  func() map[string]float64 { return f.Numbers(device) },
	}
}

// Anchors is anchors of an expression: for each type the smallest token, but own for its type.
func Anchors(as []model.Anchor, own model.Anchor) ref.Val {
	find := func(kind string) (token string, ok bool) {
		if kind == own.Type && own.Token != "" {
			return own.Token, true
		}
		for _, a := range as {
			if a.Type == kind && (!ok || a.Token < token) {
				token, ok = a.Token, true
			}
		}
		return token, ok
	}
	return &lookup[string]{find: find, all: func() map[string]string {
		all := make(map[string]string, len(as))
		for _, a := range as {
			all[a.Type], _ = find(a.Type)
		}
		return all
	}}
}

// GeoType is the type of geo in expressions. Nothing but InFence is made of it.
var GeoType = cel.OpaqueType("geo")

// Geo is geo of an expression: the position of a sample.
type Geo struct {
	Facts    Facts
	Tenant   int64
	Position model.Location
	Has      bool // the sample has a position
}

var _ ref.Val = (*Geo)(nil)

// InFence is geo.inFence of an expression. Where the position or the fence is missing the evaluation fails: such a sample is
// neither inside nor outside.
func InFence(geo, fence ref.Val) ref.Val {
	g, ok := geo.(*Geo)
	token, isText := fence.(types.String)
	switch {
	case !ok || !isText:
		return types.MaybeNoSuchOverloadErr(geo)
	case !g.Has:
		return types.NewErr("no position")
	}
	inside, known := g.Facts.Inside(g.Tenant, string(token), g.Position.Longitude, g.Position.Latitude)
	if !known {
		return types.NewErr("no such fence: %s", token)
	}
	return types.Bool(inside)
}
