package registry

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"maps"

	"weir/model"
	"weir/store"
)

// secretBytes is the size of a minted access token.
const secretBytes = 32

// AddDevice makes a device of the given fields (API names, as in Create) and an access token for it, in one change. The
// secret is returned here and shown nowhere else.
func (r *Registry) AddDevice(ctx context.Context, by *model.Principal, p store.Patch) (d *Device, secret string, err error) {
	d, _, secret, err = r.AddDeviceOfType(ctx, by, p, nil)
	return d, secret, err
}

// AddDeviceOfType is AddDevice, and makes the device type, too, when there is none of its token: all of it, or nothing.
func (r *Registry) AddDeviceOfType(ctx context.Context, by *model.Principal, p, deviceType store.Patch) (d *Device, typeMade bool, secret string, err error) {
	token, _ := p["token"].(string)
	secret, credential, err := r.mint(ctx, by, token, nil)
	if err != nil {
		return nil, false, "", err
	}
	err = r.mutate(ctx, by, func(c *store.Change) (err error) {
		if typeMade, err = r.ensureType(c, deviceType); err != nil {
			return err
		}
		if err := r.admitDevices(c, 1); err != nil {
			return err
		}
		if d, err = r.Devices.Make(c, p); err != nil {
			return err
		}
		_, err = r.Credentials.Make(c, credential)
		return err
	})
	if err != nil {
		return nil, false, "", err
	}
	return d, typeMade, secret, nil
}

// AddAccessToken mints one more access token for a device.
func (r *Registry) AddAccessToken(ctx context.Context, by *model.Principal, device string) (credential *DeviceCredential, secret string, err error) {
	return r.addToken(ctx, by, device, nil, func(*store.Change, *Device) error { return nil })
}

// temporary marks the access tokens of AddTemporaryToken.
const temporary = `{"temporary":true}`

// AddTemporaryToken mints an access token that is good until a time. Those of the device whose time is over go.
func (r *Registry) AddTemporaryToken(ctx context.Context, by *model.Principal, device string, until model.Micros) (*DeviceCredential, string, error) {
	return r.addToken(ctx, by, device, store.Patch{"expiresAt": until, "metadata": temporary}, func(c *store.Change, d *Device) error {
		_, err := r.dropTokens(c, d, func(have *DeviceCredential) bool {
			return text(have.Metadata) == temporary && have.ExpiresAt != nil && *have.ExpiresAt <= c.At
		})
		return err
	})
}

// ReplaceAccessTokens mints a new access token for a device and removes all others that it had; removed is their number.
func (r *Registry) ReplaceAccessTokens(ctx context.Context, by *model.Principal, device string) (secret string, removed int, err error) {
	_, secret, err = r.addToken(ctx, by, device, nil, func(c *store.Change, d *Device) (err error) {
		removed, err = r.dropTokens(c, d, func(*DeviceCredential) bool { return true })
		return err
	})
	return secret, removed, err
}

// addToken mints an access token with more fields, in one change with what is done before.
func (r *Registry) addToken(ctx context.Context, by *model.Principal, device string, more store.Patch,
	before func(*store.Change, *Device) error) (credential *DeviceCredential, secret string, err error) {
	secret, p, err := r.mint(ctx, by, device, more)
	if err != nil {
		return nil, "", err
	}
	err = r.mutate(ctx, by, func(c *store.Change) error {
		d, err := r.Devices.Must(c, c.By.TenantID, device)
		if err != nil {
			return err
		}
		if err := before(c, d); err != nil {
			return err
		}
		credential, err = r.Credentials.Make(c, p)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return credential, secret, nil
}

// dropTokens removes the access tokens of a device that which names.
func (r *Registry) dropTokens(c *store.Change, d *Device, which func(*DeviceCredential) bool) (n int, err error) {
	have, err := r.Credentials.Table.By(c, c.By.TenantID, "device_id", d.ID)
	if err != nil {
		return 0, err
	}
	for _, credential := range have {
		if credential.Type != AccessToken || !which(credential) {
			continue
		}
		if _, err := r.Credentials.Remove(c, credential.Token); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// mint makes a secret of 256 random bits and the prepared fields of its credential, whose token is a random UUID. more
// are further fields of it.
func (r *Registry) mint(ctx context.Context, by *model.Principal, device string, more store.Patch) (secret string, p store.Patch, err error) {
	var bits [secretBytes]byte
	if _, err := io.ReadFull(r.parts.Random, bits[:]); err != nil {
		return "", nil, fmt.Errorf("minting an access token: %w", err)
	}
	secret = hex.EncodeToString(bits[:]) // nothing that a shell, a URL or a broker's client would read otherwise
	token, err := r.newUUID()
	if err != nil {
		return "", nil, err
	}
	p = store.Patch{"token": token, "deviceToken": device, "credentialType": AccessToken, "credentialId": secret, "enabled": true}
	maps.Copy(p, more)
	p, err = r.Credentials.Prepared(ctx, by, p)
	return secret, p, err
}

func (r *Registry) newUUID() (string, error) {
	var bits [16]byte
	if _, err := io.ReadFull(r.parts.Random, bits[:]); err != nil {
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
