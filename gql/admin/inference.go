package admin

import (
	"context"

	"weir/gql"
	"weir/gql/engine"
	"weir/inference"
	"weir/model"
)

// RegisterInference registers the identity plane of the ai-inference area: providers, and who may use them.
func RegisterInference(a *gql.Area, i *inference.Inference) {
	a.Entities(i.Kinds)
	a.Types(map[string]any{"AiProviderTierGrant": inference.TierGrant{}, "AiProviderTenantGrant": inference.TenantGrant{}, "AiFunction": inference.Function{},
		"AiFunctionAssignment": inference.Assignment{}, "InferenceResult": inference.Result{}})
	r := &resolvers{area: a}
	query := func(name string, o operation) { r.query(name, model.AIAdmin, o) }
	query("aiProviderKinds", func(context.Context, *model.Principal, engine.Args) (any, error) { return inference.KindNames(), nil })
	query("aiFunctions", func(context.Context, *model.Principal, engine.Args) (any, error) { return inference.Functions(), nil })
	query("aiProviderTierGrants", func(ctx context.Context, by *model.Principal, _ engine.Args) (any, error) {
		return i.TierGrants(ctx, by)
	})
	query("aiProviderTenantGrants", func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return i.TenantGrants(ctx, by, args.String("tenant"))
	})
	query("aiFunctionAssignments", func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return i.Assignments(ctx, by, args.String("tenant"))
	})
	mutation := func(name string, do func(ctx context.Context, by *model.Principal, args engine.Args) (bool, error)) {
		r.mutation(name, model.AIAdmin, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
			return do(ctx, by, args)
		})
	}
	mutation("grantAiProviderToTier", func(ctx context.Context, by *model.Principal, args engine.Args) (bool, error) {
		return i.GrantToTier(ctx, by, args.String("tier"), args.String("provider"))
	})
	mutation("revokeAiProviderFromTier", func(ctx context.Context, by *model.Principal, args engine.Args) (bool, error) {
		return i.RevokeFromTier(ctx, by, args.String("tier"), args.String("provider"))
	})
	mutation("setAiTierDefault", func(ctx context.Context, by *model.Principal, args engine.Args) (bool, error) {
		return i.SetTierDefault(ctx, by, args.String("tier"), args.String("provider"))
	})
	mutation("clearAiTierDefault", func(ctx context.Context, by *model.Principal, args engine.Args) (bool, error) {
		return i.ClearTierDefault(ctx, by, args.String("tier"))
	})
	mutation("grantAiProviderToTenant", func(ctx context.Context, by *model.Principal, args engine.Args) (bool, error) {
		return i.GrantToTenant(ctx, by, args.String("tenant"), args.String("provider"))
	})
	mutation("revokeAiProviderFromTenant", func(ctx context.Context, by *model.Principal, args engine.Args) (bool, error) {
		return i.RevokeFromTenant(ctx, by, args.String("tenant"), args.String("provider"))
	})
	mutation("setAiFunctionModel", func(ctx context.Context, by *model.Principal, args engine.Args) (bool, error) {
		return i.Assign(ctx, by, args.String("tenant"), args.String("function"), args.String("provider"))
	})
	mutation("clearAiFunctionModel", func(ctx context.Context, by *model.Principal, args engine.Args) (bool, error) {
		return i.Unassign(ctx, by, args.String("tenant"), args.String("function"))
	})
	a.Mutation("testAiProvider", gql.Requires(model.AIAdmin), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return i.Test(ctx, gql.PrincipalFrom(ctx), args.String("token"), gql.InferenceRequest(args))
	}, engine.Within(gql.InferenceTime))
}
