package site

import (
	"weir/model"
	"weir/registry"
	"weir/rules"
	"weir/store"
)

// Tables of the kinds that have something special. Everything else about a kind is in its description.
const (
	tableTiers       = "tenant_tiers"
	tableTenants     = "tenants"
	tableRoles       = "roles"
	tableProfiles    = "device_profiles"
	tableMetrics     = "metric_definitions"
	tableCommands    = "command_definitions"
	tableRules       = "detection_rules"
	tableDevices     = "devices"
	tableCredentials = "device_credentials"

	tableGroups            = "entity_groups"
	tableRelationships     = "entity_relationships"
	tableRelationshipTypes = "entity_relationship_types"
)

// specialize adds what descriptions do not say: of the format (which lists are sets, which keys a document has), and of the
// kinds with fields that have verbs of their own or are secrets.
func (f *Format) specialize() {
	for table, adjust := range map[string]func(k *kind){
		tableTiers: func(k *kind) {
			k.ordered = true
			k.field("config").emptyIsNone = true
		},
		tableGroups: func(k *kind) { k.first = true }, // rules are scoped to versions
		tableRoles:  func(k *kind) { k.field("authorities").typ = setField },
		tableTenants: func(k *kind) {
			k.fields = append(k.fields, field{name: "enabled", typ: boolField, fresh: freshValue("enabled")})
			k.values, k.write = tenantValues, writeTenant
		},
		tableProfiles: func(k *kind) {
			k.field("location").keys = []string{"expectedAccuracyMeters", "expectedUpdateIntervalSeconds"}
		},
		tableRules:       func(k *kind) { k.field("definition").inner = rules.Schema },
		tableCommands:    func(k *kind) { k.field("commandKey").uniqueInside = true },
		tableMetrics:     func(k *kind) { k.field("metricKey").uniqueInside = true },
		tableCredentials: func(k *kind) { k.secrets, k.exported = credentialSecrets, exportedCredential },
	} {
		if k := f.of(table); k != nil {
			adjust(k)
		}
	}
	for entityType, table := range registry.EntityTypes() {
		if k := f.of(table); k != nil {
			withAttributes(k, entityType)
		}
	}
}

// people makes the kinds that are none of store/entity: each of their fields has a verb of its own.
func (f *Format) people() {
	f.membership = &kind{name: kindMembership, list: "memberships", id: "tenant", fields: []field{
		{name: "enabled", typ: boolField}, {name: "roles", typ: setField, ref: "roles"}}}
	f.identity = &kind{name: "identity", list: "identities", id: "email", lists: []*kind{f.membership}, fields: []field{
		{name: "firstName", emptyClears: true}, {name: "lastName", emptyClears: true}, {name: "enabled", typ: boolField},
		{name: "systemRoles", typ: setField, ref: "roles"}, {name: "password", secret: true}}}
}

func tenantValues(_ *level, k *kind, rows []any, values []store.Patch) error {
	for i, row := range rows {
		values[i]["enabled"] = k.live.Value(row, "enabled")
	}
	return nil
}

// writeTenant writes a tenant. Whether it is enabled is no field but a verb of its own.
func writeTenant(l *level, k *kind, name string, fresh bool, patch store.Patch) error {
	enabled, named := patch["enabled"]
	delete(patch, "enabled")
	if fresh || len(patch) > 0 {
		if err := plainWrite(l, k, name, fresh, patch); err != nil {
			return err
		}
	}
	if !named {
		return nil
	}
	on, ok := enabled.(bool)
	if !ok {
		return model.Invalid("enabled", "null is refused")
	}
	_, err := l.parts.Govern.SetTenantEnabled(l.ctx, l.by, name, on)
	return err
}

// credentialSecrets puts the secrets of a credential into a patch. An id is compared by its hash; a password was compared
// before the transaction began. A credential that does not exist yet has its secrets in the file.
func credentialSecrets(l *level, _ *kind, d *declared, row any, patch store.Patch) (fields []FieldChange, err error) {
	id, hasID := d.Secrets["credentialId"]
	value, hasValue := d.Secrets["credentialValue"]
	set := func(name string, v any) {
		patch[name] = v
		fields = append(fields, FieldChange{Name: name, Secret: true})
	}
	stored := ""
	if row == nil {
		switch {
		case !hasID:
			return nil, model.Invalid("credentialId", "is required")
		case !hasValue && patch["credentialType"] == registry.MQTTBasic:
			return nil, model.Invalid("credentialValue", "is required")
		}
		patch["credentialId"] = id
	} else {
		have := row.(*registry.DeviceCredential)
		if have.ValueHash != nil {
			stored = *have.ValueHash
		}
		if hasID && !have.HasID(id) {
			set("credentialId", id)
		}
		if v, ok := d.Fields["credentialValue"]; ok && v == nil && stored != "" {
			set("credentialValue", nil)
		}
	}
	if !hasValue {
		return fields, nil
	}
	if row != nil {
		same, err := l.pw.same(credentialHolder(l.tenant, d.Name), stored)
		if err != nil || same {
			return fields, err
		}
	}
	hash, err := l.pw.Hash(l.ctx, value)
	set("credentialValue", registry.Hashed(hash))
	return fields, err
}

// exportedCredential adds the id of a credential where it is no secret.
func exportedCredential(l *level, row any, e *Entity) error {
	c := row.(*registry.DeviceCredential)
	if c.Type == registry.AccessToken {
		return nil
	}
	id, err := l.parts.Registry.CredentialID(c)
	e.keep("credentialId", id)
	return err
}
