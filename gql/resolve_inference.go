package gql

import (
	"context"
	"math"
	"time"

	"weir/gql/engine"
	"weir/inference"
	"weir/model"
	"weir/rules/draft"
)

// Inferrer asks the provider that a tenant has for a function.
type Inferrer interface {
	Infer(ctx context.Context, by *model.Principal, function string, r inference.Request) (*inference.Result, error)
}

// InferenceTime is the time limit of an operation that waits for a provider: ai.timeout is less.
const InferenceTime = 150 * time.Second

type serviceInfo struct {
	Area string `gql:"area"`
}

// RegisterInference registers the operations of the ai-inference area.
func RegisterInference(a *Area, i Inferrer) {
	a.Types(map[string]any{"ServiceInfo": serviceInfo{}, "InferenceResult": inference.Result{}})
	a.Query("aiInferenceInfo", Anonymous(), always(serviceInfo{"ai-inference"}))
	a.Mutation("inferRuleCandidate", Requires(model.AIInfer), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return i.Infer(ctx, PrincipalFrom(ctx), inference.RuleDrafting, InferenceRequest(args))
	}, engine.Within(InferenceTime))
}

// InferenceRequest reads the argument request.
func InferenceRequest(args engine.Args) inference.Request {
	request := args.Object("request")
	return inference.Request{Prompt: request.String("prompt"), System: request.String("system")}
}

// draftTime is the time limit of a draft: less than that of a reply over HTTP.
const draftTime = 4 * time.Minute

// drafting drafts rules.
type drafting struct {
	drafter *draft.Drafter
	infer   Inferrer // nil: no provider can be asked
}

type draftInput struct {
	Input struct {
		Text    string `gql:"text"`
		Profile string `gql:"profileToken"`
		Metrics []struct {
			Key         string  `gql:"key"`
			Type        *string `gql:"dataType"`
			Unit        *string `gql:"unit"`
			Description *string `gql:"description"`
		} `gql:"metrics"`
	} `gql:"input"`
}

type draftView struct {
	OK          bool                  `gql:"ok"`
	Definition  *string               `gql:"definition"`
	Cost        *int64                `gql:"estimatedCost"`
	Model       *string               `gql:"model"`
	Provider    *string               `gql:"provider"`
	Attempts    int                   `gql:"attempts"`
	Candidate   *string               `gql:"rawCandidate"`
	Diagnostics []draftDiagnosticView `gql:"diagnostics"`
	Warnings    []draftDiagnosticView `gql:"warnings"`
	Unavailable bool                  `gql:"unavailable"`
	Reason      *string               `gql:"unavailableReason"`
}

type draftDiagnosticView struct {
	Field   *string  `gql:"field"`
	Message string   `gql:"message"`
	Code    *string  `gql:"code"`
	Params  []string `gql:"params"`
}

// register registers the operation in the event-processing area.
func (d drafting) register(a *Area) {
	a.Types(map[string]any{"DraftRuleResult": draftView{}, "DraftDiagnostic": draftDiagnosticView{}})
	a.Mutation("draftDetectionRuleFromText", Requires(model.DeviceWrite), engine.Do(d.draft), engine.Within(draftTime))
}

func (d drafting) draft(ctx context.Context, in draftInput) (any, error) {
	r := draft.Request{Text: in.Input.Text, Profile: in.Input.Profile}
	for _, m := range in.Input.Metrics {
		r.Metrics = append(r.Metrics, draft.Metric{Key: m.Key, Type: textOf(m.Type), Unit: textOf(m.Unit), Description: textOf(m.Description)})
	}
	out, err := d.drafter.Draft(ctx, r, d.asking(PrincipalFrom(ctx)))
	if err != nil {
		return nil, err
	}
	v := draftView{OK: out.OK, Definition: textOrNil(out.Definition), Model: textOrNil(out.Model), Provider: textOrNil(out.Provider), Attempts: out.Attempts,
		Candidate: textOrNil(out.Candidate), Diagnostics: diagnosticViews(out.Diagnostics), Warnings: diagnosticViews(out.Warnings),
		Unavailable: out.Unavailable != "", Reason: textOrNil(out.Unavailable)}
	if out.OK {
		v.Cost = new(clampInt(int64(min(out.Cost, math.MaxInt32))))
	}
	return v, nil
}

// asking asks the provider of the caller's tenant as this area, not as the caller, who needs no authority for it.
func (d drafting) asking(by *model.Principal) draft.Infer {
	if d.infer == nil {
		return nil
	}
	service := model.Service("event-processing", by.Tenant, by.TenantID, model.AIInfer)
	return func(ctx context.Context, prompt, system string) (draft.Answer, error) {
		got, err := d.infer.Infer(ctx, service, inference.RuleDrafting, inference.Request{Prompt: prompt, System: system})
		if err != nil {
			return draft.Answer{}, err
		}
		return draft.Answer{Text: got.Candidate, Model: got.Model, Provider: got.Provider}, nil
	}
}

func diagnosticViews(ds []draft.Diagnostic) []draftDiagnosticView {
	out := make([]draftDiagnosticView, len(ds))
	for i, d := range ds {
		out[i] = draftDiagnosticView{textOrNil(d.Field), d.Message, textOrNil(d.Code), append([]string{}, d.Params...)}
	}
	return out
}

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
