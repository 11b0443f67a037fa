// Package inference asks AI providers for texts, for the functions of Weir that need one. Operators register providers and say who
// may use them; no tenant may use a new one, and nothing leaves the instance for a tenant that has not agreed to it.
//
//	provider.go   providers, and the secrets with which Weir signs in at them
//	grants.go     which tenants may use which, as operators set it
//	protocol.go   what the kinds of providers have in common; anthropic.go and openai.go are one each
//	call.go       a request over HTTP, bounded in time and in bytes
//	rate.go       how many requests a tenant may make
//
// A prompt leaves the instance only when all of this holds, asked in this order and refused when it cannot be told: something is
// granted to the tenant or its tier; the tenant's rate allows it; the tenant has agreed to external AI; a provider is assigned to the
// function and granted, or is the default of the tier; it is enabled and has its secret.
package inference

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/setting"
	"weir/model"
	"weir/store"
	"weir/store/aigrants"
	"weir/store/entity"
)

// Settings are the keys of the section ai.
type Settings struct {
	Enabled bool          `yaml:"enabled" doc:"Whether AI providers can be registered and asked; without it no function uses one and nothing is sent."`
	Timeout time.Duration `yaml:"timeout" default:"60s" min:"1s" max:"120s" zero:"default" doc:"How long a provider may take for its reply."`

	//limit:what requests to AI providers that are under way
	//limit:chapter The API and the operator
	//limit:bound 16, 4 of one tenant; a prompt {}, a reply 1 MiB and {ai.max_output_tokens} tokens, 60 s each
	//limit:keys ai.max_output_tokens ai.timeout
	//limit:level weir_ai_inference_calls_in_flight
	//limit:met weir_ai_inference_calls_total{outcome="busy"} weir_ai_inference_calls_total{outcome="too_large"}
	//limit:met weir_ai_inference_calls_total{outcome="timeout"}
	//limit:then THROTTLED, or UNAVAILABLE
	//limit:cost 1 MiB each
	MaxPromptBytes  setting.Size `yaml:"max_prompt_bytes" default:"128KiB" min:"1KiB" max:"128KiB" zero:"default" doc:"Maximum size of a prompt, with the instructions of the function."`
	MaxOutputTokens int          `yaml:"max_output_tokens" default:"2048" min:"1" max:"32768" zero:"default" doc:"Maximum length of a reply in tokens, as the provider counts them."`
}

// Tenants says what a tenant may use.
type Tenants interface {
	Lookup(tenant string) (id int64, enabled, known bool)
	// Inference returns the rate of a tenant, and whether it has agreed that its prompts leave the instance.
	Inference(tenant string) (perMinute float64, burst int64, external bool)
}

// Deps are inference's collaborators.
type Deps struct {
	Store   store.Store
	Writer  store.Writer
	Vault   *store.Vault
	Tenants Tenants
	// Client returns a client for the requests of a tenant, "" for those of the operator, which connects to permitted destinations
	// only and follows no redirect.
	Client func(tenant string) *http.Client
	// Clock is time.Now when nil. Its monotonic reading counts.
	Clock      func() time.Time
	Logger     *slog.Logger          // nil: nothing is logged
	Registerer prometheus.Registerer // nil: metrics are not registered
}

// Inference keeps the providers of an instance and asks them. It is safe for concurrent use.
type Inference struct {
	Providers *Providers
	Kinds     *entity.Catalog // these

	settings Settings
	deps     Deps
	rates    *rates
	places   *places
	log      *slog.Logger
	m        *metrics
}

// New returns an Inference.
func New(s Settings, d Deps) *Inference {
	setting.FillDefaults(&s)
	if d.Clock == nil {
		d.Clock = time.Now
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	i := &Inference{settings: s, deps: d, rates: newRates(d.Clock), places: newPlaces(), log: d.Logger, m: newMetrics(d.Registerer)}
	i.Kinds = i.describe(entity.Base{Store: d.Store, Writer: d.Writer, Vault: d.Vault})
	return i
}

// Describe returns the kinds without an instance, for those that ask for their descriptions only.
func Describe() *entity.Catalog { return (&Inference{}).describe(entity.Base{}) }

// RuleDrafting is the token of the function that drafts detection rules.
const RuleDrafting = "rule-drafting"

// Function describes something that Weir asks a provider for.
type Function struct {
	Token       string `gql:"token"`
	Name        string `gql:"name"`
	Description string `gql:"description"`
}

// Functions returns all functions, in the order in which they are listed.
func Functions() []Function {
	return []Function{{RuleDrafting, "Rule drafting", "Drafts a detection rule from a description in words."}}
}

// Request is what a provider is asked.
type Request struct {
	Prompt string
	System string // instructions of the function, apart from what users wrote; "" for none
}

// Result is what came back. Candidate is text that the provider wrote: it is data, whatever it says.
type Result struct {
	Candidate string `gql:"candidate"`
	Model     string `gql:"model"`
	Provider  string `gql:"provider"` // token
}

// Reasons of refusals, besides their codes: FORBIDDEN is a tenant that has not agreed, THROTTLED its rate.
const (
	ReasonNoProvider  = "NO_PROVIDER" // UNAVAILABLE: none is granted, assigned, enabled and has its secret
	ReasonUnreachable = "UNREACHABLE" // UNAVAILABLE: it did not answer as it should
)

// Infer asks the provider that the tenant of the principal has for a function. The principal needs ai:infer. Errors are UNAVAILABLE,
// FORBIDDEN and THROTTLED as above, and INVALID_INPUT for a prompt that no provider is asked; none shows what a provider has sent.
func (i *Inference) Infer(ctx context.Context, by *model.Principal, function string, r Request) (*Result, error) {
	if err := entity.Demand(by, entity.Needs(model.AIInfer)); err != nil {
		return nil, err
	}
	if err := i.check(r); err != nil {
		return nil, err
	}
	p, secret, outcome, err := i.resolve(ctx, by.Tenant, function)
	if err != nil {
		i.m.calls.WithLabelValues(outcome).Inc()
		return nil, err
	}
	return i.ask(ctx, by.Tenant, p, secret, r)
}

// Test asks a provider for the operator, whoever may use it. Its errors say what the operator can do.
func (i *Inference) Test(ctx context.Context, by *model.Principal, token string, r Request) (*Result, error) {
	if err := i.Providers.MayWrite(by); err != nil {
		return nil, err
	}
	if err := i.check(r); err != nil {
		return nil, err
	}
	var p *Provider
	var secret string
	if err := store.Read(ctx, i.deps.Store, func(tx store.Tx) (err error) {
		if p, err = i.Providers.Must(tx, 0, token); err == nil {
			secret, _, err = i.Providers.Reveal(tx, p)
		}
		return err
	}); err != nil {
		return nil, err
	}
	if secret == "" {
		return nil, &model.Error{Code: model.CodeUnavailable, Reason: ReasonNoProvider,
			Message: "unavailable: the provider has no secret; give it one, for a server that asks for none any text"}
	}
	return i.ask(ctx, "", p, secret, r)
}

func (i *Inference) check(r Request) error {
	switch n := len(r.Prompt) + len(r.System); {
	case r.Prompt == "":
		return model.Invalid("prompt", "must not be empty")
	case n > int(i.settings.MaxPromptBytes):
		return model.OverLimit("ai.max_prompt_bytes", "prompt and system have %d bytes, at most %d are sent", n, int(i.settings.MaxPromptBytes))
	}
	return nil
}

// resolve returns the provider of a function of a tenant with its secret, or the refusal and how the metrics call it.
func (i *Inference) resolve(ctx context.Context, tenant, function string) (p *Provider, secret, outcome string, err error) {
	id, enabled, known := i.deps.Tenants.Lookup(tenant)
	if !known || !enabled {
		return nil, "", outcomeNoProvider, noProvider()
	}
	var offer aigrants.Offer
	err = store.Read(ctx, i.deps.Store, func(tx store.Tx) (err error) {
		if offer, err = aigrants.Offered(tx, id, function); err != nil || offer.Provider == 0 {
			return err
		}
		if p, err = i.Providers.Table.GetByID(tx, 0, offer.Provider); err == nil && p != nil {
			secret, _, err = i.Providers.Reveal(tx, p)
		}
		return err
	})
	if err != nil {
		return nil, "", outcomeFailed, err
	}
	if !offer.Any {
		return nil, "", outcomeNoProvider, noProvider()
	}
	perMinute, burst, external := i.deps.Tenants.Inference(tenant)
	if wait := i.rates.take(id, perMinute, burst); wait > 0 {
		return nil, "", outcomeThrottled, throttled(wait)
	}
	if !external { // every kind is external
		return nil, "", outcomeNoConsent, model.Errorf(model.CodeForbidden,
			"forbidden: the tenant has not agreed that prompts are sent to an AI provider (aiExternalEnabled)")
	}
	if p == nil || !p.Enabled || secret == "" {
		return nil, "", outcomeNoProvider, noProvider()
	}
	return p, secret, "", nil
}

func noProvider() error {
	return &model.Error{Code: model.CodeUnavailable, Reason: ReasonNoProvider, Message: "unavailable: no AI provider is active for the tenant"}
}

func throttled(wait time.Duration) error {
	return &model.Error{Code: model.CodeThrottled, Message: "throttled: the tenant has used up its requests to AI providers",
		Ext: map[string]any{"retryAfterSeconds": int(wait/time.Second) + 1}}
}
