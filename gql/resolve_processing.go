package gql

import (
	"context"
	"slices"
	"strings"
	"time"

	"weir/gql/engine"
	"weir/ingest"
	"weir/internal/hub"
	"weir/model"
	"weir/rules"
	"weir/rules/draft"
	"weir/rules/preview"
)

// RuleChecker compiles rules without installing them.
type RuleChecker interface {
	Validate([]rules.Candidate) ([]rules.ValidationError, []rules.ValidationWarning)
}

// HealthReader returns the health of a profile's live rules.
type HealthReader interface {
	RuleHealth(ctx context.Context, tenant, profile string) ([]ingest.RuleHealth, error)
}

// ProcessingDeps are the collaborators of the event-processing area.
type ProcessingDeps struct {
	AsOf   AsOf
	Rules  RuleChecker
	Canvas CanvasCompiler
	Health HealthReader
	Edges  *hub.Hub[model.Edge]
	// Past are the stored detections; the others say what exists.
	Past     DetectionReader
	Devices  DeviceFinder
	Profiles ProfileFinder
	RuleRows RuleFinder
	// Drafter drafts rules from words by asking Infer; nil where no provider can be asked.
	Drafter *draft.Drafter
	Infer   Inferrer
	// Previews run drafts; Scopes says what a version of a group selects.
	Compiler *rules.Compiler
	Previews Previewer
	Scopes   GroupScopes
	Now      func() time.Time
}

// RegisterProcessing registers the operations of the event-processing area.
func RegisterProcessing(a *Area, d ProcessingDeps) {
	p := &processingResolvers{d}
	a.Types(map[string]any{
		"EventProcessingInfo":            processingInfo{},
		"DetectionRuleValidationResult":  validationView{},
		"DetectionRuleValidationError":   validationErrorView{},
		"DetectionRuleValidationWarning": validationWarningView{},
		"CanvasCompileResult":            canvasView{},
		"RuleCanvas":                     ruleCanvasView{},
		"RuleHealth":                     healthView{},
		"DetectionEvent":                 detectionView{},
		"PreviewResult":                  previewView{},
		"PreviewFiring":                  firingView{},
		"NodeTraceStep":                  stepView{},
		"PreviewStats":                   previewStats{},
		"PreviewReads":                   previewReads{},
		"CanvasDiagnostic":               diagnosticView{},
		"SearchResultsPagination":        searchPage{},
		"Detection":                      pastDetection{},
		"DetectionSearchResults":         eventPage[pastDetection]{},
	})

	read := Requires(model.DeviceRead)
	a.Query("eventProcessingInfo", Anonymous(), always(processingInfo{"event-processing"}))
	a.Query("ruleVocabulary", Requires(model.DeviceRead), func(context.Context, any, engine.Args) (any, error) { return ruleVocabulary(d.Compiler) })
	a.Query("validateDetectionRules", read, engine.Do(p.validate))
	a.Query("compileCanvas", read, engine.Do(p.compileCanvas))
	a.Query("canvasFromRule", read, engine.Do(p.canvasFromRule))
	a.Query("ruleHealth", read, p.health)
	a.Query("detections", read, p.detections)
	a.Query("previewRule", read, engine.Do(p.preview), engine.Within(preview.MaxTime))
	drafting{d.Drafter, d.Infer}.register(a)
	a.Subscription("detectionStream", read, p.stream)
}

type processingResolvers struct{ ProcessingDeps }

type processingInfo struct {
	Area string `gql:"functionalArea"`
}

type validationView struct {
	Valid    bool                    `gql:"valid"`
	Errors   []validationErrorView   `gql:"errors"`
	Warnings []validationWarningView `gql:"warnings"`
}

type validationErrorView struct {
	Index   int    `gql:"index"`
	Token   string `gql:"token"`
	Message string `gql:"message"`
}

type validationWarningView struct {
	Index   int      `gql:"index"`
	Token   string   `gql:"token"`
	Code    string   `gql:"code"`
	Params  []string `gql:"params"`
	Message string   `gql:"message"`
}

type validateInput struct {
	Rules []struct {
		Token       string `gql:"token"`
		Definition  string `gql:"definition"`
		GroupScoped *bool  `gql:"groupScoped"`
	} `gql:"rules"`
}

func (p *processingResolvers) validate(_ context.Context, in validateInput) (any, error) {
	candidates := make([]rules.Candidate, len(in.Rules))
	for i, r := range in.Rules {
		candidates[i] = rules.Candidate{Token: r.Token, Definition: r.Definition, GroupScoped: r.GroupScoped != nil && *r.GroupScoped}
	}
	errs, warns := p.Rules.Validate(candidates)
	v := validationView{Valid: len(errs) == 0, Errors: []validationErrorView{}, Warnings: []validationWarningView{}}
	for _, e := range errs {
		v.Errors = append(v.Errors, validationErrorView(e))
	}
	for _, w := range warns {
		v.Warnings = append(v.Warnings, validationWarningView{w.Index, w.Token, string(w.Code), append([]string{}, w.Params...), w.Message})
	}
	return v, nil
}

type healthView struct {
	ID             string        `gql:"ruleId"`
	Token          string        `gql:"ruleToken"`
	Name           string        `gql:"name"`
	Status         string        `gql:"status"`
	LastFired      *model.Micros `gql:"lastFiredAt"`
	Fires          int64         `gql:"fireCount"`
	LastSignal     *string       `gql:"lastSignal"`
	Message        *string       `gql:"message"`
	EvalErrors     int64         `gql:"evalErrors"`
	Lacking        int64         `gql:"missingAttributes"`
	LateSamples    int64         `gql:"lateSamples"`
	Refused        int64         `gql:"refusedSamples"`
	Held           int64         `gql:"heldDetections"`
	LastInput      *model.Micros `gql:"lastInputAt"`
	MissingMetrics []string      `gql:"missingMetrics"`
	StaleActions   int64         `gql:"staleActions"`
	ClockHeld      bool          `gql:"clockHeld"`
}

func (p *processingResolvers) health(ctx context.Context, _ any, args engine.Args) (any, error) {
	rows, err := p.Health.RuleHealth(ctx, PrincipalFrom(ctx).Tenant, args.String("profileToken"))
	out := make([]healthView, len(rows))
	for i, r := range rows {
		out[i] = healthView{ID: r.RuntimeID, Token: r.Token, Name: r.Name, Status: string(r.Status), Fires: clampInt(r.Fires), Message: textOrNil(r.Message),
			EvalErrors: clampInt(r.EvalErrors), Lacking: clampInt(r.Lacking), LateSamples: clampInt(r.LateSamples), Refused: clampInt(r.RefusedKeys), Held: clampInt(r.HeldEdges),
			LastInput:      timeOrNil(r.LastInputAt.Micros(), r.LastInputAt != 0),
			MissingMetrics: append([]string{}, r.MissingMetrics...), StaleActions: clampInt(r.StaleActions), ClockHeld: r.ClockHeld}
		if r.Fires > 0 {
			out[i].LastFired, out[i].LastSignal = &r.LastFired, new(r.LastSignal.String())
		}
	}
	slices.SortFunc(out, func(a, b healthView) int { return strings.Compare(a.Token, b.Token) })
	return out, err
}

type detectionView struct {
	ID       string       `gql:"ruleId"`
	Token    string       `gql:"ruleToken"`
	Kind     string       `gql:"kind"`
	Edge     string       `gql:"edge"`
	Series   string       `gql:"series"`
	Occurred model.Micros `gql:"occurredTime"`
	Severity *string      `gql:"severity"`
	Value    *float64     `gql:"value"`
}

func showEdge(e model.Edge) any {
	v := detectionView{ID: e.RuntimeID(), Token: e.Rule, Kind: e.Kind, Edge: e.Signal.String(), Series: e.Series, Occurred: e.Occurred,
		Severity: textOrNil(e.Severity)}
	if e.HasValue && e.Signal == model.Raised {
		v.Value = &e.Value
	}
	return v
}

func (p *processingResolvers) stream(ctx context.Context, args engine.Args) (engine.Stream, error) {
	profile, tenant := args.String("profileToken"), PrincipalFrom(ctx).TenantID
	if profile == "" {
		return nil, model.Invalid("profileToken", "must not be empty")
	}
	if known, err := p.hasProfile(ctx, profile); err != nil || !known {
		return nil, orNotFound(err, "device profile", profile)
	}
	return engine.StreamOf(p.Edges.Subscribe(func(e model.Edge) bool { return e.TenantID == tenant && e.Profile == profile }, engine.SubscriptionBuffer), showEdge), nil
}

func (p *processingResolvers) hasProfile(ctx context.Context, token string) (bool, error) {
	ps, err := p.Profiles.ByToken(ctx, PrincipalFrom(ctx), []string{token})
	return len(ps) > 0, err
}
