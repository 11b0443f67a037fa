package rules

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"weir/internal/setting"
	"weir/model"
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

// Limits returns the limits with their defaults filled in.
func (c *Compiler) Limits() Limits { return c.limits }

// Settings are the keys of the rules, in the section detection.
type Settings struct {
	MaxDuration time.Duration `yaml:"max_rule_duration" default:"24h" zero:"no" doc:"Longest window, hold or time-out of a rule."`
	MaxRules    int           `yaml:"max_rules_per_tenant" default:"500" zero:"default" doc:"Maximum number of rules that run for a tenant."`
	MaxKeys     int           `yaml:"max_keys_per_tenant" default:"1000000" zero:"default" doc:"Maximum number of pairs of rule and device with state."`
	MaxEdges    int           `yaml:"max_edges_per_second" default:"5000" zero:"default" doc:"Maximum number of detections a second that are kept of a tenant, as an average over two minutes. A rule that goes beyond it flaps: its health says so."`

	PreviewDays  int          `yaml:"preview_days" default:"7" zero:"no" max:"3650" doc:"Days for which it is kept what the registry said before: relationships, attributes, published versions that no longer apply. Previews of rules read it."`
	PreviewBytes setting.Size `yaml:"preview_bytes" default:"256MiB" zero:"no" doc:"Maximum size of that; the oldest goes first."`
}

// Limits are what the instance allows and performs. A zero number stands for its default.
type Limits struct {
	Settings
	MaxCost uint64 // static worst case of one expression; default 100
	// MaxKeysInAll is the maximum of keys and devices with a clock of all tenants together; default: what MaxKeys allows
	// each of them.
	MaxKeysInAll int
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
	return l
}

// Options is what a rule's definition does not say about it.
type Options struct {
	GroupScoped bool // the rule watches only the members of a device group
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
	def      *Definition
	uses     Uses
	judge    Judge // nil when Weir cannot run the kind yet
	when     Predicate
	cost     uint64
	scope    scope
	carries  []string // of a rule with scopeMetrics: a sample must carry one of them; sorted
	wants    []string // every metric that the rule names, sorted
	fences   bool
	notToday *Error // what the rule needs and the engine cannot do yet
}

// Decode is the package's Decode with the kinds of the limits.
func (c *Compiler) Decode(src []byte) (*Definition, error) { return Decode(src, c.limits.Kinds...) }

// Compile checks everything that Decode cannot check and builds the program. The error is an *Error: the first
// offence. Warnings are sorted by code and params and unique. A program that compiles may still be one that cannot be
// run yet, see Program.Evaluable.
func (c *Compiler) Compile(def *Definition, opt Options) (*Program, []Warning, error) {
	kind, ok := findKind(c.kinds, def.Type)
	if !ok {
		return nil, nil, refuse("type", "%s is not a kind of this instance", quote(string(def.Type)))
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
	if opt.GroupScoped && p.uses.NoGroup {
		return nil, nil, refuse("", "a rule of %s cannot be scoped to a device group", p.uses.As)
	}
	if p.judge, bad = kind.Compile(def, &p.when); bad != nil {
		return nil, nil, bad
	}
	p.notToday = notAvailable(p, opt, c.limits.Actions)
	return p, sortWarnings(append(warnings, more...)), nil
}

// Definition returns what the program was compiled from. It must not be changed.
func (p *Program) Definition() *Definition { return p.def }

// Cost returns the static worst case of the rule's predicate in cost units.
func (p *Program) Cost() uint64 { return p.cost }

// Wants returns the metrics that the rule names, sorted. They must not be changed.
func (p *Program) Wants() []string { return p.wants }

// TestsFence reports whether the rule's verdict reveals when a device was inside a region.
func (p *Program) TestsFence() bool { return p.fences }

// Evaluable returns nil when the engine can run the program, else an *Error that names what is not available yet.
func (p *Program) Evaluable() error {
	if p.notToday != nil {
		return p.notToday
	}
	return nil
}

// notAvailable returns an error for the first part of the rule that the engine cannot run yet.
func notAvailable(p *Program, opt Options, performed []ActionType) *Error {
	d := p.def
	switch {
	case p.judge == nil:
		return refuse("type", "%s is not available yet", d.Type)
	case d.When.ThresholdAttr != "":
		return refuse("when", "thresholdAttr is not available yet")
	case p.fences:
		return refuse("when", "geo.inFence is not available yet")
	case p.notToday != nil:
		return p.notToday
	case opt.GroupScoped:
		return refuse("", "the scope of a device group is not available yet")
	}
	for i := range d.Actions {
		if t := d.Actions[i].Type; !slices.Contains(performed, t) {
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
	p, _, err := c.Compile(def, Options{GroupScoped: v.Group != ""})
	if err == nil {
		err = p.Evaluable()
	}
	if err != nil {
		return def, nil, err
	}
	return def, p, nil
}
