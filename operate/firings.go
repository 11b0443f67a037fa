package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/govern"
	"weir/ingest/replay"
	"weir/internal/hub"
	"weir/model"
	"weir/rules"
	"weir/rules/preview"
	"weir/rules/ruletest"
	"weir/site"
	"weir/store"
)

// FiringQuery narrows what weir firings shows. Empty restricts nothing.
type FiringQuery struct {
	Tenant   string     `json:"tenant,omitempty"`
	Device   string     `json:"device,omitempty"` // token, or an anchor's
	Profile  string     `json:"profile,omitempty"`
	Rule     string     `json:"rule,omitempty"`
	Severity string     `json:"severity,omitempty"`
	Edge     string     `json:"edge,omitempty"` // raised or resolved
	Since    *time.Time `json:"since,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	Limit    int        `json:"limit,omitempty"` // of a list
}

// Firing is a detection as the command line shows it.
type Firing struct {
	Occurred time.Time `json:"occurredTime"`
	Received time.Time `json:"receivedTime"`
	Tenant   string    `json:"tenant"`
	Device   string    `json:"device"` // token, or that of an anchor
	Profile  string    `json:"profile"`
	Version  int       `json:"profileVersion"`
	Rule     string    `json:"rule"`
	Kind     string    `json:"kind"`
	Edge     string    `json:"edge"`
	Severity string    `json:"severity,omitempty"`
	Value    *float64  `json:"value,omitempty"` // that raised it
}

// Firings is a list, newest first. Total is how many there are in all.
type Firings struct {
	Firings []Firing `json:"firings"`
	Total   int64    `json:"total"`
}

// MaxFirings is the maximum of detections in one list.
const MaxFirings = store.MaxPageSize

// Edges are the two ends of a detection; Severities those that a rule may declare.
var Edges = []string{model.Raised.String(), model.Resolved.String()}

// Severities returns the severities that a rule may declare, the gravest first.
func Severities() []string { return rules.SeverityNames() }

// Firings lists past detections.
func (e *Entities) Firings(ctx context.Context, q FiringQuery) (*Firings, error) {
	if q.Limit < 1 || q.Limit > MaxFirings {
		return nil, model.Invalid("limit", "must be within 1..%d", MaxFirings)
	}
	f, err := e.firingFilter(q)
	if err != nil {
		return nil, err
	}
	out := &Firings{Firings: []Firing{}}
	err = e.Store.Read(ctx, func(tx store.Tx) error {
		found, err := store.Detections(tx, *f, store.Page{Number: 1, Size: q.Limit})
		if err != nil {
			return err
		}
		for i := range found {
			out.Firings = append(out.Firings, firingOf(&found[i].Edge))
		}
		out.Total, err = store.CountDetections(tx, *f)
		return err
	})
	if err == nil && out.Total == 0 {
		err = e.knowsAll(ctx, q)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (e *Entities) firingFilter(q FiringQuery) (*store.DetectionFilter, error) {
	f := &store.DetectionFilter{Series: q.Device, Profile: q.Profile, Rule: q.Rule, Severity: q.Severity}
	if q.Severity != "" && !slices.Contains(Severities(), q.Severity) {
		return nil, model.Invalid("severity", "%q is none of %s", q.Severity, strings.Join(Severities(), ", "))
	}
	if at := slices.Index(Edges, q.Edge); at >= 0 {
		f.Signal = model.EdgeSignal(at + 1)
	} else if q.Edge != "" {
		return nil, model.Invalid("edge", "%q is none of %s", q.Edge, strings.Join(Edges, ", "))
	}
	if q.Tenant != "" {
		by, err := e.within(q.Tenant)
		if err != nil {
			return nil, err
		}
		f.TenantID = by.TenantID
	}
	if q.Since != nil {
		f.From = model.MicrosOf(*q.Since)
	}
	if q.Until != nil {
		f.To = model.MicrosOf(*q.Until)
	}
	return f, nil
}

// knowsAll refuses a query that names what exists in none of its tenants, so that a misspelt token does not look like a
// quiet night.
func (e *Entities) knowsAll(ctx context.Context, q FiringQuery) error {
	tenants := []string{q.Tenant}
	if q.Tenant == "" {
		tenants = nil
		if err := e.Govern.Tenants.Each(ctx, Local(), func(t *govern.Tenant) error {
			tenants = append(tenants, t.Token)
			return nil
		}); err != nil {
			return err
		}
	}
	for _, named := range []struct {
		kind, token string
		count       func(by *model.Principal, tokens []string) (int, error)
	}{
		{"device", q.Device, func(by *model.Principal, tokens []string) (int, error) {
			rows, err := e.Registry.Devices.ByToken(ctx, by, tokens)
			return len(rows), err
		}},
		{"device profile", q.Profile, func(by *model.Principal, tokens []string) (int, error) {
			rows, err := e.Registry.Profiles.ByToken(ctx, by, tokens)
			return len(rows), err
		}},
		{"detection rule", q.Rule, func(by *model.Principal, tokens []string) (int, error) {
			rows, err := e.Registry.Rules.ByToken(ctx, by, tokens)
			return len(rows), err
		}},
	} {
		if named.token == "" {
			continue
		}
		n := 0
		for _, tenant := range tenants {
			by, err := e.within(tenant)
			if err != nil {
				return err
			}
			if n, err = named.count(by, []string{named.token}); err != nil || n > 0 {
				break
			}
		}
		if n == 0 {
			err := model.NotFound(named.kind, named.token)
			if q.Tenant == "" {
				err.Hint = "no tenant has it; see what there is with: weir tenant list"
			} else {
				err.Hint = fmt.Sprintf("tenant %s has none with this token", q.Tenant)
			}
			return err
		}
	}
	return nil
}

func firingOf(e *model.Edge) Firing {
	f := Firing{Occurred: e.Occurred.Time(), Received: e.Received.Time(), Tenant: e.Tenant, Device: e.Series, Profile: e.Profile, Version: e.Version,
		Rule: e.Rule, Kind: e.Kind, Edge: e.Signal.String(), Severity: e.Severity}
	if e.HasValue && e.Signal == model.Raised {
		f.Value = &e.Value
	}
	return f
}

// firingsBuffer is how many detections may wait for a client that follows them.
const firingsBuffer = 256

// followFirings opens a look at detections as they are stored.
func (o *Operator) followFirings(ctx context.Context, q FiringQuery) (source[*Firing], error) {
	f, err := o.deps.firingFilter(q)
	if err != nil {
		return nil, err
	}
	if err := o.deps.knowsAll(ctx, q); err != nil {
		return nil, err
	}
	return firingSource{o.deps.Edges.Subscribe(func(e model.Edge) bool {
		return (f.TenantID == 0 || e.TenantID == f.TenantID) && (f.Series == "" || e.Series == f.Series) && (f.Profile == "" || e.Profile == f.Profile) &&
			(f.Rule == "" || e.Rule == f.Rule) && (f.Severity == "" || e.Severity == f.Severity) && (f.Signal == 0 || e.Signal == f.Signal)
	}, firingsBuffer)}, nil
}

type firingSource struct{ *hub.Subscription[model.Edge] }

// Next implements source.
func (s firingSource) Next(ctx context.Context) (*Firing, error) {
	e, err := s.Subscription.Next(ctx)
	if err != nil {
		return nil, err
	}
	return new(firingOf(&e)), nil
}

// PinQuery names firings of the past that are to become a rule test: those of a rule over a window of a tenant's history.
type PinQuery struct {
	Tenant     string    `json:"tenant"`
	Profile    string    `json:"profile"` // token of the profile whose devices are judged
	Definition string    `json:"definition"`
	Group      string    `json:"group,omitempty"` // to which the rule is scoped, with GroupVersion
	Version    int       `json:"groupVersion,omitempty"`
	Device     string    `json:"device,omitempty"` // only this device
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
}

// MaxPinTime bounds how long history is read for a test.
const MaxPinTime = preview.MaxTime

// pin judges the window as a preview does, and records what the rule is given.
func (o *Operator) pin(ctx context.Context, q PinQuery) (*Pinned, error) {
	d := &o.deps
	by, err := d.within(q.Tenant)
	if err != nil {
		return nil, err
	}
	_, profile, ok := d.Applier.ProfileOf(by.Tenant, q.Profile)
	if !ok {
		return nil, model.Invalid("profile", "%s has no published version in tenant %s", q.Profile, q.Tenant)
	}
	if !o.pinning.TryLock() {
		return nil, &model.Error{Code: model.CodeUnavailable, Message: "history is pinned already", Hint: "try again when it is done"}
	}
	defer o.pinning.Unlock()
	compiler, err := rules.NewCompiler(rules.Limits{Settings: d.Effective().Detection, Actions: rules.Performed()})
	if err != nil {
		return nil, err
	}
	compiler = compiler.ForPreviews()
	r := preview.Request{Definition: &q.Definition, Start: q.From.Format(time.RFC3339Nano), End: q.To.Format(time.RFC3339Nano)}
	if q.Group != "" {
		r.Group, r.GroupVersion = &q.Group, &q.Version
	}
	draft, found := r.Draft(compiler, nil)
	if draft == nil {
		return nil, model.Invalid("definition", "%s", found[0].Message)
	}
	w, shortened, found := r.Window()
	if found != nil || shortened {
		return nil, model.Errorf(model.CodeInvalidInput, "the window must be one of at most %s that ends after it begins", preview.MaxWindow)
	}
	query := replay.Query{TenantID: by.TenantID, Tenant: by.Tenant, Profile: profile, Rule: model.RuleView{Token: "preview", Definition: q.Definition}, Window: w,
		Lead: leadOf(draft.Program.Definition()), Bounds: preview.Bounds{Events: ruletest.MaxPinned, Firings: ruletest.MaxPinned, Time: MaxPinTime}}
	if q.Group != "" {
		if query.Scope, err = d.Registry.Groups.Scope(ctx, by, q.Group, q.Version); err != nil {
			return nil, err
		}
		query.Rule.Group, query.Rule.GroupVersion = query.Scope.Token, query.Scope.Version
	}
	recorder := site.Recorder(compiler, draft.Program, q.Group, q.Version, q.Device)
	out, err := replay.Run(ctx, replay.Deps{Series: d.Series, Applied: d.Applier.Applied, Heard: d.Applier.ListeningTime, Compiler: compiler, Grace: d.Effective().Presence.Grace,
		Watch: recorder.Watch}, query)
	if err != nil {
		return nil, err
	}
	return site.PinnedOf(recorder, w, out)
}

// leadOf is how long before a window a rule is judged: as long as it remembers, and a minute.
func leadOf(d *rules.Definition) time.Duration {
	return max(d.Window, d.Hold, d.Timeout, d.Gap) + time.Minute
}
