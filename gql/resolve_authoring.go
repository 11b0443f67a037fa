package gql

import (
	"context"
	"errors"
	"time"

	"weir/model"
	"weir/rules/canvas"
	"weir/rules/preview"
)

// CanvasCompiler compiles canvases to rules, and shows rules as canvases. It keeps nothing.
type CanvasCompiler interface {
	Compile(graph, profile string) canvas.Result
	Tracer(r *canvas.Result) func(model.Edge) []preview.Step
	Show(definition, profile string) (graph, reason string)
}

type canvasView struct {
	OK          bool             `gql:"ok"`
	Definition  *string          `gql:"definition"`
	Cost        *int64           `gql:"estimatedCost"`
	Diagnostics []diagnosticView `gql:"diagnostics"`
}

type ruleCanvasView struct {
	Graph  *string `gql:"graph"`
	Reason *string `gql:"reason"`
}

type compileCanvasInput struct {
	Graph   string `gql:"graph"`
	Profile string `gql:"profileToken"`
}

func (p *processingResolvers) compileCanvas(_ context.Context, in compileCanvasInput) (any, error) {
	r := p.Canvas.Compile(in.Graph, in.Profile)
	v := canvasView{OK: r.OK, Diagnostics: showDiagnostics(r.Diagnostics)}
	if r.OK {
		v.Definition, v.Cost = &r.Definition, new(clampInt(int64(r.Cost)))
	}
	return v, nil
}

func showDiagnostics(found []canvas.Diagnostic) []diagnosticView {
	views := make([]diagnosticView, len(found))
	for i, d := range found {
		views[i] = diagnosticView{textOrNil(d.Node), d.Severity, textOrNil(d.Code), d.Params, d.Message}
	}
	return views
}

type canvasFromRuleInput struct {
	Definition string `gql:"definition"`
	Profile    string `gql:"profileToken"`
}

func (p *processingResolvers) canvasFromRule(_ context.Context, in canvasFromRuleInput) (any, error) {
	graph, reason := p.Canvas.Show(in.Definition, in.Profile)
	return ruleCanvasView{textOrNil(graph), textOrNil(reason)}, nil
}

// Previewer runs drafts over stored history.
type Previewer interface {
	Preview(ctx context.Context, by *model.Principal, d *preview.Draft, profile string, w preview.Window, scope *model.GroupView, explain bool) (*preview.Result, error)
}

// GroupScopes says what a published version of a group of devices selects.
type GroupScopes interface {
	Scope(ctx context.Context, by *model.Principal, token string, version int) (*model.GroupView, error)
}

type previewInput struct {
	Input struct {
		Graph        *string `gql:"graph"`
		Definition   *string `gql:"ruleDefinition"`
		Profile      string  `gql:"profileToken"`
		Start        string  `gql:"start"`
		End          string  `gql:"end"`
		Trace        *bool   `gql:"trace"`
		Group        *string `gql:"entityGroupToken"`
		GroupVersion *int    `gql:"entityGroupVersion"`
		Explain      *bool   `gql:"explain"`
	} `gql:"input"`
}

type previewView struct {
	OK          bool             `gql:"ok"`
	Firings     []firingView     `gql:"firings"`
	Stats       previewStats     `gql:"stats"`
	Degraded    *string          `gql:"degraded"`
	Diagnostics []diagnosticView `gql:"diagnostics"`
	Reads       *previewReads    `gql:"reads"`
}

type firingView struct {
	Occurred model.Micros `gql:"occurredAt"`
	Series   string       `gql:"series"`
	Signal   string       `gql:"signal"`
	Trace    []stepView   `gql:"trace"`
}

type stepView struct {
	Node        string  `gql:"nodeId"`
	Kind        string  `gql:"kind"`
	Disposition string  `gql:"disposition"`
	Detail      *string `gql:"detail"`
}

type previewStats struct {
	Events     int64 `gql:"eventsScanned"`
	Firings    int64 `gql:"firingCount"`
	EvalErrors int64 `gql:"evalErrors"`
	WallMs     int64 `gql:"wallMs"`
}

type previewReads struct {
	From     model.Micros `gql:"from"`
	Devices  int64        `gql:"devices"`
	Rows     int64        `gql:"rows"`
	Readings int64        `gql:"readings"`
}

type diagnosticView struct {
	Node     *string  `gql:"nodeId"`
	Severity string   `gql:"severity"`
	Code     *string  `gql:"code"`
	Params   []string `gql:"params"`
	Message  string   `gql:"message"`
}

// preview runs a draft. What gives ok=false comes before what only degrades the result.
func (p *processingResolvers) preview(ctx context.Context, in previewInput) (any, error) {
	began, by := p.Now(), PrincipalFrom(ctx)
	i := &in.Input
	r := preview.Request{Graph: i.Graph, Definition: i.Definition, Profile: i.Profile, Start: i.Start, End: i.End, Trace: i.Trace != nil && *i.Trace,
		Group: i.Group, GroupVersion: i.GroupVersion}
	draft, found := r.Draft(p.Compiler, graphs{p.Canvas})
	if draft == nil {
		return p.previewed(began, false, &preview.Result{}, nil, found), nil
	}
	if draft.TestsFence() && !by.Has(model.LocationRead) {
		return nil, model.Forbidden(model.LocationRead)
	}
	window, shortened, refused := r.Window()
	if refused != nil {
		return p.previewed(began, false, &preview.Result{}, nil, append(refused, found...)), nil
	}
	if known, err := p.hasProfile(ctx, i.Profile); err != nil {
		return nil, err
	} else if !known {
		none := preview.Diagnostic{Severity: preview.Error, Message: "device profile " + i.Profile + " does not exist"}
		return p.previewed(began, false, &preview.Result{}, nil, append([]preview.Diagnostic{none}, found...)), nil
	}
	var scope *model.GroupView
	if i.Group != nil {
		var err error
		if scope, err = p.Scopes.Scope(ctx, by, *i.Group, *i.GroupVersion); err != nil {
			bad, ok := errors.AsType[*model.Error](err)
			if !ok || bad.Code != model.CodeInvalidInput {
				return nil, err
			}
			none := preview.Diagnostic{Severity: preview.Error, Message: bad.Message}
			return p.previewed(began, false, &preview.Result{}, nil, append([]preview.Diagnostic{none}, found...)), nil
		}
	}
	out, err := p.Previews.Preview(ctx, by, draft, i.Profile, window, scope, i.Explain != nil && *i.Explain)
	if err != nil {
		return nil, err
	}
	if shortened {
		out.Degraded = append([]string{"window shortened: to the last 24 hours before end"}, out.Degraded...)
	}
	return p.previewed(began, true, out, draft.Trace, found), nil
}

// previewed shows a result.
func (p *processingResolvers) previewed(began time.Time, ok bool, r *preview.Result, trace func(model.Edge) []preview.Step, found []preview.Diagnostic) previewView {
	traces := r.Trace(trace)
	v := previewView{OK: ok, Firings: make([]firingView, 0, len(r.Firings)), Diagnostics: make([]diagnosticView, 0, len(found)), Degraded: textOrNil(r.Why()),
		Stats: previewStats{Events: clampInt(r.Events), Firings: int64(len(r.Firings)), EvalErrors: clampInt(r.EvalErrors), WallMs: p.Now().Sub(began).Milliseconds()}}
	for i, f := range r.Firings {
		shown := firingView{Occurred: f.Occurred, Series: f.Series, Signal: f.Signal.String(), Trace: []stepView{}}
		for _, s := range traces[i] {
			shown.Trace = append(shown.Trace, stepView{s.Node, s.Kind, s.Disposition, textOrNil(s.Detail)})
		}
		v.Firings = append(v.Firings, shown)
	}
	for _, d := range found {
		v.Diagnostics = append(v.Diagnostics, diagnosticView{textOrNil(d.Node), d.Severity, textOrNil(d.Code), append([]string{}, d.Params...), d.Message})
	}
	if r.Reads != nil {
		v.Reads = &previewReads{r.Reads.From, int64(r.Reads.Devices), int64(r.Reads.Rows), clampInt(r.Reads.Readings)}
	}
	return v
}

// graphs compiles the graphs of previews.
type graphs struct{ canvases CanvasCompiler }

// Compile implements preview.Canvas.
func (g graphs) Compile(graph, profile string) (*preview.Compiled, []preview.Diagnostic) {
	r := g.canvases.Compile(graph, profile)
	found := make([]preview.Diagnostic, len(r.Diagnostics))
	for i, d := range r.Diagnostics {
		found[i] = preview.Diagnostic{Node: d.Node, Severity: d.Severity, Code: d.Code, Params: d.Params, Message: d.Message}
	}
	if !r.OK {
		return nil, found
	}
	return &preview.Compiled{Definition: r.Definition, Trace: g.canvases.Tracer(&r)}, found
}
