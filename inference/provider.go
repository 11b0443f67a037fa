package inference

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"weir/internal/guard"
	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// Provider is an AI provider that an operator has registered. Its secret is in the vault, see entity.Desc.Secret.
type Provider struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	Kind        string  `store:"kind,required,filter" gql:"kind"`
	Endpoint    *string `store:"endpoint,clear,emptyclears,max=2048" gql:"endpoint"`
	Model       string  `store:"model,required,nonempty,max=256" gql:"model"`
	Params      *string `store:"params,clear,emptyclears,json,max=16384" gql:"params"`
	Enabled     bool    `store:"enabled,required" gql:"enabled"`
	HasSecret   bool    `store:"has_secret,keep,hidden" gql:"hasSecret"`
}

// Providers are the AI providers of an instance.
type Providers struct{ *entity.Kind[Provider] }

// AdminArea is the API of operators.
const AdminArea = "ai-inference-admin"

// maxProviders is the maximum number of providers.
const maxProviders = 1000

func (i *Inference) describe(b entity.Base) *entity.Catalog {
	ps := &Providers{}
	ps.Kind = entity.New(b, entity.Desc[Provider]{
		Kind: "AI provider", Type: "AiProvider", Plural: "aiProviders", Area: AdminArea, Table: "ai_providers", Site: entity.NotInSites, Instance: true,
		Read: entity.Needs(model.AIAdmin), Write: entity.Needs(model.AIAdmin),
		Rename: entity.Always[Provider],
		Secret: func(p *Provider) store.SecretName {
			return store.SecretName{Scope: store.ScopeInstance, Name: fmt.Sprintf("ai-provider/%d/secret", p.ID)}
		},
		Referrers: []store.Referrer{{Kind: "grant to a tier", Table: "ai_tier_grants", Column: "provider_id"},
			{Kind: "grant to a tenant", Table: "ai_tenant_grants", Column: "provider_id"}},
		Prepare: func(_ context.Context, _ *model.Principal, _ string, p store.Patch, _ bool) error {
			if secret, ok := p["secret"].(string); ok {
				return checkSecret(secret)
			}
			return nil
		},
		Ceiling: &entity.Ceiling{
			Key:  "aiProviders",
			Rows: func() int64 { return maxProviders },
		},
		Valid: (*Provider).valid,
	})
	i.Providers = ps
	return entity.NewCatalog(ps)
}

// checkSecret refuses a secret that cannot be sent in a header. No message shows it.
func checkSecret(secret string) error {
	if strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return model.Invalid("secret", "must consist of printable ASCII characters without spaces")
	}
	return nil
}

// valid checks kind, endpoint and params as they belong together.
func (p *Provider) valid() error {
	protocol := protocolOf(p.Kind)
	switch {
	case protocol == nil:
		return model.Invalid("kind", "must be one of %s", strings.Join(KindNames(), ", "))
	case p.Endpoint == nil && protocol.base() == "":
		return model.Invalid("endpoint", "is required for the kind %s: the URL below which its API is, such as http://10.1.2.3:11434/v1", p.Kind)
	}
	if p.Endpoint != nil {
		u, err := guard.CheckURL(*p.Endpoint, "http", "https")
		if err != nil {
			return model.Invalid("endpoint", "%v", err)
		}
		if u.RawQuery != "" {
			return model.Invalid("endpoint", "must not have a query: a key belongs in secret")
		}
	}
	if p.Params == nil {
		return nil
	}
	_, err := paramsOf(*p.Params)
	return err
}

// reserved are members of a request that Weir itself sets, and those that would make a reply something else than one text.
var reserved = []string{"model", "messages", "system", "prompt", "input", "stream", "stream_options", "n", "best_of", "tools", "tool_choice", "functions",
	"function_call", "mcp_servers", "web_search_options", "store", "background"}

// paramsOf reads the params of a provider: members of the JSON object that it is sent.
func paramsOf(text string) (params map[string]json.RawMessage, err error) {
	if err := json.Unmarshal([]byte(text), &params); err != nil || params == nil {
		return nil, model.Invalid("params", "must be a JSON object")
	}
	for name, value := range params {
		if slices.Contains(reserved, strings.ToLower(name)) {
			return nil, model.Invalid("params", "%q is set by Weir", name)
		}
		var n float64
		if slices.Contains(lengths, name) && (json.Unmarshal(value, &n) != nil || !(n >= 1)) {
			return nil, model.Invalid("params", "%q must be a number from 1 on", name)
		}
	}
	return params, nil
}

// lengths are the names that kinds have for the maximum length of a reply.
var lengths = []string{"max_tokens", "max_completion_tokens"}
