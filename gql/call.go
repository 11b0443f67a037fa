package gql

import (
	"context"
	"net/netip"
	"time"

	"weir/model"
)

// Transport tells how a call came in.
type Transport uint8

// The transports.
const (
	InProcess Transport = iota
	HTTP
	WebSocket
)

// Call is what a resolver may know about the caller beside the arguments.
type Call struct {
	Principal *model.Principal // nil is anonymous
	RequestID string
	Remote    netip.Addr // zero when there is none, as on a unix socket
	Transport Transport
}

type callKey struct{}

// WithCall returns a context in which operations run on behalf of c.
func WithCall(ctx context.Context, c Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// CallFrom returns the call that ctx belongs to.
func CallFrom(ctx context.Context) Call {
	c, _ := ctx.Value(callKey{}).(Call)
	return c
}

// PrincipalFrom returns the caller, never nil: who is nobody is an anonymous principal.
func PrincipalFrom(ctx context.Context) *model.Principal {
	if p := CallFrom(ctx).Principal; p != nil {
		return p
	}
	return &model.Principal{}
}

// Require refuses with FORBIDDEN unless the caller holds a: for authorities that depend on the arguments.
func Require(ctx context.Context, a model.Authority) error {
	if !PrincipalFrom(ctx).Has(a) {
		return model.Forbidden(a)
	}
	return nil
}

// Credentials is what a caller presented. Bearer is "" when there was no token: Authenticate then answers with a Session
// without principal, or with the one that the way in stands for (the unix socket).
type Credentials struct {
	Plane     Plane
	Bearer    string
	Tenant    string // X-Weir-Tenant, unchecked; only service tokens may use it
	Remote    netip.Addr
	Transport Transport
}

// Session is a proven caller. Expires is when the proof ends (zero: never), Revoked whether it has been taken back
// since (nil: cannot be); open WebSocket connections ask both twice a second.
type Session struct {
	Principal *model.Principal
	Expires   time.Time
	Revoked   func() bool
}

// Authenticate proves credentials. An *model.Error with code UNAUTHENTICATED or UNAVAILABLE is shown to the caller with
// status 401 or 503, any other error is an internal one.
type Authenticate func(ctx context.Context, c Credentials) (Session, error)

func (s Session) over(now time.Time) bool {
	return !s.Expires.IsZero() && !now.Before(s.Expires) || s.Revoked != nil && s.Revoked()
}

func (s Session) anonymous() bool { return s.Principal == nil || s.Principal.Kind == model.Anonymous }

// Plane tells which kind of token an area takes.
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

// takes reports whether a principal of the kind may knock at the plane at all: the kind of the token is judged before
// authorities are.
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
