package gql

import (
	"context"

	"weir/model"
	"weir/registry"
	"weir/store"
)

func (g *registryResolvers) devices() {
	registerEntity(g.area, entity[registry.Device]{kind: g.r.Devices, typ: "Device", plural: "devices",
		read: model.DeviceRead, filter: func(c Args) []store.Filter {
			if !c.Has("deviceType") || c.IsNull("deviceType") {
				return nil
			}
			return []store.Filter{store.RefersTo("type_id", "device_types", c.String("deviceType"))}
		}})
	types := byRow(g.r.Types, func(t *registry.DeviceType) int64 { return t.ID })
	g.area.Field("Device", "deviceType", On(func(ctx context.Context, d registry.Device, _ Args) (any, error) {
		return types.Load(ctx, d.TypeID), nil
	}))
	g.area.Query("devicesByExternalId", Requires(model.DeviceRead), func(ctx context.Context, _ any, args Args) (any, error) {
		return g.r.DevicesByExternalID(ctx, PrincipalFrom(ctx), args.Strings("externalIds"))
	})
	g.area.Mutation("createDevices", Requires(model.DeviceWrite), Do(func(ctx context.Context, in struct {
		Request struct {
			Type               string  `gql:"deviceTypeToken"`
			Count              int64   `gql:"count"`
			StartIndex         *int64  `gql:"startIndex"`
			TokenTemplate      string  `gql:"tokenTemplate"`
			NameTemplate       *string `gql:"nameTemplate"`
			ExternalIDTemplate *string `gql:"externalIdTemplate"`
			Metadata           *string `gql:"metadata"`
		} `gql:"request"`
	}) (any, error) {
		q := in.Request
		return g.r.CreateDevices(ctx, PrincipalFrom(ctx), registry.Bulk{Type: q.Type, Count: q.Count, StartIndex: q.StartIndex,
			TokenTemplate: q.TokenTemplate, NameTemplate: q.NameTemplate, ExternalIDTemplate: q.ExternalIDTemplate, Metadata: q.Metadata})
	}))
}
