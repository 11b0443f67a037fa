package gql

import (
	"context"

	"weir/model"
	"weir/registry"
)

func (g *registryResolvers) detectionRules() {
	registerEntity(g.area, entity[registry.DetectionRule]{kind: g.r.Rules, typ: "DetectionRule", plural: "detectionRules",
		read: model.DeviceRead, filter: profileFilter})
	profiles := byRow(g.r.Profiles, func(p *registry.DeviceProfile) int64 { return p.ID })
	g.area.Field("DetectionRule", "deviceProfile", On(func(ctx context.Context, d registry.DetectionRule, _ Args) (any, error) {
		return profiles.Load(ctx, d.ProfileID), nil
	}))
}
