package gql

import (
	"context"

	"weir/model"
	"weir/registry"
	"weir/store"
)

// deviceCredentials registers the credentials. Reading them needs device:write, since the id of an access token is a
// secret.
func (g *registryResolvers) deviceCredentials() {
	registerEntity(g.area, entity[registry.DeviceCredential]{kind: g.r.Credentials, typ: "DeviceCredential", plural: "deviceCredentials",
		read: model.DeviceWrite, filter: credentialFilter})
	devices := byRow(g.r.Devices, func(d *registry.Device) int64 { return d.ID })
	g.area.Field("DeviceCredential", "device", On(func(ctx context.Context, c registry.DeviceCredential, _ Args) (any, error) {
		return devices.Load(ctx, c.DeviceID), nil
	}))
	g.area.Field("DeviceCredential", "credentialId", On(func(_ context.Context, c registry.DeviceCredential, _ Args) (any, error) {
		return g.r.CredentialID(&c)
	}))
	g.area.Field("DeviceCredential", "credentialValue", alwaysNull)
}

func credentialFilter(c Args) []store.Filter {
	var s registry.CredentialSearch
	for name, to := range map[string]**string{"device": &s.Device, "credentialType": &s.Type, "credentialId": &s.ID} {
		if c.Has(name) && !c.IsNull(name) {
			*to = new(c.String(name))
		}
	}
	if c.Has("enabled") && !c.IsNull("enabled") {
		s.Enabled = new(c.Bool("enabled"))
	}
	return s.Filters()
}
