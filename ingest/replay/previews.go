package replay

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
	"weir/rules"
	"weir/rules/preview"
)

// Settings are the keys of previews, in the section detection; they bound each preview.
type Settings = rules.PreviewSettings

// PreviewDeps are what previews need besides.
type PreviewDeps struct {
	Replay   Deps
	Settings func() Settings
	// ProfileOf finds the published version of a tenant's profile.
	ProfileOf func(tenant, profile string) (tenantID, id int64, ok bool)
	Now       func() time.Time
	// Kept is how long readings are kept; 0: for ever.
	Kept     func() time.Duration
	Registry prometheus.Registerer // nil: no metrics
}

// Previews runs previews for callers.
type Previews struct {
	deps    PreviewDeps
	queue   *Queue
	ran     prometheus.Counter
	refused prometheus.Counter
	damaged prometheus.Counter
}

// NewPreviews returns the previews of an instance.
func NewPreviews(deps PreviewDeps) *Previews {
	const prefix = "weir_eventprocessing_previews_"
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
	}
	p := &Previews{deps: deps, queue: NewQueue(func() int { return deps.Settings().PreviewConcurrency }), ran: counter("run_total", "Previews of rules that were run."),
		refused: counter("refused_total", "Previews of rules that were turned away: as many of the tenant ran as may."),
		damaged: counter("damaged_snapshots_total", "Previews of rules that found the snapshot damaged from which they would have begun.")}
	p.deps.Replay.Damaged = p.damaged.Inc
	if deps.Registry != nil {
		gauge := func(name, help string, n func() int) prometheus.Collector {
			return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + name, Help: help}, func() float64 { return float64(n()) })
		}
		deps.Registry.MustRegister(p.ran, p.refused, p.damaged, gauge("running", "Previews of rules that are run.", p.queue.Running), gauge("waiting", "Previews of rules that wait for a place.", p.queue.Waiting))
	}
	return p
}

// lead is how long before its window a preview begins, at most, so that windows and latches are what they would have been.
const lead = 24 * time.Hour

// reserve is what is left of a caller's time for the answer.
const reserve = 500 * time.Millisecond

// Preview runs a draft. An error is one of the store, or that the caller has gone; everything else is in the result.
func (p *Previews) Preview(ctx context.Context, by *model.Principal, d *preview.Draft, profile string, w preview.Window, scope *model.GroupView, explain bool) (*preview.Result, error) {
	out := &preview.Result{}
	_, id, ok := p.deps.ProfileOf(by.Tenant, profile)
	if !ok {
		out.Degrade("unpublished profile: %s has no published version, so that nothing was judged", profile)
		return out, nil
	}
	leave, err := p.queue.Enter(ctx, by.TenantID)
	if err != nil {
		return nil, err
	}
	set := p.deps.Settings()
	if leave == nil {
		p.refused.Inc()
		out.Degrade("too many previews: %d of the tenant run already; try again", set.PreviewConcurrency)
		return out, nil
	}
	defer leave()
	p.ran.Inc()
	q := Query{TenantID: by.TenantID, Tenant: by.Tenant, Profile: id, Rule: model.RuleView{Token: "preview", Definition: d.Definition}, Window: w, Lead: lead, Scope: scope, Explain: explain,
		Bounds: preview.Bounds{Events: set.PreviewMaxEvents, Scanned: set.PreviewMaxScanned, Firings: preview.MaxFirings, Time: preview.MaxTime}}
	if scope != nil {
		q.Rule.Group, q.Rule.GroupVersion = scope.Token, scope.Version
	}
	if end, limited := ctx.Deadline(); limited {
		q.Bounds.Time = min(q.Bounds.Time, max(end.Sub(p.deps.Now())-reserve, reserve))
	}
	out, err = Run(ctx, p.deps.Replay, q)
	if err != nil {
		return nil, err
	}
	if kept := p.deps.Kept(); kept > 0 {
		if oldest := p.deps.Now().Add(-kept); w.From < model.MicrosOf(oldest) {
			out.Degrade("history aged out: events are kept since %s", oldest.UTC().Format(time.RFC3339))
		}
	}
	return out, nil
}
