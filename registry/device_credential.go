package registry

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// The credential types.
const (
	AccessToken     = "ACCESS_TOKEN"     // the id is the secret itself
	MQTTBasic       = "MQTT_BASIC"       // the id is a user name, the value its password
	X509Certificate = "X509_CERTIFICATE" // the id is the lower-case hex SHA-256 of the certificate
	PSK             = "PSK"              // the id is an identity of DTLS, the value its key in base64
	BootstrapPSK    = "BOOTSTRAP_PSK"    // likewise, for the LwM2M bootstrap server alone
)

// IsKey reports whether credentials of a type are pre-shared keys of DTLS.
func IsKey(credentialType string) bool {
	return credentialType == PSK || credentialType == BootstrapPSK
}

// Sizes of a pre-shared key in bytes.
const (
	minKey = 16
	maxKey = 64
)

// maxCredentialBytes bounds the id and the value of a credential: doors read no longer ones.
const maxCredentialBytes = 1024

// sealedField is the name by which prepare hands the sealed id to the table. The API does not know it.
const sealedField = "credentialIdSealed"

// DeviceCredential is what a device proves itself by. The id is looked up by its SHA-256 and kept sealed, since that of
// an access token is the secret itself; of a password only a hash is kept, and the key of
// a PSK is sealed.
type DeviceCredential struct {
	store.Row
	Token     string        `store:"token,token" gql:"token"`
	DeviceID  int64         `store:"device_id,required,ref=devices,parent,filter=device" gql:"deviceToken"`
	Type      string        `store:"credential_type,required,oneof=ACCESS_TOKEN|MQTT_BASIC|X509_CERTIFICATE|PSK|BOOTSTRAP_PSK,filter" gql:"credentialType"`
	IDHash    string        `store:"id_hash,required,secret,unique" gql:"credentialId"`
	IDSealed  string        `store:"id_sealed,required,secret,hidden" gql:"credentialIdSealed"`
	ValueHash *string       `store:"value_hash,clear,secret" gql:"credentialValue"`
	Enabled   bool          `store:"enabled,required,filter" gql:"enabled"`
	ExpiresAt *model.Micros `store:"expires_at,clear,emptyclears" gql:"expiresAt"`
	Metadata  *string       `store:"metadata,clear,json,max=65536" gql:"metadata"`
	// Unused says that provisioning has minted the credential, and that it was not used yet.
	Unused bool `store:"unused,keep,hidden" gql:"unused"`
}

// Credentials are what the devices of all tenants prove themselves by.
type Credentials struct {
	*entity.Kind[DeviceCredential]
	access
	sealer    Sealer
	hasher    Hasher
	random    io.Reader
	perDevice int64                  // credentials
	lookups   *prometheus.CounterVec // by outcome
	verified  *verified
	synced    *edgeChanges
	devices   *entity.Kind[Device]
}

// verified are the credentials that were verified and are remembered.
type verified struct {
	forgotten  prometheus.Counter
	invalidate Invalidate
}

// forget has the credentials of a device (credential 0), or one credential (device 0), forgotten once the change is committed.
func (v *verified) forget(c *store.Change, device, credential int64) {
	c.OnCommit(func() {
		v.forgotten.Inc()
		v.invalidate(device, credential)
	})
}

// describe makes the kind. Reading them needs device:write, since the id of an access token is a secret.
func (cs *Credentials) describe(b entity.Base) {
	cs.Kind = entity.New(b, entity.Desc[DeviceCredential]{
		Kind:    "device credential",
		Type:    "DeviceCredential",
		Plural:  "deviceCredentials",
		Site:    "credentials",
		Area:    area,
		Table:   "device_credentials",
		Order:   "coalesce(expires_at, 9223372036854775807) DESC, token",
		Read:    mayWrite,
		Write:   mayWrite,
		Filters: []entity.Filter{{Name: "credentialId", Of: func(v any) store.Filter { return store.Eq("id_hash", hashCredentialID(v.(string))) }}},
		Prepare: cs.prepare,
		Check:   cs.check,
		Changed: cs.changed,
	})
}

// prepare seals the id and hashes the password of a patch, and clears the password of a credential that
// becomes of a type without one.
func (cs *Credentials) prepare(ctx context.Context, by *model.Principal, token string, p store.Patch, create bool) error {
	// The store gets a hash to look up and a sealed copy to show, never the id itself.
	if id, ok := p["credentialId"].(string); ok {
		if err := checkCredentialID(id); err != nil {
			return err
		}
		sealed, err := cs.sealer.Seal(sealName(by.TenantID, token), []byte(id))
		if err != nil {
			return fmt.Errorf("sealing a credential id: %w", err)
		}
		p["credentialId"] = hashCredentialID(id)
		p[sealedField] = base64.StdEncoding.EncodeToString(sealed)
	}
	// A password must not stay with a type that has none.
	_, named := p["credentialValue"]
	if t, ok := p["credentialType"].(string); ok && t != MQTTBasic && !named && !create {
		p["credentialValue"] = nil
	}
	if err := cs.sealKey(ctx, by, token, p); err != nil {
		return err
	}
	return cs.hashValue(ctx, p)
}

// PreSharedKey is a credentialValue that is known to be the key of a PSK, in base64.
type PreSharedKey string

// sealKey puts the sealed key of a PSK in its place.
func (cs *Credentials) sealKey(ctx context.Context, by *model.Principal, token string, p store.Patch) error {
	// Is the value the key of a PSK? A string is where the type of the credential says so.
	var text string
	switch value := p["credentialValue"].(type) {
	case PreSharedKey:
		text = string(value)
	case string:
		psk, err := cs.isPSK(ctx, by, token, p)
		if err != nil || !psk {
			return err
		}
		text = value
	default:
		return nil
	}
	// Check what the key is before it is sealed: it cannot be looked at later.
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(key) < minKey || len(key) > maxKey {
		return model.Invalid("credentialValue", "must be a key of %d to %d bytes in base64", minKey, maxKey)
	}
	sealed, err := cs.sealer.Seal(keyName(by.TenantID, token), key)
	if err != nil {
		return fmt.Errorf("sealing a pre-shared key: %w", err)
	}
	p["credentialValue"] = Hashed(sealedKey + base64.StdEncoding.EncodeToString(sealed))
	return nil
}

// sealedKey begins the stored value of a PSK.
const sealedKey = "psk:"

// keyName binds a sealed key to its row.
func keyName(tenantID int64, token string) string { return sealName(tenantID, token) + "/key" }

// isPSK reports whether a patch is of a credential of type PSK.
func (cs *Credentials) isPSK(ctx context.Context, by *model.Principal, token string, p store.Patch) (bool, error) {
	if t, ok := p["credentialType"].(string); ok {
		return IsKey(t), nil
	}
	if store.InChange(ctx) {
		return false, nil
	}
	psk := false
	err := store.Read(ctx, cs.store, func(tx store.Tx) error {
		d, err := cs.Table.Get(tx, by.TenantID, token)
		psk = d != nil && IsKey(d.Type)
		return err
	})
	return psk, err
}

// Key opens the key of a PSK.
func (cs *Credentials) Key(d *DeviceCredential) ([]byte, error) {
	return cs.openKey(d.ID, d.TenantID, d.Token, text(d.ValueHash))
}

func (cs *Credentials) openKey(id, tenantID int64, token, stored string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(stored, sealedKey)
	sealed, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil {
		return nil, fmt.Errorf("%w: device_credentials %d holds no key", store.ErrDamaged, id)
	}
	key, err := cs.sealer.Open(keyName(tenantID, token), sealed)
	if err != nil {
		return nil, fmt.Errorf("device_credentials %d: %w", id, err)
	}
	return key, nil
}

// FindKey returns the pre-shared key of an identity with the credential that it belongs to; nil for an unknown one.
func (cs *Credentials) FindKey(ctx context.Context, identity string) (row *store.KeyRow, key []byte, err error) {
	return cs.findKey(ctx, identity, PSK)
}

// FindBootstrapKey does the same for a bootstrap key.
func (cs *Credentials) FindBootstrapKey(ctx context.Context, identity string) (row *store.KeyRow, key []byte, err error) {
	return cs.findKey(ctx, identity, BootstrapPSK)
}

func (cs *Credentials) findKey(ctx context.Context, identity, credentialType string) (row *store.KeyRow, key []byte, err error) {
	err = store.Read(ctx, cs.waiting, func(tx store.Tx) (err error) {
		row, err = store.FindKey(tx, hashCredentialID(identity), credentialType)
		return err
	})
	// Count how lookups end: many misses are a sign of guessing.
	result := "found"
	switch {
	case err != nil:
		result = "failed"
	case row == nil:
		result = "none"
	}
	cs.lookups.WithLabelValues(result).Inc()
	if err != nil || row == nil {
		return nil, nil, err
	}
	key, err = cs.openKey(row.ID, row.TenantID, row.Token, row.PasswordHash)
	return row, key, err
}

// FindCertificate returns the credential of a certificate, by its SHA-256 in lower-case hex, whichever tenant it belongs to; nil for an unknown one.
func (cs *Credentials) FindCertificate(ctx context.Context, fingerprint string) (row *store.KeyRow, err error) {
	err = store.Read(ctx, cs.waiting, func(tx store.Tx) (err error) {
		row, err = store.FindCertificate(tx, hashCredentialID(fingerprint))
		return err
	})
	result := "found"
	switch {
	case err != nil:
		result = "failed"
	case row == nil:
		result = "none"
	}
	cs.lookups.WithLabelValues(result).Inc()
	return row, err
}

// HasKeys reports whether some device has a pre-shared key.
func (cs *Credentials) HasKeys(ctx context.Context) (has bool, err error) {
	err = store.Read(ctx, cs.waiting, func(tx store.Tx) (err error) {
		has, err = store.HasKeys(tx)
		return err
	})
	return has, err
}

// Hashed is a credentialValue that was hashed before, a PHC string. No request can hold one. Changes of others take
// nothing else: a hash takes longer than the one writer may be held.
type Hashed string

// hashValue puts the hash of a password in its place. "" is no password.
func (cs *Credentials) hashValue(ctx context.Context, p store.Patch) error {
	if hash, ok := p["credentialValue"].(Hashed); ok {
		p["credentialValue"] = string(hash)
		return nil
	}
	value, ok := p["credentialValue"].(string)
	switch {
	case !ok:
		return nil
	case value == "":
		p["credentialValue"] = nil
		return nil
	case len(value) > maxCredentialBytes:
		return model.Invalid("credentialValue", "is longer than %d bytes", maxCredentialBytes)
	}
	// A hash takes longer than the one writer may be held.
	if store.InChange(ctx) {
		return errors.New("registry: a password is hashed before the change that it is part of")
	}
	hash, err := cs.hasher.Hash(ctx, value)
	if err != nil {
		return &model.Error{
			Code:    model.CodeUnavailable,
			Err:     err,
			Field:   "credentialValue",
			Message: "unavailable: the credentialValue could not be hashed, send it again",
		}
	}
	p["credentialValue"] = hash
	return nil
}

// check holds the fields against each other, with the values that the record will hold.
func (cs *Credentials) check(tx store.Tx, d *DeviceCredential, changed store.Changed) error {
	// Value and type must fit, whichever of them changes.
	if changed.Has("value_hash") && d.ValueHash != nil && d.Type != MQTTBasic && !IsKey(d.Type) {
		return model.Invalid("credentialValue", "a credential of type %s has none", d.Type)
	}
	if IsKey(d.Type) && !strings.HasPrefix(text(d.ValueHash), sealedKey) {
		return model.Invalid("credentialValue", "is required: the key of %d to %d bytes in base64", minKey, maxKey)
	}
	if !IsKey(d.Type) && strings.HasPrefix(text(d.ValueHash), sealedKey) {
		return model.Invalid("credentialValue", "is required when the credential is no PSK any more")
	}
	// A certificate is known by its hash.
	if changed.Has("credential_type") || changed.Has("id_hash") {
		if err := cs.checkCertificateID(d); err != nil {
			return err
		}
	}
	// The device is full only when one is added to it.
	if !changed.Has("device_id") {
		return nil
	}
	return checkCount(tx, cs.Kind, d.TenantID, "device_id", d.DeviceID, d.ID, cs.perDevice, "credentials of a device")
}

func (cs *Credentials) checkCertificateID(d *DeviceCredential) error {
	if d.Type != X509Certificate {
		return nil
	}
	id, err := cs.ID(d)
	if err != nil {
		return err
	}
	return CheckCertificateID(id)
}

// CheckCertificateID refuses an id that no credential of type X509_CERTIFICATE can have.
func CheckCertificateID(id string) error {
	if b, err := hex.DecodeString(id); err != nil || len(b) != sha256.Size || strings.ToLower(id) != id {
		return model.Invalid("credentialId", "must be the SHA-256 of the certificate as 64 lower-case hexadecimal digits")
	}
	return nil
}

// changed has what was verified by an older state of the credential forgotten.
func (cs *Credentials) changed(c *store.Change, old, _ *DeviceCredential) error {
	if old != nil {
		cs.verified.forget(c, 0, old.ID)
	}
	cs.synced.after(c)
	return nil
}

// ID opens the credential's id. Of an access token that is the secret itself.
func (cs *Credentials) ID(d *DeviceCredential) (string, error) {
	if d.IDSealed == "" { // a Weir above manages it, and keeps the id to itself
		return "", nil
	}
	sealed, err := base64.StdEncoding.DecodeString(d.IDSealed)
	if err != nil {
		return "", fmt.Errorf("%w: device_credentials %d: %w", store.ErrDamaged, d.ID, err)
	}
	id, err := cs.sealer.Open(sealName(d.TenantID, d.Token), sealed)
	if err != nil {
		return "", fmt.Errorf("device_credentials %d: %w", d.ID, err)
	}
	return string(id), nil
}

// HasID reports whether id is the credential's id.
func (d *DeviceCredential) HasID(id string) bool {
	return subtle.ConstantTimeCompare([]byte(hashCredentialID(id)), []byte(d.IDHash)) == 1
}

// sealName binds a sealed id to its row: the token of a credential never changes.
func sealName(tenantID int64, token string) string {
	return fmt.Sprintf("%d/device-credential/%s", tenantID, token)
}

// hashCredentialID is what the id of a credential is looked up by.
func hashCredentialID(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

// checkCredentialID refuses ids that no credential can have. No message shows the id.
func checkCredentialID(id string) error {
	switch {
	case id == "":
		return model.Invalid("credentialId", "must not be empty")
	case len(id) > maxCredentialBytes:
		return model.Invalid("credentialId", "is longer than %d bytes", maxCredentialBytes)
	case !utf8.ValidString(id) || strings.ContainsRune(id, 0):
		return model.Invalid("credentialId", "holds a character that cannot be stored")
	}
	return nil
}
