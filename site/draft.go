package site

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"weir/ingest/eventfile"
	"weir/internal/yamldoc"
	"weir/model"
	"weir/rules"
	"weir/rules/canvas"
	"weir/rules/preview"
)

// RuleDraft is a rule of a file, or the canvas that draws one, as a preview takes it. It compiles.
type RuleDraft struct {
	Graph      string // JSON of a canvas, "" where it is a definition
	Definition string // JSON; of a canvas what it compiles to
	Rule       string // its token, with those of its profile and tenant where it stands in a site file
	Tenant     string // "" where the file does not say
	Profile    string // likewise
	Group      string // to which the rule is scoped, "" for none
}

// ReadDraft reads the only rule of a file, or the one that a reference names: the file is the definition of a rule, a canvas, or a site file.
// A profile that is not "" replaces that of the file. The error is RuleProblems. Warnings are for people.
func ReadDraft(src Source, name, reference, profile string) (*RuleDraft, []string, error) {
	src = src.withDefaults()
	text, err := src.ReadFile(name)
	if err != nil {
		return nil, nil, unreadable(name, err)
	}
	if root, _ := yamldoc.Parse(name, text); root.Kind == yamldoc.Map && root.Get("nodes") != nil {
		return readCanvasDraft(src, name, root, profile)
	}
	found, warnings, err := ExplainRules(src, name, reference)
	if err != nil {
		return nil, warnings, err
	}
	if len(found) != 1 {
		tokens := make([]string, len(found))
		for i := range found {
			tokens[i] = found[i].FullName()
		}
		return nil, warnings, RuleProblems{yamldoc.Position{File: yamldoc.NewFile(name)}.Problem("", false, "name one: "+shortened(strings.Join(tokens, ", ")), "has %d rules", len(found))}
	}
	r := found[0]
	d := &RuleDraft{Definition: r.Definition, Rule: r.FullName(), Tenant: r.Tenant, Profile: r.Profile, Group: r.Group}
	if profile != "" {
		d.Profile = profile
	}
	return d, warnings, nil
}

func readCanvasDraft(src Source, name string, root *yamldoc.Node, profile string) (*RuleDraft, []string, error) {
	if profile == "" {
		profile = firstProfile(root)
	}
	compiled, warnings, err := CompileCanvas(src, name, profile)
	if err != nil {
		return nil, warnings, err
	}
	graph := jsonOf(root, func(yamldoc.Position, string, string, ...any) {}) // it has compiled
	return &RuleDraft{Graph: graph, Definition: string(compiled.Definition), Rule: name, Profile: profile}, warnings, nil
}

// Preview is what a draft would have fired, as the API shows it.
type Preview struct {
	OK          bool             `json:"ok"`
	Firings     []PreviewFiring  `json:"firings"`
	Stats       PreviewStats     `json:"stats"`
	Degraded    *string          `json:"degraded"`
	Diagnostics []PreviewFinding `json:"diagnostics"`
	Reads       *PreviewReads    `json:"reads,omitempty"`
}

// PreviewFiring is an edge, with what each node of a canvas did where that was asked for.
type PreviewFiring struct {
	Occurred time.Time     `json:"occurredAt"`
	Series   string        `json:"series"`
	Signal   string        `json:"signal"`
	Trace    []PreviewStep `json:"trace"`
}

// PreviewStep is what a node of a canvas did at an edge.
type PreviewStep struct {
	Node        string  `json:"nodeId"`
	Kind        string  `json:"kind"`
	Disposition string  `json:"disposition"`
	Detail      *string `json:"detail"`
}

// PreviewStats are figures of a preview.
type PreviewStats struct {
	Events     int64 `json:"eventsScanned"`
	Firings    int64 `json:"firingCount"`
	EvalErrors int64 `json:"evalErrors"`
	WallMs     int64 `json:"wallMs"`
}

// PreviewFinding is why a preview is refused, or advice on its draft.
type PreviewFinding struct {
	Node     *string  `json:"nodeId"`
	Severity string   `json:"severity"`
	Code     *string  `json:"code"`
	Params   []string `json:"params"`
	Message  string   `json:"message"`
}

// PreviewReads is what a preview reads.
type PreviewReads struct {
	From     time.Time `json:"from"`
	Devices  int64     `json:"devices"`
	Rows     int64     `json:"rows"`
	Readings int64     `json:"readings"`
}

// PreviewEvents runs a draft over a file of events, which errors call name, without an instance. A time of the window that is zero is that of
// the first or last event.
func PreviewEvents(ctx context.Context, d *RuleDraft, name string, file io.Reader, from, to time.Time, trace bool) (*Preview, error) {
	out, tracer, err := d.judge(ctx, name, file, from, to, trace, nil)
	if err != nil {
		return nil, err
	}
	return shown(out, tracer), nil
}

// judge runs a draft over a file of events.
func (d *RuleDraft) judge(ctx context.Context, name string, file io.Reader, from, to time.Time, trace bool, watch func(*rules.Input)) (*eventfile.Outcome,
	func(model.Edge) []preview.Step, error,
) {
	compiler, err := newCompiler()
	if err != nil {
		return nil, nil, err
	}
	compiler = compiler.ForPreviews()
	draft, tracer, err := d.compile(compiler, trace)
	if err != nil {
		return nil, nil, err
	}
	if err := eventfile.Fits(compiler, draft); err != nil {
		return nil, nil, err
	}
	var w preview.Window
	if !from.IsZero() {
		w.From = model.MicrosOf(from)
	}
	if !to.IsZero() {
		w.To = model.MicrosOf(to)
	}
	out, err := eventfile.Run(ctx, file, compiler, draft, w, watch)
	if bad, ok := errors.AsType[*eventfile.Error](err); ok {
		err = model.Errorf(model.CodeInvalidInput, "%s: %v", name, bad)
	}
	return out, tracer, err
}

// compile compiles a draft that was read, and prepares the trace of a canvas where it is asked for.
func (d *RuleDraft) compile(c *rules.Compiler, trace bool) (*preview.Draft, func(model.Edge) []preview.Step, error) {
	r := preview.Request{Definition: &d.Definition}
	draft, found := r.Draft(c, nil)
	if draft == nil {
		return nil, nil, model.Errorf(model.CodeInvalidInput, "%s", found[0].Message)
	}
	draft.Scoped = d.Group != ""
	if d.Graph == "" || !trace {
		return draft, nil, nil
	}
	canvases := canvas.NewCompiler(c)
	compiled := canvases.Compile(d.Graph, d.Profile)
	if !compiled.OK {
		return nil, nil, model.Errorf(model.CodeInvalidInput, "%s", compiled.Diagnostics[0].Message)
	}
	return draft, canvases.Tracer(&compiled), nil
}

// shown is an outcome as the API shows one.
func shown(out *eventfile.Outcome, tracer func(model.Edge) []preview.Step) *Preview {
	p := &Preview{OK: true, Firings: make([]PreviewFiring, 0, len(out.Firings)), Diagnostics: []PreviewFinding{},
		Stats: PreviewStats{Events: out.Events, Firings: int64(len(out.Firings)), EvalErrors: out.EvalErrors},
		Reads: &PreviewReads{From: out.First.Time().UTC(), Devices: int64(out.Devices), Readings: out.Scanned}}
	traces := out.Trace(tracer)
	for i, f := range out.Firings {
		x := PreviewFiring{Occurred: f.Occurred.Time().UTC(), Series: f.Series, Signal: f.Signal.String(), Trace: []PreviewStep{}}
		for _, s := range traces[i] {
			step := PreviewStep{Node: s.Node, Kind: s.Kind, Disposition: s.Disposition}
			if s.Detail != "" {
				step.Detail = &s.Detail
			}
			x.Trace = append(x.Trace, step)
		}
		p.Firings = append(p.Firings, x)
	}
	if why := out.Why(); why != "" {
		p.Degraded = &why
	}
	return p
}
