package connectors

import (
	"context"
	"fmt"

	"weir/model"
	"weir/store"
)

// target is a version of a connector as deliveries take it.
type target struct {
	id      int64
	typ     string
	config  string
	stamp   string // of version and secret
	version int64
}

// target reads the connector that a rule names: the newest version that was published of it.
func (c *Connectors) target(tx store.Tx, tenant int64, token string) (*target, error) {
	row, err := c.Connectors.Table.Get(tx, tenant, token)
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, fail(Invalid, "there is no connector %q", token)
	}
	n, v, err := c.versions.Newest(tx, row.ID)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, fail(Invalid, "the connector %q was never published", token)
	}
	at, err := c.deps.Vault.ChangedAt(tx, secretName(row))
	if err != nil {
		return nil, err
	}
	return &target{id: row.ID, typ: v.Type, config: v.Config, version: n, stamp: fmt.Sprintf("%d.%d", n, at)}, nil
}

// Publish delivers a message to the connector that it names. Its error is a *Failure.
func (c *Connectors) Publish(ctx context.Context, tenant int64, d *model.Dispatch) error {
	if c.deps.Guard == nil {
		return errResting
	}
	if d.Publish == nil || d.Publish.ConnectorRef == "" {
		return c.note(ctx, "publish", d.Tenant, "", fail(Invalid, "the order names no connector"))
	}
	to, err := c.targets.get(ctx, targetKey{tenant, d.Publish.ConnectorRef}, func(ctx context.Context) (to *target, err error) {
		err = c.read(ctx, func(tx store.Tx) (err error) {
			to, err = c.target(tx, tenant, d.Publish.ConnectorRef)
			return err
		})
		return to, err
	})
	if err == nil {
		err = c.send(ctx, tenant, d.Tenant, to, &outgoing{payload: []byte(d.Payload), key: d.Key, device: d.Device})
	}
	return c.note(ctx, "publish", d.Tenant, d.Publish.ConnectorRef, err)
}

// send sends a message over the connection that is kept for the version.
func (c *Connectors) send(ctx context.Context, tenant int64, token string, to *target, m *outgoing) error {
	t := typeNamed(to.typ)
	if t == nil || t.open == nil {
		return fail(Unsupported, "nothing delivers to connectors of the type %s", to.typ)
	}
	value, release, err := c.pool.get(ctx, poolKey{kind: publishPool, id: to.id}, tenant, to.stamp, func(ctx context.Context) (closer, error) {
		return c.open(ctx, t, tenant, token, to)
	})
	if err != nil {
		return err
	}
	defer release()
	return value.(session).send(ctx, m)
}

// open connects to the target of a version.
func (c *Connectors) open(ctx context.Context, t *Type, tenant int64, token string, to *target) (session, error) {
	cfg, err := t.parse(to.config)
	if err != nil {
		return nil, fail(Invalid, "the config of the connector is not one of this version of Weir: %v", err)
	}
	var secret []byte
	if err := c.read(ctx, func(tx store.Tx) (err error) {
		secret, _, err = c.deps.Vault.Get(tx, secretName(&Connector{Row: store.Row{ID: to.id, TenantID: tenant}}))
		return err
	}); err != nil {
		return nil, err
	}
	if t.needsSecret(cfg) && len(secret) == 0 {
		return nil, fail(Invalid, "the connector has no secret: %s", t.Secret)
	}
	e := &egress{dial: c.deps.Guard.Dial(token), transport: func() *transport { return c.transport(token) }, tls: c.deps.Guard.TLS, mqttRoots: c.deps.MQTTRoots, now: c.deps.Now}
	return t.open(ctx, e, cfg, string(secret))
}
