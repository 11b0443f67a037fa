package registry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"

	"weir/store"
)

// FindCredentials returns the credentials of a tenant with this type and SHA-256 of their id: none or one.
func (r *Registry) FindCredentials(ctx context.Context, tenantID int64, credentialType string, idHash [sha256.Size]byte) (found []store.CredentialRow, err error) {
	err = store.Read(ctx, cmp.Or(r.parts.Devices, r.parts.Store), func(tx store.Tx) (err error) {
		found, err = store.FindCredentials(tx, tenantID, credentialType, hex.EncodeToString(idHash[:]))
		return err
	})
	result := "found"
	switch {
	case err != nil:
		result = "failed"
	case len(found) == 0:
		result = "none"
	}
	r.m.lookups.WithLabelValues(result).Inc()
	return found, err
}
