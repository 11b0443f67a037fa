package gql

import (
	"context"
	"net/netip"
	"time"

	"weir/auth"
	"weir/govern"
	"weir/model"
	"weir/store"
)

// SignIn is what the user-management area needs of auth.
type SignIn interface {
	Login(ctx context.Context, email, password string, source netip.Addr) (*auth.SignIn, error)
	SelectTenant(ctx context.Context, identityToken, tenant string) (*auth.AuthToken, error)
	Refresh(ctx context.Context, refreshToken string) (*auth.AuthToken, error)
	IdentityMemberships(identityToken string) ([]auth.Membership, error)
}

// Profiles is a person's own record.
type Profiles interface {
	Me(ctx context.Context, by *model.Principal) (*auth.Profile, error)
	UpdateProfile(ctx context.Context, by *model.Principal, p store.Patch) (*auth.Profile, error)
}

// TenantReader is what the area needs of govern.
type TenantReader interface {
	Tenant(ctx context.Context, token string) (*govern.Tenant, error)
	Governance(tenant string) (govern.Governance, bool)
	TenantTokens() []string
}

// UserDeps are the collaborators of the user-management area.
type UserDeps struct {
	SignIn   SignIn
	Profiles Profiles
	Tenants  TenantReader
	Areas    []string // configured to run, sorted
}

// defaultTokenMasks is the built-in hint for what clients may propose as tokens.
const defaultTokenMasks = `{"default":"{slug}"}`

// RegisterUser gives the user-management area its tenant plane.
func RegisterUser(a *Area, d UserDeps) {
	u := &userResolvers{d}
	a.Type("Membership", auth.Membership{})
	a.Type("IdentityAuth", auth.SignIn{})
	a.Type("AuthToken", auth.AuthToken{})
	a.Type("CurrentIdentity", auth.Profile{})
	a.Type("Tenant", tenantView{})
	a.Type("TenantGovernance", govern.Governance{})
	a.Field("TenantGovernance", "purgeState", always("active"))

	a.Query("ping", Anonymous(), always("pong"))
	a.Query("tenant", AnyCaller(), u.tenant)
	a.Query("tenantGovernance", AnyCaller(), u.governance)
	a.Query("tenantTokens", Requires(model.TenantRead).WithoutTenant(), func(context.Context, any, Args) (any, error) {
		return d.Tenants.TenantTokens(), nil
	})
	a.Query("me", AnyCaller(), func(ctx context.Context, _ any, _ Args) (any, error) {
		return d.Profiles.Me(ctx, PrincipalFrom(ctx))
	})
	a.Query("identityMemberships", Anonymous(), func(_ context.Context, _ any, args Args) (any, error) {
		return d.SignIn.IdentityMemberships(args.String("identityToken"))
	})
	a.Query("functionalAreas", AnyCaller(), always(d.Areas))
	a.Query("tokenMasks", AnyCaller(), always(defaultTokenMasks))

	a.Mutation("login", Anonymous(), func(ctx context.Context, _ any, args Args) (any, error) {
		return d.SignIn.Login(ctx, args.String("email"), args.String("password"), CallFrom(ctx).Remote)
	}, CredentialCheck())
	a.Mutation("selectTenant", Anonymous(), func(ctx context.Context, _ any, args Args) (any, error) {
		return d.SignIn.SelectTenant(ctx, args.String("identityToken"), args.String("tenant"))
	})
	a.Mutation("refresh", Anonymous(), func(ctx context.Context, _ any, args Args) (any, error) {
		return d.SignIn.Refresh(ctx, args.String("refreshToken"))
	})
	a.Mutation("updateProfile", AnyCaller(), func(ctx context.Context, _ any, args Args) (any, error) {
		return d.Profiles.UpdateProfile(ctx, PrincipalFrom(ctx), args.Patch("request"))
	})
}

type userResolvers struct{ UserDeps }

// tenantView is what a tenant's own people see of it.
type tenantView struct {
	Token       string  `gql:"token"`
	Name        *string `gql:"name"`
	Description *string `gql:"description"` // nothing of a tenant describes it yet
}

func always(v any) Resolver {
	return func(context.Context, any, Args) (any, error) { return v, nil }
}

func (u *userResolvers) tenant(ctx context.Context, _ any, _ Args) (any, error) {
	name := PrincipalFrom(ctx).Tenant
	t, err := u.Tenants.Tenant(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case t == nil:
		return nil, model.NotFound("tenant", name)
	}
	return tenantView{Token: t.Token, Name: t.Name}, nil
}

func (u *userResolvers) governance(ctx context.Context, _ any, _ Args) (any, error) {
	p := PrincipalFrom(ctx)
	if p.Kind == model.ServiceCaller {
		if err := Require(ctx, model.TenantRead); err != nil {
			return nil, err
		}
	}
	v, ok := u.Tenants.Governance(p.Tenant)
	if !ok {
		return nil, model.NotFound("tenant", p.Tenant)
	}
	return v, nil
}

// TokenJudge is what ByToken needs of auth.
type TokenJudge interface {
	Authenticate(p auth.Plane, token, tenantHeader string) (*model.Principal, error)
	Valid(p *model.Principal) (until time.Time, ok bool)
}

// ByToken proves callers by their bearer token.
func ByToken(judge TokenJudge) Authenticate {
	return func(_ context.Context, c Credentials) (Session, error) {
		if c.Bearer == "" {
			return Session{}, nil
		}
		p, err := judge.Authenticate(planeOf(c), c.Bearer, c.Tenant)
		if err != nil {
			return Session{}, err
		}
		return Session{Principal: p, Expires: p.Expires.Time(), Revoked: func() bool { _, ok := judge.Valid(p); return !ok }}, nil
	}
}

func planeOf(c Credentials) auth.Plane {
	switch {
	case c.Plane == IdentityPlane:
		return auth.PlaneIdentity
	case c.Transport == WebSocket:
		return auth.PlaneTenantSocket
	}
	return auth.PlaneTenant
}
