package admin

import (
	"context"

	"weir/govern"
	"weir/gql"
	"weir/gql/engine"
	"weir/model"
)

// RegisterSettings registers the settings plane of the user-management area.
func RegisterSettings(a *gql.Area, d Deps) {
	r := &resolvers{d, a}
	a.Type("Setting", govern.Setting{})
	r.registerInstance()
	r.registerLooks()
	r.registerBackups()
	r.registerLog()
	r.registerRecounts()
	r.query("settings", model.SettingsRead, func(ctx context.Context, by *model.Principal, _ engine.Args) (any, error) {
		return d.Govern.Settings(ctx, by)
	})
	r.query("setting", model.SettingsRead, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		s, err := d.Govern.Setting(ctx, by, args.String("key"))
		if s == nil {
			return nil, err
		}
		return s, err
	})
	a.Query("tokenMasks", gql.AnyCaller(), func(ctx context.Context, _ any, _ engine.Args) (any, error) {
		return d.Govern.TokenMasks(ctx)
	})
	r.mutation("setSetting", model.SettingsWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return d.Govern.SetSetting(ctx, by, args.String("key"), args.String("value"))
	})
	r.mutation("clearSetting", model.SettingsWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return d.Govern.ClearSetting(ctx, by, args.String("key"))
	})
}
