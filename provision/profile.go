package provision

import (
	"context"
	"errors"
	"strings"

	"weir/model"
	"weir/registry"
	"weir/store"
	"weir/store/entity"
)

// The strategies.
const (
	AllowNew            = "ALLOW_NEW"             // the device is made when there is none
	CheckPreProvisioned = "CHECK_PRE_PROVISIONED" // the device must exist, of the type
)

// Bounds of a profile's key and secret.
const (
	maxKeyBytes    = 128
	maxSecretBytes = 1024
)

// Profile says which devices may get their credential themselves, and what they prove themselves by until then. The key is unique in
// the instance and selects the tenant; of the secret only a hash is kept.
type Profile struct {
	store.Row
	Token          string        `store:"token,token" gql:"token"`
	Name           *string       `store:"name,clear,max=128" gql:"name"`
	Description    *string       `store:"description,clear,max=1024" gql:"description"`
	Key            string        `store:"provision_key,keep" gql:"provisionKey"`
	SecretHash     string        `store:"secret_hash,required,secret" gql:"provisionSecret"`
	Strategy       string        `store:"strategy,required,oneof=ALLOW_NEW|CHECK_PRE_PROVISIONED,filter" gql:"strategy"`
	TypeID         int64         `store:"device_type_id,required,ref=device_types,filter=deviceType" gql:"deviceTypeToken"`
	CredentialType string        `store:"credential_type,immutable,oneof=ACCESS_TOKEN" gql:"credentialType"`
	Enabled        bool          `store:"enabled,required,filter" gql:"enabled"`
	ExpiresAt      *model.Micros `store:"expires_at,clear,emptyclears" gql:"expiresAt"`
	Metadata       *string       `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

func (p *Provision) profiles() *entity.Kind[Profile] {
	return entity.New(entity.Base{Store: p.parts.Store, Writer: p.parts.Writer}, entity.Desc[Profile]{
		Kind: "provisioning profile", Type: "ProvisioningProfile", Plural: "provisioningProfiles", Area: area, Table: "provisioning_profiles",
		Read: mayRead, Write: mayWrite,
		Prepare: p.prepareProfile, Valid: (*Profile).check, Check: p.checkProfile,
		Ceiling: &entity.Ceiling{
			Key:  "limits.provisioning_profiles_per_tenant",
			Rows: func() int64 { return p.limits.Load().ProfilesPerTenant },
		},
	})
}

// prepareProfile makes the key of a profile that names none, and hashes its secret.
func (p *Provision) prepareProfile(ctx context.Context, _ *model.Principal, _ string, patch store.Patch, create bool) (err error) {
	if create && patch["provisionKey"] == nil {
		if patch["provisionKey"], err = p.parts.Registry.Credentials.NewUUID(); err != nil {
			return err
		}
	}
	if patch["provisionKey"] == "" {
		return errKey()
	}
	if create && patch["credentialType"] == nil {
		patch["credentialType"] = registry.AccessToken
	}
	switch secret := patch["provisionSecret"].(type) {
	case registry.Hashed:
		patch["provisionSecret"] = string(secret)
	case string:
		patch["provisionSecret"], err = p.hash(ctx, "provisionSecret", secret)
	}
	return err
}

// hash hashes a secret that a field holds.
func (p *Provision) hash(ctx context.Context, field, secret string) (string, error) {
	switch {
	case strings.TrimSpace(secret) == "":
		return "", model.Invalid(field, "must not be empty")
	case len(secret) > maxSecretBytes:
		return "", model.Invalid(field, "is longer than %d bytes", maxSecretBytes)
	case store.InChange(ctx):
		return "", errors.New("provision: a secret is hashed before the change that it is part of")
	}
	hash, err := p.parts.Hasher.Hash(ctx, secret)
	if err != nil {
		return "", &model.Error{Code: model.CodeUnavailable, Err: err, Field: field, Message: "unavailable: the " + field + " could not be hashed, send it again"}
	}
	return hash, nil
}

// errKey refuses a key. It is the same for one of bad form and one that another tenant has: no tenant learns another's.
func errKey() error {
	return model.Invalid("provisionKey", "must be free, of 1 to %d printable ASCII characters without spaces: leave it out to have one made", maxKeyBytes)
}

// check refuses a key that no profile can have: it is a part of a user name of MQTT. None is made before the profile is stored.
func (f *Profile) check() error {
	if len(f.Key) > maxKeyBytes || strings.ContainsFunc(f.Key, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return errKey()
	}
	return nil
}

// checkProfile refuses a key that is taken. Only of its own keys a tenant learns which profile has them.
func (p *Provision) checkProfile(tx store.Tx, f *Profile, changed store.Changed) error {
	if !changed.Has("provision_key") {
		return nil
	}
	tenant, id, err := store.ProvisioningProfile(tx, f.Key)
	switch {
	case err != nil || id == 0 || id == f.ID:
		return err
	case tenant == f.TenantID:
		return model.NotUnique("provisioning profile", "provisionKey", f.Key)
	}
	return errKey()
}
