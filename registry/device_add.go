package registry

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"maps"

	"weir/model"
	"weir/store"
)

// secretBytes is the size of a minted access token.
const secretBytes = 32

// Add makes a device of the given fields (API names, as in Create) and an access token for it, in one change. The
// secret is returned here and shown nowhere else.
func (ds *Devices) Add(ctx context.Context, by *model.Principal, p store.Patch) (d *Device, secret string, err error) {
	d, _, secret, err = ds.AddOfType(ctx, by, p, nil)
	return d, secret, err
}

// AddOfType is AddDevice, and makes the device type, too, when there is none of its token: all of it, or nothing.
func (ds *Devices) AddOfType(ctx context.Context, by *model.Principal, p, deviceType store.Patch) (d *Device, typeMade bool, secret string, err error) {
	return ds.add(ctx, by, p, deviceType)
}

// add makes a device with an access token, and with further credentials that were prepared.
func (ds *Devices) add(ctx context.Context, by *model.Principal, p, deviceType store.Patch, more ...store.Patch) (d *Device, typeMade bool, secret string, err error) {
	token, _ := p["token"].(string)
	// Mint and seal before the change, which holds the only writer.
	secret, credential, err := ds.credentials.Mint(ctx, by, token, nil)
	if err != nil {
		return nil, false, "", err
	}
	err = ds.mutate(ctx, by, func(c *store.Change) (err error) {
		if typeMade, err = ds.ensureType(c, deviceType); err != nil {
			return err
		}
		if err := ds.admit(c, 1); err != nil {
			return err
		}
		if d, err = ds.Make(c, p); err != nil {
			return err
		}
		// The token and what else was prepared, in the same change: no device is without a credential.
		for _, one := range append([]store.Patch{credential}, more...) {
			if _, err = ds.credentials.Make(c, one); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, false, "", err
	}
	return d, typeMade, secret, nil
}

// pskBytes is the size of a minted pre-shared key: what every client takes.
const pskBytes = 16

// AddWithKey is AddDeviceOfType with a pre-shared key of random bits besides, under the identity tenant:device.
func (ds *Devices) AddWithKey(ctx context.Context, by *model.Principal, p, deviceType store.Patch) (d *Device, typeMade bool, secret, identity string, key []byte, err error) {
	token, _ := p["token"].(string)
	identity = by.Tenant + ":" + token
	key = make([]byte, pskBytes)
	if _, err := io.ReadFull(ds.random, key); err != nil {
		return nil, false, "", "", nil, fmt.Errorf("minting a pre-shared key: %w", err)
	}
	// The credential has a token of its own; its id is the identity of the handshake.
	name, err := ds.credentials.NewUUID()
	if err != nil {
		return nil, false, "", "", nil, err
	}
	credential, err := ds.credentials.Prepared(ctx, by, store.Patch{
		"token":           name,
		"deviceToken":     token,
		"credentialType":  PSK,
		"credentialId":    identity,
		"credentialValue": base64.StdEncoding.EncodeToString(key),
		"enabled":         true,
	})
	if err != nil {
		return nil, false, "", "", nil, err
	}
	d, typeMade, secret, err = ds.add(ctx, by, p, deviceType, credential)
	return d, typeMade, secret, identity, key, err
}

// TokenRequest asks for a new access token of a device.
type TokenRequest struct {
	Device  string
	Replace bool          // the access tokens that the device has are removed
	Until   *model.Micros // the token is temporary and expires then; those of the device that have expired are removed
}

// IssuedToken is a new access token.
type IssuedToken struct {
	Credential *DeviceCredential `gql:"credential"`
	Secret     string            `gql:"accessToken"`
	Replaced   int               `gql:"replaced"` // how many were removed because of TokenRequest.Replace
}

// temporary marks the access tokens with an end.
const temporary = `{"temporary":true}`

// IssueToken mints an access token and removes those that it replaces, in one change. The secret is returned here and
// shown nowhere else.
func (cs *Credentials) IssueToken(ctx context.Context, by *model.Principal, q TokenRequest) (*IssuedToken, error) {
	var more store.Patch
	if q.Until != nil {
		more = store.Patch{"expiresAt": *q.Until, "metadata": temporary}
	}
	secret, p, err := cs.Mint(ctx, by, q.Device, more)
	if err != nil {
		return nil, err
	}
	out := &IssuedToken{Secret: secret}
	err = cs.mutate(ctx, by, func(c *store.Change) error {
		d, err := cs.devices.Must(c, c.By.TenantID, q.Device)
		if err != nil {
			return err
		}
		// Remove first, so that the ceiling of credentials has room for the new one.
		if out.Replaced, err = cs.dropTokens(c, d, q); err != nil {
			return err
		}
		out.Credential, err = cs.Make(c, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// dropTokens removes the access tokens of a device that a new one replaces, and returns their number, and the temporary
// ones that have expired.
func (cs *Credentials) dropTokens(c *store.Change, d *Device, q TokenRequest) (replaced int, err error) {
	if !q.Replace && q.Until == nil {
		return 0, nil
	}
	have, err := cs.Table.By(c, c.By.TenantID, "device_id", d.ID)
	if err != nil {
		return 0, err
	}
	for _, credential := range have {
		// Only temporary tokens that this API made are tidied up.
		expired := text(credential.Metadata) == temporary && credential.ExpiresAt != nil && *credential.ExpiresAt <= c.At
		if credential.Type != AccessToken || !q.Replace && !expired {
			continue
		}
		if _, err := cs.Remove(c, credential.Token); err != nil {
			return 0, err
		}
		if q.Replace {
			replaced++
		}
	}
	return replaced, nil
}

// Mint makes a secret of 256 random bits and the prepared fields of its credential, an access token of the device, whose own token
// is a random UUID. more are further fields of it.
func (cs *Credentials) Mint(ctx context.Context, by *model.Principal, device string, more store.Patch) (secret string, p store.Patch, err error) {
	var bits [secretBytes]byte
	if _, err := io.ReadFull(cs.random, bits[:]); err != nil {
		return "", nil, fmt.Errorf("minting an access token: %w", err)
	}
	secret = hex.EncodeToString(bits[:]) // nothing that a shell, a URL or a broker's client would read otherwise
	token, err := cs.NewUUID()
	if err != nil {
		return "", nil, err
	}
	p = store.Patch{
		"token":          token,
		"deviceToken":    device,
		"credentialType": AccessToken,
		"credentialId":   secret,
		"enabled":        true,
	}
	maps.Copy(p, more)
	p, err = cs.Prepared(ctx, by, p)
	return secret, p, err
}

// NewUUID returns a random UUID of version 4.
func (cs *Credentials) NewUUID() (string, error) {
	var bits [16]byte
	if _, err := io.ReadFull(cs.random, bits[:]); err != nil {
		return "", fmt.Errorf("minting a token: %w", err)
	}
	return uuid4(bits), nil
}

// uuid4 formats random bits as a UUID of version 4 (RFC 9562).
func uuid4(b [16]byte) string {
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
