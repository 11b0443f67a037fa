package gql

import (
	"context"

	"weir/model"
	"weir/registry"
	"weir/store"
)

func (g *registryResolvers) metricDefinitions() {
	registerEntity(g.area, entity[registry.MetricDefinition]{kind: g.r.Metrics, typ: "MetricDefinition", plural: "metricDefinitions",
		read: model.DeviceRead, filter: func(c Args) []store.Filter {
			fs := profileFilter(c)
			if c.Has("metricKey") && !c.IsNull("metricKey") {
				fs = append(fs, store.Eq("metric_key", c.String("metricKey")))
			}
			return fs
		}})
	profiles := byRow(g.r.Profiles, func(p *registry.DeviceProfile) int64 { return p.ID })
	g.area.Field("MetricDefinition", "deviceProfile", On(func(ctx context.Context, m registry.MetricDefinition, _ Args) (any, error) {
		return profiles.Load(ctx, m.ProfileID), nil
	}))
}

// profileFilter is the filter of the criterion deviceProfile, a token.
func profileFilter(c Args) []store.Filter {
	if !c.Has("deviceProfile") || c.IsNull("deviceProfile") {
		return nil
	}
	return []store.Filter{store.RefersTo("profile_id", "device_profiles", c.String("deviceProfile"))}
}
