package site

import (
	"weir/model"
	"weir/registry"
	"weir/store"
)

// putCredentials makes and changes credentials. An id is compared by its hash; a password was compared before the
// transaction began.
func (t *inTenant) putCredentials(list []declared) error {
	live := t.registry.Credentials
	s := shelf[registry.DeviceCredential]{t: t, kind: t.kinds.credential, live: live, create: t.newCredential, update: t.updateCredential}
	var failed error
	s.values = func(c *registry.DeviceCredential) store.Patch {
		v := live.Values(c)
		if err := t.nameDevice(c.DeviceID); err != nil {
			failed = err
		}
		token(v, "deviceToken", t.devices)
		return v
	}
	if err := s.put(list); err != nil {
		return err
	}
	return failed
}

// nameDevice learns the token of a device that is not declared, whose credential is.
func (t *inTenant) nameDevice(id int64) error {
	if t.devices[id] != "" {
		return nil
	}
	rows, err := t.registry.Devices.ByID(t.ctx, t.by, []int64{id})
	for _, d := range rows {
		t.devices[d.ID] = d.Token
	}
	return err
}

// newCredential: a credential that does not exist yet has its secrets in the file.
func (t *inTenant) newCredential(d *declared, patch store.Patch) error {
	id, ok := d.Secrets["credentialId"]
	if !ok {
		return model.Invalid("credentialId", "is required")
	}
	patch["credentialId"] = id
	switch value, ok := d.Secrets["credentialValue"]; {
	case ok:
		return t.setPassword(patch, value)
	case patch["credentialType"] == registry.MQTTBasic:
		return model.Invalid("credentialValue", "is required")
	}
	return nil
}

func (t *inTenant) updateCredential(d *declared, row *registry.DeviceCredential, patch store.Patch) ([]FieldChange, error) {
	var fields []FieldChange
	set := func(name string, v any) {
		patch[name] = v
		fields = append(fields, FieldChange{Name: name, Secret: true})
	}
	if id, ok := d.Secrets["credentialId"]; ok && !row.HasID(id) {
		set("credentialId", id)
	}
	if v, ok := d.Fields["credentialValue"]; ok && v == nil && row.ValueHash != nil {
		set("credentialValue", nil)
	}
	if value, ok := d.Secrets["credentialValue"]; ok {
		stored := ""
		if row.ValueHash != nil {
			stored = *row.ValueHash
		}
		same, err := t.pw.same(credentialHolder(t.e.Name, d.Name), stored)
		if err != nil {
			return nil, err
		}
		if !same {
			fields = append(fields, FieldChange{Name: "credentialValue", Secret: true})
			return fields, t.setPassword(patch, value)
		}
	}
	return fields, nil
}

// setPassword puts the hash of a password, which was prepared before the transaction, into a patch.
func (t *inTenant) setPassword(patch store.Patch, password string) error {
	hash, err := t.pw.Hash(t.ctx, password)
	patch["credentialValue"] = registry.Hashed(hash)
	return err
}
