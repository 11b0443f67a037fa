package operate

import (
	"context"
	"io"
	"net/http"
	"time"

	"weir/health"
	"weir/ingest/trace"
	"weir/site"
)

// None is the input or output of a verb that has none.
type None struct{}

// Verb is one thing that an operator can ask. Exactly one of entities and running is set.
type Verb[In, Out any] struct {
	Name     string
	maxBytes int64         // of the input; 0: maxCommandBytes
	timeout  time.Duration // 0: verbTimeout
	// entities answers both on a running instance and where nothing runs.
	entities func(*Entities, context.Context, In) (Out, error)
	// running answers on a running instance, atRest where nothing runs, also in place of entities; nil: it cannot be answered there.
	running func(*Operator, context.Context, In) (Out, error)
	atRest  func(*Directory, context.Context, In) (Out, error)
	// edge answers on a running instance with role: edge; nil: it cannot be answered there.
	edge func(*EdgeOperator, context.Context, In) (Out, error)
}

// verbTimeout bounds what a verb waits for.
const verbTimeout = 30 * time.Second

// graphQLTimeout is longer than the time limit of any operation of the API: each has its own.
const graphQLTimeout = 5 * time.Minute

// The verbs with one answer.
var (
	GetStatus   = Verb[None, *Status]{Name: "status", running: (*Operator).status, edge: (*EdgeOperator).status}
	GetHealth   = Verb[None, *Health]{Name: "health", running: (*Operator).health, edge: (*EdgeOperator).health}
	RunDoctor   = Verb[DoctorQuery, *health.Report]{Name: "doctor", running: (*Operator).doctor, atRest: (*Directory).doctor, edge: (*EdgeOperator).doctor}
	MakeBundle  = Verb[None, []BundleFile]{Name: "bundle", running: (*Operator).bundle, atRest: (*Directory).bundle}
	Reload      = Verb[None, *ReloadReport]{Name: "reload", running: (*Operator).reload}
	PlanReload  = Verb[None, *ReloadReport]{Name: "reload-plan", running: (*Operator).planReload}
	NoteBackup  = Verb[LastBackup, None]{Name: "backup-kept", running: (*Operator).noteBackup, atRest: (*Directory).noteBackup}
	ListBackups = Verb[None, *Backups]{Name: "backup-list", running: (*Operator).listBackups, atRest: (*Directory).listBackups}
	ShowLedger  = Verb[LedgerQuery, *LedgerReport]{Name: "ledger", running: (*Operator).ledger, edge: (*EdgeOperator).ledger}
	TraceDevice = Verb[trace.Query, *trace.Report]{Name: "ledger-trace", timeout: traceTimeout, running: (*Operator).trace}

	ListSources     = Verb[None, []SourceStatus]{Name: "sources", running: (*Operator).sources}
	ListDeadLetters = Verb[DeadLetterQuery, []DeadLetter]{Name: "dead-letters", entities: (*Entities).deadLetters}
	ShowOutbox      = Verb[OutboxQuery, *Outbox]{Name: "outbox", entities: (*Entities).outbox}
	ListFirings     = Verb[FiringQuery, *Firings]{Name: "firings", entities: (*Entities).Firings}
	PinFirings      = Verb[PinQuery, *Pinned]{Name: "firings-pin", timeout: graphQLTimeout, running: (*Operator).pin}
	ListTokens      = Verb[TokenQuery, []string]{Name: "tokens", running: (*Operator).tokens}

	CreateAdmin   = Verb[NewAdmin, *AdminCreated]{Name: "admin-create", entities: (*Entities).createAdmin}
	SetPassword   = Verb[NewPassword, *PasswordSet]{Name: "admin-passwd", entities: (*Entities).setPassword}
	ListAdmins    = Verb[None, []AdminLine]{Name: "admin-list", entities: (*Entities).admins}
	ChangeAdmin   = Verb[AdminChange, *AdminLine]{Name: "admin-change", entities: (*Entities).changeAdmin}
	RemoveAdmin   = Verb[AdminName, *AdminName]{Name: "admin-remove", entities: (*Entities).removeAdmin}
	MakeSetupLink = Verb[None, *SetupLink]{Name: "admin-link", running: (*Operator).setupLink}
	CreateTenant  = Verb[NewTenant, *TenantCreated]{Name: "tenant-create", entities: (*Entities).createTenant}
	ChangeTenant  = Verb[TenantChange, *TenantLine]{Name: "tenant-change", entities: (*Entities).changeTenant}
	ListTenants   = Verb[None, []TenantLine]{Name: "tenant-list", entities: (*Entities).tenants}
	DeleteTenant  = Verb[TenantName, *TenantDeletion]{Name: "tenant-delete", entities: (*Entities).deleteTenant, atRest: (*Directory).deleteTenant}
	ListDeletions = Verb[TenantName, []TenantDeletion]{Name: "tenant-deletions", entities: (*Entities).deletions}
	AddDevice     = Verb[NewDevice, *DeviceAdded]{Name: "device-add", entities: (*Entities).addDevice}
	ImportDevices = Verb[DeviceImport, *DevicesImported]{Name: "device-import", timeout: importTimeout, entities: (*Entities).importDevices}
	GetEntrances  = Verb[None, *Entrances]{Name: "entrances", entities: (*Entities).entrances}
	// RunGraphQL runs a document of an area with the resolvers that serve the API, as the local operator in a tenant.
	RunGraphQL = Verb[GraphQLRequest, *GraphQLResponse]{Name: "graphql", timeout: graphQLTimeout, entities: (*Entities).graphQL}

	PlanSite    = Verb[SiteCommand, *site.Plan]{Name: "site-plan", maxBytes: MaxSiteBytes, timeout: siteTimeout, entities: (*Entities).planSite}
	ApplySite   = Verb[SiteCommand, *site.Plan]{Name: "site-apply", maxBytes: MaxSiteBytes, timeout: siteTimeout, entities: (*Entities).applySite}
	ExportSite  = Verb[SiteExport, *SiteExported]{Name: "site-export", entities: (*Entities).exportSite}
	GetEntities = Verb[site.Selection, *Got]{Name: "get", entities: (*Entities).get}
)

// The verbs whose answer, or input, goes on.
var (
	Tail          = StreamVerb[TailQuery, *Sightings]{Name: "tail", open: (*Operator).tail}
	FollowFirings = StreamVerb[FiringQuery, *Firing]{Name: "firings-follow", open: (*Operator).followFirings}
	VerifyLedger  = RecountVerb{StreamVerb[None, VerifyStep]{Name: "ledger-verify", open: (*Operator).openRecount}}
	MakeBackup    = BackupVerb{Name: "backup"}
	AddArtifact   = ArtifactVerb{Name: "artifact-add"}
)

// served is a verb as the socket serves it, under its name.
type served interface {
	path() string
	handler(*Server) http.Handler
}

// verbs are all that the socket serves.
var verbs = []served{&GetStatus, &GetHealth, &RunDoctor, &MakeBundle, &Reload, &PlanReload, &NoteBackup, &ListBackups, &ShowLedger, &TraceDevice, &ListDeadLetters, &ShowOutbox, &ListFirings, &PinFirings,
	&ListTokens, &ListSources, &CreateAdmin, &SetPassword, &ListAdmins, &ChangeAdmin, &RemoveAdmin, &MakeSetupLink, &CreateTenant, &ChangeTenant, &ListTenants, &DeleteTenant, &ListDeletions, &AddDevice, &ImportDevices, &GetEntrances, &ListLwM2MModels, &AddLwM2MModel,
	&RunGraphQL, &PlanSite, &ApplySite, &ExportSite, &GetEntities, &Tail, &FollowFirings, &VerifyLedger, &MakeBackup, &AddArtifact, &GetEdge, &ResyncEdge, &ListEdgeDeadLetters, &ExportEdge, &ImportEdge, &VerifyEdges}

// Target is where a verb is carried out: a Client over the socket of a running instance, or a Directory in which nothing runs.
type Target interface {
	io.Closer
	target()
}

func (*Client) target()    {}
func (*Directory) target() {}

// Ask carries the verb out. The error is ErrNotRunning where only a running instance can answer and none is there.
func (v *Verb[In, Out]) Ask(ctx context.Context, to Target, in In) (out Out, err error) {
	if err := checkText(in); err != nil {
		return out, err
	}
	switch t := to.(type) {
	case *Client:
		return out, t.call(ctx, v.Name, in, &out)
	case *Directory:
		switch {
		case v.entities == nil && v.atRest == nil:
			return out, notRunning(t.Config.DataDir)
		case v.atRest != nil:
			return v.atRest(t, ctx, in)
		case v.entities != nil:
			e, err := t.open(ctx)
			if err != nil {
				return out, err
			}
			return v.entities(e, ctx, in)
		}
	}
	return out, ErrNotRunning
}

// answerOf carries the verb out on the instance of a server.
func (v *Verb[In, Out]) answerOf(s *Server, ctx context.Context, in In) (Out, error) {
	if s.edge != nil {
		return v.edge(s.edge, ctx, in)
	}
	return v.answer(s.o, ctx, in)
}

// answer carries the verb out on a running instance.
func (v *Verb[In, Out]) answer(o *Operator, ctx context.Context, in In) (Out, error) {
	if v.entities != nil {
		return v.entities(o.deps.Entities, ctx, in)
	}
	return v.running(o, ctx, in)
}

func (v *Verb[In, Out]) path() string { return v.Name }
