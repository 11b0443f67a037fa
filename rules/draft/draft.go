// Package draft drafts a detection rule from a description in words: a model is asked for a definition, which has to pass the
// compiler like one that a person writes; what the compiler refuses goes back to the model, a few times. Nothing is saved.
//
//	draft.go    the rounds, and what comes of them
//	prompt.go   what the model is given: the grammar of rules, from the compiler's own tables
//	answer.go   what is read of an answer
//
// What a model writes is data. It reaches the compiler, the next prompt and the author, and nothing else acts on it.
package draft

import (
	"context"
	"unicode/utf8"

	"weir/model"
	"weir/rules"
)

// Bounds of a request.
const (
	MaxText    = 8 << 10 // bytes of the description
	MaxMetrics = 500
	MaxRounds  = 3
)

// Request describes the rule.
type Request struct {
	Text    string
	Profile string   // token of the device profile that the rule is for
	Metrics []Metric // its metrics; nil: they are not known
}

// Metric is a metric that the rule may name. Everything but the key is advice.
type Metric struct{ Key, Type, Unit, Description string }

// Answer is what a model wrote, with the names of the model and its provider.
type Answer struct{ Text, Model, Provider string }

// Infer asks the model. Its errors are *model.Error: FORBIDDEN for a tenant that has not agreed to it, THROTTLED for its rate,
// UNAVAILABLE else, with the reason NoProvider where there is none.
type Infer func(ctx context.Context, prompt, system string) (Answer, error)

// NoProvider is the reason of UNAVAILABLE where no provider is active for the tenant.
const NoProvider = "NO_PROVIDER"

// Result is a rule that compiles, or why there is none.
type Result struct {
	OK          bool
	Definition  string // canonical JSON; "" unless OK
	Cost        uint64
	Model       string // "" without a candidate, as the provider
	Provider    string
	Attempts    int          // rounds that brought a candidate
	Candidate   string       // the last one that was refused
	Diagnostics []Diagnostic // why it was refused, empty when OK
	Warnings    []Diagnostic // empty unless OK
	Unavailable string       // why the model could not be asked at all, in words for everybody; "" otherwise
}

// Diagnostic is a reason for a refusal, or an advisory finding with a code.
type Diagnostic struct {
	Field   string // of the definition, "" for none
	Message string
	Code    string
	Params  []string
}

// Drafter drafts rules.
type Drafter struct {
	compiler *rules.Compiler
	system   string
}

// New returns a drafter for the rules of a compiler.
func New(c *rules.Compiler) *Drafter { return &Drafter{c, grammar(c)} }

// Draft asks a model for a rule. infer is nil where no model can be asked. Errors are those of the request.
func (d *Drafter) Draft(ctx context.Context, r Request, infer Infer) (*Result, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	out := &Result{}
	if infer == nil {
		out.Unavailable = notEnabled
		return out, nil
	}
	for prompt := r.prompt(); out.Attempts < MaxRounds; prompt = r.repair(out.Candidate, out.Diagnostics) {
		answer, err := infer(ctx, prompt, d.system)
		if err != nil {
			return out.broken(err)
		}
		out.Attempts++
		out.Model, out.Provider = answer.Model, answer.Provider
		if d.judge(out, answer.Text, &r); out.OK {
			break
		}
	}
	return out, nil
}

func (r *Request) check() error {
	switch {
	case blank(r.Text):
		return model.Invalid("text", "must not be blank")
	case len(r.Text) > MaxText:
		return model.Invalid("text", "has %d bytes, at most %d are allowed", len(r.Text), MaxText)
	case !utf8.ValidString(r.Text):
		return model.Invalid("text", "is no valid UTF-8")
	case blank(r.Profile):
		return model.Invalid("profileToken", "must not be blank")
	case len(r.Metrics) > MaxMetrics:
		return model.Invalid("metrics", "are %d, at most %d are allowed", len(r.Metrics), MaxMetrics)
	}
	for _, m := range r.Metrics {
		if blank(m.Key) || len(m.Key) > model.MaxToken {
			return model.Invalid("metrics", "a key has 1 to %d bytes", model.MaxToken)
		}
	}
	return nil
}

// judge decodes and compiles a candidate.
func (d *Drafter) judge(out *Result, text string, r *Request) {
	program, warnings, faults := d.compiler.Inspect(definition(text), rules.Options{})
	if len(faults) > 0 {
		out.Candidate, out.Diagnostics = text, nil
		for _, f := range faults {
			out.Diagnostics = append(out.Diagnostics, Diagnostic{Field: f.Top(), Message: f.Error()})
		}
		return
	}
	out.OK, out.Candidate, out.Diagnostics = true, "", nil
	out.Definition, out.Cost = string(program.Definition().Canonical()), program.Cost()
	for _, w := range append(warnings, r.unknown(program)...) {
		out.Warnings = append(out.Warnings, Diagnostic{Message: w.Message, Code: w.Code, Params: w.Params})
	}
}

// unknown warns of metrics that the profile does not have, where its metrics were given.
func (r *Request) unknown(p *rules.Program) []rules.Warning {
	var there rules.Vocabulary
	for _, m := range r.Metrics {
		there.Metrics = append(there.Metrics, m.Key)
	}
	return there.Missing(rules.Vocabulary{Metrics: p.Wants()})
}

// Why a model cannot be asked, in words for everybody.
const (
	notEnabled  = "Drafting rules from words is not switched on here."
	noProvider  = "No AI provider is set up for this tenant."
	noConsent   = "This tenant has not agreed to the use of external AI."
	unreachable = "The AI provider cannot be reached at the moment. Try again later."
	rateReached = "This tenant has used up its requests for drafts for now. Try again in a few minutes."
)

// broken ends the rounds: before the first candidate the model is unavailable, after one that is one more reason why there is no rule.
func (out *Result) broken(err error) (*Result, error) {
	why := reason(err)
	switch {
	case why == "":
		return nil, err
	case out.Attempts == 0:
		out.Unavailable = why
	default:
		out.Diagnostics = append(out.Diagnostics, Diagnostic{Message: why})
	}
	return out, nil
}

// reason returns the fixed text for an error of Infer, "" for one that is about the request.
func reason(err error) string {
	e, ok := err.(*model.Error)
	switch {
	case !ok:
		return unreachable
	case e.Code == model.CodeThrottled:
		return rateReached
	case e.Code == model.CodeForbidden:
		return noConsent
	case e.Code == model.CodeUnavailable && e.Reason == NoProvider:
		return noProvider
	case e.Code == model.CodeUnavailable:
		return unreachable
	}
	return ""
}
