package app

import (
	"context"

	"weir/model"
	"weir/store"
)

// Operator is what whoever holds the data directory may do with an instance, running or not. On a running one it is
// reached over the unix socket (Client); on one that stands still it works on the store under the lock.
type Operator interface {
	CreateAdmin(ctx context.Context, a NewAdmin) (*AdminCreated, error)
	CreateTenant(ctx context.Context, t NewTenant) (*TenantCreated, error)
	AddDevice(ctx context.Context, d NewDevice) (*DeviceAdded, error)
	Close() error
}

// NewAdmin is the person that weir admin create makes. The password is never kept as given.
type NewAdmin struct {
	Email    string `json:"email"`
	Password string `json:"password"`
	Role     string `json:"role"` // system role: superuser or operator
	// Tenant, when given, is entered as tenant-admin.
	Tenant string `json:"tenant,omitempty"`
}

// AdminCreated is what became of it.
type AdminCreated struct {
	Email  string `json:"email"`
	Role   string `json:"role"`
	Tenant string `json:"tenant,omitempty"`
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

// NewDevice is the device that weir device add makes.
type NewDevice struct {
	Tenant     string `json:"tenant"`
	Token      string `json:"token"`
	Type       string `json:"type"`
	Name       string `json:"name,omitempty"`
	ExternalID string `json:"externalId,omitempty"`
}

// DeviceAdded is what became of it. Secret is the access token, which cannot be shown again without the API.
type DeviceAdded struct {
	Tenant   string `json:"tenant"`
	Token    string `json:"token"`
	Type     string `json:"type"`
	TypeMade bool   `json:"typeMade,omitempty"` // the device type did not exist and was made
	Secret   string `json:"accessToken"`
	Instance string `json:"instanceId"`
	MQTT     string `json:"mqtt,omitempty"`   // where the broker listens, "" when nothing runs
	Ingest   string `json:"ingest,omitempty"` // where HTTP ingest listens
}

// DefaultDeviceType is the device type that a device gets when none is named.
const DefaultDeviceType = "device"

// local is the principal of whoever holds the data directory.
func local() *model.Principal { return &model.Principal{Kind: model.LocalOperator, Subject: "local"} }

// createAdmin makes an administrator.
func (r rooms) createAdmin(ctx context.Context, a NewAdmin) (*AdminCreated, error) {
	if a.Tenant != "" {
		if _, _, known := r.govern.Lookup(a.Tenant); !known {
			return nil, errNoTenant(a.Tenant)
		}
	}
	id, err := r.auth.CreateIdentity(ctx, local(), newIdentity(a))
	if err != nil {
		return nil, err
	}
	if a.Tenant != "" {
		if _, err := r.auth.AddMembership(ctx, local(), id.Email, a.Tenant, []string{"tenant-admin"}); err != nil {
			return nil, err
		}
	}
	return &AdminCreated{Email: id.Email, Role: a.Role, Tenant: a.Tenant}, nil
}

func (r rooms) createTenant(ctx context.Context, t NewTenant) (*TenantCreated, error) {
	p := store.Patch{"token": t.Token}
	if t.Name != "" {
		p["name"] = t.Name
	}
	if t.Tier != "" {
		p["tierToken"] = t.Tier
	}
	if _, err := r.govern.CreateTenant(ctx, local(), p); err != nil {
		return nil, err
	}
	g, _ := r.govern.Governance(t.Token)
	return &TenantCreated{Token: t.Token, Name: t.Name, Tier: g.Tier}, nil
}

func (r rooms) addDevice(ctx context.Context, d NewDevice) (*DeviceAdded, error) {
	id, _, known := r.govern.Lookup(d.Tenant)
	if !known {
		return nil, errNoTenant(d.Tenant)
	}
	by := local()
	by.Tenant, by.TenantID = d.Tenant, id
	if d.Type == "" {
		d.Type = DefaultDeviceType
	}
	made, err := r.ensureType(ctx, by, d.Type)
	if err != nil {
		return nil, err
	}
	p := store.Patch{"token": d.Token, "deviceTypeToken": d.Type}
	if d.Name != "" {
		p["name"] = d.Name
	}
	if d.ExternalID != "" {
		p["externalId"] = d.ExternalID
	}
	dev, secret, err := r.registry.AddDevice(ctx, by, p)
	if err != nil {
		return nil, err
	}
	return &DeviceAdded{Tenant: d.Tenant, Token: dev.Token, Type: d.Type, TypeMade: made, Secret: secret}, nil
}

// ensureType makes the default type on demand; any other one must exist.
func (r rooms) ensureType(ctx context.Context, by *model.Principal, token string) (made bool, err error) {
	if token != DefaultDeviceType {
		return false, nil
	}
	have, err := r.registry.Types.ByToken(ctx, by, []string{token})
	if err != nil || len(have) > 0 {
		return false, err
	}
	_, err = r.registry.Types.Create(ctx, by, store.Patch{"token": token, "name": "Device"})
	return err == nil, err
}

// addHere is addDevice on a running instance, which knows where it listens.
func (in *Instance) addHere(ctx context.Context, d NewDevice) (*DeviceAdded, error) {
	out, err := in.addDevice(ctx, d)
	if err == nil {
		out.Instance, out.MQTT, out.Ingest = in.cfg.Instance.ID, in.addrs.MQTT, in.addrs.Ingest
	}
	return out, err
}
