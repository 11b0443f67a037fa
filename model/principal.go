package model

// Authority is a capability of the form resource:action that a resolver demands.
type Authority string

// The vocabulary. The tier decides which tokens can carry an authority: access tokens never carry one of the system tier.
const (
	UserRead       Authority = "user:read"
	UserWrite      Authority = "user:write"
	RoleRead       Authority = "role:read"
	RoleWrite      Authority = "role:write"
	TenantRead     Authority = "tenant:read"
	TenantWrite    Authority = "tenant:write"
	SettingsRead   Authority = "settings:read"
	SettingsWrite  Authority = "settings:write"
	ClientRead     Authority = "client:read"
	ClientWrite    Authority = "client:write"
	AIAdmin        Authority = "ai:admin"
	CommandClaim   Authority = "command:claim"
	CommandWake    Authority = "command:wake"
	CommandPark    Authority = "command:park"
	AuditRead      Authority = "audit:read"
	DeviceRead     Authority = "device:read"
	DeviceWrite    Authority = "device:write"
	LocationRead   Authority = "location:read"
	EventRead      Authority = "event:read"
	StateRead      Authority = "state:read"
	StateDemote    Authority = "state:demote"
	AlarmRead      Authority = "alarm:read"
	AlarmWrite     Authority = "alarm:write"
	CommandRead    Authority = "command:read"
	CommandWrite   Authority = "command:write"
	DashboardRead  Authority = "dashboard:read"
	DashboardWrite Authority = "dashboard:write"
	ConnectorRead  Authority = "connector:read"
	ConnectorWrite Authority = "connector:write"
	NotifyRead     Authority = "notification:read"
	NotifyWrite    Authority = "notification:write"
	BrandingWrite  Authority = "branding:write"
	BasemapWrite   Authority = "basemap:write"
	AIInfer        Authority = "ai:infer"
	// AllAuthorities stands for every authority of the tier of the role it comes from, but never for StateDemote.
	AllAuthorities Authority = "*"
)

// Tier is the plane on which an authority counts.
type Tier uint8

// The tiers, as bits: audit:read belongs to both.
const (
	TierSystem Tier = 1 << iota
	TierTenant
)

var authorityTiers = map[Authority]Tier{
	UserRead: TierSystem, UserWrite: TierSystem, RoleRead: TierSystem, RoleWrite: TierSystem,
	TenantRead: TierSystem, TenantWrite: TierSystem, SettingsRead: TierSystem, SettingsWrite: TierSystem,
	ClientRead: TierSystem, ClientWrite: TierSystem, AIAdmin: TierSystem,
	CommandClaim: TierSystem, CommandWake: TierSystem, CommandPark: TierSystem,
	AuditRead:  TierSystem | TierTenant,
	DeviceRead: TierTenant, DeviceWrite: TierTenant, LocationRead: TierTenant, EventRead: TierTenant,
	StateRead: TierTenant, StateDemote: TierTenant, AlarmRead: TierTenant, AlarmWrite: TierTenant,
	CommandRead: TierTenant, CommandWrite: TierTenant, DashboardRead: TierTenant, DashboardWrite: TierTenant,
	ConnectorRead: TierTenant, ConnectorWrite: TierTenant, NotifyRead: TierTenant, NotifyWrite: TierTenant,
	BrandingWrite: TierTenant, BasemapWrite: TierTenant, AIInfer: TierTenant,
}

// TierOf returns the tiers of a, 0 for an unknown authority. The wildcard belongs to both.
func TierOf(a Authority) Tier {
	if a == AllAuthorities {
		return TierSystem | TierTenant
	}
	return authorityTiers[a]
}

// Authorities returns the vocabulary of a tier without the wildcard, unsorted.
func Authorities(t Tier) []Authority {
	var as []Authority
	for a, tier := range authorityTiers {
		if tier&t != 0 {
			as = append(as, a)
		}
	}
	return as
}

// PrincipalKind is the way in which a caller was authenticated.
type PrincipalKind uint8

// The kinds of principals.
const (
	Anonymous      PrincipalKind = iota
	AccessCaller                 // access token: one identity in one tenant
	IdentityCaller               // identity token: identity plane
	ServiceCaller                // service token, or another area in this process
	LocalOperator                // a user with access to the data directory: unix socket or offline under the lock
)

// Principal is the caller of an operation.
type Principal struct {
	Kind     PrincipalKind
	Subject  string // username, email, or the service's subject; "system" for internal work
	Identity int64  // row id of the identity, 0 for services
	Tenant   string // resolved tenant, "" when none is
	TenantID int64  // row id of Tenant
	Sudo     bool   // bearer is a superuser
	Session  string // that the token belongs to, "" for a principal without one
	Issued   Micros // when the token was issued, 0 for a principal without a token
	Expires  Micros // when the token ends, likewise
	System   map[Authority]bool
	Tenants  map[Authority]bool
}

// Has reports whether the principal holds a. The token kind is checked first: an access token never permits a system-tier
// operation, an identity token never a tenant-tier one.
func (p *Principal) Has(a Authority) bool {
	if p == nil {
		return false
	}
	tier := TierOf(a)
	holds := func(set map[Authority]bool) bool { return set[a] || a != StateDemote && set[AllAuthorities] }
	switch p.Kind {
	case AccessCaller:
		return tier&TierTenant != 0 && holds(p.Tenants)
	case IdentityCaller:
		return tier&TierSystem != 0 && holds(p.System)
	case ServiceCaller:
		return tier&TierSystem != 0 && holds(p.System) || tier&TierTenant != 0 && holds(p.Tenants)
	case LocalOperator:
		return a != StateDemote && tier != 0
	}
	return false
}

// Service returns an in-process principal of the named subject with exactly the given tenant-tier authorities.
func Service(subject, tenant string, tenantID int64, as ...Authority) *Principal {
	p := &Principal{Kind: ServiceCaller, Subject: subject, Tenant: tenant, TenantID: tenantID,
		System: map[Authority]bool{}, Tenants: map[Authority]bool{}}
	for _, a := range as {
		if TierOf(a)&TierSystem != 0 {
			p.System[a] = true
		}
		if TierOf(a)&TierTenant != 0 {
			p.Tenants[a] = true
		}
	}
	return p
}
