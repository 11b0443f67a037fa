package app

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"weir/govern"
	"weir/model"
	"weir/store"
)

// TenantOperator is the part of an Operator that is about tenants.
type TenantOperator interface {
	CreateTenant(ctx context.Context, t NewTenant) (*TenantCreated, error)
	// Tenants lists all tenants by their tokens.
	Tenants(ctx context.Context) ([]TenantLine, error)
}

// NewTenant is the tenant that weir tenant create makes.
type NewTenant struct {
	Token string `json:"token"`
	Name  string `json:"name,omitempty"`
	Tier  string `json:"tier,omitempty"` // "": silver
}

// TenantCreated is what became of it.
type TenantCreated struct {
	Token string `json:"token"`
	Name  string `json:"name,omitempty"`
	Tier  string `json:"tier"`
}

// CreateTenant implements Operator.
func (r rooms) CreateTenant(ctx context.Context, t NewTenant) (*TenantCreated, error) {
	return r.createTenant(ctx, local(), t)
}

func (r rooms) createTenant(ctx context.Context, by *model.Principal, t NewTenant) (*TenantCreated, error) {
	p := store.Patch{"token": t.Token}
	if t.Name != "" {
		p["name"] = t.Name
	}
	if t.Tier != "" {
		p["tierToken"] = t.Tier
	}
	if _, err := r.govern.Tenants.Create(ctx, by, p); err != nil {
		return nil, err
	}
	g, _ := r.govern.Governance(t.Token)
	return &TenantCreated{Token: t.Token, Name: t.Name, Tier: g.Tier}, nil
}

// TenantLine is a tenant as weir tenant list shows it.
type TenantLine struct {
	Token   string `json:"token"`
	Name    string `json:"name,omitempty"`
	Tier    string `json:"tier"`
	Enabled bool   `json:"enabled"`
	Devices int64  `json:"devices"`
}

// Tenants implements Operator.
func (r rooms) Tenants(ctx context.Context) ([]TenantLine, error) {
	var tenants []*govern.Tenant
	if err := r.govern.Tenants.Each(ctx, local(), func(t *govern.Tenant) error {
		tenants = append(tenants, t)
		return nil
	}); err != nil {
		return nil, err
	}
	lines := make([]TenantLine, len(tenants))
	for i, t := range tenants {
		g, _ := r.govern.Governance(t.Token)
		lines[i] = TenantLine{Token: t.Token, Tier: g.Tier, Enabled: t.Enabled}
		if t.Name != nil {
			lines[i].Name = *t.Name
		}
		by := local()
		by.Tenant, by.TenantID = t.Token, t.ID
		var err error
		if _, lines[i].Devices, err = r.registry.Devices.List(ctx, by, store.Page{Number: 1, Size: 1}); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(lines, func(a, b TenantLine) int { return strings.Compare(a.Token, b.Token) })
	return lines, nil
}

func (in *Instance) tenantVerbs() map[string]http.Handler {
	return map[string]http.Handler{
		"tenant-create": verb(in, in.CreateTenant),
		"tenant-list":   verb(in, func(ctx context.Context, _ struct{}) ([]TenantLine, error) { return in.Tenants(ctx) }),
	}
}

// CreateTenant implements Operator.
func (c *Client) CreateTenant(ctx context.Context, t NewTenant) (*TenantCreated, error) {
	return call[TenantCreated](ctx, c, "tenant-create", t)
}

// Tenants implements Operator.
func (c *Client) Tenants(ctx context.Context) ([]TenantLine, error) {
	out, err := call[[]TenantLine](ctx, c, "tenant-list", struct{}{})
	if err != nil {
		return nil, err
	}
	return *out, nil
}
