package app

import (
	"context"

	"weir/auth"
	"weir/lwm2m"
	"weir/model"
	"weir/registry"
)

// bootstrapKeys lets the bootstrap server ask auth for the key of a handshake.
type bootstrapKeys struct{ v *auth.Verifier }

func (k bootstrapKeys) Key(ctx context.Context, identity string) (lwm2m.Key, error) {
	p, secret, err := k.v.BootstrapKey(ctx, identity)
	return keyOf(p, secret, err)
}

// minter makes the keys that bootstrap gives to devices.
type minter struct{ credentials *registry.Credentials }

// bootstrapPrincipal is the principal on whose behalf the bootstrap server changes credentials.
func bootstrapPrincipal(tenant string, id int64) *model.Principal {
	return &model.Principal{Kind: model.LocalOperator, Subject: "lwm2m-bootstrap", Tenant: tenant, TenantID: id}
}

func (m minter) mint(ctx context.Context, b model.Binding) (lwm2m.Minted, error) {
	token, identity, key, err := m.credentials.MintKey(ctx, bootstrapPrincipal(b.Tenant, b.TenantID), b.Device)
	return lwm2m.Minted{TenantID: b.TenantID, Token: token, Identity: identity, Secret: key}, err
}

func (m minter) discard(ctx context.Context, k lwm2m.Minted) error {
	_, err := m.credentials.Delete(ctx, bootstrapPrincipal("", k.TenantID), k.Token)
	return err
}

func (m minter) registered(ctx context.Context, b model.Binding) error {
	return m.credentials.KeyUsed(ctx, bootstrapPrincipal(b.Tenant, b.TenantID), b.DeviceID, b.Credential)
}
