package gql

import (
	"context"
	"net/netip"
	"time"

	"weir/auth"
	"weir/govern"
	"weir/gql/engine"
	"weir/model"
	"weir/store"
)

// SignIn is the part of auth that the user-management area uses.
type SignIn interface {
	Login(ctx context.Context, email, password string, source netip.Addr) (*auth.SignIn, error)
	SelectTenant(ctx context.Context, identityToken, tenant string) (*auth.AuthToken, error)
	Refresh(ctx context.Context, refreshToken string) (*auth.AuthToken, error)
	SignOut(ctx context.Context, refreshToken, identityToken string) (bool, error)
	IdentityMemberships(identityToken string) ([]auth.Membership, error)
}

// Profiles reads and changes the caller's own identity.
type Profiles interface {
	Me(ctx context.Context, by *model.Principal) (*auth.Profile, error)
	UpdateProfile(ctx context.Context, by *model.Principal, p store.Patch) (*auth.Profile, error)
}

// TenantReader is the part of govern that the area uses.
type TenantReader interface {
	Tenant(ctx context.Context, token string) (*govern.Tenant, error)
	Governance(tenant string) (govern.Governance, bool)
	TenantTokens() []string
	TokenMasks(ctx context.Context) (string, error)
	Look(ctx context.Context, tenant int64) (*govern.Look, error)
	SetBranding(ctx context.Context, by *model.Principal, b govern.Branding) error
	SetLogo(ctx context.Context, by *model.Principal, logo *string) error
	SetBasemap(ctx context.Context, by *model.Principal, m govern.Basemap) error
}

// UserDeps are the collaborators of the user-management area.
type UserDeps struct {
	SignIn   SignIn
	Profiles Profiles
	Tenants  TenantReader
	Areas    []string // configured to run, sorted
}

// RegisterUser registers the tenant plane of the user-management area.
func RegisterUser(a *Area, d UserDeps) {
	u := &userResolvers{d}
	a.Type("Membership", auth.Membership{})
	a.Type("IdentityAuth", auth.SignIn{})
	a.Type("AuthToken", auth.AuthToken{})
	a.Type("CurrentIdentity", auth.Profile{})
	a.Type("Tenant", tenantView{})
	a.Type("TenantBranding", govern.Branding{})
	a.Type("TenantBasemap", govern.Basemap{})
	a.Type("TenantGovernance", govern.Governance{})
	a.Field("TenantGovernance", "purgeState", always("active"))

	a.Query("ping", Anonymous(), always("pong"))
	a.Query("tenant", AnyCaller(), u.tenant)
	a.Query("tenantGovernance", AnyCaller(), u.governance)
	a.Query("tenantTokens", Requires(model.TenantRead).WithoutTenant(), func(context.Context, any, engine.Args) (any, error) {
		return d.Tenants.TenantTokens(), nil
	})
	a.Query("me", AnyCaller(), func(ctx context.Context, _ any, _ engine.Args) (any, error) {
		return d.Profiles.Me(ctx, PrincipalFrom(ctx))
	})
	a.Query("identityMemberships", Anonymous(), func(_ context.Context, _ any, args engine.Args) (any, error) {
		return d.SignIn.IdentityMemberships(args.String("identityToken"))
	})
	a.Query("functionalAreas", AnyCaller(), always(d.Areas))
	a.Query("tokenMasks", AnyCaller(), func(ctx context.Context, _ any, _ engine.Args) (any, error) {
		return d.Tenants.TokenMasks(ctx)
	})

	a.Mutation("login", Anonymous(), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return d.SignIn.Login(ctx, args.String("email"), args.String("password"), CallFrom(ctx).Remote)
	}, engine.CredentialCheck())
	a.Mutation("selectTenant", Anonymous(), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return d.SignIn.SelectTenant(ctx, args.String("identityToken"), args.String("tenant"))
	})
	a.Mutation("refresh", Anonymous(), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return d.SignIn.Refresh(ctx, args.String("refreshToken"))
	})
	a.Mutation("signOut", Anonymous(), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return d.SignIn.SignOut(ctx, args.String("refreshToken"), args.String("identityToken"))
	})
	a.Mutation("updateProfile", AnyCaller(), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return d.Profiles.UpdateProfile(ctx, PrincipalFrom(ctx), args.Patch("request"))
	})
	u.look(a)
}

// look registers the mutations of how the caller's tenant is shown.
func (u *userResolvers) look(a *Area) {
	change := func(name string, needs model.Authority, set func(ctx context.Context, by *model.Principal, args engine.Args) error) {
		a.Mutation(name, Requires(needs), func(ctx context.Context, src any, args engine.Args) (any, error) {
			if err := set(ctx, PrincipalFrom(ctx), args); err != nil {
				return nil, err
			}
			return u.tenant(ctx, src, args)
		})
	}
	change("setTenantBranding", model.BrandingWrite, func(ctx context.Context, by *model.Principal, args engine.Args) error {
		var b govern.Branding
		if err := args.Object("input").Decode(&b); err != nil {
			return err
		}
		return u.Tenants.SetBranding(ctx, by, b)
	})
	change("setTenantLogo", model.BrandingWrite, func(ctx context.Context, by *model.Principal, args engine.Args) error {
		return u.Tenants.SetLogo(ctx, by, args.Text("logo"))
	})
	change("setTenantBasemap", model.BasemapWrite, func(ctx context.Context, by *model.Principal, args engine.Args) error {
		var m govern.Basemap
		if err := args.Object("input").Decode(&m); err != nil {
			return err
		}
		return u.Tenants.SetBasemap(ctx, by, m)
	})
}

type userResolvers struct{ UserDeps }

// tenantView is what the members of a tenant see of it.
type tenantView struct {
	Token       string  `gql:"token"`
	Name        *string `gql:"name"`
	Description *string `gql:"description"` // a tenant has no description yet

	Branding         govern.Branding `gql:"branding"`
	BrandingOverride govern.Branding `gql:"brandingOverride"`
	Basemap          govern.Basemap  `gql:"basemap"`
	BasemapOverride  govern.Basemap  `gql:"basemapOverride"`
	Locale           *string         `gql:"locale"`
	LocaleOverride   *string         `gql:"localeOverride"`
}

func always(v any) engine.Resolver {
	return func(context.Context, any, engine.Args) (any, error) { return v, nil }
}

func (u *userResolvers) tenant(ctx context.Context, _ any, _ engine.Args) (any, error) {
	name := PrincipalFrom(ctx).Tenant
	t, err := u.Tenants.Tenant(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case t == nil:
		return nil, model.NotFound("tenant", name)
	}
	l, err := u.Tenants.Look(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	return tenantView{t.Token, t.Name, nil, l.Branding, l.BrandingOverride, l.Basemap, l.BasemapOverride, l.Locale, l.LocaleOverride}, nil
}

func (u *userResolvers) governance(ctx context.Context, _ any, _ engine.Args) (any, error) {
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

// TokenJudge is the part of auth that ByToken uses.
type TokenJudge interface {
	Authenticate(p auth.Plane, token, tenantHeader string) (*model.Principal, error)
	Valid(p *model.Principal) (until time.Time, ok bool)
}

// ByToken authenticates callers by their bearer token.
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
