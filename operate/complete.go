package operate

import (
	"context"
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

// tokens returns what a shell may offer to complete a word, at most shownTokens of it.
func (o *Operator) tokens(ctx context.Context, q TokenQuery) ([]string, error) {
	if !q.Devices {
		all := slices.DeleteFunc(o.Govern.TenantTokens(), func(t string) bool { return !strings.HasPrefix(t, q.Prefix) })
		slices.Sort(all)
		return all[:min(len(all), shownTokens)], nil
	}
	id, _, known := o.Govern.Lookup(q.Tenant)
	if !known {
		return []string{}, nil
	}
	by := Local()
	by.Tenant, by.TenantID = q.Tenant, id
	devices, _, err := o.Registry.Devices.List(ctx, by, store.Page{Size: shownTokens}, store.AtLeast("token", q.Prefix), store.AtMost("token", q.Prefix+"~"))
	out := make([]string, len(devices))
	for i, d := range devices {
		out[i] = d.Token
	}
	return out, err
}
