package registry

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"

	"weir/model"
	"weir/store"
)

// secretBytes is the size of a minted access token.
const secretBytes = 32

// AddDevice makes a device of the given fields (API names, as in Create) and an access token for it, in one change. The
// secret is returned here and shown nowhere else.
func (r *Registry) AddDevice(ctx context.Context, by *model.Principal, p store.Patch) (d *Device, secret string, err error) {
	token, _ := p["token"].(string)
	secret, credential, err := r.mint(ctx, by, token)
	if err != nil {
		return nil, "", err
	}
	err = r.mutate(ctx, by, func(c *store.Change) (err error) {
		if err := r.admitDevices(c, 1); err != nil {
			return err
		}
		if d, err = r.Devices.create(c, p); err != nil {
			return err
		}
		_, err = r.Credentials.create(c, credential)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return d, secret, nil
}

// AddAccessToken mints one more access token for a device.
func (r *Registry) AddAccessToken(ctx context.Context, by *model.Principal, device string) (credential *DeviceCredential, secret string, err error) {
	secret, p, err := r.mint(ctx, by, device)
	if err != nil {
		return nil, "", err
	}
	err = r.mutate(ctx, by, func(c *store.Change) (err error) {
		if _, err := r.Devices.must(c, c.By.TenantID, device); err != nil {
			return err
		}
		credential, err = r.Credentials.create(c, p)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return credential, secret, nil
}

// mint makes a secret of 256 random bits and the prepared fields of its credential, whose token is a random UUID.
func (r *Registry) mint(ctx context.Context, by *model.Principal, device string) (secret string, p store.Patch, err error) {
	var bits [secretBytes + 16]byte
	if _, err := io.ReadFull(r.parts.Random, bits[:]); err != nil {
		return "", nil, fmt.Errorf("minting an access token: %w", err)
	}
	secret = hex.EncodeToString(bits[:secretBytes]) // nothing that a shell, a URL or a broker's client would read otherwise
	token := uuid4([16]byte(bits[secretBytes:]))
	p, err = r.Credentials.prepared(ctx, by, token, store.Patch{"token": token, "deviceToken": device,
		"credentialType": AccessToken, "credentialId": secret, "enabled": true}, true)
	return secret, p, err
}

// uuid4 formats random bits as a UUID of version 4 (RFC 9562).
func uuid4(b [16]byte) string {
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
