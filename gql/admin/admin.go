// Package admin holds the resolvers of the identity plane of user-management: what operators do with identities, roles, tenants
// and tiers, OAuth clients, the journal and the settings of the instance. The rules are those of auth and govern, which the
// command line and site files call, too.
package admin

import (
	"context"

	"weir/auth"
	"weir/govern"
	"weir/gql"
	"weir/gql/engine"
	"weir/ingest"
	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// Names of the areas.
const (
	Area         = "user-management-admin"
	SettingsArea = "user-management-settings"
)

// Deps are the collaborators of the plane.
type Deps struct {
	Auth    *auth.Auth
	Govern  *govern.Govern
	Journal entity.Journal
	Areas   []string // configured to run, sorted
	Store   store.Store
	Writer  store.Writer
	// Resend takes the message of a dead letter in again; nil where no instance runs.
	Resend func(context.Context, *store.DeadLetter) (ingest.Answer, error)
	// Ordered is called when an order is put back into the outbox; nil where no instance runs.
	Ordered func()
	// Instance tells how the program that runs is.
	Instance Instance
}

// Register registers the admin plane of the user-management area.
func Register(a *gql.Area, d Deps) {
	r := &resolvers{d, a}
	a.Query("ping", gql.AnyCaller(), always("pong"))
	a.Query("functionalAreas", gql.AnyCaller(), always(d.Areas))
	r.identities()
	r.memberships()
	r.roles()
	r.tenants()
	r.deletions()
	r.tiers()
	r.clients()
	r.journal()
	gql.RegisterDeadLetters(a, gql.LetterDeps{Store: d.Store, Writer: d.Writer, Tenant: d.Govern.Lookup, Resend: d.Resend, Ordered: d.Ordered}, gql.Requires(model.AuditRead),
		gql.Requires(model.TenantWrite))
}

// resolvers registers the operations of a plane.
type resolvers struct {
	Deps
	area *gql.Area
}

// operation is an operation with the caller who runs it.
type operation func(ctx context.Context, by *model.Principal, args engine.Args) (any, error)

func (o operation) resolve(ctx context.Context, _ any, args engine.Args) (any, error) {
	return o(ctx, gql.PrincipalFrom(ctx), args)
}

func (r *resolvers) query(name string, needs model.Authority, o operation) {
	r.area.Query(name, gql.Requires(needs), o.resolve)
}

func (r *resolvers) mutation(name string, needs model.Authority, o operation) {
	r.area.Mutation(name, gql.Requires(needs), o.resolve)
}

func always(v any) engine.Resolver {
	return func(context.Context, any, engine.Args) (any, error) { return v, nil }
}
