package operate

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/config"
	"weir/edge"
	"weir/health"
	"weir/internal/build"
	"weir/model"
)

// EdgePath is the directory of what an edge keeps besides its log.
func EdgePath(dir string) string { return filepath.Join(dir, "edge") }

// UplinkPath is the directory of what the uplink of a platform keeps.
func UplinkPath(dir string) string { return filepath.Join(dir, "uplink") }

// EdgeDeps are the parts of a running edge that its operator asks.
type EdgeDeps struct {
	Config      config.Config
	Version     string
	Started     time.Time
	Ready       func() bool
	Listeners   func() Listeners
	Connections func() (open, maximum int)
	Edge        *edge.Edge
	Log         *slog.Logger
	Metrics     *prometheus.Registry
}

// EdgeOperator answers the verbs on a running edge.
type EdgeOperator struct{ deps EdgeDeps }

// EdgeStatus is the state of an edge.
type EdgeStatus = edge.Status

// EdgeDeadLetter is a message that the broker above has refused for good.
type EdgeDeadLetter = edge.DeadLetter

// EdgeDeadLetterQuery narrows a list of them.
type EdgeDeadLetterQuery struct {
	Limit int `json:"limit"`
}

// The verbs of an edge alone.
var (
	GetEdge             = Verb[None, *EdgeStatus]{Name: "edge", edge: (*EdgeOperator).edge, running: (*Operator).edge}
	ResyncEdge          = Verb[None, *EdgeStatus]{Name: "edge-resync", edge: (*EdgeOperator).resync, running: (*Operator).resyncEdge}
	ListEdgeDeadLetters = Verb[EdgeDeadLetterQuery, []EdgeDeadLetter]{Name: "edge-dead-letters", edge: (*EdgeOperator).deadLetters,
		running: (*Operator).edgeDeadLetters}
)

// edgeVerbs are all that the socket of an edge serves.
var edgeVerbs = []served{&GetStatus, &GetHealth, &RunDoctor, &ShowLedger, &GetEdge, &ResyncEdge, &ListEdgeDeadLetters, &ExportEdge, &VerifyEdges}

// errNoUplink refuses what only an uplink can answer.
var errNoUplink = &model.Error{Code: model.CodeUnsupported, Message: "this instance has the role platform, and no uplink", Hint: "edge.uplink.broker_url gives it one; weir status shows what runs"}

// uplink is what answers about the uplink of a platform.
func (o *Operator) uplink() (*EdgeOperator, error) {
	if o.deps.Uplink == nil {
		return nil, errNoUplink
	}
	return &EdgeOperator{EdgeDeps{Edge: o.deps.Uplink}}, nil
}

func (o *Operator) edge(ctx context.Context, n None) (*EdgeStatus, error) {
	e, err := o.uplink()
	if err != nil {
		return nil, err
	}
	return e.edge(ctx, n)
}

func (o *Operator) resyncEdge(ctx context.Context, n None) (*EdgeStatus, error) {
	e, err := o.uplink()
	if err != nil {
		return nil, err
	}
	return e.resync(ctx, n)
}

func (o *Operator) edgeDeadLetters(ctx context.Context, q EdgeDeadLetterQuery) ([]EdgeDeadLetter, error) {
	e, err := o.uplink()
	if err != nil {
		return nil, err
	}
	return e.deadLetters(ctx, q)
}

// uplinkChecks look at the uplink of a platform.
func (o *Operator) uplinkChecks(now func() time.Time) []health.Check {
	if o.deps.Uplink == nil {
		return nil
	}
	s := o.deps.Uplink.Status()
	return []health.Check{
		{ID: "uplink", Look: func(context.Context) health.Finding { return uplinkFinding(&s, now()) }},
		{ID: "uplink-backlog", Look: func(context.Context) health.Finding { return edgeLogFinding(&s) }},
		{ID: "edge-dead-letters", Look: func(context.Context) health.Finding { return edgeLettersFinding(o.deps.Uplink) }},
		{ID: "uplink-follows", Look: func(context.Context) health.Finding { return followFinding(s.Follows) }},
	}
}

// followFinding looks at how a platform follows the Weir above.
func followFinding(f *edge.FollowStatus) health.Finding {
	switch {
	case f == nil:
		return health.Good("nothing here follows a Weir above")
	case f.Problem != "":
		return health.Warn("correct what it says, here or above; edge.uplink.sync: false ends following", "what the Weir above says of the devices of this site cannot be followed: %s", f.Problem)
	case f.Time.IsZero():
		return health.Good("the Weir above was not followed since the start")
	}
	return health.Good("the Weir above was followed at %s", f.Time.Format(time.RFC3339))
}

func edgeLettersFinding(e *edge.Edge) health.Finding {
	letters, err := e.DeadLetters(1)
	switch {
	case err != nil:
		return health.Warn("look at the disk", "dead letters cannot be read: %v", err)
	case len(letters) > 0:
		return health.Warn("weir edge dead-letters shows them: the scope of the edge's credential above, or the devices, are wrong", "the broker above refused messages for good, the last one at %s (%s)",
			letters[0].Time.Format(time.RFC3339), letters[0].Reason)
	}
	return health.Good("the broker above refused no message for good")
}

// errEdgeRole refuses a verb that only a platform has.
var errEdgeRole = &model.Error{Code: model.CodeUnsupported, Message: "this instance has the role edge: it holds no tenants, devices, rules or readings",
	Hint: "ask the Weir above; here there are weir edge, weir status, weir ledger, weir doctor and weir health"}

// edgeCommandBytes is how large the bodies of all commands over 64 KiB together may be: those of an edge are small.
const edgeCommandBytes = 1 << 20

// NewEdgeServer returns a server of the verbs that an edge has.
func NewEdgeServer(d EdgeDeps) *Server {
	return &Server{o: &Operator{deps: Deps{Log: d.Log, Metrics: d.Metrics, Entities: &Entities{Config: d.Config}}}, edge: &EdgeOperator{d}, commands: newCommands(edgeCommandBytes, d.Metrics)}
}

func (o *EdgeOperator) edge(context.Context, None) (*EdgeStatus, error) {
	return new(o.deps.Edge.Status()), nil
}

func (o *EdgeOperator) resync(context.Context, None) (*EdgeStatus, error) {
	if !o.deps.Edge.Resync() {
		return nil, &model.Error{Code: model.CodeConflict, Message: "the uplink is not connected", Hint: "once it is, the edge introduces itself by itself; weir edge status says why it is not"}
	}
	return new(o.deps.Edge.Status()), nil
}

func (o *EdgeOperator) deadLetters(_ context.Context, q EdgeDeadLetterQuery) ([]EdgeDeadLetter, error) {
	return o.deps.Edge.DeadLetters(max(q.Limit, 1))
}

func (o *EdgeOperator) status(context.Context, None) (*Status, error) {
	d := &o.deps
	s := &Status{Version: d.Version, Instance: d.Config.Instance.ID, DataDir: d.Config.DataDir, StartedAt: d.Started.UTC(), Ready: d.Ready(), Listeners: d.Listeners(),
		LastStop: LastStop{Clean: true}, Edge: new(d.Edge.Status())}
	s.Connections, s.MaxConnections = d.Connections()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.Memory.Heap = int64(m.Sys - m.HeapReleased)
	e := s.Edge
	s.Log = LogStatus{Last: model.Offset(e.Newest), Applied: model.Offset(e.Position), Bytes: e.Bytes, MaxBytes: e.MaxBytes, Error: e.LogError}
	for _, l := range d.Edge.Ledger() {
		if l.Missing() != 0 {
			s.Unbalanced++
		}
	}
	return s, nil
}

func (o *EdgeOperator) health(context.Context, None) (*Health, error) {
	h := &Health{State: HealthReady, Waiting: o.deps.Edge.Status().Waiting}
	if !o.deps.Ready() {
		h.State, h.Problems = HealthNotReady, []string{"it is starting or stopping"}
		return h, nil
	}
	if h.Problems = o.deps.Edge.Problems(); len(h.Problems) > 0 {
		h.State = HealthDegraded
	}
	return h, nil
}

func (o *EdgeOperator) ledger(_ context.Context, q LedgerQuery) (*LedgerReport, error) {
	return edgeLedger(o.deps.Edge, q), nil
}

// edgeLedger is the ledger of an edge, or of the uplink of a platform.
func edgeLedger(from *edge.Edge, q LedgerQuery) *LedgerReport {
	r := &LedgerReport{Lines: []LedgerEntry{}}
	for _, l := range from.Ledger() {
		if q.Tenant != nil && *q.Tenant != l.Tenant || q.Transport != "" && q.Transport != l.Transport || q.Since != nil && l.Hour.Before(q.Since.Truncate(time.Hour)) {
			continue
		}
		e := LedgerEntry{Hour: l.Hour, Tenant: l.Tenant, Transport: l.Transport, Received: l.Received, Outcomes: l.Outcomes, Missing: l.Missing()}
		for outcome, reasons := range l.Reasons {
			for reason, n := range reasons {
				e.Reasons = append(e.Reasons, ReasonCount{Outcome: outcome, Reason: reason, Count: n})
			}
		}
		r.Lines = append(r.Lines, e)
	}
	return r
}

func (o *EdgeOperator) doctor(ctx context.Context, q DoctorQuery) (*health.Report, error) {
	d := &o.deps
	m, dir := health.ThisMachine(), d.Config.DataDir
	s := d.Edge.Status()
	r := health.Examine(ctx, CheckTimeout, []health.Check{
		{ID: "instance", Look: func(context.Context) health.Finding {
			if q.Version != "" && q.Version != d.Version {
				return health.Warn("restart the instance to run what is installed", "version %s runs, this binary is %s", d.Version, q.Version)
			}
			return health.Good("role edge, version %s, up %s", d.Version, time.Since(d.Started).Round(time.Second))
		}},
		m.DiskKind(dir),
		m.Space(dir, max(0, s.MaxBytes-s.Bytes)),
		m.Sync(dir),
		m.Clock(build.Time(), dir, SpoolPath(dir)),
		{ID: "log", Look: func(context.Context) health.Finding { return edgeLogFinding(&s) }},
		{ID: "uplink", Look: func(context.Context) health.Finding { return uplinkFinding(&s, m.Now()) }},
		{ID: "edge-dead-letters", Look: func(context.Context) health.Finding { return edgeLettersFinding(d.Edge) }},
		{ID: "local-access", Look: func(context.Context) health.Finding {
			if !s.LocalAuth {
				return health.Warn("set edge.username and edge.password", "no user name and password are asked for: any client that reaches the edge can send as any device")
			}
			return health.Good("devices share a user name and a password")
		}},
		health.PortsAnswer(d.Listeners().opened()),
	})
	r.Running = true
	return r, nil
}

func edgeLogFinding(s *EdgeStatus) health.Finding {
	text := fmt.Sprintf("%s of %s wait for the broker above, the oldest came %s ago", health.Bytes(s.Bytes), health.Bytes(s.MaxBytes), (time.Duration(s.OldestSeconds) * time.Second).String())
	if s.Waiting == 0 {
		text = "nothing waits for the broker above"
	} else if s.OldestSeconds > 60 {
		left := time.Duration(float64(s.MaxBytes-s.Bytes) / float64(max(s.Bytes, 1)) * s.OldestSeconds * float64(time.Second))
		text += fmt.Sprintf("; at this rate there is room for %s", left.Round(time.Minute))
	}
	switch {
	case s.LogError != "":
		return health.Fail("look at disk-space and disk-sync", "the log refuses appends: %s", s.LogError)
	case s.Bytes >= s.MaxBytes/10*9:
		return health.Fail("mend the uplink; edge.spool_max_bytes is how much may wait", "%s", text)
	case s.Bytes >= s.MaxBytes/2:
		return health.Warn("mend the uplink; edge.spool_max_bytes is how much may wait", "%s", text)
	}
	return health.Good("%s", text)
}

func uplinkFinding(s *EdgeStatus, now time.Time) health.Finding {
	u := &s.Uplink
	switch {
	case u.Refused != "":
		return health.Fail("compare edge.uplink.username, password, tls and edge.agent_id with what the broker above knows", "%s", u.Refused)
	case s.ClockUnknown:
		return health.Fail("set the clock (a time server, date -s): messages are acknowledged and kept meanwhile", "the clock cannot be believed, and nothing is forwarded before it can")
	case !u.Connected && u.LastError != "":
		return health.Warn("messages are kept meanwhile; is the broker up, and does a firewall let the port through?", "%s cannot be reached: %s", u.Broker, u.LastError)
	case !u.Connected:
		return health.Warn("messages are kept meanwhile", "not connected to %s", u.Broker)
	case s.RatePerSecond > 0:
		return health.Warn("raise the tenant's ceiling at the Weir above: governance.ingest_messages_per_second, or that of its tier", "%s asks the edge to be slower: at most %.0f messages a second", u.Broker, s.RatePerSecond)
	}
	return health.Good("connected to %s for %s over MQTT %s", u.Broker, now.Sub(u.Since).Round(time.Second), u.MQTT)
}
