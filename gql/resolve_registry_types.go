package gql

import (
	"context"

	"weir/model"
	"weir/registry"
)

func (g *registryResolvers) deviceTypes() {
	registerEntity(g.area, entity[registry.DeviceType]{kind: g.r.Types, typ: "DeviceType", plural: "deviceTypes", read: model.DeviceRead})
	profiles := byRow(g.r.Profiles, func(p *registry.DeviceProfile) int64 { return p.ID })
	g.area.Field("DeviceType", "profile", On(func(ctx context.Context, t registry.DeviceType, _ Args) (any, error) {
		if t.ProfileID == nil {
			return nil, nil
		}
		return profiles.Load(ctx, *t.ProfileID), nil
	}))
	g.area.Query("facetValues", Requires(model.DeviceRead), Do(func(ctx context.Context, in struct {
		Facet registry.DeviceFacet `gql:"facet"`
	}) (any, error) {
		return g.r.FacetValues(ctx, PrincipalFrom(ctx), in.Facet)
	}))
}
