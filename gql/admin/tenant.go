package admin

import (
	"context"

	"weir/govern"
	"weir/gql/engine"
	"weir/model"
	"weir/store"
)

func (r *resolvers) tenants() {
	r.area.Row("AdminTenant", govern.Tenant{}, "tierToken", "registryBytes")
	r.area.Type("AdminTenantSetting", govern.DimensionSetting{})
	r.area.Type("AdminRateSetting", govern.Cascaded[float64]{})
	r.area.Type("AdminBurstSetting", govern.Cascaded[int64]{})
	r.area.Type("AdminGovernanceDimension", govern.Dimension{})
	r.area.Field("AdminTenant", "purgeState", engine.On(func(_ context.Context, t govern.Tenant, _ engine.Args) (any, error) {
		return t.PurgeState(), nil
	}))
	r.area.Field("AdminTenant", "purgeEpoch", engine.On(func(_ context.Context, t govern.Tenant, _ engine.Args) (any, error) {
		if t.PurgeEpoch == 0 {
			return nil, nil
		}
		return t.PurgeEpoch, nil
	}))
	r.area.Field("AdminTenant", "effectiveSettings", engine.On(func(_ context.Context, t govern.Tenant, _ engine.Args) (any, error) {
		return r.Govern.EffectiveSettings(&t), nil
	}))
	used := engine.NewLoader(func(ctx context.Context, _ []int64) (all map[int64]int64, err error) {
		return all, store.Read(ctx, r.Store, func(tx store.Tx) (err error) {
			all, err = store.AllUsedBytes(tx)
			return err
		})
	})
	r.area.Field("AdminTenant", "registryBytesUsed", engine.On(func(ctx context.Context, t govern.Tenant, _ engine.Args) (any, error) {
		return used.Then(ctx, t.ID, func(n int64, _ bool) (any, error) { return float64(n), nil }), nil
	}))
	r.area.Field("AdminTenant", "registryBytesCeiling", engine.On(func(_ context.Context, t govern.Tenant, _ engine.Args) (any, error) {
		return float64(r.Govern.RegistryBytes(t.ID)), nil
	}))
	tiers := engine.NewLoader(func(ctx context.Context, _ []int64) (map[int64]govern.TierCount, error) {
		return r.Govern.TiersByID(ctx)
	})
	r.area.Field("AdminTenant", "tier", engine.On(func(ctx context.Context, t govern.Tenant, _ engine.Args) (any, error) {
		return tiers.Load(ctx, t.TierID), nil
	}))

	r.query("tenants", model.TenantRead, func(ctx context.Context, by *model.Principal, _ engine.Args) (any, error) {
		all := []*govern.Tenant{}
		err := r.Govern.Tenants.Each(ctx, by, func(t *govern.Tenant) error {
			all = append(all, t)
			return nil
		})
		return all, err
	})
	r.query("governanceDimensions", model.TenantRead, func(context.Context, *model.Principal, engine.Args) (any, error) {
		return govern.Dimensions(), nil
	})
	r.mutation("createTenant", model.TenantWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Govern.Tenants.Create(ctx, by, args.Patch("request"))
	})
	r.mutation("updateTenant", model.TenantWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Govern.Tenants.Update(ctx, by, args.String("token"), args.Patch("request"))
	})
	r.mutation("setTenantEnabled", model.TenantWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Govern.SetTenantEnabled(ctx, by, args.String("token"), args.Bool("enabled"))
	})
}

// palette are the colors of tiers.
type palette struct {
	Colors []string `gql:"colors"`
}

func (r *resolvers) tiers() {
	r.area.Row("AdminTenantTier", govern.TierCount{})
	r.area.Type("TierColorPalette", palette{})
	r.query("tenantTiers", model.TenantRead, func(ctx context.Context, by *model.Principal, _ engine.Args) (any, error) {
		return r.Govern.TierCounts(ctx, by)
	})
	r.query("tierColorPalette", model.TenantRead, func(context.Context, *model.Principal, engine.Args) (any, error) {
		return palette{govern.Colors()}, nil
	})
	r.mutation("createTenantTier", model.TenantWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.counted(ctx)(r.Govern.Tiers.Create(ctx, by, args.Patch("request")))
	})
	r.mutation("updateTenantTier", model.TenantWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.counted(ctx)(r.Govern.Tiers.Update(ctx, by, args.String("token"), args.Patch("request")))
	})
	r.mutation("deleteTenantTier", model.TenantWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Govern.Tiers.Delete(ctx, by, args.String("token"))
	})
	r.mutation("reorderTenantTiers", model.TenantWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Govern.ReorderTiers(ctx, by, args.Strings("orderedTokens"))
	})
}

// counted adds the number of its tenants to a tier that was written.
func (r *resolvers) counted(ctx context.Context) func(*govern.Tier, error) (any, error) {
	return func(t *govern.Tier, err error) (any, error) {
		if err != nil {
			return nil, err
		}
		all, err := r.Govern.TiersByID(ctx)
		return govern.TierCount{Tier: t, Tenants: all[t.ID].Tenants}, err
	}
}
