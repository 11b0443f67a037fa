package gql

import (
	"slices"
	"strings"

	"weir/model"
)

// Access is what an operation demands of its caller. It is declared with the resolver and checked before the resolver
// runs.
type Access struct {
	anonymous   bool
	tenantFree  bool
	authorities []model.Authority
}

// Requires demands all the given authorities and, on the tenant plane, a resolved tenant.
func Requires(as ...model.Authority) Access { return Access{authorities: as} }

// AnyCaller demands a verified caller of the plane: on the tenant plane with a resolved tenant, on the identity plane
// with a system role.
func AnyCaller() Access { return Access{} }

// Anonymous demands nothing: callers without a token are served too.
func Anonymous() Access { return Access{anonymous: true, tenantFree: true} }

// WithoutTenant lets the operation run when no tenant is resolved.
func (a Access) WithoutTenant() Access {
	a.tenantFree = true
	return a
}

// Anonymous reports whether callers without a token are served.
func (a Access) Anonymous() bool { return a.anonymous }

// NeedsTenant reports whether the operation refuses on the tenant plane when no tenant is resolved.
func (a Access) NeedsTenant() bool { return !a.tenantFree }

// Authorities returns what the caller must hold.
func (a Access) Authorities() []model.Authority { return slices.Clone(a.authorities) }

func (a Access) check(plane Plane, t Transport, p *model.Principal) error {
	if p == nil {
		p = &model.Principal{}
	}
	switch {
	case a.anonymous:
		return nil
	case p.Kind == model.Anonymous:
		return model.Unauthenticated("a token is required")
	case !plane.takes(p.Kind, t):
		return model.Unauthenticated("this kind of token is not accepted here")
	case plane == IdentityPlane && p.Kind == model.IdentityCaller && len(p.System) == 0:
		return model.Errorf(model.CodeForbidden, "forbidden: a system role is required")
	}
	for _, authority := range a.authorities {
		if !p.Has(authority) {
			return model.Forbidden(authority)
		}
	}
	if plane == TenantPlane && !a.tenantFree && p.Tenant == "" {
		return model.Unauthenticated("no tenant is resolved")
	}
	return nil
}

// Operation is one root field, for code that enumerates all of them.
type Operation struct {
	Area   string
	Plane  Plane
	Kind   string // query, mutation or subscription
	Name   string
	Access Access
}

func compareOperations(a, b Operation) int {
	for _, c := range []int{strings.Compare(a.Area, b.Area), strings.Compare(a.Kind, b.Kind)} {
		if c != 0 {
			return c
		}
	}
	return strings.Compare(a.Name, b.Name)
}
