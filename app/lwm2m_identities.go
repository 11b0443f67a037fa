package app

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"

	"weir/lwm2m"
	"weir/model"
	"weir/registry"
)

// identities are the keys of handshakes: those of lwm2m.identities, which name their device by its external id, beside those that are
// credentials. An identity of the configuration wins.
type identities struct {
	lwm2m.Keys // the credentials
	tenant     func(token string) (id int64, enabled, known bool)
	adopt      func(ctx context.Context, a registry.Adoption) (b model.Binding, made bool, err error)
	log        *slog.Logger
	configured map[string]configured
}

// configured is a member of lwm2m.identities.
type configured struct {
	lwm2m.Identity
	key []byte
}

// newIdentities reads the keys of the configuration, which has checked them.
func newIdentities(d TransportDeps, credentials lwm2m.Keys) (*identities, error) {
	k := &identities{
		Keys:       credentials,
		tenant:     d.Tenant,
		adopt:      d.Registry.Adoptions.Adopt,
		log:        d.Logger,
		configured: map[string]configured{},
	}
	// Decode the keys once: handshakes only look them up.
	for _, one := range d.Config.LwM2M.Identities {
		key, err := base64.StdEncoding.DecodeString(one.PSK.Reveal())
		if err != nil {
			return nil, fmt.Errorf("lwm2m.identities: the key of %q is not base64", one.Identity)
		}
		k.configured[one.Identity] = configured{one, key}
	}
	return k, nil
}

// Key implements lwm2m.Keys. A device that is to be made is made once the handshake has proven the key.
func (k *identities) Key(ctx context.Context, identity string) (lwm2m.Key, error) {
	one, ok := k.configured[identity]
	if !ok {
		return k.Keys.Key(ctx, identity)
	}
	b, err := k.device(ctx, &one, false)
	switch {
	case errors.Is(err, registry.ErrNotAdopted) && one.AutoRegister:
		return lwm2m.Key{Secret: one.key, Make: func(ctx context.Context) (model.Binding, error) { return k.device(ctx, &one, true) }}, nil
	case errors.Is(err, registry.ErrNotAdopted):
		k.log.Warn("an LwM2M identity of the configuration is refused: no device has its external id", "identity", one.Identity.Identity, "tenant", one.Tenant, "external id", one.ExternalID)
		return lwm2m.Key{}, lwm2m.ErrUnknown
	}
	return lwm2m.Key{Binding: b, Secret: one.key}, err
}

// device finds the device of an identity, or makes it. ErrUnknown says that its tenant is not there, or is disabled.
func (k *identities) device(ctx context.Context, one *configured, create bool) (model.Binding, error) {
	id, enabled, known := k.tenant(one.Tenant)
	if !known || !enabled {
		return model.Binding{}, lwm2m.ErrUnknown
	}
	b, made, err := k.adopt(ctx, registry.Adoption{
		Tenant:     one.Tenant,
		TenantID:   id,
		ExternalID: one.ExternalID,
		Make:       create,
		Prefix:     "lw",
		DeviceType: one.DeviceType,
	})
	if made {
		k.log.Info("a device was made for an LwM2M identity", "device", b.Device, "tenant", b.Tenant, "external id", one.ExternalID)
	}
	return b, err
}

// Orphaned reports whether a device that no credential has proven has no identity in the configuration any more.
func (k *identities) Orphaned(ctx context.Context, b model.Binding) (bool, error) {
	// The tenant or the device of another identity may be missing, which says nothing about this one.
	for _, one := range k.configured {
		found, err := k.device(ctx, &one, false)
		switch {
		case err == nil && found.DeviceID == b.DeviceID:
			return false, nil
		case err != nil && !errors.Is(err, lwm2m.ErrUnknown) && !errors.Is(err, registry.ErrNotAdopted):
			return false, err
		}
	}
	return true, nil
}
