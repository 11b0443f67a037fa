package gql

import (
	"context"

	"weir/gql/engine"
	"weir/model"
	"weir/provision"
	"weir/registry"
)

// registerClaims registers the claims of devices. Provisioning profiles are in the registry's catalog.
func registerClaims(a *Area, r *registry.Registry, p *provision.Provision) {
	a.Row("DeviceClaim", provision.Claim{})
	entities := entityLoader(r)
	a.Field("DeviceClaim", "device", engine.On(func(ctx context.Context, c provision.Claim, _ engine.Args) (any, error) {
		return entities.Load(ctx, entityRef{registry.EntityDevice, c.DeviceID}), nil
	}), engine.Refers())
	a.Field("DeviceClaim", "claimedByCustomer", engine.On(func(ctx context.Context, c provision.Claim, _ engine.Args) (any, error) {
		if c.CustomerID == nil {
			return nil, nil
		}
		return entities.Load(ctx, entityRef{registry.EntityCustomer, *c.CustomerID}), nil
	}), engine.Refers())
	a.Query("deviceClaim", Requires(model.DeviceRead), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		claim, err := p.ClaimOf(ctx, PrincipalFrom(ctx), args.String("deviceToken"))
		if claim == nil {
			return nil, err
		}
		return claim, err
	})
	a.Mutation("initiateDeviceClaim", Requires(model.DeviceWrite), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		q := args.Object("request")
		until, err := instant(q, "expiresAt", true)
		if err != nil {
			return nil, err
		}
		return p.InitiateClaim(ctx, PrincipalFrom(ctx), provision.ClaimInitiate{Device: q.String("deviceToken"), Secret: q.String("claimSecret"), ExpiresAt: until})
	})
	a.Mutation("claimDevice", Requires(model.DeviceWrite), engine.Do(func(ctx context.Context, in struct {
		Request provision.ClaimRequest `gql:"request"`
	}) (any, error) {
		return p.ClaimDevice(ctx, PrincipalFrom(ctx), in.Request)
	}))
	a.Mutation("cancelDeviceClaim", Requires(model.DeviceWrite), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return p.CancelClaim(ctx, PrincipalFrom(ctx), args.String("deviceToken"))
	})
}
