package registry

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"

	"weir/model"
	"weir/store"
	lwm2mrows "weir/store/lwm2m"
)

// maxMinted is how many keys that bootstrap has made a device may have: the one that it uses, and those of runs whose end is not known.
const maxMinted = 4

// mintedBy marks the credentials that bootstrap makes.
const mintedBy = `{"madeBy":"lwm2m bootstrap"}`

// MintKey makes a pre-shared key of random bits for a device, under an identity of its own. The keys of before stay good until this one is used; of those
// that no device has registered with only the newest are kept.
func (cs *Credentials) MintKey(ctx context.Context, by *model.Principal, device string) (token, identity string, key []byte, err error) {
	var name [4]byte
	key = make([]byte, pskBytes)
	for _, bits := range [][]byte{name[:], key} {
		if _, err := io.ReadFull(cs.random, bits); err != nil {
			return "", "", nil, fmt.Errorf("minting a pre-shared key: %w", err)
		}
	}
	// An identity of its own, so that the keys of before stay good beside it.
	identity = by.Tenant + ":" + device + ":" + hex.EncodeToString(name[:])
	if token, err = cs.NewUUID(); err != nil {
		return "", "", nil, err
	}
	p, err := cs.Prepared(ctx, by, store.Patch{
		"token":           token,
		"deviceToken":     device,
		"credentialType":  PSK,
		"credentialId":    identity,
		"credentialValue": base64.StdEncoding.EncodeToString(key),
		"enabled":         true,
		"metadata":        mintedBy,
	})
	if err != nil {
		return "", "", nil, err
	}
	err = cs.mutate(ctx, by, func(c *store.Change) error {
		d, err := cs.devices.Must(c, c.By.TenantID, device)
		if err != nil {
			return err
		}
		// Room for one more: the oldest that were never used go.
		have, err := lwm2mrows.MintedOf(c, d.ID)
		if err != nil {
			return err
		}
		for i := 0; i < len(have) && len(have)-i >= maxMinted; i++ {
			if have[i].Used > 0 {
				continue
			}
			if _, err := cs.Remove(c, have[i].Token); err != nil {
				return err
			}
		}
		made, err := cs.Make(c, p)
		if err != nil {
			return err
		}
		return lwm2mrows.AddMinted(c, d.TenantID, d.ID, made.ID, c.At)
	})
	if err != nil {
		return "", "", nil, err
	}
	return token, identity, key, nil
}

// KeyUsed notes that a device has registered with a credential: the first time, the keys that bootstrap has made for it before are removed.
func (cs *Credentials) KeyUsed(ctx context.Context, by *model.Principal, device, credential int64) error {
	// Look first: this is asked at each registration, and changes something once.
	unused := false
	if err := store.Read(ctx, cs.waiting, func(tx store.Tx) (err error) {
		unused, err = lwm2mrows.Unused(tx, credential)
		return err
	}); err != nil || !unused {
		return err
	}
	return cs.mutate(ctx, by, func(c *store.Change) error {
		// The device has this key for good: older ones cannot be needed any more.
		have, err := lwm2mrows.MintedOf(c, device)
		if err != nil {
			return err
		}
		for _, m := range have {
			if m.CredentialID >= credential {
				continue
			}
			if _, err := cs.Remove(c, m.Token); err != nil {
				return err
			}
		}
		return lwm2mrows.UseMinted(c, credential, c.At)
	})
}
