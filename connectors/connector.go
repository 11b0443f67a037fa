package connectors

import (
	"context"
	"encoding/json"
	"fmt"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// Connector is the draft of a connector. Deliveries take the newest version that was published.
type Connector struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	Type        string  `store:"type,required,filter" gql:"type"`
	Config      string  `store:"config,required,json,max=65536" gql:"config"`
	HasSecret   bool    `store:"has_secret,keep,hidden" gql:"hasSecret"`
}

// version is what a publish freezes, and a rollback copies back into the draft.
type version struct {
	V      int    `json:"v"`
	Type   string `json:"type"`
	Config string `json:"config"`
}

// versionFormat is the version of version.
const versionFormat = 1

// maxVersions is how many versions of a connector are kept.
const maxVersions = 100

func (c *Connectors) connectors(b entity.Base) *entity.Kind[Connector] {
	c.versions = &entity.Versions[Connector, version]{
		Kind: "connector version", Table: "connector_versions", Owner: "connector_id", Max: maxVersions,
		Freeze: func(_ store.Tx, d *Connector) (*version, error) {
			return &version{versionFormat, d.Type, d.Config}, nil
		},
		Validate: func(_ context.Context, _ *model.Principal, d *Connector, v *version) ([]entity.Remark, error) {
			return nil, c.mayPublish(d, v)
		},
		Encode: func(v *version) (string, error) {
			text, err := json.Marshal(v)
			return string(text), err
		},
		Decode: func(text string) (*version, error) {
			v := new(version)
			return v, json.Unmarshal([]byte(text), v)
		},
		Restore: func(d *Connector, v *version) []string {
			d.Type, d.Config = v.Type, v.Config
			return []string{"type", "config"}
		},
	}
	return entity.New(b, entity.Desc[Connector]{
		Kind: "connector", Type: "Connector", Plural: "connectors", Area: Area, Table: "connectors",
		Read: entity.Needs(model.ConnectorRead), Write: entity.Needs(model.ConnectorWrite),
		Rename: entity.Always[Connector],
		Secret: secretName,
		Valid:  (*Connector).valid,
		Ceiling: &entity.Ceiling{
			Key:  "limits.connectors_per_tenant",
			Rows: func() int64 { return c.limits.ConnectorsPerTenant },
		},
		Versions: c.versions,
		Changed:  c.changed,
	})
}

// secretName is the name of a connector's secret: its id, so that a rename keeps it.
func secretName(d *Connector) store.SecretName {
	return store.SecretName{TenantID: d.TenantID, Scope: store.ScopeTenant, Name: fmt.Sprintf("connector/%d/secret", d.ID)}
}

// valid checks type and config as they belong together.
func (d *Connector) valid() error {
	if err := checkType(d.Type); err != nil {
		return err
	}
	_, err := checkConfig(d.Type, d.Config)
	return err
}

// mayPublish refuses what could not be delivered.
func (c *Connectors) mayPublish(d *Connector, v *version) error {
	if err := checkType(v.Type); err != nil {
		return err
	}
	cfg, err := checkConfig(v.Type, v.Config)
	if err != nil {
		return err
	}
	if t := typeNamed(v.Type); t.needsSecret(cfg) && !d.HasSecret {
		return model.Invalid("secret", "is required for a connector of the type %s: %s", t.Name, t.Secret)
	}
	return nil
}

// changed ends the connection of a connector that is changed or removed, and removes a secret that was made for another type.
func (c *Connectors) changed(ch *store.Change, old, row *Connector) error {
	if old == nil {
		return nil
	}
	if row != nil && row.Type != old.Type {
		if err := checkType(row.Type); err != nil { // of a rollback
			return err
		}
		if err := c.dropSecret(ch, row); err != nil {
			return err
		}
	}
	if c.pool != nil && row == nil {
		id := old.ID
		ch.OnCommit(func() { c.pool.retire(poolKey{kind: publishPool, id: id}) })
	}
	return nil
}

// dropSecret removes the secret of a connector unless the same change has set it.
func (c *Connectors) dropSecret(ch *store.Change, row *Connector) error {
	at, err := c.deps.Vault.ChangedAt(ch, secretName(row))
	if err != nil || at == 0 || at == ch.At {
		return err
	}
	if _, err := c.deps.Vault.Delete(ch, secretName(row)); err != nil {
		return err
	}
	row.HasSecret = false
	return c.Connectors.Table.Save(ch, row, "has_secret")
}

// Tokens returns the tokens of a tenant's connectors, an empty list for none. It takes part in the change that ctx belongs to.
func (c *Connectors) Tokens(ctx context.Context, tenant int64) ([]string, error) {
	tokens := []string{}
	err := store.Read(ctx, c.deps.Store, func(tx store.Tx) error {
		rows, err := c.Connectors.Table.Select(tx, tenant, "token")
		for _, row := range rows {
			tokens = append(tokens, row.Token)
		}
		return err
	})
	return tokens, err
}

// TypeOf returns the type that each of some versions of a tenant's connectors froze, by the row ids of the versions.
func (c *Connectors) TypeOf(ctx context.Context, tenant int64, ids []int64) (map[int64]string, error) {
	found := map[int64]string{}
	err := store.Read(ctx, c.deps.Store, func(tx store.Tx) error {
		bodies, err := c.versions.Bodies(tx, tenant, ids)
		for id, v := range bodies {
			found[id] = v.Type
		}
		return err
	})
	return found, err
}
