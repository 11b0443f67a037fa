package rules

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"cel.dev/cel-go/cel"

	"weir/internal/setting"
	"weir/model"
	"weir/rules/strict"
	"weir/rules/vocabulary"
)

// Compiler turns definitions into programs. It is safe for concurrent use.
type Compiler struct {
	limits Limits
	kinds  []Kind
	envs   *environments
}

// NewCompiler returns a compiler. It fails only when the expression library fails.
func NewCompiler(l Limits) (*Compiler, error) {
	envs, err := newEnvironments()
	if err != nil {
		return nil, err
	}
	return &Compiler{limits: l.withDefaults(), kinds: append(builtin(), l.Kinds...), envs: envs}, nil
}

// ForPreviews returns a compiler of the same rules whose engines have no ceiling for edges: a preview has a bound of its own, and the other rules of
// the tenant take nothing from it.
func (c *Compiler) ForPreviews() *Compiler {
	other := *c
	other.limits.MaxEdges = int(time.Second)
	return &other
}

// Limits returns the limits with their defaults filled in.
func (c *Compiler) Limits() Limits { return c.limits }

// Settings are the keys of the rules, in the section detection.
type Settings struct {
	MaxDuration time.Duration `yaml:"max_rule_duration" default:"24h" zero:"no" doc:"Longest window, hold or time-out of a rule."`

	//limit:what rules of a tenant that run
	//limit:chapter What is kept
	//limit:bound {}
	//limit:level weir_eventprocessing_detect_rules_active
	//limit:then publish is refused with LIMIT_EXCEEDED, with the key
	MaxRules int `yaml:"max_rules_per_tenant" default:"500" zero:"default" doc:"Maximum number of rules that run for a tenant."`

	//limit:what keys of rules
	//limit:chapter What is kept
	//limit:bound {} of a tenant; all together as memory allows
	//limit:keys limits.memory
	//limit:level weir_eventprocessing_detect_live_keys
	//limit:met weir_eventprocessing_detect_keys_refused_total
	//limit:then the rule does not judge that device; its health says so
	//limit:cost 256 bytes each, of `rule state`
	MaxKeys int `yaml:"max_keys_per_tenant" default:"1000000" zero:"default" doc:"Maximum number of pairs of rule and device with state."`

	//limit:what samples that rules retain
	//limit:chapter What is kept
	//limit:bound {} of a tenant
	//limit:met weir_eventprocessing_detect_keys_refused_total
	//limit:then the rule sets the sample aside; its health says so
	//limit:cost 24 bytes each
	//limit:what samples of rules in the database
	//limit:chapter What is kept
	//limit:bound about twice those that are retained, and 1,024 for each 64th of the devices of a profile; 256 segments there
	//limit:met weir_eventprocessing_detect_windows_rewritten_total
	//limit:then the next checkpoint writes the windows of these devices again
	//limit:cost about 14 bytes of disk each
	MaxSamples int           `yaml:"max_samples_per_tenant" default:"5000000" zero:"default" doc:"Maximum number of samples that the rules of a tenant retain: those in their windows, and those that wait for the lateness."`
	Lateness   time.Duration `yaml:"lateness" default:"5s" zero:"no" doc:"How late a reading may come and still be judged where it belongs. A rule can say it for itself."`

	//limit:what detections of a tenant
	//limit:chapter What is kept
	//limit:bound {} a second over two minutes; besides, each rule has a thousandth of it for itself
	//limit:level weir_eventprocessing_detections_total
	//limit:met weir_eventprocessing_detect_edges_over_ceiling_total
	//limit:then not kept, counted with the rule; the health of the rule, the doctor and the log name it as flapping. The last one of a
	//limit:then key is kept once there is room: of 65,536 keys of a tenant, the others are right again with their next one
	//limit:cost 10 bytes of disk each
	MaxEdges int `yaml:"max_edges_per_second" default:"5000" zero:"default" doc:"Maximum number of detections a second that are kept of a tenant, as an average over two minutes. A rule that goes beyond it flaps: its health says so."`

	//limit:what what the registry said before
	//limit:chapter What is kept
	//limit:bound {} days, no longer than the readings; {detection.preview_bytes} with the next two
	//limit:keys detection.preview_bytes history.event_retention_days
	//limit:level weir_eventprocessing_previews_kept_bytes
	//limit:met weir_history_removed_total{kind="metadata"}
	//limit:then the oldest is removed; previews reach back as far as it is there
	//limit:cost disk
	//limit:what snapshots of the state of rules, the last before each midnight (UTC)
	//limit:chapter What is kept
	//limit:bound likewise
	//limit:keys detection.preview_bytes history.event_retention_days
	//limit:level weir_eventprocessing_previews_kept_bytes weir_eventprocessing_previews_kept_snapshots
	//limit:met weir_history_removed_total{kind="snapshots"}
	//limit:then the oldest are removed within the hour; previews of live rules start cold where there is none
	//limit:cost disk: what of the state has changed since
	//limit:what listening spans: how the time went in which devices could be heard
	//limit:chapter What is kept
	//limit:bound likewise; 16,384 of a tenant, 262,144 of all
	//limit:keys detection.preview_bytes history.event_retention_days
	//limit:level weir_eventprocessing_previews_kept_bytes
	//limit:met weir_history_removed_total{kind="listening"}
	//limit:then the oldest are removed; previews reach back as far as they are there
	//limit:cost about 100 bytes of disk each
	PreviewDays  int          `yaml:"preview_days" default:"7" zero:"no" max:"3650" doc:"Days for which it is kept what previews of rules need besides readings: what the registry said before (relationships, attributes, published versions that no longer apply), how the time went in which devices could be heard, and the state of rules before each midnight (UTC). No longer than readings."`
	PreviewBytes setting.Size `yaml:"preview_bytes" default:"256MiB" zero:"no" doc:"Maximum size of all that together; the oldest goes first."`

	PreviewSettings
}

// PreviewSettings bound previews of rules.
type PreviewSettings struct {
	//limit:what previews of a tenant at a time
	//limit:chapter What is kept
	//limit:bound {}; over all tenants one for each processor, the others wait, in turn by tenant
	//limit:level weir_eventprocessing_previews_running weir_eventprocessing_previews_waiting
	//limit:met weir_eventprocessing_previews_refused_total
	//limit:then nothing is judged, and `degraded` says so
	//limit:cost up to 40 MiB each
	PreviewConcurrency int   `yaml:"preview_concurrency" default:"2" zero:"default" doc:"Maximum number of previews of a tenant at a time. Over all tenants as many run as there are processors; the others wait, in turn by tenant."`
	PreviewMaxEvents   int64 `yaml:"preview_max_events" default:"500000" zero:"default" doc:"Maximum number of events in the scope of the draft that one preview judges."`

	//limit:what what a preview reads, judges, fires and takes
	//limit:chapter What is kept
	//limit:bound {} stored events; {detection.preview_max_events} in the scope of the draft; 10,000 edges; a minute, and what the request
	//limit:bound has left
	//limit:keys detection.preview_max_events
	//limit:then it ends there, and `degraded` names the time that was reached
	PreviewMaxScanned int64 `yaml:"preview_max_scanned" default:"5000000" zero:"default" doc:"Maximum number of stored events that one preview looks at."`
}

// Limits are what the instance allows and performs. A zero number stands for its default.
type Limits struct {
	Settings
	MaxCost uint64 // static worst case of one expression; default 100
	// MaxKeysInAll is the maximum of keys and devices with a clock of all tenants together; default: what MaxKeys allows
	// each of them.
	MaxKeysInAll int
	// MaxSamplesInAll is the maximum of retained samples of all tenants together; default: what MaxSamples allows each.
	MaxSamplesInAll int
	// Actions are the action types that the instance performs. A rule with another one is refused as not
	// available, because the action would not happen.
	Actions []ActionType
	// Kinds are kinds of rules besides those of Weir.
	Kinds []Kind
}

// DefaultMaxCost is the default of Limits.MaxCost.
const DefaultMaxCost = 100

func (l Limits) withDefaults() Limits {
	setting.FillDefaults(&l.Settings)
	l.MaxCost = cmp.Or(l.MaxCost, DefaultMaxCost)
	l.MaxKeysInAll = cmp.Or(l.MaxKeysInAll, math.MaxInt)
	l.MaxSamplesInAll = cmp.Or(l.MaxSamplesInAll, math.MaxInt)
	return l
}

// Options is what a rule's definition does not say about it.
type Options struct {
	GroupScoped bool // the rule watches only the members of a device group
	AtSite      bool // it is judged at the site of a device that is behind an edge
}

// scope is the set of samples that a rule looks at.
type scope uint8

const (
	scopeAll      scope = iota // every sample
	scopeMetrics               // samples that carry one of certain metrics
	scopePosition              // samples that carry a position
	scopePresence              // transitions of presence
)

// Program is a compiled rule. It is immutable and safe for concurrent use.
type Program struct {
	def        *Definition
	uses       Uses
	judge      Judge // nil when Weir cannot run the kind yet
	when       Predicate
	cost       uint64
	scope      scope
	carries    []string // of a rule with scopeMetrics: a sample must carry one of them; sorted
	wants      []string // every metric that the rule names, sorted
	fences     []string // tokens of geofences that the rule tests, sorted
	attributes []string // keys of attributes that the rule reads by name, sorted
	anchors    []string // types of anchors that it reads by name, sorted
	entire     []string // of attr and anchors, those that it reads as a whole, sorted
	acting     acting
	notToday   *Error // what the rule needs and the engine cannot do yet
}

// Decode is the package's Decode with the kinds of the limits.
func (c *Compiler) Decode(src []byte) (*Definition, error) { return Decode(src, c.limits.Kinds...) }

// Compile checks everything that Decode cannot check and builds the program. The error is an *Error: the first
// offence. Warnings are sorted by code and params and unique. A program that compiles may still be one that cannot be
// run yet, see Program.Evaluable.
func (c *Compiler) Compile(def *Definition, opt Options) (*Program, []Warning, error) {
	kind, ok := findKind(c.kinds, def.Type)
	if !ok {
		return nil, nil, refuse("type", "%s is not a kind of this instance", strict.Quote(string(def.Type)))
	}
	p := &Program{def: def}
	var bad *Error
	if p.uses, bad = def.check(kind, c.limits); bad != nil {
		return nil, nil, bad
	}
	warnings, err := c.compileWhen(p)
	if err != nil {
		return nil, nil, err
	}
	more, err := c.compileActions(p)
	if err != nil {
		return nil, nil, err
	}
	if opt.GroupScoped && (p.uses.NoGroup || p.uses.Keys&ByDevice == 0) {
		return nil, nil, refuse("", "a rule of %s cannot be scoped to a device group", p.uses.As)
	}
	if opt.AtSite {
		if bad := p.refusedAtSite(opt.GroupScoped); bad != nil {
			return nil, nil, bad
		}
	}
	full := *def
	full.Lateness = cmp.Or(def.Lateness, &c.limits.Lateness)
	if p.judge, bad = kind.Compile(&full, &p.when); bad != nil {
		return nil, nil, bad
	}
	warnings = append(warnings, latenessWarning(def, p.uses)...)
	p.notToday = c.notAvailable(p)
	return p, sortWarnings(append(warnings, more...)), nil
}

// refusedAtSite says why a rule cannot be judged at a site: what only the Weir above knows.
func (p *Program) refusedAtSite(grouped bool) *Error {
	const out = "; leave out placement, or set CLOUD"
	switch {
	case grouped:
		return refuse("placement", "EDGE does not go with a group: an edge does not know which devices elsewhere are members of it"+out)
	case p.uses.Keys&ByAnchor != 0:
		return refuse("placement", "EDGE does not go with %s: an edge does not know which other devices are at an anchor"+out, p.uses.As)
	case len(p.anchors) > 0 || slices.Contains(p.entire, "anchors"):
		return refuse("placement", "EDGE does not go with anchors: an edge does not know the relationships of its devices"+out)
	}
	return nil
}

// Definition returns what the program was compiled from. It must not be changed.
func (p *Program) Definition() *Definition { return p.def }

// Cost returns the static worst case of the rule's predicate in cost units.
func (p *Program) Cost() uint64 { return p.cost }

// Wants returns the metrics that the rule names, sorted. They must not be changed.
func (p *Program) Wants() []string { return p.wants }

// Names returns what the rule speaks of by name.
func (p *Program) Names() Vocabulary {
	names := Vocabulary{Metrics: p.wants, Fences: p.fences}
	for i := range p.def.Actions {
		switch a := &p.def.Actions[i]; {
		case a.SendCommand != nil:
			names.Commands = append(names.Commands, a.SendCommand.Command)
		case a.Publish != nil:
			names.Connectors = append(names.Connectors, a.Publish.ConnectorRef)
		}
	}
	names.Commands, names.Connectors = sortedUnique(names.Commands...), sortedUnique(names.Connectors...)
	return names
}

// TestsFence reports whether the rule's verdict reveals when a device was inside a region.
func (p *Program) TestsFence() bool { return len(p.fences) > 0 }

// Evaluable returns nil when the engine can run the program, else an *Error that names what is not available yet.
func (p *Program) Evaluable() error {
	if p.notToday != nil {
		return p.notToday
	}
	return nil
}

// notAvailable returns an error for the first part of the rule that the engine cannot run yet.
func (c *Compiler) notAvailable(p *Program) *Error {
	d := p.def
	switch {
	case p.judge == nil:
		return refuse("type", "%s is not available yet", d.Type)
	}
	for i := range d.Actions {
		if t := d.Actions[i].Type; !slices.Contains(c.limits.Actions, t) {
			return refuse(actionPath(i), "%s is not available yet", t)
		}
	}
	return nil
}

func actionPath(i int) string { return "actions[" + strconv.Itoa(i) + "]" }

// sortedUnique returns the names that are not empty, sorted, each once.
func sortedUnique(names ...string) []string {
	names = slices.DeleteFunc(names, func(s string) bool { return s == "" })
	slices.Sort(names)
	return slices.Compact(names)
}

// compileView decodes and compiles a rule as it stands in a published version.
func (c *Compiler) compileView(v model.RuleView) (*Definition, *Program, error) {
	def, err := c.Decode([]byte(v.Definition))
	if err != nil {
		return nil, nil, err
	}
	p, _, err := c.Compile(def, Options{GroupScoped: v.Group != "", AtSite: v.Placement == model.PlacementEdge})
	if err == nil {
		err = p.Evaluable()
	}
	if err != nil {
		return def, nil, err
	}
	return def, p, nil
}

// Candidate is a rule to be checked.
type Candidate struct {
	Token       string
	Definition  string
	GroupScoped bool
	AtSite      bool
}

// ValidationError is the first reason for which a candidate is refused.
type ValidationError struct {
	Index   int // position in the list, from 0
	Token   string
	Message string // English, for the rule's author
}

// ValidationWarning is an advisory finding on a candidate that is accepted.
type ValidationWarning struct {
	Index int
	Token string
	Warning
}

// Validate decodes and compiles each candidate in the order of the list, without keeping anything. A candidate has one
// error, the first found, or any number of warnings. What the engine cannot run yet is an error: no rule is accepted
// that would then do nothing.
func (c *Compiler) Validate(candidates []Candidate) ([]ValidationError, []ValidationWarning) {
	return c.ValidateAgainst(Vocabulary{}, candidates)
}

// ValidateAgainst is Validate for rules that may speak of what there is: each name that is not there is a warning.
func (c *Compiler) ValidateAgainst(there Vocabulary, candidates []Candidate) ([]ValidationError, []ValidationWarning) {
	var errs []ValidationError
	var warns []ValidationWarning
	for i, cand := range candidates {
		found, err := c.validate(cand, there)
		if err != nil {
			errs = append(errs, ValidationError{i, cand.Token, err.Error()})
			continue
		}
		for _, w := range found {
			warns = append(warns, ValidationWarning{i, cand.Token, w})
		}
	}
	return errs, warns
}

// Inspect decodes and compiles one definition and returns everything that is wrong with it: every offence of a single
// field and of the condition, or the first of those that concern fields together or the engine. Without an offence p is its
// program.
func (c *Compiler) Inspect(definition string, opt Options) (p *Program, warnings []Warning, faults []*Error) {
	def, faults := decodeAll([]byte(definition), c.kinds)
	if len(faults) > 0 {
		return nil, nil, append(faults, c.conditionFaults(def, faults)...)
	}
	p, warnings, err := c.Compile(def, opt)
	if err == nil {
		err = p.Evaluable()
	}
	if err == nil {
		if bad := c.checkConstants(def); bad != nil {
			return nil, nil, []*Error{bad}
		}
		return p, warnings, nil
	}
	fault, ok := errors.AsType[*Error](err)
	if !ok {
		fault = refuse("", "%v", err)
	}
	return nil, nil, []*Error{fault}
}

// conditionFaults looks at the condition of a definition that has other faults.
func (c *Compiler) conditionFaults(def *Definition, found []*Error) []*Error {
	if def == nil || slices.ContainsFunc(found, func(e *Error) bool { return e.Top() == "when" }) {
		return nil
	}
	if err := def.When.checkForm(); err != nil {
		return []*Error{err}
	}
	if def.When.CEL == "" {
		return nil
	}
	if _, _, err := c.envs.leaf.check(def.When.CEL, c.limits.MaxCost); err != nil {
		return []*Error{refusedAt("when", err)}
	}
	return nil
}

func (c *Compiler) validate(cand Candidate, there Vocabulary) ([]Warning, error) {
	def, err := c.Decode([]byte(cand.Definition))
	if err != nil {
		return nil, err
	}
	p, warnings, err := c.Compile(def, Options{GroupScoped: cand.GroupScoped, AtSite: cand.AtSite})
	if err != nil {
		return nil, err
	}
	if bad := c.checkConstants(def); bad != nil {
		return nil, bad
	}
	return sortWarnings(append(warnings, p.Against(there)...)), p.Evaluable()
}

// Against warns of what the rule means by what there is: names that are not there, and a threshold that its metric cannot cross.
func (p *Program) Against(there Vocabulary) []Warning {
	ws := there.Missing(p.Names())
	if when := p.Definition().When; when.Threshold != nil {
		ws = append(ws, there.Outside(when.Metric, *when.Threshold)...)
	}
	return ws
}

// Vocabulary are the names of what there is, or of what a rule speaks.
type Vocabulary = vocabulary.Vocabulary

// Warning is an advisory finding on a rule that compiled.
type Warning = vocabulary.Warning

func warn(code, message string, params ...string) Warning {
	return Warning{Code: code, Params: params, Message: message}
}

// Warning codes.
const (
	WarnNegatedAttributeGuard         = "negatedAttributeGuard"
	WarnNegatedAttributeGuardDisjunct = "negatedAttributeGuardDisjunct"
	WarnValueNeverSet                 = "valueNeverSet"
	WarnLongLateness                  = "latenessOverWindow"
	WarnIdleLateness                  = "latenessNotUsed"
)

func guardWarnings(leaf *cel.Ast) []Warning {
	guards, disjuncts := map[string]bool{}, map[string]bool{}
	missingTests(leaf.NativeRep().Expr(), false, guards, disjuncts)
	var ws []Warning
	for attr := range maps.Keys(guards) {
		ws = append(ws, warn(WarnNegatedAttributeGuard, "the condition asks that attribute "+attr+" is missing: it holds for every device that was not given it", attr))
		delete(disjuncts, attr)
	}
	for attr := range maps.Keys(disjuncts) {
		ws = append(ws, warn(WarnNegatedAttributeGuardDisjunct, "a missing attribute "+attr+" is enough for one side of an || in the condition", attr))
	}
	return ws
}

// latenessWarning warns of a lateness that is longer than the window, hold or gap of its rule, or does nothing. The default is no mistake of the
// author: a short window waits for it as any other, and explain says so.
func latenessWarning(d *Definition, u Uses) []Warning {
	if d.lateness() == 0 {
		return nil
	}
	if late := FormatDuration(*d.Lateness); u.AtArrival {
		return []Warning{warn(WarnIdleLateness, "the lateness of "+late+" does nothing: "+u.As+" judges samples when they arrive", late)}
	}
	for _, period := range []time.Duration{d.Window, d.Hold, d.Gap} {
		if period > 0 && *d.Lateness > period {
			late, over := FormatDuration(*d.Lateness), FormatDuration(period)
			return []Warning{warn(WarnLongLateness,
				"the lateness of "+late+" is longer than the "+over+" that the rule looks at: its edges come up to "+late+" after the readings that cause them", late, over)}
		}
	}
	return nil
}

func sortWarnings(ws []Warning) []Warning {
	slices.SortFunc(ws, func(a, b Warning) int {
		if c := strings.Compare(a.Code, b.Code); c != 0 {
			return c
		}
		return slices.Compare(a.Params, b.Params)
	})
	return ws
}
