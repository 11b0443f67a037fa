package operate

import (
	"context"

	"weir/health"
	"weir/store"
)

// deviceCertificates looks for certificates that are credentials in several tenants: an LwM2M handshake names no tenant, so the oldest counts.
func (o *Operator) deviceCertificates(ctx context.Context) health.Finding {
	var shared int64
	if err := o.deps.Store.Read(ctx, func(tx store.Tx) (err error) {
		shared, err = store.SharedCertificates(tx)
		return err
	}); err != nil {
		return health.Skip("they cannot be read: %v", err)
	}
	if shared > 0 {
		return health.Warn("give each device a certificate of its own", "%d certificates are credentials of devices in several tenants: over LwM2M each is the device of the oldest", shared)
	}
	return health.Good("none is a credential in two tenants")
}
