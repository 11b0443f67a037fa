package gql

import (
	"context"
	"net/netip"
	"time"

	"weir/model"
	"weir/store"
)

// Transport is the way by which a call arrived.
type Transport uint8

// The transports.
const (
	InProcess Transport = iota
	HTTP
	WebSocket
)

// Call describes the caller to a resolver.
type Call struct {
	Principal *model.Principal // nil: anonymous
	RequestID string
	Remote    netip.Addr // zero when there is no address, as on a unix socket
	Transport Transport
}

type callKey struct{}

// WithCall returns a context in which operations run on behalf of c.
func WithCall(ctx context.Context, c Call) context.Context {
	ctx = context.WithValue(ctx, callKey{}, c)
	if p := c.Principal; p != nil && p.Kind != model.LocalOperator {
		ctx = store.ForTenant(ctx, p.TenantID)
	}
	return ctx
}

// CallFrom returns the call that ctx belongs to.
func CallFrom(ctx context.Context) Call {
	c, _ := ctx.Value(callKey{}).(Call)
	return c
}

// PrincipalFrom returns the caller, never nil: a call without a principal has an anonymous one.
func PrincipalFrom(ctx context.Context) *model.Principal {
	if p := CallFrom(ctx).Principal; p != nil {
		return p
	}
	return &model.Principal{}
}

// Require returns FORBIDDEN unless the caller holds a. It serves resolvers whose authority depends on the arguments.
func Require(ctx context.Context, a model.Authority) error {
	if !PrincipalFrom(ctx).Has(a) {
		return model.Forbidden(a)
	}
	return nil
}

// Credentials are the proof that a caller presented. Bearer is "" without a token: Authenticate then returns a Session
// without a principal, or with the principal of the transport (the local operator on the unix socket).
type Credentials struct {
	Plane     Plane
	Bearer    string
	Tenant    string // X-Weir-Tenant, unchecked; only service tokens may use it
	Remote    netip.Addr
	Transport Transport
}

// Session is an authenticated caller. Expires is the end of its validity (zero: none), Revoked reports whether it was
// revoked since (nil: it cannot be); open WebSocket connections check both twice a second.
type Session struct {
	Principal *model.Principal
	Expires   time.Time
	Revoked   func() bool
}

// Authenticate verifies credentials. An *model.Error with code UNAUTHENTICATED or UNAVAILABLE is shown to the caller with
// status 401 or 503, any other error is an internal one.
type Authenticate func(ctx context.Context, c Credentials) (Session, error)

func (s Session) over(now time.Time) bool {
	return !s.Expires.IsZero() && !now.Before(s.Expires) || s.Revoked != nil && s.Revoked()
}

func (s Session) anonymous() bool { return s.Principal == nil || s.Principal.Kind == model.Anonymous }

// Plane is the kind of token that an area accepts.
type Plane uint8

// The planes.
const (
	TenantPlane   Plane = iota // access and service tokens
	IdentityPlane              // identity tokens
)

func (p Plane) String() string {
	if p == IdentityPlane {
		return "identity"
	}
	return "tenant"
}

// takes reports whether the plane accepts principals of the kind. The kind of the token is checked before authorities.
func (p Plane) takes(k model.PrincipalKind, t Transport) bool {
	switch k {
	case model.Anonymous:
		return p == TenantPlane
	case model.AccessCaller:
		return p == TenantPlane
	case model.ServiceCaller:
		return p == TenantPlane && t != WebSocket
	case model.IdentityCaller:
		return p == IdentityPlane
	case model.LocalOperator:
		return true
	}
	return false
}
