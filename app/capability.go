package app

import (
	"context"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"weir/config"
	"weir/govern"
	"weir/gql"
	"weir/health"
	"weir/ingest"
	"weir/model"
	"weir/registry"
	"weir/store"
	"weir/store/entity"
)

// Capability is what one domain package brings to an instance, beside what every instance stands on: tenants, identities, devices and the
// log. The catalog of kinds, the areas of the API, the results of the log, the checks of weir doctor, reloads and stops walk the list of
// capabilities, so that adding one is its package and one line in capabilities. A nil field brings nothing.
type Capability struct {
	Name string
	// Make makes the parts. It comes before all that follows, once for an instance, and where nothing runs as well.
	Make func(h Handed)
	// Kinds are put into the catalog of the instance, after its own: their fields may refer to any kind that comes before them, and the
	// delete of a row asks for theirs.
	Kinds func() *entity.Catalog
	// RemoveDevice removes what is alive of a device, in the transaction that deletes it.
	RemoveDevice registry.Removal
	// Areas are endpoints of the API. One with the name of an endpoint that is there adds its operations to that.
	Areas []Area
	// Results are results of the log, see ingest.Projection: made once for each start of the applier.
	Results func() []ingest.Projection
	// Checks are what weir doctor asks.
	Checks func() []health.Check
	// Reload takes what of the configuration applies without a restart.
	Reload func(c config.Config)
	// Run runs while the instance does, from when what was acknowledged before the start is applied. Its error ends the instance.
	Run func(ctx context.Context) error
	// Close ends the streams of the API when the instance stops.
	Close func()
}

// Handed is what the parts of a capability are made of.
type Handed struct {
	entity.Base
	Config      config.Config
	Tenants     *govern.Govern
	Alarmed     func(tx store.Tx, moves []model.AlarmEvent) error // gets the moves of alarms, in their transaction
	AnswerBytes int64                                             // how large one text may be in an answer of the API
	Log         *slog.Logger
	Metrics     prometheus.Registerer // nil: metrics are not registered
}

// Area is an endpoint of the API that a capability brings.
type Area struct {
	gql.AreaSpec
	// Register registers the operations.
	Register func(g *gql.Area, k Known)
	// Running says that they are of a running instance: they are not served on a directory in which nothing runs.
	Running bool
}

// Known is what the operations of a capability may ask of the instance.
type Known struct {
	Catalog  *entity.Catalog // of all kinds
	Registry *registry.Registry
}

// capabilities is the list of them. A capability is made for one instance: each call returns others.
func capabilities() []Capability {
	return []Capability{
		dashboards(),
		alarms(),
	}
}

// made makes the parts of all, and puts their kinds into a catalog.
func made(all []Capability, h Handed) (kinds *entity.Catalog) {
	kinds = entity.NewCatalog()
	for _, c := range all {
		if c.Make != nil {
			c.Make(h)
		}
		if c.Kinds != nil {
			kinds.Include(c.Kinds())
		}
	}
	return kinds
}

// removals are what capabilities remove with a device.
func removals(all []Capability) (out []registry.Removal) {
	for _, c := range all {
		if c.RemoveDevice != nil {
			out = append(out, c.RemoveDevice)
		}
	}
	return out
}

// projections are the results of all.
func projections(all []Capability) (out []ingest.Projection) {
	for _, c := range all {
		if c.Results != nil {
			out = append(out, c.Results()...)
		}
	}
	return out
}

// checksOf are what weir doctor asks of all.
func checksOf(all []Capability) (out []health.Check) {
	for _, c := range all {
		if c.Checks != nil {
			out = append(out, c.Checks()...)
		}
	}
	return out
}

// withAreas adds the endpoints of capabilities to those of the list.
func withAreas(list []area, all []Capability) []area {
	for _, c := range all {
		for _, a := range c.Areas {
			list = withArea(list, a)
		}
	}
	return list
}

// withArea adds an endpoint, or operations to one that is there.
func withArea(list []area, added Area) []area {
	live := func(a *api, g *gql.Area) { added.Register(g, a.entities.known()) }
	rest := func(r *restingAPI, g *gql.Area) { added.Register(g, r.known()) }
	// Operations that need a running instance are left out where nothing runs.
	if added.Running {
		rest = nil
	}
	i := slices.IndexFunc(list, func(a area) bool { return a.Name() == added.Name() })
	if i < 0 {
		return append(list, area{AreaSpec: added.AreaSpec, live: live, rest: rest})
	}
	// Both registrations run, in the order of the list.
	there := list[i]
	list[i].live = func(a *api, g *gql.Area) {
		there.live(a, g)
		live(a, g)
	}
	if rest != nil && there.rest != nil {
		list[i].rest = func(r *restingAPI, g *gql.Area) {
			there.rest(r, g)
			rest(r, g)
		}
	}
	return list
}
