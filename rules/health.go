package rules

import (
	"cmp"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
)

// Status is the state of a live rule.
type Status string

// The statuses.
const (
	Active       Status = "ACTIVE"
	CompileError Status = "COMPILE_ERROR"
)

// Health is the engine's part of a rule's health. Fires are counted where edges are stored.
type Health struct {
	RuntimeID   string // {tenant}/{profileToken}@{version}/{ruleToken}
	StableID    string // {profileToken}/{ruleToken}
	Token       string
	Name        string // display name of the definition, else the token
	Status      Status
	Message     string // why the rule does not run, or that it flaps; else ""
	EvalErrors  int64  // samples that the rule could not evaluate
	LateSamples int64  // samples set aside, and edges not emitted for their age
	RefusedKeys int64  // edges refused because the tenant's budget of keys was used up
	Lacking     int64  // samples of devices without the attribute that the rule compares with
	HeldEdges   int64  // edges not kept because the tenant had more than its ceiling
	Flaps       bool   // the last of them was less than an hour before the newest sample
	// LastInputAt is the receive time of the last sample in the rule's scope, 0 when there was none.
	LastInputAt model.Nanos
	// MissingMetrics are the metrics that the rule names and that no device of the profile has sent since
	// this body has been live, sorted.
	MissingMetrics []string
}

// Health returns a row for each rule of the profile's active version, by token; nil when no version is active.
func (e *Engine) Health(k ProfileKey) []Health {
	p := e.profiles[k]
	if p == nil {
		return nil
	}
	rows := make([]Health, 0, len(p.rules))
	for _, r := range p.rules {
		rows = append(rows, e.health(p, r))
	}
	return rows
}

// Unhealthy returns the health of every rule that does not run or could not judge every sample, by runtime id.
func (e *Engine) Unhealthy() []Health {
	var rows []Health
	for _, p := range e.profiles {
		for _, r := range p.rules {
			if r.program == nil || r.EvalErrors > 0 || r.RefusedKeys > 0 || e.flaps(r) {
				rows = append(rows, e.health(p, r))
			}
		}
	}
	slices.SortFunc(rows, func(a, b Health) int { return cmp.Compare(a.RuntimeID, b.RuntimeID) })
	return rows
}

func (e *Engine) health(p *profile, r *rule) Health {
	h := Health{
		RuntimeID: model.RuleRuntimeID(p.tenantToken, p.token, p.version, r.token), StableID: r.stable,
		Token: r.token, Name: r.name, Status: Active, Message: r.problem,
		EvalErrors: r.EvalErrors, LateSamples: r.LateSamples, RefusedKeys: r.RefusedKeys, Lacking: r.Lacking, LastInputAt: r.LastInputAt,
		HeldEdges: r.HeldEdges, Flaps: e.flaps(r),
	}
	if r.program == nil {
		h.Status = CompileError
	} else if h.Flaps {
		h.Message = h.flaps()
	}
	for i, name := range r.wants {
		if !r.came[i] {
			h.MissingMetrics = append(h.MissingMetrics, name)
		}
	}
	return h
}

// Budget is a budget of a tenant that is used up: what comes to need more of it is refused and counted.
type Budget struct {
	Tenant int64  // 0: of all tenants together
	Key    string // of the setting
}

// UsedUp lists the budgets that are used up, by tenant.
func (e *Engine) UsedUp() (all []Budget) {
	if e.held >= e.limits.MaxKeysInAll || e.samples >= e.limits.MaxSamplesInAll {
		all = append(all, Budget{Key: "limits.memory"})
	}
	for _, id := range slices.Sorted(maps.Keys(e.tenants)) {
		t := e.tenants[id]
		if max(t.keys, t.devices) >= e.limits.MaxKeys {
			all = append(all, Budget{id, "detection.max_keys_per_tenant"})
		}
		if t.samples >= e.limits.MaxSamples {
			all = append(all, Budget{id, "detection.max_samples_per_tenant"})
		}
	}
	return all
}

// metrics count for the operator, over all tenants. The figures for a rule's author are stored with the rule.
type metrics struct {
	applied    prometheus.Counter
	late       prometheus.Counter
	evalErrors prometheus.Counter
	refused    prometheus.Counter
	heldEdges  prometheus.Counter
	setBack    prometheus.Counter
	rewritten  prometheus.Counter
	rules      prometheus.Gauge
	keys       prometheus.Gauge
	owed       prometheus.Gauge
	held       prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	const prefix = "weir_eventprocessing_detect_"
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + name, Help: help})
	}
	m := &metrics{
		applied:    counter("events_applied_total", "Samples of devices whose profile has rules."),
		late:       counter("late_samples_total", "Samples and edges discarded because they were too old."),
		evalErrors: counter("eval_errors_total", "Samples for which the evaluation of a rule failed."),
		refused:    counter("keys_refused_total", "Samples refused because the tenant or the instance had its maximum of keys."),
		heldEdges:  counter("edges_over_ceiling_total", "Detections not kept because the tenant had more than detection.max_edges_per_second."),
		setBack:    counter("clocks_set_back_total", "Keys that began again because the clock of their device was set back."),
		rewritten:  counter("windows_rewritten_total", "Times that a checkpoint wrote all windows of a 64th of a profile's devices again, because what was stored of them held too many samples that no window has."),
		rules:      gauge("rules_active", "Active rules."),
		keys:       gauge("live_keys", "Keys with state."),
		owed:       gauge("edges_owed", "Detections over a ceiling that are emitted once their tenant has room: each is the last of its key."),
		held:       gauge("tenants_held", "Tenants whose listening time stands still because messages of them are turned away."),
	}
	if reg != nil {
		reg.MustRegister(m.applied, m.late, m.evalErrors, m.refused, m.heldEdges, m.setBack, m.rewritten, m.rules, m.keys, m.owed, m.held)
	}
	return m
}
