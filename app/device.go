package app

import (
	"context"
	"net/http"
	"slices"

	"weir/model"
	"weir/store"
)

// DeviceOperator is the part of an Operator that is about devices.
type DeviceOperator interface {
	AddDevice(ctx context.Context, d NewDevice) (*DeviceAdded, error)
	ListDevices(ctx context.Context, q DeviceQuery) (*DeviceList, error)
	ShowDevice(ctx context.Context, d DeviceName) (*DeviceDetails, error)
	RemoveDevices(ctx context.Context, d DeviceNames) (*DevicesRemoved, error)
}

// DeviceName names a device.
type DeviceName struct {
	Tenant string `json:"tenant"`
	Token  string `json:"token"`
}

// DeviceNames names devices of a tenant.
type DeviceNames struct {
	Tenant string   `json:"tenant"`
	Tokens []string `json:"tokens"`
}

// DevicesRemoved is what became of them.
type DevicesRemoved struct {
	Tenant  string   `json:"tenant"`
	Removed []string `json:"removed"`
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
	TypeMade bool   `json:"typeMade,omitempty"`      // the device type did not exist and was made
	Removed  int    `json:"removedTokens,omitempty"` // access tokens that are no longer good
	Secret   string `json:"accessToken"`
	Instance string `json:"instanceId"`
	MQTT     string `json:"mqtt,omitempty"`   // where the broker listens, "" when nothing runs
	Ingest   string `json:"ingest,omitempty"` // where HTTP ingest listens
	// Secure are the same doors over TLS, nil when none is open.
	Secure *SecureListeners `json:"secure,omitempty"`
}

// SecureDoors are the doors that speak TLS, and what a client must know of their certificate.
type SecureListeners struct {
	MQTT   string   `json:"mqtt,omitempty"`
	Ingest string   `json:"ingest,omitempty"`
	Names  []string `json:"names"` // hosts that the certificate is for
	// CAFile is what a client must be told to trust, "" when its system does already.
	CAFile string `json:"caFile,omitempty"`
}

// secureDoors are those that are open.
func (r rooms) secureDoors() *SecureListeners {
	if r.served == nil || r.addrs.MQTTS == "" && r.addrs.IngestTLS == "" {
		return nil
	}
	p := r.served.State().Pair
	d := &SecureListeners{MQTT: r.addrs.MQTTS, Ingest: r.addrs.IngestTLS, Names: p.Names()}
	switch {
	case p.Public():
	case p.Rooted():
		d.CAFile = r.cfg.TLS.CertFile
	default:
		d.CAFile = "ca.pem" // of the CA; where it is nobody has said
	}
	return d
}

// DefaultDeviceType is the device type that a device gets when none is named.
const DefaultDeviceType = "device"

// AddDevice implements Operator.
func (r rooms) AddDevice(ctx context.Context, d NewDevice) (*DeviceAdded, error) {
	return r.addDevice(ctx, local(), d)
}

func (r rooms) addDevice(ctx context.Context, by *model.Principal, d NewDevice) (*DeviceAdded, error) {
	by, err := r.enter(by, d.Tenant)
	if err != nil {
		return nil, err
	}
	if d.Type == "" {
		d.Type = DefaultDeviceType
	}
	var ensure store.Patch // the default type is made on demand; any other one must exist
	if d.Type == DefaultDeviceType {
		ensure = defaultType()
	}
	p := store.Patch{"token": d.Token, "deviceTypeToken": d.Type}
	if d.Name != "" {
		p["name"] = d.Name
	}
	if d.ExternalID != "" {
		p["externalId"] = d.ExternalID
	}
	dev, made, secret, err := r.registry.AddDeviceOfType(ctx, by, p, ensure)
	if err != nil {
		return nil, err
	}
	return &DeviceAdded{Tenant: d.Tenant, Token: dev.Token, Type: d.Type, TypeMade: made, Secret: secret, Instance: r.cfg.Instance.ID,
		MQTT: r.addrs.MQTT, Ingest: r.addrs.Ingest, Secure: r.secureDoors()}, nil
}

// within is the operator in a tenant.
func (r rooms) within(tenant string) (*model.Principal, error) { return r.enter(local(), tenant) }

// enter resolves a principal to a tenant.
func (r rooms) enter(by *model.Principal, tenant string) (*model.Principal, error) {
	id, _, known := r.govern.Lookup(tenant)
	if !known {
		return nil, errNoTenant(tenant)
	}
	by.Tenant, by.TenantID = tenant, id
	return by, nil
}

// RemoveDevices implements Operator: all of them, or none when one does not exist.
func (r rooms) RemoveDevices(ctx context.Context, d DeviceNames) (*DevicesRemoved, error) {
	by, err := r.within(d.Tenant)
	if err != nil {
		return nil, err
	}
	tokens := slices.Compact(slices.Sorted(slices.Values(d.Tokens)))
	if err := r.registry.DeleteDevices(ctx, by, tokens); err != nil {
		return nil, err
	}
	return &DevicesRemoved{Tenant: d.Tenant, Removed: tokens}, nil
}

func (in *Instance) deviceVerbs() map[string]http.Handler {
	return map[string]http.Handler{
		"device-add":       verb(in, in.AddDevice),
		"device-list":      verb(in, in.ListDevices),
		"device-show":      verb(in, in.ShowDevice),
		"device-rm":        verb(in, in.RemoveDevices),
		"device-import":    boundedVerb(in, bounds{maxCommandBytes, importPatience}, in.ImportDevices),
		"device-rotate":    verb(in, in.RotateDevice),
		"device-token-add": verb(in, in.LendToken),
		"device-token-rm":  verb(in, in.TakeBackToken),
	}
}

// ListDevices implements Operator.
func (c *Client) ListDevices(ctx context.Context, q DeviceQuery) (*DeviceList, error) {
	return call[DeviceList](ctx, c, "device-list", q)
}

// ShowDevice implements Operator.
func (c *Client) ShowDevice(ctx context.Context, d DeviceName) (*DeviceDetails, error) {
	return call[DeviceDetails](ctx, c, "device-show", d)
}

// RemoveDevices implements Operator.
func (c *Client) RemoveDevices(ctx context.Context, d DeviceNames) (*DevicesRemoved, error) {
	return call[DevicesRemoved](ctx, c, "device-rm", d)
}

// AddDevice implements Operator.
func (c *Client) AddDevice(ctx context.Context, d NewDevice) (*DeviceAdded, error) {
	return call[DeviceAdded](ctx, c, "device-add", d)
}
