package admin

import (
	"context"

	"weir/auth"
	"weir/gql/engine"
	"weir/model"
)

func (r *resolvers) roles() {
	r.area.Row("AdminRole", auth.Role{})
	r.query("roles", model.RoleRead, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Auth.Roles.In(ctx, by, args.String("scope"))
	})
	r.query("authorities", model.RoleRead, func(_ context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Auth.Roles.Authorities(by, args.String("scope"))
	})
	r.mutation("createRole", model.RoleWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Auth.Roles.Create(ctx, by, args.Patch("request"))
	})
	r.mutation("updateRole", model.RoleWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Auth.Roles.UpdateIn(ctx, by, args.String("scope"), args.String("token"), args.Patch("request"))
	})
	r.mutation("deleteRole", model.RoleWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Auth.Roles.DeleteIn(ctx, by, args.String("scope"), args.String("token"))
	})
}
