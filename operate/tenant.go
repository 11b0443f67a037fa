package operate

import (
	"context"
	"slices"
	"strings"
	"time"

	"weir/govern"
	"weir/model"
	"weir/site"
	"weir/store"
	"weir/store/erase"
)

// NewTenant is the tenant that weir tenant create makes.
type NewTenant struct {
	Token string `json:"token"`
	Name  string `json:"name,omitempty"`
	Tier  string `json:"tier,omitempty"` // "": silver
}

// TenantCreated is the result.
type TenantCreated struct {
	Token string `json:"token"`
	Name  string `json:"name,omitempty"`
	Tier  string `json:"tier"`
}

func (e *Entities) createTenant(ctx context.Context, t NewTenant) (*TenantCreated, error) {
	return e.CreateTenant(ctx, Local(), t)
}

// CreateTenant makes a tenant.
func (e *Entities) CreateTenant(ctx context.Context, by *model.Principal, t NewTenant) (*TenantCreated, error) {
	p := store.Patch{"token": t.Token}
	if t.Name != "" {
		p["name"] = t.Name
	}
	if t.Tier != "" {
		p["tierToken"] = t.Tier
	}
	if _, err := e.Govern.Tenants.Create(ctx, by, p); err != nil {
		return nil, err
	}
	g, _ := e.Govern.Governance(t.Token)
	return &TenantCreated{Token: t.Token, Name: t.Name, Tier: g.Tier}, nil
}

// TenantLine is a tenant as weir tenant list shows it.
type TenantLine struct {
	Token   string `json:"token"`
	Name    string `json:"name,omitempty"`
	Tier    string `json:"tier"`
	Enabled bool   `json:"enabled"`
	// Purging says that the tenant is deleted and its data is being erased.
	Purging bool  `json:"purging,omitempty"`
	Devices int64 `json:"devices"`
	// RegistryBytes is what the rows of the tenant take, of MaxRegistryBytes at most.
	RegistryBytes    int64 `json:"registryBytes"`
	MaxRegistryBytes int64 `json:"maxRegistryBytes"`
}

// tenants lists all tenants by their tokens.
func (e *Entities) tenants(ctx context.Context, _ None) ([]TenantLine, error) {
	var tenants []*govern.Tenant
	if err := e.Govern.Tenants.Each(ctx, Local(), func(t *govern.Tenant) error {
		tenants = append(tenants, t)
		return nil
	}); err != nil {
		return nil, err
	}
	lines := make([]TenantLine, len(tenants))
	for i, t := range tenants {
		g, _ := e.Govern.Governance(t.Token)
		lines[i] = TenantLine{Token: t.Token, Tier: g.Tier, Enabled: t.Enabled, Purging: t.PurgeEpoch != 0}
		if t.Name != nil {
			lines[i].Name = *t.Name
		}
		by := Local()
		by.Tenant, by.TenantID = t.Token, t.ID
		var err error
		if _, lines[i].Devices, err = e.Registry.Devices.List(ctx, by, store.Page{Number: 1, Size: 1}); err != nil {
			return nil, err
		}
		lines[i].MaxRegistryBytes = e.Govern.RegistryBytes(t.ID)
		if err := e.Store.Read(ctx, func(tx store.Tx) (err error) {
			lines[i].RegistryBytes, err = store.UsedBytes(tx, t.ID)
			return err
		}); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(lines, func(a, b TenantLine) int { return strings.Compare(a.Token, b.Token) })
	return lines, nil
}

// TenantChange is what weir tenant set, enable and disable change; nil leaves a field as it is.
type TenantChange struct {
	Token   string  `json:"token"`
	Name    *string `json:"name,omitempty"` // "" removes it
	Tier    *string `json:"tier,omitempty"`
	Enabled *bool   `json:"enabled,omitempty"`
}

// changeTenant changes a tenant and returns what has become of it.
func (e *Entities) changeTenant(ctx context.Context, t TenantChange) (*TenantLine, error) {
	if !e.Govern.Known(t.Token) {
		return nil, e.noTenant(t.Token)
	}
	p := store.Patch{}
	if t.Name != nil {
		p["name"] = *t.Name
	}
	if t.Tier != nil {
		p["tierToken"] = *t.Tier
	}
	if len(p) > 0 {
		if _, err := e.Govern.Tenants.Update(ctx, Local(), t.Token, p); err != nil {
			return nil, err
		}
	}
	if t.Enabled != nil {
		if _, err := e.Govern.SetTenantEnabled(ctx, Local(), t.Token, *t.Enabled); err != nil {
			return nil, err
		}
	}
	lines, err := e.tenants(ctx, None{})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(lines, func(l TenantLine) bool { return l.Token == t.Token })
	if i < 0 {
		return nil, e.noTenant(t.Token)
	}
	return &lines[i], nil
}

// TenantName names a tenant.
type TenantName struct {
	Token string `json:"token"`
}

// TenantDeletion is a deletion as weir tenant deletions shows it.
type TenantDeletion struct {
	Token     string              `json:"token"`
	Epoch     time.Time           `json:"epoch"`
	By        string              `json:"by"`
	Awaiting  govern.DeletionWait `json:"awaiting"`
	ElapsesAt *time.Time          `json:"elapsesAt,omitempty"`
	Rows      int64               `json:"rowsErased"`
	BlockedBy []string            `json:"blockedBy"`
}

// Over reports whether nothing of the tenant is left.
func (d *TenantDeletion) Over() bool {
	return d.Awaiting == govern.WaitTokenHold || d.Awaiting == govern.WaitNone
}

// deleteTenant deletes a tenant and returns how the deletion stands.
func (e *Entities) deleteTenant(ctx context.Context, t TenantName) (*TenantDeletion, error) {
	deleted, err := e.Govern.DeleteTenant(ctx, Local(), t.Token)
	if err == nil && !deleted {
		err = e.noTenant(t.Token)
	}
	if err != nil {
		return nil, err
	}
	all, err := e.deletionsOf(ctx, erase.Filter{Token: t.Token})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

// deleteTenant is that of the entities where nothing runs: the tenants that the site files declare are noted first, as a start does.
func (d *Directory) deleteTenant(ctx context.Context, t TenantName) (*TenantDeletion, error) {
	e, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	if len(d.Config.Site) > 0 {
		declared, _, err := site.Read(site.Source{WithoutSecrets: true}, d.Config.Site...)
		if err != nil {
			return nil, err
		}
		e.Govern.DeclareTenants(declared.Tenants())
	}
	return e.deleteTenant(ctx, t)
}

// deletions lists the deletions, newest first; of a tenant when one is named.
func (e *Entities) deletions(ctx context.Context, t TenantName) ([]TenantDeletion, error) {
	return e.deletionsOf(ctx, erase.Filter{Token: t.Token})
}

func (e *Entities) deletionsOf(ctx context.Context, f erase.Filter) ([]TenantDeletion, error) {
	found, _, err := e.Govern.Deletions(ctx, Local(), store.Page{Number: 1, Size: store.MaxPageSize}, f)
	all := []TenantDeletion{}
	for _, d := range found {
		wait, until := d.Awaiting()
		line := TenantDeletion{Token: d.Token, Epoch: d.Epoch.Time(), By: d.Actor, Awaiting: wait, Rows: d.Rows(), BlockedBy: d.BlockedBy()}
		if until != 0 {
			line.ElapsesAt = new(until.Time())
		}
		all = append(all, line)
	}
	return all, err
}
