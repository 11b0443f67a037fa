package app

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"weir/store"
)

// TokenQuery asks for tokens that begin with Prefix: of tenants, or of the devices of Tenant.
type TokenQuery struct {
	Tenant  string `json:"tenant,omitempty"`
	Devices bool   `json:"devices,omitempty"`
	Prefix  string `json:"prefix,omitempty"`
}

// shownTokens is how many tokens are offered at once.
const shownTokens = 100

// tokens returns what a shell may offer in a word's place, at most shownTokens of it.
func (in *Instance) tokens(ctx context.Context, q TokenQuery) ([]string, error) {
	if !q.Devices {
		all := slices.DeleteFunc(in.govern.TenantTokens(), func(t string) bool { return !strings.HasPrefix(t, q.Prefix) })
		slices.Sort(all)
		return all[:min(len(all), shownTokens)], nil
	}
	id, _, known := in.govern.Lookup(q.Tenant)
	if !known {
		return []string{}, nil
	}
	by := local()
	by.Tenant, by.TenantID = q.Tenant, id
	devices, _, err := in.registry.Devices.List(ctx, by, store.Page{Size: shownTokens}, store.AtLeast("token", q.Prefix), store.AtMost("token", q.Prefix+"~"))
	out := make([]string, len(devices))
	for i, d := range devices {
		out[i] = d.Token
	}
	return out, err
}

func (in *Instance) completeVerbs() map[string]http.Handler {
	return map[string]http.Handler{"tokens": verb(in, in.tokens)}
}

// Tokens returns tokens for a shell to offer.
func (c *Client) Tokens(ctx context.Context, q TokenQuery) ([]string, error) {
	out, err := call[[]string](ctx, c, "tokens", q)
	if err != nil {
		return nil, err
	}
	return *out, nil
}
