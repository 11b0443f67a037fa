package admin

import (
	"context"

	"weir/auth"
	"weir/gql"
	"weir/gql/engine"
	"weir/model"
)

func (r *resolvers) identities() {
	r.area.Type("AdminIdentity", auth.Identity{})
	r.query("identities", model.UserRead, func(ctx context.Context, by *model.Principal, _ engine.Args) (any, error) {
		return r.Auth.Identities(ctx, by)
	})
	r.area.Mutation("createIdentity", gql.Requires(model.UserWrite), engine.Do(func(ctx context.Context, in struct {
		Request auth.NewIdentity `gql:"request"`
	}) (any, error) {
		return r.Auth.CreateIdentity(ctx, gql.PrincipalFrom(ctx), in.Request)
	}))
	r.mutation("setIdentityEnabled", model.UserWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Auth.SetIdentityEnabled(ctx, by, args.String("email"), args.Bool("enabled"))
	})
	r.mutation("setSystemRoles", model.UserWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Auth.SetSystemRoles(ctx, by, args.String("email"), args.Strings("roleTokens"))
	})
	r.mutation("setPassword", model.UserWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Auth.SetPassword(ctx, by, args.String("email"), args.String("password"))
	})
	r.mutation("deleteIdentity", model.UserWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Auth.DeleteIdentity(ctx, by, args.String("email"))
	})
}

func (r *resolvers) memberships() {
	r.area.Type("AdminMembership", auth.IdentityMembership{})
	r.mutation("addMembership", model.UserWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Auth.AddMembership(ctx, by, args.String("email"), args.String("tenant"), args.Strings("roleTokens"))
	})
	r.mutation("setMembershipRoles", model.UserWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Auth.SetMembershipRoles(ctx, by, args.String("email"), args.String("tenant"), args.Strings("roleTokens"))
	})
	r.mutation("setMembershipEnabled", model.UserWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Auth.SetMembershipEnabled(ctx, by, args.String("email"), args.String("tenant"), args.Bool("enabled"))
	})
	r.mutation("removeMembership", model.UserWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Auth.RemoveMembership(ctx, by, args.String("email"), args.String("tenant"))
	})
}
