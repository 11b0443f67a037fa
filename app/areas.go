package app

import (
	"slices"
	"time"

	"weir/config"
	"weir/gql"
	"weir/gql/admin"
	"weir/gql/delivery"
	"weir/gql/notification"
	"weir/gql/outbound"
	"weir/model"
	"weir/rules/canvas"
	"weir/rules/draft"
)

// placeholderArea is routed and answers nothing: devices send to the transports.
const placeholderArea = "event-sources"

// area is an endpoint of the API and how it gets its resolvers. The schema index, the explorer, weir api and the handlers
// all walk the list of them.
type area struct {
	gql.AreaSpec
	configured func(config.Config) bool     // whether it is served; nil: always
	live       func(*api, *gql.Area)        // in a running instance
	rest       func(*restingAPI, *gql.Area) // on a directory in which nothing runs; nil: it is not served there
}

// everyArea is the list of the endpoints, in the order of the schema index, with those of capabilities behind the others.
func everyArea(brought []Capability) []area {
	return withAreas(ownAreas(), brought)
}

// ownAreas are the endpoints that no capability brings.
func ownAreas() []area {
	withAI := func(c config.Config) bool { return c.AI.Enabled }
	return []area{
		{AreaSpec: gql.AreaSpec{Area: "user-management", Example: `{
  me { email firstName lastName }
  tenant { token name }
  functionalAreas
}
`}, live: func(a *api, g *gql.Area) {
			gql.RegisterUser(g, gql.UserDeps{
				SignIn:   a.entities.Auth,
				Profiles: a.entities.Auth,
				Tenants:  a.entities.Govern,
				Areas:    functionalAreas(a.cfg, a.brought),
			})
		}},
		{AreaSpec: gql.AreaSpec{Area: "user-management", Variant: "admin", Example: `{
  tenants { token name enabled tier { token } }
  roles { scope token authorities }
}
`}, live: func(a *api, g *gql.Area) {
			d := adminDeps(a.entities.entityParts)
			d.Resend, d.Ordered = a.intake.into.Resend, a.applier.drain.Wake
			admin.Register(g, d)
		}, rest: func(r *restingAPI, g *gql.Area) { admin.Register(g, adminDeps(r.entityParts)) }},
		{AreaSpec: gql.AreaSpec{Area: "user-management", Variant: "settings", Example: `{
  settings { key value overridden updatedBy }
}
`},
			live: func(a *api, g *gql.Area) {
				d := adminDeps(a.entities.entityParts)
				d.Instance = a.instance()
				admin.RegisterSettings(g, d)
			},
			rest: func(r *restingAPI, g *gql.Area) { admin.RegisterSettings(g, adminDeps(r.entityParts)) }},
		{AreaSpec: gql.AreaSpec{Area: "device-management", Example: `{
  devices(criteria: {pageNumber: 1, pageSize: 10}) {
    results { token name deviceType { token } }
    pagination { totalRecords }
  }
}
`},
			live: func(a *api, g *gql.Area) {
				registerDevices(&a.entities.entityParts, g)
				gql.RegisterTestEvents(g, gql.MessageDeps{MaxSkew: func() time.Duration { return a.effective().Ingest.MaxFutureSkew }}, a.sendTest)
			},
			rest: func(r *restingAPI, g *gql.Area) {
				registerDevices(&r.entityParts, g)
				gql.RegisterTestEvents(g, gql.MessageDeps{}, nil)
			}},
		{AreaSpec: gql.AreaSpec{Area: "event-management", FromLog: true, Example: `{
  measurementEvents(criteria: {pageNumber: 1, pageSize: 10}) {
    results { deviceToken occurredTime name value unit }
    pagination { totalRecords }
  }
}
`}, live: func(a *api, g *gql.Area) {
			ap := a.applier
			gql.RegisterEvents(g, gql.EventDeps{
				AsOf:     a.asOf,
				Events:   ap.series,
				Devices:  a.entities.Registry.Devices.Rows,
				Ledger:   ap.ingest.Ledger(),
				Readings: ap.readings,
				Anchors:  ap.ingest,
				Messages: gql.MessageDeps{Tap: ap.tap, MaxSkew: func() time.Duration { return a.effective().Ingest.MaxFutureSkew }},
				Trace:    a.trace,
				Message:  a.message,
				Rates:    ap.rates,
				Clock:    func() model.Nanos { return a.spool.clock.Stamp().Wall },
			})
		}},
		{AreaSpec: gql.AreaSpec{Area: "device-state", FromLog: true, Example: `{
  deviceStates(criteria: {pageNumber: 1, pageSize: 10}) {
    results { deviceToken active lastActivityTime }
    pagination { totalRecords }
  }
}
`},
			live: func(a *api, g *gql.Area) { gql.RegisterState(g, a.state()) },
			rest: func(r *restingAPI, g *gql.Area) { gql.RegisterState(g, r.state) }},
		{AreaSpec: gql.AreaSpec{Area: "event-processing", FromLog: true, Example: `# Live: subscription { detectionStream(profileToken: "device") { ruleToken edge series value } }
query {
  detections(criteria: {pageNumber: 1, pageSize: 10}) {
    results { occurredTime deviceToken ruleToken severity edge value }
    pagination { totalRecords }
  }
}
`}, live: registerProcessing},
		{AreaSpec: gql.AreaSpec{Area: delivery.Area, Example: `# Live: subscription { commandStream(deviceToken: "device") { token name status deliveredTime responsePayload error } }
query {
  commands(criteria: {pageNumber: 1, pageSize: 10}) {
    results { token deviceToken name status queuedTime sentTime respondedTime }
    pagination { totalRecords }
  }
}
`},
			live: func(a *api, g *gql.Area) { delivery.Register(g, a.entities.Commands) },
			rest: func(r *restingAPI, g *gql.Area) { delivery.Register(g, r.Commands) }},
		{AreaSpec: gql.AreaSpec{Area: outbound.Area, Example: `{
  connectors(criteria: {pageNumber: 1, pageSize: 10}) {
    results { token type config hasSecret updatedAt }
    pagination { totalRecords }
  }
  connectorTypes
  httpSecrets { token hosts use }
}
`}, live: func(a *api, g *gql.Area) {
			d := letterDeps(a.entities.entityParts)
			d.Resend, d.Ordered, d.Standing = a.intake.into.Resend, a.applier.drain.Wake, a.entities.Standing
			outbound.Register(g, a.entities.Connectors, d)
		}, rest: func(r *restingAPI, g *gql.Area) { outbound.Register(g, r.Connectors, letterDeps(r.entityParts)) }},
		{AreaSpec: gql.AreaSpec{Area: notification.Area, Example: `{
  notificationPolicies(criteria: {pageNumber: 1, pageSize: 10}) {
    results { token enabled rules { severity recipients channel { token channelType enabled } } }
    pagination { totalRecords }
  }
  notificationStates(criteria: {pageNumber: 1, pageSize: 10}) {
    results { alarmToken alarmKey severity lastNotifiedAt notifyCount escalationLevel }
  }
}
`},
			live: func(a *api, g *gql.Area) { notification.Register(g, a.entities.Notify) },
			rest: func(r *restingAPI, g *gql.Area) { notification.Register(g, r.Notify) }},
		{AreaSpec: gql.AreaSpec{Area: "ai-inference", Service: true, Example: `{
  aiInferenceInfo { area }
}
`}, configured: withAI,
			live: func(a *api, g *gql.Area) { gql.RegisterInference(g, a.entities.Inference) }},
		{AreaSpec: gql.AreaSpec{Area: "ai-inference", Variant: "admin", Example: `{
  aiProviders(criteria: {pageNumber: 1, pageSize: 10}) {
    results { token kind endpoint model enabled hasSecret }
    pagination { totalRecords }
  }
  aiProviderTierGrants { tier provider { token } isDefault }
}
`}, configured: withAI,
			live: func(a *api, g *gql.Area) { admin.RegisterInference(g, a.entities.Inference) }},
		{AreaSpec: gql.AreaSpec{Area: placeholderArea, Example: `{
  _empty
}
`},
			live: func(_ *api, g *gql.Area) { gql.RegisterPlaceholder(g) }},
	}
}

// open puts the endpoint on a server.
func (a *area) open(s *gql.Server) *gql.Area {
	if a.SDL != "" {
		return s.AreaOf(a.Name(), a.Plane(), a.SDL)
	}
	return s.Area(a.Name(), a.Plane())
}

// areasOf are the endpoints that are configured to be served, in the order of the schema index.
func areasOf(c config.Config, brought []Capability) []area {
	return slices.DeleteFunc(everyArea(brought), func(a area) bool { return a.configured != nil && !a.configured(c) })
}

// functionalAreas are the names of the areas that are configured to run, sorted.
func functionalAreas(c config.Config, brought []Capability) []string {
	var names []string
	for _, a := range areasOf(c, brought) {
		// A variant is another endpoint of the same area.
		if a.Variant == "" {
			names = append(names, a.Area)
		}
	}
	slices.Sort(names)
	return names
}

// AreaNames are the names of the endpoints that the operator's commands reach: those about tenants, those about the instance,
// and which of both are served on a directory in which nothing runs.
func AreaNames() (tenant, instance, resting []string) {
	for _, a := range everyArea(capabilities()) {
		switch {
		case a.configured != nil, a.Area == placeholderArea:
			continue
		case a.Variant == "":
			tenant = append(tenant, a.Name())
		default:
			instance = append(instance, a.Name())
		}
		if a.rest != nil {
			resting = append(resting, a.Name())
		}
	}
	return tenant, instance, resting
}

func registerDevices(p *entityParts, g *gql.Area) {
	gql.RegisterRegistry(g, p.Registry, p.Provision)
	gql.RegisterSnippets(g, p.Registry, snippetsOf(*p))
	gql.RegisterLwm2m(g, p.Registry, p.registered)
	gql.RegisterArtifacts(g, p.Artifacts)
}

func registerProcessing(a *api, g *gql.Area) {
	e, ap := a.entities, a.applier
	var infer gql.Inferrer
	if a.cfg.AI.Enabled {
		infer = e.Inference
	}
	gql.RegisterProcessing(g, gql.ProcessingDeps{
		AsOf:     a.asOf,
		Rules:    e.compiler,
		Health:   ap.ingest,
		Edges:    ap.edges,
		Past:     ap.ingest,
		Devices:  e.Registry.Devices.Rows,
		Profiles: e.Registry.Profiles.Rows,
		RuleRows: e.Registry.Rules.Rows,
		Canvas:   canvas.NewCompiler(e.compiler),
		Drafter:  draft.New(e.compiler),
		Infer:    infer,
		Compiler: e.compiler,
		Previews: a.previews(),
		Scopes:   e.Registry.Groups,
		Now:      time.Now,
	})
}
