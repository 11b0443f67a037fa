package gql

import (
	"context"

	"weir/model"
	"weir/registry"
)

func (g *registryResolvers) deviceProfiles() {
	registerEntity(g.area, entity[registry.DeviceProfile]{kind: g.r.Profiles, typ: "DeviceProfile", plural: "deviceProfiles",
		read: model.DeviceRead, own: []string{"location"}})
	g.area.Type("DeviceLocationDeclaration", registry.LocationDeclaration{})
	g.area.Type("DeviceLocationCapability", registry.LocationCapability{})
	g.area.Type("DeviceProfileVersion", registry.ProfileVersion{})
	g.area.Field("DeviceProfile", "location", On(func(_ context.Context, p registry.DeviceProfile, _ Args) (any, error) {
		return p.Declaration()
	}))
	g.profileParts()
	g.profileVersions()
	g.area.Mutation("renameDeviceProfile", Requires(model.DeviceWrite), Do(func(ctx context.Context, in struct {
		Token    string `gql:"token"`
		NewToken string `gql:"newToken"`
	}) (any, error) {
		return g.r.RenameProfile(ctx, PrincipalFrom(ctx), in.Token, in.NewToken)
	}))
	g.area.Query("deviceLocationDeclaration", Requires(model.DeviceRead), Do(func(ctx context.Context, in struct {
		Device string `gql:"deviceToken"`
	}) (any, error) {
		return g.r.LocationOf(ctx, PrincipalFrom(ctx), in.Device)
	}))
}

// profileParts registers what hangs on a profile; of many profiles each part is read at once.
func (g *registryResolvers) profileParts() {
	counts := NewLoader(func(ctx context.Context, profiles []int64) (map[int64]int64, error) {
		return g.r.TypeCounts(ctx, PrincipalFrom(ctx), profiles)
	})
	g.area.Field("DeviceProfile", "deviceTypeCount", On(func(ctx context.Context, p registry.DeviceProfile, _ Args) (any, error) {
		return counts.Load(ctx, p.ID), nil
	}))
	metrics := below(g.r.Metrics, "profile_id", func(m *registry.MetricDefinition) int64 { return m.ProfileID },
		func(a, b *registry.MetricDefinition) int { return compareListed(a.Row, b.Row, a.Token, b.Token) })
	g.area.Field("DeviceProfile", "metricDefinitions", On(func(ctx context.Context, p registry.DeviceProfile, _ Args) (any, error) {
		return metrics.Then(ctx, p.ID, orEmpty), nil
	}))
	rules := below(g.r.Rules, "profile_id", func(d *registry.DetectionRule) int64 { return d.ProfileID },
		func(a, b *registry.DetectionRule) int { return compareListed(a.Row, b.Row, a.Token, b.Token) })
	g.area.Field("DeviceProfile", "detectionRules", On(func(ctx context.Context, p registry.DeviceProfile, _ Args) (any, error) {
		return rules.Then(ctx, p.ID, orEmpty), nil
	}))
}

func (g *registryResolvers) profileVersions() {
	g.area.Query("deviceProfileVersions", Requires(model.DeviceRead), Do(func(ctx context.Context, in struct {
		Token string `gql:"token"`
	}) (any, error) {
		return g.r.Versions(ctx, PrincipalFrom(ctx), in.Token)
	}))
	g.area.Mutation("publishDeviceProfile", Requires(model.DeviceWrite), Do(func(ctx context.Context, in struct {
		Token       string  `gql:"token"`
		Label       *string `gql:"label"`
		Description *string `gql:"description"`
	}) (any, error) {
		return g.r.Publish(ctx, PrincipalFrom(ctx), in.Token, in.Label, in.Description)
	}))
	g.area.Mutation("rollbackDeviceProfile", Requires(model.DeviceWrite), Do(func(ctx context.Context, in struct {
		Token   string `gql:"token"`
		Version int64  `gql:"version"`
	}) (any, error) {
		return g.r.Rollback(ctx, PrincipalFrom(ctx), in.Token, in.Version)
	}))
}
